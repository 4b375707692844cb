// Padding, resizing and rearranging pictures as ONNX has it: channels in front.
#include <algorithm>
#include <cmath>

#include "onnx_rows.h"

namespace belfry::test::onnx {

namespace {

/// x with its edges repeated, or from its other end on, along each axis that is padded.
Value padded_by_index(const Case& c, Value x, const Integers& before, const Integers& after, bool wraps) {
  for (std::size_t a = 0; a < before.size(); ++a) {
    if (before[a] == 0 && after[a] == 0) continue;
    std::int64_t n = x.shape()[a].factor;
    std::vector<std::int64_t> at;
    for (std::int64_t i = -before[a]; i < n + after[a]; ++i) at.push_back(wraps ? (i % n + n) % n : std::clamp<std::int64_t>(i, 0, n - 1));
    x = gather(x, c.constant(HostTensor::of<std::int64_t>({static_cast<std::int64_t>(at.size())}, at)), static_cast<int>(a));
  }
  return x;
}

/// One axis of a picture that is resized: `from` pixels become `to`; of x the part from `start` to `end` is taken.
struct Axis {
  std::int64_t from = 1, to = 1;
  double scale = 1, start = 0, end = 1;
};
struct Method {
  std::string mode, coordinates, nearest;
  bool antialias = false;
};

/// The place in x that pixel i of y looks at.
double place_of(std::int64_t i, const Axis& a, const std::string& coordinates) {
  double n = static_cast<double>(a.from), length = a.scale * n, at = static_cast<double>(i), half_pixel = (at + 0.5) / a.scale - 0.5;
  if (coordinates == "align_corners") return length == 1 ? 0 : at * (n - 1) / (length - 1);
  if (coordinates == "asymmetric") return at / a.scale;
  if (coordinates == "half_pixel_symmetric") return n / 2 * (1 - static_cast<double>(a.to) / length) + half_pixel;
  if (coordinates == "pytorch_half_pixel") return a.to > 1 ? half_pixel : 0;
  if (coordinates == "tf_crop_and_resize") return a.start * (n - 1) + (length == 1 ? (a.end - a.start) * (n - 1) / 2 : at * (a.end - a.start) * (n - 1) / (length - 1));
  if (coordinates != "half_pixel") throw feature_missing("resizing by " + coordinates);
  return half_pixel;
}

double nearest_to(double place, const std::string& how) {
  return how == "floor" ? std::floor(place) : how == "ceil" ? std::ceil(place) : how == "round_prefer_ceil" ? std::floor(place + 0.5) : std::ceil(place - 0.5);
}

/// What each pixel of y takes of each of x: (to, from), and whether it looks beside the picture.
struct Weights {
  std::vector<double> of;
  std::vector<bool> outside;
};
Weights weights(const Axis& a, const Method& m) {
  if (m.mode != "nearest" && m.mode != "linear") throw feature_missing("resizing by " + m.mode);
  Weights out;
  for (std::int64_t i = 0; i < a.to; ++i) {
    double place = place_of(i, a, m.coordinates), reach = m.antialias ? std::min(a.scale, 1.0) : 1, sum = 0;
    std::vector<double> row(static_cast<std::size_t>(a.from));
    out.outside.push_back(m.coordinates == "tf_crop_and_resize" && (place < 0 || place > static_cast<double>(a.from - 1)));
    auto add = [&](double k, double weight) {
      row[static_cast<std::size_t>(std::clamp<std::int64_t>(static_cast<std::int64_t>(k), 0, a.from - 1))] += weight;
      sum += weight;
    };
    if (m.mode == "nearest") add(nearest_to(place, m.nearest), 1);
    else
      for (double k = std::floor(place - 1 / reach); k <= place + 1 / reach; ++k) add(k, std::max(0.0, 1 - std::abs(k - place) * reach));
    for (double w : row) out.of.push_back(out.outside.back() ? 0 : w / sum);
  }
  return out;
}

/// Whether the op resize, which knows sizes alone, takes the same pixels.
bool is_op_resize(const Axis& a, const Method& m) {
  Weights wanted = weights(a, m), here = weights({a.from, a.to, static_cast<double>(a.to) / static_cast<double>(a.from)}, {m.mode, "half_pixel", "round_prefer_ceil"});
  return std::equal(wanted.of.begin(), wanted.of.end(), here.of.begin(), here.of.end(), [](double v, double w) { return std::abs(v - w) < 1e-7; }) &&
         std::find(wanted.outside.begin(), wanted.outside.end(), true) == wanted.outside.end();
}

Value matrix(const Case& c, const Axis& a, const Weights& w) {
  std::vector<float> values(w.of.begin(), w.of.end());
  return c.constant(HostTensor::of<float>({a.to, a.from}, values));
}

/// Each axis of x with its new size, from sizes or scales of some of the axes.
std::vector<Axis> axes_of(const Case& c) {
  std::vector<Axis> out;
  for (std::int64_t n : c.sizes()) out.push_back({n, n});
  Integers axes = c.list("axes", counted(c().rank()));
  std::vector<double> given = c.numbers(c.has(3) ? 3 : 2), region = c.has(1) ? c.numbers(1) : std::vector<double>{};
  std::string policy = c.text("keep_aspect_ratio_policy", "stretch");
  std::vector<double> scales;
  for (std::size_t i = 0; i < axes.size(); ++i) scales.push_back(given.at(i) / (c.has(3) ? static_cast<double>(out.at(static_cast<std::size_t>(axes[i])).from) : 1));
  if (policy != "stretch") std::fill(scales.begin(), scales.end(), policy == "not_larger" ? *std::min_element(scales.begin(), scales.end()) : *std::max_element(scales.begin(), scales.end()));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Axis& a = out.at(static_cast<std::size_t>(axes[i]));
    double length = static_cast<double>(a.from) * scales[i];
    a.to = static_cast<std::int64_t>(c.has(3) ? std::floor(length + 0.5) : std::floor(length));
    a.scale = policy == "stretch" && c.has(3) ? static_cast<double>(a.to) / static_cast<double>(a.from) : scales[i];
    if (!region.empty()) a.start = region.at(i), a.end = region.at(axes.size() + i);
  }
  return out;
}

}  // namespace

