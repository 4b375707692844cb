// The user's graph behind the lines of a plan's file.
#pragma once

#include <map>
#include <vector>

#include <belfry/frontends/json/records.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

inline constexpr std::int64_t kMostNodes = 100'000'000;

/// What a line says of the graph, beside the plan's node.
struct PlanLine {
  const JsonValue* at = nullptr;
  NodeRecord record;              ///< of a node that stands for itself
  std::vector<NodeRecord> members;
  std::vector<bool> kept;         ///< per member
  std::vector<int> positions;     ///< of the members in the graph, or none
  int position = -1;              ///< of a node alone that the plan has behind one that the graph has behind it
};

/// A list in which those of `placed` stand at their places, as far as it reaches, and the rest between them in order.
template <class T>
std::vector<T> put_in_place(std::map<int, T> placed, std::vector<T> rest) {
  std::vector<T> out;
  auto next = placed.begin();
  for (std::size_t k = 0; k < rest.size() || next != placed.end();) {
    bool here = next != placed.end() && (next->first == static_cast<int>(out.size()) || k == rest.size());
    out.push_back(here ? std::move((next++)->second) : std::move(rest[k++]));
  }
  return out;
}

/// The nodes that the lines stand for and those that are idle, as the user wrote them: what is inserted between them is left out.
Graph graph_of_lines(const JsonDocument& d, const RecordReader& records, const PlacedGraph& plan, const std::vector<PlanLine>& lines, JsonObject& root);

/// Sets the node of the graph and the members that a plan's node stands for; an error at its line where the two disagree.
void match_user(const JsonDocument& d, const PlacedGraph& plan, const PlanLine& line, PlanNode& n);

}  // namespace belfry
