#include "tables.h"

namespace belfry::test {

namespace {

/// w, so many slots of which these are never negative, the gradient, the rate, and with `decay` that too.
OpCase update(const char* name, const char* slots, Attributes attributes = {}, bool decay = false) {
  OpCase out{.name = name, .attributes = std::move(attributes), .inputs = {real({2, 3})}, .outputs = {{f32, {2, 3}}}, .tolerance = 1e-4};
  for (const char* s = slots; *s; ++s) {
    out.inputs.push_back(*s == '+' ? positive({2, 3}) : real({2, 3}));
    out.outputs.push_back({f32, {2, 3}});
  }
  out.inputs.push_back(real({2, 3}));
  out.inputs.push_back(positive({}));
  if (decay) out.inputs.push_back({{f32, {}}, 0.01, 0.5});
  return out;
}

/// As it is, with decay, and the refusals that every update has.
std::vector<OpCase> updates(const char* slots, std::vector<Attributes> others = {}, const char* number = nullptr) {
  TensorType w{f32, {2, 3}}, other{f32, {3, 2}}, scalar{f32, {}};
  std::vector<OpCase> out = {update("default", slots), update("decay", slots, {}, true)};
  std::vector<TensorType> wrong(std::string_view(slots).size() + 2, w);
  wrong.back() = other;
  wrong.push_back(scalar);
  out[0].refused.push_back({wrong, {"must have one type"}});
  wrong[wrong.size() - 2] = w;
  if (number) out[0].refused.push_back({wrong, {number, "it must lie in [0, "}, {{number, 2.0}}});
  wrong.push_back(w);
  out[1].refused.push_back({wrong, {"rate must be a scalar"}});
  for (std::size_t i = 0; i < others.size(); ++i) out.push_back(update(("other " + std::to_string(i)).c_str(), slots, others[i], i % 2 == 0));
  return out;
}

}  // namespace

OpTables optimizer_cases() {
  TensorType w{f32, {2, 3}}, other{f32, {3, 2}}, scalar{f32, {}};
  CaseInput x = real({2, 3}), rate = positive({});
  return {{"sgd",
           {{.name = "matrix", .inputs = {x, x, rate}, .outputs = {w},
             .refused = {{{w, other, scalar}, {"must have one type"}}, {{w, w, w}, {"rate must be a scalar"}}, {{{i32, {2}}, {i32, {2}}, {i32, {}}}, {"must be f32 or f64"}}}},
            update("decay", "", {}, true)}},
          {"momentum",
           {{.name = "plain", .inputs = {x, x, x, rate}, .outputs = {w, w}, .refused = {{{w, other, w, scalar}, {"must have one type"}}, {{w, w, w, scalar}, {"momentum", "[0, 1]"}, {{"momentum", 2.0}}}}},
            {.name = "nesterov", .attributes = {{"momentum", 0.5}, {"nesterov", true}}, .inputs = {x, x, x, rate}, .outputs = {w, w}},
            update("decay", "r", {}, true)}},
          {"adam",
           {{.name = "default", .inputs = {x, x, positive({2, 3}), x, rate}, .outputs = {w, w, w}, .refused = {{{w, w, other, w, scalar}, {"must have one type"}}}, .tolerance = 1e-4},
            update("decay", "r+", {}, true)}},
          {"amsgrad", updates("r++", {{{"beta1", 0.5}, {"beta2", 0.5}, {"epsilon", 0.1}}}, "beta1")},
          {"adamax", updates("r+", {{{"beta2", 0.5}}}, "beta2")},
          {"rmsprop", updates("+", {{{"epsilon_inside", false}, {"epsilon", 0.1}}}, "rho")},
          {"rmsprop_momentum", updates("+r", {{{"momentum", 0.5}}}, "momentum")},
          {"rmsprop_centered", updates("+z", {{{"rho", 0.5}, {"epsilon", 0.1}}}, "rho")},
          {"rmsprop_centered_momentum", updates("+zr", {{{"momentum", 0.5}, {"epsilon", 0.1}}}, "momentum")},
          {"adagrad", updates("+", {{{"epsilon_inside", false}, {"epsilon", 0.1}}}, "epsilon")},
          {"adadelta", updates("++", {{{"rho", 0.5}}}, "rho")},
          {"ftrl", updates("+r", {{{"l1", 0.5}, {"l2", 0.1}}, {{"power", -0.75}, {"l2_shrinkage", 0.1}, {"beta", 0.2}}})},
          {"lion", updates("r", {{{"beta1", 0.5}}}, "beta2")},
          {"lamb",
           {{.name = "default", .inputs = {x, x, positive({2, 3}), x, rate, rate}, .outputs = {w, w, w},
             .refused = {{{w, w, other, w, scalar, scalar}, {"must have one type"}}, {{w, w, w, w, w, scalar}, {"scalars of"}}}, .tolerance = 1e-4},
            {.name = "decay", .attributes = {{"weight_decay", 0.1}}, .inputs = {x, x, positive({2, 3}), x, rate, rate}, .outputs = {w, w, w}, .tolerance = 1e-4}}},
          {"moving_average", {{.name = "matrix", .inputs = {x, x, rate}, .outputs = {w}, .refused = {{{w, other, scalar}, {"must have one type"}}}}}},
          {"adam_rate",
           {{.name = "float32 powers", .inputs = {rate, below(9, {}, i64)}, .outputs = {scalar}, .refused = {{{scalar, scalar}, {"scalar step of i64"}}, {{scalar, {i64, {}}}, {"powers", "float32, exact"}, {{"powers", "f16"}}}},
             .tolerance = 1e-3},
            {.name = "exact powers", .attributes = {{"powers", "exact"}}, .inputs = {rate, below(9, {}, i64)}, .outputs = {scalar}}}}};
}

}  // namespace belfry::test
