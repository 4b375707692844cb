#include <belfry/ops/cuda_kernels.h>

#include <limits>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {
namespace {

Kernel kernel(const GpuCodeRef& code, const char* op, const char* result) {
  return {.name = "nvrtc_softmax", .op = op, .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {f32, f64}); }, .prepare = [=](const KernelRequest& r) {
            AlongAxis along(r.inputs[0].shape, from_front(r.attributes->integer("axis"), static_cast<int>(r.inputs[0].shape.size())));
            Generated g(r);
            Grid grid = g.type("T", r.inputs[0].dtype).lines(along.n == 0 ? 0 : along.outer, along.n, along.inner);
            g.real("low", -std::numeric_limits<double>::infinity()).head(std::string("#define RESULT ") + result).body(R"(
KERNEL void softmax(const Args a) {
  EACH_LINE(line) {
    const i64 at = line / a.inner * a.n * a.inner + line % a.inner;
    const T* x = (const T*)a.in[0] + at;
    T* y = (T*)a.out[0] + at;
    T top = (T)a.low, sum = 0;
    EACH_OF(k, a.n) top = Greater()(top, x[k * a.inner]);
    top = across(top, Greater());
    EACH_OF(k, a.n) sum += exp(x[k * a.inner] - top);
    sum = across(sum, Add());
    const T log_sum = log(sum);
    EACH_OF(k, a.n) {
      const T shifted = x[k * a.inner] - top;
      y[k * a.inner] = RESULT;
    }
  }
}
)");
            return g.launch("softmax", grid).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> softmax_cuda(const GpuCodeRef& code) { return {kernel(code, "softmax", "exp(shifted) / sum"), kernel(code, "log_softmax", "shifted - log_sum")}; }

}  // namespace belfry
