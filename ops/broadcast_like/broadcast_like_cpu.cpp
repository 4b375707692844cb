#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/cpu/strided_internal.h>

namespace belfry {

namespace {

template <class T>
void stretch(const T* x, std::int64_t step, T* y, std::int64_t n) {
  if (step == 0) std::fill_n(y, n, *x);
  else std::copy_n(x, n, y);
}

Kernel kernel(const char* op) {
  return {.name = "stretch", .op = op, .supports = takes_any(), .prepare = [](const KernelRequest& r) {
            Walk walk(r.outputs[0].shape, {stretched_strides(r.inputs[0].shape, r.outputs[0].shape)});
            return visit_dtype(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([walk, threads = r.threads](const Arguments& a) {
                for_each_run<1>(walk, threads, [&](std::int64_t o, const auto& at, std::int64_t n) { stretch(a.in<T>(0) + at[0], walk.inner[0], a.out<T>(0) + o, n); });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> broadcast_like_cpu() { return {kernel("broadcast_like"), kernel("broadcast_to")}; }

}  // namespace belfry
