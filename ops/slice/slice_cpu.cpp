#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/cpu/strided_internal.h>
#include <belfry/ops/slice/box_internal.h>

namespace belfry {

namespace {

template <class T>
void move_run(const T* x, std::int64_t from, T* y, std::int64_t to, std::int64_t n) {
  if (from == 1 && to == 1) std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(T));
  else
    for (std::int64_t i = 0; i < n; ++i) y[i * to] = x[i * from];
}

/// Elements are moved by their size alone.
template <class F>
decltype(auto) visit_size(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f.template operator()<std::uint8_t>();
    case 2: return f.template operator()<std::uint16_t>();
    case 4: return f.template operator()<std::uint32_t>();
    default: return f.template operator()<std::uint64_t>();
  }
}

Support supports(const KernelRequest& r, bool gradient) {
  std::string objection = box_objection(*r.attributes, r.inputs[0], r.outputs[0], r.output_types[0], r.share, gradient);
  return objection.empty() ? accept() : refuse(std::move(objection));
}

Kernel kernel(const char* name, const char* op, bool gradient) {
  return {.name = name, .op = op, .supports = [=](const KernelRequest& r) { return supports(r, gradient); }, .prepare = [=](const KernelRequest& r) {
            Box box = box_of(*r.attributes, r.inputs[0], r.outputs[0], r.output_types[0], r.share, gradient);
            if (gradient) std::swap(box.part, box.whole), std::swap(box.part_step, box.whole_step);
            Walk walk(box.counts, {box.part_step, box.whole_step});  // to, from
            std::int64_t bytes = r.outputs[0].bytes();
            return visit_size(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, from = box.whole, to = box.part, threads = r.threads](const Arguments& a) {
                if (gradient) for_ranges(bytes, bytes / 4, threads, [&](std::int64_t first, std::int64_t past) { std::memset(a.outputs[0] + first, 0, static_cast<std::size_t>(past - first)); }, 64);
                for_each_run<2>(walk, threads, [&](std::int64_t, const auto& at, std::int64_t n) {
                  move_run(a.in<T>(0) + from + at[1], walk.inner[1], a.out<T>(0) + to + at[0], walk.inner[0], n);
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> slice_cpu() { return {kernel("strided_slice", "slice", false), kernel("strided_fill", "slice_gradient", true)}; }

}  // namespace belfry
