#include <belfry/ops/unary/unary.h>

#include <numbers>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>
#include <belfry/ops/unary/formulas.h>

namespace belfry {

namespace {

using namespace unary_formulas;

template <class Apply, bool kIntegers = false>
void reference(const Call& c) {
  visit_dtype(c.dtype(), [&]<class T>() {
    if constexpr (is_float(dtype_of<T>()) || (kIntegers && std::is_signed_v<T>)) {
      const Apply apply = formula_of<Apply>(c.attributes);
      auto x = c.inputs[0].as<T>();
      auto y = c.outputs[0].as<T>();
      for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<T>(apply(x[i]));
    } else {
      throw InternalError("a unary op on a dtype that its inference refuses");
    }
  });
}

template <class Apply>
void gradient_reference(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    const Apply apply = formula_of<Apply>(c.attributes);
    auto dy = c.inputs[0].as<T>(), v = c.inputs[1].as<T>();
    auto dx = c.outputs[0].as<T>();
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = apply(dy[i], v[i]);
  });
}

/// Slopes, bends and bounded curves: none makes of halves what a half does not hold. Powers, exponentials and roots stay f32, as other frameworks have it.
bool follows(std::string_view name) {
  constexpr std::string_view kFollow = " neg abs sign tanh sigmoid silu gelu gelu_tanh relu relu6 leaky_relu elu clip ";
  return kFollow.find(" " + std::string(name) + " ") != kFollow.npos;
}

/// x, or −x, or one of the constants 0 and 6.
bool selects(std::string_view name) {
  constexpr std::string_view kSelect = " neg abs relu relu6 ";
  return kSelect.find(" " + std::string(name) + " ") != kSelect.npos;
}

struct Formula {
  const char* name;
  const char* scalar;
  ReferenceRule reference;
  Value (*gradient)(Value x, Value y, Value dy, const Attributes& a);
  bool zero_preserving = false, exact = false, integers = false;
  std::vector<AttributeDef> attributes = {};
  SplitRule split = split_elementwise();
};

void check_attributes(InferContext& c) {
  if (c.attributes.find("min") && !(c.attributes.real("min") <= c.attributes.real("max"))) c.fail("min is above max");
  // The gradient tells the branches apart by the sign of y.
  if (c.attributes.find("alpha") && !(c.attributes.real("alpha") > 0)) c.fail("alpha must be positive");
}

OpDef def(Formula f) {
  return {.name = f.name,
          .attributes = std::move(f.attributes),
          .inputs = {"x"},
          .infer = [integers = f.integers](InferContext& c) {
            if (c.dtype(0) == boolean || c.dtype(0) == u8 || !integers) c.need_float(0);
            check_attributes(c);
            return c.same_type_as(0);
          },
          .reference = std::move(f.reference),
          .gradient = [gradient = f.gradient](GradientContext& g) { return std::vector<Value>{gradient(g.input(0), g.output(), g.output_gradient(), g.attributes)}; },
          .split = std::move(f.split),
          .scalar = f.scalar,
          .scalar_result = selects(f.name) ? ScalarResult::selected : ScalarResult::any,
          .in_place = {{0, 0}},
          .zero_preserving = f.zero_preserving,
          .exact = f.exact,
          .precision = follows(f.name) ? Precision::follow : Precision::full};
}

/// dx from dy and the op's input or output: one pass, and the choice at a kink in one place.
OpDef gradient_def(const char* name, const char* scalar, const char* second, ReferenceRule reference, std::vector<AttributeDef> attributes = {},
                   Value (*second_gradient)(Value dy, Value v, Value g) = nullptr, bool exact = true) {
  return {.name = name,
          .attributes = std::move(attributes),
          .inputs = {"dy", second},
          .infer = [second](InferContext& c) {
            c.need_float(0);
            c.need_same_dtype();
            if (c.shape(0) != c.shape(1)) c.fail(std::string("dy and ") + second + " differ in shape");
            check_attributes(c);
            return c.same_type_as(0);
          },
          .reference = std::move(reference),
          .gradient = [name = std::string(name), second_gradient](GradientContext& g) {
            Value again = emit(name, {g.output_gradient(), g.input(1)}, g.attributes, {});
            return std::vector<Value>{again, second_gradient ? second_gradient(g.input(0), g.input(1), g.output_gradient()) : Value{}};
          },
          .split = split_elementwise({}, {0}),
          .scalar = scalar,
          .in_place = {{0, 0}, {0, 1}},
          .zero_preserving = true,
          .exact = exact,
          .precision = Precision::follow};
}

/// −x of a partial sum is a partial sum.
Split split_neg(const SplitContext& c) {
  if (c.states[0] == partial(Reduction::sum)) return {c.states, c.states};
  return split_elementwise()(c);
}

constexpr double kSqrtHalf = std::numbers::sqrt2 / 2;

/// Past ±64 the slopes of gelu are 0 or 1: of no more, nothing overflows.
Value in_reach_of_gelu(Value x) { return clip(x, -64, 64); }

