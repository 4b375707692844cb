#if __has_include(<cublasLt.h>)
#include <belfry/ops/cuda/cublas_lt_internal.h>

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/graph/error.h>

namespace belfry::cublas_lt {

namespace {

/// A field per function, under the function's own name.
struct Api {
  decltype(&::cublasLtCreate) cublasLtCreate;
  decltype(&::cublasLtDestroy) cublasLtDestroy;
  decltype(&::cublasLtGetStatusName) cublasLtGetStatusName;
  decltype(&::cublasLtMatmul) cublasLtMatmul;
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) cublasLtMatmulAlgoConfigGetAttribute;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) cublasLtMatmulAlgoGetHeuristic;
  decltype(&::cublasLtMatmulDescCreate) cublasLtMatmulDescCreate;
  decltype(&::cublasLtMatmulDescDestroy) cublasLtMatmulDescDestroy;
  decltype(&::cublasLtMatmulDescSetAttribute) cublasLtMatmulDescSetAttribute;
  decltype(&::cublasLtMatmulPreferenceCreate) cublasLtMatmulPreferenceCreate;
  decltype(&::cublasLtMatmulPreferenceDestroy) cublasLtMatmulPreferenceDestroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) cublasLtMatmulPreferenceSetAttribute;
  decltype(&::cublasLtMatrixLayoutCreate) cublasLtMatrixLayoutCreate;
  decltype(&::cublasLtMatrixLayoutDestroy) cublasLtMatrixLayoutDestroy;
  decltype(&::cublasLtMatrixLayoutSetAttribute) cublasLtMatrixLayoutSetAttribute;
};

template <class F>
void load(void* library, const char* name, F& f) {
  f = reinterpret_cast<F>(dlsym(library, name));
  if (!f) throw DeviceError(fmt::format("cuBLASLt lacks {}; install cuBLAS 13.0 or a later 13", name));
}

Api loaded(void* library) {
  Api out{};
#define BELFRY_LOAD(name) load(library, #name, out.name)
  BELFRY_LOAD(cublasLtCreate);
  BELFRY_LOAD(cublasLtDestroy);
  BELFRY_LOAD(cublasLtGetStatusName);
  BELFRY_LOAD(cublasLtMatmul);
  BELFRY_LOAD(cublasLtMatmulAlgoConfigGetAttribute);
  BELFRY_LOAD(cublasLtMatmulAlgoGetHeuristic);
  BELFRY_LOAD(cublasLtMatmulDescCreate);
  BELFRY_LOAD(cublasLtMatmulDescDestroy);
  BELFRY_LOAD(cublasLtMatmulDescSetAttribute);
  BELFRY_LOAD(cublasLtMatmulPreferenceCreate);
  BELFRY_LOAD(cublasLtMatmulPreferenceDestroy);
  BELFRY_LOAD(cublasLtMatmulPreferenceSetAttribute);
  BELFRY_LOAD(cublasLtMatrixLayoutCreate);
  BELFRY_LOAD(cublasLtMatrixLayoutDestroy);
  BELFRY_LOAD(cublasLtMatrixLayoutSetAttribute);
#undef BELFRY_LOAD
  return out;
}

const Api& api(CudaToolkit& toolkit) {
  void* library = toolkit.library(CudaLibrary::cublas_lt);
  static const Api kApi = loaded(library);
  return kApi;
}

void check(const Api& api, cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw DeviceError(fmt::format("cuBLASLt: {} gives {}", call, api.cublasLtGetStatusName(status)));
}

/// One per thread, as long as somebody holds it.
struct Handle {
  explicit Handle(const Api& api) : api(api) { check(api, api.cublasLtCreate(&raw), "cublasLtCreate"); }
  ~Handle() { api.cublasLtDestroy(raw); }
  const Api& api;
  cublasLtHandle_t raw = nullptr;
};

std::shared_ptr<Handle> handle_of(CudaToolkit& toolkit) {
  thread_local std::weak_ptr<Handle> known;
  if (auto handle = known.lock()) return handle;
  auto handle = std::make_shared<Handle>(api(toolkit));
  known = handle;
  return handle;
}

