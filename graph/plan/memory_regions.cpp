#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <span>
#include <utility>

#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/memory_passed_internal.h>
#include <belfry/graph/plan/memory_uses_internal.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Steps from a copy to the join behind it: a sum is scaled, cast or clipped.
constexpr int kMostBehind = 4;

bool is_on(const PlanNode& n, int device) { return std::find(n.holders.begin(), n.holders.end(), device) != n.holders.end(); }

/// The region of one group of devices, by its first one.
class RegionPlanner {
 public:
  RegionPlanner(PlacedGraph& plan, const MemoryParts& parts, const std::vector<bool>& fetched, const std::vector<int>& spaces, Passed& passed, std::size_t group)
      : plan_(plan), parts_(parts), fetched_(fetched), spaces_(spaces), passed_(passed), g_(group), device_(plan.groups[group].devices[0]), here_(parts.frames_on[static_cast<std::size_t>(device_)]) {
    for (const TowerClass& c : plan.classes)
      if (c.share > largest_.rows) largest_ = plan.share(c.towers[0]);
  }

  void run() {
    know_towers(), know_main(), know_gathers();
    collect();
    set_joined();
  }
  Region take() { return {device_, is_alone(), std::move(items_), std::move(main_at_), std::move(joined_read_), {}, {}}; }

 private:
  bool is_alone() const { return here_.size() == 1 && parts_.towers_on[static_cast<std::size_t>(device_)] == 1; }

  /// The position of a tower node in class k of those here; kBeforeAll: it does not run on this device.
  std::int64_t position(std::size_t k, const PlanNode& n, std::size_t i) const {
    auto [c, local] = here_[k];
    return parts_.local(c, n.vector) == local ? parts_.position[static_cast<std::size_t>(c)][i] : kBeforeAll;
  }

  std::span<const int> frame(std::size_t k) const {
    const auto at = parts_.nodes.find(here_[k]);
    return at == parts_.nodes.end() ? std::span<const int>() : at->second;
  }

  void know_towers() {
    const std::size_t classes = here_.size();
    passed_.reset(classes);
    std::vector<std::int64_t> marks(classes);
    std::priority_queue<int, std::vector<int>, std::greater<>> next;  // in list order: makers come before their readers
    auto pass = [&](const PlanNode& n) {
      for (ValueIndex v : n.outputs)
        for (int r : parts_.readers[static_cast<std::size_t>(v)]) {
          const Scope scope = plan_.nodes[static_cast<std::size_t>(r)].scope;
          if (scope == Scope::tower || scope == Scope::state) continue;
          if (!passed_.has(r)) next.push(r);
          std::int64_t* mark = passed_.marks(r);
          for (std::size_t k = 0; k < classes; ++k) mark[k] = std::max(mark[k], marks[k]);
        }
    };
    for (std::size_t k = 0; k < classes; ++k) {
      std::fill(marks.begin(), marks.end(), kBeforeAll);
      for (int i : frame(k)) ++marks[k], pass(plan_.nodes[static_cast<std::size_t>(i)]);
    }
    for (; !next.empty(); next.pop()) {
      const std::int64_t* mark = passed_.marks(next.top());
      std::copy(mark, mark + classes, marks.begin());
      pass(plan_.nodes[static_cast<std::size_t>(next.top())]);
    }
    // What this device's main stream has passed before is passed too.
    std::vector<std::pair<int, int>> mine;  // order, node
    for (int i : parts_.nodes_of_group[g_])
      if (const PlanNode& n = plan_.nodes[static_cast<std::size_t>(i)]; n.scope != Scope::tower && n.scope != Scope::state) mine.emplace_back(n.order, i);
    std::sort(mine.begin(), mine.end());
    std::fill(marks.begin(), marks.end(), kBeforeAll);
    for (auto [order, i] : mine) {
      std::int64_t* mark = passed_.marks(i);
      for (std::size_t k = 0; k < classes; ++k) mark[k] = marks[k] = std::max(marks[k], mark[k]);
    }
  }

