#include "tables.h"

namespace belfry::test {

OpTables identity_cases() {
  return {{"identity",
           {{.name = "rows", .inputs = {real({kBatch, 3})}, .outputs = {{f32, {kBatch, 3}}}},
            {.name = "without rows", .inputs = {real({3})}, .outputs = {{f32, {3}}}},
            {.name = "two row axes", .inputs = {real({kBatch, kBatch})}, .outputs = {{f32, {kBatch, kBatch}}}},
            {.name = "bools", .inputs = {bits({kBatch})}, .outputs = {{boolean, {kBatch}}}}}},
          {"stop_gradient",
           {{.name = "rows", .inputs = {real({kBatch, 3})}, .outputs = {{f32, {kBatch, 3}}}, .no_gradient_check = "its gradient is zero by definition"},
            {.name = "integers", .inputs = {whole_numbers({3})}, .outputs = {{i32, {3}}}}}}};
}

}  // namespace belfry::test
