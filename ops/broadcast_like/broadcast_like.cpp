#include <belfry/ops/broadcast_like/broadcast_like.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

OpDef broadcast_like_def() {
  return {.name = "broadcast_like",
          .inputs = {"x", shape_only("like")},
          .infer = [](InferContext& c) {
            if (c.broadcast() != c.shape(1)) c.fail("x does not stretch to the shape of like");
            return std::vector<TensorType>{{c.dtype(0), c.shape(1)}};
          },
          .reference = [](const Call& c) {
            visit_dtype(c.dtype(), [&]<class T>() {
              auto x = c.inputs[0].as<T>();
              auto y = c.outputs[0].as<T>();
              std::size_t i = 0;
              for_each_index(c.outputs[0].type.shape, [&](const Extents& at) { y[i++] = x[offset_of(at, c.inputs[0].type.shape)]; });
            });
          },
          .gradient = [](GradientContext& g) { return std::vector<Value>{sum_to(g.output_gradient(), g.input(0).shape()), {}}; },
          .split = split_broadcast_like(),
          .zero_preserving = true,
          .exact = true};
}

Value broadcast_like(Value x, Value like, SourceLine at) { return x.shape() == like.shape() ? x : emit("broadcast_like", {x, like}, {}, at); }

}  // namespace belfry
