#include <belfry/ops/concat/concat.h>

#include <cstring>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

std::vector<TensorType> infer(InferContext& c) {
  c.need_same_dtype();
  if (c.rank(0) == 0) c.fail("scalars have no axis to lie along; stack them");
  auto axis = static_cast<std::size_t>(c.axis("axis"));
  Shape out = c.shape(0);
  for (int i = 1; i < c.count(); ++i) {
    const Shape& x = c.shape(i);
    bool fits = x.size() == out.size();
    for (std::size_t a = 0; fits && a < x.size(); ++a) fits = a == axis ? x[a].symbol == out[a].symbol || x[a] == Dim(0) || out[a] == Dim(0) : x[a] == out[a];
    if (!fits) c.fail(fmt::format("input {} is {}, which does not fit to {} along axis {}", i, to_string(std::span(x)), to_string(std::span(c.shape(0))), axis));
    if (x[axis] == Dim(0)) continue;
    if (__builtin_add_overflow(out[axis].factor, x[axis].factor, &out[axis].factor)) c.fail(fmt::format("axis {} is too long", axis));
    out[axis].symbol = x[axis].symbol;
  }
  return {{c.dtype(0), out}};
}

/// Elementwise, but for rows along the axis itself: these are read by another row axis, or whole.
Split split(const SplitContext& c) {
  int axis = from_front(c.attributes.integer("axis"), static_cast<int>(c.outputs[0].shape.size())), to = -1;
  bool along = false;
  for (const SplitState& s : c.states) {
    along |= s == rows(axis);
    if (to < 0 && s.is_rows() && s.axis != axis) to = s.axis;
  }
  for (int other : symbolic_axes(c.outputs[0].shape))
    if (along && to < 0 && other != axis) to = other;
  SplitContext moved = c;
  for (SplitState& s : moved.states)
    if (s == rows(axis)) s = to >= 0 ? rows(to) : kReplicated;
  if (!along || to >= 0) return split_elementwise(c.states[0].is_partial() ? c.states[0].reduction : Reduction::sum)(moved);
  for (SplitState& s : moved.states)
    if (!s.is_per_tower()) s = kReplicated;
  return {moved.states, {kReplicated}};
}

}  // namespace

OpDef concat_def() {
  return {.name = "concat",
          .attributes = {{"axis", AttributeKind::integer}},
          .inputs = {variadic_input("x")},
          .infer = infer,
          .reference = [](const Call& c) {
            const Extents& out = c.outputs[0].type.shape;
            int axis = from_front(c.attributes.integer("axis"), static_cast<int>(out.size()));
            AlongAxis y(out, axis);
            auto element = static_cast<std::int64_t>(size_of(c.dtype()));
            std::byte* to = c.outputs[0].data;
            for (std::int64_t o = 0; o < y.outer; ++o)
              for (const ConstView& x : c.inputs) {
                std::int64_t bytes = x.type.shape[static_cast<std::size_t>(axis)] * y.inner * element;
                if (bytes > 0) std::memcpy(to, x.data + o * bytes, static_cast<std::size_t>(bytes));
                to += bytes;
              }
          },
          .gradient = [](GradientContext& g) {
            Value dy = g.output_gradient();
            auto axis = static_cast<std::size_t>(g.axis("axis"));
            std::vector<Value> out;
            Shape begin(dy.shape().size(), Dim(0));
            for (int i = 0; i < g.count(); ++i) {
              const Shape size = g.input(i).shape();
              out.push_back(slice(dy, begin, size));
              if (size[axis] != Dim(0)) begin[axis] = {begin[axis].factor + size[axis].factor, size[axis].symbol};
            }
            return out;
          },
          .split = split,
          .zero_preserving = true,
          .stores = true, .exact = true};
}

Value concat(const std::vector<Value>& xs, int axis, SourceLine at) { return emit("concat", xs, {{"axis", axis}}, at); }

Value stack(const std::vector<Value>& xs, int axis, SourceLine at) {
  if (xs.empty() || !xs[0]) throw UserError("[stack] takes at least 1 input");
  SourceGuard guard(*xs[0].graph, at);
  int rank = xs[0].rank(), to = from_front(axis, rank + 1);
  if (to < 0 || to > rank) throw UserError(fmt::format("[stack] axis {} is out of range for values of {} axes", axis, rank));
  std::vector<Value> wide;
  for (const Value& x : xs) {
    if (x.type() != xs[0].type())
      throw UserError(fmt::format("[stack] {} '{}' does not lie over {} '{}'; all must be of one type", to_string(x.type()), x.name(), to_string(xs[0].type()), xs[0].name()));
    wide.push_back(expand_dims(x, {to}));
  }
  return concat(wide, to);
}

}  // namespace belfry
