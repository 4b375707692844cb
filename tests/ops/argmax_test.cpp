#include "tables.h"

namespace belfry::test {

OpTables argmax_cases() {
  return {{"argmax",
           {{.name = "classes", .inputs = {real({kBatch, 5})}, .outputs = {{i32, {kBatch}}},
             .refused = {{{{f32, {2, 4}}}, {"axis 3 is out of range", "(2, 4)"}, {{"axis", 3}}}, {{{boolean, {2}}}, {"not on bool"}}, {{{f32, {2, 0}}}, {"axis is empty"}}}},
            {.name = "first axis", .attributes = {{"axis", 0}}, .inputs = {real({3, kBatch})}, .outputs = {{i32, {kBatch}}}},
            {.name = "along the rows", .attributes = {{"axis", 0}}, .inputs = {real({kBatch, 3})}, .outputs = {{i32, {3}}}},
            {.name = "along one of two row axes", .attributes = {{"axis", -2}}, .inputs = {real({kBatch, kBatch})}, .outputs = {{i32, {kBatch}}}},
            {.name = "without rows", .inputs = {real({2, 3})}, .outputs = {{i32, {2}}}},
            {.name = "integers with ties", .inputs = {below(3, {kBatch, 4})}, .outputs = {{i32, {kBatch}}}}}}};
}

}  // namespace belfry::test
