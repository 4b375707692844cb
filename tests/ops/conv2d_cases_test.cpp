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
          {"dilated", {kBatch, 5, 3, 1}, {2, 2, 1, 2}, {kBatch, 3, 2, 2}, {{"dilations", Integers{2, 1}}}},
          {"dilated with padding", {kBatch, 4, 3, 2}, {2, 3, 2, 1}, {kBatch, 4, 3, 1}, {{"padding", "same"}, {"dilations", Integers{3, 2}}}},
          {"padding of its own", {kBatch, 4, 3, 2}, {3, 2, 2, 1}, {kBatch, 3, 4, 1}, {{"strides", Integers{2, 1}}, {"pads", Integers{2, 1, 1, 1}}}},
          {"padding of its own, a filter per channel", {kBatch, 4, 3, 2}, {3, 3, 1, 2}, {kBatch, 2, 3, 2}, {{"strides", Integers{2, 1}}, {"pads", Integers{1, 0, 0, 2}}, {"groups", 2}}},
          {"in groups", {kBatch, 3, 3, 4}, {2, 2, 2, 2}, {kBatch, 2, 2, 2}, {{"groups", 2}}},
          {"two filters per channel", {kBatch, 4, 3, 2}, {3, 2, 1, 4}, {kBatch, 2, 2, 4}, {{"strides", Integers{2, 2}}, {"padding", "same"}, {"groups", 2}}},
          {"two images per row", {2 * kBatch, 3, 3, 2}, {2, 2, 2, 2}, {2 * kBatch, 2, 2, 2}},
          {"of no channels", {kBatch, 3, 3, 0}, {2, 2, 0, 2}, {kBatch, 2, 2, 2}},
          {"with no outputs", {kBatch, 3, 3, 2}, {2, 2, 2, 0}, {kBatch, 2, 2, 0}},
          {"without rows", {2, 3, 3, 2}, {2, 2, 2, 1}, {2, 3, 3, 1}, same}};
}

OpTable transpositions() {
  OpTable out{"conv2d_transpose", {}};
  Attributes strided = {{"strides", Integers{2, 2}}}, strided_same = {{"strides", Integers{2, 2}}, {"padding", "same"}}, grouped = {{"dilations", Integers{2, 1}}, {"groups", 2}};
  for (const Conv& v : {Conv{"valid", {kBatch, 2, 3, 3}, {2, 2, 2, 3}, {kBatch, 3, 4, 2}}, Conv{"same at stride 2", {kBatch, 2, 1, 2}, {3, 3, 1, 2}, {kBatch, 4, 2, 1}, strided_same},
                        Conv{"windows apart", {kBatch, 2, 2, 1}, {1, 3, 2, 1}, {kBatch, 4, 5, 2}, strided}, Conv{"dilated, in groups", {kBatch, 2, 2, 4}, {2, 1, 1, 4}, {kBatch, 4, 2, 2}, grouped},
                        Conv{"of no channels", {kBatch, 2, 2, 0}, {2, 2, 2, 0}, {kBatch, 3, 3, 2}}, Conv{"without rows", {2, 2, 2, 1}, {2, 2, 1, 1}, {2, 3, 3, 1}}})
    out.cases.push_back({.name = v.name, .attributes = v.attributes, .inputs = {{{f32, v.x}}, {{f32, v.filter}}}, .outputs = {{f32, v.y}}});
  TensorType x{f32, {kBatch, 2, 3, 3}}, w{f32, {2, 2, 2, 3}};
  out.cases[0].refused = {{{x, {f32, {2, 2, 3, 2}}}, {"x has 3 channels and the filter (height, width, out, in) takes 2"}},
                          {{x, w}, {"outputs do not divide into 2 groups"}, {{"groups", 2}}},
                          {{x, w}, {"4294967294", "2147483647"}, {{"strides", Integers{2147483647, 1}}, {"padding", "same"}}},
                          {{{f32, {kBatch, 2, kBatch, 3}}, w}, {"rows lie on axis 0"}}};
  return out;
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
  forward.cases[0].refused = {{{x, {f32, {0, 2, 2, 3}}}, {"a window of 0 x 2 holds nothing"}},
                              {{x, {f32, {2, 2, 1, 3}}}, {"x has 2 channels and the filter takes 1"}},
                              {{x, {f32, {4, 2, 2, 3}}}, {"4 x 2", "use padding \"same\""}},
                              {{{f32, {kBatch, 3, 4}}, w}, {"must have 4 axes"}},
                              {{{f32, {3, kBatch, 4, 2}}, w}, {"rows lie on axis 0"}},
                              {{x, {f32, {2, 2, 2, kBatch}}}, {"the filter has fixed sizes"}},
                              {{{i32, x.shape}, {i32, w.shape}}, {"must be f32 or f64"}},
                              {{x, {f64, w.shape}}, {"f32", "f64"}},
                              {{x, w}, {"strides are two sizes"}, {{"strides", Integers{0, 1}}}},
                              {{x, w}, {"dilations are two sizes"}, {{"dilations", Integers{1}}}},
                              {{x, w}, {"5 x 2", "use padding \"same\""}, {{"dilations", Integers{4, 1}}}},
                              {{x, w}, {"the largest is 2147483647"}, {{"dilations", Integers{std::int64_t{1} << 62, 1}}}},
                              {{x, w}, {"x has 2 channels and the filter takes 2 in each of 2 groups"}, {{"groups", 2}}},
                              {{x, {f32, {2, 2, 1, 3}}}, {"the filter's 3 outputs do not divide into 2 groups"}, {{"groups", 2}}},
                              {{x, w}, {"groups"}, {{"groups", 0}}},
                              {{x, w}, {"pads are four sizes"}, {{"pads", Integers{1, 1}}}},
                              {{x, w}, {"pads are four sizes"}, {{"pads", Integers{0, 0, -1, 0}}}},
                              {{x, w}, {"pads of 2 are as wide as the window"}, {{"pads", Integers{0, 2, 0, 0}}}},
                              {{x, w}, {"beside padding \"valid\" alone"}, {{"pads", Integers{1, 1, 1, 1}}, {"padding", "same"}}}};
  input.cases[0].refused = {{{{f32, {kBatch, 2, 2, 3}}, w, x}, {"dy must be " + to_string(y)}}, {{y, w, x}, {"dy must be"}, {{"padding", "same"}}}};
  filter.cases[0].refused = {{{x, {f32, {2, 2, 3, 3}}, w}, {"dy must be " + to_string(y)}}, {{x, y, w}, {"dy must be"}, {{"strides", Integers{2, 1}}}}};
  return {forward, input, filter, transpositions()};
}

}  // namespace belfry::test