template <class T>
using Held = std::unique_ptr<T, cublasStatus_t (*)(T*)>;
using Layout = Held<cublasLtMatrixLayoutOpaque_t>;

/// Column by column, as cuBLAS counts: `step` elements from one column to the next.
Layout layout(const Api& api, cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t step, std::int64_t batch = 1, std::int64_t batch_step = 0) {
  cublasLtMatrixLayout_t raw = nullptr;
  check(api, api.cublasLtMatrixLayoutCreate(&raw, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), step), "cublasLtMatrixLayoutCreate");
  Layout out(raw, api.cublasLtMatrixLayoutDestroy);
  auto count = static_cast<std::int32_t>(batch);
  check(api, api.cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "cublasLtMatrixLayoutSetAttribute");
  check(api, api.cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_step, sizeof batch_step), "cublasLtMatrixLayoutSetAttribute");
  return out;
}

cudaDataType_t type_of(DType dtype) { return dtype == f64 ? CUDA_R_64F : dtype == f16 ? CUDA_R_16F : dtype == bf16 ? CUDA_R_16BF : CUDA_R_32F; }

using Algorithm = cublasLtMatmulHeuristicResult_t;

/// All that an algorithm is configured by, but how parts of sums are joined, which is the same for all: "algo66{tile=20,stages=8,splits=1,…}".
std::string name_of(const Api& api, const Algorithm& a) {
  auto value = [&](cublasLtMatmulAlgoConfigAttributes_t name, auto out) {
    std::size_t written = 0;
    check(api, api.cublasLtMatmulAlgoConfigGetAttribute(&a.algo, name, &out, sizeof out, &written), "cublasLtMatmulAlgoConfigGetAttribute");
    return out;
  };
  return fmt::format("algo{}{{tile={},stages={},splits={},swizzle={},custom={},inner={},cluster={}}}", value(CUBLASLT_ALGO_CONFIG_ID, std::int32_t{}), value(CUBLASLT_ALGO_CONFIG_TILE_ID, std::uint32_t{}),
                     value(CUBLASLT_ALGO_CONFIG_STAGES_ID, std::uint32_t{}), value(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, std::int32_t{}), value(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, std::uint32_t{}),
                     value(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, std::uint32_t{}), value(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, std::uint16_t{}), value(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, std::uint16_t{}));
}

