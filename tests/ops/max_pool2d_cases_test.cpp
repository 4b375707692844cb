#include "tables.h"

namespace belfry::test {

OpTables max_pool2d_cases() {
  struct Pool {
    const char* name;
    Shape x, y;
    Attributes attributes = {};
    Dim positions = 4;  ///< in a window
  };
  Attributes overlapping = {{"strides", Integers{1, 1}}}, same = {{"padding", "same"}}, uneven = {{"window", Integers{3, 2}}, {"strides", Integers{2, 1}}, {"padding", "same"}},
             apart = {{"window", Integers{1, 2}}, {"strides", Integers{2, 2}}},
             dilated = {{"strides", Integers{1, 1}}, {"dilations", Integers{2, 3}}},
             dilated_same = {{"window", Integers{3, 2}}, {"strides", Integers{2, 1}}, {"dilations", Integers{2, 2}}, {"padding", "same"}};
  OpTable forward{"max_pool2d", {}}, gradient{"max_pool2d_gradient", {}};
  for (const Pool& p : {Pool{"tiles, a column left over", {kBatch, 4, 5, 2}, {kBatch, 2, 2, 2}}, Pool{"overlapping", {kBatch, 3, 3, 2}, {kBatch, 2, 2, 2}, overlapping},
                        Pool{"same", {kBatch, 3, 3, 1}, {kBatch, 2, 2, 1}, same}, Pool{"overlapping with padding", {kBatch, 4, 3, 2}, {kBatch, 2, 3, 2}, uneven, 6},
                        Pool{"windows apart", {kBatch, 3, 4, 1}, {kBatch, 2, 2, 1}, apart, 2}, Pool{"two images per row", {2 * kBatch, 2, 4, 2}, {2 * kBatch, 1, 2, 2}},
                        Pool{"dilated", {kBatch, 4, 5, 2}, {kBatch, 2, 2, 2}, dilated}, Pool{"dilated with padding", {kBatch, 4, 3, 2}, {kBatch, 2, 3, 2}, dilated_same, 6},
                        Pool{"without rows", {2, 4, 2, 2}, {2, 2, 1, 2}}}) {
    TensorType x{f32, p.x}, y{f32, p.y}, index{u8, p.y};
    forward.cases.push_back({.name = p.name, .attributes = p.attributes, .inputs = {{x}}, .outputs = {y, index}});
    gradient.cases.push_back({.name = p.name, .attributes = p.attributes, .inputs = {{y}, below(p.positions, p.y, u8), {x}}, .outputs = {x}});
  }
  TensorType x{f32, {kBatch, 4, 5, 2}}, y{f32, {kBatch, 2, 2, 2}}, index{u8, {kBatch, 2, 2, 2}};
  forward.cases[0].refused = {{{x}, {"5 x 2", "use padding \"same\""}, {{"window", Integers{5, 2}}}},
                              {{x}, {"window are two sizes"}, {{"window", Integers{2}}}},
                              {{x}, {"strides are two sizes"}, {{"strides", Integers{1, 0}}}},
                              {{x}, {"dilations are two sizes"}, {{"dilations", Integers{0, 1}}}},
                              {{x}, {"5 x 2", "use padding \"same\""}, {{"dilations", Integers{4, 1}}}},
                              {{x}, {"dilations of 6 step over a width of 5"}, {{"dilations", Integers{1, 6}}, {"padding", "same"}}},
                              {{x}, {"u8 does not hold"}, {{"window", Integers{17, 17}}, {"padding", "same"}}},
                              {{{f32, {kBatch, 4, 5}}}, {"must have 4 axes"}},
                              {{{f32, {4, kBatch, 5, 2}}}, {"rows lie on axis 0"}},
                              {{{i32, x.shape}}, {"must be f32 or f64"}}};
  gradient.cases[0].refused = {{{{f32, {kBatch, 2, 3, 2}}, index, x}, {"dy must be " + to_string(y)}},
                               {{y, {i32, index.shape}, x}, {"the index must be " + to_string(index)}},
                               {{y, index, x}, {"dy must be"}, {{"padding", "same"}}}};
  return {forward, gradient};
}

}  // namespace belfry::test
