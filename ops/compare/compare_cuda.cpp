#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {

std::vector<Kernel> compare_cuda(const GpuCodeRef& code) {
  const std::vector<DType> all = {f32, f64, i32, i64, u8, boolean, f16, bf16};
  std::vector<Kernel> out;
  for (const char* op : {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_not"}) out.push_back(elementwise_kernel(code, op, all));
  out.push_back(elementwise_kernel(code, "where", all, 1));
  return out;
}

}  // namespace belfry
