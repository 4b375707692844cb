#include <gtest/gtest.h>

#include <fmt/format.h>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>

#include "plans.h"
#include "random_net.h"

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

/// Four layers of one width.
std::shared_ptr<const Graph> wide(std::int64_t width, DType precision = f32) {
  Builder b("wide");
  Value h = b.input("x", f32, {kBatch, width});
  for (const char* name : {"a", "b", "c", "d"}) h = relu(matmul(h, b.variable(name, {width, width}, {.init = "normal", .init_value = 0.3})));
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  Graph graph = std::move(b).build();
  graph.precision = precision;
  return std::make_shared<const Graph>(run_passes(training_passes(), graph));
}

/// What a tower leaves for a join lies over the values that it no longer needs, and over those of the micro-batch before it.
TEST(PlannedMemory, of_a_pipeline_grows_by_less_than_values_and_gradients_per_micro_batch) {
  const auto graph = wide(64);
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

/// Nine rows of eight micro-batches: one has two. Its frame is as large as it needs, and no other one is.
TEST(PlannedMemory, of_unequal_shares_is_what_each_of_them_needs) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  for (PhaseOrder order : {PhaseOrder::gpipe, PhaseOrder::one_f_one_b}) {
    const Strategy pipeline = to_strategy(Layers{.devices = sims(2), .towers = 8, .order = order, .threads = 1, .cut = LayerCut::variables});
    const PlacedGraph plan = place(graph, pipeline, sim_cluster(2), 9, {.fetches = fetches_of(*graph)});
    EXPECT_EQ(plan.classes.size(), 2u);
    EXPECT_EQ(verify(plan), std::vector<std::string>());
    const Totals t = totals(plan, to_string(order));
    EXPECT_LE(t.planned, 1.25 * t.live) << to_string(order);
  }
}

