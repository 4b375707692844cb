#include "gpu_cases.h"

namespace belfry::test {

std::vector<OpCase> gpu_cases(const std::string& op) {
  const Dim B = kBatch;
  if (op == "add")
    return {{.name = "with a tail", .inputs = {real({1003}), real({1003})}, .outputs = {{f32, {1003}}}},
            {.name = "a bias", .inputs = {real({B, 5, 64}), real({64})}, .outputs = {{f32, {B, 5, 64}}}},
            {.name = "a bias of odd size", .inputs = {real({B, 5, 33}), real({33})}, .outputs = {{f32, {B, 5, 33}}}},
            {.name = "a value per row", .inputs = {real({B, 1, 64}), real({B, 5, 64})}, .outputs = {{f32, {B, 5, 64}}}},
            {.name = "four axes apart", .inputs = {real({2, 1, 4, 1, 8}), real({1, 3, 1, 5, 1})}, .outputs = {{f32, {2, 3, 4, 5, 8}}}},
            {.name = "a scalar and a tail", .inputs = {real({}), real({70001})}, .outputs = {{f32, {70001}}}}};
  if (op == "relu") return {{.name = "many", .inputs = {real({B, 30001})}, .outputs = {{f32, {B, 30001}}}}};
  return {};
}

}  // namespace belfry::test