/// φ(x)·(2 − x²), of the normal distribution: how gelu's slope changes.
Value gelu_bend(Value x) {
  Value squared = square(in_reach_of_gelu(x));
  return exp(squared * -0.5) * (2 - squared) * (kSqrtHalf * std::numbers::inv_sqrtpi);
}

/// s + x·s·(1 − s)·u', of y = x·s with s = sigmoid(u).
Value gelu_tanh_slope(Value x) {
  x = in_reach_of_gelu(x);
  constexpr double k = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi, c = 0.044715;
  Value squared = square(x), s = sigmoid(x * (squared * (k * c) + k));
  return s + x * s * (1 - s) * (squared * (3 * k * c) + k);
}

}  // namespace

std::vector<OpDef> unary_defs() {
  using V = Value;
  using A = const Attributes&;
  constexpr double kTwoBySqrtPi = 2 * std::numbers::inv_sqrtpi;
  auto flat = [](V, V, V, A) { return V{}; };  // the slope is zero wherever there is one
  const std::vector<AttributeDef> slope = {{"slope", 0.2}}, alpha = {{"alpha", 1.0}}, bounds = {{"min", AttributeKind::real}, {"max", AttributeKind::real}};
  std::vector<OpDef> out;
  auto add = [&](Formula f) { out.push_back(def(std::move(f))); };
  // Zero preserving, exact, integers too.
  add({"neg", "-x", reference<Neg, true>, [](V, V, V dy, A) { return -dy; }, true, true, true, {}, split_neg});
  add({"abs", "abs(x)", reference<Abs, true>, [](V x, V, V dy, A) { return dy * sign(x); }, true, true, true});
  add({"sign", "x > 0 ? T(1) : x < 0 ? T(-1) : x", reference<Sign, true>, flat, true, true, true});
  add({"square", "x * x", reference<Square, true>, [](V x, V, V dy, A) { return dy * (x * 2); }, true, true, true});
  add({"floor", "floor(x)", reference<Floor>, flat, true, true});
  add({"ceil", "ceil(x)", reference<Ceil>, flat, true, true});
  add({"round", "rint(x)", reference<Round>, flat, true, true});
  add({"exp", "exp(x)", reference<Exp>, [](V, V y, V dy, A) { return dy * y; }});
  add({"log", "log(x)", reference<Log>, [](V x, V, V dy, A) { return dy / x; }});
  add({"log1p", "log1p(x)", reference<Log1p>, [](V x, V, V dy, A) { return dy / (1 + x); }, true});
  add({"sqrt", "sqrt(x)", reference<Sqrt>, [](V, V y, V dy, A) { return dy * 0.5 / y; }, true, true});
  add({"rsqrt", "T(1) / sqrt(x)", reference<Rsqrt>, [](V, V y, V dy, A) { return dy * (y * square(y) * -0.5); }, false, true});
  add({"reciprocal", "T(1) / x", reference<Reciprocal>, [](V, V y, V dy, A) { return -(dy * square(y)); }, false, true});
  add({"sin", "sin(x)", reference<Sin>, [](V x, V, V dy, A) { return dy * cos(x); }, true});
  add({"cos", "cos(x)", reference<Cos>, [](V x, V, V dy, A) { return -(dy * sin(x)); }});
  add({"erf", "erf(x)", reference<Erf>, [](V x, V, V dy, A) { return dy * (exp(-square(x)) * kTwoBySqrtPi); }, true});
  add({"tanh", "tanh(x)", reference<Tanh>, [](V, V y, V dy, A) { return dy * (1 - square(y)); }, true});
  add({"sigmoid", "(x >= 0 ? T(1) : exp(-abs(x))) / (T(1) + exp(-abs(x)))", reference<Sigmoid>, [](V, V y, V dy, A) { return dy * y * (1 - y); }});
  add({"softplus", "(x > 0 ? x : T(0)) + log1p(exp(-abs(x)))", reference<Softplus>, [](V x, V, V dy, A) { return dy * sigmoid(x); }});
  add({"silu", "x * ((x >= 0 ? T(1) : exp(-abs(x))) / (T(1) + exp(-abs(x))))", reference<Silu>, [](V x, V y, V dy, A) { V s = sigmoid(x); return dy * (s + y * (1 - s)); }, true});
  add({"gelu", "T(0.5) * (x < T(-64) ? T(-64) : x) * erfc(x * T(-0.70710678118654752440))", reference<Gelu>, [](V x, V, V dy, A) { return emit("gelu_gradient", {dy, x}, {}, {}); }, true});
  add({"gelu_tanh", "(x < T(-64) ? T(-64) : x) / (T(1) + exp(T(-1.59576912160573071176) * (x + T(0.044715) * x * x * x)))", reference<GeluTanh>, [](V x, V, V dy, A) { return dy * gelu_tanh_slope(x); }, true});
  add({"relu", "x > 0 ? x : x != x ? x : T(0)", reference<Relu>, [](V, V y, V dy, A) { return relu_gradient(dy, y); }, true, true});
  add({"relu6", "x < 0 ? T(0) : x > 6 ? T(6) : x", reference<Relu6>, [](V, V y, V dy, A) { return emit("relu6_gradient", {dy, y}, {}, {}); }, true, true});
  add({"leaky_relu", "x > 0 ? x : slope * x", reference<LeakyRelu>, [](V x, V, V dy, A a) { return emit("leaky_relu_gradient", {dy, x}, a, {}); }, true, true, false, slope});
  add({"elu", "x < 0 ? alpha * expm1(x) : x", reference<Elu>, [](V, V y, V dy, A a) { return emit("elu_gradient", {dy, y}, a, {}); }, true, false, false, alpha});
  add({"clip", "x < min ? min : x > max ? max : x", reference<Clip>, [](V x, V, V dy, A a) { return emit("clip_gradient", {dy, x}, a, {}); }, false, true, false, bounds});

  out.push_back(gradient_def("relu_gradient", "y > 0 ? dy : T(0)", "y", gradient_reference<ReluGradient>));
  out.push_back(gradient_def("relu6_gradient", "y > 0 && y < 6 ? dy : T(0)", "y", gradient_reference<Relu6Gradient>));
  out.push_back(gradient_def("leaky_relu_gradient", "x > 0 ? dy : slope * dy", "x", gradient_reference<LeakyReluGradient>, slope));
  out.push_back(gradient_def("elu_gradient", "y < 0 ? dy * (y + alpha) : dy", "y", gradient_reference<EluGradient>, alpha,
                             [](V dy, V y, V g) { return where(greater_equal(y, constant_like(y, 0)), constant_like(y, 0), dy * g); }));
  out.push_back(gradient_def("gelu_gradient", "dy * (T(0.5) * erfc(x * T(-0.70710678118654752440)) + (x < T(-64) ? T(-64) : x > T(64) ? T(64) : x) * exp(T(-0.5) * x * x) * T(0.39894228040143267794))", "x", gradient_reference<GeluGradient>, {},
                             [](V dy, V x, V g) { return dy * g * gelu_bend(x); }, false));
  out.push_back(gradient_def("clip_gradient", "x >= min && x <= max ? dy : T(0)", "x", gradient_reference<ClipGradient>, bounds));
  return out;
}