/// Layers of few features that lead to many: what a stage keeps, sends and gets has many sizes.
std::shared_ptr<const Graph> widening() {
  Builder b("widening");
  std::int64_t width = 8;
  Value h = b.input("x", f32, {kBatch, width});
  for (std::int64_t next : {64, 24, 320, 48, 160}) {
    h = tanh(matmul(h, b.variable("w" + std::to_string(next), {width, next}, {.init = "normal", .init_value = 0.3})));
    width = next;
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

/// Two sizes of shares take turns in the slots of a stage: each buffer lies where it can in each of them.
TEST(PlannedMemory, of_stages_with_shares_of_two_sizes_has_places_in_each_slot) {
  for (auto [towers, rows] : {std::pair{5, 322}, {8, 452}, {6, 39}}) {
    const PlacedGraph plan = place(widening(), to_strategy(Layers{.devices = sims(3), .towers = towers, .order = PhaseOrder::one_f_one_b, .threads = 1}), sim_cluster(3), rows);
    EXPECT_EQ(verify(plan), std::vector<std::string>()) << rows;
    const std::vector<std::int64_t> live = live_maxima(BoundPlan(plan));
    const std::vector<DeviceBytes> bytes = device_bytes(plan);
    for (std::size_t d = 0; d < 3; ++d) EXPECT_LE(static_cast<double>(bytes[d].total() - bytes[d].state), 1.1 * static_cast<double>(live[d])) << rows << " rows, sim:" << d;
  }
}

/// What the main stream casts for towers in turn is done with once the last of them has read it, before each of them is through.
TEST(PlannedMemory, of_stages_in_halves_has_gradients_where_casts_of_variables_were) {
  for (int towers : {2, 3}) {
    const PlacedGraph plan = place(wide(256, bf16), to_strategy(Layers{.devices = sims(2), .towers = towers, .order = PhaseOrder::gpipe, .threads = 1}), sim_cluster(2), 2 * towers);
    EXPECT_EQ(verify(plan), std::vector<std::string>()) << towers;
    const DeviceBytes d = device_bytes(plan)[0];
    EXPECT_LE(static_cast<double>(d.total() - d.state), 1.1 * static_cast<double>(live_maxima(BoundPlan(plan))[0])) << towers << " towers";
  }
}

/// The main stream may wait where most of its own is in use, a decay's gradient here, while towers are where most of theirs is.
TEST(LiveMaximum, is_that_of_an_order_in_which_the_main_stream_and_towers_wait_where_most_is_in_use) {
  Builder b("decay");
  Value h = b.input("x", f32, {kBatch, 64});
  for (const char* name : {"a", "b"}) h = tanh(matmul(h, b.variable(name, {64, 64}, {.init = "normal", .init_value = 0.3})));
  h = tanh(matmul(h, b.variable("large", {64, 1024}, {.init = "normal", .init_value = 0.3})));
  h = matmul(h, b.variable("last", {1024, 8}, {.init = "normal", .init_value = 0.3}));
  b.precision(bf16);
  b.minimize(reduce_mean(square(h)) + b.l2_penalty("large", 0.1), Momentum{.learning_rate = 0.1});
  const auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  const PlacedGraph plan = place(graph, to_strategy(Layers{.devices = sims(2), .order = PhaseOrder::by_tower, .threads = 1}), sim_cluster(2), 16);
  const std::vector<std::int64_t> live = live_maxima(BoundPlan(plan));
  const std::vector<DeviceBytes> bytes = device_bytes(plan);
  for (std::size_t d = 0; d < 2; ++d) EXPECT_LE(static_cast<double>(bytes[d].total() - bytes[d].state), 1.02 * static_cast<double>(live[d])) << "sim:" << d;
}

/// A device alone in its memory and one whose neighbour reads its copies have no layout in common.
TEST(PlannedMemory, of_devices_of_which_some_share_a_memory_keeps_what_neighbours_read) {
  for (const char* name : {"batch_norm_sync", "embedding", "tied"}) {
    const auto graph = std::make_shared<const Graph>(training_graph(net(name)));
    for (const std::string layout : {"abcc", "abbc", "aabb"})
      for (int towers : {6, 8})
        for (const NamedStrategy& s : strategies(towers, 4)) {
          Cluster cluster = sim_cluster(4);
          for (std::size_t d = 0; d < layout.size(); ++d) cluster.devices[d].space = layout.substr(d, 1);
          const PlacedGraph plan = place(graph, s.strategy, cluster, 2 * towers, {.fetches = fetches_of(*graph)});
          EXPECT_EQ(verify(plan), std::vector<std::string>()) << name << " " << layout << " " << towers << " " << s.name;
        }
  }
}

/// Copies of variables are gone when the last tower makes the gradients of them, which no other one makes in its frame.
TEST(PlannedMemory, of_towers_in_turn_has_the_last_ones_gradients_where_copies_of_variables_were) {
  const auto graph = wide(256);
  for (int towers : {1, 2, 3, 5}) {
    const PlacedGraph plan = place(graph, to_strategy(Towers{.devices = sims(1), .variables = cpu(0), .towers = towers, .threads = 1}), sim_cluster(1), 8);
    EXPECT_EQ(verify(plan), std::vector<std::string>());
    const DeviceBytes d = device_bytes(plan)[0];
    EXPECT_LE(static_cast<double>(d.total() - d.state), 1.02 * static_cast<double>(live_maxima(BoundPlan(plan))[0])) << towers << " towers";
  }
}

/// Casts that are copied to the towers are gone when these have made what is joined behind their last reader.
TEST(PlannedMemory, of_halves_has_sums_where_casts_of_variables_were) {
  const auto graph = wide(256, bf16);
  const PlacedGraph plan = place(graph, to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .towers = 2, .threads = 1}), sim_cluster(2), 8);
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  const auto host = static_cast<std::size_t>(plan.cluster.host());
  const DeviceBytes d = device_bytes(plan)[host];
  EXPECT_LE(static_cast<double>(d.total() - d.state), 1.25 * static_cast<double>(live_maxima(BoundPlan(plan))[host]));
}

/// Who gets a sum back that one device made knows that its own part has been read; each device reads its own copy of it, towers or none.
TEST(PlannedMemory, of_copies_of_a_sum_is_where_the_parts_of_it_were) {
  const PlacedGraph plan = place(wide(256), to_strategy(Mirrored{.devices = sims(4), .towers = 2, .threads = 1, .reduction = Reduce::to_one}), sim_cluster(4), 8);
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  const std::vector<DeviceBytes> bytes = device_bytes(plan);
  const std::vector<std::int64_t> live = live_maxima(BoundPlan(plan));
  for (std::size_t d = 0; d < 4; ++d) EXPECT_LE(static_cast<double>(bytes[d].total() - bytes[d].state), 1.02 * static_cast<double>(live[d])) << "sim:" << d;
}

/// The norm of gradients is taken while the last tower runs: by then those before it are further than it is.
TEST(PlannedMemory, of_squares_of_sums_is_where_parts_of_earlier_towers_were) {
  Builder b("clipped");
  Value h = b.input("x", f32, {kBatch, 256});
  for (const char* name : {"a", "b", "c"}) {
    h = h + relu(matmul(h, b.variable(name, {256, 256}, {.init = "normal", .init_value = 0.3})));
    h = h * tanh(h);
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1}, {.clip_norm = 0.5});
  const auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  for (int towers : {4, 5}) {
    const PlacedGraph plan = place(graph, to_strategy(Layers{.devices = sims(2), .towers = towers, .order = PhaseOrder::gpipe, .threads = 1}), sim_cluster(2), 4 * towers);
    EXPECT_EQ(verify(plan), std::vector<std::string>());
    const Totals t = totals(plan, std::to_string(towers));
    EXPECT_LE(t.planned, 1.03 * t.live) << towers << " towers";
  }
}

