#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <belfry/belfry.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/graph/structural.h>

#include "environment.h"
#include "nets.h"
#include "op_case.h"
#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// The convolutional net on two towers, its plan for eight rows, and feeds.
struct Given {
  explicit Given(bool fuse = true)
      : graph(net_named("mnist_cnn").build(standard_library()->ops)), maker(graph, Towers{.devices = parse_devices("cpu:0,cpu:1"), .threads = 1}, {.fuse = fuse}), plan(maker.plan(8)) {}

  Session session() {
    return Session::from_plan(std::make_shared<const PlacedGraph>(plan), {.notice = [this](const std::string& text) { notices.push_back(text); }});
  }
  std::map<std::string, HostTensor> feeds(std::int64_t batch) const { return feeds_for(graph, batch); }

  Graph graph;
  Session maker;
  PlacedGraph plan;
  std::vector<std::string> notices;
};

void name_kernels(PlacedGraph& plan, const std::string& op, const std::string& kernel) {
  for (PlanNode& n : plan.nodes)
    if (n.op == op)
      for (auto* variants : {&n.by_class, &n.by_group})
        for (Variant& v : *variants)
          if (!v.kernel.empty()) v.kernel = kernel;
}

std::map<std::string, std::set<std::string>> kernels_of(const PlacedGraph& plan) {
  std::map<std::string, std::set<std::string>> out;
  for (const PlanNode& n : plan.nodes)
    if (n.def || n.op == kFused)
      for (const auto* variants : {&n.by_class, &n.by_group})
        for (const Variant& v : *variants)
          if (!v.kernel.empty()) out[n.name].insert(v.kernel);
  return out;
}

std::set<std::string> fused(const PlacedGraph& plan) {
  std::set<std::string> out;
  for (const PlanNode& n : plan.nodes)
    if (n.op == kFused) out.insert(n.name);
  return out;
}

/// With kernels that no table would choose, and one host thread for all streams.
Given edited() {
  Given given;
  for (const char* op : {"max_pool2d", "matmul", "sparse_softmax_cross_entropy", "adam"}) name_kernels(given.plan, op, kReferenceKernel);
  for (PlanStream& s : given.plan.streams) s.thread = 0;
  given.plan.arithmetic_hash = arithmetic_hash(given.plan);
  return given;
}

TEST(GivenPlan, is_what_steps_and_fit_run) {
  Given given = edited();
  auto plan = std::make_shared<const PlacedGraph>(given.plan);
  Session session = Session::from_plan(plan, {.notice = [&](const std::string& text) { given.notices.push_back(text); }});
  session.step(given.feeds(8));
  EXPECT_EQ(&session.last_program()->plan(), plan.get());
  Results loss = session.step(given.feeds(8), {"loss"});
  EXPECT_EQ(&session.last_program()->plan(), plan.get());
  EXPECT_EQ(loss.all().size(), 1u);
  DataSet data{given.feeds(16)};
  fit(session, data, {.batch = 8});
  EXPECT_EQ(&session.last_program()->plan(), plan.get());
  EXPECT_THAT(given.notices, testing::IsEmpty());
}

TEST(GivenPlan, that_was_edited_goes_by_the_arithmetic_that_it_has) {
  const Given given = edited();
  PlacedGraph stale = given.plan;
  stale.arithmetic_hash = "of before";
  EXPECT_EQ(Session::from_plan(std::make_shared<const PlacedGraph>(stale)).plan(8).arithmetic_hash, given.plan.arithmetic_hash);
}

