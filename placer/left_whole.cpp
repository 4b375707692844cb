#include <belfry/placer/left_whole.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <belfry/graph/glob.h>

namespace belfry {

GroupsBesideRules::GroupsBesideRules(const Graph& graph, std::vector<FusionGroup> groups) : graph_(graph), groups_(std::move(groups)) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!has_bits_of_members(graph, groups_[g])) continue;
    trees_.push_back(g);
    for (auto m = groups_[g].members.begin(); m != groups_[g].members.end() - 1; ++m) tree_of_.emplace(graph.node(*m).name, g);
  }
}

std::vector<std::size_t> GroupsBesideRules::giving_way(std::span<const PlacementRule> rules) const {
  std::set<std::size_t> out;
  if (trees_.empty()) return {};
  for (std::size_t r = 0; r < rules.size(); ++r) {
    const std::string name = split_match(rules[r].match).second;
    if (name.find_first_of("*?") == name.npos) {  // of which there may be one a node
      if (auto at = tree_of_.find(name); at != tree_of_.end() && cuts(rules, r, at->second)) out.insert(at->second);
      continue;
    }
    for (std::size_t g : trees_)
      if (!out.contains(g) && cuts(rules, r, g)) out.insert(g);
  }
  return {out.begin(), out.end()};
}

bool GroupsBesideRules::cuts(std::span<const PlacementRule> rules, std::size_t rule, std::size_t group) const {
  const std::vector<NodeId>& members = groups_[group].members;
  const auto split = split_match(rules[rule].match);
  const auto& [tower, glob] = split;
  auto named = [&glob = glob, this](NodeId id) { return glob_matches(glob, graph_.node(id).name); };
  if (std::none_of(members.begin(), members.end() - 1, named) || std::all_of(members.begin(), members.end(), named)) return false;
  for (const PlacementRule& other : rules) {
    const auto [of, last] = split_match(other.match);
    if (of == tower && glob_matches(last, graph_.node(members.back()).name)) return other.devices != rules[rule].devices || other.ranges != rules[rule].ranges;
  }
  return true;
}

std::vector<FusionGroup> GroupsBesideRules::without(const std::vector<std::size_t>& gone) const {
  std::vector<FusionGroup> out;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (!std::binary_search(gone.begin(), gone.end(), g)) out.push_back(groups_[g]);
  return out;
}

}  // namespace belfry
