#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>
#include <belfry/ops/random/philox.h>

namespace belfry {

namespace {

constexpr std::int64_t kCost = 8;  // of a draw, in plain operations

/// The rows of a share: what for_each_random walks, with the draw inlined.
struct Rows {
  explicit Rows(const KernelRequest& r) : stream(static_cast<std::uint32_t>(r.attributes->integer("stream"))), first_row(r.share.first_row), threads(r.threads) {
    const Extents& shape = r.outputs[0].shape;
    std::vector<int> axes = symbolic_axes(r.output_types[0].shape);
    has_rows = !axes.empty();
    if (!has_rows) {
      inner = elements(shape);
      return;
    }
    auto axis = static_cast<std::size_t>(axes[0]);
    factor = r.output_types[0].shape[axis].factor;
    along = shape[axis];
    outer = product(shape, 0, axis);
    inner = product(shape, axis + 1, shape.size());
  }

  template <class F>
  void for_each(std::uint64_t seed, std::uint32_t step, const F& f) const {
    for_ranges(along, along * outer * inner * kCost, threads, [&](std::int64_t first, std::int64_t past) {
      for (std::int64_t k = first; k < past; ++k) {
        auto row = static_cast<std::uint32_t>(has_rows ? first_row + k / factor : 0);
        std::int64_t index = (k % factor) * outer * inner, block = -1;
        Words words{};
        for (std::int64_t o = 0; o < outer; ++o)
          for (std::int64_t i = 0; i < inner; ++i, ++index) {
            if (index / 4 != block) words = philox(seed, {static_cast<std::uint32_t>(block = index / 4), row, step, stream});
            f((o * along + k) * inner + i, words.data(), static_cast<int>(index % 4));
          }
      }
    });
  }

  std::uint32_t stream;
  std::int64_t first_row, factor = 1, along = 1, outer = 1, inner = 1;
  bool has_rows = false;
  int threads;
};

std::uint64_t seed_of(const Arguments& a, std::size_t i) { return static_cast<std::uint64_t>(*a.in<std::int64_t>(i)); }
std::uint32_t step_of(const Arguments& a, std::size_t i) { return static_cast<std::uint32_t>(*a.in<std::int64_t>(i)); }

Kernel uniform() {
  return {.name = "philox", .op = "random_uniform", .supports = takes_any(), .prepare = [](const KernelRequest& r) {
            double low = r.attributes->real("low"), span = r.attributes->real("high") - low;
            return visit_float(r.outputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, rows = Rows(r)](const Arguments& a) {
                T* y = a.out<T>(0);
                rows.for_each(seed_of(a, 0), step_of(a, 1), [=](std::int64_t at, const std::uint32_t* words, int word) { y[at] = static_cast<T>(low + span * static_cast<double>(uniform_of(words[word]))); });
              });
            });
          }};
}

Kernel normal() {
  return {.name = "philox", .op = "random_normal", .supports = takes_any(), .prepare = [](const KernelRequest& r) {
            double mean = r.attributes->real("mean"), deviation = r.attributes->real("deviation");
            return visit_float(r.outputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, rows = Rows(r)](const Arguments& a) {
                T* y = a.out<T>(0);
                rows.for_each(seed_of(a, 0), step_of(a, 1), [=](std::int64_t at, const std::uint32_t* words, int word) { y[at] = static_cast<T>(mean + deviation * normal_of(words, word)); });
              });
            });
          }};
}

Kernel dropout() {
  return {.name = "philox", .op = "dropout", .supports = takes_floats(), .prepare = [](const KernelRequest& r) {
            float rate = static_cast<float>(r.attributes->real("rate"));
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              T scale = T{1} / (T{1} - static_cast<T>(r.attributes->real("rate")));
              return prepared([=, rows = Rows(r)](const Arguments& a) {
                const T* x = a.in<T>(0);
                T* y = a.out<T>(0);
                rows.for_each(seed_of(a, 1), step_of(a, 2), [=](std::int64_t at, const std::uint32_t* words, int word) { y[at] = uniform_of(words[word]) >= rate ? x[at] * scale : T{0}; });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> random_cpu() { return {uniform(), normal(), dropout()}; }

}  // namespace belfry
