#include <belfry/ops/unary/unary.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/unary/formulas.h>

namespace belfry {

namespace {

using namespace unary_formulas;

template <class Apply>
ReferenceRule reference(bool integers) {
  return [integers](const Call& c) {
    visit_dtype(c.dtype(), [&]<class T>() {
      if (!integers && !is_float(dtype_of<T>())) throw InternalError("a float op on integers");
      if constexpr (!std::is_same_v<T, bool>) {
        auto x = c.inputs[0].as<T>();
        auto y = c.outputs[0].as<T>();
        for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<T>(Apply{}(x[i]));
      }
    });
  };
}

struct Formula {
  const char* name;
  const char* scalar;
  ReferenceRule reference;
  Value (*gradient)(Value x, Value y, Value dy);
  SplitRule split = split_elementwise();
  bool integers = false, zero_preserving = false, exact = false;
};

OpDef def(Formula f) {
  return {.name = f.name,
          .inputs = {"x"},
          .infer = [integers = f.integers](InferContext& c) {
            if (c.dtype(0) == boolean || c.dtype(0) == u8 || !integers) c.need_float(0);
            return c.same_type_as(0);
          },
          .reference = f.reference,
          .gradient = [gradient = f.gradient](GradientContext& g) { return std::vector<Value>{gradient(g.input(0), g.output(), g.output_gradient())}; },
          .split = f.split,
          .scalar = f.scalar,
          .in_place = {{0, 0}},
          .zero_preserving = f.zero_preserving,
          .exact = f.exact};
}

/// −x of a partial sum is a partial sum.
Split split_neg(const SplitContext& c) {
  if (c.states[0] == partial(Reduction::sum)) return {c.states, c.states};
  return split_elementwise()(c);
}

}  // namespace

std::vector<OpDef> unary_defs() {
  using V = Value;
  std::vector<OpDef> out;
  out.push_back(def({"neg", "-x", reference<Neg>(true), [](V, V, V dy) { return -dy; }, split_neg, true, true, true}));
  out.push_back(def({"exp", "exp(x)", reference<Exp>(false), [](V, V y, V dy) { return dy * y; }}));
  out.push_back(def({"log", "log(x)", reference<Log>(false), [](V x, V, V dy) { return dy / x; }}));
  out.push_back(def({"sqrt", "sqrt(x)", reference<Sqrt>(false), [](V, V y, V dy) { return dy * 0.5 / y; }, split_elementwise(), false, true, true}));
  out.push_back(def({"square", "x * x", reference<Square>(true), [](V x, V, V dy) { return dy * (x * 2); }, split_elementwise(), true, true, true}));
  out.push_back(def({"relu", "max(x, 0)", reference<Relu>(false), [](V, V y, V dy) { return relu_gradient(dy, y); }, split_elementwise(), false, true, true}));
  out.push_back(def({"tanh", "tanh(x)", reference<Tanh>(false), [](V, V y, V dy) { return dy * (1 - square(y)); }, split_elementwise(), false, true}));
  out.push_back(def({"sigmoid", "1 / (1 + exp(-x))", reference<Sigmoid>(false), [](V, V y, V dy) { return dy * y * (1 - y); }}));
  out.push_back({.name = "relu_gradient",
                 .inputs = {"dy", "y"},
                 .infer = [](InferContext& c) {
                   c.need_float(0);
                   c.need_same_dtype();
                   if (c.shape(0) != c.shape(1)) c.fail("dy and y differ in shape");
                   return c.same_type_as(0);
                 },
                 .reference = [](const Call& c) {
                   visit_float(c.dtype(), [&]<class T>() {
                     auto dy = c.inputs[0].as<T>(), y = c.inputs[1].as<T>();
                     auto dx = c.outputs[0].as<T>();
                     for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = y[i] > 0 ? dy[i] : T{0};
                   });
                 },
                 .gradient = [](GradientContext& g) { return std::vector<Value>{relu_gradient(g.output_gradient(), g.input(1)), {}}; },
                 .split = split_elementwise({}, {0}),
                 .scalar = "y > 0 ? dy : 0",
                 .in_place = {{0, 0}, {0, 1}},
                 .zero_preserving = true,
                 .exact = true});
  return out;
}

Value neg(Value x, SourceLine at) { return emit("neg", {x}, {}, at); }
Value exp(Value x, SourceLine at) { return emit("exp", {x}, {}, at); }
Value log(Value x, SourceLine at) { return emit("log", {x}, {}, at); }
Value sqrt(Value x, SourceLine at) { return emit("sqrt", {x}, {}, at); }
Value square(Value x, SourceLine at) { return emit("square", {x}, {}, at); }
Value relu(Value x, SourceLine at) { return emit("relu", {x}, {}, at); }
Value tanh(Value x, SourceLine at) { return emit("tanh", {x}, {}, at); }
Value sigmoid(Value x, SourceLine at) { return emit("sigmoid", {x}, {}, at); }
Value relu_gradient(Value dy, Value y, SourceLine at) { return emit("relu_gradient", {dy, y}, {}, at); }

}  // namespace belfry
