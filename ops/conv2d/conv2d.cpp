#include <belfry/ops/conv2d/conv2d.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

Sliding sliding(const Attributes& a, const Extents& x, const Extents& filter) {
  return {x, filter[0], filter[1], a.integers("strides"), a};
}

/// Windows of one row whose pixels under one tap of the filter lie within x: offsets of the first one's channel 0, and how many they are.
struct Run { std::int64_t x, filter, y, windows; };

/// Calls f(Run) for every tap and every row of windows that has pixels under it.
template <class F>
void for_each_run(const Sliding& s, const Extents& x, const Extents& filter, F f) {
  const std::int64_t in = filter[2], out = filter[3], channels = x[3];
  if (in == 0 || out == 0) return;
  for (std::int64_t i = 0; i < filter[0]; ++i)
    for (std::int64_t j = 0; j < filter[1]; ++j) {
      auto column = [&](std::int64_t q) { return q * s.stride_w - s.w.before + j * s.dilation_w; };
      std::int64_t first = 0, last = s.w.count;
      while (first < last && column(first) < 0) ++first;
      while (first < last && column(last - 1) >= x[2]) --last;
      if (first == last) continue;
      for (std::int64_t n = 0; n < x[0]; ++n)
        for (std::int64_t p = 0; p < s.h.count; ++p)
          if (const std::int64_t row = p * s.stride_h - s.h.before + i * s.dilation_h; row >= 0 && row < x[1])
            f(Run{((n * x[1] + row) * x[2] + column(first)) * channels, (i * filter[1] + j) * in * out, ((n * s.h.count + p) * s.w.count + first) * out, last - first});
    }
}

/// Rows of numbers, `row` apart, the numbers of one `column` apart.
template <class T>
struct Rows { T* at; std::int64_t row, column = 1; };

/// to += a·b of m×k and k×n numbers, where those of a row of `to` and of b lie side by side: each sum in the order of k.
void add_product(Rows<double> to, Rows<const double> a, Rows<const double> b, std::int64_t m, std::int64_t k, std::int64_t n) {
  // Of eight columns the sums stay in registers: compilers leave an array of them in memory.
  using Two [[gnu::vector_size(16), gnu::aligned(8), gnu::may_alias]] = double;
  for (std::int64_t r = 0; r < m; ++r) {
    double* const sums = to.at + r * to.row;
    const double* const factors = a.at + r * a.row;
    std::int64_t c = 0;
    for (; c + 8 <= n; c += 8) {
      Two* const some = reinterpret_cast<Two*>(sums + c);
      Two s0 = some[0], s1 = some[1], s2 = some[2], s3 = some[3];
      for (std::int64_t i = 0; i < k; ++i) {
        const Two* const x = reinterpret_cast<const Two*>(b.at + i * b.row + c);
        const double factor = factors[i * a.column];
        s0 += factor * x[0], s1 += factor * x[1], s2 += factor * x[2], s3 += factor * x[3];
      }
      some[0] = s0, some[1] = s1, some[2] = s2, some[3] = s3;
    }
    for (; c < n; ++c)
      for (std::int64_t i = 0; i < k; ++i) sums[c] += factors[i * a.column] * b.at[i * b.row + c];
  }
}

/// Sums in double, one for each element of output 0; `add(sums, a, b, run, channels per group of y)` adds the products of a run within one group.
template <class Add>
void accumulate(const Call& c, const Extents& x, const Extents& filter, std::vector<double> first, std::vector<double> second, Add add) {
  const std::int64_t groups = c.attributes.integer("groups"), m = filter[3] / groups;
  std::vector<double> sums(static_cast<std::size_t>(c.outputs[0].type.elements()));
  for_each_run(sliding(c.attributes, x, filter), x, filter, [&](Run r) {
    for (std::int64_t g = 0; g < groups; ++g, r.x += filter[2], r.filter += m, r.y += m) add(sums.data(), first.data(), second.data(), r, m);
  });
  visit_float(c.dtype(), [&]<class T>() {
    auto y = c.outputs[0].as<T>();
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<T>(sums[i]);
  });
}