  /// How far the main stream has come at each position of towers, where a single stream has them; the class of the last in a frame.
  void know_main() {
    if (!is_alone() && !only_stream(plan_, device_)) return;
    for (std::size_t k = 0; k < here_.size(); ++k) main_at_.push_back(main_at(frame(k)));
    if (!is_alone() && !parts_.has_one_slot(device_)) return;
    std::set<std::size_t> last;  // what is planned for the first device of the group holds for all
    for (int d : plan_.groups[g_].devices)
      for (std::size_t k = 0; k < here_.size(); ++k)
        for (int t : plan_.classes[static_cast<std::size_t>(here_[k].first)].towers)
          if (is_last_in_slot(parts_.last, t, d) && parts_.local_on(here_[k].first, t, d) == here_[k].second) last.insert(k);
    if (last.size() == 1) last_ = static_cast<int>(*last.begin());
  }

  std::vector<std::int64_t> main_at(std::span<const int> nodes) const {
    std::vector<std::int64_t> out(nodes.size(), kBeforeAll);
    for (std::size_t at = 0; at < nodes.size(); ++at) {
      const PlanNode& n = plan_.nodes[static_cast<std::size_t>(nodes[at])];
      for_values_read(n, [&](ValueIndex v) {
        if (plan_.maker(v).scope == Scope::tower || plan_.maker(v).scope == Scope::state) return;
        const int maker = plan_.value(v).maker;
        const auto from = moves_values(n) ? Instances::At{maker, parts_.instances.moved_from(n, v, device_)} : parts_.instances.shared(v, device_);
        if (from.device == device_) out[at] = std::max<std::int64_t>(out[at], plan_.nodes[static_cast<std::size_t>(from.node)].order);
      });
    }
    for (std::size_t p = 1; p < out.size(); ++p) out[p] = std::max(out[p], out[p - 1]);
    return out;
  }

