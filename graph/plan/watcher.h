// A race detector: vector clocks on blocks of bytes, and what each block holds.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/bound_plan.h>

namespace belfry {

/// Told of steps in the order in which they begin, in any legal interleaving. One run covers waits, overlaps and donation
/// for all interleavings: a read must be ordered after the write of its value, a write after all readers of the old one.
class Watcher {
 public:
  explicit Watcher(const BoundPlan& bound);
  void begin(const Step& step);
  /// "missing wait: …", "overlap: …".
  const std::vector<std::string>& found() const { return found_; }
  /// Whether a buffer holds the tagged value wholly.
  bool holds(const BufferRef& buffer, const Tag& tag) const;

 private:
  struct Cell {
    std::int64_t past = 0;      ///< in blocks; the key is the first
    int writer = 0, write = 0;  ///< stream and sequence of the last write; 0: none
    int tag = -1;
    std::vector<int> reads;     ///< per stream, the last sequence that read it
  };
  using Cells = std::map<std::int64_t, Cell>;
  int id(const Tag& tag);
  /// Puts one cell in the place of all in its range.
  static void put(Cells& cells, std::int64_t first, Cell cell);
  /// Cells end at `block`: one that goes on is cut in two.
  static void cut(Cells& cells, std::int64_t block);
  void check_read(const Step& step, const BufferRef& buffer);
  void check_write(const Step& step, const BufferRef& buffer);
  std::string name(const Step& step) const;
  void report(std::string what);

  const BoundPlan& bound_;
  std::vector<Cells> cells_;                          // per space: what was written, so that the cost goes with buffers and not with bytes
  std::vector<std::vector<int>> clock_;               // per stream
  std::vector<std::vector<std::vector<int>>> after_;  // per stream and step
  std::map<Tag, int> ids_;
  std::vector<std::string> found_;
};

}  // namespace belfry
