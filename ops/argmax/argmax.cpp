#include <belfry/ops/argmax/argmax.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

void reference(const Call& c, bool smallest) {
  AlongAxis a(c.inputs[0].type.shape, from_front(c.attributes.integer("axis"), static_cast<int>(c.inputs[0].type.shape.size())));
  bool last = c.attributes.flag("last");
  visit_dtype(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    auto y = c.outputs[0].as<std::int32_t>();
    for (std::int64_t o = 0; o < a.outer; ++o)
      for (std::int64_t i = 0; i < a.inner; ++i) {
        std::int64_t best = 0;
        for (std::int64_t k = 1; k < a.n; ++k) {
          T p = x[a.at(o, k, i)], q = x[a.at(o, best, i)];
          if ((smallest ? p < q : p > q) || (last && p == q)) best = k;
        }
        y[static_cast<std::size_t>(o * a.inner + i)] = static_cast<std::int32_t>(best);
      }
  });
}

OpDef def(const char* name, bool smallest) {
  return {.name = name,
          .attributes = {{"axis", -1}, {"last", false}},
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            if (c.dtype(0) == boolean) c.fail("works on numbers, not on bool");
            Shape out = c.shape(0);
            int axis = c.axis("axis");
            if (out[static_cast<std::size_t>(axis)] == Dim(0)) c.fail("the axis is empty");
            out.erase(out.begin() + axis);
            return std::vector<TensorType>{{i32, out}};
          },
          .reference = [=](const Call& c) { reference(c, smallest); },
          .gradient = no_gradient("an index is flat"),
          .split = rows_unless_along("axis", true),
          .flops = [](auto in, auto, const Attributes&) { return static_cast<double>(in[0].elements()); }};
}

}  // namespace

std::vector<OpDef> argmax_defs() { return {def("argmax", false), def("argmin", true)}; }

Value argmax(Value x, int axis, SourceLine at) { return emit("argmax", {x}, {{"axis", axis}}, at); }
Value argmin(Value x, int axis, SourceLine at) { return emit("argmin", {x}, {{"axis", axis}}, at); }

}  // namespace belfry
