// Small steps on GPUs: where they stand, that their launches can be one, and what forecasts say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/lanes.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/plan/small_steps.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>

#include "plans.h"

namespace belfry::test {
namespace {

/// Four layers whose biases are small and whose kernels are not, with slots, running averages and at will a gate.
std::shared_ptr<const Graph> layered(bool gated = false) {
  Builder b("layered");
  Value h = b.input("x", f32, {kBatch, 150});
  for (int k = 0; k < 4; ++k) h = tanh(nn::dense(h, {.units = 150, .name = fmt::format("layer_{}", k)}));
  b.minimize(mean(square(h)), Adam{.learning_rate = 0.1}, {.average_decay = 0.9, .skip_nonfinite = gated});
  return std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
}

Cluster gpus_that_launch(int n, double launch = 4e-6) {
  Cluster c;
  c.cores = 2;
  for (int i = 0; i < n; ++i) {
    ClusterDevice d{{0, "gpu", i, -1}, "gpu:" + std::to_string(i)};
    d.flops = 1e13, d.bandwidth = 1e12, d.launch = launch;
    c.devices.push_back(d);
  }
  c.devices.push_back({cpu(0), "host", 1});
  return c;
}

/// Names of those on a device, in the order in which its main stream has them.
std::vector<std::string> in_order(const PlacedGraph& plan, bool small_alone) {
  const std::vector<Small> small = small_steps(plan);
  std::map<int, std::string> out;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (const PlanNode& n = plan.nodes[i]; n.scope == Scope::shared && !is_op(n, kInput) && (small[i] == Small::update || !small_alone)) out.emplace(n.order, n.name);
  std::vector<std::string> names;
  for (const auto& [order, name] : out) names.push_back(name);
  return names;
}

TEST(SmallSteps, are_updates_of_biases_and_their_averages) {
  const PlacedGraph plan = place(layered(), to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), gpus_that_launch(1), 8);
  const std::vector<std::string> names = in_order(plan, true);
  for (int k = 0; k < 4; ++k) {
    EXPECT_THAT(names, testing::Contains(fmt::format("adam/layer_{}/bias", k)));
    EXPECT_THAT(names, testing::Not(testing::Contains(fmt::format("adam/layer_{}/kernel", k))));  // 90,000 bytes
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (small_steps(plan)[i] == Small::update) {
      for (ValueIndex v : plan.nodes[i].outputs) EXPECT_LE(local_type(plan.value(v), plan.share(-1)).bytes(), kSmallUpdate) << plan.nodes[i].name;
    }
}

/// Optimisers, then what reads their outputs, so that those of one kind have nothing between them.
TEST(SmallSteps, of_updates_stand_behind_all_else_and_one_kind_behind_the_other) {
  for (bool gated : {false, true})
    for (int n : {1, 2}) {
      const Strategy s = n == 1 ? to_strategy(Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}) : to_strategy(Mirrored{.devices = first_gpus(2), .threads = 1});
      const PlacedGraph plan = place(layered(gated), s, gpus_that_launch(n), 8);
      ASSERT_THAT(verify(plan), testing::IsEmpty());
      const std::vector<std::string> all = in_order(plan, false), small = in_order(plan, true);
      ASSERT_GE(small.size(), gated ? 16u : 8u);
      const auto first = std::find(all.begin(), all.end(), small[0]);
      std::vector<std::string> kinds;
      for (auto at = first; at != all.end(); ++at) {
        const auto node = std::find_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& p) { return p.name == *at; });
        if (small_steps(plan)[static_cast<std::size_t>(node - plan.nodes.begin())] != Small::update) {
          EXPECT_NE(node->role, Role::backward) << *at;
          continue;
        }
        if (kinds.empty() || kinds.back() != node->op) kinds.push_back(node->op);
      }
      if (gated) EXPECT_THAT(kinds, testing::ElementsAre("adam", "where", "moving_average", "where"));
      else EXPECT_THAT(kinds, testing::ElementsAre("adam", "add", "moving_average"));  // of the step's number
      for (auto at = all.begin(); at != first; ++at) EXPECT_THAT(small, testing::Not(testing::Contains(*at)));
    }
}

