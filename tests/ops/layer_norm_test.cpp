#include "tables.h"

namespace belfry::test {

OpTables layer_norm_cases() {
  struct Form {
    const char* name;
    Shape x, moments, parameters;
    Attributes attributes = {};
    bool scale = true, center = true;
  };
  Attributes rms = {{"rms", true}}, inner = {{"axis", 1}}, halves = {{"groups", 2}};
  OpTable layer{"layer_norm", {}}, layer_gradient{"layer_norm_gradient", {}}, group{"group_norm", {}}, group_gradient{"group_norm_gradient", {}};
  auto add = [](OpTable& forward, OpTable& gradient, const Form& f) {
    TensorType x{f32, f.x}, m{f32, f.moments}, p{f32, f.parameters};
    CaseInput gamma = real(f.parameters), beta = real(f.parameters);
    gamma.given = f.scale, beta.given = f.center;
    std::vector<CaseInput> saved = {real(f.x), real(f.moments), positive(f.moments), real(f.x), gamma};
    forward.cases.push_back({.name = f.name, .attributes = f.attributes, .inputs = {real(f.x), gamma, beta}, .outputs = {x, m, m}, .tolerance = 1e-4, .gradient_tolerance = 1e-5,
                             .exact_sums = false});
    gradient.cases.push_back({.name = f.name, .attributes = f.attributes, .inputs = saved, .outputs = {x, p, p}, .tolerance = 1e-4, .exact_sums = false});
  };
  for (const Form& f : {Form{"rows", {kBatch, 5}, {kBatch}, {5}}, Form{"sequence", {kBatch, 2, 9}, {kBatch, 2}, {9}}, Form{"two axes", {kBatch, 2, 3}, {kBatch}, {2, 3}, inner},
                        Form{"along the rows", {3, kBatch}, {3}, {kBatch}}, Form{"time-major", {2, kBatch, 4}, {2, kBatch}, {4}}, Form{"rms", {kBatch, 5}, {kBatch}, {5}, rms},
                        Form{"without scale", {kBatch, 5}, {kBatch}, {5}, {}, false}, Form{"neither", {kBatch, 5}, {kBatch}, {5}, {}, false, false}})
    add(layer, layer_gradient, f);
  add(layer, layer_gradient, {"rms without scale", {kBatch, 5}, {kBatch}, {5}, rms, false, false});
  for (const Form& f : {Form{"image", {kBatch, 2, 2, 6}, {kBatch, 2}, {6}, halves}, Form{"flat", {kBatch, 4}, {kBatch, 2}, {4}, halves, true, false},
                        Form{"rows inside", {2, kBatch, 4}, {2, 2}, {4}, halves},
                        Form{"one group", {kBatch, 3, 3}, {kBatch, 1}, {3}, {{"groups", 1}}, false}})
    add(group, group_gradient, f);
  TensorType x{f32, {kBatch, 5}}, m{f32, {kBatch}}, p{f32, {5}};
  layer.cases[0].refused = {{{x, {f32, {4}}, p}, {"gamma and beta must be f32(5)"}}, {{x, p, p}, {"axis 2 is out of range"}, {{"axis", 2}}}, {{{i32, {2, 3}}}, {"must be f32 or f64"}}};
  layer_gradient.cases[0].refused = {{{x, m, m, {f32, {kBatch, 4}}}, {"dy must have the type of x"}}, {{x, m, p, x}, {"must be f32(batch)"}}, {{x, m, m, x, m}, {"gamma must be f32(5)"}}};
  TensorType y{f32, {kBatch, 2, 2, 6}};
  group.cases[0].refused = {{{y}, {"6 channels cannot be cut into 4 equal groups"}, {{"groups", 4}}}, {{y}, {"into 0 equal groups"}, {{"groups", 0}}}, {{{f32, {kBatch, 2, 0}}}, {"0 channels cannot be cut"}},
                            {{{f32, {2, kBatch}}}, {"last axis of fixed size"}}};
  group_gradient.cases[0].refused = {{{y, m, m, y}, {"must be f32(batch, 2)"}}};
  return {layer, layer_gradient, group, group_gradient};
}

}  // namespace belfry::test
