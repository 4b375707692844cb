#include <belfry/ops/cast/cast.h>

#include <algorithm>
#include <concepts>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/cast/conversion_internal.h>

namespace belfry {

OpDef cast_def() {
  return {.name = "cast",
          .attributes = {{"dtype", AttributeKind::dtype}},
          .inputs = {"x"},
          .infer = [](InferContext& c) { return std::vector<TensorType>{{c.attributes.dtype("dtype"), c.shape(0)}}; },
          .reference = [](const Call& c) {
            visit_stored(c.dtype(), [&]<class From>() {
              visit_stored(c.outputs[0].type.dtype, [&]<class To>() {
                auto x = c.inputs[0].as<From>();
                std::transform(x.begin(), x.end(), c.outputs[0].as<To>().begin(), [](From v) {
                  if constexpr (std::same_as<From, Float16> || std::same_as<From, BFloat16>) return converted<To>(static_cast<float>(v));
                  else return converted<To>(v);
                });
              });
            });
          },
          .gradient = [](GradientContext& g) -> std::vector<Value> {
            DType from = g.input(0).dtype();
            Value dy = g.output_gradient();  // asked for: a loss may read what is flat
            return {is_float(from) || is_half(from) ? cast(dy, from) : Value{}};
          },
          .split = [](const SplitContext& c) -> Split {
            bool widening = c.inputs[0].dtype == f32 && c.outputs[0].dtype == f64;
            if (c.states[0].is_partial() && !widening) return {{kReplicated}, {kReplicated}};
            return {c.states, c.states};
          },
          .scalar = "convert<T>(x)",
          .stores = true,
          .exact = true};
}

Value cast(Value x, DType dtype, SourceLine at) { return x.dtype() == dtype ? x : emit("cast", {x}, {{"dtype", dtype}}, at); }

}  // namespace belfry
