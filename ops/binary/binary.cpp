#include <belfry/ops/binary/binary.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/binary/formulas.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

using namespace binary_formulas;

std::vector<TensorType> infer(InferContext& c) {
  c.need_same_dtype();
  if (c.dtype(0) == boolean || c.dtype(0) == u8) c.fail("works on f32, f64, i32 and i64; cast first");
  return {{c.dtype(0), c.broadcast()}};
}

/// y = apply(a, b) with broadcasting, in the operands' own type.
template <class Apply>
ReferenceRule reference() {
  return [](const Call& c) {
    visit_dtype(c.dtype(), [&]<class T>() {
      if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::uint8_t>) throw InternalError("an elementwise op on bool or u8");
      else {
        auto a = c.inputs[0].as<T>(), b = c.inputs[1].as<T>();
        auto y = c.outputs[0].as<T>();
        std::size_t i = 0;
        for_each_index(c.outputs[0].type.shape, [&](const Extents& at) {
          y[i++] = Apply{}(a[offset_of(at, c.inputs[0].type.shape)], b[offset_of(at, c.inputs[1].type.shape)]);
        });
      }
    });
  };
}

OpDef def(const char* name, const char* scalar, ReferenceRule reference, SplitRule split,
          std::vector<Value> (*gradient)(GradientContext&, Value a, Value b, Value dy), bool commutative, bool zero_preserving, ScalarResult result, bool transcendental = false) {
  return {.name = name,
          .inputs = {"a", "b"},
          .infer = [transcendental](InferContext& c) {
            if (transcendental) c.need_float(0);
            return infer(c);
          },
          .reference = std::move(reference),
          .gradient = [gradient](GradientContext& g) {
            std::vector<Value> d = gradient(g, g.input(0), g.input(1), g.output_gradient());
            return std::vector<Value>{sum_to(d[0], g.input(0).shape()), sum_to(d[1], g.input(1).shape())};
          },
          .split = std::move(split),
          .scalar = scalar,
          .scalar_result = result,
          .in_place = {{0, 0}, {0, 1}},
          .commutative = commutative,
          .zero_preserving = zero_preserving,
          .exact = !transcendental,
          .precision = transcendental ? Precision::full : Precision::follow};
}

/// A part of a sum is divided for itself, but of whole numbers: each division drops what is left over.
Split split_div(const SplitContext& c) {
  const DType dtype = c.inputs[0].dtype;
  return is_float(dtype) || is_half(dtype) ? split_elementwise({}, {0})(c) : split_elementwise()(c);
}

std::vector<Value> gradient_of_choice(Value dy, Value a, Value b, bool greater) {
  Value zero = constant_like(dy, 0);
  Value first = greater ? greater_equal(a, b) : greater_equal(b, a);
  return {where(first, dy, zero), where(first, zero, dy)};
}

/// da = dy·b·a^(b−1), 0 where b is 0; db = dy·y·log a, 0 where a is not positive, as log a is no real number there.
std::vector<Value> gradient_of_pow(GradientContext& g, Value a, Value b, Value dy) {
  Value zero = constant_like(a, 0), one = constant_like(a, 1);
  Value slope = where(equal(b, zero), zero, b * pow(a, b - 1));
  Value logarithm = log(where(greater(a, zero), a, one));
  return {dy * slope, dy * (g.output() * logarithm)};
}

}  // namespace

