#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {

/// Division of integers can fail, and is left to the host.
std::vector<Kernel> binary_cuda(const GpuCodeRef& code) {
  std::vector<Kernel> out;
  for (const char* op : {"add", "sub", "mul", "maximum", "minimum", "squared_difference"}) out.push_back(elementwise_kernel(code, op, {f32, f64, i32, i64, f16, bf16}));
  for (const char* op : {"div", "pow", "sigmoid_cross_entropy"}) out.push_back(elementwise_kernel(code, op, {f32, f64, f16, bf16}));
  return out;
}

}  // namespace belfry
