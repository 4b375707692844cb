#include <belfry/ops/linear_pair.h>

#include <belfry/graph/split_rules.h>

namespace belfry {

std::vector<OpDef> linear_pair(const LinearPair& p) {
  std::string gradient = p.name + "_gradient";
  std::vector<OpDef> out;
  out.push_back({.name = p.name,
                 .attributes = p.attributes,
                 .inputs = {"x"},
                 .infer = [output = p.output](InferContext& c) { return std::vector<TensorType>{output(c, 0)}; },
                 .reference = p.forward,
                 .gradient = [gradient](GradientContext& g) { return std::vector<Value>{emit(gradient, {g.output_gradient(), g.input(0)}, g.attributes, {})}; },
                 .split = row_by_row(0, 0),
                 .flops = [flops = p.flops](auto, auto out, const Attributes& a) { return flops(out[0], a); },
                 .precision = Precision::follow});
  out.push_back({.name = gradient,
                 .attributes = p.attributes,
                 .inputs = {"dy", shape_only("x")},
                 .outputs = {"dx"},
                 .infer = [output = p.output](InferContext& c) {
                   TensorType y = output(c, 1);
                   if (c.type(0) != y) c.fail("dy must be " + to_string(y));
                   return std::vector<TensorType>{c.type(1)};
                 },
                 .reference = p.backward,
                 .gradient = [name = p.name](GradientContext& g) { return std::vector<Value>{emit(name, {g.output_gradient()}, g.attributes, {}), {}}; },
                 .split = row_by_row(0, 0),
                 .flops = [flops = p.flops](auto in, auto, const Attributes& a) { return flops(in[0], a); },
                 .precision = Precision::follow});
  return out;
}

}  // namespace belfry