Value neg(Value x, SourceLine at) { return emit("neg", {x}, {}, at); }
Value abs(Value x, SourceLine at) { return emit("abs", {x}, {}, at); }
Value sign(Value x, SourceLine at) { return emit("sign", {x}, {}, at); }
Value square(Value x, SourceLine at) { return emit("square", {x}, {}, at); }
Value floor(Value x, SourceLine at) { return emit("floor", {x}, {}, at); }
Value ceil(Value x, SourceLine at) { return emit("ceil", {x}, {}, at); }
Value round(Value x, SourceLine at) { return emit("round", {x}, {}, at); }
Value exp(Value x, SourceLine at) { return emit("exp", {x}, {}, at); }
Value log(Value x, SourceLine at) { return emit("log", {x}, {}, at); }
Value log1p(Value x, SourceLine at) { return emit("log1p", {x}, {}, at); }
Value sqrt(Value x, SourceLine at) { return emit("sqrt", {x}, {}, at); }
Value rsqrt(Value x, SourceLine at) { return emit("rsqrt", {x}, {}, at); }
Value reciprocal(Value x, SourceLine at) { return emit("reciprocal", {x}, {}, at); }
Value sin(Value x, SourceLine at) { return emit("sin", {x}, {}, at); }
Value cos(Value x, SourceLine at) { return emit("cos", {x}, {}, at); }
Value erf(Value x, SourceLine at) { return emit("erf", {x}, {}, at); }
Value tanh(Value x, SourceLine at) { return emit("tanh", {x}, {}, at); }
Value sigmoid(Value x, SourceLine at) { return emit("sigmoid", {x}, {}, at); }
Value softplus(Value x, SourceLine at) { return emit("softplus", {x}, {}, at); }
Value silu(Value x, SourceLine at) { return emit("silu", {x}, {}, at); }
Value relu(Value x, SourceLine at) { return emit("relu", {x}, {}, at); }
Value relu6(Value x, SourceLine at) { return emit("relu6", {x}, {}, at); }
Value gelu(Value x, bool by_tanh, SourceLine at) { return emit(by_tanh ? "gelu_tanh" : "gelu", {x}, {}, at); }
Value leaky_relu(Value x, double slope, SourceLine at) { return emit("leaky_relu", {x}, {{"slope", slope}}, at); }
Value elu(Value x, double alpha, SourceLine at) { return emit("elu", {x}, {{"alpha", alpha}}, at); }
Value clip(Value x, double min, double max, SourceLine at) { return emit("clip", {x}, {{"min", min}, {"max", max}}, at); }
Value relu_gradient(Value dy, Value y, SourceLine at) { return emit("relu_gradient", {dy, y}, {}, at); }

Value selu(Value x, SourceLine at) {
  SourceGuard guard(graph_of(x, "selu", at), at);
  return elu(x, 1.6732632423543772848) * 1.0507009873554804934;
}

Value hard_swish(Value x, SourceLine at) {
  SourceGuard guard(graph_of(x, "hard_swish", at), at);
  return x * (relu6(x + 3) / 6);
}

}  // namespace belfry
