// SPDX-License-Identifier: Apache-2.0
// The entry points of cuBLASLt that Baton calls, over the simulated device: column-major, real leading dimensions and transposes,
// sums in fp32 in ascending order, at the stream's own time. What a matrix's description says is held against the device's memory
// before anything is read. What is not done here is refused, never ignored.
#include <cublasLt.h>
#include <cuda.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/half.h"
#include "tests/gpu_sim/cuda_sim/cuda_sim.h"

namespace {

struct SimMultiply {
  bool transpose_a = false, transpose_b = false;
};
struct SimLayout {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0;
};
// Held by every handle: a plan made with one handle is not another's.
struct SimHandle {
  uint64_t magic = 0x6c74;
};

SimMultiply* Of(cublasLtMatmulDesc_t multiply) { return reinterpret_cast<SimMultiply*>(multiply); }
SimLayout* Of(cublasLtMatrixLayout_t layout) { return reinterpret_cast<SimLayout*>(layout); }

size_t ElementBytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }
bool Known(cudaDataType type) { return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF; }

size_t Bytes(const SimLayout& layout) {
  return (static_cast<size_t>(layout.stride) * (layout.columns - 1) + layout.rows) * ElementBytes(layout.type);
}

float Load(const SimLayout& layout, const void* data, uint64_t row, uint64_t column) {
  const size_t at = static_cast<size_t>(layout.stride) * column + row;
  if (layout.type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  const uint16_t bits = static_cast<const uint16_t*>(data)[at];
  return layout.type == CUDA_R_16F ? baton::HalfToFloat(bits) : baton::BFloat16ToFloat(bits);
}

// A matrix as fp32, [rows of the product, inner] or its transpose, so that the inner loop runs along memory.
std::vector<float> Unpack(const SimLayout& layout, const void* data, bool inner_is_rows) {
  const uint64_t inner = inner_is_rows ? layout.rows : layout.columns, outer = inner_is_rows ? layout.columns : layout.rows;
  std::vector<float> values(inner * outer);
  for (uint64_t o = 0; o < outer; ++o) {
    for (uint64_t i = 0; i < inner; ++i) values[o * inner + i] = Load(layout, data, inner_is_rows ? i : o, inner_is_rows ? o : i);
  }
  return values;
}

struct Work {
  SimMultiply multiply;
  SimLayout a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  float alpha, beta;
};

void Multiply(const Work& w) {
  const uint64_t inner = w.multiply.transpose_a ? w.a.rows : w.a.columns;
  const std::vector<float> a = Unpack(w.a, w.a_data, w.multiply.transpose_a), b = Unpack(w.b, w.b_data, !w.multiply.transpose_b);
  float* const d = static_cast<float*>(w.d_data);
  for (uint64_t column = 0; column < w.d.columns; ++column) {
    for (uint64_t row = 0; row < w.d.rows; ++row) {
      float sum = 0.0f;
      for (uint64_t i = 0; i < inner; ++i) sum += a[row * inner + i] * b[column * inner + i];
      sum *= w.alpha;
      if (w.beta != 0.0f) sum += w.beta * Load(w.c, w.c_data, row, column);
      d[static_cast<size_t>(w.d.stride) * column + row] = sum;
    }
  }
}

// Runs on the stream, once; or in a graph, as often as that is launched.
void Run(const Work* work);
void CUDA_CB RunOnce(void* argument) {
  const std::unique_ptr<const Work> work(static_cast<const Work*>(argument));
  Run(work.get());
}
void CUDA_CB RunInGraph(void* argument) { Run(static_cast<const Work*>(argument)); }

void Run(const Work* work) {
  const auto check = [](const char* name, const SimLayout& layout, const void* data) {
    if (baton_cuda_sim_is_device(data, static_cast<int64_t>(Bytes(layout)))) return true;
    baton_cuda_sim_fail(absl::StrCat("cublasLtMatmul: ", name, " of ", layout.rows, " x ", layout.columns, ", leading dimension ", layout.stride,
                                     ", reaches outside every allocation").c_str());
    return false;
  };
  if (!check("A", work->a, work->a_data) || !check("B", work->b, work->b_data) || !check("D", work->d, work->d_data)) return;
  if (work->beta != 0.0f && !check("C", work->c, work->c_data)) return;
  Multiply(*work);
}

// The shapes fit together, and are what is done here.
bool Fits(const SimMultiply& multiply, const SimLayout& a, const SimLayout& b, const SimLayout& c, const SimLayout& d) {
  const uint64_t m = multiply.transpose_a ? a.columns : a.rows, inner_a = multiply.transpose_a ? a.rows : a.columns;
  const uint64_t n = multiply.transpose_b ? b.rows : b.columns, inner_b = multiply.transpose_b ? b.columns : b.rows;
  for (const SimLayout& layout : {a, b, c, d}) {
    if (layout.rows == 0 || layout.columns == 0 || layout.stride < static_cast<int64_t>(layout.rows)) return false;
  }
  return inner_a == inner_b && d.rows == m && d.columns == n && c.rows == m && c.columns == n && a.type == b.type && d.type == CUDA_R_32F &&
         c.type == CUDA_R_32F;
}

}  // namespace

