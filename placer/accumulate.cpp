#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/assign.h>
#include <belfry/placer/lower.h>
#include <belfry/placer/lower_internal.h>

namespace belfry {

namespace {

/// Of smaller parts the steps cost more than the bytes are worth.
constexpr std::int64_t kLeastPart = 1 << 16;
/// A stack must leave so much less than what its device would hold: it reads and writes more than the join does.
constexpr std::int64_t kLeastRatio = 2;

/// What decides on a device: bytes of one tower's parts, of the largest, of what its backward pass reads of its forward pass, and its towers.
struct OnDevice {
  std::int64_t parts = 0, largest = 0, kept = 0;
  int towers = 0, depth = 0;
};

/// About the bytes of a device for parts and for what towers in flight keep: parts lie where the tower kept what it is done with, but a
/// tower that leaves its frame to another has them elsewhere.
std::int64_t bytes_apart(const OnDevice& d, int in_flight) { return in_flight * std::max(d.kept, d.parts) + (d.towers - in_flight) * d.parts; }
std::int64_t bytes_added(const OnDevice& d, int in_flight) { return in_flight * d.kept + d.depth * d.parts + d.largest; }

class Accumulator {
 public:
  Accumulator(PlacedGraph& plan, bool all) : plan_(plan), all_(all), devices_(plan.cluster.devices.size()) {}

  void run() {
    find_candidates();
    if (candidates_.empty()) return;
    count_kept();
    std::set<int> worth;  // vectors
    const int stages = count_stages();
    for (auto [x, in_turn] : in_turn_)
      if (in_turn && (all_ || gains(x, stages))) worth.insert(x);
    std::vector<std::pair<int, PlanNode>> out;
    for (int j : candidates_) {
      PlanNode& join = plan_.nodes[static_cast<std::size_t>(j)];
      const ValueIndex part = join.inputs[0];
      const PlanNode& m = plan_.maker(part);
      if (!worth.contains(m.vector)) continue;
      const bool max = join.attributes.text("how") == "max";
      PlanNode n = inserted_node(join, join.name + ".added", kPreAggregate, part, Scope::tower, reason_of(m.vector));
      n.attributes = {{"how", max ? "max" : "sum"}};
      n.role = m.role;
      n.vector = n.owners = m.vector;
      n.outputs = {value_like(plan_, part, n.name, partial(max ? Reduction::max : Reduction::sum))};
      join.inputs = n.outputs;
      out.emplace_back(plan_.value(part).maker, std::move(n));
    }
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    insert_behind(plan_, std::move(out));
  }

 private:
  OnDevice& on(int device) { return devices_[static_cast<std::size_t>(device)]; }

  /// Joins whose parts nobody else reads, of towers that run one by one on each of their devices, several on some.
  void find_candidates() {
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      if (!is_op(n, kAggregate) || !adds_parts(n)) continue;
      const PlanNode& m = plan_.maker(n.inputs[0]);
      if (m.scope != Scope::tower || !m.def) continue;
      const std::int64_t bytes = local_bytes(plan_.value(n.inputs[0]), plan_.share(0));
      if ((bytes < kLeastPart && !all_) || !are_in_turn(m.vector)) continue;
      if (!readers_) readers_.emplace(readers_of(plan_));
      if ((*readers_)[static_cast<std::size_t>(n.inputs[0])].size() != 1) continue;
      candidates_.push_back(static_cast<int>(i));
      for (int d : devices_of(m.vector)) on(d).parts += bytes, on(d).largest = std::max(on(d).largest, bytes);
    }
  }

  bool are_in_turn(int vector) {
    auto [known, fresh] = in_turn_.try_emplace(vector);
    if (fresh) known->second = find_in_turn(vector);
    return known->second;
  }

  bool find_in_turn(int vector) {
    const std::vector<int>& owners = plan_.vectors[static_cast<std::size_t>(vector)];
    if (!are_alike(owners)) return false;
    const std::vector<int> depths = stack_depths(owners, plan_.towers, devices_.size());
    bool deep = false;
    for (int d : devices_of(vector)) {
      const auto towers = static_cast<int>(std::count(owners.begin(), owners.end(), d));
      if (towers > 1 && plan_.cluster.devices[static_cast<std::size_t>(d)].streams > 1) return false;
      deep = deep || depths[static_cast<std::size_t>(d)] < towers;
      on(d).towers = std::max(on(d).towers, towers), on(d).depth = std::max(on(d).depth, depths[static_cast<std::size_t>(d)]);
    }
    return deep;
  }

  /// Whether towers that share a device share all others: else one may be phases ahead of the one before it.
  bool are_alike(const std::vector<int>& owners) const {
    std::vector<int> first(devices_.size(), -1);  // per device, a tower
    for (std::size_t t = 0; t < owners.size(); ++t) {
      if (owners[t] < 0) continue;
      int& other = first[static_cast<std::size_t>(owners[t])];
      if (other < 0) other = static_cast<int>(t);
      else if (std::any_of(plan_.vectors.begin(), plan_.vectors.end(), [&](const std::vector<int>& v) { return v[t] != v[static_cast<std::size_t>(other)]; })) return false;
    }
    return true;
  }

  std::set<int> devices_of(int vector) const {
    const std::vector<int>& owners = plan_.vectors[static_cast<std::size_t>(vector)];
    std::set<int> out(owners.begin(), owners.end());
    out.erase(-1);
    return out;
  }

  void count_kept() {
    for (std::size_t v = 0; v < plan_.values.size(); ++v) {
      const PlanNode& m = plan_.maker(static_cast<ValueIndex>(v));
      if (m.scope != Scope::tower || m.role != Role::forward) continue;
      const auto& readers = (*readers_)[v];
      if (std::none_of(readers.begin(), readers.end(), [&](int r) { return plan_.nodes[static_cast<std::size_t>(r)].scope == Scope::tower && plan_.nodes[static_cast<std::size_t>(r)].role != Role::forward; })) continue;
      const std::int64_t bytes = local_bytes(plan_.value(static_cast<ValueIndex>(v)), plan_.share(0));
      for (int d : devices_of(m.vector)) on(d).kept += bytes;
    }
  }

  /// Devices of one tower.
  int count_stages() const {
    std::set<int> out;
    for (const PlanNode& n : plan_.nodes)
      if (n.scope == Scope::tower) out.insert(plan_.devices(n).front());
    return static_cast<int>(out.size());
  }

  bool gains(int vector, int stages) {
    std::int64_t apart = 0, added = 0;
    for (int d : devices_of(vector)) {
      const int at_once = in_flight(plan_.placement.order, on(d).towers, stages);
      apart += bytes_apart(on(d), at_once), added += bytes_added(on(d), at_once);
    }
    return added * kLeastRatio < apart;
  }

  std::string reason_of(int vector) {
    OnDevice most;
    for (int d : devices_of(vector))
      if (on(d).towers > most.towers) most = on(d);
    return fmt::format("added as the towers make them: {} buffers in place of {}", most.depth, most.towers);
  }

  PlacedGraph& plan_;
  bool all_;
  std::optional<NumberLists> readers_;  ///< once a candidate may be: most plans have none
  std::vector<OnDevice> devices_;
  std::map<int, bool> in_turn_;  ///< vectors of parts
  std::vector<int> candidates_;  ///< joins
};

}  // namespace

void insert_accumulations(PlacedGraph& plan, bool all) {
  if (plan.towers > 1) Accumulator(plan, all).run();
}

}  // namespace belfry
