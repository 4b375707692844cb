#include "from_file.h"

#include <gtest/gtest.h>

#include <string>

#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/placer/place.h>

namespace belfry::test {

void expect_same_from_file(const PlacedGraph& plan) {
  const std::string text = write_plan(plan);
  const PlacedGraph again = read_plan(text, "plan.json", plan.graph->shared_ops());
  EXPECT_TRUE(write_plan(again) == text);
  EXPECT_TRUE(verify(again).empty());
  EXPECT_EQ(arithmetic_hash(again), plan.arithmetic_hash);
  PlaceOptions options;
  options.groups = [&](const Graph& g) { return groups_of(again, g); };
  options.kernels = chooser({{"cpu", cpu_kernels()}, {"sim", cpu_kernels()}});
  EXPECT_TRUE(write_plan(place(again.graph, placement_of(again), again.cluster, options)) == text);
}

}  // namespace belfry::test