  void collect() {
    std::int64_t state = 0;
    for (int node : parts_.nodes_of_group[g_]) {
      const auto i = static_cast<std::size_t>(node);
      PlanNode& n = plan_.nodes[i];
      const int count = parts_.counts.count(i, device_);
      Variant& variant = n.by_group[g_];
      for (std::size_t k = 0; k < n.outputs.size(); ++k) {
        const ValueIndex v = n.outputs[k];
        if ((n.scope == Scope::tower && !parts_.joined[static_cast<std::size_t>(v)]) || !plan_.value(v).read) continue;
        if (std::any_of(n.donates.begin(), n.donates.end(), [&](auto p) { return p.first == v; })) continue;
        const std::int64_t size = aligned_bytes(n.ranged ? type_on(plan_, n, v, n.holders.front()).bytes() : local_bytes(plan_.value(v), n.scope == Scope::tower ? largest_ : whole_));
        if (is_op(n, kInput)) {
          variant.outputs[k] = {Slot::kFeed, 0, size};
        } else if (n.scope == Scope::state) {
          variant.outputs[k] = {Slot::kState, state, size};
          state += size;
        } else {
          items_.push_back(item(i, k, size, count, is_op(n, kCopy) ? copied_by(plan_, n) : v));
        }
      }
      if (std::int64_t wanted = aligned_bytes(variant.scratch_bytes); n.scope != Scope::tower && wanted) {
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
    const bool kept = read >= 0 && parts_.kept[static_cast<std::size_t>(read)];  // then in use all the time
    out.written = n.scope == Scope::tower || kept ? kBeforeAll : n.order;
    out.last_read = out.known = kept ? kForever : out.written;
    out.read_by.assign(here_.size(), kept ? kForever : kBeforeAll);
    out.after.assign(here_.size(), kBeforeAll);
    if (kept) return out;
    if (n.scope != Scope::tower) std::copy_n(passed_.marks(static_cast<int>(i)), here_.size(), out.after.begin());
    if (read >= 0) add_readers(n, static_cast<int>(i), read, out);
    if (read >= 0 && is_op(n, kCopy)) add_readers(n, static_cast<int>(i), n.outputs[0], out);
    if (last_ >= 0 && out.last_read < kForever && n.scope != Scope::tower) {
      // Known as read: by the tower's own readers when they are done, by others once it has waited for the main stream that far.
      const std::int64_t tower = out.read_by[static_cast<std::size_t>(last_)];
      std::int64_t main = kBeforeAll;
      const std::vector<std::int64_t>& main_at = main_at_[static_cast<std::size_t>(last_)];
      if (tower < 0 || out.last_read > out.written) main = std::lower_bound(main_at.begin(), main_at.end(), std::max(out.known, out.held)) - main_at.begin();
      if (main < static_cast<std::int64_t>(main_at.size())) out.gone = std::max(tower + 1, main);
    }
    return out;
  }

  void add_readers(const PlanNode& n, int i, ValueIndex value, RegionItem& out) {
    if (n.scope != Scope::tower && fetched_[static_cast<std::size_t>(value)]) out.last_read = kForever;
    for (int r : parts_.readers[static_cast<std::size_t>(value)]) {
      const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
      if (r == i || (is_op(n, kCopy) && is_op(reader, kCopy) && value != n.outputs[0])) continue;
      if (reader.scope == Scope::tower) {
        add_tower_reader(n, reader, r, out);
        continue;
      }
      const Reads how = reads(n, reader);
      if (how == Reads::elsewhere) continue;
      const std::int64_t last = how == Reads::here ? reader.order : !is_op(reader, kCopy) ? all_done(reader) : is_op(n, kCopy) ? kForever : copied(value, reader);
      out.last_read = std::max(out.last_read, last), out.known = std::max(out.known, how == Reads::here ? last : last + 1);
      if (how == Reads::here) out.held = std::max<std::int64_t>(out.held, parts_.joint_until[static_cast<std::size_t>(r)]);
    }
  }

  /// The join that a node is, or of whose result it is a copy; null: none.
  const PlanNode* join_behind(const PlanNode& n) const {
    const PlanNode* out = is_op(n, kCopy) && n.scope == Scope::shared ? &plan_.maker(n.inputs[0]) : &n;
    for (int steps = 0; steps < kMostBehind && out != &n && out->scope == Scope::shared && !is_join(*out) && !out->inputs.empty() && out->inputs[0] >= 0; ++steps) out = &plan_.maker(out->inputs[0]);
    return is_join(*out) && (out == &n || !out->ranged) ? out : nullptr;
  }

  /// Joins whose results are here, and what all towers of each class have passed when they come: by class and local device, positions that grow with the order.
  void know_joins() {
    std::vector<std::pair<int, int>> joins;  // order, what towers make
    for (int i : parts_.nodes_of_group[g_]) {
      const PlanNode& n = plan_.nodes[static_cast<std::size_t>(i)];
      const PlanNode* join = is_on(n, device_) ? join_behind(n) : nullptr;
      if (!join) continue;
      ValueIndex part = join->inputs[0];
      if (plan_.maker(part).scope == Scope::device) part = plan_.maker(part).inputs[0];
      if (plan_.maker(part).scope == Scope::tower) joins.emplace_back(n.order, plan_.value(part).maker);
    }
    std::sort(joins.begin(), joins.end());
    for (const auto& [order, maker] : joins)
      for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
        const int local = parts_.local(static_cast<int>(c), plan_.nodes[static_cast<std::size_t>(maker)].vector);
        if (local < 0) continue;
        auto& passed = joins_[{static_cast<int>(c), local}];
        if (const int at = parts_.position[c][static_cast<std::size_t>(maker)]; passed.empty() || passed.back().first < at) passed.emplace_back(at, order);
      }
  }

  /// The last step here that may run while what copies a value away, to towers alone, still reads it; kForever: nobody here knows.
  std::int64_t copied(ValueIndex value, const PlanNode& copy) {
    if (!std::exchange(knows_joins_, true)) know_joins();
    std::int64_t out = kBeforeAll;
    bool read = false;
    for (int r : parts_.readers[static_cast<std::size_t>(value)]) {
      const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
      if (is_op(reader, kCopy)) continue;
      if (reader.scope != Scope::tower) {
        if (std::any_of(reader.holders.begin(), reader.holders.end(), [&](int d) { return d != device_; })) return kForever;
        continue;
      }
      read = read || covers(reader.vector, copy.holders);
      for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
        const int local = parts_.local(static_cast<int>(c), reader.vector);
        if (local < 0) continue;
        const auto& passed = joins_[{static_cast<int>(c), local}];
        const auto at = std::lower_bound(passed.begin(), passed.end(), std::pair(parts_.position[c][static_cast<std::size_t>(r)], -1));
        if (at == passed.end()) return kForever;
        out = std::max<std::int64_t>(out, at->second - 1);
      }
    }
    return read ? out : kForever;
  }

