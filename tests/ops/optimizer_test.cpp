#include "tables.h"

namespace belfry::test {

OpTables optimizer_cases() {
  TensorType w{f32, {2, 3}}, other{f32, {3, 2}}, scalar{f32, {}};
  CaseInput x = real({2, 3}), rate = positive({});
  return {{"sgd",
           {{.name = "matrix", .inputs = {x, x, rate}, .outputs = {w},
             .refused = {{{w, other, scalar}, {"must have one type"}}, {{w, w, w}, {"rate must be a scalar"}}, {{{i32, {2}}, {i32, {2}}, {i32, {}}}, {"must be f32 or f64"}}}}}},
          {"momentum",
           {{.name = "plain", .inputs = {x, x, x, rate}, .outputs = {w, w}, .refused = {{{w, other, w, scalar}, {"must have one type"}}, {{w, w, w, scalar}, {"momentum", "[0, 1]"}, {{"momentum", 2.0}}}}},
            {.name = "nesterov", .attributes = {{"momentum", 0.5}, {"nesterov", true}}, .inputs = {x, x, x, rate}, .outputs = {w, w}}}},
          {"adam",
           {{.name = "default", .inputs = {x, x, positive({2, 3}), x, rate}, .outputs = {w, w, w}, .refused = {{{w, w, other, w, scalar}, {"must have one type"}}}, .tolerance = 1e-4}}},
          {"adam_rate",
           {{.name = "float32 powers", .inputs = {rate, below(9, {}, i64)}, .outputs = {scalar}, .refused = {{{scalar, scalar}, {"scalar step of i64"}}, {{scalar, {i64, {}}}, {"powers", "float32, exact"}, {{"powers", "f16"}}}},
             .tolerance = 1e-3},
            {.name = "exact powers", .attributes = {{"powers", "exact"}}, .inputs = {rate, below(9, {}, i64)}, .outputs = {scalar}}}}};
}

}  // namespace belfry::test
