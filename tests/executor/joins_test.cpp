#include <gtest/gtest.h>

#include <array>
#include <random>

#include <belfry/executor/collectives.h>
#include <belfry/executor/device/arena.h>
#include <belfry/executor/joins.h>
#include <belfry/graph/plan/collectives.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

TEST(Join, of_booleans_by_max_is_true_where_one_is_and_they_have_no_sum) {
  std::array<bool, 3> a{true, false, false}, b{false, false, true}, out{false, true, false};
  LocalType type{boolean, {3}};
  std::vector<JoinPart> parts{{0, 1, type}, {1, 2, type}};
  std::array data{reinterpret_cast<const std::byte*>(a.data()), reinterpret_cast<const std::byte*>(b.data())};
  Join({"max", 0, 2, 2, parts}, type)(data, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, (std::array<bool, 3>{true, false, true}));
  for (const char* how : {"sum", "mean"}) EXPECT_TRUE(says([&] { Join({how, 0, 2, 2, parts}, type); }, {std::string("booleans have no ") + how}));
}

TEST(Join, adds_along_the_tree_whatever_parts_were_added_before) {
  constexpr int kTowers = 7;
  constexpr std::size_t kCount = 1100;  // several blocks and a rest
  LocalType type{f32, {kCount}};
  std::mt19937 rng(5);
  std::vector<std::vector<float>> x(kTowers, std::vector<float>(kCount));
  for (auto& t : x)
    for (float& v : t) v = static_cast<float>(rng()) * 1e-3f;
  auto joined = [&](int low, int high) {
    std::vector<JoinPart> parts;
    std::vector<const std::byte*> data;
    for (int t = low; t < high; ++t) parts.push_back({t - low, t - low + 1, type}), data.push_back(reinterpret_cast<const std::byte*>(x[static_cast<std::size_t>(t)].data()));
    std::vector<float> out(kCount);
    Join({"sum", 0, high - low, high - low, parts}, type)(data, reinterpret_cast<std::byte*>(out.data()));
    return out;
  };
  std::vector<float> whole = joined(0, kTowers), a = joined(0, 4), b = joined(4, 6), out(kCount), tree(kCount);
  std::array data{reinterpret_cast<const std::byte*>(a.data()), reinterpret_cast<const std::byte*>(b.data()), reinterpret_cast<const std::byte*>(x[6].data())};
  Join({"sum", 0, kTowers, kTowers, {{0, 4, type}, {4, 6, type}, {6, 7, type}}}, type)(data, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, whole);
  for (std::size_t i = 0; i < kCount; ++i) tree[i] = ((x[0][i] + x[1][i]) + (x[2][i] + x[3][i])) + ((x[4][i] + x[5][i]) + x[6][i]);
  EXPECT_EQ(whole, tree);
}

TEST(Arena, that_finds_no_room_names_its_space_and_bytes) {
  EXPECT_TRUE(says<DeviceError>([] { Arena(std::int64_t{1} << 60, "sim:3"); }, {"1152921504606846976 bytes", "'sim:3'", "smaller batch"}));
}

/// What a library must be told in one order by all, each from a thread of its own.
TEST(Collectors, that_come_in_other_orders_are_stuck_and_threads_that_serve_two_gpus_are_refused) {
  const std::vector<DeviceId> gpus = parse_devices("gpu:0-1");
  auto graph = std::make_shared<const Graph>(training_graph(net("tied")));
  PlacedGraph plan = place(graph, to_strategy(Mirrored{.devices = gpus, .threads = 1, .collectives = Collectives::fastest}), local_cluster({gpus[0], gpus[1], cpu(0)}, 2), 8);
  auto open = [](const std::vector<int>& devices) {
    EXPECT_EQ(devices, (std::vector<int>{0, 1}));
    return std::shared_ptr<Communicator>();
  };
  BoundPlan bound(plan);
  EXPECT_EQ(Collectors(bound, open).all().size(), 1u);
  std::vector<Step*> mine;
  for (auto& stream : bound.streams)
    for (Step& s : stream)
      if (s.device == 1 && is_collective(s.variant)) mine.push_back(&s);
  ASSERT_GE(mine.size(), 2u);
  std::swap(mine.front()->node, mine.back()->node);
  std::vector<std::string> stuck;
  EXPECT_TRUE(legal_order(bound, &stuck).empty());
  EXPECT_EQ(stuck.size(), 2u) << "each waits for the other's first";
  std::swap(mine.front()->node, mine.back()->node);
  for (PlanStream& s : plan.streams) s.thread = 0;
  EXPECT_TRUE(says([&] { Collectors c(bound, open); }, {"unbound: gpu:1 does not launch its collectives on a host thread of its own"}));
}

}  // namespace
}  // namespace belfry::test
