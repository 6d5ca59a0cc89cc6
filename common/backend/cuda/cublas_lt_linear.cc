// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cublas_lt_linear.h"

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace baton::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // What NVIDIA advises for Hopper.

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLtLinear>> CublasLtLinear::Create(CudaContext* context, const std::string& library, int panel_rows) {
  std::unique_ptr<CublasLtLinear> linear(new CublasLtLinear(context, panel_rows));
  BATON_ASSIGN_OR_RETURN(linear->api_, CublasLtApi::Load(library));
  BATON_ASSIGN_OR_RETURN(linear->workspace_, context->Allocate(kWorkspaceBytes));  // Makes the context this thread's, too.
  BATON_RETURN_IF_ERROR(linear->api_.ToStatus(linear->api_.cublasLtCreate(&linear->handle_), "cublasLtCreate"));
  return linear;
}

CublasLtLinear::~CublasLtLinear() {
  for (const auto& [key, plan] : plans_) Free(plan);
  if (handle_ != nullptr) api_.cublasLtDestroy(handle_);
}

std::string CublasLtLinear::version() const {
  const size_t version = api_.cublasLtGetVersion();
  return absl::StrFormat("%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

// In the library's column-major terms: y^T [out, rows] = W^T^T [out, in] x^T [in, rows].
absl::Status CublasLtLinear::FillPlan(Plan* plan, bool bf16, int64_t out, int64_t in, int64_t y_stride) {
  const auto check = [this](cublasStatus_t status, absl::string_view doing) { return api_.ToStatus(status, doing); };
  const cudaDataType_t type = bf16 ? CUDA_R_16BF : CUDA_R_16F;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const uint64_t rows = static_cast<uint64_t>(panel_rows_), num_out = static_cast<uint64_t>(out), num_in = static_cast<uint64_t>(in);
  BATON_RETURN_IF_ERROR(check(api_.cublasLtMatmulDescCreate(&plan->multiply, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate"));
  BATON_RETURN_IF_ERROR(check(api_.cublasLtMatmulDescSetAttribute(plan->multiply, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
                              "cublasLtMatmulDescSetAttribute"));
  BATON_RETURN_IF_ERROR(check(api_.cublasLtMatrixLayoutCreate(&plan->weights, type, num_in, num_out, in), "cublasLtMatrixLayoutCreate"));
  BATON_RETURN_IF_ERROR(check(api_.cublasLtMatrixLayoutCreate(&plan->x, type, num_in, rows, in), "cublasLtMatrixLayoutCreate"));
  BATON_RETURN_IF_ERROR(check(api_.cublasLtMatrixLayoutCreate(&plan->y, CUDA_R_32F, num_out, rows, y_stride), "cublasLtMatrixLayoutCreate"));
  cublasLtMatmulPreference_t preference = nullptr;
  BATON_RETURN_IF_ERROR(check(api_.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  cublasStatus_t status = api_.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                                                    sizeof(kWorkspaceBytes));
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = api_.cublasLtMatmulAlgoGetHeuristic(handle_, plan->multiply, plan->weights, plan->x, plan->y, plan->y, preference, 1, &best, &found);
  }
  api_.cublasLtMatmulPreferenceDestroy(preference);
  BATON_RETURN_IF_ERROR(check(status, "cublasLtMatmulAlgoGetHeuristic"));
  if (found == 0) return absl::InternalError("cuBLASLt has no algorithm");
  plan->algorithm = best.algo;
  plan->workspace_bytes = best.workspaceSize;
  return absl::OkStatus();
}

absl::StatusOr<CublasLtLinear::Plan> CublasLtLinear::MakePlan(bool bf16, int64_t out, int64_t in, int64_t y_stride) {
  Plan plan;
  if (absl::Status status = FillPlan(&plan, bf16, out, in, y_stride); !status.ok()) {
    Free(plan);
    return Annotate(status, absl::StrFormat("a multiply of %d rows by [%d, %d]", panel_rows_, out, in));
  }
  return plan;
}

void CublasLtLinear::Free(const Plan& plan) {
  if (plan.y != nullptr) api_.cublasLtMatrixLayoutDestroy(plan.y);
  if (plan.x != nullptr) api_.cublasLtMatrixLayoutDestroy(plan.x);
  if (plan.weights != nullptr) api_.cublasLtMatrixLayoutDestroy(plan.weights);
  if (plan.multiply != nullptr) api_.cublasLtMatmulDescDestroy(plan.multiply);
}

void CublasLtLinear::Run(const void* weights, bool bf16, int64_t out, int64_t in, const void* x, float* y, int64_t y_stride) {
  if (!context_->status().ok()) return;
  const auto key = std::tuple(bf16, out, in, y_stride);
  auto plan = plans_.find(key);
  if (plan == plans_.end()) {
    auto made = MakePlan(bf16, out, in, y_stride);
    if (!made.ok()) return context_->Fail(made.status());
    plan = plans_.emplace(key, *made).first;
  }
  const Plan& p = plan->second;
  const float one = 1.0f, zero = 0.0f;
  for (CUstream stream : context_->streams()) {
    const cublasStatus_t status = api_.cublasLtMatmul(handle_, p.multiply, &one, weights, p.weights, x, p.x, &zero, y, p.y, y, p.y, &p.algorithm,
                                                      workspace_.get(), kWorkspaceBytes, stream);
    if (status != CUBLAS_STATUS_SUCCESS) context_->Fail(api_.ToStatus(status, "cublasLtMatmul"));
  }
}

}  // namespace baton::cuda
