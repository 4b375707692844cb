#include <belfry/ops/scatter_add/scatter_add.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

std::vector<TensorType> infer(InferContext& c) {
  if (c.rank(0) < 1) c.fail("x needs an axis of rows");
  if (c.dtype(0) == boolean || c.dtype(0) == u8) c.fail("works on f32, f64, i32 and i64; cast first");
  if (c.dtype(0) != c.dtype(2)) c.fail("x and updates differ in dtype");
  c.need_integer(1);
  Shape wanted = c.shape(1);
  wanted.insert(wanted.end(), c.shape(0).begin() + 1, c.shape(0).end());
  if (c.shape(2) != wanted) c.fail("updates must be of shape " + to_string(std::span(wanted)));
  return {c.type(0)};
}

/// Rows inside the table's rows stay; else everything is read whole, unless the towers have their own.
Split split(const SplitContext& c) {
  int wide = static_cast<int>(c.inputs[1].shape.size());
  for (int i : {0, 2}) {
    int first = i == 0 ? 1 : wide;
    SplitState s = c.states[static_cast<std::size_t>(i)];
    if (s.is_rows() && s.axis >= first) return {{rows(s.axis - first + 1), c.states[1].is_per_tower() ? kPerTower : kReplicated, rows(s.axis - first + wide)}, {rows(s.axis - first + 1)}};
  }
  Split out{{}, {kReplicated}};
  bool any_rows = std::any_of(c.states.begin(), c.states.end(), [](SplitState s) { return s.is_rows(); });
  for (SplitState s : c.states) {
    out.reads.push_back(s.is_per_tower() && !any_rows ? s : kReplicated);
    if (out.reads.back().is_per_tower()) out.gives[0] = kPerTower;
  }
  return out;
}

void reference(const Call& c) {
  const Extents& shape = c.inputs[0].type.shape;
  std::int64_t rows = shape[0], row = product(shape, 1, shape.size());
  if (c.inputs[0].type.elements()) std::memmove(c.outputs[0].data, c.inputs[0].data, static_cast<std::size_t>(c.inputs[0].type.bytes()));
  visit_dtype(c.inputs[1].type.dtype, [&]<class I>() {
    auto indices = c.inputs[1].as<I>();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      auto k = static_cast<std::int64_t>(indices[i]);
      if (k < 0 || k >= rows) throw UserError(fmt::format("[scatter_add] index {} at position {} is outside the table of {} rows", k, i, rows));
      visit_dtype(c.dtype(), [&]<class T>() {
        for (std::int64_t j = 0; j < row; ++j) {
          T& to = c.outputs[0].as<T>()[static_cast<std::size_t>(k * row + j)];
          to = static_cast<T>(to + c.inputs[2].as<T>()[i * static_cast<std::size_t>(row) + static_cast<std::size_t>(j)]);
        }
      });
    }
  });
}

}  // namespace

OpDef scatter_add_def() {
  return {.name = "scatter_add",
          .inputs = {"x", "indices", "updates"},
          .infer = infer,
          .reference = reference,
          .gradient = [](GradientContext& g) { return std::vector<Value>{g.output_gradient(), {}, gather(g.output_gradient(), g.input(1))}; },
          .split = split,
          .in_place = {{0, 0}},
          .exact = true};
}

Value scatter_add(Value x, Value indices, Value updates, SourceLine at) { return emit("scatter_add", {x, indices, updates}, {}, at); }

}  // namespace belfry
