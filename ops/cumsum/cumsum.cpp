#include <belfry/ops/cumsum/cumsum.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

OpDef cumsum_def() {
  return {.name = "cumsum",
          .attributes = {{"axis", 0}, {"exclusive", false}, {"reverse", false}},
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            if (c.dtype(0) == boolean || c.dtype(0) == u8) c.fail("works on f32, f64, i32 and i64; cast first");
            c.axis("axis");
            return c.same_type_as(0);
          },
          .reference = [](const Call& c) {
            AlongAxis a(c.inputs[0].type.shape, from_front(c.attributes.integer("axis"), static_cast<int>(c.inputs[0].type.shape.size())));
            bool exclusive = c.attributes.flag("exclusive"), reverse = c.attributes.flag("reverse");
            visit_dtype(c.dtype(), [&]<class T>() {
              auto x = c.inputs[0].as<T>();
              auto y = c.outputs[0].as<T>();
              for (std::int64_t o = 0; o < a.outer; ++o)
                for (std::int64_t i = 0; i < a.inner; ++i) {
                  std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t> sum = 0;
                  for (std::int64_t j = 0; j < a.n; ++j) {
                    std::size_t at = a.at(o, reverse ? a.n - 1 - j : j, i);
                    auto before = sum;
                    sum += x[at];
                    y[at] = static_cast<T>(exclusive ? before : sum);
                  }
                }
            });
          },
          .gradient = [](GradientContext& g) {
            return std::vector<Value>{cumsum(g.output_gradient(), {g.axis("axis"), g.attributes.flag("exclusive"), !g.attributes.flag("reverse")})};
          },
          .split = rows_unless_along("axis"),
          .in_place = {{0, 0}},
          .zero_preserving = true};
}

Value cumsum(Value x, const CumsumOptions& o, SourceLine at) { return emit("cumsum", {x}, {{"axis", o.axis}, {"exclusive", o.exclusive}, {"reverse", o.reverse}}, at); }

}  // namespace belfry
