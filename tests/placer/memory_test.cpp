#include <gtest/gtest.h>

#include <belfry/graph/plan/memory.h>

#include "plans.h"

namespace belfry::test {
namespace {

struct Totals {
  double planned = 0, live = 0;
};

/// Of all devices of a kind; each must hold what is live there.
Totals totals(const PlacedGraph& plan, const std::string& what) {
  Totals out;
  std::vector<DeviceBytes> bytes = device_bytes(plan);
  std::vector<std::int64_t> live = live_maxima(BoundPlan(plan));
  for (std::size_t d = 0; d < bytes.size(); ++d) {
    EXPECT_GE(bytes[d].total() - bytes[d].state, live[d]) << what << " on " << to_string(plan.cluster.devices[d].id);
    out.planned += static_cast<double>(bytes[d].total() - bytes[d].state);
    out.live += static_cast<double>(live[d]);
  }
  return out;
}

TEST(PlannedMemory, holds_what_is_live_and_little_more) {
  std::map<std::string, Totals> sums;
  for (const char* name : {"decay", "batch_norm_sync"}) {
    auto graph = std::make_shared<const Graph>(training_graph(net(name)));
    for (int T : {2, 4, 7})
      for (const NamedStrategy& s : strategies(T, 2)) {
        const std::string what = std::string(name) + ", " + s.name;
        PlacedGraph plan = place(graph, s.strategy, sim_cluster(2, T != 2, T == 4 ? 2 : 1), 512, {.fetches = fetches_of(*graph)});
        Totals t = totals(plan, what);
        sums[s.name].planned += t.planned, sums[s.name].live += t.live;
      }
  }
  for (const auto& [name, t] : sums) {
    RecordProperty(name, std::to_string(t.planned / t.live));
    EXPECT_LE(t.planned, 1.25 * t.live) << name;
  }
}

/// What a tower leaves for a join lies over the values that it no longer needs, and over those of the micro-batch before it.
TEST(PlannedMemory, of_a_pipeline_grows_by_less_than_values_and_gradients_per_micro_batch) {
  Builder b("wide");
  Value h = b.input("x", f32, {kBatch, 64});
  for (const char* name : {"a", "b", "c", "d"}) h = relu(matmul(h, b.variable(name, {64, 64}, {.init = "normal"})));
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  auto bytes = [&](int towers) {
    PlacedGraph plan = place(graph, to_strategy(Layers{.devices = sims(2), .towers = towers, .order = PhaseOrder::gpipe, .threads = 1}), sim_cluster(2), 64 * towers);
    EXPECT_TRUE(verify(plan).empty()) << verify(plan)[0];
    EXPECT_GT(plan.frames[0].tail, 0);
    DeviceBytes d = device_bytes(plan)[0];
    return d.total() - d.state;
  };
  // Of 64 rows: the input, two layers' values and one that is sent are kept. Beside each other they and two gradients would be six.
  constexpr std::int64_t kValue = 64 * 64 * 4;
  EXPECT_LE(bytes(9) - bytes(8), 4 * kValue + 1024);
}

}  // namespace
}  // namespace belfry::test
