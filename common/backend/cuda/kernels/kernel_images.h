// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_KERNELS_KERNEL_IMAGES_H_
#define BATON_COMMON_BACKEND_CUDA_KERNELS_KERNEL_IMAGES_H_

#include <span>

namespace baton::cuda {

// One .cu file's kernels, embedded. The PTX ends with a zero; the cubins are made of it.
struct KernelImage {
  const char* name;
  const char* ptx;
  const char* sm_80;
  const char* sm_90;
};

std::span<const KernelImage> KernelImages();

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_KERNELS_KERNEL_IMAGES_H_
