#include <algorithm>
#include <map>
#include <span>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Joins and other steps of one group's main streams that write over what they read last.
class Writer {
 public:
  Writer(const PlacedGraph& plan, const MemoryParts& parts, std::size_t group, Region region) : plan_(plan), parts_(parts), g_(group), region_(std::move(region)), here_(parts.frames_on[static_cast<std::size_t>(region_.device)]) {}

  Region run() {
    region_.taken.resize(here_.size());
    set_hosts();
    set_blocks();
    std::vector<int> order;
    for (int i = 0; i < static_cast<int>(region_.items.size()); ++i) {
      const RegionItem& x = item(i);
      if (x.scratch) continue;
      item_of_.emplace_back(std::pair(x.node, x.output), i);
      if (x.written >= 0 && x.size == x.each) order.push_back(i);
    }
    std::sort(item_of_.begin(), item_of_.end());
    taken_.resize(region_.items.size());
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return item(a).written < item(b).written; });
    for (int i : order)
      if (Over over = over_of(item(i)))
        take(i, over);
    for (RegionItem& x : region_.items)
      if (x.last_read < kForever) x.last_read = std::max(x.last_read, x.held), x.known = std::max(x.known, x.held);
    return std::move(region_);
  }

 private:
  RegionItem& item(int i) { return region_.items[static_cast<std::size_t>(i)]; }

  /// Per class, where the frame of a tower that leaves its slot to nobody lies; -1 where the group's devices differ in that.
  void set_hosts() {
    if (here_.empty()) return;
    const std::vector<int>& devices = plan_.groups[g_].devices;
    for (std::size_t g = 0; g < devices.size(); ++g) {
      std::vector<std::pair<int, int>> hosts(here_.size(), {-1, -1});
      int number = 0;
      for (const PlanStream& s : plan_.streams) {
        if (s.device != devices[g] || s.name == "main") continue;
        const std::vector<int> ranks = slot_ranks(plan_, s);
        std::map<int, int> last;  // slot → tower
        for (const StreamEntry& e : s.entries) last[e.slot] = e.tower;
        for (auto [slot, tower] : last)
          for (std::size_t k = 0; k < here_.size(); ++k) {
            const std::vector<int>& towers = plan_.classes[static_cast<std::size_t>(here_[k].first)].towers;
            if (hosts[k].first < 0 && std::find(towers.begin(), towers.end(), tower) != towers.end() && parts_.local_on(here_[k].first, tower, s.device) == here_[k].second)
              hosts[k] = {number, ranks[static_cast<std::size_t>(slot)]};
          }
        ++number;
      }
      if (g == 0) region_.host = hosts;
      for (std::size_t k = 0; k < here_.size(); ++k)
        if (region_.host[k] != hosts[k]) region_.host[k] = {-1, -1};
    }
  }

  /// Where each value that is joined lies in the frames here.
  void set_blocks() {
    for (std::size_t k = 0; k < here_.size(); ++k) {
      const std::vector<FrameBlock>& blocks = parts_.layouts.at(here_[k]);
      for (std::size_t b = 0; b < blocks.size(); ++b)
        if (blocks[b].joined >= 0 && region_.host[k].first >= 0) block_of_.emplace_back(blocks[b].joined, Over{-1, static_cast<int>(k), b});
    }
    std::stable_sort(block_of_.begin(), block_of_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  Over over_of(const RegionItem& x) const {
    const PlanNode& n = plan_.nodes[x.node];
    if (adds_parts(n)) return n.ranged ? Over{} : over_input(x, n, n.inputs[0]);
    if (!n.by_group[g_].in_place) return {};
    for (auto [k, i] : in_place_pairs(plan_, n)) {
      if (k != static_cast<int>(x.output) || i >= static_cast<int>(n.inputs.size())) continue;
      const ValueIndex v = n.inputs[static_cast<std::size_t>(i)];
      if (v < 0 || plan_.maker(v).scope != Scope::shared || std::count(n.inputs.begin(), n.inputs.end(), v) > 1 || is_read_beside(static_cast<int>(x.node), v)) continue;
      if (Over over = over_input(x, n, v)) return over;
    }
    return {};
  }

  /// Whether a step that may be one launch with this one reads the value too.
  bool is_read_beside(int node, ValueIndex v) const {
    const std::span<const int> by = parts_.readers[static_cast<std::size_t>(v)];
    const int mine = parts_.joint[static_cast<std::size_t>(node)];
    return mine >= 0 && std::any_of(by.begin(), by.end(), [&](int r) { return r != node && parts_.joint[static_cast<std::size_t>(r)] == mine; });
  }

  /// The buffer of an input that this step is the last to read, if it has as many bytes.
  Over over_input(const RegionItem& x, const PlanNode& n, ValueIndex v) const {
    const PlanNode& m = plan_.maker(v);
    if (accumulates(m)) return over_stack(x, n, v);
    if (m.scope == Scope::tower) return over_block(x, n, v);
    const std::pair made(static_cast<std::size_t>(plan_.value(v).maker), static_cast<std::size_t>(plan_.value(v).output));
    const auto at = std::lower_bound(item_of_.begin(), item_of_.end(), std::pair(made, 0));
    if (at == item_of_.end() || at->first != made || taken_[static_cast<std::size_t>(at->second)]) return {};
    const RegionItem& y = region_.items[static_cast<std::size_t>(at->second)];
    if (y.size != x.size || y.written < 0 || y.written >= x.written || y.last_read != x.written || y.known != x.written || m.ranged != n.ranged) return {};  // what other devices read may go on beside this step
    if (m.scope != Scope::device && m.holders != n.holders) return {};
    if (bytes(m, v) != bytes(n, n.outputs[x.output])) return {};
    for (std::size_t k = 0; k < here_.size(); ++k)
      if (y.read_by[k] > x.after[k]) return {};
    return {at->second, -1, 0};
  }

  /// The lowest buffer of a stack, where the sum of all towers of each of these devices lies in the end.
  Over over_stack(const RegionItem& x, const PlanNode& n, ValueIndex v) const {
    const PlanNode& m = plan_.maker(v);
    const std::pair made(static_cast<std::size_t>(plan_.value(v).maker), std::size_t{0});
    const auto at = std::lower_bound(item_of_.begin(), item_of_.end(), std::pair(made, 0));
    if (at == item_of_.end() || at->first != made || taken_[static_cast<std::size_t>(at->second)]) return {};
    const RegionItem& y = region_.items[static_cast<std::size_t>(at->second)];
    if (y.each != x.size || y.last_read != x.written || y.known != x.written || bytes(m, v) != bytes(n, n.outputs[x.output])) return {};
    if (!has_one_sum(m)) return {};
    return {at->second, -1, 0};
  }

  /// Whether each of these devices has one piece of a vector.
  bool has_one_sum(const PlanNode& n) const {
    auto [known, fresh] = one_sum_.try_emplace(n.vector, true);
    if (!fresh) return known->second;
    std::map<int, int> sums;  // by device
    for (const Piece& p : pieces(plan_.devices(n), plan_.towers)) ++sums[p.device];
    for (int d : plan_.groups[g_].devices) known->second = known->second && sums[d] == 1;
    return known->second;
  }

  Over over_block(const RegionItem& x, const PlanNode& n, ValueIndex v) const {
    auto at = std::lower_bound(block_of_.begin(), block_of_.end(), v, [](const auto& a, ValueIndex b) { return a.first < b; });
    if (at == block_of_.end() || at->first != v || region_.joined_read[static_cast<std::size_t>(v)] != x.written) return {};
    for (; at != block_of_.end() && at->first == v; ++at) {
      const Over& over = at->second;
      const auto k = static_cast<std::size_t>(over.k);
      const FrameBlock& b = parts_.layouts.at(here_[k])[over.block];
      const Share share = plan_.share(plan_.classes[static_cast<std::size_t>(here_[k].first)].towers[0]);
      if (b.own <= x.after[k] && b.size == x.size && local_bytes(plan_.value(v), share) == bytes(n, n.outputs[x.output])) return over;
    }
    return {};
  }

  std::int64_t bytes(const PlanNode& n, ValueIndex v) const { return n.ranged ? type_on(plan_, n, v, region_.device).bytes() : local_bytes(plan_.value(v), plan_.share(-1)); }

  /// What lies there first lives as long as what is written over it.
  void take(int i, const Over& over) {
    item(i).over = over;
    if (over.item < 0) {
      auto& blocks = region_.taken[static_cast<std::size_t>(over.k)];
      blocks.insert(std::lower_bound(blocks.begin(), blocks.end(), std::pair(over.block, i)), {over.block, i});
      return;
    }
    taken_[static_cast<std::size_t>(over.item)] = true;
    int root = i;
    while (item(root).over.item >= 0) root = item(root).over.item;
    RegionItem& first = item(root);
    first.last_read = std::max(first.last_read, item(i).last_read);
    first.known = std::max(first.known, item(i).known);
    first.held = std::max(first.held, item(i).held);
    first.gone = std::max(first.gone, item(i).gone);
    for (std::size_t k = 0; k < here_.size(); ++k) first.read_by[k] = std::max(first.read_by[k], item(i).read_by[k]);
  }

  const PlacedGraph& plan_;
  const MemoryParts& parts_;
  std::size_t g_;
  Region region_;
  const std::vector<FrameKey>& here_;
  std::vector<std::pair<std::pair<std::size_t, std::size_t>, int>> item_of_;  ///< by node and output
  std::vector<std::pair<ValueIndex, Over>> block_of_;                         ///< by value
  std::vector<bool> taken_;
  mutable std::map<int, bool> one_sum_;                                       ///< by vector
};

}  // namespace

void set_over(const PlacedGraph& plan, MemoryParts& parts) {
  for (std::size_t g = 0; g < plan.groups.size(); ++g) parts.regions[g] = Writer(plan, parts, g, std::move(parts.regions[g])).run();
}

}  // namespace belfry
