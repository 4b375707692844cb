#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/optimizer/adam_formulas.h>
#include <belfry/ops/optimizer/adaptive_formulas.h>
#include <belfry/ops/optimizer/momentum_formulas.h>

namespace belfry {

namespace {

using namespace optimizer_formulas;

/// The elements [begin, end) in one pass over w, slots and gradient.
template <class F>
BELFRY_CLONES void run(const void* formula, const Arguments& a, std::int64_t begin, std::int64_t end) {
  using T = typename F::Real;
  constexpr std::size_t kSlots = F::kSlots, kScalars = F::kScalars, kDecay = kSlots + 2 + kScalars;
  const F f = *static_cast<const F*>(formula);
  const T *w = a.in<T>(0), *g = a.in<T>(kSlots + 1), *slots[kSlots + 1];
  T *w_out = a.out<T>(0), *slots_out[kSlots + 1], scalars[kScalars];
  for (std::size_t k = 0; k < kSlots; ++k) slots[k] = a.in<T>(k + 1), slots_out[k] = a.out<T>(k + 1);
  for (std::size_t k = 0; k < kScalars; ++k) scalars[k] = *a.in<T>(kSlots + 2 + k);
  const bool decays = a.inputs.size() > kDecay && a.inputs[kDecay];
  const T decay = decays ? *a.in<T>(kDecay) : T{0};
  BELFRY_IVDEP
  for (std::int64_t i = begin; i < end; ++i) {
    T before = w[i], gradient = g[i], s[kSlots + 1];
    for (std::size_t k = 0; k < kSlots; ++k) s[k] = slots[k][i];
    if (decays) before = before - decay * before;
    T next = f(before, gradient, scalars, s);
    for (std::size_t k = 0; k < kSlots; ++k) slots_out[k][i] = s[k];
    w_out[i] = next;
  }
}

using Run = void (*)(const void* formula, const Arguments& a, std::int64_t begin, std::int64_t end);

void launch(Run run, const void* formula, const Arguments& a, std::int64_t n, std::int64_t work, int threads) {
  for_ranges(n, work, threads, [&](std::int64_t begin, std::int64_t end) { run(formula, a, begin, end); }, 16);
}

/// `cost`: plain operations per element, for the cut into threads.
template <class F>
std::unique_ptr<Prepared> update(const KernelRequest& r, std::int64_t cost) {
  return prepared([f = F(*r.attributes), n = r.inputs[0].elements(), cost, threads = r.threads](const Arguments& a) { launch(run<F>, &f, a, n, n * cost, threads); });
}

template <template <class> class F>
Kernel kernel(const char* op, std::int64_t cost) {
  return {.name = std::string("simd_") + op, .op = op, .supports = takes_floats(), .prepare = [cost](const KernelRequest& r) {
            return r.inputs[0].dtype == f32 ? update<F<float>>(r, cost) : update<F<double>>(r, cost);
          }};
}

Kernel ftrl() {
  Kernel k = kernel<FtrlRoot>("ftrl", 8);
  k.supports = [](const KernelRequest& r) {
    if (r.attributes->real("power") != -0.5) return refuse("the power is not -0.5");
    return takes(r, {f32, f64});
  };
  return k;
}

}  // namespace

std::vector<Kernel> optimizer_cpu() {
  return {kernel<Sgd>("sgd", 1),
          kernel<Momentum>("momentum", 2),
          kernel<Adam>("adam", 4),
          kernel<Amsgrad>("amsgrad", 5),
          kernel<Adamax>("adamax", 4),
          kernel<Rmsprop>("rmsprop", 4),
          kernel<RmspropMomentum>("rmsprop_momentum", 4),
          kernel<RmspropCentered>("rmsprop_centered", 5),
          kernel<RmspropCenteredMomentum>("rmsprop_centered_momentum", 5),
          kernel<Adagrad>("adagrad", 4),
          kernel<Adadelta>("adadelta", 6),
          ftrl(),
          kernel<Lion>("lion", 2),
          kernel<Lamb>("lamb", 4),
          kernel<MovingAverage>("moving_average", 1)};
}

}  // namespace belfry