Outputs pad_or_crop(Case& c) {
  Integers sizes = c.integers(1, "pads"), before(static_cast<std::size_t>(c().rank())), after = before, axes = c.has(3) ? c.integers(3) : counted(c().rank());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    auto a = static_cast<std::size_t>(from_front(axes[i], c().rank()));
    before[a] = sizes.at(i), after[a] = sizes.at(axes.size() + i);
    if (before[a] < 0 || after[a] < 0) throw feature_missing("padding below 0");
  }
  std::string mode = c.text("mode", "constant");
  if (mode == "edge" || mode == "wrap") return {padded_by_index(c, c(), before, after, mode == "wrap")};
  return {pad(c(), {.before = before, .after = after, .mode = mode, .value = c.number(2, "value", 0)})};
}

/// By the op where it takes the same pixels, else by what each pixel takes of each as a matrix for each axis.
Outputs resize_picture(Case& c) {
  std::vector<Axis> axes = axes_of(c);
  if (axes.size() != 4 || axes[0].to != axes[0].from || axes[1].to != axes[1].from) throw feature_missing("resizing axes other than height and width");
  Method m{c.text("mode", "nearest"), c.text("coordinate_transformation_mode", "half_pixel"), c.text("nearest_mode", "round_prefer_floor"), c.flag("antialias")};
  const Axis &h = axes[2], &w = axes[3];
  if (is_op_resize(h, m) && is_op_resize(w, m)) return {channels_first(resize(channels_last(c()), {h.to, w.to}, {m.mode == "linear" ? "bilinear" : "nearest"}))};
  Weights of_rows = weights(h, m), of_columns = weights(w, m);
  Value y = contract("nciw,jw->ncij", contract("ih,nchw->nciw", matrix(c, h, of_rows), c()), matrix(c, w, of_columns));
  std::vector<float> beside;
  for (bool row : of_rows.outside)
    for (bool column : of_columns.outside) beside.push_back(row || column ? static_cast<float>(c.real("extrapolation_value", 0)) : 0);
  bool has_beside = std::any_of(beside.begin(), beside.end(), [](float v) { return v != 0; });
  return {has_beside ? y + c.constant(HostTensor::of<float>({h.to, w.to}, beside)) : y};
}

Outputs depth_to_space(Case& c) {
  Shape s = c().shape();
  std::int64_t b = c.integer("blocksize", 1), n = s[0].factor, d = s[1].factor / (b * b), h = s[2].factor, w = s[3].factor;
  if (c.text("mode", "DCR") == "DCR") return {channels_first(belfry::depth_to_space(channels_last(c()), b))};
  return {reshape(transpose(reshape(c(), {n, d, b, b, h, w}), {0, 1, 4, 2, 5, 3}), {n, d, h * b, w * b})};
}

}  // namespace belfry::test::onnx
