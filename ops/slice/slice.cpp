#include <belfry/ops/slice/slice.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>
#include <belfry/ops/loops.h>
#include <belfry/ops/slice/box_internal.h>

namespace belfry {

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// begin + (size − 1)·step, the last position; the largest number where there are more.
std::int64_t last_of(std::int64_t begin, std::int64_t size, std::int64_t step) {
  std::int64_t out;
  return __builtin_mul_overflow(size - 1, step, &out) || __builtin_add_overflow(out, begin, &out) ? kMost : out;
}

/// Whether the part lies inside the axis for every batch that makes it possible.
bool lies_inside(const Dim& wide, const Dim& begin, const Dim& size, std::int64_t step) {
  if (begin.factor < 0 || size.factor < 0) return false;
  for (const Dim* d : {&begin, &size})
    if (d->symbolic() && d->symbol != wide.symbol) return false;
  if (size.factor == 0) return begin.factor <= wide.factor || (wide.symbolic() && !begin.symbolic());
  if (wide.symbolic() && !size.symbolic()) return !begin.symbolic() || begin.factor <= wide.factor;  // the run sees how many rows there are
  if (last_of(begin.factor, size.factor, step) >= wide.factor) return false;  // with one row
  std::int64_t per_row;
  return !size.symbolic() || (!__builtin_mul_overflow(size.factor, step, &per_row) && per_row <= wide.factor - (begin.symbolic() ? begin.factor : 0));
}

/// Checks the attributes against the larger shape, and gives the smaller one.
Shape part_of(InferContext& c, const Shape& wide) {
  const Shape &begin = c.attributes.shape("begin"), &size = c.attributes.shape("size");
  const Integers& strides = c.attributes.integers("strides");
  if (begin.size() != wide.size() || size.size() != wide.size() || (!strides.empty() && strides.size() != wide.size()))
    c.fail(fmt::format("begin, size and strides need {} entries each, one per axis", wide.size()));
  for (std::size_t a = 0; a < wide.size(); ++a) {
    std::int64_t stride = stride_of(c.attributes, a);
    if (stride == 0) c.fail(fmt::format("the stride of axis {} is 0", a));
    if (stride == kFromStart) c.fail(fmt::format("the stride of axis {} is {}: the least is {}", a, stride, stride + 1));
    if (!lies_inside(wide[a], begin[a], size[a], std::abs(stride)))
      c.fail(fmt::format("axis {}: {} elements from {} on, {} apart, are not all inside {}", a, to_string(size[a]), to_string(begin[a]), stride, to_string(wide[a])));
  }
  return size;
}

bool keeps(const SplitContext& c, const Shape& wide, int axis) {
  auto a = static_cast<std::size_t>(axis);
  return keeps_rows(wide[a], c.attributes.shape("size")[a], stride_of(c.attributes, a));
}

std::string behind(std::size_t axis, std::int64_t size, std::int64_t begin, std::int64_t step, std::int64_t length) {
  return fmt::format("[slice] axis {}: {} elements from {} on, {} apart, reach behind the {} that there are", axis, size, begin, step, length);
}

/// What no batch decided is seen when the batch is known.
void check_rows(const SplitContext& c, const Shape& wide) {
  const Shape &begin = c.attributes.shape("begin"), &size = c.attributes.shape("size");
  for (std::size_t a = 0; a < wide.size(); ++a) {
    const std::int64_t n = size[a].at(c.batch), from = begin[a].at(c.batch), step = std::abs(stride_of(c.attributes, a)), length = wide[a].at(c.batch);
    if (n > 0 && last_of(from, n, step) >= length) throw UserError(behind(a, n, from, step, length) + fmt::format(" in a batch of {}: take a larger one", c.batch));
  }
}

Split split_slice(const SplitContext& c) {
  check_rows(c, c.inputs[0].shape);
  SplitState s = c.states[0];
  if (!s.is_rows() || keeps(c, c.inputs[0].shape, s.axis)) return {{s}, {s}};
  for (int other : symbolic_axes(c.inputs[0].shape))
    if (keeps(c, c.inputs[0].shape, other)) return {{rows(other)}, {rows(other)}};
  return {{kReplicated}, {kReplicated}};
}

/// Rows come from dy where towers have theirs of it; else each tower puts the whole dy into its own rows.
Split split_gradient(const SplitContext& c) {
  SplitState dy = c.states[0], like = c.states[1];
  const Shape& wide = c.outputs[0].shape;
  check_rows(c, wide);
  std::vector<int> axes = symbolic_axes(wide);
  if (axes.empty()) {
    if (dy.is_partial()) dy = kReplicated;  // a partial is never enlarged
    return {{dy, like}, {dy}};
  }
  int axis = like.is_rows() ? like.axis : axes[0];
  if (dy.is_rows() && keeps(c, wide, dy.axis)) axis = dy.axis;
  else if (!dy.is_per_tower()) dy = keeps(c, wide, axis) ? rows(axis) : kReplicated;
  return {{dy, like}, {rows(axis)}};
}

void for_each_pair(const Box& box, const std::function<void(std::int64_t part, std::int64_t whole)>& f) {
  for_each_index(box.counts, [&](const Extents& at) {
    std::int64_t part = box.part, whole = box.whole;
    for (std::size_t a = 0; a < at.size(); ++a) part += at[a] * box.part_step[a], whole += at[a] * box.whole_step[a];
    f(part, whole);
  });
}

void reference(const Call& c) {
  Shape wide(c.inputs[0].type.shape.size());  // whole along every axis that is not taken by rows
  const Extents &x = c.inputs[0].type.shape, &y = c.outputs[0].type.shape;
  for (std::size_t a = 0; a < x.size(); ++a) wide[a] = x[a];
  std::size_t bytes = size_of(c.dtype());
  for_each_pair(box_of(c.attributes, wide, x, y, c.share), [&](std::int64_t part, std::int64_t whole) {
    std::memcpy(c.outputs[0].data + static_cast<std::size_t>(part) * bytes, c.inputs[0].data + static_cast<std::size_t>(whole) * bytes, bytes);
  });
}

void gradient_reference(const Call& c) {
  const Extents &dy = c.inputs[0].type.shape, &dx = c.outputs[0].type.shape;
  std::size_t bytes = size_of(c.dtype());
  if (c.outputs[0].type.elements()) std::memset(c.outputs[0].data, 0, static_cast<std::size_t>(c.outputs[0].type.bytes()));
  for_each_pair(box_of(c.attributes, c.output_types[0].shape, dx, dy, c.share), [&](std::int64_t part, std::int64_t whole) {
    std::memcpy(c.outputs[0].data + static_cast<std::size_t>(whole) * bytes, c.inputs[0].data + static_cast<std::size_t>(part) * bytes, bytes);
  });
}

std::vector<AttributeDef> schema() { return {{"begin", AttributeKind::shape}, {"size", AttributeKind::shape}, {"strides", Integers{}}}; }

Attributes same(const GradientContext& g) {
  return {{"begin", g.attributes.shape("begin")}, {"size", g.attributes.shape("size")}, {"strides", g.attributes.integers("strides")}};
}

}  // namespace

