#include <belfry/ops/add_n/add_n.h>

#include <belfry/graph/split_rules.h>

namespace belfry {

OpDef add_n_def() {
  return {.name = "add_n",
          .inputs = {variadic_input("x")},
          .infer = [](InferContext& c) {
            if (c.dtype(0) == boolean || c.dtype(0) == u8) c.fail("works on f32, f64, i32 and i64; cast first");
            for (int i = 1; i < c.count(); ++i)
              if (c.type(i) != c.type(0)) c.fail("all inputs must have one type");
            return c.same_type_as(0);
          },
          .reference = [](const Call& c) {
            visit_dtype(c.dtype(), [&]<class T>() {
              if constexpr (!std::is_same_v<T, bool>) {
                auto y = c.outputs[0].as<T>();
                for (std::size_t i = 0; i < y.size(); ++i) {
                  T sum = c.inputs[0].as<T>()[i];
                  for (std::size_t k = 1; k < c.inputs.size(); ++k) sum = static_cast<T>(sum + c.inputs[k].as<T>()[i]);
                  y[i] = sum;
                }
              }
            });
          },
          .gradient = [](GradientContext& g) { return std::vector<Value>(static_cast<std::size_t>(g.count()), g.output_gradient()); },
          .split = split_sum(),
          .in_place = {{0, 0}},
          .zero_preserving = true,
          .sum_of_inputs = true,
          .exact = true,
          .precision = Precision::follow};
}

Value add_n(const std::vector<Value>& xs, SourceLine at, const std::string& name) { return emit("add_n", xs, {}, at, name); }

}  // namespace belfry
