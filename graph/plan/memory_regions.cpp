#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

constexpr std::int64_t kNever = -1;

/// The region of one group of devices, by its first one.
class RegionPlanner {
 public:
  RegionPlanner(PlacedGraph& plan, const MemoryParts& parts, const RegionCounts& counts, const std::set<ValueIndex>& fetched, std::size_t group)
      : plan_(plan), parts_(parts), counts_(counts), fetched_(fetched), g_(group), device_(plan.groups[group].devices[0]), here_(parts.frames_on[static_cast<std::size_t>(device_)]) {
    for (const TowerClass& c : plan.classes)
      if (c.share > largest_.rows) largest_ = plan.share(c.towers[0]);
  }

  void run() {
    know_towers();
    know_main();
    collect();
    set_joined();
  }
  Region take() { return {device_, std::move(items_), std::move(joined_read_)}; }

 private:
  bool runs_here(const PlanNode& n) const { return std::find(n.holders.begin(), n.holders.end(), device_) != n.holders.end(); }
  bool is_alone() const { return here_.size() == 1 && parts_.towers_on[static_cast<std::size_t>(device_)] == 1; }

  /// The position of a tower node in class k of those here; kNever: it does not run on this device.
  std::int64_t position(std::size_t k, const PlanNode& n, std::size_t i) const {
    auto [c, local] = here_[k];
    return parts_.local(c, n.vector) == local ? parts_.position[static_cast<std::size_t>(c)][i] : kNever;
  }

