// All parts of a net that can follow what is already placed, within a load.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <belfry/placer/cut/bounds_internal.h>

namespace belfry::cutting {

/// A set of items that holds, with an item, all that must be on no later device: words of 64 items.
using Words = std::vector<std::uint64_t>;

struct Part {
  double load = 0, bytes = 0;   ///< of the part
  double work = 0, crossing = 0;  ///< of the prefix with the part: its items' work, and what crosses the cut behind it
  std::uint64_t hash = 0;       ///< of that prefix
  const Words* prefix = nullptr;
};

class Parts {
 public:
  Parts(const Items& items, const std::vector<CutKind>& kinds, const Bounds& bounds);

  struct Limits {
    double cap = 0;             ///< of the load
    double least_work = 0;      ///< of the prefix with the part: smaller ones need not all be visited
  };
  /// Visits each part on a device of the kind behind `prefix`, once, in a fixed order. False where `steps` ran out.
  bool walk(const Words& prefix, std::size_t kind, const Limits& limits, std::int64_t& steps, const std::function<void(const Part&)>& visit);

  std::size_t words() const { return (static_cast<std::size_t>(items_.count) + 63) / 64; }
  /// The prefix that is everything.
  Words full() const;

 private:
  bool step(std::size_t first, std::size_t past);
  void add(int item);
  void remove(int item);
  void exclude(int item);
  void start(const Words& prefix);

  const Items& items_;
  const std::vector<CutKind>& kinds_;
  const Bounds& bounds_;
  std::vector<double> below_;                 ///< per item, the work of what goes with it if it is left out
  std::vector<std::uint64_t> key_;            ///< per item, for hashes

  // Of the walk.
  std::size_t kind_ = 0;
  bool pays_ = true;
  Limits limits_;
  std::int64_t* steps_ = nullptr;
  const std::function<void(const Part&)>* visit_ = nullptr;
  Words now_;
  std::uint64_t hash_ = 0;                    ///< of the prefix alone
  Words ready_, crossing_;                    ///< of the prefix: items that nothing must come before any more; values that leave it
  Part part_;
  double sure_ = 0;                           ///< load that no further item takes away
  double before_ = 0;                         ///< work of the prefix alone
  std::vector<double> work_;                  ///< per word of the prefix
  std::vector<int> inside_, prefixed_, outside_;  ///< per value, members in the part, in the prefix with the part, surely outside the part
  std::vector<int> missing_;                  ///< per item, how many must come before it
  std::vector<int> open_;                     ///< a stack of lists of items that could be next
};

}  // namespace belfry::cutting
