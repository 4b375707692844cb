#include <belfry/ops/one_hot/one_hot.h>

#include <algorithm>
#include <utility>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

/// Rows stay, one axis further behind the new one; a depth of rows is made whole.
Split split(const SplitContext& c) {
  Split out = row_by_row()(c);
  int axis = from_front(c.attributes.integer("axis"), static_cast<int>(c.outputs[0].shape.size()));
  if (out.gives[0].is_rows() && out.gives[0].axis >= axis) out.gives[0] = rows(out.gives[0].axis + 1);
  return out;
}

}  // namespace

OpDef one_hot_def() {
  return {.name = "one_hot",
          .attributes = {{"depth", AttributeKind::shape}, {"dtype", f32}, {"axis", -1}, {"on", 1.0}, {"off", 0.0}},
          .inputs = {"indices"},
          .infer = [](InferContext& c) {
            c.need_integer(0);
            if (c.attributes.shape("depth").size() != 1) c.fail("depth is one dimension");
            int axis = from_front(c.attributes.integer("axis"), c.rank(0) + 1);
            if (axis < 0 || axis > c.rank(0)) c.fail("axis " + std::to_string(c.attributes.integer("axis")) + " is out of range for a result of " + std::to_string(c.rank(0) + 1) + " axes");
            for (const char* name : {"on", "off"})
              if (double v = c.attributes.real(name); !is_value_of(c.attributes.dtype("dtype"), v)) c.fail(std::string(name) + " is " + to_string(AttributeValue(v)) + ", which is none of " + std::string(name_of(c.attributes.dtype("dtype"))));
            Shape out = c.shape(0);
            out.insert(out.begin() + axis, c.attributes.shape("depth")[0]);
            return std::vector<TensorType>{{c.attributes.dtype("dtype"), out}};
          },
          .reference = [](const Call& c) {
            const Extents& shape = c.outputs[0].type.shape;
            AlongAxis along(shape, from_front(c.attributes.integer("axis"), static_cast<int>(shape.size())));
            visit_dtype(c.dtype(), [&]<class I>() {
              visit_dtype(c.outputs[0].type.dtype, [&]<class T>() {
                auto x = c.inputs[0].as<I>();
                auto y = c.outputs[0].as<T>();
                std::fill(y.begin(), y.end(), static_cast<T>(c.attributes.real("off")));
                for (std::size_t i = 0; i < x.size(); ++i)
                  if (auto k = static_cast<std::int64_t>(x[i]); k >= 0 && k < along.n)
                    y[along.at(static_cast<std::int64_t>(i) / along.inner, k, static_cast<std::int64_t>(i) % along.inner)] = static_cast<T>(c.attributes.real("on"));
              });
            });
          },
          .gradient = [](GradientContext& g) {
            (void)g.output_gradient();  // asked for: a loss may read what is flat
            return std::vector<Value>{{}};
          },
          .split = split};
}

Value one_hot(Value indices, Dim depth, DType dtype, SourceLine at) { return emit("one_hot", {indices}, {{"depth", Shape{std::move(depth)}}, {"dtype", dtype}}, at); }
Value one_hot(Value indices, Dim depth, const OneHotOptions& o, DType dtype, SourceLine at) {
  return emit("one_hot", {indices}, {{"depth", Shape{std::move(depth)}}, {"dtype", dtype}, {"axis", o.axis}, {"on", o.on}, {"off", o.off}}, at);
}

}  // namespace belfry