TEST(SmallSteps, are_none_on_hosts_nor_in_ranges) {
  auto count = [](const PlacedGraph& plan) {
    const std::vector<Small> small = small_steps(plan);
    return std::ssize(small) - std::count(small.begin(), small.end(), Small::no);
  };
  EXPECT_EQ(count(place(layered(), to_strategy(Single{.device = cpu(0), .threads = 1}), gpus_that_launch(2), 8)), 0);
  EXPECT_EQ(count(place(layered(), to_strategy(Towers{.devices = first_gpus(2), .variables = cpu(0), .threads = 1}), gpus_that_launch(2), 8)), 0);
  const PlacedGraph sharded = place(layered(), to_strategy(Sharded{.devices = first_gpus(2), .threads = 1}), gpus_that_launch(2), 8);
  const std::vector<Small> small = small_steps(sharded);
  for (std::size_t i = 0; i < small.size(); ++i) EXPECT_FALSE(small[i] != Small::no && sharded.nodes[i].ranged) << sharded.nodes[i].name;
}

/// What a tower reads of an update in the same step comes before it.
TEST(SmallSteps, that_towers_read_are_made_before_them) {
  Builder b("counted");
  Value seen = b.variable("seen", {}, {.init = "zeros", .trainable = false}), w = b.variable("w", {3});
  b.update(seen, seen + 1);
  b.minimize(mean(square(b.input("x", f32, {kBatch, 3}) * w * (seen + 1))), Sgd{.learning_rate = 0.1});
  const PlacedGraph plan = place(std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build())), to_strategy(Single{.device = parse_device("gpu:0"), .towers = 2, .threads = 1}), gpus_that_launch(1), 8);
  EXPECT_THAT(verify(plan), testing::IsEmpty());
  for (const PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower) {
      EXPECT_EQ(n.epoch, 0) << n.name;
    }
}

TEST(SmallSteps, cost_one_launch_of_each_kind_in_forecasts) {
  constexpr double kLaunch = 1e-3;
  const PlacedGraph plan = place(layered(), to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), gpus_that_launch(1, kLaunch), 8);
  const std::vector<Small> small = small_steps(plan);
  std::map<std::string, int> updates, launches;
  for (const ForecastLaunch& l : forecast(plan).launches) {
    const PlanNode& n = plan.nodes[static_cast<std::size_t>(l.node)];
    if (small[static_cast<std::size_t>(l.node)] != Small::update || n.outputs.empty() || !n.def || !n.def->by_element) continue;
    ++updates[n.op];
    launches[n.op] += l.end - l.begin > kLaunch;
  }
  EXPECT_THAT(updates, testing::ElementsAre(testing::Pair("adam", 4), testing::Pair("moving_average", 4)));
  EXPECT_THAT(launches, testing::ElementsAre(testing::Pair("adam", 1), testing::Pair("moving_average", 1)));
}

/// Casts of kernels, of which one is too large; what reads a feed, or what the host has, is no value of variables. Where no step changes variables they
/// are made once.
TEST(SmallSteps, are_values_of_variables_that_lie_on_their_device) {
  Builder b("values");
  Value x = b.input("x", f32, {kBatch, 8}), small = b.variable("small", {8, 3}), large = b.variable("large", {8, 40000}), scale = b.input("scale", f32, {3});
  Value turned = reshape(square(b.variable("flat", {24})), {8, 3});
  b.output(matmul(x, small + turned));
  b.output(matmul(x, tanh(large)));
  b.output(matmul(x, small * scale));
  Value bias = b.variable("bias", {8});
  b.output(x + bias);
  b.update(bias, bias * 0.5);
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  auto values = [&](const Strategy& s, bool updates = true) {
    PlaceOptions options;
    options.updates = updates;
    for (ValueId v : graph->outputs) options.fetches.emplace_back(graph->name_of(v), v);
    const PlacedGraph plan = place(graph, s, gpus_that_launch(1), 8, options);
    EXPECT_THAT(verify(plan), testing::IsEmpty());
    const std::vector<Small> all = small_steps(plan);
    std::set<std::string> out;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] == Small::value) out.insert(plan.nodes[i].name);
    return out;
  };
  EXPECT_THAT(values(to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1})), testing::ElementsAre("add", "reshape", "square"));
  EXPECT_THAT(values(to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), false), testing::IsEmpty());
  EXPECT_THAT(values(to_strategy(Towers{.devices = first_gpus(1), .variables = cpu(0), .threads = 1})), testing::IsEmpty());
}