extern "C" {

size_t CUBLASWINAPI cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS";
  }
}

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new SimHandle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<SimHandle*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* multiply, cublasComputeType_t compute, cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *multiply = reinterpret_cast<cublasLtMatmulDesc_t>(new SimMultiply);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t multiply) {
  delete Of(multiply);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t multiply, cublasLtMatmulDescAttributes_t attribute, const void* value,
                                                           size_t bytes) {
  cublasOperation_t operation;
  if (bytes != sizeof(operation)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&operation, value, sizeof(operation));
  if (operation != CUBLAS_OP_N && operation != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) {
    Of(multiply)->transpose_a = operation == CUBLAS_OP_T;
  } else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) {
    Of(multiply)->transpose_b = operation == CUBLAS_OP_T;
  } else {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t stride) {
  if (!Known(type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new SimLayout{type, rows, columns, stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete Of(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void*, size_t) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new uint64_t(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<uint64_t*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t attribute, const void*,
                                                                 size_t bytes) {
  if (attribute != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return CUBLAS_STATUS_NOT_SUPPORTED;
  return bytes == sizeof(uint64_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t multiply, cublasLtMatrixLayout_t a,
                                                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                           cublasLtMatmulPreference_t, int requested, cublasLtMatmulHeuristicResult_t* results,
                                                           int* found) {
  *found = 0;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Fits(*Of(multiply), *Of(a), *Of(b), *Of(c), *Of(d))) return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t multiply, const void* alpha, const void* a_data,
                                           cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b, const void* beta,
                                           const void* c_data, cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d,
                                           const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  if (!Fits(*Of(multiply), *Of(a), *Of(b), *Of(c), *Of(d))) return CUBLAS_STATUS_INVALID_VALUE;
  auto work = std::make_unique<Work>(Work{*Of(multiply), *Of(a), *Of(b), *Of(c), *Of(d), a_data, b_data, c_data, d_data,
                                          *static_cast<const float*>(alpha), *static_cast<const float*>(beta)});
  // What a graph refers to stays until the process ends: nobody says when the graph goes.
  const bool once = baton_cuda_sim_is_capturing(stream) == 0;
  if (cuLaunchHostFunc(reinterpret_cast<CUstream>(stream), once ? RunOnce : RunInGraph, work.get()) != CUDA_SUCCESS) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  if (once) {
    work.release();
  } else {
    static std::mutex mutex;
    static auto* const kept = new std::vector<std::unique_ptr<Work>>;
    const std::lock_guard<std::mutex> lock(mutex);
    kept->push_back(std::move(work));
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