/// A join tells that what was copied to other towers has been read, the step of the main stream before it does not.
TEST(PlannedMemory, of_copied_values_is_given_to_a_tower_that_has_waited_for_the_join) {
  for (std::uint64_t number = 40; number < 200; ++number) {
    auto graph = std::make_shared<const Graph>(run_passes(training_passes(), grown(random_recipe(number), f64)));
    for (int stretches : {0, 2, 3}) {
      const PlacedGraph plan = place(graph, to_strategy(Towers{.devices = sims(2), .variables = sims(1)[0], .towers = 2, .threads = 1}), sim_cluster(2), 2, {.fetches = fetches_of(*graph), .updates = false, .recompute = {stretches}});
      EXPECT_EQ(verify(plan), std::vector<std::string>()) << number;
    }
  }
}

/// A sum over towers on a device: its step, and where bytes of its region begin.
struct Sum {
  PlanNode* node = nullptr;
  std::size_t group = 0;
  std::int64_t start = 0;
  Step step;
  bool over_part() const {
    return std::any_of(step.reads[0].begin(), step.reads[0].end(), [&](const Part& p) { return p.buffer.space == step.writes[0][0].buffer.space && p.buffer.at == step.writes[0][0].buffer.at; });
  }
  Slot& slot() const { return node->by_group[group].outputs[0]; }
};

/// The largest sum of a kind on sim:0.
Sum largest_sum(PlacedGraph& plan, const std::string& op) {
  const BoundPlan bound(plan);
  Sum out;
  for (const auto& stream : bound.streams)
    for (const Step& s : stream) {
      PlanNode& n = plan.nodes[static_cast<std::size_t>(s.node)];
      if (n.op != op || s.device != 0 || n.attributes.text("how") != "sum" || (out.node && s.writes[0][0].buffer.bytes <= out.step.writes[0][0].buffer.bytes)) continue;
      out.node = &n, out.step = s;
    }
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    if (plan.groups[g].devices[0] == 0) out.group = g;
  out.start = bound.device_start[0] + plan.groups[out.group].state;
  return out;
}

PlacedGraph summing(const Strategy& s, const Cluster& cluster, std::int64_t batch) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  PlacedGraph plan = place(graph, s, cluster, batch, {.fetches = fetches_of(*graph)});
  EXPECT_EQ(verify(plan), std::vector<std::string>());
  return plan;
}

bool objects(const PlacedGraph& plan, const std::string& opening) {
  const std::vector<std::string> found = verify(plan);
  return std::any_of(found.begin(), found.end(), [&](const std::string& f) { return f.starts_with(opening); });
}

TEST(PlannedMemory, of_a_sum_is_that_of_one_of_its_parts_where_nobody_else_reads_it) {
  const Strategy beside = to_strategy(Single{.device = sims(1)[0], .towers = 2, .threads = 1});
  PlacedGraph plan = summing(beside, sim_cluster(1, true, 2), 8);
  Sum sum = largest_sum(plan, kAggregate);
  EXPECT_TRUE(sum.over_part());
  sum.slot().offset += kAlignment;
  EXPECT_TRUE(objects(plan, "overlap: '" + sum.node->name + "' writes")) << "not byte for byte";
  // What both devices read, neither writes over.
  plan = summing(to_strategy(Mirrored{.devices = sims(2), .towers = 2, .threads = 1}), sim_cluster(2), 8);
  sum = largest_sum(plan, kAggregate);
  EXPECT_FALSE(sum.over_part());
  sum.slot() = {Slot::kRegion, sum.step.reads[0][0].buffer.at - sum.start, 0};
  EXPECT_TRUE(objects(plan, "missing wait")) << "another device may still read it";
}

TEST(PlannedMemory, of_a_devices_sum_is_that_of_a_part_of_the_same_piece) {
  const auto mirrored = [](int T) { return to_strategy(Mirrored{.devices = sims(2), .towers = T, .threads = 1}); };
  PlacedGraph plan = summing(mirrored(4), sim_cluster(2), 8);
  EXPECT_TRUE(largest_sum(plan, kPreAggregate).over_part());
  // Of towers 0 to 2 there are two pieces: the first over tower 2, the second over tower 0.
  plan = summing(mirrored(6), sim_cluster(2), 12);
  Sum sum = largest_sum(plan, kPreAggregate);
  const auto& parts = sum.step.reads[0];
  ASSERT_EQ(parts.size(), 3u);
  ASSERT_EQ(sum.step.writes[0].size(), 2u);
  sum.slot() = {Slot::kRegion, parts[2].buffer.at - sum.start, parts[0].buffer.at - parts[2].buffer.at};
  EXPECT_TRUE(objects(plan, "overlap: '" + sum.node->name + "' writes"));
}

