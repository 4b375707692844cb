// Memory of towers of unequal shares that take turns in the slots of a stream, and of what devices join in ranges.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/memory_uses_internal.h>
#include <belfry/graph/structural.h>

#include "plans.h"

namespace belfry::test {
namespace {

TEST(Uses, are_at_once_where_some_moment_is_in_both) {
  std::mt19937 rng(5);
  auto draw = [&] {
    Uses out;
    for (int at = std::uniform_int_distribution<int>(0, 8)(rng); at < 40 && out.size() < 4;) {
      const int end = at + std::uniform_int_distribution<int>(0, 5)(rng);
      out.emplace_back(at, end);
      at = end + std::uniform_int_distribution<int>(1, 20)(rng);
    }
    return out;
  };
  int both = 0;
  for (int round = 0; round < 500; ++round) {
    const Uses x = draw(), y = draw();
    bool expected = false;
    for (const auto& a : x)
      for (const auto& b : y) expected = expected || (a.first <= b.second && b.first <= a.second);
    EXPECT_EQ(at_once(x, y), expected);
    both += expected;
  }
  EXPECT_GT(both, 100);
  EXPECT_LT(both, 450);
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

/// What is left of a slot beside the largest tower is behind the others' slots.
TEST(Slots, of_larger_towers_lie_first_whenever_they_are_left) {
  PlacedGraph plan = pipeline_of(PhaseOrder::one_f_one_b, 13, 14);  // of the two slots tower 0, which has two rows, has the one that is left last
  const auto stream = std::find_if(plan.streams.begin(), plan.streams.end(), [](const PlanStream& s) { return s.slots > 1; });
  ASSERT_NE(stream, plan.streams.end());
  EXPECT_EQ(slot_ranks(plan, *stream), (std::vector<int>{0, 1}));
  plan.batch = 13;
  EXPECT_EQ(slot_ranks(plan, *stream), (std::vector<int>{1, 0}));
}

TEST(Slots, of_unequal_shares_are_no_further_apart_than_a_tower_keeps) {
  EXPECT_LE(most_waste(pipeline_of(PhaseOrder::gpipe, 12, 13)), 1.1);
  EXPECT_LE(most_waste(pipeline_of(PhaseOrder::gpipe, 31, 32)), 1.1);
  EXPECT_LE(most_waste(pipeline_of(PhaseOrder::one_f_one_b, 31, 32)), 1.1);
  EXPECT_LE(most_waste(pipeline_of(PhaseOrder::one_f_one_b, 12, 13)), 1.2);
  EXPECT_LE(most_waste(pipeline_of(PhaseOrder::one_f_one_b, 12, 18)), 1.2);
}

/// The second half of the towers is smaller: what these make for joins lies over what the larger ones held.
TEST(Slots, of_larger_towers_hold_what_later_ones_make_for_joins) {
  PlacedGraph plan = pipeline_of(PhaseOrder::one_f_one_b, 12, 18);
  std::vector<Slot*> apart;
  for (PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower)
      for (Variant& v : n.by_group)
        for (Slot& s : v.outputs)
          if (s.region == Slot::kRegion && !s.more.empty()) apart.push_back(&s);
  ASSERT_FALSE(apart.empty());
  for (Slot* s : apart) std::swap(s->offset, *std::min_element(s->more.begin(), s->more.end()));  // the first lies where only a later one may
  const std::vector<std::string> found = verify(plan);
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const std::string& f) { return f.starts_with("overlap") || f.starts_with("missing wait"); }));
}

TEST(Slots, hold_nothing_of_what_has_no_elements) {
  Builder b("empty");
  Value x = b.input("x", f32, {kBatch, 8});
  const Value none = matmul(x, b.variable("none", {8, 0}, {.init = "zeros"})), some = matmul(x, b.variable("some", {8, 4}, {.init = "zeros"}));
  b.minimize(reduce_mean(square(some)) + reduce_sum(none), Momentum{.learning_rate = 0.1});
  const auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  for (int towers : {1, 3})
    EXPECT_EQ(verify(place(graph, to_strategy(Single{.device = sims(1)[0], .towers = towers, .threads = 1}), sim_cluster(1), 6)), std::vector<std::string>());
}

