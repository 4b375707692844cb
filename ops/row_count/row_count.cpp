#include <belfry/ops/row_count/row_count.h>

#include <algorithm>

#include <belfry/graph/split_rules.h>

namespace belfry {

namespace {

double product_of(const Shape& dims, std::int64_t batch) {
  double out = 1;
  for (const Dim& d : dims) out *= static_cast<double>(d.at(batch));
  return out;
}

template <class F>
void fill(const Call& c, F value) {
  visit_dtype(c.outputs[0].type.dtype, [&]<class T>() { std::ranges::fill(c.outputs[0].as<T>(), static_cast<T>(value)); });
}

double rows_of_a_mean(const Share& s) {
  if (s.combine == Combine::global_mean) return static_cast<double>(s.batch);
  double rows = static_cast<double>(s.rows);
  return s.combine == Combine::tower_mean ? s.towers * rows : rows;
}

DType computed_dtype(const InferContext& c) {
  DType dtype = c.attributes.dtype("dtype");
  if (is_half(dtype)) c.fail("a count is computed in f32 or f64, not in " + std::string(name_of(dtype)) + ": cast it");
  return dtype;
}

}  // namespace

OpDef row_count_def() {
  return {.name = "row_count",
          .attributes = {{"dims", AttributeKind::shape}, {"dtype", f32}},
          .infer = [](InferContext& c) { return std::vector<TensorType>{{computed_dtype(c), {}}}; },
          .reference = [](const Call& c) { fill(c, product_of(c.attributes.shape("dims"), c.share.batch)); },
          .gradient = no_gradient("a count"),
          .split = split_of_source(),
          .source = true,
          .exact = true};
}

OpDef row_weight_def() {
  return {.name = "row_weight",
          .attributes = {{"shape", AttributeKind::shape}, {"count", Shape{}}, {"dtype", f32}},
          .infer = [](InferContext& c) {
            if (symbolic_axes(c.attributes.shape("shape")).size() != 1) c.fail("has one row axis, not the shape " + to_string(std::span(c.attributes.shape("shape"))));
            return std::vector<TensorType>{{computed_dtype(c), c.attributes.shape("shape")}};
          },
          .reference = [](const Call& c) { fill(c, 1 / (rows_of_a_mean(c.share) * product_of(c.attributes.shape("count"), c.share.batch))); },
          .gradient = no_gradient("a count"),
          .split = split_of_source(),
          .source = true,
          .exact = true};
}

Value row_count(Graph& graph, Shape dims, DType dtype, SourceLine at) {
  SourceGuard guard(graph, at);
  return graph.add("row_count", {}, {{"dims", std::move(dims)}, {"dtype", dtype}});
}

Value row_weight(Graph& graph, Shape shape, Shape count, DType dtype, SourceLine at) {
  SourceGuard guard(graph, at);
  return graph.add("row_weight", {}, {{"shape", std::move(shape)}, {"count", std::move(count)}, {"dtype", dtype}});
}

}  // namespace belfry
