// schedule: order, phases, streams and waits of a placed graph. Pure functions of the plan and its cluster.
#pragma once

#include <functional>
#include <tuple>

#include <belfry/graph/plan/placed_graph.h>
#include <belfry/graph/plan/readers.h>

namespace belfry {

/// The total order: epochs (a tower node that reads what joins towers of epoch e is in e + 1), and inside an epoch the list
/// for tower nodes, readiness for shared ones. Small updates on GPUs and stores come last; of small steps those that read none of another come before those that do.
void set_order(PlacedGraph& plan);
/// Tells share, kinds and pattern of towers that have rows, of a plan that must live as long.
std::function<TowerClass(int tower)> classes_of_towers(const PlacedGraph& plan);
/// Towers with equal shares, kinds and patterns.
void set_classes(PlacedGraph& plan);
/// Phases of an epoch, by class and node: one ends where a tower changes device, and between forward and backward. -1: no tower's node, or
/// one that the class does not run.
std::vector<std::vector<int>> phases_of(const PlacedGraph& plan, const Instances& instances, const NumberLists& readers);
void set_phases(PlacedGraph& plan, const Instances& instances, const NumberLists& readers);
/// Per device: main (shared nodes, joins, copies of shared values) and a stream per concurrent tower.
/// Streams are ordered by one key, the same on all devices. Along a tower it grows from phase to phase and inside an epoch
/// towers are independent: it is a total order of all devices' phases, and no stream order can deadlock, whatever the graph.
void set_streams(PlacedGraph& plan, const NumberLists& readers);
/// The first stream whose towers do not run by that key, as the plan's order of phases has it; null: there is none.
const PlanStream* stream_out_of_order(const PlacedGraph& plan);
/// What of streams' steps `run_in_turn` asks, each by its stream and place in it.
struct StepsInTurn {
  std::vector<std::size_t> counts;                            ///< per stream
  std::function<int(std::size_t s, std::size_t k)> together;  ///< the node of a collective, whose steps run when each is its stream's next and ready; -1: it runs by itself
  std::function<bool(std::size_t s, std::size_t k)> ready;
  std::function<void(std::size_t s, std::size_t k)> run;
};
/// The streams in turn, each as far as it goes; how many steps each has run. A main stream that shares a host's thread with towers goes on
/// only where no other can, since the towers would else wait for what it waits for.
std::vector<std::size_t> run_in_turn(const PlacedGraph& plan, const StepsInTurn& steps);
/// Folded waits; those that an earlier wait of the same stream covers are left out.
void set_waits(PlacedGraph& plan, const Instances& instances);

}  // namespace belfry
