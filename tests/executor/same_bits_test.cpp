#include <gtest/gtest.h>

#include <iostream>

#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/ops/cpu_kernels.h>

#include "all_groups.h"
#include "plans.h"
#include "ran_as_planned.h"

namespace belfry::test {
namespace {

constexpr int kSteps = 50;

struct Layout {
  std::string name;
  Strategy strategy;
};
struct Pair {
  int towers;
  std::int64_t batch;
  std::string devices;
};

/// Every way to lay T towers over the devices.
std::vector<Layout> layouts(const Pair& p) {
  std::vector<DeviceId> d = parse_devices(p.devices);
  std::vector<Layout> out;
  out.push_back({"variables on cpu:0", to_strategy(Towers{.devices = d, .variables = cpu(0), .towers = p.towers, .threads = 1})});
  out.push_back({"variables on cpu:1", to_strategy(Towers{.devices = d, .variables = cpu(1), .towers = p.towers, .threads = 1})});
  out.push_back({"mirrored", to_strategy(Mirrored{.devices = d, .towers = p.towers, .threads = 1})});
  if (d.size() > 1) out.push_back({"sharded", to_strategy(Sharded{.devices = d, .towers = p.towers, .threads = 1})});
  if (d.size() > 1)
    for (PhaseOrder order : {PhaseOrder::by_tower, PhaseOrder::gpipe, PhaseOrder::one_f_one_b})
      out.push_back({"layers, " + to_string(order), to_strategy(Layers{.devices = d, .towers = p.towers, .order = order, .threads = 1, .cut = LayerCut::variables})});
  return out;
}

const std::vector<Pair> kPairs = {{4, 8, "cpu:0"}, {4, 8, "cpu:0,cpu:1"}, {4, 8, "cpu:0-3"}, {4, 8, "sim:0-3"}, {6, 12, "cpu:0-1"}, {6, 12, "cpu:0-2"}, {2, 7, "cpu:0"}, {2, 7, "cpu:0-1"}};

/// All variables after the steps.
Tensors train(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, std::vector<DeviceId> devices, std::int64_t batch, int steps = kSteps) {
  for (const DeviceId& id : strategy.devices)
    if (!std::count(devices.begin(), devices.end(), id)) devices.push_back(id);
  for (NodeId id = 0; id < graph->size(); ++id)
    if (auto asked = graph->node(id).device; asked && !std::count(devices.begin(), devices.end(), *asked)) devices.push_back(*asked);
  auto plan = std::make_shared<const PlacedGraph>(place(graph, strategy, local_cluster(devices, 2), batch, {.kernels = chooser(kernels()), .groups = all_groups}));
  auto objections = verify(*plan);
  EXPECT_TRUE(objections.empty()) << objections[0];
  Program program(plan, kernels());
  Runner runner(program);
  for (const auto& [name, value] : state_for(*graph)) program.set_state(name, value);
  for (int k = 0; k < steps; ++k) {
    Tensors feeds = feeds_for(*graph, batch, static_cast<std::uint64_t>(k));
    Outcome o = runner.run(views(feeds), {.trace = k == steps - 1});
    if (o.error) std::rethrow_exception(o.error);
  }
  EXPECT_TRUE(ran_as_planned(*plan, program, runner.trace()));
  Tensors out;
  for (NodeId id : graph->variables()) {
    const std::string& name = graph->node(id).name;
    out.emplace(name, program.state(name));
    EXPECT_TRUE(program.holders_agree(name)) << name;
  }
  return out;
}

Graph without_scopes(Graph graph) {
  for (NodeId id = 0; id < graph.size(); ++id) graph.edit(id).device.reset();
  return graph;
}

class SameBits : public testing::TestWithParam<std::string> {};

TEST_P(SameBits, in_all_variables_after_fifty_steps_wherever_the_towers_are) {
  Graph built = training_graph(net(GetParam()), f32);
  auto graph = std::make_shared<const Graph>(built), plain = std::make_shared<const Graph>(without_scopes(built));
  std::map<std::pair<int, std::int64_t>, Tensors> single;
  int held = 0;
  for (const Pair& p : kPairs) {
    auto [at, fresh] = single.try_emplace({p.towers, p.batch});
    if (fresh) at->second = train(plain, to_strategy(Single{.device = cpu(0), .towers = p.towers, .threads = 1}), {cpu(0)}, p.batch);
    for (const Layout& l : layouts(p)) {
      Tensors got = train(graph, l.strategy, parse_devices(p.devices), p.batch);
      for (const auto& [name, value] : at->second)
        EXPECT_TRUE(got.at(name) == value) << GetParam() << ": T " << p.towers << ", B " << p.batch << " on " << p.devices << ", " << l.name << ": variable " << name << " differs from single";
      ++held;
      if (HasFailure()) return;
    }
  }
  std::cout << GetParam() << ": " << held << " layouts\n";
}

std::vector<std::string> all_names() {
  std::vector<std::string> out;
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list) out.push_back(n.name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(EveryNet, SameBits, testing::ValuesIn(all_names()), [](const auto& info) { return info.param; });

TEST(SameBits, hold_with_two_threads_a_tower) {
  // Wide enough that the kernels divide their work.
  Builder b("wide");
  Value x = b.input("x", f32, {kBatch, 24, 24, 3});
  Value h = relu(conv2d(x, b.variable("c", {5, 5, 3, 32}, {.init = "glorot_uniform"}), {.padding = "same"}) + b.variable("d", {32}));
  h = batch_norm(h, b.variable("scale", {32}, {.init = "ones"}), b.variable("offset", {32}), b.variable("mean", {32}, {.trainable = false}),
                 b.variable("variance", {32}, {.init = "ones", .trainable = false}));
  h = matmul(reshape(max_pool2d(h), {kBatch, 12 * 12 * 32}), b.variable("w", {12 * 12 * 32, 64}, {.init = "glorot_uniform"}));
  b.minimize(mean(square(h)), Momentum{.learning_rate = 1e-4});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  auto with = [&](const char* devices, int threads) {
    auto d = parse_devices(devices);
    return train(graph, to_strategy(Towers{.devices = d, .variables = cpu(0), .towers = 2, .threads = threads}), d, 14, 10);
  };
  Tensors want = with("cpu:0", 2);
  for (const char* devices : {"cpu:0,cpu:1", "sim:0-1"}) EXPECT_TRUE(same_bits(with(devices, 2), want)) << devices;
}

TEST(SameBits, are_not_those_of_another_number_of_towers) {
  auto graph = std::make_shared<const Graph>(training_graph(net("accuracy"), f32));
  auto with = [&](int T) { return train(graph, to_strategy(Single{.device = cpu(0), .towers = T, .threads = 1}), {cpu(0)}, 8); };
  EXPECT_FALSE(same_bits(with(4), with(3)));
}

}  // namespace
}  // namespace belfry::test
