// Where each pixel of a resized axis looks, exactly: the op and its kernels share it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace belfry {

/// Two pixels of x, and the weight of the second: one and the same where the weight is 0, as in TensorFlow, so that what lies beside it does not count, even as ∞·0.
struct Tap {
  std::int64_t low = 0, high = 0;
  double weight = 0;
};

inline std::vector<Tap> taps(std::int64_t from, std::int64_t to, bool nearest) {
  std::vector<Tap> out;
  for (std::int64_t i = 0; i < to; ++i) {
    std::int64_t doubled = (2 * i + 1) * from;  // (p + ½)·2·to
    if (nearest) {
      std::int64_t k = doubled / (2 * to);
      out.push_back({k, k, 0});
      continue;
    }
    std::int64_t p = doubled - to, low = p < 0 ? -1 : p / (2 * to);
    double weight = static_cast<double>(p - low * 2 * to) / (2 * static_cast<double>(to));
    out.push_back({std::max<std::int64_t>(low, 0), std::min(weight == 0 ? low : low + 1, from - 1), weight});
  }
  return out;
}

}  // namespace belfry
