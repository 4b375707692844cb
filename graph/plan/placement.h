// One form for a strategy's answer, a placement file, --move and a hand edit: how many towers, and rules that name devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <belfry/graph/device_id.h>
#include <belfry/graph/split_state.h>

namespace belfry {

/// Limits of a plan, made or read: sums and products of its offsets stay inside 63 bits.
inline constexpr std::int64_t kMostTowers = 65536, kMostThreads = 4096, kMostValueBytes = std::int64_t{1} << 44;

/// How a sum over towers is carried out. Direct: whoever holds it adds all parts. Groups: the holder that is nearest to some
/// devices adds theirs first. Both are the tree. Ring: in ranges that go round the holders, each adding its parts: another order.
enum class SumWay : std::uint8_t { direct, groups, ring };
std::string to_string(SumWay way);
SumWay parse_sum_way(std::string_view text);

/// `match` is a glob over node names: ** any text, * any text without '/', ? one character. "tower_3/x" means tower 3's x,
/// "tower_*/x" every tower's, "x" shared nodes, variables and every tower. The first rule that matches wins.
struct PlacementRule {
  std::string match;
  std::vector<DeviceId> devices;  ///< a tower node: its towers are dealt in contiguous shares; any other node: all hold it
  std::string reason = {};      ///< that a plan tells of each node; empty: the rule is its own
  bool ranges = false;  ///< not a tower node: each of its devices holds and computes a share of the elements
  SumWay sum = SumWay::direct;  ///< of aggregates alone, as the next
  int bucket = 0;       ///< sums of one bucket are joined one behind the other, when the last has its parts
  bool operator==(const PlacementRule&) const = default;
};

/// The order of phases on every stream.
enum class PhaseOrder : std::uint8_t { by_tower, gpipe, one_f_one_b, interleaved };
std::string to_string(PhaseOrder order);
/// Towers of which a device holds values for their gradients at once, at the most, of those that it runs, cut into so many stages.
int in_flight(PhaseOrder order, int towers, int stages);
PhaseOrder parse_phase_order(std::string_view text);

/// Who makes sums over towers on several GPUs: our own kernels along the tree, or a library in an order of its own, which promises no bits.
enum class Collectives : std::uint8_t { tree, fastest };
std::string to_string(Collectives collectives);
Collectives parse_collectives(std::string_view text);

struct Placement {
  int towers = 1;
  std::int64_t batch = 1;
  Combine combine = Combine::global_mean;
  int threads = 1;                 ///< of a tower
  std::vector<PlacementRule> rules = {};
  PhaseOrder order = PhaseOrder::by_tower;
  std::vector<std::string> recompute = {};  ///< nodes whose values backward computes again
  std::string strategy = "single"; ///< what made it
  Collectives collectives = Collectives::tree;
  std::string options = {};        ///< of the strategy, as the command line takes them: a record
  bool operator==(const Placement&) const = default;
};

/// The tower part of a rule's match: -2 none, -1 "tower_*", else the tower; and the rest.
std::pair<int, std::string> split_match(const std::string& match);

}  // namespace belfry
