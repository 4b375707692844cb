#include <belfry/graph/plan/offsets.h>

#include <algorithm>
#include <numeric>

namespace belfry {

namespace {

/// Above so many blocks one order has to do: first fit looks at all pairs.
constexpr std::size_t kMostOrders = 1500;

struct Placed {
  std::int64_t offset, past, start, end;
};

Packing first_fit(const std::vector<Block>& blocks, const std::vector<std::size_t>& order) {
  Packing out;
  out.offsets.resize(blocks.size());
  std::vector<Placed> placed;  // by offset
  placed.reserve(blocks.size());
  for (std::size_t i : order) {
    const Block& b = blocks[i];
    std::int64_t at = 0;
    for (const Placed& p : placed) {
      if (p.start > b.end || p.end < b.start) continue;
      if (p.offset - at >= b.size) break;
      at = std::max(at, p.past);
    }
    Placed mine{at, at + b.size, b.start, b.end};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), mine, [](const Placed& x, const Placed& y) { return x.offset < y.offset; }), mine);
    out.offsets[i] = at;
    out.peak = std::max(out.peak, at + b.size);
  }
  return out;
}

}  // namespace

std::int64_t first_gap(std::vector<Taken>& taken, std::int64_t size) {
  std::sort(taken.begin(), taken.end());
  std::int64_t at = 0;
  for (const Taken& t : taken) {
    if (t.from - at >= size) break;
    at = std::max(at, t.past);
  }
  return at;
}

std::int64_t live_maximum(const std::vector<Block>& blocks) {
  std::vector<std::pair<std::int64_t, std::int64_t>> change;  // what ends at a moment goes before what starts there
  change.reserve(2 * blocks.size());
  for (const Block& b : blocks) {
    change.emplace_back(b.start, b.size);
    change.emplace_back(b.end + 1, -b.size);
  }
  std::sort(change.begin(), change.end());
  std::int64_t now = 0, most = 0;
  for (auto [at, delta] : change) most = std::max(most, now += delta);
  return most;
}

Packing pack(const std::vector<Block>& blocks, std::int64_t limit, std::int64_t steps) {
  const std::int64_t bound = live_maximum(blocks);
  limit = std::max(limit, bound);
  std::vector<std::size_t> order(blocks.size());
  Packing best;
  bool first = true;
  auto by = [&](auto key) {
    if (!first && best.peak <= limit) return;
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(blocks[a]) < key(blocks[b]); });
    Packing found = first_fit(blocks, order);
    if (first || found.peak < best.peak) best = std::move(found);
    first = false;
  };
  auto length = [](const Block& b) { return b.end - b.start + 1; };
  by([](const Block& b) { return -b.size; });
  if (blocks.size() <= kMostOrders) {
    by([&](const Block& b) { return -static_cast<double>(b.size) * static_cast<double>(length(b)); });
    by([](const Block& b) { return std::pair(b.start, -b.size); });
    by([&](const Block& b) { return std::pair(-length(b), -b.size); });
  }
  if (blocks.size() <= kMostSearched)
    // The limit first, then what lies between it and what is had.
    for (std::int64_t part : {0, 1, 2}) {
      const std::int64_t goal = limit + (best.peak - limit) * part / 4;
      std::int64_t budget = part ? steps / 4 : steps / 2;
      if (best.peak <= goal) break;
      if (std::vector<std::int64_t> found = search_offsets(blocks, goal, budget); !found.empty()) {
        best.offsets = std::move(found), best.peak = 0;
        for (std::size_t i = 0; i < blocks.size(); ++i) best.peak = std::max(best.peak, best.offsets[i] + blocks[i].size);
      }
    }
  best.bound = bound;
  return best;
}

}  // namespace belfry
