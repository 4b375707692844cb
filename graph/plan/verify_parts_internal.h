// The parts of the verifier, a file each, in the order in which they are asked: a later one indexes by what an earlier one checked.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include <belfry/graph/plan/bound_plan.h>

namespace belfry {

constexpr std::int64_t kMostSummable = std::int64_t{1} << 50;  // sums of what is below it do not overflow

/// Asks one part of a plan, and keeps what is wrong with it: at most 64 objections.
class PlanChecker {
 public:
  explicit PlanChecker(const PlacedGraph& plan) : plan_(plan) {}
  const std::vector<std::string>& found() const { return found_; }

 protected:
  template <class... A>
  void object(fmt::format_string<A...> text, A&&... arguments) {
    if (found_.size() < 64) found_.push_back(fmt::format(text, std::forward<A>(arguments)...));
  }
  bool is_device(int d) const { return d >= 0 && d < static_cast<int>(plan_.cluster.devices.size()); }
  std::string name_of(int device) const { return to_string(plan_.cluster.devices[static_cast<std::size_t>(device)].id); }
  const PlanNode& node(int i) const { return plan_.nodes[static_cast<std::size_t>(i)]; }

  const PlacedGraph& plan_;
  std::vector<std::string> found_;
};

template <class Checker>
std::vector<std::string> found_by(const PlacedGraph& plan) {
  Checker checker(plan);
  checker.run();
  return checker.found();
}

/// Vectors, classes, groups, frames and streams speak of towers and devices that are there; sizes do not overflow.
std::vector<std::string> check_tables(const PlacedGraph& plan);
/// Every value is made once; every node has order, kernel, reason, devices that exist, and as many values as its op has.
std::vector<std::string> check_nodes(const PlacedGraph& plan);
/// Nodes stand for those of the graph: same op, attributes and inputs, one by one through what is inserted; updates likewise.
std::vector<std::string> check_graph(const PlacedGraph& plan);
/// Types and split states are those that inference and split rules give.
std::vector<std::string> check_types(const PlacedGraph& plan);
/// What place() derives of a plan without choosing: epochs, roles, frames, names of what moves values.
std::vector<std::string> check_derived(const PlacedGraph& plan);
/// Copies and links; every variable written once; every phase once, on a stream of its device.
std::vector<std::string> check_places(const PlacedGraph& plan);
/// Bytes inside the arenas, joins that are whole, phases as they follow from places and roles, and one legal run under the eyes of a Watcher. May throw UserError ("unbound: …").
std::vector<std::string> check_run(const PlacedGraph& plan);

}  // namespace belfry
