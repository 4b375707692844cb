#include <belfry/graph/plan/verify.h>

#include <fmt/format.h>

#include <belfry/graph/plan/verify_parts_internal.h>

namespace belfry {

std::vector<std::string> verify(const PlacedGraph& plan) {
  // Each part indexes by what those before it have checked.
  for (auto part : {check_tables, check_nodes, check_types, check_graph, check_places})
    if (std::vector<std::string> found = part(plan); !found.empty()) return found;
  std::vector<std::string> found = check_derived(plan);
  try {
    std::vector<std::string> more = check_run(plan);
    found.insert(found.end(), more.begin(), more.end());
  } catch (const UserError& e) {
    found.push_back(e.what());
  } catch (const std::exception& e) {
    found.push_back(fmt::format("unbound: {}", e.what()));
  }
  return found;
}

}  // namespace belfry
