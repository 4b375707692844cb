#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <belfry/frontends/builder/builder.h>
#include <belfry/ops/cpu/exponential_internal.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/scaled_dot_product_attention/scaled_dot_product_attention.h>

#include "tables.h"

namespace belfry::test {

OpTables scaled_dot_product_attention_cases() {
  struct Form {
    const char* name;
    Shape lead;
    std::int64_t queries, keys;
    std::vector<CaseInput> mask = {};
    Attributes attributes = {};
  };
  const Attributes causal = {{"causal", true}}, behind = {{"layout", "bthk"}};
  OpTable forward{"scaled_dot_product_attention", {}}, gradient{"scaled_dot_product_attention_gradient", {}};
  auto with = [](Shape lead, std::int64_t a, std::int64_t b) {
    lead.insert(lead.end(), {a, b});
    return lead;
  };
  // Of q, k, v and y: where the layout says so, the last of `lead` stands behind the places.
  auto rows_of = [&](const Form& f, std::int64_t places, std::int64_t features) {
    Shape out = with(f.lead, places, features);
    if (f.attributes.find("layout")) std::swap(out[out.size() - 3], out[out.size() - 2]);
    return out;
  };
  for (const Form& f : {Form{"heads", {kBatch, 2}, 3, 4}, Form{"causal", {kBatch}, 3, 3, {}, causal}, Form{"causal with more keys, by 0.25", {kBatch}, 2, 4, {}, {{"causal", true}, {"scale", 0.25}}},
                        Form{"keys that are padding", {kBatch, 2}, 2, 3, {bits({kBatch, 1, 1, 3})}}, Form{"causal with a mask for all", {kBatch}, 3, 3, {bits({3, 3})}, causal},
                        Form{"added to the scores", {kBatch, 2}, 2, 3, {real({2, 1, 3})}}, Form{"causal, added per row", {kBatch}, 2, 3, {real({kBatch, 2, 3})}, causal},
                        Form{"without rows", {}, 2, 3},
                        Form{"two row axes", {kBatch, kBatch}, 1, 2},
                        Form{"heads behind the places", {kBatch, 2}, 3, 4, {}, behind}, Form{"heads behind, causal, by 0.5", {kBatch, 3}, 3, 2, {}, {{"causal", true}, {"scale", 0.5}, {"layout", "bthk"}}},
                        Form{"heads behind, keys that are padding", {kBatch, 2}, 2, 3, {bits({kBatch, 1, 1, 3})}, behind}, Form{"heads behind, added per head", {kBatch, 2}, 3, 2, {real({2, 3, 2})}, behind},
                        Form{"rows of heads behind the places", {kBatch}, 2, 3, {real({kBatch, 1, 3})}, behind}, Form{"rows of heads and more", {kBatch, kBatch}, 2, 1, {}, behind},
                        Form{"two leading axes and heads behind", {2, kBatch, 2}, 2, 1, {bits({kBatch, 1, 1, 1})}, behind}}) {
    Shape q = rows_of(f, f.queries, 2), k = rows_of(f, f.keys, 2), v = rows_of(f, f.keys, 3), y = rows_of(f, f.queries, 3);
    Shape p = with(f.lead, f.queries, f.keys), log_sum = f.lead;
    log_sum.push_back(f.queries);
    CaseInput none = bits({1});
    none.given = false;
    const CaseInput& mask = f.mask.empty() ? none : f.mask[0];
    forward.cases.push_back({.name = f.name, .attributes = f.attributes, .inputs = {real(q), real(k), real(v), mask}, .outputs = {{f32, y}, {f32, log_sum}}, .exact_sums = false});
    if (f.lead.empty()) continue;  // of six inputs without rows there are 4⁶ combinations of states
    // Logarithms above all scores: the weights are below 1.
    CaseInput above = {{f32, log_sum}, 8, 10};
    std::vector<TensorType> slopes = {{f32, q}, {f32, k}, {f32, v}, {f32, p}};
    gradient.cases.push_back({.name = f.name, .attributes = f.attributes, .inputs = {real(q), real(k), real(v), real(y), above, real(y), mask}, .outputs = slopes,
                              .exact_sums = false});
  }
  // Along the rows nothing is split: the whole is read.
  forward.cases.push_back({.name = "rows are places", .inputs = {real({kBatch, 2}), real({kBatch, 2}), real({kBatch, 3})}, .outputs = {{f32, {kBatch, 3}}, {f32, {kBatch}}}, .exact_sums = false});
  TensorType q{f32, {kBatch, 2, 3, 2}}, k{f32, {kBatch, 2, 4, 2}}, v{f32, {kBatch, 2, 4, 3}}, y{f32, {kBatch, 2, 3, 3}}, l{f32, {kBatch, 2, 3}};
  forward.cases[0].refused = {{{q, k, {f32, {kBatch, 2, 5, 3}}}, {"k has 4 places and v 5"}},
                              {{q, {f32, {kBatch, 2, 4, 3}}, v}, {"q has 2 features and k 3"}},
                              {{q, {f32, {kBatch, 4, 2}}, v}, {"as many axes"}},
                              {{q, {f32, {kBatch, 3, 4, 2}}, v}, {"the same leading axes"}},
                              {{{f32, {2}}, {f32, {2}}, {f32, {2}}}, {"an axis of places and one of features"}},
                              {{q, k, v, {boolean, {3, 3}}}, {"the mask must broadcast to (batch, 2, 3, 4)"}},
                              {{q, k, v, {i32, {3, 4}}}, {"the mask must be bool, or of q's dtype"}},
                              {{q, k, v}, {"scale", "[0, 1000000]"}, {{"scale", -1.0}}},
                              {{q, k, v}, {"layout", "bhtk", "bthk"}, {{"layout", "bhkt"}}},
                              {{{f32, {3, 2}}, {f32, {3, 2}}, {f32, {3, 2}}}, {"axes of places, of heads and of features where the layout is bthk"}, behind},
                              {{q, k, v}, {"the same leading axes and heads"}, behind}};
  gradient.cases[0].refused = {{{q, k, v, y, y, y}, {"log_sum must be f32(batch, 2, 3)"}}, {{q, k, v, y, l, q}, {"y and dy must be"}}};
  return {forward, gradient};
}

namespace {

/// Sizes that the blocks of the kernel do not divide, against the reference; the same bits for 1 and 3 threads.
void expect_kernels_agree(std::int64_t queries, std::int64_t keys, std::int64_t width, bool causal, bool masked) {
  SCOPED_TRACE(testing::Message() << queries << " queries, " << keys << " keys of " << width << (causal ? ", causal" : "") << (masked ? ", masked" : ""));
  Shape q = {3, 2, queries, width}, k = {3, 2, keys, width}, log_sum = {3, 2, queries};
  CaseInput mask = bits({3, 1, 1, keys});
  mask.given = masked;
  Attributes attributes = {{"causal", causal}};
  auto defs = scaled_dot_product_attention_defs();
  OpCase forward{.name = "large", .attributes = attributes, .inputs = {real(q), real(k), real(k), mask}, .outputs = {{f32, q}, {f32, log_sum}}, .tolerance = 2e-5};
  OpCase gradient{.name = "large", .attributes = attributes, .inputs = {real(q), real(k), real(k), real(q), {{f32, log_sum}, 20, 24}, real(q), mask},
                  .outputs = {{f32, q}, {f32, k}, {f32, k}, {f32, {3, 2, queries, keys}}}, .tolerance = 2e-5};
  KernelTable kernels = cpu_kernels();
  EXPECT_GT(check_kernels(kernels, defs[0], {forward}), 0);
  EXPECT_GT(check_kernels(kernels, defs[1], {gradient}), 0);
}

TEST(Attention, blocks_agree_with_the_whole) {
  expect_kernels_agree(70, 133, 17, false, true);
  expect_kernels_agree(130, 65, 16, true, false);
  expect_kernels_agree(65, 130, 5, true, true);
}

TEST(Attention, causal_is_a_triangle_of_keys_that_are_seen) {
  OpDef def = scaled_dot_product_attention_defs()[0];
  OpCase masked{.name = "triangle", .inputs = {real({3, 2}), real({4, 2}), real({4, 2}), bits({3, 4})}, .outputs = {{f64, {3, 2}}, {f64, {3}}}}, causal = masked;
  causal.attributes = {{"causal", true}};
  causal.inputs[3].given = false;
  HostTensor q = HostTensor::of<double>({3, 2}, {1, 2, -1, 0.5, 0.25, 3}), k = HostTensor::of<double>({4, 2}, {1, 0, 2, -1, 0.5, 1, 3, 3}), seen(boolean, {3, 4});
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j <= i; ++j) seen.data<bool>()[i * 4 + j] = true;
  EXPECT_EQ(run_op(def, causal, {q, k, k, seen}, 1), run_op(def, masked, {q, k, k, seen}, 1));
}

TEST(Attention, scratch_does_not_grow_with_the_matrix_of_scores) {
  auto scratch = [](std::int64_t places) {
    Builder b("attention");
    Value x = b.input("x", f32, {2, places, 32});
    const Node& n = b.graph().node(scaled_dot_product_attention(x, x, x).id.node);
    KernelRequest r;
    r.op = n.op->name;
    r.attributes = &n.attributes;
    r.inputs = {{f32, {2, places, 32}}, {f32, {2, places, 32}}, {f32, {2, places, 32}}, {f32, {0}}};
    return cpu_kernels().support("block_attention", r).scratch_bytes;
  };
  EXPECT_GT(scratch(64), 0);
  EXPECT_EQ(scratch(64), scratch(4096));
}

TEST(Exponential, is_within_two_units_in_the_last_place) {
  double worst = 0;
  for (int i = -87 * 256; i <= 88 * 256; ++i) {
    float x = static_cast<float>(i) / 256 + 0.001f * static_cast<float>(i % 4);
    if (x < -87 || x > 88) continue;
    double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exponential(x)) / exact - 1));
  }
  EXPECT_LE(worst, 2 * 0x1p-23);
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exponential(0.0f), 1);
  EXPECT_EQ(exponential(-inf), 0);
  EXPECT_EQ(exponential(inf), inf);
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Attention, a_query_that_sees_no_key_gives_nothing_and_gets_nothing) {
  auto defs = scaled_dot_product_attention_defs();
  CaseInput mask = bits({2, 2});
  OpCase c{.name = "blind", .inputs = {real({2, 2}), real({2, 2}), real({2, 2}), mask}, .outputs = {{f32, {2, 2}}, {f32, {2}}}};
  HostTensor x = HostTensor::of<float>({2, 2}, {1, 2, 3, 4}), seen(boolean, {2, 2});
  seen.data<bool>()[2] = true;  // query 1 sees key 0
  auto out = run_op(defs[0], c, {x, x, x, seen}, 1);
  EXPECT_EQ(out[0], HostTensor::of<float>({2, 2}, {0, 0, 1, 2}));
  OpCase g{.name = "blind", .inputs = {real({2, 2}), real({2, 2}), real({2, 2}), real({2, 2}), real({2}), real({2, 2}), mask}, .outputs = {{f32, {2, 2}}, {f32, {2, 2}}, {f32, {2, 2}}, {f32, {2, 2}}}};
  auto slopes = run_op(defs[1], g, {x, x, x, out[0], out[1], x, seen}, 1);
  EXPECT_EQ(slopes[0], HostTensor(f32, {2, 2}));
  EXPECT_LE(distance(slopes[2], HostTensor::of<float>({2, 2}, {3, 4, 0, 0})), 1e-6);
  EXPECT_GT(check_kernels(cpu_kernels(), defs[0], {c}), 0);
}

}  // namespace

}  // namespace belfry::test