/// What goes from stage to stage is not read again where it was made, until the next stage is known to have it.
TEST(Slots, are_free_for_what_later_towers_make_when_other_devices_are_known_to_have_read) {
  Builder b("read_there_alone");
  Value h = b.input("x", f32, {kBatch, 256});
  for (int k = 0; k < 6; ++k) {
    h = matmul(h, b.variable("w" + std::to_string(k), {256, 256}, {.init = "normal", .init_value = 0.3}));
    h = reduce_sum(reshape(h, {kBatch, 1, 256}) * b.variable("v" + std::to_string(k), {4, 256}, {.init = "normal", .init_value = 0.3}), {.axes = {1}});
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  const auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  PlacedGraph plan = place(graph, to_strategy(Layers{.devices = sims(3), .towers = 7, .order = PhaseOrder::one_f_one_b, .threads = 1}), sim_cluster(3), 28);
  const Instances instances(plan);
  const NumberLists readers = readers_of(plan);
  const auto parts = set_groups(plan, instances, readers);
  plan_frames(plan, *parts);
  plan_regions(plan, *parts);
  int known = 0;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const int device = plan.groups[g].devices[0];
    TowersInTurn turns(plan, *parts, g);
    const auto stream = std::find_if(plan.streams.begin(), plan.streams.end(), [&](const PlanStream& s) { return s.device == device && s.name != "main"; });
    if (turns.empty()) continue;
    const FrameKey key = parts->frames_on[static_cast<std::size_t>(device)][0];
    const std::vector<int>& nodes = parts->nodes.at(key);
    for (const FrameBlock& b : parts->layouts.at(key)) {
      if (b.known <= b.until || b.known >= std::ssize(nodes)) continue;
      const PlanNode& n = plan.nodes[static_cast<std::size_t>(nodes[static_cast<std::size_t>(b.known)])];
      std::ptrdiff_t last = 0;  // of the entries in which towers come to know
      for (auto e = stream->entries.begin(); e != stream->entries.end(); ++e)
        if (e->epoch == n.epoch && e->phase == n.phases[0]) last = e - stream->entries.begin();
      EXPECT_EQ(turns.uses(0, b, -1)[0].back().second, last * (std::int64_t{1} << 32) + b.known - 1);
      ++known;
    }
  }
  EXPECT_GT(known, 0);
}

