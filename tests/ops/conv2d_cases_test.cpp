#include "tables.h"

namespace belfry::test {

namespace {

/// One convolution: its inputs, its output and how the windows slide.
struct Conv {
  const char* name;
  Shape x, filter, y;
  Attributes attributes = {};
};

std::vector<Conv> convolutions() {
  Attributes same = {{"padding", "same"}}, strided = {{"strides", Integers{2, 2}}}, strided_same = {{"strides", Integers{2, 2}}, {"padding", "same"}},
             uneven = {{"strides", Integers{2, 1}}, {"padding", "same"}};
  return {{"valid", {kBatch, 3, 4, 2}, {2, 2, 2, 3}, {kBatch, 2, 3, 3}},
          {"same", {kBatch, 3, 2, 2}, {2, 3, 2, 1}, {kBatch, 3, 2, 1}, same},
          {"valid at stride 2, a row left over", {kBatch, 4, 5, 1}, {2, 2, 1, 2}, {kBatch, 2, 2, 2}, strided},
          {"same at stride 2", {kBatch, 4, 3, 2}, {3, 3, 2, 2}, {kBatch, 2, 2, 2}, strided_same},
          {"two strides", {kBatch, 3, 3, 1}, {2, 2, 1, 2}, {kBatch, 2, 3, 2}, uneven},
          {"windows apart", {kBatch, 5, 3, 2}, {1, 1, 2, 2}, {kBatch, 3, 2, 2}, strided},
          {"two images per row", {2 * kBatch, 3, 3, 2}, {2, 2, 2, 2}, {2 * kBatch, 2, 2, 2}},
          {"without rows", {2, 3, 3, 2}, {2, 2, 2, 1}, {2, 3, 3, 1}, same}};
}

}  // namespace

OpTables conv2d_cases() {
  OpTable forward{"conv2d", {}}, input{"conv2d_input_gradient", {}}, filter{"conv2d_filter_gradient", {}};
  for (const Conv& v : convolutions()) {
    TensorType x{f32, v.x}, w{f32, v.filter}, y{f32, v.y};
    forward.cases.push_back({.name = v.name, .attributes = v.attributes, .inputs = {{x}, {w}}, .outputs = {y}});
    input.cases.push_back({.name = v.name, .attributes = v.attributes, .inputs = {{y}, {w}, {x}}, .outputs = {x}});
    filter.cases.push_back({.name = v.name, .attributes = v.attributes, .inputs = {{x}, {y}, {w}}, .outputs = {w}});
  }
  TensorType x{f32, {kBatch, 3, 4, 2}}, w{f32, {2, 2, 2, 3}}, y{f32, {kBatch, 2, 3, 3}};
  forward.cases[0].refused = {{{x, {f32, {2, 2, 1, 3}}}, {"x has 2 channels and the filter takes 1"}},
                              {{x, {f32, {4, 2, 2, 3}}}, {"4 x 2", "use padding \"same\""}},
                              {{{f32, {kBatch, 3, 4}}, w}, {"must have 4 axes"}},
                              {{{f32, {3, kBatch, 4, 2}}, w}, {"rows lie on axis 0"}},
                              {{x, {f32, {2, 2, 2, kBatch}}}, {"the filter has fixed sizes"}},
                              {{{i32, x.shape}, {i32, w.shape}}, {"must be f32 or f64"}},
                              {{x, {f64, w.shape}}, {"f32", "f64"}},
                              {{x, w}, {"strides are two sizes"}, {{"strides", Integers{0, 1}}}}};
  input.cases[0].refused = {{{{f32, {kBatch, 2, 2, 3}}, w, x}, {"dy must be " + to_string(y)}}, {{y, w, x}, {"dy must be"}, {{"padding", "same"}}}};
  filter.cases[0].refused = {{{x, {f32, {2, 2, 3, 3}}, w}, {"dy must be " + to_string(y)}}, {{x, y, w}, {"dy must be"}, {{"strides", Integers{2, 1}}}}};
  return {forward, input, filter};
}

}  // namespace belfry::test
