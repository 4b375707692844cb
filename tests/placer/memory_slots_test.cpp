// Memory of towers of unequal shares that take turns in the slots of a stream, and of what devices join in ranges.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/memory_rows_internal.h>
#include <belfry/graph/structural.h>

#include "plans.h"

namespace belfry::test {
namespace {

/// The lowest place by trying each: row r lies count - 1 - r rows up, and is in the way of what `early` rows meet.
std::int64_t tried(const std::vector<RowObstacle>& taken, std::int64_t row, int count) {
  for (std::int64_t at = 0;; ++at) {
    bool free = true;
    for (const RowObstacle& o : taken)
      for (int r = 0; r < std::min(o.early, count); ++r) {
        const std::int64_t from = at + row * (count - 1 - r);
        free = free && (from >= o.past || from + row <= o.from);
      }
    if (free) return at;
  }
}

TEST(RowsOfTowers, lie_as_low_as_what_is_there_when_each_is_written_lets_them) {
  std::mt19937 rng(5);
  auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  int over = 0;  // rows over bytes that some of them may not touch
  for (int round = 0; round < 300; ++round) {
    const int count = draw(1, 6), row = draw(1, 5);
    std::vector<RowObstacle> taken(static_cast<std::size_t>(draw(0, 6)));
    for (RowObstacle& o : taken) o.from = draw(0, 40), o.past = o.from + draw(1, 12), o.early = draw(0, count);
    const std::int64_t at = lowest_rows(taken, row, count);
    EXPECT_EQ(at, tried(taken, row, count));
    for (const RowObstacle& o : taken) over += o.early > 0 && at < o.past && at + row * count > o.from;
  }
  EXPECT_GT(over, 20);
}

/// Layers by element: values and gradients of a tower are as large as its rows, and nothing else is.
PlacedGraph pipeline_of(PhaseOrder order, int towers, std::int64_t batch) {
  Builder b("by_element");
  Value h = b.input("x", f32, {kBatch, 4096});
  for (int k = 0; k < 6; ++k) h = tanh(h * b.variable("w" + std::to_string(k), {4096}, {.init = "normal", .init_value = 0.3}));
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  PlacedGraph plan = place(graph, to_strategy(Layers{.devices = sims(2), .towers = towers, .order = order, .threads = 1}), sim_cluster(2), batch);
  EXPECT_EQ(plan.classes.size(), 2u);
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  return plan;
}

double most_waste(const PlacedGraph& plan) {
  const std::vector<DeviceBytes> bytes = device_bytes(plan);
  const std::vector<std::int64_t> live = live_maxima(BoundPlan(plan));
  double out = 0;
  for (std::size_t d = 0; d < 2; ++d) out = std::max(out, static_cast<double>(bytes[d].total() - bytes[d].state) / static_cast<double>(live[d]));
  return out;
}

TEST(Slots, of_unequal_shares_are_no_further_apart_than_a_tower_keeps) {
  EXPECT_LE(most_waste(pipeline_of(PhaseOrder::gpipe, 12, 13)), 1.1);
  EXPECT_LE(most_waste(pipeline_of(PhaseOrder::one_f_one_b, 12, 13)), 1.2);
  EXPECT_LE(most_waste(pipeline_of(PhaseOrder::one_f_one_b, 12, 18)), 1.2);
}

/// The second half of the towers is smaller: what these make for joins lies over what the larger ones held.
TEST(Slots, of_larger_towers_hold_what_later_ones_make_for_joins) {
  PlacedGraph plan = pipeline_of(PhaseOrder::one_f_one_b, 12, 18);
  std::vector<Slot*> rows;
  for (PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower)
      for (Variant& v : n.by_group)
        for (Slot& s : v.outputs)
          if (s.region == Slot::kRegion && s.stride < 0) rows.push_back(&s);
  ASSERT_FALSE(rows.empty());
  for (Slot* s : rows) s->offset += s->stride;  // then earlier towers' too
  const std::vector<std::string> found = verify(plan);
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const std::string& f) { return f.starts_with("overlap") || f.starts_with("missing wait"); }));
}

/// Each device adds a range of what both have; who gathers the ranges waits for both, and may write over the parts.
TEST(PlannedMemory, of_parts_that_are_read_in_ranges_is_free_once_these_are_gathered) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  const Strategy ring = to_strategy(Mirrored{.devices = sims(2), .towers = 2, .threads = 1, .reduction = Reduce::ring});
  const PlacedGraph plan = place(graph, ring, sim_cluster(2), 8, {.fetches = fetches_of(*graph)});
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  const BoundPlan bound(plan);
  std::vector<BufferRef> parts, written;  // of sim:0: what a sum of a range on the other device reads, what its main stream writes
  for (const auto& stream : bound.streams)
    for (const Step& s : stream) {
      if (plan.nodes[static_cast<std::size_t>(s.node)].ranged && s.device == 1)
        for (const auto& list : s.reads)
          for (const Part& p : list)
            if (p.buffer.tag.device == 0) parts.push_back(p.buffer);
      if (s.device == 0 && s.tower < 0)
        for (const auto& list : s.writes)
          for (const Part& p : list) written.push_back(p.buffer);
    }
  ASSERT_FALSE(parts.empty());
  EXPECT_TRUE(std::any_of(written.begin(), written.end(), [&](const BufferRef& w) {
    return std::any_of(parts.begin(), parts.end(), [&](const BufferRef& p) { return w.space == p.space && w.at < p.at + p.bytes && p.at < w.at + w.bytes; });
  }));
}

}  // namespace
}  // namespace belfry::test
