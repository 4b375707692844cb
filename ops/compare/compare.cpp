#include <belfry/ops/compare/compare.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/compare/formulas.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

using namespace compare_formulas;

/// y = apply(a, b) as bool. With `logic` a and b are bools too.
template <class Apply, bool kLogic = false>
OpDef def(const char* name, const char* scalar, bool commutative) {
  return {.name = name,
          .inputs = {"a", "b"},
          .infer = [](InferContext& c) {
            c.need_same_dtype();
            if (kLogic && c.dtype(0) != boolean) c.fail("works on bool; compare or cast first");
            return std::vector<TensorType>{{boolean, c.broadcast()}};
          },
          .reference = [](const Call& c) {
            visit_dtype(c.dtype(), [&]<class T>() {
              auto a = c.inputs[0].as<T>(), b = c.inputs[1].as<T>();
              auto y = c.outputs[0].as<bool>();
              std::size_t i = 0;
              for_each_index(c.outputs[0].type.shape, [&](const Extents& at) {
                y[i++] = Apply{}(a[offset_of(at, c.inputs[0].type.shape)], b[offset_of(at, c.inputs[1].type.shape)]);
              });
            });
          },
          .gradient = no_gradient(kLogic ? "bools have no slope" : "a comparison is flat"),
          .split = split_elementwise(),
          .scalar = scalar,
          .in_place = kLogic ? std::vector<std::pair<int, int>>{{0, 0}, {0, 1}} : std::vector<std::pair<int, int>>{},
          .commutative = commutative,
          .exact = true};
}

OpDef not_def() {
  return {.name = "logical_not",
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            if (c.dtype(0) != boolean) c.fail("works on bool; compare or cast first");
            return c.same_type_as(0);
          },
          .reference = [](const Call& c) {
            auto x = c.inputs[0].as<bool>();
            auto y = c.outputs[0].as<bool>();
            for (std::size_t i = 0; i < x.size(); ++i) y[i] = !x[i];
          },
          .gradient = no_gradient("bools have no slope"),
          .split = split_elementwise(),
          .scalar = "!x",
          .in_place = {{0, 0}},
          .exact = true};
}

}  // namespace

std::vector<OpDef> compare_defs() {
  std::vector<OpDef> out;
  out.push_back(def<Equal>("equal", "a == b", true));
  out.push_back(def<NotEqual>("not_equal", "a != b", true));
  out.push_back(def<Less>("less", "a < b", false));
  out.push_back(def<LessEqual>("less_equal", "a <= b", false));
  out.push_back(def<Greater>("greater", "a > b", false));
  out.push_back(def<GreaterEqual>("greater_equal", "a >= b", false));
  out.push_back(def<And, true>("logical_and", "a && b", true));
  out.push_back(def<Or, true>("logical_or", "a || b", true));
  out.push_back(not_def());
  return out;
}

OpDef where_def() {
  return {.name = "where",
          .inputs = {"condition", "a", "b"},
          .infer = [](InferContext& c) {
            if (c.dtype(0) != boolean) c.fail("the condition must be bool");
            if (c.dtype(1) != c.dtype(2)) c.fail("a and b differ in dtype");
            return std::vector<TensorType>{{c.dtype(1), c.broadcast()}};
          },
          .reference = [](const Call& c) {
            visit_dtype(c.inputs[1].type.dtype, [&]<class T>() {
              auto condition = c.inputs[0].as<bool>();
              auto a = c.inputs[1].as<T>(), b = c.inputs[2].as<T>();
              auto y = c.outputs[0].as<T>();
              std::size_t i = 0;
              for_each_index(c.outputs[0].type.shape, [&](const Extents& at) {
                y[i++] = condition[offset_of(at, c.inputs[0].type.shape)] ? a[offset_of(at, c.inputs[1].type.shape)] : b[offset_of(at, c.inputs[2].type.shape)];
              });
            });
          },
          .gradient = [](GradientContext& g) {
            Value dy = g.output_gradient(), zero = constant_like(dy, 0);
            return std::vector<Value>{{}, sum_to(where(g.input(0), dy, zero), g.input(1).shape()), sum_to(where(g.input(0), zero, dy), g.input(2).shape())};
          },
          .split = split_elementwise(),
          .scalar = "condition ? a : b",
          .in_place = {{0, 1}, {0, 2}},
          .exact = true,
          .precision = Precision::follow};
}

Value equal(Value a, Value b, SourceLine at) { return emit("equal", {a, b}, {}, at); }
Value not_equal(Value a, Value b, SourceLine at) { return emit("not_equal", {a, b}, {}, at); }
Value less(Value a, Value b, SourceLine at) { return emit("less", {a, b}, {}, at); }
Value less_equal(Value a, Value b, SourceLine at) { return emit("less_equal", {a, b}, {}, at); }
Value greater(Value a, Value b, SourceLine at) { return emit("greater", {a, b}, {}, at); }
Value greater_equal(Value a, Value b, SourceLine at) { return emit("greater_equal", {a, b}, {}, at); }
Value logical_and(Value a, Value b, SourceLine at) { return emit("logical_and", {a, b}, {}, at); }
Value logical_or(Value a, Value b, SourceLine at) { return emit("logical_or", {a, b}, {}, at); }
Value logical_not(Value x, SourceLine at) { return emit("logical_not", {x}, {}, at); }
Value where(Value condition, Value a, Value b, SourceLine at) { return emit("where", {condition, a, b}, {}, at); }

}  // namespace belfry
