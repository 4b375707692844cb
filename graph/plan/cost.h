// What a launch costs: measured where it was, else the roofline of its device. Pure functions of plan, cluster and table.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// What a launch does: floating point operations, and bytes read and written.
struct Work {
  double flops = 0, bytes = 0;
  bool operator==(const Work&) const = default;
};

/// What a kernel's launches take on so many rows; 0 where its types have no rows.
struct Measurement {
  std::int64_t rows = 0;
  double seconds = 0;
  Work work;
  bool operator==(const Measurement&) const = default;
};

/// A host's thread that waits spins for so long, then it sleeps.
inline constexpr double kSpinSeconds = 50e-6;

/// What was measured on one machine.
struct CostTable {
  std::string machine;                                         ///< in words
  double dispatch = 0;                                         ///< seconds from one launch of a thread to its next
  double handoff = 0;                                          ///< from the end of a launch to one on another thread that waits for it
  double wake = 0;                                             ///< the same where that thread has waited for more than kSpinSeconds: it sleeps
  double step = 0;                                             ///< of a whole step beside its launches
  double memmove = 0;                                          ///< bytes a second that one thread moves
  std::map<std::string, std::vector<Measurement>> kernels;     ///< by cost_key; ascending rows
  std::map<std::string, std::string> engines;                  ///< which engine of a kernel is the fastest, by engine_key (frontends/session/engines.h)
  bool empty() const { return kernels.empty(); }
  bool operator==(const CostTable&) const = default;
};

/// Kernel, op with what it is given, of a join how many parts, local types in which the rows are a symbol, and threads: equal keys on equal
/// rows mean equal work.
std::string cost_key(const PlacedGraph& plan, const PlanNode& node, const Variant& variant, const Share& share, int parts);
/// The rows that go with the key; 0 where no type has any.
std::int64_t cost_rows(const PlacedGraph& plan, const PlanNode& node, const Share& share);
/// Of one launch; of a join with so many parts.
Work work_of(const PlacedGraph& plan, const PlanNode& node, const Share& share, int parts);

/// How sure a cost is. Between: from other rows of the same key. Scaled: the roofline, times what the kernel's measured
/// launches are above theirs. Guessed: the roofline of a device of which nothing is said.
enum class CostSource : std::uint8_t { measured, between, scaled, roofline, guessed };
std::string_view to_string(CostSource source);
inline constexpr int kCostSources = 5;

struct Cost {
  double seconds = 0;
  double fixed = 0;              ///< of them those that fewer rows do not save: the launch
  CostSource source = CostSource::roofline;
  double memory = 0;             ///< of a GPU's kernel, those that its memory needs
};

/// A device as forecasts take it: what the cluster does not say is a guess by its kind and threads.
struct DeviceRate {
  double flops = 0, bandwidth = 0, launch = 0;
  bool guessed = false;
  double flops_tf32 = 0, flops_half = 0;  ///< of products
};
DeviceRate rate_of(const ClusterDevice& device, int threads);
/// Whether what was measured holds for it: it runs a CPU's kernels, and the cluster says nothing of it.
bool is_measured(const ClusterDevice& device);

/// Costs of the launches of a plan; equal launches are looked up once.
class CostModel {
 public:
  /// Both must live as long as the model.
  CostModel(const PlacedGraph& plan, const CostTable& table);
  CostModel(PlacedGraph&&, const CostTable&) = delete;
  CostModel(const PlacedGraph&, CostTable&&) = delete;
  /// The node's own work, what moves over links aside. `tower` is -1 outside the towers; `parts` are those of a join.
  Cost operator()(int node, const Variant& variant, int tower, int device, int parts);
  /// The plan was placed anew: what is known of its first values, and of moves of them, stays.
  void keep(std::size_t values);

 private:
  struct Known {
    char what;                                                 ///< how the node comes by the value under which it stands
    int speed, parts;
    std::int64_t rows;
    std::size_t ranges;                                        ///< 0: whole
    std::string kernel;
    Cost cost;
  };
  Cost cost(const PlanNode& node, const Variant& variant, const Share& share, const ClusterDevice& device, int parts) const;

  const PlacedGraph& plan_;
  const CostTable& table_;
  std::map<std::string, double> above_roofline_;               // per kernel and threads, the median
  std::vector<int> speed_;                                     // per device: the first one that is as fast
  std::vector<std::vector<Known>> known_;                      // per value that the node makes, or that a move takes
};

}  // namespace belfry
