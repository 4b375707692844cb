// Vector clocks of thousands of streams, most of which are alike.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace belfry {

/// A number per stream, 0 until it is set. A tree whose parts copies share: one is changed in a path's memory, and two are
/// joined in the time of what differs.
class VectorClock {
 public:
  /// For the streams 0 to `streams` − 1.
  explicit VectorClock(std::size_t streams = 0);
  int at(int stream) const;
  void set(int stream, int number);
  /// Of each stream the larger number of both, which are for as many streams.
  void join(const VectorClock& other);

 private:
  static constexpr int kBits = 4, kWidth = 1 << kBits;
  using Part = std::shared_ptr<const void>;     // none: all are 0
  using Numbers = std::array<int, kWidth>;      // on level 0
  using Parts = std::array<Part, kWidth>;       // above
  static Part with(const Part& part, int level, int stream, int number);
  static Part joined(const Part& a, const Part& b, int level);

  int top_ = 0;
  Part root_;
};

}  // namespace belfry
