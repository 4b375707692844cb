#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>

#include <fmt/format.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/describe_slow.h>
#include <belfry/frontends/nn/layers.h>
#include <belfry/frontends/session/session.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A running sum down the rows needs all of them; "lost" is read by no loss.
Graph slow_net(bool slow) {
  Builder b("slow");
  Value x = b.input("x", f32, {kBatch, 64});
  Value y = nn::dense(x, {.units = 64, .name = "layer"});
  if (slow) {
    y = y + cumsum(y, {.axis = 0});
    b.metric("lost", mean(nn::dense(x, {.units = 3, .name = "lost"})));
  }
  b.minimize(mean(square(y)), Sgd{.learning_rate = 0.1});
  return std::move(b).build();
}

std::string said_of(bool slow, const Strategy& s, std::shared_ptr<const Library> library = standard_library()) {
  SessionOptions o;
  o.cores = 2;
  o.library = std::move(library);
  return describe_slow(Session(slow_net(slow), s, o).plan(32));
}

const Strategy two_cpus = to_strategy(Towers{.devices = parse_devices("cpu:0,cpu:1")});

TEST(DescribeSlow, has_nothing_to_say_of_a_plan_that_is_as_it_should_be) { EXPECT_EQ(said_of(false, two_cpus), ""); }

TEST(DescribeSlow, names_joined_rows_and_untrained_variables) {
  const std::string text = said_of(true, two_cpus);
  EXPECT_THAT(text, HasSubstr("rows of all towers are joined, "));
  EXPECT_THAT(text, HasSubstr("for ops that read them whole: cumsum"));
  EXPECT_THAT(text, HasSubstr("no loss depends on these variables, which stay as they are: lost/kernel, lost/bias"));
  EXPECT_THAT(text, Not(HasSubstr("reference")));
  EXPECT_THAT(text, Not(HasSubstr("memory spaces")));
}

TEST(DescribeSlow, counts_what_crosses) { EXPECT_THAT(said_of(false, to_strategy(Mirrored{.devices = parse_devices("sim:0,sim:1")})), HasSubstr("between memory spaces in each step: ")); }

TEST(DescribeSlow, names_a_few_links_of_many) {
  const PlacedGraph plan = Session(slow_net(false), to_strategy(Mirrored{.devices = parse_devices("sim:0-3")})).plan(32);
  const auto links = std::ssize(link_bytes(plan));
  ASSERT_GT(links, 5);
  const std::string text = describe_slow(plan);
  EXPECT_THAT(text, HasSubstr(fmt::format(" and {} more that carry no more\n", links - 5)));
  EXPECT_THAT(describe_slow(plan, false), Not(HasSubstr("between memory spaces")));
}

TEST(DescribeSlow, counts_threads_beside_cores) {
  SessionOptions options;
  options.cores = 2;
  auto said = [&](int threads) { return describe_slow(Session(slow_net(false), to_strategy(Single{.threads = threads}), options).plan(32)); };
  EXPECT_THAT(said(3), HasSubstr("3 threads a tower take turns on 2 cores\n"));
  EXPECT_THAT(said(2), Not(HasSubstr("take turns")));
}

/// GPUs have no kernel for exp; the reason of the plan's nodes is not asked.
TEST(DescribeSlow, names_what_the_host_computes_for_gpus) {
  Builder b("left");
  b.metric("y", tanh(exp(tanh(b.input("x", f32, {kBatch, 64})))));
  auto graph = std::make_shared<const Graph>(std::move(b).build());
  const DeviceId gpu{0, "gpu", 0, -1};
  auto said = [&](const char* lacks) {
    auto kernel = [=](const KernelQuery& q) { return KernelChoice{q.device_kind == "gpu" && q.node.op == lacks ? "reference" : "simd", 0, true}; };
    PlacedGraph plan = place(graph, to_strategy(Single{.device = gpu}), local_cluster({gpu, cpu(0)}, 2), 32, {.fetches = {{"y", graph->metrics.at("y")}}, .kernels = kernel});
    for (PlanNode& n : plan.nodes) n.reason = "";
    return describe_slow(plan);
  };
  EXPECT_THAT(said("exp"), HasSubstr("the host computes what GPUs read or have made, with the copies that this takes: exp\n"));
  EXPECT_THAT(said("none"), Not(HasSubstr("the host computes")));
}

TEST(DescribeSlow, names_nodes_without_a_kernel) {
  auto bare = std::make_shared<Library>(*standard_library());
  for (auto& [kind, table] : bare->kernels) {
    KernelTable rest;
    for (const Kernel& k : table.all())
      if (k.op != "matmul") rest.add(k);
    table = rest;
  }
  const std::string text = said_of(false, two_cpus, bare);
  EXPECT_THAT(text, HasSubstr("matmul has no kernel for these values and runs as its reference, on one thread: layer/"));
  EXPECT_THAT(text, Not(HasSubstr("sgd")));
}

TEST(Describe, says_why_a_cut_leaves_devices_out) {
  const auto said = [](const std::string& devices) {
    Session session(slow_net(false), to_strategy(Layers{.devices = parse_devices(devices)}));
    return describe(session.plan(32), {.nodes = false});
  };
  EXPECT_THAT(said("sim:0-30"), testing::AllOf(HasSubstr(" of 31 devices, since no cut over more has a smaller max-load: sim:"), HasSubstr(" and what must be with it, ")));
  EXPECT_THAT(said("sim:0"), Not(HasSubstr("devices, since")));
}

}  // namespace
}  // namespace belfry::test
