#include <belfry/ops/cuda_kernels.h>

#include <limits>

#include <fmt/format.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/softmax_cross_entropy/formulas.h>

namespace belfry {
namespace {

/// A label that is no class gives a loss that is no number, and a fault that the host sees when the step is over.
Kernel kernel(const GpuCodeRef& code, const char* op, bool sparse) {
  return {.name = "nvrtc_cross_entropy", .op = op,
          .supports = [=](const KernelRequest& r) {
            Support s = takes_on_gpu(r, {f32, f64});
            return s.ok && sparse ? takes_on_gpu(r, {i32, i64, u8}, 1) : s;
          },
          .prepare = [=](const KernelRequest& r) {
            Generated g(r);
            Grid grid = g.type("T", r.inputs[0].dtype).type("K", r.inputs[1].dtype).lines(r.outputs[0].elements(), r.inputs[0].shape.back(), 1);
            g.real("low", -std::numeric_limits<double>::infinity()).real("nan", std::numeric_limits<double>::quiet_NaN()).head(sparse ? "#define SPARSE 1" : "#define SPARSE 0");
            if (sparse)
              g.faults([rows = r.outputs[0].elements(), classes = r.inputs[0].shape.back(), losses = r.output_types[0], share = r.share](std::int64_t row, const std::string& label) {
                return fmt::format("[sparse_softmax_cross_entropy] label {} of row {} is no class; classes are 0 to {}", label, global_example(row, rows, losses, share), classes - 1);
              });
            g.body(R"(
KERNEL void cross_entropy(const Args a) {
  EACH_LINE(line) {
    const T* x = (const T*)a.in[0] + line * a.n;
    T top = (T)a.low, sum = 0, loss = 0;
    EACH_OF(k, a.n) top = Greater()(top, x[k]);
    top = across(top, Greater());
    EACH_OF(k, a.n) sum += exp(x[k] - top);
    const T log_sum = log(across(sum, Add()));
#if SPARSE
    {
      const i64 k = (i64)((const K*)a.in[1])[line];
      if (k < 0 || k >= a.n) fault(a.fault, line, k);
      loss = k >= 0 && k < a.n ? log_sum - (x[k] - top) : (T)a.nan;
    }
#else
    {
      const T* label = (const T*)a.in[1] + line * a.n;
      EACH_OF(k, a.n) if (label[k] != 0) loss -= label[k] * (x[k] - top - log_sum);
      loss = across(loss, Add());
    }
#endif
    if (threadIdx.x % WIDTH == 0) ((T*)a.out[0])[line] = loss;
    if (a.out[1]) EACH_OF(k, a.n) ((T*)a.out[1])[line * a.n + k] = x[k] - top - log_sum;
  }
}
)");
            return g.launch("cross_entropy", grid).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> softmax_cross_entropy_cuda(const GpuCodeRef& code) { return {kernel(code, "softmax_cross_entropy", false), kernel(code, "sparse_softmax_cross_entropy", true)}; }

}  // namespace belfry
