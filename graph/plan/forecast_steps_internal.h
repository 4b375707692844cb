// The steps of a plan with what they wait for, as BoundPlan has them, but without their buffers: linear in the steps, so that
// plans for a thousand devices are walked in seconds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>

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
  /// Both must live as long.
  ForecastSteps(const PlacedGraph& plan, const Instances& instances, const NumberLists& readers);

  const PlacedGraph& plan;
  const Stacks stacks;
  std::vector<ForecastStep> steps;              ///< stream by stream, in order
  std::vector<int> first;                       ///< per stream; one more at the end
  std::vector<int> producers;                   ///< per gate, how many
  NumberLists opens, waits;                     ///< per step, gates
  NumberLists waiters;                          ///< per gate, steps

  /// A lane runs its steps in one order: a host's thread, or a stream of a GPU or another host.
  std::vector<int> lane_of_stream;
  std::vector<std::vector<int>> lanes;          ///< their steps

  const Instances& instances() const { return instances_; }
  /// As Instances::moved_from, at once whatever the number of holders.
  int moved_from(const PlanNode& move, ValueIndex v, int device);
  /// Towers or pieces of what a join, or a device's sum, reads: their devices.
  std::vector<int> sources(const PlanNode& join, int device) const;
  const std::vector<Piece>& pieces_of(int owners) const;
  /// The step of a node; UserError ("unbound: …") where it is in no stream.
  int at(int node, int tower, int device);
  /// The towers whose parts a node takes on a device.
  std::span<const int> towers_for(const PlanNode& join, int device) const;
  /// Calls with every step whose value a step reads and the output; joins are called once with the value instead, a step of -1.
  template <class F>
  void each_read(int step, F f) {
    const PlanNode& n = plan.nodes[static_cast<std::size_t>(steps[static_cast<std::size_t>(step)].node)];
    for_values_read(n, [&](ValueIndex v) {
      if (auto [from, value] = read(step, n, v); value >= 0) f(from, value);
    });
  }

 private:
  enum GateKind : std::uint8_t { kTowersGate, kLocalGate, kEveryGate, kReadersGate, kFrameGate };
  struct GateKey {
    GateKind kind;
    int a, b, device;
    bool operator==(const GateKey&) const = default;
  };
  struct GateHash {
    std::size_t operator()(const GateKey& k) const {
      std::size_t out = static_cast<std::size_t>(k.kind);
      for (int part : {k.a, k.b, k.device}) out = out * 0x9E3779B97F4A7C15u + static_cast<std::size_t>(part);
      return out;
    }
  };

  void queue();
  void make_gates();
  void gate_waits(int step, const Wait& w);
  void gate_frames();
  void gate_readers(int node, ValueIndex variable);
  void make_lanes();
  std::pair<int, ValueIndex> read(int step, const PlanNode& node, ValueIndex v);
  int near(const std::vector<int>& holders, int device);
  Instances::At shared(ValueIndex v, int device);
  int& where(int node, int tower, int device);
  int alone(int step);
  int new_gate();
  std::pair<int, bool> gate(const GateKey& key);  // and whether it is a new one
  void wait_at(int step, int gate);
  void add_producer(int gate, int step);

  struct Own {
    Instances instances;
    NumberLists readers;
  };
  explicit ForecastSteps(std::unique_ptr<Own> own);

  std::unique_ptr<Own> own_;                    // where none are given
  const Instances& instances_;
  const NumberLists& readers_;
  std::vector<int> class_of_, group_of_;        // per tower, per device
  std::vector<int> first_where_, where_;        // per node, its first place in the other: a step per tower, or per device; one where it has one holder
  std::vector<int> alone_;                      // per step, the gate that it alone opens
  std::unordered_map<GateKey, int, GateHash> gates_;
  std::vector<std::pair<int, int>> opening_, waiting_;        // step and gate
  std::unordered_map<const std::vector<int>*, std::vector<int>> near_;
  std::map<std::pair<int, int>, std::vector<int>> foreign_;   // (tower, device) → steps elsewhere that read its frame
  std::map<std::pair<int, int>, int> after_;                  // (step, device) → tower that leaves the slot
  mutable std::map<int, std::vector<Piece>> pieces_;
  mutable std::map<int, NumberLists> towers_for_;             // per owners and device; of -1 all
};

}  // namespace belfry