std::vector<OpDef> binary_defs() {
  using V = Value;
  auto sum = split_elementwise(Reduction::sum);
  std::vector<OpDef> out;
  out.push_back(def("add", "a + b", reference<Add>(), sum, [](GradientContext&, V, V, V dy) { return std::vector<V>{dy, dy}; }, true, true, ScalarResult::arithmetic));
  out.push_back(def("sub", "a - b", reference<Sub>(), sum, [](GradientContext&, V, V, V dy) { return std::vector<V>{dy, -dy}; }, false, true, ScalarResult::arithmetic));
  out.push_back(def("mul", "a * b", reference<Mul>(), split_elementwise({}, {0, 1}), [](GradientContext&, V a, V b, V dy) { return std::vector<V>{dy * b, dy * a}; }, true, true, ScalarResult::arithmetic));
  out.push_back(def("div", "a / b", reference<Div>(), split_div,
                    [](GradientContext& g, V, V b, V dy) { return std::vector<V>{dy / b, -(dy * g.output() / b)}; }, false, false, ScalarResult::any));
  out.push_back(def("maximum", "a >= b || a != a ? a : b", reference<Max>(), split_elementwise(Reduction::max),
                    [](GradientContext&, V a, V b, V dy) { return gradient_of_choice(dy, a, b, true); }, false, true, ScalarResult::selected));
  out.push_back(def("minimum", "a <= b || a != a ? a : b", reference<Min>(), split_elementwise(),
                    [](GradientContext&, V a, V b, V dy) { return gradient_of_choice(dy, a, b, false); }, false, true, ScalarResult::selected));
  out.push_back(def("squared_difference", "(a - b) * (a - b)", reference<SquaredDifference>(), split_elementwise(),
                    [](GradientContext&, V a, V b, V dy) { V d = dy * ((a - b) * 2); return std::vector<V>{d, -d}; }, true, true, ScalarResult::arithmetic));
  out.push_back(def("pow", "pow(a, b)", reference<Pow>(), split_elementwise(), gradient_of_pow, false, false, ScalarResult::any, true));
  out.push_back(def("sigmoid_cross_entropy", "(a > 0 ? a : T(0)) - a * b + log1p(exp(a > 0 ? -a : a))", reference<SigmoidCrossEntropy>(), split_elementwise(),
                    [](GradientContext&, V a, V b, V dy) { return std::vector<V>{dy * (sigmoid(a) - b), -(dy * a)}; }, false, false, ScalarResult::any, true));
  return out;
}

Value add(Value a, Value b, SourceLine at) { return emit("add", {a, b}, {}, at); }
Value sub(Value a, Value b, SourceLine at) { return emit("sub", {a, b}, {}, at); }
Value mul(Value a, Value b, SourceLine at) { return emit("mul", {a, b}, {}, at); }
Value div(Value a, Value b, SourceLine at) { return emit("div", {a, b}, {}, at); }
Value maximum(Value a, Value b, SourceLine at) { return emit("maximum", {a, b}, {}, at); }
Value minimum(Value a, Value b, SourceLine at) { return emit("minimum", {a, b}, {}, at); }
Value squared_difference(Value a, Value b, SourceLine at) { return emit("squared_difference", {a, b}, {}, at); }
Value pow(Value a, Value b, SourceLine at) { return emit("pow", {a, b}, {}, at); }

Value sigmoid_cross_entropy(Value logits, Value label, SourceLine at) { return emit("sigmoid_cross_entropy", {logits, label}, {}, at); }

Value operator+(Value a, Value b) { return add(a, b, {}); }
Value operator-(Value a, Value b) { return sub(a, b, {}); }
Value operator*(Value a, Value b) { return mul(a, b, {}); }
Value operator/(Value a, Value b) { return div(a, b, {}); }
Value operator+(Value a, double b) { return a + constant_like(a, b, {}); }
Value operator-(Value a, double b) { return a - constant_like(a, b, {}); }
Value operator*(Value a, double b) { return a * constant_like(a, b, {}); }
Value operator/(Value a, double b) { return a / constant_like(a, b, {}); }
Value operator+(double a, Value b) { return constant_like(b, a, {}) + b; }
Value operator-(double a, Value b) { return constant_like(b, a, {}) - b; }
Value operator*(double a, Value b) { return constant_like(b, a, {}) * b; }
Value operator/(double a, Value b) { return constant_like(b, a, {}) / b; }
Value operator-(Value a) { return neg(a, {}); }

Value sum_to(Value dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  std::size_t lead = dy.shape().size() - shape.size();
  Integers axes;
  for (std::size_t i = 0; i < dy.shape().size(); ++i)
    if (i < lead || shape[i - lead] != dy.shape()[i]) axes.push_back(static_cast<std::int64_t>(i));
  Value summed = reduce_sum(dy, {.axes = axes, .keep = axes.size() > lead}, {});  // those in front alone are left out at once
  return summed.shape() == shape ? summed : reshape(summed, shape, {});
}

}  // namespace belfry
