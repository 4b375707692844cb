// How a value of the tower graph is held by the towers, and how the batch is cut into shares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace belfry {

enum class Reduction : std::uint8_t { sum, max };

/// replicated: the same everywhere. rows(axis): each tower has its share of the rows, along `axis`.
/// partial(sum | max): the towers' values joined are the value. per_tower: each tower has one of its own.
struct SplitState {
  enum Kind : std::uint8_t { kReplicated, kRows, kPartial, kPerTower };
  Kind kind = kReplicated;
  int axis = -1;                          ///< of rows
  Reduction reduction = Reduction::sum;   ///< of partial
  bool is_rows() const { return kind == kRows; }
  bool is_partial() const { return kind == kPartial; }
  bool is_per_tower() const { return kind == kPerTower; }
  bool is_replicated() const { return kind == kReplicated; }
  bool operator==(const SplitState&) const = default;
};

inline constexpr SplitState kReplicated{};
inline constexpr SplitState kPerTower{SplitState::kPerTower};
constexpr SplitState rows(int axis) { return {SplitState::kRows, axis}; }
constexpr SplitState partial(Reduction r) { return {SplitState::kPartial, -1, r}; }

/// "replicated", "rows(0)", "partial(sum)", "per_tower"; parse_split_state reads them back.
std::string to_string(const SplitState& state);
SplitState parse_split_state(const std::string& text);

/// How the towers' mean losses become the loss: the mean over the batch, the mean of the towers' means, or their sum.
enum class Combine : std::uint8_t { global_mean, tower_mean, tower_sum };
std::string to_string(Combine combine);
Combine parse_combine(const std::string& text);

struct Range {
  std::int64_t first = 0, past = 0;
  std::int64_t count() const { return past - first; }
  bool operator==(const Range&) const = default;
};

/// Part `i` of `count` things in contiguous shares; the first `count mod parts` have one more.
Range share_of(std::int64_t count, std::int64_t parts, std::int64_t i);
/// The part with thing `k` of them.
std::int64_t share_with(std::int64_t count, std::int64_t parts, std::int64_t k);

/// What a node on one share may know of the batch.
struct Share {
  std::int64_t first_row = 0;  ///< global index
  std::int64_t rows = 0;
  std::int64_t batch = 0;      ///< global row count
  int towers = 1;              ///< that have rows
  Combine combine = Combine::global_mean;
};

/// The largest power of two below n: where the tree over n towers is cut in two (n ≥ 2).
int tree_cut(int n);

/// Subtrees of the tree over [0, towers) that a holder of the towers [first, past) can add by itself, largest first met.
std::vector<Range> complete_subtrees(Range held, int towers);

}  // namespace belfry
