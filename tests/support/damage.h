// Ways to spoil a plan, each with the words that the verifier must open with.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry::test {

struct Damage {
  std::string name;
  std::string plan;                            ///< of plans_to_damage()
  std::function<void(PlacedGraph&)> act;
  std::string words;                           ///< openings of the objection, any of them, separated by |
};

/// Sound plans of several shapes, by name.
const std::map<std::string, PlacedGraph>& plans_to_damage();
const std::vector<Damage>& damages();
/// Those of ranges, of what is computed again, of chunks, gates, servers and GPUs: a part of damages().
std::vector<Damage> damages_of_some_plans();

}  // namespace belfry::test
