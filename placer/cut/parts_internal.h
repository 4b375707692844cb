// All parts of a net that can follow what is already placed, within a load.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <belfry/placer/cut/bounds_internal.h>

namespace belfry::cutting {

/// A set of items that holds, with an item, all that must be on no later device: words of 64 items.
using Words = std::vector<std::uint64_t>;

/// Of a set's words: those before the first are full, those from `past` on are empty.
struct Span {
  std::uint32_t first = 0, past = 0;
};
/// The shortest one within another.
Span shortest(const Words& set, Span span);

struct Part {
  double load = 0, bytes = 0;   ///< of the part
  double work = 0, crossing = 0;  ///< of the prefix with the part: its items' work, and what crosses the cut behind it
  std::uint64_t hash = 0;       ///< of that prefix
  const Words* prefix = nullptr;
  Span span;                    ///< of the prefix
};

/// A set of numbers that is quick to walk where it has few of them.
class Sparse {
 public:
  explicit Sparse(std::size_t count) : words_((count + 63) / 64), some_((words_.size() + 63) / 64) {}
  void set(int number, bool has);
  /// Ascending.
  template <class F>
  void for_each(F f) const;

 private:
  Words words_, some_;                        ///< the second: of words that are not empty
};

class Parts {
 public:
  Parts(const Items& items, const std::vector<CutKind>& kinds, const Bounds& bounds);

  struct Limits {
    double cap = 0;             ///< of the load
    double least_work = 0;      ///< of the prefix with the part: smaller ones need not all be visited
  };
  /// Visits each part on a device of the kind behind `prefix`, once, in a fixed order. False where `steps` ran out.
  bool walk(const Words& prefix, Span span, std::size_t kind, const Limits& limits, std::int64_t& steps, const std::function<void(const Part&)>& visit);

  std::size_t words() const { return (static_cast<std::size_t>(items_.count) + 63) / 64; }
  /// The prefix that is everything.
  Words full() const;

 private:
  struct Value {
    double seconds = 0;
    int readers = 0;
    int inside = 0, prefixed = 0, outside = 0;  ///< members in the part, in the prefix with the part, surely outside the part
  };

  void start(const Words& prefix, Span span);
  void turn(int item, bool enters);
  bool step(std::size_t first, std::size_t past);
  bool fits(int item) const;
  double sure_with(int item) const;
  void open_item(int item, std::size_t first, std::size_t past);
  void add(int item);
  void remove(int item);
  void exclude(int item);

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
  Span span_;                                 ///< of the prefix alone
  std::uint64_t hash_ = 0;                    ///< of the prefix alone
  Sparse ready_, crossing_;                   ///< of the prefix: items that nothing must come before any more; values that leave it
  Part part_;
  double sure_ = 0;                           ///< load that no further item takes away
  std::vector<double> work_, full_work_;      ///< per word: of its items in the prefix; of all items before it
  std::vector<Value> values_;
  std::vector<int> missing_;                  ///< per item, how many must come before it
  std::vector<int> open_;                     ///< a stack of lists of items that could be next
};

}  // namespace belfry::cutting
