#include <belfry/ops/source/source.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>

namespace belfry {

namespace {

std::vector<TensorType> declared_type(InferContext& c) {
  const Shape& shape = c.attributes.shape("shape");
  for (const Dim& d : shape)
    if (d.factor < 0) c.fail("has a negative size in its shape " + to_string(std::span(shape)));
  return {{c.attributes.dtype("dtype"), shape}};
}

void bound_by_the_executor(const Call&) { throw InternalError("a feed or variable has no kernel: its bytes are bound"); }

}  // namespace

OpDef input_def() {
  return {.name = "input",
          .attributes = {{"dtype", AttributeKind::dtype}, {"shape", AttributeKind::shape}},
          .infer = declared_type,
          .reference = bound_by_the_executor,
          .gradient = no_gradient("a source"),
          .split = held_whole()};
}

OpDef variable_def() {
  static const std::vector<std::string> kInits = {"zeros", "ones", "constant", "uniform", "normal", "truncated_normal", "glorot_uniform", "he_normal", "seed"};
  return {.name = "variable",
          .attributes = {{"dtype", AttributeKind::dtype},
                         {"shape", AttributeKind::shape},
                         AttributeDef("init", "zeros").one_of(kInits),
                         {"init_value", 0.0},
                         {"trainable", true}},
          .infer = [](InferContext& c) {
            for (const Dim& d : c.attributes.shape("shape"))
              if (d.symbolic()) c.fail("a variable has a fixed shape, not " + to_string(std::span(c.attributes.shape("shape"))));
            if (c.attributes.text("init") == "seed" && (c.attributes.dtype("dtype") != i64 || !c.attributes.shape("shape").empty())) c.fail("a seed is one i64, without a shape");
            const std::string& init = c.attributes.text("init");
            if (c.attributes.real("init_value") == 0 && (init == "uniform" || init == "normal" || init == "truncated_normal"))
              c.fail(fmt::format("init '{}' without its {} draws zeros alone; give init_value (in a file \"init\": {{\"kind\": \"{}\", \"value\": 0.05}}), or init zeros",
                                 init, init == "uniform" ? "limit" : "deviation", init));
            return declared_type(c);
          },
          .reference = bound_by_the_executor,
          .gradient = no_gradient("a source"),
          .split = held_whole()};
}

OpDef constant_def() {
  return {.name = "constant",
          .attributes = {{"value", AttributeKind::tensor}},
          .infer = [](InferContext& c) {
            const HostTensor& t = c.attributes.tensor("value");
            return std::vector<TensorType>{{t.dtype(), Shape(t.shape().begin(), t.shape().end())}};
          },
          .reference = [](const Call& c) {
            const HostTensor& t = c.attributes.tensor("value");
            if (t.elements()) std::memcpy(c.outputs[0].data, t.raw(), t.bytes().size());
          },
          .gradient = no_gradient("a source"),
          .split = split_of_source(),
          .source = true,
          .exact = true};
}

Value input(Graph& graph, const std::string& name, DType dtype, Shape shape, SourceLine at) {
  SourceGuard guard(graph, at);
  return graph.add("input", {}, {{"dtype", dtype}, {"shape", std::move(shape)}}, name);
}

Value variable(Graph& graph, const std::string& name, Shape shape, const VariableOptions& o, SourceLine at) {
  SourceGuard guard(graph, at);
  return graph.add("variable", {}, {{"dtype", o.dtype}, {"shape", std::move(shape)}, {"init", o.init}, {"init_value", o.init_value}, {"trainable", o.trainable}}, name);
}

Value constant(Graph& graph, HostTensor value, SourceLine at) {
  SourceGuard guard(graph, at);
  return graph.add("constant", {}, {{"value", std::move(value)}});
}

Value constant_like(Value like, double value, SourceLine at) {
  if (!is_value_of(like.dtype(), value)) throw UserError(fmt::format("the number {} is none of {}; cast '{}' to a float first", value, name_of(like.dtype()), like.name()));
  return visit_stored(like.dtype(), [&]<class T>() { return constant(*like.graph, HostTensor::scalar<T>(static_cast<T>(value)), at); });
}

}  // namespace belfry