std::vector<double> in_double(const ConstView& x) {
  std::vector<double> out;
  visit_float(x.type.dtype, [&]<class T>() {
    const auto from = x.as<T>();
    out.assign(from.begin(), from.end());
  });
  return out;
}

/// From one window's pixel to the next one's in x.
std::int64_t pixel_step(const Call& c, const Extents& x) { return c.attributes.integers("strides")[1] * x[3]; }

void forward(const Call& c) {
  const Extents &x = c.inputs[0].type.shape, &f = c.inputs[1].type.shape;
  accumulate(c, x, f, in_double(c.inputs[0]), in_double(c.inputs[1]), [in = f[2], out = f[3], step = pixel_step(c, x)](double* y, const double* x, const double* w, const Run& r, std::int64_t m) {
    add_product({y + r.y, out}, {x + r.x, step}, {w + r.filter, out}, r.windows, in, m);
  });
}
void input_gradient(const Call& c) {
  const Extents &x = c.outputs[0].type.shape, &f = c.inputs[1].type.shape;
  const std::int64_t in = f[2], out = f[3], taps = f[0] * f[1];
  const std::vector<double> w = in_double(c.inputs[1]);
  std::vector<double> turned(w.size());  // within each tap
  for (std::int64_t t = 0; t < taps; ++t)
    for (std::int64_t k = 0; k < in; ++k)
      for (std::int64_t j = 0; j < out; ++j) turned[static_cast<std::size_t>((t * out + j) * in + k)] = w[static_cast<std::size_t>((t * in + k) * out + j)];
  accumulate(c, x, f, in_double(c.inputs[0]), std::move(turned), [in, out, step = pixel_step(c, x)](double* dx, const double* dy, const double* w, const Run& r, std::int64_t m) {
    const std::int64_t channel = r.filter % (in * out);  // of y, the group's first
    add_product({dx + r.x, step}, {dy + r.y, out}, {w + (r.filter - channel) + channel * in, in}, r.windows, m, in);
  });
}
void filter_gradient(const Call& c) {
  const Extents &x = c.inputs[0].type.shape, &f = c.outputs[0].type.shape;
  accumulate(c, x, f, in_double(c.inputs[0]), in_double(c.inputs[1]), [in = f[2], out = f[3], step = pixel_step(c, x)](double* dw, const double* x, const double* dy, const Run& r, std::int64_t m) {
    add_product({dw + r.filter, out}, {x + r.x, 1, step}, {dy + r.y, out}, in, r.windows, m);
  });
}

/// The filter's channels must be those of x, in as many groups.
void check_channels(InferContext& c, const Dim& channels, const Shape& filter) {
  std::int64_t groups = c.attributes.integer("groups"), in = filter[2].factor, out = filter[3].factor;
  std::string per_group = groups == 1 ? "" : " in each of " + std::to_string(groups) + " groups";
  if (channels.symbolic() || channels.factor % groups != 0 || channels.factor / groups != in)
    c.fail("x has " + to_string(channels) + " channels and the filter takes " + std::to_string(in) + per_group);
  if (out % groups != 0) c.fail("the filter's " + std::to_string(out) + " outputs do not divide into " + std::to_string(groups) + " groups");
}

void check_filter(InferContext& c, int x, int filter) {
  for (int i : {x, filter}) c.need_rank(i, 4);
  need_pair(c, "strides");
  need_pair(c, "dilations");
  for (const Dim& d : c.shape(filter))
    if (d.symbolic()) c.fail("the filter has fixed sizes");
}

/// The type of y for inputs x and filter, after all checks.
TensorType checked_output(InferContext& c, int x, int filter) {
  check_filter(c, x, filter);
  const Shape &sx = c.shape(x), &sf = c.shape(filter);
  check_channels(c, sx[3], sf);
  return {c.dtype(x), windows_over(c, sx, sf[0].factor, sf[1].factor, c.attributes.integers("strides"), sf[3], c.attributes.integers("dilations"))};
}