TEST(GivenPlan, lends_its_kernels_threads_and_groups_to_run_and_to_other_fetches) {
  Given given = edited();
  Session session = given.session();
  const auto want = kernels_of(given.plan);
  session.run(given.feeds(8));
  PlacedGraph run = session.last_program()->plan();
  EXPECT_TRUE(run.updates.empty());
  EXPECT_EQ(fused(run), fused(given.plan));
  for (const auto& [node, kernels] : kernels_of(run)) EXPECT_EQ(kernels, want.at(node)) << node;
  EXPECT_THAT(kernels_of(run).at("max_pool2d"), Contains(kReferenceKernel));
  for (const PlanStream& s : run.streams) EXPECT_EQ(s.thread, 0);
  EXPECT_THAT(given.notices, testing::ElementsAre(HasSubstr("derived from its decisions: without its updates")));

  std::vector<std::string> more = session.default_fetches(Mode::step);
  more.push_back("gradient/dense/kernel");
  session.step(given.feeds(8), more);
  const PlacedGraph& other = session.last_program()->plan();
  EXPECT_EQ(kernels_of(other), want);
  EXPECT_EQ(other.arithmetic_hash, arithmetic_hash(given.plan));
  EXPECT_THAT(given.notices.back(), HasSubstr("fetching gradient/dense/kernel besides"));
}

TEST(GivenPlan, decides_the_groups_of_other_batches_and_of_inference) {
  for (bool fuse : {true, false}) {
    Given given(fuse);
    EXPECT_EQ(fused(given.plan).empty(), !fuse);
    Session session = given.session();
    session.step(given.feeds(5));
    EXPECT_EQ(fused(session.last_program()->plan()), fused(given.plan));
    EXPECT_THAT(given.notices.back(), HasSubstr("5 rows instead of 8"));
    session.predict(given.feeds(8));
    EXPECT_EQ(fused(session.last_program()->plan()).empty(), !fuse);
    EXPECT_THAT(given.notices.back(), HasSubstr("the graph for inference"));
  }
}

TEST(GivenPlan, from_its_file_trains_to_the_same_bits_with_a_short_last_batch) {
  for (bool fuse : {true, false}) {
    Given given(fuse);
    DataSet data{given.feeds(20)};
    fit(given.maker, data, {.batch = 8, .epochs = 2});
    auto read = std::make_shared<const PlacedGraph>(read_plan(write_plan(given.plan), "plan.json", given.graph.shared_ops()));
    Session session = Session::from_plan(read);
    fit(session, data, {.batch = 8, .epochs = 2});
    EXPECT_EQ(session.state(), given.maker.state());
  }
}

TEST(GivenPlan, of_batch_norm_over_the_whole_batch_serves_by_the_running_statistics) {
  for (bool updated : {true, false}) {
    Builder b("net");
    Value x = b.input("x", f32, {kBatch, 2});
    auto kept = [&](const char* name, const char* init) { return b.variable(name, {2}, {.init = init, .trainable = false}); };
    Value y = updated ? nn::batch_norm(x, {.momentum = 0.9, .sync = true}) : batch_norm(x, {}, {}, kept("mean", "zeros"), kept("variance", "ones"), {.sync = true});
    b.output(identity(y, "normalised"));
    b.minimize(mean(square(y * b.variable("w", {2}, {.init = "ones"}))), Sgd{.learning_rate = 0.1});
    const Graph graph = std::move(b).build();
    Session trained(graph, Towers{.devices = parse_devices("cpu:0,cpu:1"), .threads = 1});
    const HostTensor rows = HostTensor::of<float>({4, 2}, {1, 2, 3, 7, 2, -5, 8, 1});
    Session given = Session::from_plan(std::make_shared<const PlacedGraph>(read_plan(write_plan(trained.plan(4)), "plan.json", graph.shared_ops())));
    for (Session* s : {&trained, &given}) s->step({{"x", rows}});
    EXPECT_EQ(given.state(), trained.state());
    const HostTensor got = given.predict({{"x", rows}}, {"normalised"})["normalised"];
    EXPECT_LE(distance(got, trained.predict({{"x", rows}}, {"normalised"})["normalised"]), 1e-6) << updated;
    if (!updated) {
      EXPECT_LE(std::abs(got.data<float>()[3] - 7 / std::sqrt(1.001F)), 1e-5F);
    }
  }
}

