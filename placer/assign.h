// assign: rules give every node of a tower graph its devices.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>

namespace belfry {

/// Nodes of a tower graph by their names: made once, for all placements of it.
class NodeNames {
 public:
  explicit NodeNames(const TowerGraph& graph);
  /// The first node of the name and those after it, linked by `next`; -1 behind the last. `guess`: a node that may be the first.
  int find(const std::string& name, int guess = -1) const;
  int next(int node) const { return next_[static_cast<std::size_t>(node)]; }

 private:
  std::unordered_map<std::string, std::pair<int, int>> known_;  // the first and the last of a name
  std::vector<int> next_;
  std::vector<const std::string*> first_;                       // per node, its name where it is the first of it, else null
};

/// First match wins, for each tower by itself, those without rows too. Feeds and results stay on the host. UserError for a node that no rule matches,
/// a device that the cluster lacks, and where one of the first `must_decide` rules decides nothing; "**" may.
void assign(PlacedGraph& plan, const std::vector<PlacementRule>& rules, const NodeNames& names, const NumberLists& readers, std::size_t must_decide = 0);

/// The number of a list of devices per tower among the plan's vectors, to which it is added if it is new.
int vector_number(PlacedGraph& plan, std::vector<int> devices);

/// The user's requests as rules: exact names, those that follow a requested node (`of`) with it.
std::vector<PlacementRule> rules_of_requests(const Graph& graph);

}  // namespace belfry