/// Towers of one class that cross: what is the first device to some is the second to others, whose frames have none of those parts.
TEST(PlannedMemory, of_a_devices_sum_lies_in_no_frame_of_a_tower_that_makes_no_part_there) {
  Builder b("crossed");
  Value h = tanh(matmul(b.input("x", f32, {kBatch, 8}), b.variable("first", {8, 8}, {.init = "normal", .init_value = 0.3})));
  Value y = matmul(h, b.variable("second", {8, 8}, {.init = "normal", .init_value = 0.3}));
  {
    auto scope = b.scope("last");
    y = tanh(y);
  }
  b.minimize(reduce_mean(square(y)), Momentum{.learning_rate = 0.1});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  Placement p{.towers = 4, .batch = 8, .threads = 1};
  for (int t = 0; t < 4; ++t)
    for (const char* match : {"last/**", "**"}) p.rules.push_back({fmt::format("tower_{}/{}", t, match), {sims(2)[static_cast<std::size_t>((t < 2) == (match[0] == '*') ? 0 : 1)]}, "crossed"});
  p.rules.push_back({"**", {sims(1)[0]}, "the rest"});
  PlacedGraph plan = place(graph, p, sim_cluster(2));
  ASSERT_EQ(plan.classes.size(), 1u);
  EXPECT_EQ(verify(plan), std::vector<std::string>());
}

/// Nine rows among six towers: on one device the larger ones come earlier than on the other, so the same slots begin elsewhere.
TEST(PlannedMemory, of_towers_dealt_in_turn_is_planned_device_by_device) {
  Builder b("in_turn");
  Value h = b.input("x", f32, {kBatch, 64});
  for (const char* name : {"first", "second"}) h = tanh(h * b.variable(name, {64}, {.init = "normal", .init_value = 0.3}));
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  const std::vector<DeviceId> devices = parse_devices("cpu:0,sim:0,sim:1");
  Placement p{.towers = 6, .batch = 9, .threads = 1};
  p.order = PhaseOrder::gpipe;
  for (std::size_t t = 0; t < 6; ++t) p.rules.push_back({fmt::format("tower_{}/**", t), {devices[2 - t % 2]}, "in turn"});
  p.rules.push_back({"**", {devices[0]}, "the rest"});
  EXPECT_EQ(verify(place(graph, p, local_cluster(devices, 2))), std::vector<std::string>());
}

/// A copy is read from the holder that its link reaches best, which need not be the first.
TEST(PlannedMemory, of_what_a_copy_reads_lasts_where_it_is_read) {
  Builder b("halved");
  Value h = b.input("x", f32, {kBatch, 8});
  for (const char* name : {"first", "second"}) h = tanh(matmul(h, b.variable(name, {8, 8}, {.init = "normal", .init_value = 0.3}) * 0.5));
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1}, {.clip_norm = 1});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  const std::vector<DeviceId> devices = parse_devices("cpu:0,sim:0,gpu:0/0,gpu:0/1");
  Placement p{.towers = 1, .batch = 2, .threads = 1};
  p.rules = {{"tower_0/**", {devices[3]}, "a tower"}, {"**", {devices[1], devices[2]}, "twice"}};
  EXPECT_EQ(verify(place(graph, p, local_cluster(devices, 2))), std::vector<std::string>());
}

/// Clipping scales each sum of gradients once more: in its own bytes.
TEST(PlannedMemory, of_an_op_outside_the_towers_is_that_of_the_input_that_it_reads_last) {
  PlacedGraph plan = summing(to_strategy(Single{.device = sims(1)[0], .towers = 2, .threads = 1}), sim_cluster(1), 8);
  int over = 0;
  for (const auto& stream : BoundPlan(plan).streams)
    for (const Step& s : stream) {
      const PlanNode& n = plan.nodes[static_cast<std::size_t>(s.node)];
      if (n.scope != Scope::shared || !n.def || n.def->in_place.empty() || !n.donates.empty() || s.writes[0].empty()) continue;
      for (const auto& parts : s.reads)
        for (const Part& p : parts) over += p.buffer.space == s.writes[0][0].buffer.space && p.buffer.at == s.writes[0][0].buffer.at;
    }
  EXPECT_GT(over, 0);
}

}  // namespace
}  // namespace belfry::test
