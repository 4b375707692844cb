// Fused groups beside rules: trees give way where rules put their inner members elsewhere.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <belfry/graph/fusion_group.h>
#include <belfry/graph/plan/placement.h>

namespace belfry {

/// The groups of a graph, for any number of lists of rules.
class GroupsBesideRules {
 public:
  /// The graph must live as long.
  GroupsBesideRules(const Graph& graph, std::vector<FusionGroup> groups);
  /// Numbers of those that give way, ascending: trees of which a rule names inner members, and not all, and another place for them than the last has. There each goes, with the same bits.
  std::vector<std::size_t> giving_way(std::span<const PlacementRule> rules) const;
  /// All but these.
  std::vector<FusionGroup> without(const std::vector<std::size_t>& gone) const;

 private:
  bool cuts(std::span<const PlacementRule> rules, std::size_t rule, std::size_t group) const;

  const Graph& graph_;
  std::vector<FusionGroup> groups_;
  std::map<std::string, std::size_t, std::less<>> tree_of_;  // by the names of inner members
  std::vector<std::size_t> trees_;
};

}  // namespace belfry
