// Two plans of one graph beside each other: the same bits, or the first node that differs and by how much.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <belfry/frontends/session/session.h>

namespace belfry {

struct Difference {
  std::int64_t step = 0;
  std::string node;            ///< the first in the plan's order
  std::string first_device, second_device;  ///< which hold the value: of a mirrored one each holder is compared
  int tower = -1;              ///< -1: a shared node
  std::string value;           ///< its output
  std::int64_t elements = 0;   ///< that differ
  std::int64_t first_element = 0;
  double a = 0, b = 0;         ///< that element
  std::string types;           ///< "f32(16, 10) and f32(8, 10)", where they are of unlike shapes: no element has a twin then
  std::uint64_t ulps = 0;      ///< the largest distance of two elements; of integers their difference
};

struct Comparison {
  std::int64_t steps = 0, values = 0, bytes = 0;  ///< compared: values are outputs of nodes, towers counted
  std::optional<Difference> difference;
  std::string first_hash, second_hash;            ///< XXH3 of all variables after the last step
  std::string first_arithmetic, second_arithmetic;  ///< hashes of the plans as they are, whatever their files say
  std::int64_t alone = 0;                          ///< values of one plan alone, which groups and what is computed again have
  std::vector<std::string> apart;                  ///< results that one plan alone has, or that are another value in each: nobody compared them
  bool same_bits() const { return !difference && apart.empty() && first_hash == second_hash; }
  bool same_arithmetic() const { return first_arithmetic == second_arithmetic; }
};

/// Runs both plans for `steps` steps from the same state on the same feeds, every node's outputs compared by name, tower and holder. UserError for a plan that does not hold.
/// `second_state` (if not empty) is the second plan's state: to see where a change shows first.
Comparison compare(std::shared_ptr<const PlacedGraph> a, std::shared_ptr<const PlacedGraph> b, const Library& library, const std::vector<Batch>& feeds, const State& state,
                   const State& second_state = {});

/// The distance of two floats in units in the last place; of different signs counted through zero.
std::uint64_t ulp_distance(float a, float b);
std::uint64_t ulp_distance(double a, double b);

/// XXH3-128 of all tensors, by name.
std::string hash_of(const State& state);

}  // namespace belfry
