// A race detector: vector clocks on blocks of bytes, and what each block holds.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/vector_clock.h>

namespace belfry {

/// Told of steps in the order in which they begin, in any legal interleaving. One run covers waits, overlaps and donation
/// for all interleavings: a read must be ordered after the write of its value, a write after all readers of the old one.
class Watcher {
 public:
  /// Of a step; `once`: of what is made once, before it.
  explicit Watcher(const BoundPlan& bound, bool once = false);
  void begin(const Step& step);
  /// "missing wait: …", "overlap: …".
  const std::vector<std::string>& found() const { return found_; }
  /// Whether a buffer holds the tagged value wholly.
  bool holds(const BufferRef& buffer, const Tag& tag);

 private:
  struct Cell {
    int writer = 0, write = 0;  ///< stream and sequence of the last write; 0: none
    int tag = -1;
    std::vector<std::pair<int, int>> reads;  ///< by stream, the last sequence that has read it since: of thousands of streams few
  };
  /// Whether a step comes after another.
  bool follows(const Step& step, int stream, int sequence) const;
  int id(const Tag& tag);
  std::span<Cell> cells(const BufferRef& buffer);
  void check_read(const Step& step, const BufferRef& buffer);
  void check_write(const Step& step, const BufferRef& buffer);
  std::string name(const Step& step) const;
  void report(std::string what);

  const BoundPlan& bound_;
  std::vector<std::vector<std::int64_t>> edges_;      // per space, where buffers begin and end
  std::vector<std::vector<Cell>> cells_;              // per space, from edge to edge
  std::vector<std::vector<int>> waits_;               // per stream and step, those for it that are still to come
  std::vector<VectorClock> clock_;                    // per stream, of the others
  std::vector<std::map<int, VectorClock>> after_;     // per stream, by step, until the last wait for it
  std::map<Tag, int> ids_;
  std::vector<std::string> found_;
};

}  // namespace belfry