class MultiplicationImpl : public Multiplication {
 public:
  MultiplicationImpl(std::shared_ptr<Handle> h, const Product& p)
      : handle_(std::move(h)), api_(handle_->api), wide_(p.dtype == f64), one_(1), beta_(p.accumulate ? 1 : 0), one_f32_(1), beta_f32_(p.accumulate ? 1 : 0) {
    const ColumnMajor c = column_major(p);
    cublasLtMatmulDesc_t raw = nullptr;
    check(api_, api_.cublasLtMatmulDescCreate(&raw, wide_ ? CUBLAS_COMPUTE_64F : p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, wide_ ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
    product_.reset(raw);
    for (auto [attribute, transposed] : {std::pair(CUBLASLT_MATMUL_DESC_TRANSA, c.first.transposed), std::pair(CUBLASLT_MATMUL_DESC_TRANSB, c.second.transposed)}) {
      cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      check(api_, api_.cublasLtMatmulDescSetAttribute(raw, attribute, &operation, sizeof operation), "cublasLtMatmulDescSetAttribute");
    }
    finish_by(p);
    swapped_ = c.swapped;
    first_ = stored(c.first, p.dtype, p.batch);
    second_ = stored(c.second, p.dtype, p.batch);
    y_ = stored(c.y, p.result, p.batch);
    fitting_ = forecast(p.alignment);
    chosen_ = fitting_.at(0);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const Algorithm& a : fitting_) out.push_back(name_of(api_, a));
    return out;
  }
  void choose(const std::string& name) {
    const std::vector<std::string> all = names();
    const auto at = std::find(all.begin(), all.end(), name);
    if (at == all.end()) throw DeviceError(fmt::format("cuBLASLt does not name the algorithm {} for it here; derive the plan anew with belfry place", name));
    chosen_ = fitting_[static_cast<std::size_t>(at - all.begin())];
  }

  void run(const void* a, const void* b, void* y, std::byte* scratch, void* stream, const void* bias, const void* added) override {
    if (bias) check(api_, api_.cublasLtMatmulDescSetAttribute(product_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias), "cublasLtMatmulDescSetAttribute");
    const void *one = wide_ ? static_cast<const void*>(&one_) : &one_f32_, *beta = wide_ ? static_cast<const void*>(&beta_) : &beta_f32_;
    if (!swapped_) std::swap(a, b);
    const auto on = static_cast<cudaStream_t>(stream);
    const cublasStatus_t status =
        api_.cublasLtMatmul(handle_->raw, product_.get(), one, a, first_.get(), b, second_.get(), beta, added ? added : y, y_.get(), y, y_.get(), &chosen_.algo, workspace_in(scratch), chosen_.workspaceSize, on);
    check(api_, status, "cublasLtMatmul");
  }

 private:
  Layout stored(const ColumnMajor::Matrix& m, DType dtype, std::int64_t batch) const { return layout(api_, type_of(dtype), m.rows, m.columns, m.step, batch, m.batch_step); }

  /// A bias goes along the rows of what cuBLAS makes, which are our columns.
  void finish_by(const Product& p) {
    if (p.epilogue == Epilogue::none) return;
    const cublasLtEpilogue_t epilogue = p.epilogue == Epilogue::bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
    const cudaDataType_t type = type_of(p.result);
    check(api_, api_.cublasLtMatmulDescSetAttribute(product_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), "cublasLtMatmulDescSetAttribute");
    check(api_, api_.cublasLtMatmulDescSetAttribute(product_.get(), CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type), "cublasLtMatmulDescSetAttribute");
  }

  /// Best first. Sums that are split over blocks are joined in scratch, in their order, never by atomic additions to y.
  std::vector<Algorithm> forecast(std::int64_t alignment) const {
    cublasLtMatmulPreference_t raw = nullptr;
    check(api_, api_.cublasLtMatmulPreferenceCreate(&raw), "cublasLtMatmulPreferenceCreate");
    Held<cublasLtMatmulPreferenceOpaque_t> preference(raw, api_.cublasLtMatmulPreferenceDestroy);
    auto set = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      check(api_, api_.cublasLtMatmulPreferenceSetAttribute(raw, name, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(name, static_cast<std::uint32_t>(alignment));
    std::vector<Algorithm> out(kMostAlgorithms);
    int found = 0;
    check(api_, api_.cublasLtMatmulAlgoGetHeuristic(handle_->raw, product_.get(), first_.get(), second_.get(), y_.get(), y_.get(), raw, static_cast<int>(out.size()), out.data(), &found), "cublasLtMatmulAlgoGetHeuristic");
    out.resize(static_cast<std::size_t>(found));
    std::erase_if(out, [](const Algorithm& a) { return a.state != CUBLAS_STATUS_SUCCESS || a.workspaceSize > static_cast<std::size_t>(kWorkspaceBytes); });
    if (out.empty()) throw DeviceError("cuBLASLt has no algorithm for a product of this form");
    return out;
  }

  std::shared_ptr<Handle> handle_;
  const Api& api_;
  bool wide_;
  double one_, beta_;
  float one_f32_, beta_f32_;
  Held<cublasLtMatmulDescOpaque_t> product_{nullptr, api_.cublasLtMatmulDescDestroy};
  Layout first_{nullptr, nullptr}, second_{nullptr, nullptr}, y_{nullptr, nullptr};
  bool swapped_ = false;
  std::vector<Algorithm> fitting_;
  Algorithm chosen_{};
};

}  // namespace

bool built() { return true; }

std::unique_ptr<Multiplication> multiplication(CudaToolkit& toolkit, const Product& product, const std::string& algorithm) {
  auto out = std::make_unique<MultiplicationImpl>(handle_of(toolkit), product);
  if (!algorithm.empty()) out->choose(algorithm);
  return out;
}
std::vector<std::string> algorithm_names(CudaToolkit& toolkit, const Product& product) { return MultiplicationImpl(handle_of(toolkit), product).names(); }

}  // namespace belfry::cublas_lt
#endif
