#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include <belfry/graph/plan/offsets.h>

namespace belfry::test {
namespace {

std::vector<Block> some_blocks(std::mt19937& rng, std::size_t most, std::int64_t time) {
  auto from = [&](std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(rng); };
  std::vector<Block> out(static_cast<std::size_t>(from(1, static_cast<std::int64_t>(most))));
  for (Block& b : out) {
    b.size = from(1, 9);
    b.start = from(0, time);
    b.end = std::min(time, b.start + from(0, time / 2));
  }
  return out;
}

bool meet(const Block& a, const Block& b) { return a.start <= b.end && b.start <= a.end; }

std::int64_t peak_of(const std::vector<Block>& blocks, const std::vector<std::int64_t>& offsets) {
  std::int64_t out = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_GE(offsets[i], 0);
    out = std::max(out, offsets[i] + blocks[i].size);
    for (std::size_t j = 0; j < i; ++j) EXPECT_TRUE(!meet(blocks[i], blocks[j]) || offsets[i] + blocks[i].size <= offsets[j] || offsets[j] + blocks[j].size <= offsets[i]) << i << " lies over " << j;
  }
  return out;
}

/// Of all orders: some best packing puts its blocks, from low to high, each as low as it goes.
std::int64_t smallest(const std::vector<Block>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t best = INT64_MAX;
  do {
    std::vector<std::int64_t> top(blocks.size());
    std::int64_t peak = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::int64_t at = 0;
      for (std::size_t j = 0; j < i; ++j)
        if (meet(blocks[order[i]], blocks[order[j]])) at = std::max(at, top[j]);
      peak = std::max(peak, top[i] = at + blocks[order[i]].size);
    }
    best = std::min(best, peak);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(Offsets, of_small_instances_are_the_best_there_are) {
  std::mt19937 rng(1);
  for (int round = 0; round < 400; ++round) {
    const std::vector<Block> blocks = some_blocks(rng, 7, 9);
    const Packing packed = pack(blocks);
    const std::int64_t best = smallest(blocks);
    EXPECT_EQ(peak_of(blocks, packed.offsets), packed.peak);
    EXPECT_LE(packed.bound, best);
    EXPECT_EQ(packed.peak, best);
    std::int64_t steps = kSearchSteps;
    EXPECT_TRUE(search_offsets(blocks, best - 1, steps).empty());
  }
}

TEST(Offsets, are_the_best_there_are_where_the_bound_cannot_be_met) {
  const std::vector<Block> blocks = {{3, 0, 2}, {1, 2, 4}, {3, 7, 7}, {2, 3, 3}, {2, 0, 1}, {1, 2, 6}, {2, 5, 7}, {2, 4, 6}};
  const Packing packed = pack(blocks);
  EXPECT_EQ(peak_of(blocks, packed.offsets), packed.peak);
  EXPECT_EQ(packed.peak, smallest(blocks));
  EXPECT_EQ(packed.bound, packed.peak - 1);
}

TEST(Offsets, are_sound_and_the_same_each_time_whatever_the_budget) {
  std::mt19937 rng(2);
  for (std::int64_t steps : {0, 100, 3000})
    for (int round = 0; round < 20; ++round) {
      const std::vector<Block> blocks = some_blocks(rng, 120, 60);
      const Packing packed = pack(blocks, 0, steps), again = pack(blocks, 0, steps);
      EXPECT_EQ(peak_of(blocks, packed.offsets), packed.peak);
      EXPECT_EQ(packed.bound, live_maximum(blocks));
      EXPECT_LE(packed.bound, packed.peak);
      EXPECT_EQ(packed.offsets, again.offsets);
    }
}

TEST(Offsets, a_search_finds_what_no_order_of_first_fit_does) {
  // Cut from one whole, so that it fits to the byte.
  std::mt19937 rng(3);
  int searched = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<Block> blocks;
    auto cut = [&](auto&& self, Block b, int depth) -> void {
      auto from = [&](std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(rng); };
      if (depth == 0 || b.size < 8 || b.end - b.start < 8) return blocks.push_back(b);
      Block rest = b;
      if (depth % 2) {
        b.end = from(b.start + 2, b.end - 3);
        rest.start = b.end + 1;
      } else {
        b.size = from(2, b.size - 2);
        rest.size -= b.size;
      }
      self(self, b, depth - 1);
      self(self, rest, depth - 1);
    };
    cut(cut, {1000, 0, 400}, 5);
    const Packing greedy = pack(blocks, 0, 0), packed = pack(blocks);
    EXPECT_EQ(peak_of(blocks, packed.offsets), packed.peak);
    EXPECT_EQ(packed.bound, 1000);
    EXPECT_EQ(packed.peak, 1000);
    searched += greedy.peak > 1000;
  }
  EXPECT_GT(searched, 5);
}

}  // namespace
}  // namespace belfry::test
