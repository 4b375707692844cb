// How far towers have come when something outside them runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace belfry {

inline constexpr std::int64_t kBeforeAll = -1;

/// Per node outside the towers, what all towers of each class here have passed when it runs: it reads, through whatever, what they
/// have made. Of many groups each looks at the nodes that it reaches alone.
class Passed {
 public:
  explicit Passed(std::size_t nodes) : row_(nodes, -1) {}
  void reset(std::size_t classes) {
    for (int i : reached_) row_[static_cast<std::size_t>(i)] = -1;
    reached_.clear();
    marks_.clear();
    classes_ = classes;
  }
  bool has(int node) const { return row_[static_cast<std::size_t>(node)] >= 0; }
  std::int64_t* marks(int node) {
    int& row = row_[static_cast<std::size_t>(node)];
    if (row < 0) {
      row = static_cast<int>(reached_.size());
      reached_.push_back(node);
      marks_.resize(marks_.size() + classes_, kBeforeAll);
    }
    return marks_.data() + static_cast<std::size_t>(row) * classes_;
  }

 private:
  std::size_t classes_ = 0;
  std::vector<int> row_, reached_;
  std::vector<std::int64_t> marks_;
};

}  // namespace belfry
