// Towers of several classes that take turns in the slots of streams: which parts of their lives are at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

class SlotTurns {
 public:
  static constexpr int kReleased = std::numeric_limits<int>::max();
  using Phase = std::pair<int, int>;  // epoch, phase

  /// A class on a local device: what its towers' frames hold, and from which of its phases to which.
  struct Sort {
    FrameKey key;
    std::vector<Phase> phases;
    std::size_t first = 0;                   ///< number of its first span among those of all sorts
    std::vector<std::pair<int, int>> spans;  ///< first and last phase; kReleased: until the next tower of the slot knows that all is read
    std::vector<int> span_of;                ///< per block
    std::vector<char> strided;               ///< per span, whether towers in different slots need it at once
  };

  /// A stream whose slots these classes share; what devices have in common is looked at once.
  struct Line {
    struct Tower {
      int sort = 0, rank = 0;
      std::vector<int> at;   ///< per phase the entry; -1: none
      int released = kReleased - 1;
    };
    std::vector<Tower> towers;
    std::vector<std::set<int>> sorts;  ///< per rank
    std::int64_t streams = 1;
    std::vector<std::vector<int>> text;
    std::int64_t row = 0;              ///< bytes that a tower makes for joins
    std::vector<std::int64_t> rows;    ///< per sort: how many towers, of those that leave their slot to others, make them before it is done
  };

  SlotTurns(const PlacedGraph& plan, const MemoryParts& parts, const std::vector<FrameKey>& keys, const std::vector<std::size_t>& streams);

  /// Sets `pattern_of`, `patterns`, what is strided, and rows of lines.
  void find_meets();

  std::size_t number(int sort, int span) const { return sorts[static_cast<std::size_t>(sort)].first + static_cast<std::size_t>(span); }
  const std::vector<FrameBlock>& blocks(std::size_t s) const { return parts_.layouts.at(sorts[s].key); }

  std::vector<Sort> sorts;
  std::vector<Line> lines;
  std::size_t spans = 0;
  using Meets = std::vector<std::tuple<int, int, int>>;  ///< towers in different slots that are in use at once: line and both ranks
  std::vector<int> pattern_of;                           ///< per pair of spans
  std::vector<Meets> patterns;                           ///< few, whatever the number of spans

 private:
  void add_sort(const FrameKey& key);
  void add_line(const PlanStream& stream);
  int sort_of(int tower, int device) const;
  std::vector<std::pair<int, int>> entries(const Line::Tower& t) const;
  void count_rows(Line& line) const;

  const PlacedGraph& plan_;
  const MemoryParts& parts_;
};

}  // namespace belfry
