// Engines of a library's kernel: timed by a clock of the test, kept in the table, named in the plan, found again or refused.
#include <gtest/gtest.h>

#include <belfry/belfry.h>
#include <belfry/frontends/json/cost_file.h>
#include <belfry/frontends/session/engines.h>
#include <belfry/frontends/session/kernel_chooser.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

/// tanh by one of four engines, each of which says which it was and moves the clock.
struct Engines {
  std::string last;
  double now = 0;
  int launches = 0;

  KernelTables tables() {
    Kernel k;
    k.name = "tuned_tanh";
    k.op = "tanh";
    k.supports = [](const KernelRequest& r) { return Support{.scratch_bytes = r.engine == "roomy" ? 4096 : 0}; };
    k.prepare = [this](const KernelRequest& r) -> std::unique_ptr<Prepared> {
      const std::string engine = r.engine.empty() ? "a" : r.engine;
      if (engine == "broken") throw DeviceError("it turns out not to take it");
      if (engine != "a" && engine != "b" && engine != "c" && engine != "roomy") throw DeviceError("the library does not name the engine " + engine);
      return prepared([this, engine, n = r.outputs[0].elements()](const Arguments& a) {
        last = engine;
        ++launches;
        // a is mostly as fast as b, and now and then far slower; c is slow, but for its first launch.
        now += engine == "a" ? (launches % 3 ? 2 : 90) : engine == "b" ? 1 + 1e-3 * (launches % 2) : engine == "roomy" ? 0.5 : launches < 5 ? 0.1 : 3;
        for (std::int64_t i = 0; i < n; ++i) a.out<float>(0)[i] = std::tanh(a.in<float>(0)[i]);
      });
    };
    k.engines = [](const KernelRequest&) { return std::vector<std::string>{"a", "broken", "b", "c", "roomy"}; };
    KernelTables out = kernels();
    KernelTable mine;
    mine.add(std::move(k));
    for (const Kernel& other : out.at("cpu").all()) mine.add(other);
    out["cpu"] = std::move(mine);
    return out;
  }
};

std::shared_ptr<const Graph> matmul_net() {
  Builder b("net");
  b.metric("y", reduce_sum(tanh(b.input("x", f32, {kBatch, 3}))));
  return std::make_shared<const Graph>(std::move(b).build());
}

PlacedGraph placed(const KernelTables& tables, const std::map<std::string, std::string>& engines) {
  auto graph = matmul_net();
  return place(graph, to_strategy(Single{.threads = 1}), sim_cluster(1), 4, {.fetches = fetches_of(*graph), .kernels = chooser(tables, engines)});
}

const Variant& tanh_of(const PlacedGraph& plan) {
  for (const PlanNode& n : plan.nodes)
    if (n.op == "tanh") return n.by_class[0];
  throw std::logic_error("no tanh");
}

TEST(Engines, the_fastest_is_timed_kept_and_named_in_the_plan) {
  Engines e;
  const KernelTables tables = e.tables();
  auto plan = std::make_shared<const PlacedGraph>(placed(tables, {}));
  EXPECT_EQ(tanh_of(*plan).kernel, "tuned_tanh");
  KernelRequest r;
  std::vector<float> x(12, 0.5f), y(12);
  Program program(plan, tables);
  for (const auto& stream : program.launches())
    for (const Launch& l : stream)
      if (plan->nodes[static_cast<std::size_t>(l.step->node)].op == "tanh") r = program.request(*l.step);
  const Arguments a{{reinterpret_cast<const std::byte*>(x.data())}, {reinterpret_cast<std::byte*>(y.data())}};
  auto seconds = [&](Prepared& p) {
    const double before = e.now;
    p.launch(a);
    return e.now - before;
  };
  auto fastest = [&](std::int64_t scratch) { return fastest_engine(tables.at("cpu"), "tuned_tanh", r, tables.at("cpu").engines("tuned_tanh", r), scratch, seconds); };
  EXPECT_EQ(fastest(4096), "roomy");
  e.launches = 0;
  const std::string best = fastest(4095);
  EXPECT_EQ(best, "b");
  EXPECT_EQ(tanh_of(*plan).scratch_bytes, 0);
  EXPECT_EQ(tanh_of(placed(tables, {{engine_key("tuned_tanh", r), "roomy"}})).scratch_bytes, 4096);

  CostTable table;
  table.engines[engine_key("tuned_tanh", r)] = best;
  const CostTable read = read_costs(write_costs(table), "costs");
  EXPECT_EQ(read, table);
  auto chosen = std::make_shared<const PlacedGraph>(placed(tables, read.engines));
  EXPECT_EQ(tanh_of(*chosen).kernel, "tuned_tanh@b");
  EXPECT_NE(chosen->arithmetic_hash, plan->arithmetic_hash);
  Program with_engine(chosen, tables);
  Runner runner(with_engine);
  Tensors feeds = feeds_for(*matmul_net(), 4);
  Outcome o = runner.run(views(feeds));
  EXPECT_FALSE(o.error);
  EXPECT_EQ(e.last, "b");
}

TEST(Engines, that_are_not_there_are_refused_by_name) {
  Engines e;
  const KernelTables tables = e.tables();
  auto refused = [&](const std::string& kernel, const std::vector<std::string>& words) {
    auto plan = std::make_shared<PlacedGraph>(placed(tables, {}));
    const_cast<Variant&>(tanh_of(*plan)).kernel = kernel;
    return says<std::runtime_error>([&] { Program p(plan, tables); Runner r(p); }, words);
  };
  EXPECT_TRUE(refused("tuned_tanh@gone", {"does not name the engine gone"}));
  EXPECT_TRUE(refused("simd_unary@a", {"[tanh] the plan names"}));
}

}  // namespace
}  // namespace belfry::test
