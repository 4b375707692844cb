// Convolutions and pools of ONNX: channels in front, padding of any size.
#include <algorithm>
#include <limits>

#include "onnx_rows.h"

namespace belfry::test::onnx {

namespace {

/// (n, h, w, c); a line is a picture of width 1.
Value picture(Value x) {
  if (x.rank() != 3 && x.rank() != 4) throw feature_missing("windows over " + std::to_string(x.rank() - 2) + " axes");
  return channels_last(x.rank() == 3 ? expand_dims(x, {3}) : x);
}
Value from_picture(Value y, int rank) { return rank == 3 ? squeeze(channels_first(y), {3}) : channels_first(y); }
/// (o, i, h, w) to (h, w, i, o), or of a line.
Value filter(Value w) { return transpose(w.rank() == 3 ? expand_dims(w, {3}) : w, {2, 3, 1, 0}); }
/// Two of `values`, one each for height and width.
Integers two(Integers values, std::int64_t otherwise) {
  values.resize(2, otherwise);
  return values;
}

/// Windows over height and width as a node has them.
struct Windows {
  Windows(const Case& c, Value x, Integers kernel) : window(std::move(kernel)), strides(two(c.list("strides", {}), 1)), dilations(two(c.list("dilations", {}), 1)) {
    Integers pads = c.list("pads", {});
    for (std::size_t a : {0, 1}) {
      std::int64_t size = x.shape()[a + 1].factor, extent = (window[a] - 1) * dilations[a] + 1;
      std::int64_t all = std::max<std::int64_t>(0, ((size + strides[a] - 1) / strides[a] - 1) * strides[a] + extent - size);
      same_before.push_back(all / 2), same_after.push_back(all - all / 2);
      std::string automatic = c.text("auto_pad", "NOTSET");
      bool given = a < pads.size() / 2;
      std::int64_t front = automatic == "SAME_UPPER" ? all / 2 : automatic == "SAME_LOWER" ? all - all / 2 : given ? pads[a] : 0;
      std::int64_t behind = automatic.starts_with("SAME") ? all - front : given ? pads[pads.size() / 2 + a] : 0;
      if (c.flag("ceil_mode")) behind += over(size, front, behind, extent, strides[a]);
      before.push_back(front), after.push_back(behind);
    }
  }
  /// "valid", "same", or "" where a padding of their own goes before.
  std::string padding() const { return before == Integers{0, 0} && after == before ? "valid" : before == same_before && after == same_after ? "same" : ""; }
  Value padded(Value x, double value) const {
    if (padding() == "valid") return x;
    return pad(x, {.before = {0, before[0], before[1], 0}, .after = {0, after[0], after[1], 0}, .value = value});
  }

  Integers pads() const { return {before[0], after[0], before[1], after[1]}; }
  /// Whether they are fewer than a window spans.
  bool fit() const {
    bool all = true;
    for (std::size_t a : {0, 1}) all = all && std::max(before[a], after[a]) <= (window[a] - 1) * dilations[a];
    return all;
  }

  Integers window, strides, dilations, before, after, same_before, same_after;

 private:
  /// What the last window of ceil_mode reaches beyond the padding; it must begin before the data ends.
  static std::int64_t over(std::int64_t size, std::int64_t front, std::int64_t behind, std::int64_t extent, std::int64_t stride) {
    std::int64_t count = (size + front + behind - extent + stride - 1) / stride + 1;
    if ((count - 1) * stride >= size + front) --count;
    return std::max<std::int64_t>(0, (count - 1) * stride + extent - size - front - behind);
  }
};

/// Where the windows' elements lie in the tensor as ONNX counts them: the first of each window, and the others from there.
Value indices_in_tensor(const Case& c, Value positions, const Windows& w) {
  Extents x = c.sizes(), shape;
  x.resize(4, 1);
  for (const Dim& d : positions.shape()) shape.push_back(d.factor);
  std::int64_t down = c.flag("storage_order") ? 1 : x[3], right = c.flag("storage_order") ? x[2] : 1;
  std::vector<std::int64_t> first, inside;
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t i = 0; i < shape[1]; ++i)
      for (std::int64_t j = 0; j < shape[2]; ++j)
        for (std::int64_t k = 0; k < shape[3]; ++k)
          first.push_back((n * x[1] + k) * x[2] * x[3] + (i * w.strides[0] - w.before[0]) * down + (j * w.strides[1] - w.before[1]) * right);
  for (std::int64_t i = 0; i < w.window[0]; ++i)
    for (std::int64_t j = 0; j < w.window[1]; ++j) inside.push_back(i * w.dilations[0] * down + j * w.dilations[1] * right);
  Value table = c.constant(HostTensor::of<std::int64_t>({static_cast<std::int64_t>(inside.size())}, inside));
  return gather(table, positions) + c.constant(HostTensor::of<std::int64_t>(shape, first));
}

}  // namespace

