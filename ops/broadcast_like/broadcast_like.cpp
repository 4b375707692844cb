#include <belfry/ops/broadcast_like/broadcast_like.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

/// x stretched to the local shape of y.
void reference(const Call& c) {
  visit_dtype(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    auto y = c.outputs[0].as<T>();
    std::size_t i = 0;
    for_each_index(c.outputs[0].type.shape, [&](const Extents& at) { y[i++] = x[offset_of(at, c.inputs[0].type.shape)]; });
  });
}

/// Rows of x stay; new rows are made by each tower for itself.
Split split_broadcast_to(const SplitContext& c) {
  SplitState x = c.states[0];
  const Shape& to = c.outputs[0].shape;
  std::vector<int> axes = symbolic_axes(to);
  int rank = static_cast<int>(to.size());
  if (axes.empty()) {
    bool wider = factor_of(to) > factor_of(c.inputs[0].shape);
    if (x.is_partial() && wider) x = kReplicated;  // a partial is never enlarged
    return {{x}, {x}};
  }
  int axis = x.is_rows() ? x.axis + rank - static_cast<int>(c.inputs[0].shape.size()) : axes[0];
  return {{x.is_per_tower() ? x : aligned(c.inputs[0].shape, axis, rank)}, {rows(axis)}};
}

}  // namespace

OpDef broadcast_like_def() {
  return {.name = "broadcast_like",
          .inputs = {"x", shape_only("like")},
          .infer = [](InferContext& c) {
            if (c.broadcast() != c.shape(1)) c.fail("x does not stretch to the shape of like");
            return std::vector<TensorType>{{c.dtype(0), c.shape(1)}};
          },
          .reference = reference,
          .gradient = [](GradientContext& g) { return std::vector<Value>{sum_to(g.output_gradient(), g.input(0).shape()), {}}; },
          .split = split_broadcast_like(),
          .zero_preserving = true,
          .exact = true,
          .precision = Precision::follow};
}

Value broadcast_like(Value x, Value like, SourceLine at) { return x.shape() == like.shape() ? x : emit("broadcast_like", {x, like}, {}, at); }

OpDef broadcast_to_def() {
  return {.name = "broadcast_to",
          .attributes = {{"shape", AttributeKind::shape}},
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            const Shape& to = c.attributes.shape("shape");
            Shape both;
            if (!broadcast({c.shape(0), to}, both) || both != to) c.fail("x does not stretch to the shape " + to_string(std::span(to)));
            return std::vector<TensorType>{{c.dtype(0), to}};
          },
          .reference = reference,
          .gradient = [](GradientContext& g) { return std::vector<Value>{sum_to(g.output_gradient(), g.input(0).shape())}; },
          .split = split_broadcast_to,
          .zero_preserving = true,
          .exact = true,
          .precision = Precision::follow};
}

Value broadcast_to(Value x, Shape shape, SourceLine at) { return x.shape() == shape ? x : emit("broadcast_to", {x}, {{"shape", std::move(shape)}}, at); }

Value tile(Value x, Integers multiples, SourceLine at) {
  SourceGuard guard(graph_of(x, "tile", at), at);
  const Shape from = x.shape();
  auto refuse = [&](const std::string& why) { throw UserError(fmt::format("[tile] {}; x is '{}' of shape {}", why, x.name(), to_string(std::span(from)))); };
  if (multiples.size() != from.size()) refuse(fmt::format("{} multiples for {} axes", multiples.size(), from.size()));
  // A repeated axis gets one of its own before it: (n) is stretched from (1, n) to (multiple, n).
  Shape apart, wide, to;
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::int64_t n = multiples[i];
    if (n < 1 || n > kMostElements / std::max<std::int64_t>(from[i].factor, 1)) refuse(fmt::format("the multiple {} of axis {} is no count that can be made", n, i));
    if (n > 1) apart.push_back(1), wide.push_back(n);
    apart.push_back(from[i]);
    wide.push_back(from[i]);
    to.push_back(from[i] * n);
  }
  return to == from ? x : reshape(broadcast_to(reshape(x, apart), wide), to);
}

}  // namespace belfry