  /// Per node, what all towers here have passed when it runs: it reads, through whatever, what they have made.
  void know_towers() {
    passed_.assign(plan_.nodes.size() * here_.size(), kNever);
    std::vector<std::pair<int, std::size_t>> mine;  // order, node
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      if (n.scope == Scope::tower || n.scope == Scope::state) continue;
      for (ValueIndex v : values_read(n)) {
        const PlanNode& m = plan_.maker(v);
        const auto from = static_cast<std::size_t>(plan_.value(v).maker);
        for (std::size_t k = 0; k < here_.size(); ++k) {
          std::int64_t& mark = passed_[i * here_.size() + k];
          mark = std::max(mark, m.scope == Scope::tower ? position(k, m, from) : passed_[from * here_.size() + k]);
        }
      }
      if (runs_here(n)) mine.emplace_back(n.order, i);
    }
    std::sort(mine.begin(), mine.end());  // the main stream of this device
    after_.assign(passed_.size(), kNever);
    std::vector<std::int64_t> now(here_.size(), kNever);
    for (auto [order, i] : mine)
      for (std::size_t k = 0; k < here_.size(); ++k) after_[i * here_.size() + k] = now[k] = std::max(now[k], passed_[i * here_.size() + k]);
  }

  /// Where a single tower runs here: per position, how far the main stream has come.
  void know_main() {
    if (!is_alone()) return;
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      if (n.scope != Scope::tower) continue;
      const std::int64_t at = position(0, n, i);
      if (at < 0) continue;
      if (main_at_.size() <= static_cast<std::size_t>(at)) main_at_.resize(static_cast<std::size_t>(at) + 1, kNever);
      for (ValueIndex v : values_read(n)) {
        if (plan_.maker(v).scope == Scope::tower || plan_.maker(v).scope == Scope::state) continue;
        const int maker = plan_.value(v).maker;
        const auto from = moves_values(n) ? Instances::At{maker, parts_.instances.moved_from(n, v, device_)} : parts_.instances.shared(v, device_);
        if (from.device == device_) {
          std::int64_t& mark = main_at_[static_cast<std::size_t>(at)];
          mark = std::max<std::int64_t>(mark, plan_.nodes[static_cast<std::size_t>(from.node)].order);
        }
      }
    }
    for (std::size_t p = 1; p < main_at_.size(); ++p) main_at_[p] = std::max(main_at_[p], main_at_[p - 1]);
  }

  void collect() {
    std::int64_t state = 0;
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      PlanNode& n = plan_.nodes[i];
      const int count = counts_.count(i, device_);
      if (!count) continue;
      for (std::size_t k = 0; k < n.outputs.size(); ++k) {
        const ValueIndex v = n.outputs[k];
        if ((n.scope == Scope::tower && !parts_.joined[static_cast<std::size_t>(v)]) || !plan_.value(v).read) continue;
        if (std::any_of(n.donates.begin(), n.donates.end(), [&](auto p) { return p.first == v; })) continue;
        const std::int64_t size = aligned_bytes((n.ranged ? type_on(plan_, n, v, n.holders.front()) : local_type(plan_.value(v), n.scope == Scope::tower ? largest_ : plan_.share(-1))).bytes());
        if (n.op == kInput) {
          n.by_group[g_].outputs[k] = {Slot::kFeed, 0, size};
        } else if (n.scope == Scope::state) {
          n.by_group[g_].outputs[k] = {Slot::kState, state, size};
          state += size;
        } else {
          items_.push_back(item(i, k, size, count, n.op == kCopy ? n.inputs[0] : v));
        }
      }
      if (std::int64_t wanted = aligned_bytes(n.by_group[g_].scratch_bytes); n.scope != Scope::tower && wanted) {
        RegionItem s = item(i, 0, wanted, 1, -1);
        s.scratch = true;
        items_.push_back(std::move(s));
      }
    }
    plan_.groups[g_].state = state;
  }

  /// `read`: the value that readers name; < 0: none, for scratch.
  RegionItem item(std::size_t i, std::size_t output, std::int64_t size, int count, ValueIndex read) {
    const PlanNode& n = plan_.nodes[i];
    RegionItem out;
    out.node = i, out.output = output, out.each = size, out.size = size * count;
    out.written = n.scope == Scope::tower ? kNever : n.order;
    out.last_read = out.written;
    out.read_by.assign(here_.size(), kNever);
    out.after.assign(here_.size(), kNever);
    for (std::size_t k = 0; k < here_.size() && n.scope != Scope::tower; ++k) out.after[k] = after_[i * here_.size() + k];
    if (read >= 0) add_readers(n, static_cast<int>(i), read, out);
    if (is_alone() && out.last_read < kForever && n.scope != Scope::tower) {
      // Known as read: by the tower's own readers when they are done, by others once it has waited for the main stream that far.
      const std::int64_t tower = out.read_by[0];
      std::int64_t main = kNever;
      if (tower < 0 || out.last_read > out.written) main = std::partition_point(main_at_.begin(), main_at_.end(), [&](std::int64_t m) { return m < out.last_read; }) - main_at_.begin();
      if (main < static_cast<std::int64_t>(main_at_.size())) out.gone = std::max(tower + 1, main);
    }
    return out;
  }

  void add_readers(const PlanNode& n, int i, ValueIndex value, RegionItem& out) {
    if (n.scope != Scope::tower && fetched_.contains(value)) out.last_read = kForever;
    for (int r : parts_.readers[static_cast<std::size_t>(value)]) {
      const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
      if (r == i || (n.op == kCopy && reader.op == kCopy)) continue;
      if (reader.scope == Scope::tower) {
        add_tower_reader(n, reader, r, out);
        continue;
      }
      const Reads how = reads(n, reader);
      if (how == Reads::here) out.last_read = std::max<std::int64_t>(out.last_read, reader.order);
      if (how == Reads::anywhere) out.last_read = kForever;
    }
  }

  /// When this device's joins have read what lies in frames.
  void set_joined() {
    joined_read_.assign(plan_.values.size(), kNever);
    for (std::size_t v = 0; v < plan_.values.size(); ++v) {
      const PlanNode& n = plan_.maker(static_cast<ValueIndex>(v));
      if (!parts_.joined[v] || n.scope != Scope::tower) continue;
      for (int r : parts_.readers[v]) {
        const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
        if (reader.scope == Scope::tower) continue;
        joined_read_[v] = reads(n, reader) == Reads::here ? std::max<std::int64_t>(joined_read_[v], reader.order) : kForever;
        if (joined_read_[v] == kForever) break;
      }
    }
  }

  void add_tower_reader(const PlanNode& n, const PlanNode& reader, int r, RegionItem& out) {
    for (std::size_t k = 0; k < here_.size(); ++k) out.read_by[k] = std::max(out.read_by[k], position(k, reader, static_cast<std::size_t>(r)));
    auto [known, fresh] = read_elsewhere_.try_emplace({reader.vector, moves_values(reader), n.holders}, false);
    if (fresh) known->second = may_read_elsewhere(n, reader);
    if (known->second) out.last_read = kForever;
  }

  /// Whether towers on another device of this memory space may read what lies here.
  bool may_read_elsewhere(const PlanNode& n, const PlanNode& reader) const {
    const std::vector<int>& devices = plan_.devices(reader);
    return std::any_of(devices.begin(), devices.end(), [&](int d) {
      if (d < 0 || d == device_) return false;
      return moves_values(reader) || (plan_.cluster.space(d) == plan_.cluster.space(device_) && std::find(n.holders.begin(), n.holders.end(), d) == n.holders.end());
    });
  }

  /// From where a node outside the towers reads what lies here: this device's main stream alone, another instance, or any device.
  enum class Reads { here, elsewhere, anywhere };
  Reads reads(const PlanNode& n, const PlanNode& reader) const {
    const std::vector<int>& by = reader.holders;
    if (n.op == kCopy && moves_values(reader)) return Reads::elsewhere;  // what moves a value reads where it was made
    if (reader.op == kCopy) return Reads::anywhere;  // of several holders each may be the nearest to one
    if (reader.op == kPreAggregate && n.scope == Scope::tower && reader.owners == n.vector) return Reads::here;  // each device reads its own parts
    if (by.size() == 1 && by.front() == device_) return Reads::here;
    if (n.scope != Scope::shared || moves_values(reader)) return Reads::anywhere;
    if (reader.holders == n.holders) return Reads::here;
    return by.size() == 1 && plan_.cluster.space(by.front()) != plan_.cluster.space(device_) ? Reads::elsewhere : Reads::anywhere;
  }

  PlacedGraph& plan_;
  const MemoryParts& parts_;
  const RegionCounts& counts_;
  const std::set<ValueIndex>& fetched_;
  std::size_t g_;
  int device_;
  const std::vector<FrameKey>& here_;
  Share largest_;
  std::vector<std::int64_t> passed_, after_;  ///< per node outside the towers and class here
  std::vector<std::int64_t> main_at_;
  std::map<std::tuple<int, bool, DeviceList>, bool> read_elsewhere_;  ///< by the readers' vector, whether they move values, and the holders
  std::vector<RegionItem> items_;
  std::vector<std::int64_t> joined_read_;
};

}  // namespace

void plan_regions(PlacedGraph& plan, MemoryParts& parts) {
  const RegionCounts counts(plan, parts.joined, parts.last);
  std::set<ValueIndex> fetched;
  for (const auto& [name, v] : plan.fetches) fetched.insert(v);
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    RegionPlanner planner(plan, parts, counts, fetched, g);
    planner.run();
    parts.regions.push_back(planner.take());
  }
}

}  // namespace belfry
