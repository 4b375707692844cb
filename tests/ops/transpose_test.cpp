#include <gtest/gtest.h>

#include <belfry/ops/cuda_kernels.h>

#include "host_gpu.h"
#include "tables.h"

namespace belfry::test {

OpTables transpose_cases() {
  auto of = [](const char* name, Shape x, Integers order, Shape y) { return OpCase{.name = name, .attributes = {{"order", std::move(order)}}, .inputs = {real(std::move(x))}, .outputs = {{f32, std::move(y)}}}; };
  OpTable t{"transpose", {of("rows to the back", {kBatch, 2, 3}, {1, 2, 0}, {2, 3, kBatch}), of("rows stay", {kBatch, 2, 3}, {0, -1, 1}, {kBatch, 3, 2}), of("without rows", {2, 3}, {1, 0}, {3, 2}), of("two row axes", {kBatch, kBatch}, {1, 0}, {kBatch, kBatch}),
                          of("heads", {2 * kBatch, 2, 3}, {1, 0, 2}, {2, 2 * kBatch, 3})}};
  t.cases[0].refused = {{{{f32, {2, 3}}}, {"order names 1 axes of 2"}, {{"order", Integers{0}}}}, {{{f32, {2, 3}}}, {"names an axis twice"}, {{"order", Integers{0, -2}}}}, {{{f32, {2, 3}}}, {"out of range"}, {{"order", Integers{0, 2}}}}};
  return {t};
}

/// As filters' gradients are, in tiles and not: halves that become f32, f32 that becomes halves.
TEST(TransposeOnGpu, converts_on_the_way) {
  const Attributes order{{"order", Integers{1, 0}}};
  for (auto [rows, columns] : {std::pair<std::int64_t, std::int64_t>{70, 45}, {9, 3}})
    for (auto [from, made] : {std::pair{bf16, f32}, {f16, f32}, {f32, bf16}}) {
      SCOPED_TRACE(std::string(name_of(from)) + " to " + std::string(name_of(made)));
      KernelRequest r;
      r.op = "transpose", r.attributes = &order;
      r.inputs = {{from, {rows, columns}}}, r.outputs = {{made, {columns, rows}}};
      HostTensor numbers(f32, {rows, columns}), y(made, {columns, rows});
      for (int k = 0; float& v : numbers.data<float>()) v = static_cast<float>(k++) * 0.37f;
      const HostTensor x = converted(converted(numbers, bf16), from);  // which both have
      Arguments a;
      a.inputs = {x.raw()}, a.outputs = {y.raw()};
      transpose_cuda(std::make_shared<HostGpu>()).at(0).prepare(r)->launch(a);
      const HostTensor got = converted(y, f64), wanted = converted(x, f64);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) ASSERT_EQ(got.data<double>()[static_cast<std::size_t>(j * rows + i)], wanted.data<double>()[static_cast<std::size_t>(i * columns + j)]) << i << ", " << j;
    }
}

}  // namespace belfry::test
