#include <belfry/ops/argmax/argmax.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/loops.h>

namespace belfry {

OpDef argmax_def() {
  return {.name = "argmax",
          .attributes = {{"axis", -1}},
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            if (c.dtype(0) == boolean) c.fail("works on numbers, not on bool");
            Shape out = c.shape(0);
            int axis = c.axis("axis");
            if (out[static_cast<std::size_t>(axis)] == Dim(0)) c.fail("the axis is empty");
            out.erase(out.begin() + axis);
            return std::vector<TensorType>{{i32, out}};
          },
          .reference = [](const Call& c) {
            AlongAxis a(c.inputs[0].type.shape, from_front(c.attributes.integer("axis"), static_cast<int>(c.inputs[0].type.shape.size())));
            visit_dtype(c.dtype(), [&]<class T>() {
              auto x = c.inputs[0].as<T>();
              auto y = c.outputs[0].as<std::int32_t>();
              for (std::int64_t o = 0; o < a.outer; ++o) {
                for (std::int64_t i = 0; i < a.inner; ++i) {
                  std::int64_t best = 0;
                  for (std::int64_t k = 1; k < a.n; ++k)
                    if (x[a.at(o, k, i)] > x[a.at(o, best, i)]) best = k;
                  y[static_cast<std::size_t>(o * a.inner + i)] = static_cast<std::int32_t>(best);
                }
              }
            });
          },
          .gradient = no_gradient("an index is flat"),
          .split = rows_unless_along("axis", true)};
}

Value argmax(Value x, int axis, SourceLine at) { return emit("argmax", {x}, {{"axis", axis}}, at); }

}  // namespace belfry
