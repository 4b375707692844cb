#include "tables.h"

namespace belfry::test {

OpTables tower_mean_cases() {
  return {{"tower_mean", {{.name = "vector", .inputs = {real({3})}, .outputs = {{f32, {3}}}, .refused = {{{{i32, {3}}}, {"must be f32 or f64"}}}, .exact_sums = false},
                          {.name = "scalar", .inputs = {real({})}, .outputs = {{f32, {}}}, .exact_sums = false}}}};
}

}  // namespace belfry::test
