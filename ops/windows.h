// Windows sliding over height and width: what convolutions and pools share.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <belfry/graph/contexts.h>

namespace belfry {

/// Windows along one axis: how many fit, and how much padding stands before and after the data. `same` is TensorFlow's:
/// ⌈size/stride⌉ windows, the odd element of padding behind.
struct Windows {
  std::int64_t count = 0, before = 0, after = 0;
};
inline Windows windows(std::int64_t size, std::int64_t window, std::int64_t stride, bool same, std::int64_t before = 0, std::int64_t after = 0) {
  if (!same) return {before + size + after < window ? 0 : (before + size + after - window) / stride + 1, before, after};
  std::int64_t count = (size + stride - 1) / stride, padding = std::max<std::int64_t>((count - 1) * stride + window - size, 0);
  return {count, padding / 2, padding - padding / 2};
}

/// Elements from the first to the last of a window whose elements lie `dilation` apart.
inline std::int64_t spread(std::int64_t window, std::int64_t dilation) { return window == 0 ? 0 : (window - 1) * dilation + 1; }

/// Padding of a "valid" node above, below, left and right of the data, where it has any.
inline const Integers* pads_of(const Attributes& a) {
  return a.find("pads") && !a.integers("pads").empty() ? &a.integers("pads") : nullptr;
}

/// Height and width of a node on bound shapes; `a` has its padding and dilations.
struct Sliding {
  Sliding(const Extents& x, std::int64_t high, std::int64_t wide, const Integers& strides, const Attributes& a)
      : window_h(high), window_w(wide), stride_h(strides[0]), stride_w(strides[1]), dilation_h(a.integers("dilations")[0]), dilation_w(a.integers("dilations")[1]) {
    const bool same = a.text("padding") == "same";
    const Integers none = {0, 0, 0, 0}, &pads = pads_of(a) ? *pads_of(a) : none;
    h = windows(x[1], spread(window_h, dilation_h), stride_h, same, pads[0], pads[1]);
    w = windows(x[2], spread(window_w, dilation_w), stride_w, same, pads[2], pads[3]);
  }
  std::int64_t window_h, window_w, stride_h, stride_w, dilation_h, dilation_w;
  Windows h, w;
};

/// Sums and products of two sizes below it overflow nowhere.
inline constexpr std::int64_t kLargestSize = 0x7fffffff;

/// Why GPUs have no kernel of one filter per channel for a convolution of `in` channels that makes `out`; empty: they have one.
inline std::string no_depthwise(const Attributes& a, std::int64_t in, std::int64_t out, std::int64_t window_h, std::int64_t window_w) {
  if (a.integer("groups") != in || out != in) return "there is not one filter per channel";
  if (window_h * window_w > 25) return "its filters have more than 25 taps";
  // A run of windows is unrolled over all columns that it spans.
  const Integers &strides = a.integers("strides"), &dilations = a.integers("dilations");
  if (3 * strides[1] + spread(window_w, dilations[1]) > 64 || spread(window_h, dilations[0]) > kLargestSize / 2 || strides[0] > kLargestSize / 2) return "its windows reach too far";
  return "";
}

/// Why GPUs have no kernel of theirs for a convolution of `in` channels, few, that makes `out`; `per`: of how many elements a word of 4 bytes is made. Empty: they have one.
inline std::string no_few_channels(const Attributes& a, std::int64_t in, std::int64_t out, std::int64_t window_h, std::int64_t window_w, std::int64_t per) {
  if (a.integer("groups") != 1 || a.integers("dilations") != Integers{1, 1}) return "its filters are in groups, or their taps lie apart";
  if (in > 4) return "its pixels have more than four channels, of which cuDNN's engines read several at once";
  if (out % 8 != 0) return "a product of a warp takes filters by eight";
  // A lane keeps two registers of filters for eight words and eight filters, and has room for 40 such pairs.
  if (window_h > 160 || window_w > 160 || (window_w * in + per - 1) / per * window_h > 160) return "its filters have more taps than registers keep";
  return "";
}

inline void need_size(InferContext& c, std::int64_t n) {
  if (n > kLargestSize) c.fail("a height or width of " + std::to_string(n) + " is more than a size may be; the largest is 2147483647");
}

/// Two numbers of at least 1, or an error that names the attribute.
inline void need_pair(InferContext& c, const char* attribute) {
  const Integers& v = c.attributes.integers(attribute);
  if (v.size() != 2 || v[0] < 1 || v[1] < 1) c.fail(std::string(attribute).append(" are two sizes of at least 1: height and width"));
  need_size(c, std::max(v[0], v[1]));
}

/// The shape of the output: rows, windows over height and width, channels.
inline Shape windows_over(InferContext& c, const Shape& x, std::int64_t window_h, std::int64_t window_w, const Integers& strides, Dim channels, const Integers& dilations = {1, 1}) {
  if (x[1].symbolic() || x[2].symbolic() || x[3].symbolic()) c.fail("height, width and channels are fixed sizes; rows lie on axis 0");
  for (std::int64_t n : {x[1].factor, x[2].factor, window_h, window_w}) need_size(c, n);
  if (window_h < 1 || window_w < 1) c.fail("a window of " + std::to_string(window_h) + " x " + std::to_string(window_w) + " holds nothing");
  if (const Integers* pads = pads_of(c.attributes)) {
    if (c.attributes.text("padding") != "valid") c.fail("pads stand beside padding \"valid\" alone");
    if (pads->size() != 4 || *std::min_element(pads->begin(), pads->end()) < 0) c.fail("pads are four sizes of at least 0: above, below, left and right");
    for (std::size_t k = 0; k < 4; ++k)
      if ((*pads)[k] >= spread(k < 2 ? window_h : window_w, dilations[k / 2])) c.fail("pads of " + std::to_string((*pads)[k]) + " are as wide as the window, which could lie on them alone");
  }
  Sliding s({1, x[1].factor, x[2].factor, 1}, window_h, window_w, strides, c.attributes);
  window_h = spread(window_h, dilations[0]);
  window_w = spread(window_w, dilations[1]);
  if (s.h.count < 1 || s.w.count < 1) {
    const std::string first = x[1].factor <= 4 && x[3].factor > x[1].factor ? "; or is that height the channels? They come last: (rows, height, width, channels)" : "";
    c.fail("a window of " + std::to_string(window_h) + " x " + std::to_string(window_w) + " does not fit without padding into height " + to_string(x[1]) + " and width " + to_string(x[2]) +
           "; use padding \"same\"" + first);
  }
  return {x[0], s.h.count, s.w.count, std::move(channels)};
}

}  // namespace belfry
