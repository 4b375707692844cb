#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include <belfry/graph/plan/lanes.h>

#include "plans.h"

namespace belfry::test {
namespace {

/// Random pairs (i, j), i < j, each with the chance of one in `odds`, and all that follows from them.
Precedence random_order(std::mt19937& rng, int size, unsigned odds) {
  Precedence out(static_cast<std::size_t>(size));
  for (int j = 0; j < size; ++j)
    for (int i = 0; i < j; ++i)
      if (rng() % odds == 0) out[static_cast<std::size_t>(j)].push_back(i);
  return out;
}

std::vector<std::vector<bool>> closure(const Precedence& order) {
  std::vector<std::vector<bool>> out(order.size(), std::vector<bool>(order.size()));
  for (std::size_t j = 0; j < order.size(); ++j)
    for (int i : order[j]) {
      out[j][static_cast<std::size_t>(i)] = true;
      for (std::size_t k = 0; k < order.size(); ++k)
        if (out[static_cast<std::size_t>(i)][k]) out[j][k] = true;
    }
  return out;
}

std::size_t pairs(const Precedence& order) {
  std::size_t out = 0;
  for (const auto& before : order) out += before.size();
  return out;
}

/// The fewest waits of any assignment in which independent steps have lanes of their own, by trying all.
std::size_t fewest_waits(const Precedence& order) {
  const auto follows = closure(order);
  std::vector<int> lane(order.size());
  std::size_t best = pairs(order);
  std::function<void(std::size_t, int, std::size_t)> go = [&](std::size_t j, int used, std::size_t waits) {
    if (j == order.size()) return void(best = std::min(best, waits));
    for (int l = 0; l <= used; ++l) {
      bool alone = true;
      for (std::size_t i = 0; i < j; ++i) alone = alone && (lane[i] != l || follows[j][i]);
      if (!alone) continue;
      lane[j] = l;
      std::size_t more = 0;
      for (int i : order[j]) more += lane[static_cast<std::size_t>(i)] != l;
      go(j + 1, std::max(used, l + 1), waits + more);
    }
  };
  go(0, 0, 0);
  return best;
}

TEST(Lanes, have_the_fewest_waits_that_let_all_independent_steps_run_side_by_side) {
  std::mt19937 rng(3);
  for (int trial = 0; trial < 300; ++trial) {
    const Precedence all = random_order(rng, 2 + trial % 6, 2 + static_cast<unsigned>(trial) % 3), order = reduced(all);
    ASSERT_EQ(closure(order), closure(all));
    for (std::size_t j = 0; j < order.size(); ++j)  // and no pair can be left out
      for (std::size_t k = 0; k < order[j].size(); ++k) {
        Precedence less = order;
        less[j].erase(less[j].begin() + static_cast<std::ptrdiff_t>(k));
        ASSERT_NE(closure(less), closure(order));
      }
    const Lanes lanes = assign_lanes(order);
    const auto follows = closure(order);
    for (std::size_t j = 0; j < order.size(); ++j)
      for (std::size_t i = 0; i < j; ++i)
        ASSERT_TRUE(follows[j][i] || lanes.lane[i] != lanes.lane[j]) << "trial " << trial;
    ASSERT_EQ(pairs(lanes.waits), fewest_waits(order)) << "trial " << trial;
    // What a lane does in turn and the waits give the order back.
    Precedence kept = lanes.waits;
    std::map<int, int> last;
    for (std::size_t j = 0; j < kept.size(); ++j) {
      if (auto at = last.find(lanes.lane[j]); at != last.end()) kept[j].push_back(at->second);
      last[lanes.lane[j]] = static_cast<int>(j);
    }
    ASSERT_EQ(closure(kept), closure(order)) << "trial " << trial;
  }
}

TEST(Lanes, keep_apart_what_touches_the_same_bytes) {
  auto buffer = [](std::int64_t at, std::int64_t bytes) { return Part{0, 1, {0, at, bytes, {}, {}}}; };
  auto step = [](const std::vector<Part>& reads, const std::vector<Part>& writes) {
    Step s;
    for (const Part& p : reads) s.reads.push_back({p});
    for (const Part& p : writes) s.writes.push_back({p});
    return s;
  };
  const Step steps[] = {
      step({}, {buffer(0, 64)}),                    // 0
      step({buffer(0, 64)}, {buffer(64, 64)}),      // 1 reads what 0 made
      step({buffer(32, 16)}, {buffer(128, 64)}),    // 2 as well
      step({}, {buffer(192, 64)}),                  // 3 is alone
      step({buffer(192, 64)}, {buffer(48, 8)}),     // 4 writes over what 1 and not what 2 has read
  };
  std::vector<const Step*> list;
  for (const Step& s : steps) list.push_back(&s);
  EXPECT_EQ(reduced(precedence(list)), (Precedence{{}, {0}, {0}, {}, {1, 3}}));
}

/// Whatever the order: those of a launch are of one kind and independent, and launches follow one another as their steps do.
TEST(Lanes, have_launches_of_steps_that_could_stand_where_the_last_of_them_stands) {
  std::mt19937 rng(5);
  int shared = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const int size = 2 + trial % 14;
    const Precedence order = random_order(rng, size, 3 + static_cast<unsigned>(trial) % 6);
    std::vector<Joining> steps;
    for (int j = 0; j < size; ++j) steps.push_back({static_cast<int>(rng() % 4) - 1, 2 + trial % 3, rng() % 12 == 0});
    const std::vector<int> place = joined(order, steps);
    std::map<int, std::vector<int>> launches;
    for (int j = 0; j < size; ++j) launches[place[static_cast<std::size_t>(j)]].push_back(j);
    for (const auto& [at, members] : launches) {
      EXPECT_EQ(at, members.back());
      shared += members.size() > 1;
      const Joining& first = steps[static_cast<std::size_t>(members[0])];
      if (members.size() > 1) {
        ASSERT_GE(first.kind, 0);
      }
      ASSERT_LE(static_cast<int>(members.size()), first.most);
      for (int m : members) {
        ASSERT_EQ(steps[static_cast<std::size_t>(m)].kind, first.kind);
        for (int b = m; b < at; ++b) ASSERT_FALSE(steps[static_cast<std::size_t>(b)].ends) << "trial " << trial;
      }
    }
    for (int j = 0; j < size; ++j)
      for (int i : order[static_cast<std::size_t>(j)]) ASSERT_LT(place[static_cast<std::size_t>(i)], place[static_cast<std::size_t>(j)]) << "trial " << trial;
  }
  EXPECT_GT(shared, 300);
}

TEST(Lanes, let_a_step_wait_for_its_kind_until_it_is_needed) {
  //                                  0   1   2   3    4   5    6   7
  const std::vector<Joining> steps = {{0, 3}, {1, 9}, {0, 3}, {-1}, {0, 3}, {0, 3}, {1, 9}, {1, 9, true}};
  EXPECT_EQ(joined({{}, {}, {}, {}, {}, {}, {}, {}}, steps), (std::vector<int>{4, 6, 4, 3, 4, 5, 6, 7}));        // three at the most; the host is told of the last
  EXPECT_EQ(joined({{}, {}, {}, {2}, {}, {}, {}, {}}, steps), (std::vector<int>{2, 6, 2, 3, 5, 5, 6, 7}));       // one needs what waits
  EXPECT_EQ(joined({{}, {}, {0}, {}, {}, {}, {1}, {}}, steps), (std::vector<int>{0, 1, 5, 3, 5, 5, 6, 7}));      // one of their kind does
}

}  // namespace
}  // namespace belfry::test
