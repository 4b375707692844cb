#include <algorithm>
#include <utility>

#include <belfry/placer/groups_internal.h>

namespace belfry {

namespace {

class Groups {
 public:
  Groups(const Graph& graph, const ExpandOptions& options, const NodeStates& states, const std::vector<bool>& core, const std::vector<bool>& live)
      : g_(graph), options_(options), a_(states), core_(core), live_(live) {}

  TakenGroups take() {
    for (const FusionGroup& group : options_.groups)
      if (fits(group)) {
        for (NodeId id : group.members) out_.of[id] = &group;
        if (gives_away(group)) apart_.push_back(ends_of(group));
      }
    for (const auto& [id, group] : out_.of)
      if (id == group->members.back()) find_twins(*group);
    return std::move(out_);
  }

 private:
  const Node& node(NodeId id) const { return g_.node(id); }

  bool fits(const FusionGroup& group) const {
    const std::set<NodeId> inside(group.members.begin(), group.members.end());
    const NodeId last = group.members.back();
    if (!live_[static_cast<std::size_t>(last)]) return false;  // somebody asks for an inner one alone
    const bool given = gives_away(group);
    for (NodeId id : group.members) {
      if (!live_[static_cast<std::size_t>(id)] || node(id).device != node(group.members[0]).device || out_.of.contains(id)) return false;
      const bool aside = group.kind == kWithElementwise && is_sum_aside(*node(id).op);  // in a state of its own, which its readers see to
      if (!aside && a_.seen[static_cast<std::size_t>(id)][0] != a_.gives[static_cast<std::size_t>(id)][0]) return false;
      for (std::size_t i = 0; i < node(id).inputs.size(); ++i)
        if (ValueId v = node(id).inputs[i]; inside.contains(v.node) && (v.output != 0 || (group.kind == kWithElementwise && is_sum_aside(*node(v.node).op)) || a_.reads[static_cast<std::size_t>(id)][i] != a_.as_seen(v))) return false;
      if (has_bits_of_members(g_, group) && !aside && !computes_as(id, group.members[0])) return false;
      if (id == last || keeps(group, id)) continue;
      for (NodeId r : g_.readers(id))
        if (!inside.contains(r) && core_[static_cast<std::size_t>(r)] && reads_first(r, id)) return false;
      // Beside the group it would give its other outputs twice: the members stand alone.
      if (given && is_asked_for(id, inside)) return false;
    }
    return !given || !returns(group, inside);
  }

  bool gives_away(const FusionGroup& group) const {
    return !group.kept.empty() || std::any_of(group.members.begin(), group.members.end() - 1, [&](NodeId id) { return node(id).types.size() > 1; });
  }

  static std::pair<NodeId, NodeId> ends_of(const FusionGroup& group) {
    const auto [first, last] = std::minmax_element(group.members.begin(), group.members.end());
    return {*first, *last};
  }

  /// A member of a tree is in the state of the whole, and reads no sum that is to be joined first.
  bool computes_as(NodeId id, NodeId first) const {
    const SplitState state = a_.gives[static_cast<std::size_t>(first)][0];
    const std::vector<SplitState>& reads = a_.reads[static_cast<std::size_t>(id)];
    return a_.gives[static_cast<std::size_t>(id)][0] == state && std::none_of(reads.begin(), reads.end(), [&](SplitState s) { return s.is_partial() && s != state; });
  }

  bool reads_first(NodeId reader, NodeId id) const {
    const std::vector<ValueId>& inputs = node(reader).inputs;
    return std::find(inputs.begin(), inputs.end(), ValueId{id, 0}) != inputs.end();
  }

  /// Whether somebody outside wants what stays inside.
  bool is_asked_for(NodeId id, const std::set<NodeId>& inside) const {
    return std::any_of(options_.fetches.begin(), options_.fetches.end(), [&](const auto& f) { return f.second == ValueId{id, 0}; }) ||
           std::any_of(g_.readers(id).begin(), g_.readers(id).end(), [&](NodeId r) { return live_[static_cast<std::size_t>(r)] && !inside.contains(r) && reads_first(r, id); });
  }

  /// Whether a member reads what others make of the values that members before it give away. A group that was taken waits as a whole: ids lead
  /// back from where one ends to what it gives away, so that all that overlap are looked at together.
  bool returns(const FusionGroup& group, const std::set<NodeId>& inside) const {
    auto [first, last] = ends_of(group);
    for (bool more = true; more;) {
      more = false;
      for (const auto& [from, to] : apart_)
        if (from <= last && to >= first && (from < first || to > last)) first = std::min(first, from), last = std::max(last, to), more = true;
    }
    std::set<NodeId> behind;
    for (bool more = true; more;) {
      const std::size_t before = behind.size();
      for (NodeId id = first + 1; id <= last; ++id)
        for (ValueId v : node(id).inputs) {
          const bool given = v.valid() && inside.contains(v.node) && (v.output != 0 || keeps(group, v.node));
          if (!given && !behind.contains(v.node)) continue;
          if (inside.contains(id)) {
            if (!given) return true;
            continue;
          }
          if (auto at = out_.of.find(id); at != out_.of.end()) behind.insert(at->second->members.begin(), at->second->members.end());
          behind.insert(id);
        }
      more = behind.size() > before;
    }
    return false;
  }

  /// Inner members that somebody else asks for, and those that these read, stand beside the group once more.
  void find_twins(const FusionGroup& group) {
    const std::set<NodeId> inside(group.members.begin(), group.members.end());
    for (std::size_t m = group.members.size() - 1; m-- > 0;) {
      const NodeId id = group.members[m];
      if (keeps(group, id)) continue;
      bool asked = is_asked_for(id, inside);
      for (NodeId r : g_.readers(id)) asked = asked || out_.twins.contains(r);
      if (asked) out_.twins.insert(id);
    }
  }

  const Graph& g_;
  const ExpandOptions& options_;
  const NodeStates& a_;
  const std::vector<bool>&core_, &live_;
  TakenGroups out_;
  std::vector<std::pair<NodeId, NodeId>> apart_;  // the ends of those that give values away
};

}  // namespace

TakenGroups taken_groups(const Graph& graph, const ExpandOptions& options, const NodeStates& states, const std::vector<bool>& core, const std::vector<bool>& live) {
  return Groups(graph, options, states, core, live).take();
}

}  // namespace belfry
