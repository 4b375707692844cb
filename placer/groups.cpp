#include <algorithm>

#include <belfry/placer/groups_internal.h>

namespace belfry {

namespace {

class Groups {
 public:
  Groups(const Graph& graph, const ExpandOptions& options, const NodeStates& states, const std::vector<bool>& core, const std::vector<bool>& live)
      : g_(graph), options_(options), a_(states), core_(core), live_(live) {}

  TakenGroups take() {
    for (const FusionGroup& group : options_.groups)
      if (fits(group))
        for (NodeId id : group.members) out_.of[id] = &group;
    for (const auto& [id, group] : out_.of)
      if (id == group->members.back()) find_twins(*group);
    return std::move(out_);
  }

 private:
  const Node& node(NodeId id) const { return g_.node(id); }

  bool fits(const FusionGroup& group) const {
    const std::set<NodeId> inside(group.members.begin(), group.members.end());
    const NodeId last = group.members.back();
    const bool gives_away = std::any_of(group.members.begin(), group.members.end() - 1, [&](NodeId id) { return node(id).types.size() > 1; });
    for (NodeId id : group.members) {
      if (!live_[static_cast<std::size_t>(id)] || node(id).device != node(group.members[0]).device || out_.of.contains(id)) return false;
      if (a_.seen[static_cast<std::size_t>(id)][0] != a_.gives[static_cast<std::size_t>(id)][0]) return false;
      for (std::size_t i = 0; i < node(id).inputs.size(); ++i)
        if (ValueId v = node(id).inputs[i]; inside.contains(v.node) && (v.output != 0 || a_.reads[static_cast<std::size_t>(id)][i] != a_.as_seen(v))) return false;
      if (has_bits_of_members(g_, group) && !computes_as(id, last)) return false;
      if (id == last) continue;
      for (NodeId r : g_.readers(id))
        if (!inside.contains(r) && core_[static_cast<std::size_t>(r)] && reads_first(r, id)) return false;
      // Beside the group it would give its other outputs twice: the members stand alone.
      if (gives_away && is_asked_for(id, inside)) return false;
    }
    return !gives_away || !returns(inside, last);
  }

  /// A member of a tree is in the state of the whole, and reads no sum that is to be joined first.
  bool computes_as(NodeId id, NodeId last) const {
    const SplitState state = a_.gives[static_cast<std::size_t>(last)][0];
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

  /// Whether a member reads what others make of the values that members before it give away.
  bool returns(const std::set<NodeId>& inside, NodeId last) const {
    std::set<NodeId> behind;
    for (NodeId id = *inside.begin() + 1; id <= last; ++id)
      for (ValueId v : node(id).inputs) {
        const bool given = v.valid() && inside.contains(v.node) && v.output != 0;
        if (!given && !behind.contains(v.node)) continue;
        if (inside.contains(id)) return true;
        behind.insert(id);
      }
    return false;
  }

  /// Inner members that somebody else asks for, and those that these read, stand beside the group once more.
  void find_twins(const FusionGroup& group) {
    const std::set<NodeId> inside(group.members.begin(), group.members.end());
    for (std::size_t m = group.members.size() - 1; m-- > 0;) {
      const NodeId id = group.members[m];
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
};

}  // namespace

TakenGroups taken_groups(const Graph& graph, const ExpandOptions& options, const NodeStates& states, const std::vector<bool>& core, const std::vector<bool>& live) {
  return Groups(graph, options, states, core, live).take();
}

}  // namespace belfry