Outputs conv(Case& c) {
  Value x = picture(c(0)), f = filter(c(1));
  Windows w(c, x, {f.shape()[0].factor, f.shape()[1].factor});
  std::string padding = w.padding();
  const bool own = padding.empty() && w.fit();
  if (padding.empty() && !own) x = w.padded(x, 0);
  if (padding.empty()) padding = "valid";
  Value y = conv2d(x, f, {.strides = w.strides, .padding = padding, .dilations = w.dilations, .groups = c.integer("group", 1), .pads = own ? w.pads() : Integers{}});
  return {from_picture(c.has(2) ? y + c(2) : y, c().rank())};
}

/// The whole of what the filter reaches, cut as ONNX has it; what no window reaches is zero.
Outputs conv_transpose(Case& c) {
  Value x = picture(c(0)), f = filter(c(1));
  Integers strides = two(c.list("strides", {}), 1), dilations = two(c.list("dilations", {}), 1), more = two(c.list("output_padding", {}), 0), pads = c.list("pads", Integers(4, 0));
  Integers wanted = c.list("output_shape", {}), begin(4, 0), end(4, kToEnd), missing(4, 0);
  std::string automatic = c.text("auto_pad", "NOTSET");
  Conv2dTransposeOptions o{.strides = strides, .padding = automatic == "SAME_UPPER" ? "same" : "valid", .dilations = dilations, .groups = c.integer("group", 1)};
  Value y = conv2d_transpose(x, f, o);
  for (std::size_t a = 0; a < 2 && o.padding != "same"; ++a) {
    std::int64_t size = x.shape()[a + 1].factor, extent = (f.shape()[a].factor - 1) * dilations[a] + 1, length = (size - 1) * strides[a] + extent + more[a];
    std::int64_t front = pads.at(a), behind = pads.at(pads.size() / 2 + a);
    if (automatic == "SAME_LOWER" || !wanted.empty()) {
      std::int64_t all = std::max<std::int64_t>(0, length - (wanted.empty() ? size * strides[a] : wanted[a]));
      behind = all / 2, front = all - behind;
      if (!wanted.empty()) length = std::max(length, wanted[a]);
    }
    begin[a + 1] = front, end[a + 1] = length - behind;
    missing[a + 1] = std::max<std::int64_t>(0, end[a + 1] - y.shape()[a + 1].factor);
  }
  if (missing != Integers(4, 0)) y = pad(y, {.before = Integers(4, 0), .after = missing});
  y = strided_slice(y, begin, end);
  return {from_picture(c.has(2) ? y + c(2) : y, c().rank())};
}

Outputs max_pool(Case& c) {
  Value x = picture(c());
  Windows w(c, x, two(c.list("kernel_shape", {}), 1));
  std::string padding = w.padding();
  const bool own = padding.empty() && w.fit();
  if (padding.empty() && !own) x = w.padded(x, std::numeric_limits<float>::lowest());
  if (padding.empty()) padding = "valid";
  Value y = max_pool2d(x, {.window = w.window, .strides = w.strides, .padding = padding, .dilations = w.dilations, .pads = own ? w.pads() : Integers{}});
  Outputs out = {from_picture(y, c().rank())};
  if (c.outputs() > 1) out.push_back(from_picture(indices_in_tensor(c, y.output(1), w), c().rank()));
  return out;
}

/// avg_pool2d counts no padding that is its own; of other padding the means are divided by the part of a window that is data.
Outputs average_pool(Case& c) {
  Value x = picture(c());
  Windows w(c, x, two(c.list("kernel_shape", {}), 1));
  bool counted = c.flag("count_include_pad");
  if (w.padding() == "valid" || (w.padding() == "same" && !counted)) return {from_picture(avg_pool2d(x, {w.window, w.strides, w.padding(), w.dilations}), c().rank())};
  auto means = [&](Value v) { return avg_pool2d(w.padded(v, 0), {w.window, w.strides, "valid", w.dilations}); };
  Value y = means(x);
  if (!counted && w.padding() != "valid") y = y / means(broadcast_like(constant_like(x, 1), x));
  return {from_picture(y, c().rank())};
}

}  // namespace belfry::test::onnx