  /// Whether each of these devices runs a vector's nodes.
  bool covers(int vector, const DeviceList& devices) {
    auto [known, fresh] = covers_.try_emplace({vector, &devices.get()});
    if (fresh) {
      const std::vector<int>& of = plan_.vectors[static_cast<std::size_t>(vector)];
      const std::set<int> there(of.begin(), of.end());
      known->second = std::all_of(devices.begin(), devices.end(), [&](int d) { return there.contains(d); });
    }
    return known->second;
  }

  /// What gathers ranges here waits for all who have one, and so for what these read before they made it.
  void know_gathers() {
    for (int i : parts_.nodes_of_group[g_]) {
      const PlanNode& n = plan_.nodes[static_cast<std::size_t>(i)];
      if (!is_op(n, kAllGather) || !is_on(n, device_)) continue;
      if (const PlanNode& join = plan_.maker(n.inputs[0]); join.ranged) gathers_.emplace_back(&join, n.order);
    }
    std::sort(gathers_.begin(), gathers_.end(), [](const auto& a, const auto& b) { return std::pair(a.first->order, a.second) < std::pair(b.first->order, b.second); });
  }

  /// The last step here that may run while some instance of a reader still reads; kForever: nothing here waits for all.
  std::int64_t all_done(const PlanNode& reader) const {
    if (!reader.ranged && !is_op(reader, kAllGather)) return copied_back(reader);
    auto at = std::lower_bound(gathers_.begin(), gathers_.end(), reader.order, [](const auto& g, int order) { return g.first->order < order; });
    at = std::find_if(at, gathers_.end(), [&](const auto& g) { return g.first->holders == reader.holders; });
    return at == gathers_.end() ? kForever : at->second - 1;
  }

  /// Who has a copy here of what a single device made has waited until that was made.
  std::int64_t copied_back(const PlanNode& reader) const {
    if (reader.scope != Scope::shared || reader.holders.size() != 1) return kForever;
    for (ValueIndex v : reader.outputs)
      for (int r : parts_.readers[static_cast<std::size_t>(v)])
        if (const PlanNode& copy = plan_.nodes[static_cast<std::size_t>(r)]; is_op(copy, kCopy) && copy.scope == Scope::shared && is_on(copy, device_)) return copy.order - 1;
    return kForever;
  }

  /// When this device's joins have read what lies in its frames.
  void set_joined() {
    std::vector<std::pair<std::size_t, std::int64_t>> out;
    for (std::size_t k = 0; k < here_.size(); ++k)
      for (int i : frame(k)) {
        const PlanNode& n = plan_.nodes[static_cast<std::size_t>(i)];
        for (ValueIndex v : n.outputs) {
          if (!parts_.joined[static_cast<std::size_t>(v)]) continue;
          std::int64_t last = kBeforeAll;
          for (int r : parts_.readers[static_cast<std::size_t>(v)]) {
            const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
            if (reader.scope != Scope::tower) last = std::max(last, reads(n, reader) == Reads::here ? reader.order : all_done(reader));
            if (last == kForever) break;
          }
          out.emplace_back(static_cast<std::size_t>(v), last);
        }
      }
    joined_read_.set(std::move(out));
  }

  void add_tower_reader(const PlanNode& n, const PlanNode& reader, int r, RegionItem& out) {
    for (std::size_t k = 0; k < here_.size(); ++k) out.read_by[k] = std::max(out.read_by[k], position(k, reader, static_cast<std::size_t>(r)));
    if (out.last_read < kForever && may_read_elsewhere(n, reader)) out.last_read = kForever;
  }

  /// Whether towers on another device of this memory space may read what lies here.
  bool may_read_elsewhere(const PlanNode& n, const PlanNode& reader) {
    const Others& others = others_of(reader.vector);
    if (moves_values(reader) || others.near.empty()) return moves_values(reader) && others.any;
    return std::any_of(others.near.begin(), others.near.end(), [&, &held = held_by(n)](int d) { return !held[static_cast<std::size_t>(d)]; });
  }

  /// Per device, whether it has an instance of its own.
  const std::vector<bool>& held_by(const PlanNode& n) {
    if (const std::vector<int>* list = &n.holders.get(); list != std::exchange(held_by_, list)) {
      held_.assign(spaces_.size(), false);
      for (int d : *list) held_[static_cast<std::size_t>(d)] = true;
    }
    return held_;
  }

