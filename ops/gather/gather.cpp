#include <belfry/ops/gather/gather.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

template <class I>
std::int64_t checked_row(std::span<const I> indices, std::size_t i, std::int64_t rows) {
  auto k = static_cast<std::int64_t>(indices[i]);
  if (k < 0 || k >= rows) throw UserError(fmt::format("[gather] index {} at position {} is outside the table of {} rows", k, i, rows));
  return k;
}

int axis_of(const SplitContext& c) { return from_front(c.attributes.integer("axis"), static_cast<int>(c.inputs[0].shape.size())); }

SplitState moved(SplitState s, int by) { return s.is_rows() ? rows(s.axis + by) : s; }

/// Rows of the table stay beside the axis of the lookup; else the table is read whole, and rows of the indices stay.
Split split_gather(const SplitContext& c) {
  SplitState table = c.states[0], at = c.states[1];
  int axis = axis_of(c), wide = static_cast<int>(c.inputs[1].shape.size());
  if (table.is_rows() && table.axis != axis) return {{table, at.is_per_tower() ? at : kReplicated}, {moved(table, table.axis < axis ? 0 : wide - 1)}};
  if (at.is_partial()) at = kReplicated;
  table = table.is_per_tower() ? kPerTower : kReplicated;
  return {{table, at}, {table.is_per_tower() && !at.is_rows() ? kPerTower : moved(at, axis)}};
}

/// Few rows against the table: gathered in row order and added once. Else a dense partial. From types and batch alone.
Split split_gradient(const SplitContext& c) {
  SplitState at = c.states[0], dy = c.states[1];
  int axis = static_cast<int>(c.attributes.integer("axis")), wide = static_cast<int>(c.inputs[0].shape.size());
  if (dy.is_rows() && (dy.axis < axis || dy.axis >= axis + wide)) return {{at.is_per_tower() ? at : kReplicated, dy}, {moved(dy, dy.axis < axis ? 0 : 1 - wide)}};
  int row = at.is_rows() ? at.axis : dy.is_rows() ? dy.axis - axis : -1;
  bool few = elements(extents_of(c.inputs[0].shape, c.batch)) < c.outputs[0].shape[static_cast<std::size_t>(axis)].at(c.batch);
  if (row < 0 || few) return {{kReplicated, kReplicated}, {kReplicated}};
  return {{rows(row), rows(axis + row)}, {partial(Reduction::sum)}};
}

std::vector<TensorType> infer_gradient(InferContext& c) {
  c.need_integer(0);
  c.need_float(1);
  std::int64_t axis = c.attributes.integer("axis");
  if (c.attributes.shape("rows").size() != 1 || axis < 0 || c.rank(1) < c.rank(0) + axis) c.fail("dy needs the axes of the indices, behind those before the axis, and those of a row");
  if (!std::equal(c.shape(0).begin(), c.shape(0).end(), c.shape(1).begin() + axis)) c.fail("dy has other sizes than the indices " + to_string(std::span(c.shape(0))) + ", from axis " + std::to_string(axis) + " on");
  Shape shape = c.attributes.shape("rows");
  shape.insert(shape.begin(), c.shape(1).begin(), c.shape(1).begin() + axis);
  shape.insert(shape.end(), c.shape(1).begin() + axis + c.rank(0), c.shape(1).end());
  return {{c.dtype(1), shape}};
}

}  // namespace

std::vector<OpDef> gather_defs() {
  std::vector<OpDef> out;
  out.push_back({.name = "gather",
                 .attributes = {{"axis", 0}},
                 .inputs = {"table", "indices"},
                 .infer = [](InferContext& c) {
                   if (c.rank(0) < 1) c.fail("the table needs an axis of rows");
                   c.need_integer(1);
                   int axis = c.axis("axis");
                   Shape shape(c.shape(0).begin(), c.shape(0).begin() + axis);
                   shape.insert(shape.end(), c.shape(1).begin(), c.shape(1).end());
                   shape.insert(shape.end(), c.shape(0).begin() + axis + 1, c.shape(0).end());
                   return std::vector<TensorType>{{c.dtype(0), shape}};
                 },
                 .reference = [](const Call& c) {
                   const Extents& shape = c.inputs[0].type.shape;
                   AlongAxis table(shape, from_front(c.attributes.integer("axis"), static_cast<int>(shape.size())));
                   std::size_t row = static_cast<std::size_t>(table.inner) * size_of(c.dtype());
                   visit_dtype(c.inputs[1].type.dtype, [&]<class I>() {
                     auto indices = c.inputs[1].as<I>();
                     std::byte* to = c.outputs[0].data;
                     for (std::int64_t o = 0; o < table.outer; ++o)
                       for (std::size_t i = 0; i < indices.size(); ++i, to += row)
                         if (auto k = checked_row<I>(indices, i, table.n); row > 0) std::memcpy(to, c.inputs[0].data + static_cast<std::size_t>(o * table.n + k) * row, row);
                   });
                 },
                 .gradient = [](GradientContext& g) {
                   Value table = g.input(0), dy = g.output_gradient();
                   if (is_half(table.dtype())) dy = cast(dy, f32);  // sums are not taken in halves
                   Value out = emit("gather_gradient", {g.input(1), dy}, {{"rows", Shape{table.shape()[static_cast<std::size_t>(g.axis("axis"))]}}, {"axis", g.axis("axis")}}, {});
                   return std::vector<Value>{is_half(table.dtype()) ? cast(out, table.dtype()) : out, {}};
                 },
                 .split = split_gather,
                 .stores = true});
  out.push_back({.name = "gather_gradient",
                 .attributes = {{"rows", AttributeKind::shape}, {"axis", 0}},
                 .inputs = {"indices", "dy"},
                 .infer = infer_gradient,
                 .reference = [](const Call& c) {
                   AlongAxis table(c.outputs[0].type.shape, static_cast<int>(c.attributes.integer("axis")));
                   visit_float(c.inputs[1].type.dtype, [&]<class T>() {
                     auto out = c.outputs[0].as<T>();
                     std::fill(out.begin(), out.end(), T{0});
                     visit_dtype(c.inputs[0].type.dtype, [&]<class I>() {
                       auto indices = c.inputs[0].as<I>();
                       const T* dy = c.inputs[1].as<T>().data();
                       for (std::int64_t o = 0; o < table.outer; ++o)
                         for (std::size_t i = 0; i < indices.size(); ++i, dy += table.inner) {
                           T* to = out.data() + (o * table.n + checked_row<I>(indices, i, table.n)) * table.inner;
                           for (std::int64_t k = 0; k < table.inner; ++k) to[k] += dy[k];
                         }
                     });
                   });
                 },
                 .gradient = [](GradientContext& g) { return std::vector<Value>{{}, gather(g.output_gradient(), g.input(0), static_cast<int>(g.attributes.integer("axis")))}; },
                 .split = split_gradient});
  return out;
}

Value gather(Value table, Value indices, int axis, SourceLine at) { return emit("gather", {table, indices}, {{"axis", axis}}, at); }

Value unsorted_segment_sum(Value x, Value ids, Dim segments, SourceLine at) { return emit("gather_gradient", {ids, x}, {{"rows", Shape{std::move(segments)}}}, at); }

}  // namespace belfry
