// Kernels that take leeway, f32 rounded to TF32 or bits that differ from run to run: chosen only where it is left to them, and kept apart from what several devices compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/belfry.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/json/plan_facts.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/structural.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

constexpr Leeway kAll[] = {{true, true}, {true, false}, {false, true}, {}};

/// Products by kernels of every leeway, those with any of it first; `refusing`: these refuse.
KernelTables lax(bool refusing = false) {
  KernelTable table;
  for (const Leeway& leeway : kAll)
    table.add({.name = with_leeway("lax_matmul", leeway), .op = "matmul",
               .supports = [=](const KernelRequest&) { return refusing && leeway.tf32 ? refuse("no f32") : Support{}; }, .prepare = {}, .leeway = leeway});
  for (const Kernel& other : kernels().at("cpu").all()) table.add(other);
  return {{"cpu", table}, {"gpu", table}};
}

std::shared_ptr<const Graph> product_of(const GraphPrecision& precision) {
  Builder b("net");
  b.metric("y", reduce_sum(matmul(b.input("x", f32, {kBatch, 3}), b.variable("w", {3, 4}))));
  b.precision(precision);
  return std::make_shared<const Graph>(std::move(b).build());
}

std::string chosen(const GraphPrecision& precision, bool nondeterministic, bool refusing = false) {
  auto graph = product_of(precision);
  const PlacedGraph plan = place(graph, to_strategy(Single{.threads = 1}), sim_cluster(1), 4, {.fetches = fetches_of(*graph), .kernels = chooser(lax(refusing), {}, nondeterministic)});
  for (const PlanNode& n : plan.nodes)
    if (n.op == "matmul") return n.by_class[0].kernel;
  return "";
}

TEST(Leeway, is_taken_only_where_it_is_left) {
  EXPECT_EQ(chosen(f32, false), "lax_matmul");
  EXPECT_EQ(chosen(tf32, false), "lax_matmul_tf32");
  EXPECT_EQ(chosen(f32, true), "lax_matmul_nondeterministic");
  EXPECT_EQ(chosen(tf32, true), "lax_matmul_tf32_nondeterministic");
  EXPECT_EQ(chosen(tf32, true, true), "lax_matmul_nondeterministic") << "one that takes less stands in";
  EXPECT_EQ(chosen(tf32, false, true), "lax_matmul");
}

TEST(Leeway, of_a_plan_is_kept_where_it_is_placed_anew) {
  auto graph = product_of(f32);
  const PlaceOptions options{.fetches = fetches_of(*graph), .kernels = chooser(lax(), {}, true)};
  const PlacedGraph plan = place(graph, to_strategy(Single{.threads = 1}), sim_cluster(1), 4, options);
  PlaceOptions anew = options;
  anew.kernels = keeping(plan, lax());
  EXPECT_EQ(place(graph, plan.placement, plan.cluster, anew).arithmetic_hash, plan.arithmetic_hash);
}

TEST(Leeway, stands_in_the_name) {
  KernelTable table;
  table.add({.name = "my_matmul", .op = "matmul", .supports = [](const KernelRequest&) { return Support{}; }, .prepare = {}, .leeway = {.nondeterministic = true}});
  KernelRequest r;
  r.op = "matmul";
  EXPECT_EQ(table.choose(r).name, kReferenceKernel);
  EXPECT_TRUE(says([&] { table.choose(r, nullptr, {.nondeterministic = true}); }, {"[matmul] the kernel 'my_matmul' does not repeat its bits", "name it 'my_matmul_nondeterministic'"}));
}

/// What all devices hold has the same bits on each: one computes it, and the others have copies.
TEST(Leeway, is_not_taken_by_several_devices_for_one_value) {
  Builder b("shared_product");
  const Value product = matmul(b.variable("w", {1, 300}, {.init = "normal", .init_value = 0.3}), b.variable("v", {300, 12}, {.init = "normal", .init_value = 0.3}));
  b.minimize(reduce_mean(square(mul(b.input("x", f32, {kBatch, 12}), product))), Momentum{.learning_rate = 0.1});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  Cluster cluster = sim_cluster(0);
  for (const DeviceId& gpu : parse_devices("gpu:0-1")) cluster.devices.push_back({gpu, to_string(gpu)});
  auto placed = [&](bool nondeterministic) {
    return place(graph, to_strategy(Mirrored{.devices = parse_devices("gpu:0-1"), .threads = 1}), cluster, 8, {.kernels = chooser(lax(), {}, nondeterministic)});
  };
  for (bool nondeterministic : {false, true}) {
    const PlacedGraph plan = placed(nondeterministic);
    EXPECT_EQ(verify(plan), std::vector<std::string>());
    int products = 0;
    for (const PlanNode& n : plan.nodes) {
      if (n.scope != Scope::shared || (n.op != "matmul" && n.op != "momentum")) continue;
      products += n.op == "matmul";
      EXPECT_EQ(n.holders.size(), nondeterministic && n.op == "matmul" ? 1u : 2u) << n.name;
    }
    EXPECT_EQ(products, 3);
    EXPECT_THAT(plan_facts(plan), testing::Contains(nondeterministic ? "\"nondeterministic\": 3" : "\"nondeterministic\": 0"));
    EXPECT_EQ(describe(plan, {}).find("3 nodes by kernels whose bits may differ from run to run") != std::string::npos, nondeterministic);
  }
  PlacedGraph edited = placed(false);
  for (PlanNode& n : edited.nodes)
    if (n.scope == Scope::shared && n.op == "matmul")
      for (Variant& v : n.by_group)
        if (!v.kernel.empty()) v.kernel = "lax_matmul_nondeterministic";
  EXPECT_THAT(verify(edited), testing::Contains(testing::HasSubstr("by a kernel whose bits may differ from run to run; let one compute it")));
}

}  // namespace
}  // namespace belfry::test