/// Keras's sizes: with padding stride times as many, without it what the outer windows reach beyond that too.
TensorType checked_transpose(InferContext& c) {
  c.need_float(0);
  c.need_same_dtype();
  check_filter(c, 0, 1);
  const Shape &x = c.shape(0), &f = c.shape(1);
  if (x[1].symbolic() || x[2].symbolic() || x[3].symbolic()) c.fail("height, width and channels are fixed sizes; rows lie on axis 0");
  if (x[3] != f[3]) c.fail("x has " + to_string(x[3]) + " channels and the filter (height, width, out, in) takes " + to_string(f[3]));
  Shape y = {x[0], 0, 0, 0};
  for (std::size_t i : {0u, 1u}) {
    std::int64_t n = x[i + 1].factor, stride = c.attributes.integers("strides")[i], window = f[i].factor, dilation = c.attributes.integers("dilations")[i];
    need_size(c, std::max(n, window));
    if (window < 1) c.fail("the filter is empty");
    y[i + 1] = n * stride + (c.attributes.text("padding") == "same" ? 0 : std::max<std::int64_t>(spread(window, dilation) - stride, 0));
    need_size(c, y[i + 1].factor);
  }
  std::int64_t channels = f[2].factor, groups = c.attributes.integer("groups");
  if (channels != 0 && groups > kLargestSize / channels) c.fail("the filter's " + std::to_string(channels) + " outputs in each of " + std::to_string(groups) + " groups are too many");
  y[3] = channels * groups;
  check_channels(c, y[3], f);
  return {c.dtype(0), y};
}

/// The two others as conv2d has them: dy must be the type that it gives.
void check_gradient(InferContext& c, int x, int filter, int dy) {
  c.need_float(0);
  c.need_same_dtype();
  TensorType y = checked_output(c, x, filter);
  if (c.type(dy) != y) c.fail("dy must be " + to_string(y));
}

/// Rows of x with those of dy give a part of the sum.
Split split_filter_gradient(const SplitContext& c) {
  if (c.states[0].is_rows() || c.states[1].is_rows()) return {{rows(0), rows(0), c.states[2]}, {partial(Reduction::sum)}};
  auto whole = [](SplitState s) { return s.is_per_tower() ? s : kReplicated; };
  bool per_tower = c.states[0].is_per_tower() || c.states[1].is_per_tower();
  return {{whole(c.states[0]), whole(c.states[1]), c.states[2]}, {per_tower ? kPerTower : kReplicated}};
}

double products(const LocalType& y, const LocalType& filter) { return 2 * static_cast<double>(y.elements()) * static_cast<double>(filter.shape[0] * filter.shape[1] * filter.shape[2]); }

Value input_gradient_of(const Attributes& a, Value dy, Value filter, Value x) { return emit("conv2d_input_gradient", {dy, filter, x}, a, {}); }
Value filter_gradient_of(const Attributes& a, Value x, Value dy, Value filter) { return emit("conv2d_filter_gradient", {x, dy, filter}, a, {}); }
Value conv2d_of(const Attributes& a, Value x, Value filter) { return emit("conv2d", {x, filter}, a, {}); }

}  // namespace

