#include <belfry/ops/identity/identity.h>

#include <cstring>

#include <belfry/graph/split_rules.h>

namespace belfry {

OpDef identity_def() {
  return {.name = "identity",
          .inputs = {"x"},
          .infer = [](InferContext& c) { return c.same_type_as(0); },
          .reference = [](const Call& c) {
            if (c.outputs[0].type.elements()) std::memmove(c.outputs[0].data, c.inputs[0].data, static_cast<std::size_t>(c.outputs[0].type.bytes()));
          },
          .gradient = [](GradientContext& g) { return std::vector<Value>{g.output_gradient()}; },
          .split = [](const SplitContext& c) { return Split{c.states, c.states}; },
          .in_place = {{0, 0}},
          .zero_preserving = true,
          .stores = true,
          .exact = true};
}

Value identity(Value x, const std::string& name, SourceLine at) { return emit("identity", {x}, {}, at, name); }

}  // namespace belfry
