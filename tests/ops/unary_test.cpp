#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/gradients.h>
#ifdef BELFRY_CXX
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda_kernels.h>

#include "host_gpu.h"
#endif

#include "interpreter.h"
#include "tables.h"

namespace belfry::test {

namespace {

/// An op, its attributes and where its inputs are drawn.
struct Row {
  const char* op;
  bool integers = false, exact_sums = false;
  double low = -2, high = 2;
  Attributes attributes = {};
  Attributes refused = {};      ///< attributes that inference refuses
  const char* words = "";       ///< with these words
};

CaseInput drawn(const Row& r, Shape shape) { return {{f32, std::move(shape)}, r.low, r.high}; }

}  // namespace

OpTables unary_cases() {
  OpTables out;
  const Attributes bounds = {{"min", -0.5}, {"max", 1.0}}, crossed = {{"min", 1.0}, {"max", 0.5}};
  const std::vector<Row> rows = {
      {"neg", true, true},
      {"abs", true, true},
      {"sign", true, true},
      {"square", true, true},
      {"floor", false, true},
      {"ceil", false, true},
      {"round", false, true},
      {"exp"},
      {"log", false, false, 0.25, 2},
      {"log1p", false, false, -0.5, 2},
      {"sqrt", false, false, 0.25, 2},
      {"rsqrt", false, false, 0.25, 2},
      {"reciprocal", false, false, 0.25, 2},
      {"sin"},
      {"cos"},
      {"erf"},
      {"tanh"},
      {"sigmoid"},
      {"softplus", false, false, -100, 100},
      {"silu", false, false, -8, 8},
      {"gelu", false, false, -5, 5},
      {"gelu_tanh", false, false, -5, 5},
      {"relu", false, true},
      {"relu6", false, true, -4, 10},
      {"leaky_relu", false, true, -2, 2, {{"slope", 0.25}}},
      {"elu", false, false, -3, 3, {{"alpha", 1.5}}, {{"alpha", 0.0}}, "alpha must be positive"},
      {"clip", false, true, -2, 2, bounds, crossed, "min is above max"},
  };
  for (const Row& r : rows) {
    auto of = [&](const char* what, Shape x) { return OpCase{.name = what, .attributes = r.attributes, .inputs = {drawn(r, x)}, .outputs = {{f32, x}}, .exact_sums = r.exact_sums}; };
    OpTable t{r.op, {of("rows", {kBatch, 4}), of("without rows", {3}), of("two row axes", {kBatch, kBatch}), of("scalar", {}), of("rows behind", {2, kBatch})}};
    t.cases[0].refused = {{{{boolean, {2}}}, {"must be f32 or f64"}}};
    if (r.integers) t.cases.push_back({.name = "integers", .inputs = {whole_numbers({3})}, .outputs = {{i32, {3}}}});
    else t.cases[0].refused.push_back({{{i32, {2}}}, {"must be f32 or f64"}});
    if (*r.words) t.cases[0].refused.push_back({{{f32, {2}}}, {r.words}, r.refused});
    if (std::string(r.op) == "leaky_relu" || std::string(r.op) == "elu") t.cases.push_back({.name = "without attributes", .inputs = {drawn(r, {kBatch})}, .outputs = {{f32, {kBatch}}}, .exact_sums = false});
    out.push_back(std::move(t));
  }
  const std::vector<Row> gradients = {
      {"relu_gradient", false, true},
      {"relu6_gradient", false, true, -4, 10},
      {"leaky_relu_gradient", false, true, -2, 2, {{"slope", 0.25}}},
      {"elu_gradient", false, true, -2, 2, {{"alpha", 1.5}}, {{"alpha", -1.0}}, "alpha must be positive"},
      {"gelu_gradient", false, false, -5, 5},
      {"clip_gradient", false, true, -2, 2, bounds, crossed, "min is above max"},
  };
  for (const Row& r : gradients) {
    auto of = [&](const char* what, Shape x) { return OpCase{.name = what, .attributes = r.attributes, .inputs = {real(x), drawn(r, x)}, .outputs = {{f32, x}}, .exact_sums = r.exact_sums}; };
    OpTable t{r.op, {of("rows", {kBatch, 4}), of("without rows", {3}), of("two row axes", {kBatch, kBatch})}};
    t.cases[0].refused = {{{{f32, {2}}, {f32, {3}}}, {"differ in shape"}}, {{{f32, {2}}, {f64, {2}}}, {"dtypes f32 and f64"}}};
    if (*r.words) t.cases[0].refused.push_back({{{f32, {2}}, {f32, {2}}}, {r.words}, r.refused});
    out.push_back(std::move(t));
  }
  return out;
}

namespace {

/// y and dy/dx of f at each x, in f64.
struct Curve {
  std::vector<double> y, slope;
};

Curve curve(Value (*f)(Value), const std::vector<double>& at) {
  Builder b("curve");
  Value x = b.input("x", f64, {static_cast<std::int64_t>(at.size())}), y = f(x);
  Value dx = gradients(b.graph(), {reduce_sum(y).id}, {x.id})[0];
  Tensors got = run_whole(b.graph(), {{"x", HostTensor::of<double>({static_cast<std::int64_t>(at.size())}, std::span(at))}}, {}, 1, {{"y", y.id}, {"dx", (dx ? dx : x * 0).id}}).fetched;
  auto list = [&](const char* name) { auto d = got.at(name).data<double>(); return std::vector<double>(d.begin(), d.end()); };
  return {list("y"), list("dx")};
}

void expect_curve(const Curve& got, const std::vector<double>& y, const std::vector<double>& slope) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_NEAR(got.y[i], y[i], 1e-14 * std::abs(y[i])) << "value " << i;
    EXPECT_NEAR(got.slope[i], slope[i], 1e-14 * std::abs(slope[i])) << "slope " << i;
  }
}

