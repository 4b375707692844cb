// The folded plan unrolled: for every stream the steps it launches, with the bytes they touch and the waits they need.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// What a buffer must hold to be read as a value: value, tower or piece (-1: shared), device.
struct Tag {
  ValueIndex value = -1;
  int part = -1, device = -1;
  auto operator<=>(const Tag&) const = default;
};

struct BufferRef {
  int space = -1;         ///< index into BoundPlan::spaces; kFeedSpace: the user's feed
  std::int64_t at = 0;    ///< byte offset in the space's arena
  std::int64_t bytes = 0;
  LocalType type;
  Tag tag;
};
inline constexpr int kFeedSpace = -2;

/// One buffer of an input or output; joins read several: the towers [low, high).
struct Part {
  int low = 0, high = 1;
  BufferRef buffer;
};

struct StepWait {
  int stream = 0, count = 0;  ///< until that stream has finished so many steps
  auto operator<=>(const StepWait&) const = default;
};

struct Step {
  int node = -1, tower = -1, device = -1;
  int stream = 0, sequence = 0;  ///< 1 for the first step of its stream
  std::vector<StepWait> waits;
  std::vector<std::vector<Part>> reads, writes;  ///< per input (empty: left out) and output (empty: nobody reads it)
  BufferRef scratch;
  const Variant* variant = nullptr;
};

struct StateBuffer {
  int node = -1, device = -1;
  BufferRef buffer;
  std::int64_t first = 0;  ///< element of the variable with which it begins
  std::int64_t bytes = 0;  ///< planned: all holders have room for the longest range
};

/// UserError ("unbound: …") where a node has no device, offset, stream or instance to read, or an offset that is beyond counting.
class BoundPlan {
 public:
  explicit BoundPlan(const PlacedGraph& plan);
  explicit BoundPlan(PlacedGraph&&) = delete;  // steps point into the plan: keep it

  const PlacedGraph& plan;
  std::vector<std::string> spaces;
  std::vector<std::int64_t> arena_bytes;        ///< per space
  std::vector<std::int64_t> device_start;       ///< per device, in its space's arena
  std::vector<std::int64_t> device_bytes;       ///< of it for values; behind them lies what it has for feeds that land
  std::vector<std::vector<Step>> streams;       ///< as plan.streams
  std::vector<Step> once;                       ///< what is made before a step where variables were set: on main streams, in their order, without waits
  std::vector<BufferRef> kept;                  ///< of it what steps read
  std::vector<StateBuffer> state;
  std::vector<Share> shares;                    ///< per tower that has rows

 private:
  friend class Binder;
};

/// One legal order of all steps: (stream, index). Empty where steps wait for each other; `stuck` names them.
std::vector<std::pair<int, int>> legal_order(const BoundPlan& bound, std::vector<std::string>* stuck = nullptr);

/// Per device the most bytes of values and scratch that are live at once in one of some legal orders (streams one by one, side by side,
/// towers so far and then the rest, one device ahead of the others): with what the plan writes in place no arena can be smaller, since its
/// waits let each of these orders come. Orders of so many steps together are looked at: with more the bound may be higher; as with
/// collectives of a library, whose ranks these orders let run apart.
std::vector<std::int64_t> live_maxima(const BoundPlan& bound, std::size_t most_steps = 1'000'000);

}  // namespace belfry