bool keeps_rows(const Dim& wide, const Dim& size, std::int64_t stride) {
  return wide.symbolic() && size.symbolic() && stride > 0 && size.factor > 0 && wide.factor % size.factor == 0 && wide.factor / size.factor == stride;
}

Box box_of(const Attributes& attributes, const Shape& wide, const Extents& whole, const Extents& part, const Share& share) {
  const Shape &begin = attributes.shape("begin"), &size = attributes.shape("size");
  Box box{part, Extents(part.size(), 1), Extents(part.size(), 1)};
  for (std::size_t a = part.size(); a-- > 1;) {
    box.part_step[a - 1] = box.part_step[a] * part[a];
    box.whole_step[a - 1] = box.whole_step[a] * whole[a];
  }
  for (std::size_t a = 0; a < part.size(); ++a) {
    std::int64_t stride = stride_of(attributes, a), n = part[a], step = n > 1 ? std::abs(stride) : 1, from = n > 0 ? begin[a].at(share.batch) : 0;  // of one or none both may be any number
    bool own_rows = wide[a].symbolic() && whole[a] != wide[a].at(share.batch);
    std::int64_t length = own_rows ? wide[a].at(share.batch) : whole[a], first = 0, past = n;
    if (own_rows && keeps_rows(wide[a], size[a], stride)) length = whole[a], own_rows = false;
    if (n > 0 && last_of(from, n, step) >= length) throw UserError(behind(a, n, from, step, length));
    if (own_rows) {  // only what falls into the rows of this share
      std::int64_t offset = wide[a].factor * share.first_row;
      first = std::clamp<std::int64_t>((offset - from + step - 1) / step, 0, n);
      if (offset <= from) first = 0;
      past = offset + whole[a] <= from ? 0 : std::min(n, (offset + whole[a] - from + step - 1) / step);
      from -= offset;
    }
    box.counts[a] = std::max<std::int64_t>(0, past - first);
    // Element i of the region is element n − 1 − i of the part where that is reversed.
    box.part += (stride < 0 ? n - 1 - first : first) * box.part_step[a];
    box.whole += (from + first * step) * box.whole_step[a];
    box.part_step[a] *= stride < 0 ? -1 : 1;
    box.whole_step[a] *= step;
  }
  return box;
}

