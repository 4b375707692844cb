#include <belfry/ops/take_along_axis/take_along_axis.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>
#include <belfry/ops/take_along_axis/formulas.h>

namespace belfry {

namespace {

/// Sizes but along the axis must be equal.
void check_lines(InferContext& c, const Shape& x, const Shape& indices, int axis) {
  bool fits = x.size() == indices.size();
  for (std::size_t a = 0; fits && a < x.size(); ++a) fits = static_cast<int>(a) == axis || x[a] == indices[a];
  if (!fits) c.fail(fmt::format("the indices {} do not lie beside {} along axis {}", to_string(std::span(indices)), to_string(std::span(x)), axis));
}

/// The line of x or dx that belongs to each index: f(element of the indices, element along the axis).
template <class I, class F>
void for_each_taken(std::span<const I> indices, const AlongAxis& from, const AlongAxis& taken, F f) {
  for (std::int64_t o = 0; o < taken.outer; ++o)
    for (std::int64_t j = 0; j < taken.n; ++j)
      for (std::int64_t i = 0; i < taken.inner; ++i) {
        std::size_t at = taken.at(o, j, i);
        auto k = static_cast<std::int64_t>(indices[at]);
        check_index(k, static_cast<std::int64_t>(at), from.n);
        f(at, from.at(o, k, i));
      }
}

/// Rows of another axis stay on both sides; rows of the indices along the axis itself look into the whole x.
Split split_take(const SplitContext& c) {
  SplitState x = c.states[0], at = c.states[1];
  int axis = from_front(c.attributes.integer("axis"), static_cast<int>(c.inputs[0].shape.size()));
  for (SplitState s : {x, at})
    if (s.is_rows() && s.axis != axis) return {{s, s}, {s}};
  x = x.is_per_tower() ? x : kReplicated;
  if (at.is_partial()) at = kReplicated;
  return {{x, at}, {at.is_rows() || !x.is_per_tower() ? at : kPerTower}};
}

/// Along the axis itself each tower adds its own: a partial, unless that is larger than dy.
Split split_gradient(const SplitContext& c) {
  int axis = from_front(c.attributes.integer("axis"), static_cast<int>(c.inputs[1].shape.size()));
  for (std::size_t i : {0, 1})
    if (c.states[i].is_rows() && c.states[i].axis != axis) return {{c.states[i], c.states[i], c.states[2]}, {c.states[i]}};
  bool wider = elements(extents_of(c.outputs[0].shape, c.batch)) > elements(extents_of(c.inputs[1].shape, c.batch));
  if ((c.states[0].is_rows() || c.states[1].is_rows()) && !wider) return {{rows(axis), rows(axis), c.states[2]}, {partial(Reduction::sum)}};
  return {{kReplicated, kReplicated, c.states[2]}, {kReplicated}};
}

}  // namespace

std::vector<OpDef> take_along_axis_defs() {
  std::vector<OpDef> out;
  out.push_back({.name = "take_along_axis",
                 .attributes = {{"axis", -1}},
                 .inputs = {"x", "indices"},
                 .infer = [](InferContext& c) {
                   c.need_integer(1);
                   check_lines(c, c.shape(0), c.shape(1), c.axis("axis"));
                   return std::vector<TensorType>{{c.dtype(0), c.shape(1)}};
                 },
                 .reference = [](const Call& c) {
                   int axis = from_front(c.attributes.integer("axis"), static_cast<int>(c.inputs[0].type.shape.size()));
                   AlongAxis from(c.inputs[0].type.shape, axis), taken(c.inputs[1].type.shape, axis);
                   std::size_t bytes = size_of(c.dtype());
                   visit_dtype(c.inputs[1].type.dtype, [&]<class I>() {
                     for_each_taken<I>(c.inputs[1].as<I>(), from, taken, [&](std::size_t to, std::size_t at) { std::memcpy(c.outputs[0].data + to * bytes, c.inputs[0].data + at * bytes, bytes); });
                   });
                 },
                 .gradient = [](GradientContext& g) {
                   Value x = g.input(0), dy = g.output_gradient();
                   if (is_half(x.dtype())) dy = cast(dy, f32), x = cast(x, f32);  // sums are not taken in halves
                   Value out = emit("take_along_axis_gradient", {g.input(1), dy, x}, {{"axis", g.axis("axis")}}, {});
                   return std::vector<Value>{is_half(g.input(0).dtype()) ? cast(out, g.input(0).dtype()) : out, {}};
                 },
                 .split = split_take,
                 .stores = true,
                 .exact = true});
  out.push_back({.name = "take_along_axis_gradient",
                 .attributes = {{"axis", -1}},
                 .inputs = {"indices", "dy", shape_only("like")},
                 .infer = [](InferContext& c) {
                   c.need_integer(0);
                   c.need_float(1);
                   if (c.shape(0) != c.shape(1)) c.fail("dy has not the shape of the indices");
                   check_lines(c, c.shape(2), c.shape(0), c.axis("axis"));
                   return std::vector<TensorType>{{c.dtype(1), c.shape(2)}};
                 },
                 .reference = [](const Call& c) {
                   int axis = from_front(c.attributes.integer("axis"), static_cast<int>(c.inputs[0].type.shape.size()));
                   AlongAxis to(c.outputs[0].type.shape, axis), taken(c.inputs[0].type.shape, axis);
                   visit_float(c.inputs[1].type.dtype, [&]<class T>() {
                     auto dy = c.inputs[1].as<T>();
                     auto dx = c.outputs[0].as<T>();
                     std::fill(dx.begin(), dx.end(), T{0});
                     visit_dtype(c.inputs[0].type.dtype, [&]<class I>() {
                       for_each_taken<I>(c.inputs[0].as<I>(), to, taken, [&](std::size_t from, std::size_t at) { dx[at] += dy[from]; });
                     });
                   });
                 },
                 .gradient = [](GradientContext& g) {
                   return std::vector<Value>{{}, take_along_axis(g.output_gradient(), g.input(0), static_cast<int>(g.attributes.integer("axis"))), {}};
                 },
                 .split = split_gradient,
                 .exact = true});
  return out;
}

Value take_along_axis(Value x, Value indices, int axis, SourceLine at) { return emit("take_along_axis", {x, indices}, {{"axis", axis}}, at); }

}  // namespace belfry
