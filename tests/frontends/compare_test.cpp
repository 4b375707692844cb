#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include <belfry/belfry.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/frontends/session/compare.h>
#include <belfry/placer/diff.h>

#include "nets.h"
#include "ran_as_planned.h"
#include "says.h"

namespace belfry::test {
namespace {

struct Compared {
  explicit Compared(const std::string& name)
      : graph(built(name)), one(graph, Towers{.devices = parse_devices("cpu:0"), .towers = 4, .threads = 1}), two(graph, Mirrored{.devices = parse_devices("sim:0-3"), .towers = 4, .threads = 1}) {
    for (std::uint64_t k = 0; k < 3; ++k) data.push_back(feeds_for(graph, 10, k));
    for (const auto& d : data) feeds.emplace_back(d);
  }
  std::shared_ptr<const PlacedGraph> plan(Session& s) { return std::make_shared<const PlacedGraph>(s.plan(10)); }
  Graph graph;
  Session one, two;
  std::vector<std::map<std::string, HostTensor>> data;
  std::vector<Batch> feeds;
};

TEST(Compare, proves_equal_bits_of_every_value) {
  Compared c("batch_norm");
  Comparison r = compare(c.plan(c.one), c.plan(c.two), *standard_library(), c.feeds, c.one.state());
  EXPECT_FALSE(r.difference.has_value());
  EXPECT_EQ(r.first_hash, r.second_hash);
  EXPECT_EQ(r.steps, 3);
  EXPECT_GT(r.values, 300);
  EXPECT_TRUE(r.same_arithmetic());
}

TEST(Compare, names_the_first_node_that_one_changed_weight_reaches) {
  Compared c("accuracy");
  State changed = c.one.state();
  float& w = changed.at("in/w").data<float>()[5];
  w = std::bit_cast<float>(std::bit_cast<std::uint32_t>(w) + 4096);  // a bias rounds less away
  Comparison r = compare(c.plan(c.one), c.plan(c.two), *standard_library(), c.feeds, c.one.state(), changed);
  ASSERT_TRUE(r.difference.has_value());
  EXPECT_EQ(r.difference->node, "matmul");
  EXPECT_GE(r.difference->tower, 0);
  EXPECT_EQ(r.difference->step, 0);
  EXPECT_GE(r.difference->ulps, 1u);
  EXPECT_NE(r.first_hash, r.second_hash);
}

TEST(Compare, takes_the_hashes_of_the_plans_as_they_are) {
  Compared c("accuracy");
  PlacedGraph edited = c.one.plan(10);
  for (PlanNode& n : edited.nodes)
    if (n.op == "matmul")
      for (Variant& v : n.by_class) v.kernel = kReferenceKernel;
  Comparison r = compare(c.plan(c.one), std::make_shared<const PlacedGraph>(edited), *standard_library(), c.feeds, c.one.state());
  EXPECT_EQ(r.first_arithmetic, c.one.plan(10).arithmetic_hash);
  EXPECT_NE(r.second_arithmetic, edited.arithmetic_hash);
  EXPECT_FALSE(r.same_arithmetic());
}

/// Two towers of one class, then of a class each, as a hand may have split it.
TEST(Compare, knows_plans_apart_in_which_other_towers_run_a_kernel) {
  Session session(built("accuracy"), Towers{.devices = parse_devices("cpu:0-1"), .threads = 1});
  const PlacedGraph whole = session.plan(8);
  PlacedGraph split = whole;
  ASSERT_EQ(whole.classes.size(), 1u);
  split.classes.push_back(split.classes[0]);
  split.classes[0].towers = {0}, split.classes[1].towers = {1};
  for (PlanNode& n : split.nodes)
    if (n.scope == Scope::tower) n.by_class.resize(2, whole.nodes[static_cast<std::size_t>(&n - split.nodes.data())].by_class[0]);
  EXPECT_EQ(arithmetic_hash(split), whole.arithmetic_hash);
  auto with_reference = [&](std::size_t cls) {
    PlacedGraph out = split;
    for (PlanNode& n : out.nodes)
      if (n.op == "matmul") n.by_class[cls].kernel = kReferenceKernel;
    return out;
  };
  EXPECT_NE(arithmetic_hash(with_reference(0)), arithmetic_hash(with_reference(1)));
  EXPECT_THAT(diff_plans(with_reference(0), with_reference(1)).follows, testing::Contains(testing::HasSubstr("reference in tower 1")));
}

TEST(Compare, says_what_it_did_not_compare) {
  Compared c("accuracy");
  auto plan = std::make_shared<const PlacedGraph>(c.one.plan(10, Mode::step, {"loss"}));
  const Comparison r = compare(plan, c.plan(c.two), *standard_library(), c.feeds, c.one.state()), same = compare(c.plan(c.one), c.plan(c.two), *standard_library(), c.feeds, c.one.state());
  EXPECT_THAT(r.apart, testing::AllOf(testing::Contains("accuracy"), testing::Not(testing::Contains("loss"))));
  EXPECT_FALSE(r.same_bits());
  EXPECT_TRUE(same.same_bits());
}

TEST(Compare, refuses_a_plan_that_does_not_hold) {
  Compared c("accuracy");
  PlacedGraph broken = c.one.plan(10);
  for (PlanNode& n : broken.nodes)
    for (Variant& v : n.by_class)
      for (Slot& s : v.outputs)
        if (s.region == Slot::kTransient || s.region == Slot::kKept) s.offset = std::int64_t{1} << 40;
  auto plan = std::make_shared<const PlacedGraph>(broken);
  EXPECT_TRUE(says([&] { compare(c.plan(c.one), plan, *standard_library(), c.feeds, c.one.state()); }, {"the second plan does not hold: outside"}));
  EXPECT_TRUE(says([&] { compare(plan, c.plan(c.one), *standard_library(), c.feeds, c.one.state()); }, {"the first plan does not hold: outside"}));
}

TEST(Compare, sees_a_holder_that_is_not_the_first) {
  Compared c("accuracy");
  auto library = std::make_shared<Library>(*standard_library());
  KernelTable table;
  auto made = std::make_shared<int>(0);
  table.add({"odd_momentum", "momentum", [](const KernelRequest&) { return Support{}; },
             [made](const KernelRequest& r) {
               std::shared_ptr<Prepared> real = KernelTable{}.prepare(kReferenceKernel, r);
               return prepared([real, made](const Arguments& a) {
                 real->launch(a);
                 if (++*made == 8) a.outputs[0][0] ^= std::byte{1};
               });
             }});
  for (const Kernel& k : library->kernels.at("cpu").all()) table.add(k);
  library->kernels["cpu"] = table;
  Session mirrored(c.graph, Mirrored{.devices = parse_devices("sim:0-1"), .towers = 4, .threads = 1}, {.library = library});
  Session one(c.graph, Single{.device = cpu(0), .towers = 4, .threads = 1});
  Comparison r = compare(c.plan(mirrored), c.plan(one), *library, c.feeds, one.state());
  ASSERT_TRUE(r.difference.has_value());
  EXPECT_THAT(r.difference->node, testing::StartsWith("momentum/"));
  EXPECT_EQ(r.difference->first_device, "sim:1");
  EXPECT_EQ(r.difference->second_device, "cpu:0");
}

TEST(Compare, puts_ranges_together_and_names_what_a_ring_adds) {
  Builder b("wide");
  Value x = b.input("x", f32, {kBatch, 24});
  b.minimize(mean(square(tanh(matmul(x, b.variable("w", {24, 60}, {.init = "glorot_uniform"}))))), Momentum{.learning_rate = 0.1});
  Graph graph = std::move(b).build();
  std::vector<std::map<std::string, HostTensor>> data = {feeds_for(graph, 10)};
  auto of = [&](Reduce way) { return Mirrored{.devices = parse_devices("sim:0-3"), .threads = 1, .reduction = way}; };
  Session one(graph, Single{.device = cpu(0), .towers = 4, .threads = 1}), tree(graph, of(Reduce::tree)), ring(graph, of(Reduce::ring));
  auto plan = [](Session& s) { return std::make_shared<const PlacedGraph>(s.plan(10)); };
  const std::vector<Batch> feeds(data.begin(), data.end());
  Comparison same = compare(plan(one), plan(tree), *standard_library(), feeds, one.state()), other = compare(plan(tree), plan(ring), *standard_library(), feeds, one.state());
  EXPECT_FALSE(same.difference.has_value());
  EXPECT_TRUE(same.same_arithmetic());
  EXPECT_FALSE(other.same_arithmetic());
  ASSERT_TRUE(other.difference.has_value());
  EXPECT_THAT(other.difference->node, testing::EndsWith(".aggregate"));
}

TEST(Compare, ulps_are_counted_through_zero) {
  EXPECT_EQ(ulp_distance(1.0f, 1.0f), 0u);
  EXPECT_EQ(ulp_distance(1.0f, std::nextafter(1.0f, 2.0f)), 1u);
  EXPECT_EQ(ulp_distance(-1.0, std::nextafter(-1.0, 0.0)), 1u);
  EXPECT_EQ(ulp_distance(std::nextafter(0.0f, 1.0f), std::nextafter(0.0f, -1.0f)), 2u);
}

TEST(Describe, the_text_of_a_plan_says_what_tower_code_does) {
  Graph graph = built("decay");
  Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1"), .variables = cpu(0)});
  std::string text = describe(session.plan(32), {.memory = true});
  EXPECT_THAT(text, testing::HasSubstr("global batch 32 = 16 + 16"));
  EXPECT_THAT(text, testing::HasSubstr("image.split0 = split(image)"));
  EXPECT_THAT(text, testing::HasSubstr("tower 0 on cpu:0, tower 1 on cpu:1; stream tower0, phase 0"));
  EXPECT_THAT(text, testing::ContainsRegex("aggregate = aggregate sum.*\n.*cpu:0; stream main"));
  EXPECT_THAT(text, testing::ContainsRegex("momentum/fc/w = momentum.*\n.*cpu:0.*writes fc/w; writes momentum_m/fc/w"));
  EXPECT_THAT(text, testing::HasSubstr("live maximum"));
}

TEST(Trace, has_a_track_per_stream_and_every_step) {
  Graph graph = built("decay");
  Session session(graph, Towers{.devices = parse_devices("cpu:0,cpu:1")});
  session.set_trace(true);
  session.step(feeds_for(graph, 8));
  EXPECT_RAN_AS_PLANNED(session);
  std::string text = chrome_trace(session.last_program()->bound(), session.trace());
  EXPECT_THAT(text, testing::HasSubstr("\"cpu:1 tower0\""));
  EXPECT_THAT(text, testing::HasSubstr("tower_1/matmul"));
}

}  // namespace
}  // namespace belfry::test
