// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/dynamic_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace baton::cuda {

absl::StatusOr<DynamicLibrary> DynamicLibrary::Open(const std::string& name) {
  if (name.empty()) return absl::InvalidArgumentError("a library's name is empty");
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();
    return absl::FailedPreconditionError(error != nullptr ? std::string(error) : absl::StrCat(name, ": cannot be opened"));
  }
  return DynamicLibrary(name, handle);
}

void* DynamicLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

absl::Status DynamicLibrary::Missing(absl::string_view symbol) const {
  return absl::FailedPreconditionError(absl::StrCat(name_, " has no function ", symbol));
}

}  // namespace baton::cuda