TEST(Unary, kinks_have_the_values_and_slopes_of_tensorflow) {
  expect_curve(curve([](Value x) { return abs(x); }, {-2, 0, 3}), {2, 0, 3}, {-1, 0, 1});
  expect_curve(curve([](Value x) { return sign(x); }, {-2, 0, 3}), {-1, 0, 1}, {0, 0, 0});
  expect_curve(curve([](Value x) { return round(x); }, {-1.5, -0.5, 0.5, 1.5, 2.5}), {-2, 0, 0, 2, 2}, {0, 0, 0, 0, 0});
  expect_curve(curve([](Value x) { return relu6(x); }, {-1, 0, 3, 6, 7}), {0, 0, 3, 6, 6}, {0, 0, 1, 0, 0});
  expect_curve(curve([](Value x) { return clip(x, -1, 1); }, {-2, -1, 0, 1, 2}), {-1, -1, 0, 1, 1}, {0, 1, 1, 1, 0});
  expect_curve(curve([](Value x) { return leaky_relu(x, 0.25); }, {-2, 0, 2}), {-0.5, 0, 2}, {0.25, 0.25, 1});
  expect_curve(curve([](Value x) { return elu(x); }, {0, 2}), {0, 2}, {1, 1});
  expect_curve(curve([](Value x) { return hard_swish(x); }, {-4, -3, 0, 1.5, 3, 4}), {0, 0, 0, 1.125, 3, 4}, {0, 0, 0.5, 1, 1, 1});
}

TEST(Unary, no_exponential_overflows_and_no_tail_is_cancelled) {
  expect_curve(curve([](Value x) { return softplus(x); }, {-1000, -50, 50, 1000}), {0, std::exp(-50.0), 50, 1000}, {0, std::exp(-50.0), 1, 1});
  expect_curve(curve([](Value x) { return silu(x); }, {-1000, 1000}), {0, 1000}, {0, 1});
  Curve far = curve([](Value x) { return gelu(x); }, {-12});
  EXPECT_NEAR(far.y[0], -6 * std::erfc(12 / std::sqrt(2.0)), 1e-44);
  EXPECT_LT(far.y[0], 0);
}

