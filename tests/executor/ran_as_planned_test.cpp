#include <gtest/gtest.h>

#include <belfry/graph/structural.h>

#include "plans.h"
#include "ran_as_planned.h"

namespace belfry::test {
namespace {

std::shared_ptr<PlacedGraph> planned() {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  return std::make_shared<PlacedGraph>(place(graph, to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .towers = 2, .threads = 1}), sim_cluster(2), 4));
}

/// Runs `ran` and asks whether it was `plan`.
testing::AssertionResult ran(const PlacedGraph& plan, std::shared_ptr<const PlacedGraph> ran) {
  Program program(std::move(ran), reference_kernels());
  Runner runner(program);
  for (const auto& [name, value] : state_for(*plan.graph)) program.set_state(name, value);
  Tensors feeds = feeds_for(*plan.graph, plan.batch);
  Outcome outcome = runner.run(views(feeds), {.trace = true});
  if (outcome.error) std::rethrow_exception(outcome.error);
  return ran_as_planned(plan, program, runner.trace());
}

bool says(const testing::AssertionResult& result, const std::string& what) { return !result && std::string(result.message()).find(what) != std::string::npos; }

TEST(RanAsPlanned, holds_for_the_plan_itself) {
  auto plan = planned();
  EXPECT_TRUE(ran(*plan, plan));
}

/// The first copy once more behind all else, with bytes of its own.
void copy_once_more(PlacedGraph& plan) {
  PlanNode again = *std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.op == kCopy && n.scope == Scope::shared; });
  PlanValue value = plan.value(again.outputs[0]);
  again.name = value.name = "once_more";
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (Slot& s : again.by_group[g].outputs)
      if (s.region == Slot::kRegion) {
        s.offset = plan.groups[g].region;
        plan.groups[g].region += s.stride;
      }
  for (const PlanNode& n : plan.nodes) again.order = std::max(again.order, n.order + 1);
  again.outputs = {static_cast<ValueIndex>(plan.values.size())};
  plan.values.push_back(value);
  plan.nodes.push_back(again);
  reindex(plan);
}

TEST(RanAsPlanned, fails_for_an_extra_copy) {
  auto plan = planned(), more = planned();
  copy_once_more(*more);
  EXPECT_TRUE(ran(*more, more));
  EXPECT_TRUE(says(ran(*plan, more), "ran once_more as its step"));
}

TEST(RanAsPlanned, fails_for_bytes_and_memory_that_are_not_planned) {
  auto plan = planned(), wider = planned();
  for (DeviceGroup& g : wider->groups) g.region += 64;
  EXPECT_TRUE(says(ran(*plan, wider), "bytes, planned are"));
  // The same nodes by name, but one value has twice the bytes that go over a link.
  auto heavy = planned();
  const PlanNode& copy = *std::find_if(heavy->nodes.begin(), heavy->nodes.end(), [](const PlanNode& n) { return n.op == kCopy; });
  for (ValueIndex v : {copy.inputs[0], copy.outputs[0]}) heavy->values[static_cast<std::size_t>(v)].type.shape.push_back(2);
  EXPECT_TRUE(says(ran(*heavy, plan), "planned are"));
}

}  // namespace
}  // namespace belfry::test