/// Layers of unlike widths, a variable each.
std::shared_ptr<const Graph> of_unlike_layers() {
  Builder b("unlike_layers");
  Value h = b.input("x", f32, {kBatch, 512});
  std::int64_t from = 512, layer = 0;
  for (std::int64_t to : {768, 1024, 320, 640, 192, 896, 256, 128}) {
    h = tanh(matmul(h, b.variable("w" + std::to_string(layer++), {from, to}, {.init = "normal", .init_value = 0.3})));
    from = to;
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

struct Written {
  BufferRef buffer;
  int order = 0;
};

/// Whether some bytes are written again later.
bool meet(const std::vector<Written>& some, const std::vector<Written>& others) {
  return std::any_of(some.begin(), some.end(), [&](const Written& a) {
    return std::any_of(others.begin(), others.end(), [&](const Written& b) {
      const BufferRef &x = a.buffer, &y = b.buffer;
      return a.order < b.order && x.space == y.space && x.at < y.at + y.bytes && y.at < x.at + x.bytes;
    });
  });
}

/// Each device adds a range of what both have; who gathers the ranges waits for both, and may write over the parts. Who gathers the next
/// ones knows that the other has gathered these.
TEST(PlannedMemory, of_parts_and_sums_in_ranges_is_free_once_these_and_later_ones_are_gathered) {
  const PlacedGraph plan = place(of_unlike_layers(), to_strategy(Mirrored{.devices = sims(2), .towers = 2, .threads = 1, .reduction = Reduce::ring}), sim_cluster(2), 8);
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  const BoundPlan bound(plan);
  std::vector<Written> parts, sums, written;  // of sim:0: what a sum of a range on the other device reads, its own sums, what else its main stream writes
  for (const auto& stream : bound.streams)
    for (const Step& s : stream) {
      const auto& [ranged, order] = std::pair(plan.nodes[static_cast<std::size_t>(s.node)].ranged, plan.nodes[static_cast<std::size_t>(s.node)].order);
      if (ranged && s.device == 1)
        for (const auto& list : s.reads)
          for (const Part& p : list)
            if (p.buffer.tag.device == 0) parts.push_back({p.buffer, order});
      if (s.device == 0 && s.tower < 0)
        for (const auto& list : s.writes)
          for (const Part& p : list) (ranged ? sums : written).push_back({p.buffer, order});
    }
  ASSERT_FALSE(parts.empty());
  ASSERT_FALSE(sums.empty());
  EXPECT_TRUE(meet(parts, written));
  EXPECT_TRUE(meet(sums, written));
}

/// Two devices with one layout of frames, of which one has copies of the variables besides: what suits one is in the way of the other.
TEST(PlannedMemory, of_towers_and_what_each_device_has_besides_is_near_what_is_live_on_both) {
  const PlacedGraph plan = place(of_unlike_layers(), to_strategy(Towers{.devices = sims(2), .variables = sims(2)[1], .towers = 2, .threads = 1}), sim_cluster(2), 384);
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  const std::vector<DeviceBytes> bytes = device_bytes(plan);
  const std::vector<std::int64_t> live = live_maxima(BoundPlan(plan));
  EXPECT_LE(static_cast<double>(bytes[0].total() + bytes[1].total() - bytes[1].state), 1.02 * static_cast<double>(live[0] + live[1]));
}

/// Towers of which each goes its own way over the devices and back: a class has a device under several numbers, slots take frames of
/// several, and the last tower of a device may be of any class.
TEST(PlannedMemory, of_towers_that_go_over_devices_and_back_is_what_the_verifier_allows) {
  std::vector<std::shared_ptr<const Graph>> graphs;
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list)
      if (n.name != "two_heads") graphs.push_back(std::make_shared<const Graph>(training_graph(n)));
  int several = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::minstd_rand random(seed + 1);
    auto pick = [&](int n) { return static_cast<int>(random() / 7 % static_cast<unsigned>(n)); };
    const auto& graph = graphs[static_cast<std::size_t>(pick(static_cast<int>(graphs.size())))];
    const int towers = 2 + pick(7), devices = 2 + pick(3), shift = 1 + pick(devices - 1);
    const NodeId cut = graph->size() / 3 + pick(graph->size() / 3 + 1), back = cut + (graph->size() - cut) / 2;
    const bool mixed = pick(2) > 0;
    const std::vector<DeviceId> all = sims(devices);
    Rules rules;
    for (int t = 0; t < towers; ++t) {
      const int low = pick(3) ? t % devices : pick(devices), high = mixed ? pick(devices) : (low + shift) % devices;
      for (NodeId i = cut; i < graph->size(); ++i) rules.push_back({fmt::format("tower_{}/{}", t, graph->node(i).name), {all[static_cast<std::size_t>(i < back ? high : low)]}, "its way"});
      rules.push_back({fmt::format("tower_{}/**", t), {all[static_cast<std::size_t>(low)]}, "its device"});
    }
    rules.push_back({"**", all, "all"});
    const Division division{towers, Combine::global_mean, 1, static_cast<PhaseOrder>(pick(3))};
    const Strategy strategy{"by hand", all, [=](const Graph&, const Cluster&) { return division; }, [=](const TowerGraph&, const Cluster&, const CostTable&) { return rules; }};
    PlaceOptions options;
    options.soft = true, options.accumulate_all = pick(3) == 0;
    const bool separate = pick(3) > 0;
    const int streams = 1 + (pick(4) == 0), rows = towers * (1 + pick(3)) + pick(towers);
    const PlacedGraph plan = place(graph, strategy, sim_cluster(devices, separate, streams), rows, options);
    ASSERT_EQ(verify(plan), std::vector<std::string>()) << "seed " << seed << ": " << graph->name << ", " << towers << " towers, " << devices << " devices";
    for (const TowerClass& c : plan.classes) several += c.towers.size() > 1 && plan.groups[0].devices.size() > 1;
  }
  EXPECT_GT(several, 10);
}

}  // namespace
}  // namespace belfry::test