TEST(Unary, slopes_of_slopes_of_gelu_end_far_out) {
  for (bool by_tanh : {false, true}) {
    Builder b("bend");
    Value x = b.input("x", f32, {4});
    Value dx = gradients(b.graph(), {reduce_sum(gelu(x, by_tanh)).id}, {x.id})[0], bend = gradients(b.graph(), {reduce_sum(dx).id}, {x.id})[0];
    const std::vector<float> at = {-std::numeric_limits<float>::infinity(), -2e19f, 2e19f, std::numeric_limits<float>::infinity()};
    Tensors got = run_whole(b.graph(), {{"x", HostTensor::of<float>({4}, at)}}, {}, 1, {{"dx", dx.id}, {"bend", bend.id}}).fetched;
    EXPECT_EQ(got.at("dx"), HostTensor::of<float>({4}, std::vector<float>{0, 0, 1, 1}));
    for (float of : got.at("bend").data<float>()) EXPECT_EQ(of, 0.0f);
  }
}

TEST(Unary, a_nan_stays) {
  for (auto f : {+[](Value x) { return relu6(x); }, +[](Value x) { return clip(x, -1, 1); }, +[](Value x) { return sign(x); }, +[](Value x) { return elu(x); }, +[](Value x) { return softplus(x); }, +[](Value x) { return leaky_relu(x); }})
    EXPECT_TRUE(std::isnan(curve(f, {std::numeric_limits<double>::quiet_NaN()}).y[0]));
}

#ifdef BELFRY_CXX
/// gelu and its slope, in f64.
double gelu_at(const std::string& op, double x) {
  const double u = 1.59576912160573071176 * (x + 0.044715 * x * x * x);
  if (op == "gelu_tanh") return x < -64 ? 0 : x / (1 + std::exp(-u));
  const double share = 0.5 * std::erfc(x * -0.70710678118654752440);
  if (op == "gelu") return x < -64 ? 0 : x * share;
  return share + (std::abs(x) > 64 ? 0 : x * std::exp(-0.5 * x * x) * 0.39894228040143267794);
}

/// All halves: what the cheaper expression gives is at most a rounding away; infinities have their limits, and a NaN stays.
TEST(Unary, gelu_of_every_half_is_right_in_generated_kernels) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const OpSet ops = standard_ops();
  for (const char* op : {"gelu", "gelu_tanh", "gelu_gradient"})
    for (DType t : {f32, bf16, f16}) {
      HostTensor x(t, {65536}), dy(t, {65536}), y(t, {65536});
      for (int i = 0; i < 65536; ++i) {
        const float bf = std::bit_cast<float>(static_cast<std::uint32_t>(i) << 16);
        if (t == f32) x.data<float>()[static_cast<std::size_t>(i)] = bf;
        else std::memcpy(x.raw() + 2 * i, &i, 2);
      }
      dy = converted(HostTensor::of<float>({65536}, std::vector<float>(65536, 1)), t);
      const Attributes none;
      KernelRequest r;
      r.op = op;
      r.def = &ops.at(op);
      r.attributes = &none;
      r.inputs.assign(r.def->inputs.size(), x.type());
      r.outputs = {x.type()};
      r.output_types = {{t, {65536}}};
      r.wanted = {true};
      auto kernel = table.prepare("nvrtc_elementwise", r, {});
      host->build();
      Arguments a;
      if (r.inputs.size() > 1) a.inputs.push_back(dy.raw());
      a.inputs.push_back(x.raw());
      a.outputs = {y.raw()};
      kernel->launch(a);
      const HostTensor at = converted(x, f64), got = converted(y, f64);
      const double unit = t == bf16 ? 0x1p-8 : t == f16 ? 0x1p-11 : 1.2e-5, least = t == f16 ? 0x1p-24 : 0x1p-124;
      for (std::size_t i = 0; i < 65536; ++i) {
        const double v = at.data<double>()[i], want = gelu_at(op, v), is = got.data<double>()[i];
        if (std::isnan(v)) EXPECT_TRUE(std::isnan(is)) << op << " of " << v;
        else if (std::isinf(want)) EXPECT_EQ(is, want) << op << " of " << v;
        else ASSERT_NEAR(is, want, 1.01 * unit * std::abs(want) + least + (r.inputs.size() > 1 ? 1e-6 : 0)) << op << " of " << name_of(t) << " " << v;
      }
    }
}
#endif

}  // namespace

}  // namespace belfry::test
