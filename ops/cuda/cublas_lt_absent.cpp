// Stands for cublas_lt.cpp where the header of cuBLASLt is missing.
#if !__has_include(<cublasLt.h>)
#include <belfry/graph/error.h>
#include <belfry/ops/cuda/cublas_lt_internal.h>

namespace belfry::cublas_lt {

namespace {
constexpr const char* kAbsent = "Belfry was built without cuBLASLt's header";
}

bool built() { return false; }
std::unique_ptr<Multiplication> multiplication(CudaToolkit&, const Product&, const std::string&) { throw DeviceError(kAbsent); }
std::vector<std::string> algorithm_names(CudaToolkit&, const Product&) { throw DeviceError(kAbsent); }

}  // namespace belfry::cublas_lt
#endif
