#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <belfry/placer/cut/cut.h>
#include <belfry/placer/cut/search_internal.h>

#include "says.h"

namespace belfry::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Drawn {
  std::mt19937_64 random;
  int below(int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); }
  bool one_in(int n) { return below(n) == 0; }
};

/// A few layers, with their gradients if `training`, on devices of two kinds.
CutProblem drawn_problem(std::uint64_t seed, bool training, CutObjective objective) {
  Drawn d{std::mt19937_64(seed)};
  CutProblem p;
  p.objective = objective;
  p.kinds = {{"fast", 1 + d.below(2), d.one_in(2) ? 60.0 + d.below(60) : kInfinity, true}, {"slow", 1, d.one_in(3) ? 60.0 + d.below(60) : kInfinity, d.one_in(2)}};
  const int layers = training ? 4 : 7;
  auto add = [&](int i, bool backward) {
    const double s = d.one_in(4) ? 0 : 1 + d.below(9);
    CutNode n{(backward ? "g" : "n") + std::to_string(i), {d.one_in(8) ? kInfinity : s, s * (1 + d.below(3))}, 0, 0, training ? i : -1, backward};
    n.bytes = d.below(25);
    n.transfer = d.one_in(3) ? 0.0 : 0.5 * d.below(8);
    if (!training && d.one_in(4)) n.together = d.below(2);
    p.nodes.push_back(n);
  };
  for (int i = 0; i < layers; ++i) add(i, false);
  for (int i = 0; training && i < layers; ++i) add(i, true);
  for (int i = 0; i < layers; ++i)
    for (int j = i + 1; j < layers; ++j) {
      if (!d.one_in(2)) continue;
      p.edges.emplace_back(i, j);
      if (training) p.edges.emplace_back(layers + j, layers + i);
    }
  for (int i = 0; training && i < layers; ++i)
    if (d.one_in(2)) p.edges.emplace_back(i, layers + d.below(layers));
  return p;
}

/// Layers that take about as long, on three devices alike: here the cheapest cuts bound the load.
CutProblem even_problem(std::uint64_t seed) {
  Drawn d{std::mt19937_64(seed)};
  CutProblem p;
  p.kinds = {{"fast", 3, kInfinity, true}};
  for (int i = 0; i < 8; ++i) {
    p.nodes.push_back({"n" + std::to_string(i), {8.0 + d.below(5)}, 0, 0.5 * (1 + d.below(6))});
    if (i) p.edges.emplace_back(i - 1, i);
    if (i > 4 && d.one_in(2)) p.edges.emplace_back(i - 5, i);
  }
  return p;
}

/// The best of all legal splits; infinite if there is none.
double best_of_all(const CutProblem& p) {
  double best = kInfinity;
  std::vector<int> device(p.nodes.size());
  for (bool more = true; more;) {
    if (objections_to(p, device).empty()) best = std::min(best, value_of(p, device));
    more = false;
    for (std::size_t i = 0; i < device.size() && !more; ++i) {
      more = ++device[i] < p.devices();
      if (!more) device[i] = 0;
    }
  }
  return best;
}

/// A search that is broken off has a split and a bound that hold all the same, or says that it found none.
void expect_sound(const CutProblem& p, double best) {
  try {
    Cut early = cut(p, {.steps = 40});
    EXPECT_EQ(objections_to(p, early.device), std::vector<std::string>());
    EXPECT_GE(early.value, best - 1e-7);
    EXPECT_LE(early.bound, best + 1e-7);
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), testing::StartsWith("no split was found that fits"));
  }
}

/// How many had a split.
int expect_best(const std::function<CutProblem(std::uint64_t)>& draw, int problems) {
  int fit = 0;
  for (int seed = 0; seed < problems; ++seed) {
    SCOPED_TRACE(seed);
    const CutProblem p = draw(static_cast<std::uint64_t>(seed));
    const double best = best_of_all(p);
    if (!std::isfinite(best)) {
      EXPECT_THROW(cut(p), UserError);
      continue;
    }
    ++fit;
    Cut found = cut(p);
    EXPECT_EQ(objections_to(p, found.device), std::vector<std::string>());
    EXPECT_NEAR(found.value, best, 1e-7);
    EXPECT_TRUE(found.optimal()) << found.value << " over " << found.bound;
    EXPECT_LE(found.bound, best + 1e-7);
    EXPECT_EQ(cut(p).device, found.device);
    expect_sound(p, best);
  }
  return fit;
}

TEST(Cut, by_load_is_the_best_of_all_splits) {
  EXPECT_GT(expect_best([](std::uint64_t seed) { return drawn_problem(seed, false, CutObjective::max_load); }, 60), 40);
  EXPECT_GT(expect_best([](std::uint64_t seed) { return drawn_problem(seed, true, CutObjective::max_load); }, 30), 20);
  EXPECT_EQ(expect_best(even_problem, 8), 8);
}

/// Caps just above the best: bounds that are too high would lose it.
TEST(Cut, by_load_finds_what_is_hardly_better_than_what_is_known) {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(seed);
    const CutProblem p = even_problem(seed);
    std::int64_t steps = 1'000'000;
    const double best = best_of_all(p);
    const cutting::Answer found = cutting::least_load(cutting::contracted(cutting::items_of(p), p.kinds), p.kinds, cutting::Split{best * (1 + 1e-6), {}, {}}, steps);
    EXPECT_FALSE(found.best->device.empty());
    EXPECT_NEAR(found.best->value, best, 1e-8);
    EXPECT_LE(found.bound, best + 1e-8);
  }
}

TEST(Cut, by_latency_is_the_best_of_all_splits) {
  EXPECT_GT(expect_best([](std::uint64_t seed) { return drawn_problem(seed, false, CutObjective::latency); }, 60), 40);
  EXPECT_GT(expect_best([](std::uint64_t seed) { return drawn_problem(seed, true, CutObjective::latency); }, 30), 20);
}

}  // namespace
}  // namespace belfry::test
