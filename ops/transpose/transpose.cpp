#include <belfry/ops/transpose/transpose.h>

#include <algorithm>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/loops.h>

namespace belfry {

OpDef transpose_def() {
  return {.name = "transpose",
          .attributes = {{"order", AttributeKind::integers}},
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            c.axes("order", 0, false);
            const Integers& order = c.attributes.integers("order");
            if (static_cast<int>(order.size()) != c.rank(0)) c.fail("order names " + std::to_string(order.size()) + " axes of " + std::to_string(c.rank(0)));
            Shape out;
            for (std::int64_t a : order) out.push_back(c.shape(0)[static_cast<std::size_t>(from_front(a, c.rank(0)))]);
            return std::vector<TensorType>{{c.dtype(0), out}};
          },
          .reference = [](const Call& c) {
            const Integers& order = c.attributes.integers("order");
            visit_stored(c.dtype(), [&]<class T>() {
              auto x = c.inputs[0].as<T>();
              auto y = c.outputs[0].as<T>();
              Extents from(order.size());
              std::size_t i = 0;
              for_each_index(c.outputs[0].type.shape, [&](const Extents& at) {
                for (std::size_t k = 0; k < order.size(); ++k) from[static_cast<std::size_t>(from_front(order[k], static_cast<int>(order.size())))] = at[k];
                y[i++] = x[offset_of(from, c.inputs[0].type.shape)];
              });
            });
          },
          .gradient = [](GradientContext& g) {
            const Integers& order = g.attributes.integers("order");
            Integers back(order.size());
            for (std::size_t i = 0; i < order.size(); ++i) back[static_cast<std::size_t>(from_front(order[i], static_cast<int>(order.size())))] = static_cast<std::int64_t>(i);
            return std::vector<Value>{transpose(g.output_gradient(), back)};
          },
          .split = split_transpose(),
          .zero_preserving = true,
          .stores = true,
          .exact = true};
}

Value transpose(Value x, Integers order, SourceLine at) { return emit("transpose", {x}, {{"order", std::move(order)}}, at); }

}  // namespace belfry
