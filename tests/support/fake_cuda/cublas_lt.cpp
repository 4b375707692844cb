// cuBLASLt as far as Belfry calls it: it computes nothing, but holds a product to what the real one asks of its workspace, its bias and what it adds to, and writes all of the workspace.
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "state_internal.h"

using namespace fake_cuda;

struct cublasLtContext {
  CUctx_st* context;
};

namespace {

constexpr std::uintptr_t kAlignment = 256;

/// Attributes by descriptor.
std::map<const void*, std::map<int, std::uint64_t>>& attributes() {
  static auto* all = new std::map<const void*, std::map<int, std::uint64_t>>;
  return *all;
}

template <class T>
cublasStatus_t make(T** out) {
  *out = new T{};
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(T* descriptor) {
  std::lock_guard lock(state().mutex);
  attributes().erase(descriptor);
  delete descriptor;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set(const void* descriptor, int name, const void* value, std::size_t bytes) {
  if (bytes > sizeof(std::uint64_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::lock_guard lock(state().mutex);
  std::memcpy(&attributes()[descriptor][name], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::uint64_t last_algorithm = 0;
const void* last_added = nullptr;

constexpr int kScaleType = -1;  // beside the attributes of a product

bool wants_bias(std::uint64_t epilogue) { return epilogue & CUBLASLT_EPILOGUE_BIAS; }

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* out) {
  Call call("cublasLtCreate");
  if (call.error) return CUBLAS_STATUS_NOT_INITIALIZED;
  *out = reinterpret_cast<cublasLtHandle_t>(new cublasLtContext{call.context});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<cublasLtContext*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "another status";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t, cudaDataType_t scale) {
  make(out);
  const auto type = static_cast<std::uint64_t>(scale);
  return set(*out, kScaleType, &type, sizeof type);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return destroy(d); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, const void* value, std::size_t bytes) { return set(d, name, value, bytes); }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) { return make(out); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return destroy(p); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t name, const void* value, std::size_t bytes) { return set(p, name, value, bytes); }
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType, std::uint64_t, std::uint64_t, std::int64_t) { return make(out); }
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return destroy(l); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t name, const void* value, std::size_t bytes) { return set(l, name, value, bytes); }

/// Three algorithms, which take all the workspace that they may; what tells them apart is the first word.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t* out, int* found) {
  std::lock_guard lock(state().mutex);
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *found = std::min(wanted, 3);
  for (int k = 0; k < *found; ++k) {
    out[k] = {};
    out[k].algo.data[0] = static_cast<std::uint64_t>(60 + k);
    out[k].workspaceSize = attributes()[preference][CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES];
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t name, void* out, std::size_t bytes, std::size_t* written) {
  const bool narrow = name == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || name == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  if (bytes != (narrow ? 2 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
  const std::uint64_t value = name == CUBLASLT_ALGO_CONFIG_ID ? algorithm->data[0] : 0;
  std::memcpy(out, &value, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
/// The last that a product ran by.
std::uint64_t fake_cublas_lt_algorithm() {
  std::lock_guard lock(state().mutex);
  return last_algorithm;
}

/// What the last one was added to; null: to nothing.
const void* fake_cublas_lt_added() {
  std::lock_guard lock(state().mutex);
  return last_added;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void*, const void* a, cublasLtMatrixLayout_t, const void* b, cublasLtMatrixLayout_t, const void* beta, const void* c, cublasLtMatrixLayout_t,
                              void* y, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t bytes, cudaStream_t stream) {
  Call call("cublasLtMatmul", Needs::context, true);
  last_algorithm = algorithm->data[0];
  const bool adds = attributes()[product][kScaleType] == CUDA_R_64F ? *static_cast<const double*>(beta) != 0 : *static_cast<const float*>(beta) != 0;
  last_added = adds ? c : nullptr;
  const auto at = reinterpret_cast<std::uintptr_t>(workspace);
  std::uintptr_t start = 0;
  const Block* block = block_of(at, &start);
  // A handle is its device's.
  if (call.error || reinterpret_cast<cublasLtContext*>(handle)->context != call.context || !a || !b || !y || (adds && !block_of(reinterpret_cast<std::uintptr_t>(c)))) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes && (at % kAlignment || !block || bytes > block->bytes - (at - start))) return CUBLAS_STATUS_INVALID_VALUE;
  if (wants_bias(attributes()[product][CUBLASLT_MATMUL_DESC_EPILOGUE]) && !attributes()[product][CUBLASLT_MATMUL_DESC_BIAS_POINTER]) return CUBLAS_STATUS_INVALID_VALUE;
  FakeOp op{{}, [=] {
              std::memset(workspace, 0xEE, bytes);
              return CUDA_SUCCESS;
            }};
  op.access = {"a product", {{workspace, bytes, true}}, true};
  return queue(call, stream, std::move(op)) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
#endif
