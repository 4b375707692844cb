#include <belfry/ops/one_hot/one_hot.h>

#include <algorithm>

#include <belfry/graph/split_rules.h>

namespace belfry {

OpDef one_hot_def() {
  return {.name = "one_hot",
          .attributes = {{"depth", AttributeKind::shape}, {"dtype", f32}},
          .inputs = {"indices"},
          .infer = [](InferContext& c) {
            c.need_integer(0);
            if (c.attributes.shape("depth").size() != 1) c.fail("depth is one dimension");
            Shape out = c.shape(0);
            out.push_back(c.attributes.shape("depth")[0]);
            return std::vector<TensorType>{{c.attributes.dtype("dtype"), out}};
          },
          .reference = [](const Call& c) {
            auto depth = static_cast<std::size_t>(c.outputs[0].type.shape.back());
            visit_dtype(c.dtype(), [&]<class I>() {
              visit_dtype(c.outputs[0].type.dtype, [&]<class T>() {
                auto x = c.inputs[0].as<I>();
                auto y = c.outputs[0].as<T>();
                std::fill(y.begin(), y.end(), T{0});
                for (std::size_t i = 0; i < x.size(); ++i)
                  if (auto k = static_cast<std::int64_t>(x[i]); k >= 0 && k < static_cast<std::int64_t>(depth)) y[i * depth + static_cast<std::size_t>(k)] = T{1};
              });
            });
          },
          .gradient = no_gradient("an index is flat"),
          .split = row_by_row()};
}

Value one_hot(Value indices, Dim depth, DType dtype, SourceLine at) { return emit("one_hot", {indices}, {{"depth", Shape{depth}}, {"dtype", dtype}}, at); }

}  // namespace belfry
