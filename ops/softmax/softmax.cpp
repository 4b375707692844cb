#include <belfry/ops/softmax/softmax.h>

#include <algorithm>
#include <cmath>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

/// Along the axis, in double: y = finish(x − max, Σ exp(x − max)).
ReferenceRule reference(double (*finish)(double shifted, double sum)) {
  return [finish](const Call& c) {
    AlongAxis a(c.inputs[0].type.shape, from_front(c.attributes.integer("axis"), static_cast<int>(c.inputs[0].type.shape.size())));
    if (a.n == 0) return;
    visit_float(c.dtype(), [&]<class T>() {
      auto x = c.inputs[0].as<T>();
      auto y = c.outputs[0].as<T>();
      for (std::int64_t o = 0; o < a.outer; ++o) {
        for (std::int64_t i = 0; i < a.inner; ++i) {
          double top = static_cast<double>(x[a.at(o, 0, i)]), sum = 0;
          for (std::int64_t k = 0; k < a.n; ++k) top = std::max(top, static_cast<double>(x[a.at(o, k, i)]));
          for (std::int64_t k = 0; k < a.n; ++k) sum += std::exp(static_cast<double>(x[a.at(o, k, i)]) - top);
          for (std::int64_t k = 0; k < a.n; ++k) y[a.at(o, k, i)] = static_cast<T>(finish(static_cast<double>(x[a.at(o, k, i)]) - top, sum));
        }
      }
    });
  };
}

OpDef def(const char* name, ReferenceRule reference, GradientRule gradient) {
  return {.name = name,
          .attributes = {{"axis", -1}},
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            c.need_float(0);
            c.axis("axis");
            return c.same_type_as(0);
          },
          .reference = std::move(reference),
          .gradient = std::move(gradient),
          .split = rows_unless_along("axis"),
          .flops = [](auto in, auto, const Attributes&) { return 5.0 * static_cast<double>(in[0].elements()); },
          .in_place = {{0, 0}}};
}

}  // namespace

std::vector<OpDef> softmax_defs() {
  std::vector<OpDef> out;
  out.push_back(def("softmax", reference([](double x, double sum) { return std::exp(x) / sum; }), [](GradientContext& g) {  // dx = (dy − Σ dy·y)·y
    Value y = g.output(), dy = g.output_gradient();
    return std::vector<Value>{(dy - reduce_sum(dy * y, {.axes = {g.axis("axis")}, .keep = true})) * y};
  }));
  out.push_back(def("log_softmax", reference([](double x, double sum) { return x - std::log(sum); }), [](GradientContext& g) {  // dx = dy − exp(y)·Σ dy
    Value y = g.output(), dy = g.output_gradient();
    return std::vector<Value>{dy - exp(y) * reduce_sum(dy, {.axes = {g.axis("axis")}, .keep = true})};
  }));
  return out;
}

Value softmax(Value x, int axis, SourceLine at) { return emit("softmax", {x}, {{"axis", axis}}, at); }
Value log_softmax(Value x, int axis, SourceLine at) { return emit("log_softmax", {x}, {{"axis", axis}}, at); }

}  // namespace belfry
