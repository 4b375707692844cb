#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/offsets.h>
#include <belfry/graph/structural.h>

namespace belfry {

std::vector<std::pair<int, int>> legal_order(const BoundPlan& bound, std::vector<std::string>* stuck) {
  std::vector<std::pair<int, int>> out;
  std::vector<std::size_t> at(bound.streams.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < bound.streams.size(); ++s) {
      auto ready = [&](const Step& step) {
        return std::all_of(step.waits.begin(), step.waits.end(), [&](const StepWait& w) { return static_cast<int>(at[static_cast<std::size_t>(w.stream)]) >= w.count; });
      };
      while (at[s] < bound.streams[s].size() && ready(bound.streams[s][at[s]])) {
        out.emplace_back(static_cast<int>(s), static_cast<int>(at[s]++));
        moved = true;
      }
    }
  }
  bool whole = true;
  for (std::size_t s = 0; s < bound.streams.size(); ++s)
    if (at[s] < bound.streams[s].size()) {
      whole = false;
      if (stuck) stuck->push_back(bound.plan.nodes[static_cast<std::size_t>(bound.streams[s][at[s]].node)].name);
    }
  if (!whole) out.clear();
  return out;
}

namespace {

using Order = std::vector<std::pair<int, int>>;

/// All streams keep step with each other as far as their waits allow; `eager`: the main ones do all that they can at once.
Order side_by_side(const BoundPlan& bound, bool eager) {
  Order out;
  std::vector<std::size_t> at(bound.streams.size());
  std::size_t longest = 0;
  for (const auto& s : bound.streams) longest = std::max(longest, s.size());
  for (std::size_t round = 1, moved = 1; round <= longest || moved; ++round) {
    moved = 0;
    for (std::size_t s = 0; s < bound.streams.size(); ++s) {
      const auto& steps = bound.streams[s];
      auto ready = [&](const Step& step) {
        return std::all_of(step.waits.begin(), step.waits.end(), [&](const StepWait& w) { return static_cast<int>(at[static_cast<std::size_t>(w.stream)]) >= w.count; });
      };
      const bool at_once = eager && bound.plan.streams[s].name == "main";
      for (; at[s] < steps.size() && (at_once || at[s] * longest < steps.size() * round) && ready(steps[at[s]]); ++moved) out.emplace_back(static_cast<int>(s), static_cast<int>(at[s]++));
    }
  }
  return out;
}

/// The streams of towers as far as they go before the main ones.
Order towers_first(const BoundPlan& bound) {
  Order out;
  std::vector<std::size_t> at(bound.streams.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = bound.streams.size(); s-- > 0 && !moved;) {
      auto ready = [&](const Step& step) {
        return std::all_of(step.waits.begin(), step.waits.end(), [&](const StepWait& w) { return static_cast<int>(at[static_cast<std::size_t>(w.stream)]) >= w.count; });
      };
      const bool main = bound.plan.streams[s].name == "main";
      while (at[s] < bound.streams[s].size() && ready(bound.streams[s][at[s]]) && !(main && moved)) {
        out.emplace_back(static_cast<int>(s), static_cast<int>(at[s]++));
        moved = true;
      }
    }
  }
  return out;
}

/// What lives when in one order, per device.
std::vector<std::int64_t> live_maxima(const BoundPlan& bound, const Order& order) {
  std::map<Tag, Block> life;
  std::vector<std::vector<Block>> blocks(bound.plan.cluster.devices.size());
  std::int64_t now = 0;
  const auto end = static_cast<std::int64_t>(order.size()) + 1;
  for (auto [s, k] : order) {
    const Step& step = bound.streams[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
    const PlanNode& n = bound.plan.nodes[static_cast<std::size_t>(step.node)];
    ++now;
    for (const auto& parts : step.reads)
      for (const Part& p : parts)
        if (auto at = life.find(p.buffer.tag); at != life.end()) at->second.end = now;
    auto in_place_of = [&](const BufferRef& b) -> Block* {  // what this step reads at the same place, and nobody after it
      for (const auto& parts : step.reads)
        for (const Part& p : parts)
          if (p.buffer.space == b.space && p.buffer.at == b.at && p.buffer.bytes == b.bytes && b.bytes)
            if (auto at = life.find(p.buffer.tag); at != life.end()) return &at->second;
      return nullptr;
    };
    for (const auto& parts : step.writes)
      for (const Part& p : parts) {
        if (p.buffer.space < 0 || std::any_of(n.donates.begin(), n.donates.end(), [&](auto d) { return d.first == p.buffer.tag.value; })) continue;
        if (Block* reused = in_place_of(p.buffer)) reused->end = now - 1;
        life[p.buffer.tag] = {aligned_bytes(p.buffer.bytes), now, n.op == kFetch ? end : now};
      }
    if (step.scratch.bytes) blocks[static_cast<std::size_t>(step.device)].push_back({aligned_bytes(step.scratch.bytes), now, now});
  }
  for (const auto& [tag, block] : life) blocks[static_cast<std::size_t>(tag.device)].push_back(block);
  std::vector<std::int64_t> out;
  for (const auto& mine : blocks) out.push_back(live_maximum(mine));
  return out;
}

}  // namespace

std::vector<std::int64_t> live_maxima(const BoundPlan& bound) {
  std::vector<std::int64_t> out(bound.plan.cluster.devices.size());
  for (const Order& order : {legal_order(bound), side_by_side(bound, false), side_by_side(bound, true), towers_first(bound)}) {
    std::vector<std::int64_t> some = live_maxima(bound, order);
    for (std::size_t d = 0; d < out.size(); ++d) out[d] = std::max(out[d], some[d]);
  }
  return out;
}

}  // namespace belfry
