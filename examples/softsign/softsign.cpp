#include "softsign.h"

#include <cmath>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>

namespace my {
using namespace belfry;

OpDef softsign_def() {
  return {.name = "softsign",
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            c.need_float(0);
            return c.same_type_as(0);
          },
          .reference = [](const Call& c) {
            visit_float(c.dtype(), [&]<class T>() {
              auto x = c.inputs[0].as<T>();
              auto y = c.outputs[0].as<T>();
              for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] / (1 + std::abs(x[i]));
            });
          },
          .gradient = [](GradientContext& g) {  // dx = dy · (1 − |y|)²
            Value magnitude = maximum(g.output(), -g.output());
            return std::vector<Value>{g.output_gradient() * square(1 - magnitude)};
          },
          .split = split_elementwise(),
          .scalar = "x / (T(1) + abs(x))",
          .in_place = {{0, 0}},
          .zero_preserving = true};
}

Value softsign(Value x, SourceLine at) { return emit("softsign", {x}, {}, at); }

}  // namespace my