/// A net on one GPU, with its trees.
PlacedGraph on_gpu(const std::string& net, DType precision, bool training, std::int64_t batch) {
  Graph source = net_named(net).build(std::make_shared<const OpSet>(standard_ops()), {});
  source.precision = precision;
  std::vector<std::string> outputs;
  for (ValueId v : source.outputs) outputs.push_back(source.name_of(v));
  auto graph = std::make_shared<const Graph>(training ? run_passes(training_passes(), source) : run_passes(inference_passes(), for_serving(source, outputs)));
  PlaceOptions options;
  options.updates = training;
  options.groups = find_gpu_groups;
  for (const std::string& name : outputs)
    if (auto v = graph->find(name)) options.fetches.emplace_back(name, *v);
  return place(graph, to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), gpus_that_launch(1), batch, options);
}

struct Launches {
  int steps = 0, planned = 0, recorded = 0, forecast = 0;  ///< a launch each, fewer as the plan tells, as the bytes allow, as the forecast counts
};

/// Of a GPU: all steps as one segment, tables without an end.
Launches launches_of(const PlacedGraph& plan) {
  Launches out;
  const BoundPlan bound(plan);
  const std::vector<int> joint = joint_steps(plan);
  std::vector<const Step*> steps;
  std::vector<Joining> joining;
  std::set<int> places, numbers;
  for (auto [s, k] : legal_order(bound))
    if (const Step& step = bound.streams[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)]; plan.cluster.devices[static_cast<std::size_t>(step.device)].id.kind == "gpu") {
      const int number = joint[static_cast<std::size_t>(step.node)];
      steps.push_back(&step);
      joining.push_back({number, 1000});
      out.planned += number < 0 || numbers.insert(number).second;
    }
  for (int at : joined(precedence(steps), joining)) places.insert(at);
  out.steps = static_cast<int>(steps.size());
  out.recorded = static_cast<int>(places.size());
  for (const ForecastLaunch& l : forecast(plan).launches) out.forecast += l.fixed > 0 && plan.cluster.devices[static_cast<std::size_t>(l.device)].id.kind == "gpu";
  return out;
}

/// Nothing lies where it would keep small steps from being one launch: so many are recorded as the plan tells, and forecast.
TEST(SmallSteps, are_launched_together_whatever_lies_where) {
  struct Net {
    const char* name;
    DType precision;
    int fewer;
  };
  for (const Net& n : {Net{"mobilenet_v2", bf16, 290}, {"transformer", bf16, 50}, {"resnet50", bf16, 300}, {"resnet50", f16, 850}}) {
    const Launches got = launches_of(on_gpu(n.name, n.precision, true, 2));
    EXPECT_LE(got.planned, got.steps - n.fewer) << n.name;
    EXPECT_EQ(got.recorded, got.planned) << n.name << ", " << name_of(n.precision);
    EXPECT_EQ(got.forecast, got.planned) << n.name << ", " << name_of(n.precision);
  }
}

/// In inference they are made once: scales and shifts of norms, filters that take them up, reshapes and casts.
TEST(SmallSteps, of_inference_are_in_no_step) {
  for (const auto& [precision, once] : {std::pair{f32, 174}, {bf16, 176}}) {
    const PlacedGraph plan = on_gpu("mobilenet_v2", precision, false, 2);
    int all = 0, made_once = 0;
    for (const PlanNode& n : plan.nodes) {
      const std::vector<int> on = all_devices(plan, n);
      all += n.scope != Scope::state && std::any_of(on.begin(), on.end(), [&](int d) { return plan.cluster.devices[static_cast<std::size_t>(d)].id.kind == "gpu"; });
      made_once += n.once;
    }
    EXPECT_EQ(made_once, once);
    const Launches got = launches_of(plan);
    EXPECT_EQ(got.steps, all - once);
    EXPECT_EQ(got.recorded, got.planned);
    EXPECT_EQ(got.forecast, got.planned);
  }
}

}  // namespace
}  // namespace belfry::test