  /// Devices but this one that run a vector's nodes: whether there are any, and those of this memory space.
  struct Others {
    bool any = false;
    std::vector<int> near;
  };
  const Others& others_of(int vector) {
    auto [known, fresh] = others_.try_emplace(vector);
    if (!fresh) return known->second;
    for (int d : plan_.vectors[static_cast<std::size_t>(vector)]) {
      if (d < 0 || d == device_) continue;
      known->second.any = true;
      if (spaces_[static_cast<std::size_t>(d)] == spaces_[static_cast<std::size_t>(device_)]) known->second.near.push_back(d);
    }
    std::vector<int>& near = known->second.near;
    std::sort(near.begin(), near.end());
    near.erase(std::unique(near.begin(), near.end()), near.end());
    return known->second;
  }

  /// From where a node outside the towers reads what lies here: this device's main stream alone, another instance, or any device.
  enum class Reads { here, elsewhere, anywhere };
  Reads reads(const PlanNode& n, const PlanNode& reader) {
    const std::vector<int>& by = reader.holders;
    if (is_op(n, kCopy) && moves_values(reader) && reader.inputs[0] != n.outputs[0]) return Reads::elsewhere;  // what moves a value reads where it was made
    if (is_op(reader, kCopy)) {
      if (n.scope != Scope::shared) return Reads::anywhere;
      if (n.holders.size() == 1) return n.holders.front() == device_ ? Reads::anywhere : Reads::elsewhere;
      const std::vector<int>& alike = plan_.groups[g_].devices;  // what is planned for the first holds for all
      const bool from_here = std::any_of(by.begin(), by.end(), [&](int d) { return std::find(alike.begin(), alike.end(), parts_.instances.moved_from(reader, reader.inputs[0], d)) != alike.end(); });
      return from_here ? Reads::anywhere : Reads::elsewhere;
    }
    if (is_op(reader, kPreAggregate) && n.scope == Scope::tower && reader.owners == n.vector) return Reads::here;  // each device reads its own parts
    if (by.size() == 1 && by.front() == device_) return Reads::here;
    if (n.scope != Scope::shared || moves_values(reader)) return Reads::anywhere;
    if (reader.holders == n.holders) return Reads::here;
    const std::vector<bool>& held = held_by(n);
    const int space = spaces_[static_cast<std::size_t>(device_)];
    if (std::any_of(by.begin(), by.end(), [&](int d) { return !held[static_cast<std::size_t>(d)] && spaces_[static_cast<std::size_t>(d)] == space; })) return Reads::anywhere;
    return std::find(by.begin(), by.end(), device_) != by.end() ? Reads::here : Reads::elsewhere;
  }

  PlacedGraph& plan_;
  const MemoryParts& parts_;
  const std::vector<bool>& fetched_;  ///< per value
  const std::vector<int>& spaces_;    ///< per device, the number of its memory space
  Passed& passed_;                    ///< then what they have passed when a node of this device's main stream runs
  std::size_t g_;
  int device_;
  const std::vector<FrameKey>& here_;
  Share largest_, whole_ = plan_.share(-1);
  int last_ = -1;                               ///< the class of the last of towers in turn
  std::vector<std::vector<std::int64_t>> main_at_;
  std::vector<std::pair<const PlanNode*, int>> gathers_;  ///< ranges of this join are gathered at this order
  std::map<int, Others> others_;                ///< by vector
  bool knows_joins_ = false;
  std::map<FrameKey, std::vector<std::pair<int, int>>> joins_;            ///< know_joins: position, order
  std::map<std::pair<int, const std::vector<int>*>, bool> covers_;
  const std::vector<int>* held_by_ = nullptr;   ///< of whom `held_` tells the devices
  std::vector<bool> held_;
  std::vector<RegionItem> items_;
  JoinedReads joined_read_;
};

}  // namespace

void plan_regions(PlacedGraph& plan, MemoryParts& parts) {
  std::vector<bool> fetched(plan.values.size());
  for (const auto& [name, v] : plan.fetches) fetched[static_cast<std::size_t>(v)] = true;
  const std::vector<int> spaces = space_numbers(plan.cluster);
  Passed passed(plan.nodes.size());
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    RegionPlanner planner(plan, parts, fetched, spaces, passed, g);
    planner.run();
    parts.regions.push_back(planner.take());
  }
}

}  // namespace belfry
