#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {

std::vector<Kernel> unary_cuda(const GpuCodeRef& code) {
  std::vector<Kernel> out;
  for (const char* op : {"neg", "abs", "sign", "square"}) out.push_back(elementwise_kernel(code, op, {f32, f64, i32, i64, f16, bf16}));
  for (const char* op : {"floor", "ceil", "round", "exp", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "erf", "tanh", "sigmoid", "softplus", "silu", "gelu", "gelu_tanh", "relu",
                         "relu6", "leaky_relu", "elu", "clip", "relu_gradient", "relu6_gradient", "leaky_relu_gradient", "elu_gradient", "gelu_gradient", "clip_gradient"})
    out.push_back(elementwise_kernel(code, op, {f32, f64, f16, bf16}));
  return out;
}

}  // namespace belfry