Box box_of(const Attributes& attributes, const LocalType& input, const LocalType& output, const TensorType& output_type, const Share& share, bool gradient) {
  const Extents &whole = (gradient ? output : input).shape, &part = (gradient ? input : output).shape;
  return box_of(attributes, gradient ? output_type.shape : Shape(whole.begin(), whole.end()), whole, part, share);
}

std::string box_objection(const Attributes& attributes, const LocalType& input, const LocalType& output, const TensorType& output_type, const Share& share, bool gradient) {
  try {
    box_of(attributes, input, output, output_type, share, gradient);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

std::vector<OpDef> slice_defs() {
  std::vector<OpDef> out;
  out.push_back({.name = "slice",
                 .attributes = schema(),
                 .inputs = {"x"},
                 .infer = [](InferContext& c) { return std::vector<TensorType>{{c.dtype(0), part_of(c, c.shape(0))}}; },
                 .reference = reference,
                 .gradient = [](GradientContext& g) { return std::vector<Value>{emit("slice_gradient", {g.output_gradient(), g.input(0)}, same(g), {})}; },
                 .split = split_slice,
                 .zero_preserving = true,
                 .stores = true, .exact = true});
  out.push_back({.name = "slice_gradient",
                 .attributes = schema(),
                 .inputs = {"dy", shape_only("like")},
                 .infer = [](InferContext& c) {
                   if (part_of(c, c.shape(1)) != c.shape(0)) c.fail("dy is not of the slice's shape " + to_string(std::span(c.attributes.shape("size"))));
                   return std::vector<TensorType>{{c.dtype(0), c.shape(1)}};
                 },
                 .reference = gradient_reference,
                 .gradient = [](GradientContext& g) { return std::vector<Value>{emit("slice", {g.output_gradient()}, same(g), {}), {}}; },
                 .split = split_gradient,
                 .zero_preserving = true,
                 .stores = true, .exact = true});
  return out;
}

namespace {

struct Part {
  Dim begin, size;
  std::int64_t stride;
};

/// begin : end : stride of an axis with fixed size `d`, as NumPy cuts it; of an axis without one, d is the largest number.
Part cut(std::int64_t d, std::int64_t begin, std::int64_t end, std::int64_t stride) {
  bool back = stride < 0;
  auto inside = [&](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + d : i, back ? -1 : 0, back ? d - 1 : d); };
  begin = inside(begin);
  end = inside(end);
  std::int64_t span = back ? begin - end : end - begin, step = std::abs(stride);
  if (span <= 0) return {0, 0, stride};
  std::int64_t n = (span - 1) / step + 1;
  return {back ? begin - (n - 1) * step : begin, n, stride};
}

/// All rows, or fixed positions from the front.
Part cut_rows(const Dim& wide, int axis, std::int64_t begin, std::int64_t end, std::int64_t stride) {
  std::int64_t step = std::abs(stride);
  bool all = stride > 0 ? begin >= 0 && begin < step && end == kToEnd : (begin == kToEnd || begin == -1) && end == kFromStart;
  if (all && wide.factor % step == 0) return {stride > 0 ? begin : step - 1, Dim(wide.factor / step, wide.symbol), stride};
  bool fixed = begin >= 0 && begin != kToEnd && end != kToEnd && (end >= 0 || (stride < 0 && end == kFromStart));
  if (all || !fixed)
    throw UserError(fmt::format("[strided_slice] axis {} is {}, whose size is not known here: take all of it, every n-th of its factor, or fixed positions from the front", axis, to_string(wide)));
  return cut(kMost, begin, end, stride);
}

std::size_t axis_of(const char* op, const Value& x, std::int64_t axis) {
  int at = axis < -x.rank() || axis >= x.rank() ? -1 : from_front(axis, x.rank());
  if (at < 0) throw UserError(fmt::format("[{}] axis {} is out of range for '{}' of shape {}", op, axis, x.name(), to_string(std::span(x.shape()))));
  return static_cast<std::size_t>(at);
}

std::vector<Value> parts_of(Value x, const Shape& sizes, std::size_t axis) {
  std::vector<Value> out;
  Shape begin(x.shape().size(), Dim(0)), size = x.shape();
  for (const Dim& part : sizes) {
    size[axis] = part;
    out.push_back(slice(x, begin, size));
    if (part.factor > 0) begin[axis] = {begin[axis].factor + part.factor, part.symbol};
  }
  return out;
}

}  // namespace

Value slice(Value x, Shape begin, Shape size, Integers strides, SourceLine at) {
  bool ones = std::all_of(strides.begin(), strides.end(), [](std::int64_t s) { return s == 1; });
  return emit("slice", {x}, {{"begin", std::move(begin)}, {"size", std::move(size)}, {"strides", ones ? Integers{} : std::move(strides)}}, at);
}

Value strided_slice(Value x, Integers begin, Integers end, Integers strides, SourceLine at) {
  std::size_t rank = x.shape().size();
  if (strides.empty()) strides.assign(rank, 1);
  if (begin.size() != rank || end.size() != rank || strides.size() != rank)
    throw UserError(fmt::format("[strided_slice] begin, end and strides need {} entries each, one per axis of '{}'", rank, x.name()));
  Shape from, size;
  for (std::size_t a = 0; a < rank; ++a) {
    if (strides[a] == 0 || strides[a] == kFromStart) throw UserError(fmt::format("[strided_slice] the stride of axis {} is {}", a, strides[a]));
    const Dim& wide = x.shape()[a];
    Part p = wide.symbolic() ? cut_rows(wide, static_cast<int>(a), begin[a], end[a], strides[a]) : cut(wide.factor, begin[a], end[a], strides[a]);
    from.push_back(p.begin);
    size.push_back(p.size);
  }
  return slice(x, std::move(from), std::move(size), std::move(strides), at);
}

Value reverse(Value x, const Integers& axes, SourceLine at) {
  Integers strides(x.shape().size(), 1);
  for (std::int64_t a : axes) strides[axis_of("reverse", x, a)] = -1;
  return slice(x, Shape(x.shape().size(), Dim(0)), x.shape(), std::move(strides), at);
}

std::vector<Value> split_even(Value x, int count, int axis, SourceLine at) {
  SourceGuard guard(graph_of(x, "split_even", at), at);
  std::size_t a = axis_of("split_even", x, axis);
  Dim part = x.shape()[a];
  if (count < 1 || part.factor % count != 0)
    throw UserError(fmt::format("[split_even] axis {} of '{}' is {}, which is not cut into {} equal parts; see split_sizes", a, x.name(), to_string(part), count));
  part.factor /= count;
  return parts_of(x, Shape(static_cast<std::size_t>(count), part), a);
}

std::vector<Value> split_sizes(Value x, const Shape& sizes, int axis, SourceLine at) {
  SourceGuard guard(graph_of(x, "split_sizes", at), at);
  std::size_t a = axis_of("split_sizes", x, axis);
  const Dim wide = x.shape()[a];
  std::int64_t left = wide.factor;
  bool fits = true;
  for (const Dim& d : sizes) {
    fits = fits && d.factor >= 0 && d.factor <= left && (d.factor == 0 || d.symbol == wide.symbol);
    if (fits) left -= d.factor;
  }
  if (!fits || left != 0) throw UserError(fmt::format("[split_sizes] the sizes {} do not add up to {}, axis {} of '{}'", to_string(std::span(sizes)), to_string(wide), a, x.name()));
  return parts_of(x, sizes, a);
}

std::vector<Value> unstack(Value x, int axis, SourceLine at) {
  SourceGuard guard(graph_of(x, "unstack", at), at);
  std::size_t a = axis_of("unstack", x, axis);
  const Dim wide = x.shape()[a];
  if (wide.symbolic()) throw UserError(fmt::format("[unstack] axis {} of '{}' is {}: how many values it makes is not known here", a, x.name(), to_string(wide)));
  std::vector<Value> out;
  for (Value part : parts_of(x, Shape(static_cast<std::size_t>(wide.factor), Dim(1)), a)) out.push_back(squeeze(part, {static_cast<std::int64_t>(a)}));
  return out;
}

}  // namespace belfry
