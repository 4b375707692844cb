// Which launches of whole nets are one, by their generated texts: no device, nothing is compiled.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/joint_launch.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/plan/lanes.h>
#include <belfry/graph/plan/small_steps.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/place.h>
#include <belfry/placer/strategies/strategies.h>

#include "net_kernels.h"

namespace belfry::test {
namespace {

PlacedGraph on_gpu(const std::string& net, DType precision, bool training, const KernelTable& generated) {
  Graph source = net_named(net).build(std::make_shared<const OpSet>(standard_ops()), {});
  source.precision = precision;
  std::vector<std::string> outputs;
  for (ValueId v : source.outputs) outputs.push_back(source.name_of(v));
  auto graph = std::make_shared<const Graph>(training ? run_passes(training_passes(), source) : run_passes(inference_passes(), for_serving(source, outputs)));
  Cluster cluster;
  cluster.devices.push_back({parse_device("gpu:0"), "gpu:0", 1});
  cluster.devices.push_back({cpu(0), "host", 1});
  PlaceOptions options;
  options.updates = training;
  options.groups = find_gpu_groups;
  for (const std::string& name : outputs)
    if (auto v = graph->find(name)) options.fetches.emplace_back(name, *v);
  options.kernels = [choose = chooser({{"gpu", generated}})](const KernelQuery& q) {  // libraries have the others
    const KernelChoice c = choose(q);
    return c.name == kReferenceKernel ? KernelChoice{"a_library", 0, true} : c;
  };
  return place(graph, to_strategy(Single{.device = parse_device("gpu:0"), .threads = 1}), cluster, 2, options);
}

/// Prepared as a program does it.
std::unique_ptr<Prepared> prepare(const PlacedGraph& plan, const PlanNode& n, const KernelTable& table) {
  KernelRequest r;
  r.share = plan.share(-1);
  r.op = n.op == kFused ? n.attributes.text("kind") : n.op;
  r.def = n.def;
  r.attributes = &n.attributes;
  for (ValueIndex v : n.inputs) r.inputs.push_back(v < 0 ? LocalType{f32, {0}} : local_type(plan.value(v), r.share));
  for (ValueIndex v : n.outputs) {
    r.outputs.push_back(local_type(plan.value(v), r.share));
    r.output_types.push_back(plan.value(v).type);
    r.wanted.push_back(plan.value(v).read);
  }
  if (const std::optional<FusionGroup> group = group_of(plan, n)) describe_members(*plan.graph, *group, r);
  const KernelTable::Choice choice = table.choose(r);
  return table.prepare(choice.name, r, {choice.support.scratch_bytes, false});
}

/// What a plan takes for alike has one text, and ten steps or more are one launch.
TEST(JointKernels, of_steps_that_plans_take_for_alike_have_one_text) {
  auto code = std::make_shared<CollectedTexts>();
  const KernelTable table = generated_kernels(code);
  struct Net {
    const char* name;
    DType precision;
    bool training;
  };
  for (const Net& net : {Net{"mobilenet_v2", f32, false}, {"mobilenet_v2", bf16, false}, {"mobilenet_v2", bf16, true}, {"transformer", bf16, true}, {"resnet50", f32, true}, {"resnet50", bf16, true}, {"resnet50", f16, true}}) {
    const PlacedGraph plan = on_gpu(net.name, net.precision, net.training, table);
    const std::vector<int> joint = joint_steps(plan);
    std::map<int, const void*> kinds;
    std::map<int, int> members, most;
    int steps = 0, launches = 0;
    for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
      if (joint[i] < 0) continue;
      const std::unique_ptr<Prepared> kernel = prepare(plan, plan.nodes[i], table);
      auto* jointly = dynamic_cast<LaunchesJointly*>(kernel.get());
      ASSERT_NE(jointly, nullptr) << net.name << ": " << plan.nodes[i].name;
      EXPECT_EQ(kinds.try_emplace(joint[i], jointly->kind()).first->second, jointly->kind()) << net.name << ": " << plan.nodes[i].name;
      most[joint[i]] = jointly->most();
      launches += members[joint[i]]++ % jointly->most() == 0;
      ++steps;
    }
    EXPECT_LE(10 * launches, steps) << net.name;
  }
}

}  // namespace
}  // namespace belfry::test
