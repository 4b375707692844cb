#include "tables.h"

namespace belfry::test {

OpTables add_n_cases() {
  return {{"add_n",
           {{.name = "three rows", .inputs = {real({kBatch, 4}), real({kBatch, 4}), real({kBatch, 4})}, .outputs = {{f32, {kBatch, 4}}},
             .refused = {{{{f32, {2}}, {f32, {3}}}, {"must have one type", "(2)", "(3)"}}, {{{boolean, {2}}}, {"cast first"}}, {{}, {"at least 1 inputs, not 0"}}}},
            {.name = "three without rows", .inputs = {real({3}), real({3}), real({3})}, .outputs = {{f32, {3}}}},
            {.name = "two row axes", .inputs = {real({kBatch, kBatch}), real({kBatch, kBatch})}, .outputs = {{f32, {kBatch, kBatch}}}},
            {.name = "one", .inputs = {real({2, kBatch})}, .outputs = {{f32, {2, kBatch}}}},
            {.name = "integers", .inputs = {whole_numbers({2}), whole_numbers({2})}, .outputs = {{i32, {2}}}}}}};
}

}  // namespace belfry::test
