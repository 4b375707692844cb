#include <belfry/ops/top_k/top_k.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>
#include <belfry/ops/top_k/formulas.h>

namespace belfry {

namespace {

using namespace top_k_formulas;

std::vector<TensorType> infer(InferContext& c) {
  if (c.dtype(0) == boolean) c.fail("works on numbers, not on bool");
  Shape out = c.shape(0);
  auto axis = static_cast<std::size_t>(c.axis("axis"));
  std::int64_t k = c.attributes.integer("k");
  if (k < 1 || (!out[axis].symbolic() && k > out[axis].factor)) c.fail(fmt::format("k is {}; axis {} has {} elements", k, axis, to_string(out[axis])));
  out[axis] = k;
  return {{c.dtype(0), out}, {i32, out}};
}

void reference(const Call& c) {
  const Extents& shape = c.inputs[0].type.shape;
  int axis = from_front(c.attributes.integer("axis"), static_cast<int>(shape.size()));
  std::int64_t k = c.attributes.integer("k");
  bool largest = c.attributes.flag("largest");
  AlongAxis from(shape, axis), to(c.outputs[0].type.shape, axis);
  if (k > from.n) throw UserError(fmt::format("[top_k] k is {}; the axis has {} elements", k, from.n));
  visit_dtype(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    std::vector<std::int64_t> order(static_cast<std::size_t>(from.n));
    for (std::int64_t o = 0; o < from.outer; ++o)
      for (std::int64_t i = 0; i < from.inner; ++i) {
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return before(x[from.at(o, a, i)], x[from.at(o, b, i)], largest); });
        for (std::int64_t j = 0; j < k; ++j) {
          std::int64_t at = order[static_cast<std::size_t>(j)];
          c.outputs[0].as<T>()[to.at(o, j, i)] = x[from.at(o, at, i)];
          if (c.outputs[1].data) c.outputs[1].as<std::int32_t>()[to.at(o, j, i)] = static_cast<std::int32_t>(at);
        }
      }
  });
}

/// Rows stay unless they are the classes; the target follows by the same axis.
Split split_in(const SplitContext& c) {
  int last = static_cast<int>(c.inputs[1].shape.size()) - 1;
  for (std::size_t i : {1, 0})
    if (c.states[i].is_rows() && c.states[i].axis < last) return {{c.states[i], c.states[i]}, {c.states[i]}};
  Split out{{}, {kReplicated}};
  for (SplitState s : c.states) {
    out.reads.push_back(s.is_per_tower() ? s : kReplicated);
    if (s.is_per_tower()) out.gives[0] = s;
  }
  return out;
}

OpDef in_top_k_def() {
  return {.name = "in_top_k",
          .attributes = {{"k", AttributeKind::integer}},
          .inputs = {"targets", "predictions"},
          .infer = [](InferContext& c) {
            c.need_integer(0);
            c.need_float(1);
            if (c.rank(1) < 1 || c.shape(0) != Shape(c.shape(1).begin(), c.shape(1).end() - 1)) c.fail("targets need the axes of the predictions but for the last");
            if (c.attributes.integer("k") < 1) c.fail(fmt::format("k is {}; it must be 1 or more", c.attributes.integer("k")));
            return std::vector<TensorType>{{boolean, c.shape(0)}};
          },
          .reference = [](const Call& c) {
            std::int64_t classes = c.inputs[1].type.shape.back();
            visit_float(c.inputs[1].type.dtype, [&]<class T>() {
              visit_dtype(c.inputs[0].type.dtype, [&]<class I>() {
                auto targets = c.inputs[0].as<I>();
                for (std::size_t i = 0; i < targets.size(); ++i)
                  c.outputs[0].as<bool>()[i] = in_top(c.inputs[1].as<T>().data() + i * static_cast<std::size_t>(classes), classes, static_cast<std::int64_t>(targets[i]), c.attributes.integer("k"));
              });
            });
          },
          .gradient = no_gradient("a bool has no slope"),
          .split = split_in,
          .flops = [](auto in, auto, const Attributes&) { return static_cast<double>(in[1].elements()); }};
}

}  // namespace

std::vector<OpDef> top_k_defs() {
  std::vector<OpDef> out;
  out.push_back({.name = "top_k",
                 .attributes = {{"k", AttributeKind::integer}, {"axis", -1}, {"largest", true}},
                 .inputs = {"x"},
                 .outputs = {"values", "indices"},
                 .infer = infer,
                 .reference = reference,
                 .gradient = [](GradientContext& g) {
                   return std::vector<Value>{emit("take_along_axis_gradient", {g.output(1), g.output_gradient(), g.input(0)}, {{"axis", g.axis("axis")}}, {})};
                 },
                 .split = rows_unless_along("axis"),
                 .flops = [](auto in, auto, const Attributes&) { return static_cast<double>(in[0].elements()); }});
  out.push_back(in_top_k_def());
  return out;
}

TopK top_k(Value x, std::int64_t k, const TopKOptions& o, SourceLine at) {
  Value values = emit("top_k", {x}, {{"k", k}, {"axis", o.axis}, {"largest", o.largest}}, at);
  return {values, values.output(1)};
}

Value in_top_k(Value targets, Value predictions, std::int64_t k, SourceLine at) { return emit("in_top_k", {targets, predictions}, {{"k", k}}, at); }

}  // namespace belfry
