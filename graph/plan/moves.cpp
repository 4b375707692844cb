#include <belfry/graph/plan/moves.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/landing.h>
#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/unbound.h>
#include <belfry/graph/structural.h>

namespace belfry {

std::vector<int> group_leaders(const Cluster& cluster, const std::vector<int>& owners, const std::vector<int>& holders) {
  const std::vector<int> group = link_groups(cluster);
  std::map<int, int> leader;  // of a group
  for (const auto* list : {&holders, &owners})
    for (int d : *list)
      if (d >= 0) leader.try_emplace(group[static_cast<std::size_t>(d)], d);
  std::vector<int> out;
  for (int d : owners) out.push_back(d < 0 ? d : leader.at(group[static_cast<std::size_t>(d)]));
  return out;
}

std::vector<int> host_adders(const Cluster& cluster, const std::vector<int>& owners) {
  std::vector<int> out = owners;
  for (int& d : out)
    if (const int adder = d < 0 ? -1 : cluster.cpu_of(cluster.devices[static_cast<std::size_t>(d)].id.host); adder >= 0) d = adder;
  return out;
}

NumberLists towers_taken(const PlacedGraph& plan, const PlanNode& n) {
  const std::vector<int>* owners = is_op(n, kPreAggregate) ? &plan.vectors[static_cast<std::size_t>(n.owners)] : nullptr;
  const std::size_t lists = owners ? plan.cluster.devices.size() : 1;
  return {lists, [&](auto add) {
            for (int t = 0; t < plan.present(); ++t)
              if (const auto d = static_cast<std::size_t>(owners ? (*owners)[static_cast<std::size_t>(t)] : 0); d < lists) add(d, t);
          }};
}

std::vector<Move> moves_of(const Instances& instances, const PlanNode& n) {
  const PlacedGraph& plan = instances.plan();
  if (!is_op(n, kCopy) && !is_op(n, kSplit) && !is_op(n, kPreAggregate) && !is_join(n)) return {};
  const PlanNode& m = plan.maker(n.inputs[0]);
  const PlanValue& read = plan.value(n.inputs[0]);
  std::vector<Move> out;
  if (is_op(n, kPreAggregate) && m.scope == Scope::tower && n.owners == m.vector) return out;  // its own towers
  if (n.scope == Scope::tower) {
    for (int t = 0; t < plan.present(); ++t)
      if (int to = plan.device_of(n, t); to >= 0) {
        const int from = m.scope == Scope::tower ? plan.device_of(m, t) : instances.moved_from(n, n.inputs[0], to);
        if (from < 0) unbound(fmt::format("'{}' brings '{}', which tower {} lacks", n.name, read.name, t));
        out.push_back({from, to, local_type(plan.value(n.outputs[0]), plan.share(t)).bytes()});
      }
    return out;
  }
  std::vector<Piece> joined;
  if (m.scope == Scope::device) joined = pieces(plan.vectors[static_cast<std::size_t>(m.owners)], plan.towers);
  const NumberLists parts = m.scope == Scope::tower ? towers_taken(plan, n) : NumberLists();
  const Stacks stacks(plan);
  for (int to : n.holders) {
    if (m.scope == Scope::tower) {
      for (int t : parts[is_op(n, kPreAggregate) ? static_cast<std::size_t>(to) : 0])
        if (int from = plan.device_of(m, t); from >= 0 && stacks.is_joined(m, t)) out.push_back({from, to, n.ranged ? type_on(plan, n, n.inputs[0], to).bytes() : local_type(read, plan.share(t)).bytes()});
    } else if (m.scope == Scope::device) {
      for (const Piece& p : joined)
        if (takes_part(plan, n, p.low, to)) out.push_back({p.device, to, type_on(plan, n, n.inputs[0], to).bytes()});
    } else if (joins_ranges(plan, n)) {
      for (int from : m.holders) out.push_back({from, to, type_on(plan, m, n.inputs[0], from).bytes()});
    } else {
      out.push_back({instances.moved_from(n, n.inputs[0], to), to, local_type(read, plan.share(-1)).bytes()});
    }
  }
  return out;
}

bool adds_parts(const PlanNode& n) {
  if (!is_op(n, kAggregate) && !is_op(n, kPreAggregate)) return false;
  const std::string& how = n.attributes.text("how");
  return how == "sum" || how == "max" || how == "mean";
}

std::vector<std::int64_t> landed_bytes(const Instances& instances, const PlanNode& n) {
  const PlacedGraph& plan = instances.plan();
  if (!is_join(n) && !is_op(n, kPreAggregate)) return {};
  const std::string how = n.attributes.text("how");
  const PlanNode& m = plan.maker(n.inputs[0]);
  if ((how != "sum" && how != "max" && how != "mean") || (m.scope != Scope::tower && m.scope != Scope::device)) return {};
  // What lies where, once for all holders.
  const PlanValue& read = plan.value(n.inputs[0]);
  if (is_op(n, kPreAggregate)) {
    std::map<int, std::int64_t> landed;
    std::vector<DeviceId> read;
    int reader = -1;  // moves of one device come one behind the other
    for (const Move& move : moves_of(instances, n)) {
      auto id = [&](int d) -> const DeviceId& { return plan.cluster.devices[static_cast<std::size_t>(d)].id; };
      if (std::exchange(reader, move.to) != move.to) read = plan.cluster.read_by(move.to);
      const bool lies = std::find(read.begin(), read.end(), id(move.from).whole()) != read.end();
      if (!instances.same_space(move.from, move.to) && !lies && (id(move.from).kind == "gpu" || id(move.to).kind == "gpu")) landed[move.to] += aligned_bytes(move.bytes);
    }
    std::vector<std::int64_t> out;
    for (int d : n.holders) out.push_back(landed[d]);
    return out;
  }
  struct Held {
    std::int64_t parts = 0, bytes = 0;
    void add(const Held& more) { parts += more.parts, bytes += more.bytes; }
  };
  std::map<DeviceId, Held> on_gpu;
  Held all, of_hosts;
  auto add = [&](int device, std::int64_t bytes) {
    const Held one{1, aligned_bytes(bytes)};
    all.add(one);
    const DeviceId& id = plan.cluster.devices[static_cast<std::size_t>(device)].id;
    (id.kind == "gpu" ? on_gpu[id.whole()] : of_hosts).add(one);
  };
  if (m.scope == Scope::tower) {
    const Stacks stacks(plan);
    for (int t = 0; t < plan.present(); ++t)
      if (int from = plan.device_of(m, t); from >= 0 && stacks.is_joined(m, t)) add(from, local_type(read, plan.share(t)).bytes());
  } else {
    for (const Piece& p : pieces(plan.vectors[static_cast<std::size_t>(m.owners)], plan.towers)) add(p.device, local_type(read, plan.share(-1)).bytes());
  }
  std::vector<std::int64_t> out;
  for (int d : n.holders) {
    const std::vector<DeviceId> read = plan.cluster.read_by(d);
    Held lies = read.empty() ? of_hosts : Held{};
    for (const DeviceId& gpu : read)
      if (auto at = on_gpu.find(gpu); at != on_gpu.end()) lies.add(at->second);
    // Of each part a holder in ranges lands its range alone.
    out.push_back(n.ranged ? (all.parts - lies.parts) * aligned_bytes(type_on(plan, n, n.inputs[0], d).bytes()) : all.bytes - lies.bytes);
  }
  return out;
}

/// By the numbers in them where nothing else differs: sim:2 before sim:10.
static bool named_before(std::string_view a, std::string_view b) {
  constexpr std::string_view kDigits = "0123456789";
  auto at = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (at && kDigits.find(a[at - 1]) != kDigits.npos) --at;
  a.remove_prefix(at), b.remove_prefix(at);
  const std::size_t of_a = std::min(a.find_first_not_of(kDigits), a.size()), of_b = std::min(b.find_first_not_of(kDigits), b.size());
  return of_a && of_b && of_a != of_b ? of_a < of_b : a < b;
}

std::vector<LinkLoad> link_bytes(const PlacedGraph& plan) {
  Instances instances(plan);
  std::vector<std::string> names;
  for (const ClusterDevice& d : plan.cluster.devices) names.push_back(d.space);
  std::sort(names.begin(), names.end(), named_before);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<std::int64_t> space;  // per device, its place among the names
  for (const ClusterDevice& d : plan.cluster.devices) space.push_back(std::lower_bound(names.begin(), names.end(), d.space, named_before) - names.begin());
  const auto spaces = std::ssize(names);
  std::unordered_map<std::int64_t, std::int64_t> load;
  auto add = [&](const Move& m) {
    std::int64_t from = space[static_cast<std::size_t>(m.from)], to = space[static_cast<std::size_t>(m.to)];
    if (from != to && m.bytes) load[from * spaces + to] += m.bytes;
  };
  for (const PlanNode& n : plan.nodes)
    for (const Move& m : moves_of(instances, n))
      if (!reads_landed(plan, n, m.to)) add(m);
  for (const Move& m : landing_moves(plan)) add(m);
  std::vector<std::pair<std::int64_t, std::int64_t>> links(load.begin(), load.end());  // by the places of both names, and bytes
  std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.second != b.second ? a.second > b.second : a.first < b.first; });
  std::vector<LinkLoad> out;
  for (const auto& [key, bytes] : links) out.push_back({names[static_cast<std::size_t>(key / spaces)], names[static_cast<std::size_t>(key % spaces)], bytes});
  return out;
}

}  // namespace belfry