/// The second of two towers has no row, so nobody asks for its GPU.
TEST(GivenPlan, of_one_row_wants_no_device_but_its_rows) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  Cluster cluster = sim_cluster(1);
  cluster.devices.push_back({parse_device("gpu:0"), "gpu:0", 1});
  const Strategy both = to_strategy(Towers{.devices = parse_devices("sim:0,gpu:0"), .variables = cpu(0), .towers = 2, .threads = 1});
  auto plan = std::make_shared<const PlacedGraph>(place(graph, both, cluster, 1, {.fetches = fetches_of(*graph)}));
  Environment environment;
  environment.set("BELFRY_CUDA_BACKEND", "/nowhere/libbelfry_cuda.so");
  Session session = Session::from_plan(plan);
  EXPECT_NO_THROW(session.step(feeds_for(*graph, 1)));
  EXPECT_TRUE(says([&] { session.plan(8); }, {"is placed on a device of kind 'gpu', for which there are no kernels", "/nowhere/"}));
}

TEST(GivenPlan, of_one_row_has_stand_ins_for_its_rows_or_for_all_its_towers) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  const Strategy strategy = to_strategy(Towers{.devices = sims(3), .variables = cpu(0), .towers = 3, .threads = 1});
  auto plan = std::make_shared<const PlacedGraph>(place(graph, strategy, sim_cluster(3), 1, {.fetches = fetches_of(*graph)}));
  auto towers_on = [&](const char* devices) {
    const PlacedGraph many = Session::placed_anew(plan, {.devices = parse_devices(devices)}).plan(7);
    const auto relu = std::find_if(many.nodes.begin(), many.nodes.end(), [](const PlanNode& n) { return n.op == "relu" || n.op == kFused; });
    std::vector<std::string> out;
    for (int d : many.devices(*relu)) out.push_back(to_string(many.cluster.devices[static_cast<std::size_t>(d)].id));
    return out;
  };
  EXPECT_THAT(towers_on("sim:7"), testing::ElementsAre("sim:7", "sim:7", "sim:7"));
  EXPECT_THAT(towers_on("sim:7,sim:5,sim:6"), testing::ElementsAre("sim:7", "sim:5", "sim:6"));
  EXPECT_TRUE(says([&] { towers_on("sim:7,sim:8"); }, {"the plan's nodes, and towers without rows, are on sim:0-2; name 3 devices in place of these"}));
}

TEST(GivenPlan, that_does_not_hold_is_refused_at_once) {
  Given given;
  given.plan.streams[0].thread = 99;
  EXPECT_TRUE(says([&] { given.session(); }, {"the plan does not hold: thread:", "belfry place"}));
  given.plan.streams[0].thread = 0;
  name_kernels(given.plan, "max_pool2d", "nonsense");
  EXPECT_TRUE(says([&] { given.session(); }, {"the plan does not hold: no kernel: 'max_pool2d", "' names 'nonsense' on cpu:", "but max_pool2d has none of that name there", "belfry place"}));
}

TEST(GivenPlan, placed_anew_keeps_devices_and_groups_and_chooses_kernels) {
  for (bool fuse : {true, false}) {
    Given given(fuse);
    auto want = kernels_of(given.plan);
    name_kernels(given.plan, "max_pool2d", kReferenceKernel);
    auto plan = std::make_shared<const PlacedGraph>(given.plan);
    Session anew = Session::placed_anew(plan);
    EXPECT_EQ(kernels_of(anew.plan(8)), want);
    EXPECT_EQ(fused(anew.plan(8)), fused(given.plan));
    Session moved = Session::from_plan(plan, {.rules = {{"tower_1/**", {cpu(0)}, "moved"}}});
    const PlacedGraph& there = moved.plan(8);
    for (const PlanNode& n : there.nodes) EXPECT_TRUE(n.scope != Scope::tower || there.device_of(n, 1) == 0) << n.name;
  }
}

}  // namespace
}  // namespace belfry::test
