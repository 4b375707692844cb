#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include <belfry/ops/all_ops.h>
#include <belfry/ops/cpu_kernels.h>

#include "tables.h"

namespace belfry::test {

OpTables cast_cases() {
  auto of = [](const char* name, CaseInput x, DType to, bool keep = true) {
    return OpCase{.name = name, .attributes = {{"dtype", to}}, .inputs = {x}, .outputs = {{to, x.type.shape}}, .keep_dtypes = keep};
  };
  auto half = [](DType dtype) {
    CaseInput out = real({kBatch, 3});
    out.type.dtype = dtype;
    return out;
  };
  CaseInput wide = real({kBatch, 3}), wide_whole = real({3});
  wide.type.dtype = wide_whole.type.dtype = f64;
  OpTable table{"cast",
                {of("same", real({kBatch, 3}), f32, false), of("same without rows", real({3}), f32, false), of("widening", real({kBatch, 3}), f64), of("widening without rows", real({3}), f64),
                 of("narrowing", wide, f32), of("narrowing without rows", wide_whole, f32), of("bool to float", bits({kBatch}), f32), of("float to integer", real({kBatch}), i32),
                 of("integer to float", whole_numbers({kBatch}), f64), of("integer to float without rows", whole_numbers({2}), f64), of("bytes", below(200, {kBatch}, u8), f32),
                 of("to bool", below(2, {kBatch}), boolean), of("to f16", real({kBatch, 3}), f16), of("to bf16 without rows", real({3}), bf16), of("from f16", half(f16), f32), of("from bf16", half(bf16), f64),
                 of("beyond bytes", {{f32, {kBatch, 40}}, -600, 600}, u8), of("beyond i32", {{f32, {kBatch, 40}}, -6e9, 6e9}, i32), of("beyond i64", {{f64, {kBatch, 40}}, -3e19, 3e19}, i64)}};
  table.cases[0].refused = {{{{f32, {2}}}, {"attribute 'dtype' is a dtype"}, {{"dtype", "f32"}}}};
  return {table};
}

namespace {

/// Where C++ leaves it open.
TEST(Cast, reals_become_whole_numbers_towards_zero_and_within_reach) {
  const OpSet ops = standard_ops();
  const KernelTable kernels = cpu_kernels();
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> x = {2.75, -2.75, 300.5, 3e9, -3e9, 1e30, inf, -inf, nan};
  auto check = [&](DType from, const HostTensor& want) {
    HostTensor in(from, {static_cast<std::int64_t>(x.size())});
    visit_float(from, [&]<class T>() { std::transform(x.begin(), x.end(), in.data<T>().begin(), [](double v) { return static_cast<T>(v); }); });
    const OpCase c{.name = "beyond", .attributes = {{"dtype", want.dtype()}}, .inputs = {{{from, {9}}}}, .outputs = {{want.dtype(), {9}}}, .keep_dtypes = true};
    EXPECT_GT(check_given(kernels, ops.at("cast"), c, {in}, {want}), 0) << name_of(from) << " to " << name_of(want.dtype());
  };
  using I = std::numeric_limits<std::int32_t>;
  using L = std::numeric_limits<std::int64_t>;
  for (DType from : {f32, f64}) {
    check(from, HostTensor::of<std::int32_t>({9}, {2, -2, 300, I::max(), I::min(), I::max(), I::max(), I::min(), 0}));
    check(from, HostTensor::of<std::int64_t>({9}, {2, -2, 300, 3000000000, -3000000000, L::max(), L::max(), L::min(), 0}));
    check(from, HostTensor::of<std::uint8_t>({9}, {2, 0, 255, 255, 0, 255, 255, 0, 0}));
  }
}

}  // namespace
}  // namespace belfry::test
