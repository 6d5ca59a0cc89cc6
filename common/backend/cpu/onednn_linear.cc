// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/onednn_linear.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/half.h"
#include "common/base/logging.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace baton::cpu {
namespace {

using dnnl::memory;

size_t PadTo64(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Debian's oneDNN splits work over OpenMP threads; here each compute thread brings its own slice.
void UseThisThreadOnly() {
  thread_local bool done = false;
  if (done) return;
  omp_set_num_threads(1);
  done = true;
}

const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

}  // namespace

struct OneDnnLinear::Impl {
  int64_t out = 0, in = 0;
  bool bf16 = false;
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
  memory weights;

  size_t source_bytes() const { return PadTo64(static_cast<size_t>(kRows * in) * (bf16 ? 2 : 4)); }
  size_t result_bytes() const { return PadTo64(static_cast<size_t>(kRows * out) * 4); }
};

OneDnnLinear::OneDnnLinear(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OneDnnLinear::~OneDnnLinear() = default;

absl::StatusOr<std::unique_ptr<OneDnnLinear>> OneDnnLinear::Create(const std::function<void(int64_t, float*)>& row,
                                                                   int64_t out, int64_t in, bool bf16) {
  try {
    UseThisThreadOnly();
    auto impl = std::make_unique<Impl>();
    impl->out = out;
    impl->in = in;
    impl->bf16 = bf16;
    const memory::data_type type = bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    const memory::desc source({kRows, in}, type, memory::format_tag::ab);
    const memory::desc any_weights({in, out}, type, memory::format_tag::any);
    const memory::desc result({kRows, out}, memory::data_type::f32, memory::format_tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    impl->desc = dnnl::matmul::primitive_desc(dnnl::matmul::desc(source, any_weights, result), attributes, CpuEngine());
    impl->primitive = dnnl::matmul(impl->desc);

    // [in, out] with out outermost is the matrix as rows of outputs.
    memory plain({{in, out}, type, memory::format_tag::ba}, CpuEngine());
    std::vector<float> line(static_cast<size_t>(in));
    for (int64_t i = 0; i < out; ++i) {
      row(i, line.data());
      if (!bf16) {
        std::memcpy(static_cast<float*>(plain.get_data_handle()) + i * in, line.data(), line.size() * 4);
        continue;
      }
      uint16_t* to = static_cast<uint16_t*>(plain.get_data_handle()) + i * in;
      for (int64_t k = 0; k < in; ++k) to[k] = FloatToBFloat16(line[static_cast<size_t>(k)]);
    }
    impl->weights = memory(impl->desc.weights_desc(), CpuEngine());
    dnnl::stream stream(CpuEngine());
    dnnl::reorder(plain, impl->weights).execute(stream, plain, impl->weights);
    stream.wait();
    return std::unique_ptr<OneDnnLinear>(new OneDnnLinear(std::move(impl)));
  } catch (const dnnl::error& e) {
    return absl::FailedPreconditionError(
        absl::StrFormat("oneDNN, [%d, %d] in %s: %s", out, in, bf16 ? "bf16" : "fp32", e.what()));
  }
}

size_t OneDnnLinear::scratch_bytes() const {
  return impl_->source_bytes() + impl_->result_bytes() + PadTo64(impl_->desc.scratchpad_desc().get_size()) + 64;
}
size_t OneDnnLinear::weight_bytes() const { return impl_->desc.weights_desc().get_size(); }
std::span<const uint8_t> OneDnnLinear::weights() const {
  return {static_cast<const uint8_t*>(impl_->weights.get_data_handle()), weight_bytes()};
}
std::string OneDnnLinear::implementation() const { return impl_->desc.impl_info_str(); }

void OneDnnLinear::Run(const Kernels& kernels, const float* x, int64_t ldx, int64_t num_rows, float* y, int64_t ldy,
                       Epilogue epilogue, uint8_t* scratch) const {
  BATON_CHECK(num_rows <= kRows);
  UseThisThreadOnly();
  const Impl& m = *impl_;
  uint8_t* source = scratch;
  float* result = reinterpret_cast<float*>(scratch + m.source_bytes());
  uint8_t* pad = scratch + m.source_bytes() + m.result_bytes();
  const int64_t row_bytes = m.in * (m.bf16 ? 2 : 4);
  for (int64_t r = 0; r < num_rows; ++r) {
    kernels.round(x + r * ldx, m.bf16 ? FloatType::kBf16 : FloatType::kF32, m.in, source + r * row_bytes);
  }
  std::memset(source + num_rows * row_bytes, 0, static_cast<size_t>((kRows - num_rows) * row_bytes));

  static thread_local dnnl::stream stream(CpuEngine());
  const memory source_memory(m.desc.src_desc(), CpuEngine(), source);
  const memory result_memory(m.desc.dst_desc(), CpuEngine(), result);
  const memory scratch_memory(m.desc.scratchpad_desc(), CpuEngine(), pad);
  m.primitive.execute(stream, {{DNNL_ARG_SRC, source_memory},
                               {DNNL_ARG_WEIGHTS, m.weights},
                               {DNNL_ARG_DST, result_memory},
                               {DNNL_ARG_SCRATCHPAD, scratch_memory}});
  for (int64_t r = 0; r < num_rows; ++r) {
    const float* from = result + r * m.out;
    float* to = y + r * ldy;
    switch (epilogue) {
      case Epilogue::kStore:
        std::memcpy(to, from, static_cast<size_t>(m.out) * 4);
        break;
      case Epilogue::kAccumulate:
        kernels.add(from, m.out, to);
        break;
      case Epilogue::kSiluMul:
        kernels.silu_mul(from, from + m.out / 2, m.out / 2, to);
        break;
    }
  }
}

}  // namespace baton::cpu
