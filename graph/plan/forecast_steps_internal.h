// The steps of a plan with what they wait for, as BoundPlan has them, but without their buffers: linear in the steps, so that
// plans for a thousand devices are walked in seconds.
#pragma once

#include <functional>
#include <memory>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

struct ForecastStep {
  int node = -1, tower = -1, device = -1, stream = 0;
  const Variant* variant = nullptr;
};

/// Steps wait at gates; a gate opens when all its producers have ended. Joins share one gate, whoever reads them.
class ForecastSteps {
 public:
  /// UserError ("unbound: …") as BoundPlan.
  explicit ForecastSteps(const PlacedGraph& plan);

  const PlacedGraph& plan;
  std::vector<ForecastStep> steps;              ///< stream by stream, in order
  std::vector<int> first;                       ///< per stream; one more at the end
  std::vector<int> producers;                   ///< per gate, how many
  std::vector<std::vector<int>> opens, waits;   ///< per step, gates
  std::vector<std::vector<int>> waiters;        ///< per gate, steps

  /// A lane runs its steps in one order: a host's thread, or a stream of a GPU or another host.
  std::vector<int> lane_of_stream;
  std::vector<std::vector<int>> lanes;          ///< their steps

  const Instances& instances() const { return instances_; }
  /// As Instances::moved_from, at once whatever the number of holders.
  int moved_from(const PlanNode& move, ValueIndex v, int device);
  /// Towers or pieces of what a join reads: their devices.
  std::vector<int> sources(const PlanNode& join) const;
  const std::vector<Piece>& pieces_of(int owners) const;
  /// Calls with every step whose value a step reads and the output; joins are called once with the value instead, a step of -1.
  void each_read(int step, const std::function<void(int step, ValueIndex value)>& f);

 private:
  void queue();
  void make_gates();
  void gate_waits(int step, const Wait& w);
  void gate_readers(int node, ValueIndex variable);
  void make_lanes();
  int near(const std::vector<int>& holders, int device);
  Instances::At shared(ValueIndex v, int device);
  int at(int node, int tower, int device) const;
  int alone(int step);
  int gate(std::tuple<int, int, int, int> key, const std::function<void(int gate)>& fill);
  void wait_at(int step, int gate);
  void add_producer(int gate, int step);

  Instances instances_;
  std::vector<std::vector<int>> readers_;
  std::vector<std::vector<int>> where_;         // per node: per tower, or per device
  std::vector<int> alone_;                      // per step, the gate that it alone opens
  std::map<std::tuple<int, int, int, int>, int> gates_;
  std::unordered_map<const std::vector<int>*, std::vector<int>> near_;
  std::map<std::pair<int, int>, std::vector<int>> foreign_;   // (tower, device) → steps elsewhere that read its frame
  std::map<std::pair<int, int>, int> after_;                  // (step, device) → tower that leaves the slot
  mutable std::map<int, std::vector<Piece>> pieces_;
};

}  // namespace belfry
