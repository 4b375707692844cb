// How pools cut their windows over threads.
#pragma once

#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/pools.h>

namespace belfry {

/// Every window of input 0 by itself: f(arguments, patch, offset of its picture in x, offset of its result in y).
template <class F>
std::unique_ptr<Prepared> over_lines(const KernelRequest& r, F f) {
  Extents x = r.inputs[0].shape;
  return prepared([x, f, s = pool_sliding(*r.attributes, x), n = r.inputs[0].elements(), threads = r.threads](const Arguments& a) {
    for_ranges(x[0] * s.h.count, n, threads, [&](std::int64_t first, std::int64_t past) {
      for_each_patch(s, x, first, past, [&](const Patch& patch, std::int64_t picture, std::int64_t y) { f(a, patch, picture, y); });
    });
  });
}

/// One picture of output 0 after the other, zero before: f(arguments, patch, the picture, offset of the window's result in y). Windows
/// that overlap add up in the order of the windows.
template <class T, class F>
std::unique_ptr<Prepared> over_pictures(const KernelRequest& r, F f) {
  Extents x = r.outputs[0].shape;
  return prepared([x, f, s = pool_sliding(*r.attributes, x), n = r.outputs[0].elements(), threads = r.threads](const Arguments& a) {
    std::int64_t size = x[1] * x[2] * x[3];
    for_ranges(x[0], n, threads, [&](std::int64_t first, std::int64_t past) {
      for (std::int64_t i = first; i < past; ++i) {
        T* picture = a.out<T>(0) + i * size;
        std::fill_n(picture, size, T{0});
        for_each_patch(s, x, i * s.h.count, (i + 1) * s.h.count, [&](const Patch& patch, std::int64_t, std::int64_t y) { f(a, patch, picture, y); });
      }
    });
  });
}

}  // namespace belfry
