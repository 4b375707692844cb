#include <algorithm>
#include <map>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/memory.h>

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

std::vector<std::int64_t> live_maxima(const BoundPlan& bound) {
  std::map<Tag, Block> life;
  std::int64_t now = 0;
  for (auto [s, k] : legal_order(bound)) {
    const Step& step = bound.streams[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
    ++now;
    for (const auto& parts : step.reads)
      for (const Part& p : parts)
        if (auto at = life.find(p.buffer.tag); at != life.end()) at->second.end = now;
    const auto& donates = bound.plan.nodes[static_cast<std::size_t>(step.node)].donates;
    auto in_place_of = [&](const BufferRef& b) -> Block* {  // what this step reads at the same place, and nobody after it
      for (const auto& parts : step.reads)
        for (const Part& p : parts)
          if (p.buffer.space == b.space && p.buffer.at == b.at && p.buffer.bytes == b.bytes && b.bytes)
            if (auto at = life.find(p.buffer.tag); at != life.end()) return &at->second;
      return nullptr;
    };
    for (const auto& parts : step.writes)
      for (const Part& p : parts) {
        if (p.buffer.space < 0 || std::any_of(donates.begin(), donates.end(), [&](auto d) { return d.first == p.buffer.tag.value; })) continue;
        if (Block* reused = in_place_of(p.buffer)) reused->end = now - 1;
        life[p.buffer.tag] = {aligned_bytes(p.buffer.bytes), now, now};
      }
  }
  std::vector<std::vector<Block>> blocks(bound.plan.cluster.devices.size());
  for (const auto& [tag, block] : life) blocks[static_cast<std::size_t>(tag.device)].push_back(block);
  std::vector<std::int64_t> out;
  for (const auto& mine : blocks) out.push_back(live_maximum(mine));
  return out;
}

}  // namespace belfry