std::vector<OpDef> conv2d_defs() {
  std::vector<AttributeDef> attributes = {{"strides", Integers{1, 1}}, AttributeDef("padding", "valid").one_of({"same", "valid"}), {"dilations", Integers{1, 1}},
                                          AttributeDef("groups", 1).between(1, static_cast<double>(kLargestSize)), wide_result()};
  const std::vector<AttributeDef> of_transpose = attributes;
  attributes.push_back({"pads", Integers{}});
  std::vector<OpDef> out;
  out.push_back({.name = "conv2d",
                 .attributes = attributes,
                 .inputs = {"x", "filter"},
                 .infer = [](InferContext& c) {
                   c.need_float(0);
                   c.need_same_dtype();
                   return std::vector<TensorType>{checked_output(c, 0, 1)};
                 },
                 .reference = forward,
                 .gradient = [](GradientContext& g) {
                   Value x = g.input(0), filter = g.input(1), dy = g.output_gradient();
                   return std::vector<Value>{input_gradient_of(g.attributes, dy, filter, x), filter_gradient_of(g.attributes, x, dy, filter)};
                 },
                 .split = row_by_row(0, 0),
                 .flops = [](auto in, auto out, const Attributes&) { return products(out[0], in[1]); },
                 .precision = Precision::low});
  out.push_back({.name = "conv2d_input_gradient",
                 .attributes = attributes,
                 .inputs = {"dy", "filter", shape_only("x")},
                 .outputs = {"dx"},
                 .infer = [](InferContext& c) {
                   check_gradient(c, 2, 1, 0);
                   return std::vector<TensorType>{c.type(2)};
                 },
                 .reference = input_gradient,
                 .gradient = [](GradientContext& g) {  // linear in dy and in the filter
                   Value dy = g.input(0), filter = g.input(1), ddx = g.output_gradient();
                   return std::vector<Value>{conv2d_of(g.attributes, ddx, filter), filter_gradient_of(g.attributes, ddx, dy, filter), {}};
                 },
                 .split = row_by_row(0, 0),
                 .flops = [](auto in, auto, const Attributes&) { return products(in[0], in[1]); },
                 .precision = Precision::low});
  out.push_back({.name = "conv2d_filter_gradient",
                 .attributes = attributes,
                 .inputs = {"x", "dy", shape_only("filter")},
                 .outputs = {"dfilter"},
                 .infer = [](InferContext& c) {
                   check_gradient(c, 0, 2, 1);
                   return std::vector<TensorType>{c.type(2)};
                 },
                 .reference = filter_gradient,
                 .gradient = [](GradientContext& g) {  // linear in x and in dy
                   Value x = g.input(0), dy = g.input(1), ddf = g.output_gradient();
                   return std::vector<Value>{input_gradient_of(g.attributes, dy, ddf, x), conv2d_of(g.attributes, x, ddf), {}};
                 },
                 .split = split_filter_gradient,
                 .flops = [](auto in, auto out, const Attributes&) { return products(in[1], out[0]); },
                 .precision = Precision::low});
  out.push_back({.name = "conv2d_transpose",
                 .attributes = of_transpose,
                 .inputs = {"x", "filter"},
                 .infer = [](InferContext& c) { return std::vector<TensorType>{checked_transpose(c)}; },
                 .reference = input_gradient,
                 .gradient = [](GradientContext& g) {
                   Value x = g.input(0), filter = g.input(1), dy = g.output_gradient();
                   return std::vector<Value>{conv2d_of(g.attributes, dy, filter), filter_gradient_of(g.attributes, dy, x, filter)};
                 },
                 .split = row_by_row(0, 0),
                 .flops = [](auto in, auto, const Attributes&) { return products(in[0], in[1]); },
                 .precision = Precision::low});
  return out;
}

Value conv2d(Value x, Value filter, const Conv2dOptions& o, SourceLine at) {
  return emit("conv2d", {x, filter}, {{"strides", o.strides}, {"padding", o.padding}, {"dilations", o.dilations}, {"groups", o.groups}, {"pads", o.pads}}, at);
}

Value depthwise_conv2d(Value x, Value filter, const DepthwiseConv2dOptions& o, SourceLine at) {
  SourceGuard guard(graph_of(x, "depthwise_conv2d", at), at);
  const Shape &channels = x.shape(), &f = filter.shape();
  bool fits = channels.size() == 4 && f.size() == 4 && !f[2].symbolic() && f[2] == channels[3] && !f[3].symbolic() && f[2].factor >= 1;
  if (!fits || f[2].factor > kLargestSize || f[3].factor > kLargestSize)
    throw UserError("[depthwise_conv2d] a filter " + to_string(std::span(f)) + " does not fit x " + to_string(std::span(channels)) + ": it is (height, width, channels of x, multiplier)" + (at.file ? " at " + at.text() : ""));
  return conv2d(x, reshape(filter, {f[0], f[1], 1, f[2].factor * f[3].factor}), {o.strides, o.padding, o.dilations, f[2].factor, o.pads}, at);
}

Value conv2d_transpose(Value x, Value filter, const Conv2dTransposeOptions& o, SourceLine at) {
  return emit("conv2d_transpose", {x, filter}, {{"strides", o.strides}, {"padding", o.padding}, {"dilations", o.dilations}, {"groups", o.groups}}, at);
}

}  // namespace belfry
