#include <gtest/gtest.h>

#include "tables.h"

namespace belfry::test {

OpTables batch_norm_cases() {
  std::vector<CaseInput> channels = {positive({3}), real({3}), real({3}), positive({3})};
  auto with = [&](CaseInput x) {
    std::vector<CaseInput> out = channels;
    out.insert(out.begin(), std::move(x));
    return out;
  };
  TensorType c{f32, {3}};
  auto gradient = [](Shape x) { return std::vector<CaseInput>{real(x), positive({3}), real({3}), positive({3}), real(x)}; };
  return {{"batch_norm",
           {{.name = "dense", .inputs = with(real({kBatch, 3})), .outputs = {{f32, {kBatch, 3}}, c, c},
             .refused = {{{{f32, {3}}, c, c, c, c}, {"a batch and a channel axis"}},
                         {{{f32, {kBatch, 3}}, c, c, {f32, {4}}, c}, {"running statistics must be f32(3)"}},
                         {{{i32, {kBatch, 3}}, c, c, c, c}, {"must be f32 or f64"}},
                         {{{f32, {kBatch, 3}}, c, c, c, c}, {"epsilon", "[0, 1]"}, {{"epsilon", -1.0}}}},
             .tolerance = 1e-4, .gradient_tolerance = 1e-5, .exact_sums = false, .by_share = true},
            {.name = "image", .inputs = with(real({kBatch, 2, 2, 3})), .outputs = {{f32, {kBatch, 2, 2, 3}}, c, c}, .tolerance = 1e-4, .gradient_tolerance = 1e-5, .exact_sums = false, .by_share = true},
            {.name = "sync", .attributes = {{"sync", true}}, .inputs = with(real({kBatch, 2, 3})), .outputs = {{f32, {kBatch, 2, 3}}, c, c}, .tolerance = 1e-4, .gradient_tolerance = 1e-5,
             .exact_sums = false, .by_share = true},
            {.name = "without rows", .inputs = with(real({4, 3})), .outputs = {{f32, {4, 3}}, c, c}, .tolerance = 1e-4, .gradient_tolerance = 1e-5, .exact_sums = false}}},
          {"batch_norm_gradient",
           {{.name = "dense", .inputs = gradient({kBatch, 3}), .outputs = {{f32, {kBatch, 3}}, c, c},
             .refused = {{{{f32, {kBatch, 3}}, c, c, c, {f32, {kBatch, 4}}}, {"dy must have the type of x"}}}, .tolerance = 1e-4, .exact_sums = false, .by_share = true},
            {.name = "time-major", .inputs = gradient({2, kBatch, 3}), .outputs = {{f32, {2, kBatch, 3}}, c, c}, .tolerance = 1e-4, .exact_sums = false, .by_share = true},
            {.name = "without rows", .inputs = gradient({4, 3}), .outputs = {{f32, {4, 3}}, c, c}, .tolerance = 1e-4, .exact_sums = false}}}};
}

}  // namespace belfry::test
