#include <belfry/ops/gather/gather.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

template <class I>
std::size_t checked_row(const Call& c, std::span<const I> indices, std::size_t i, std::int64_t rows) {
  auto k = static_cast<std::int64_t>(indices[i]);
  if (k < 0 || k >= rows) throw UserError(fmt::format("[gather] index {} at position {} is outside the table of {} rows", k, i, rows));
  (void)c;
  return static_cast<std::size_t>(k);
}

/// The table is read whole; rows of the indices stay.
Split split_gather(const SplitContext& c) {
  SplitState s = c.states[1].is_partial() ? kReplicated : c.states[1];
  SplitState table = c.states[0].is_per_tower() ? kPerTower : kReplicated;
  return {{table, s}, {table.is_per_tower() && !s.is_rows() ? kPerTower : s}};
}

/// Few rows against the table: gathered in row order and added once. Else a dense partial. From types and batch alone.
Split split_gradient(const SplitContext& c) {
  SplitState at = c.states[0].is_rows() ? c.states[0] : c.states[1];
  bool few = elements(extents_of(c.inputs[0].shape, c.batch)) < c.outputs[0].shape[0].at(c.batch);
  if (!at.is_rows() || at.axis >= static_cast<int>(c.inputs[0].shape.size()) || few) return {{kReplicated, kReplicated}, {kReplicated}};
  return {{rows(at.axis), rows(at.axis)}, {partial(Reduction::sum)}};
}

}  // namespace

std::vector<OpDef> gather_defs() {
  std::vector<OpDef> out;
  out.push_back({.name = "gather",
                 .inputs = {"table", "indices"},
                 .infer = [](InferContext& c) {
                   if (c.rank(0) < 1) c.fail("the table needs an axis of rows");
                   c.need_integer(1);
                   Shape shape = c.shape(1);
                   shape.insert(shape.end(), c.shape(0).begin() + 1, c.shape(0).end());
                   return std::vector<TensorType>{{c.dtype(0), shape}};
                 },
                 .reference = [](const Call& c) {
                   const Extents& table = c.inputs[0].type.shape;
                   std::size_t row = static_cast<std::size_t>(product(table, 1, table.size())) * size_of(c.dtype());
                   visit_dtype(c.inputs[1].type.dtype, [&]<class I>() {
                     auto indices = c.inputs[1].as<I>();
                     for (std::size_t i = 0; i < indices.size(); ++i)
                       std::memcpy(c.outputs[0].data + i * row, c.inputs[0].data + checked_row<I>(c, indices, i, table[0]) * row, row);
                   });
                 },
                 .gradient = [](GradientContext& g) {
                   Value table = g.input(0);
                   return std::vector<Value>{emit("gather_gradient", {g.input(1), g.output_gradient()}, {{"rows", Shape{table.shape()[0]}}}, {}), {}};
                 },
                 .split = split_gather});
  out.push_back({.name = "gather_gradient",
                 .attributes = {{"rows", AttributeKind::shape}},
                 .inputs = {"indices", "dy"},
                 .infer = [](InferContext& c) {
                   c.need_integer(0);
                   c.need_float(1);
                   if (c.rank(1) < c.rank(0) || c.attributes.shape("rows").size() != 1) c.fail("dy needs the axes of the indices and those of a row");
                   Shape shape = c.attributes.shape("rows");
                   shape.insert(shape.end(), c.shape(1).begin() + c.rank(0), c.shape(1).end());
                   return std::vector<TensorType>{{c.dtype(1), shape}};
                 },
                 .reference = [](const Call& c) {
                   const Extents& table = c.outputs[0].type.shape;
                   std::size_t row = static_cast<std::size_t>(product(table, 1, table.size()));
                   visit_float(c.inputs[1].type.dtype, [&]<class T>() {
                     auto dy = c.inputs[1].as<T>();
                     auto out = c.outputs[0].as<T>();
                     std::fill(out.begin(), out.end(), T{0});
                     visit_dtype(c.inputs[0].type.dtype, [&]<class I>() {
                       auto indices = c.inputs[0].as<I>();
                       for (std::size_t i = 0; i < indices.size(); ++i) {
                         T* to = out.data() + checked_row<I>(c, indices, i, table[0]) * row;
                         for (std::size_t k = 0; k < row; ++k) to[k] += dy[i * row + k];
                       }
                     });
                   });
                 },
                 .gradient = [](GradientContext& g) { return std::vector<Value>{{}, gather(g.output_gradient(), g.input(0))}; },
                 .split = split_gradient});
  return out;
}

Value gather(Value table, Value indices, SourceLine at) { return emit("gather", {table, indices}, {}, at); }

}  // namespace belfry
