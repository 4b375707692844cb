#include <belfry/placer/cut/tower_cut.h>

#include <algorithm>
#include <utility>

#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/cut/items_internal.h>
#include <belfry/placer/cut/launches.h>

namespace belfry {

namespace {

using cutting::at;

/// The node that a user's node follows in the end.
NodeId head_of(const Graph& g, NodeId id) {
  while (id >= 0 && g.node(id).of >= 0 && g.node(id).of != id) id = g.node(id).of;
  return id;
}

struct Transfer {
  double latency = 0, per_byte = 0;
};

/// Between each device and the next.
std::vector<Transfer> transfers(const Cluster& cluster, const std::vector<DeviceId>& devices, int threads) {
  std::vector<Transfer> out(devices.empty() ? 0 : devices.size() - 1);
  Links links(cluster);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int from = cluster.at(devices[i]), to = cluster.at(devices[i + 1]);
    if (cluster.space(from) == cluster.space(to)) continue;
    if (links.empty()) {
      for (int d : {from, to}) out[i].per_byte = std::max(out[i].per_byte, 1 / rate_of(cluster.devices[at(d)], threads).bandwidth);
      continue;
    }
    const std::vector<int> route = links.route(from, to);
    out[i].latency = links.latency(route);
    for (int w : route) out[i].per_byte = std::max(out[i].per_byte, 1 / links.ways()[at(w)].bandwidth);
  }
  return out;
}

/// The slowest way between neighbours.
Transfer slowest(const std::vector<Transfer>& all) {
  Transfer out;
  for (const Transfer& t : all) out.latency = std::max(out.latency, t.latency), out.per_byte = std::max(out.per_byte, t.per_byte);
  return out;
}

class Maker {
 public:
  Maker(const TowerGraph& tg, const Cluster& cluster, const CostTable& costs, const StageOptions& options)
      : tg_(tg), options_(options), launches_(tg, cluster, costs), transfer_(slowest(transfers(cluster, options.devices, tg.threads))), number_(tg.nodes.size(), -1), fused_(at(tg.graph->size()), -1) {
    set_kinds(cluster);
  }

  TowerCut make() {
    for (const PlanNode& n : tg_.nodes)
      if (n.role == Role::forward)
        for (const Member& m : n.members) fused_[at(m.node)] = n.user;
    for (std::size_t i = 0; i < tg_.nodes.size(); ++i) add(static_cast<int>(i));
    for (std::size_t i = 0; i < tg_.nodes.size(); ++i)
      if (number_[i] >= 0) connect(static_cast<int>(i));
    keep_variables();
    leave_room();
    return std::move(out_);
  }

 private:
  void set_kinds(const Cluster& cluster) {
    auto alike = [](const ClusterDevice& a, const ClusterDevice& b) { return a.memory == b.memory && a.runs_as(b); };
    std::vector<std::vector<DeviceId>> members;
    std::vector<const ClusterDevice*> first;
    for (const DeviceId& id : options_.devices) {
      const ClusterDevice& d = cluster.devices[at(cluster.at(id))];
      std::size_t k = 0;
      while (k < first.size() && !alike(*first[k], d)) ++k;
      if (k == first.size()) first.push_back(&d), members.emplace_back();
      members[k].push_back(id);
    }
    out_.problem.objective = options_.objective;
    for (std::size_t k = 0; k < first.size(); ++k) {
      out_.problem.kinds.push_back({first[k]->id.kind, static_cast<int>(members[k].size()), static_cast<double>(first[k]->memory), true});
      out_.devices.insert(out_.devices.end(), members[k].begin(), members[k].end());
      kinds_.push_back(cluster.at(members[k].front()));
    }
  }

  /// Feeds and results are on the host, splits and shared sources where they are read; what many updates share has no layer.
  bool belongs(const PlanNode& n) const {
    if (n.op == kInput || n.op == kFetch || n.op == kSplit || (n.def && n.def->source && n.scope == Scope::shared)) return false;
    return n.role != Role::update || n.scope == Scope::state || (n.user >= 0 && tg_.graph->node(n.user).of >= 0) || source_of(n) >= 0;
  }

  /// The node of the problem that one goes with though nobody says so: a join its parts, what updates share the only tensor that it reads,
  /// such as a gradient whose scale is taken off or whose norm is summed; -1: none.
  int source_of(const PlanNode& n) const {
    ValueIndex tensor = -1;
    if (n.inserted && !n.inputs.empty()) tensor = n.inputs[0];
    else if (n.role == Role::update && n.scope != Scope::state && (n.user < 0 || tg_.graph->node(n.user).of < 0))
      for (ValueIndex v : values_read(n)) {
        if (local_type(tg_.value(v), tg_.share(n.scope == Scope::tower ? 0 : -1)).elements() < 2 || v == tensor) continue;
        if (tensor >= 0) return -1;
        tensor = v;
      }
    return tensor < 0 ? -1 : number_[at(tg_.value(tensor).maker)];
  }

  double bytes_of(const PlanNode& n) const {
    const Share share = tg_.share(n.scope == Scope::tower ? 0 : -1);
    double out = 0;
    for (ValueIndex v : n.outputs)
      if (tg_.value(v).read) out += static_cast<double>(local_bytes(tg_.value(v), share));
    return out;
  }

  void add(int i) {
    const PlanNode& n = tg_.nodes[at(i)];
    if (!belongs(n)) return;
    const double rounds = n.scope == Scope::tower ? options_.rounds : 1, bytes = bytes_of(n);
    CutNode c;
    c.name = n.name;
    for (int d : kinds_) c.seconds.push_back(rounds * launches_.seconds(i, d));
    c.bytes = n.scope == Scope::state ? bytes : 0;
    c.transfer = bytes > 0 ? rounds * (transfer_.latency + bytes * transfer_.per_byte) : 0;
    c.backward = n.role != Role::forward;
    if (const NodeId head = head_of(*tg_.graph, n.user); head >= 0) c.together = static_cast<int>(fused_[at(head)] >= 0 ? fused_[at(head)] : head);
    if (const int source = source_of(n); source >= 0) c.together = out_.problem.nodes[at(source)].together;
    number_[at(i)] = static_cast<int>(out_.nodes.size());
    out_.nodes.push_back(i);
    out_.problem.nodes.push_back(std::move(c));
  }

  void connect(int i) {
    const PlanNode& n = tg_.nodes[at(i)];
    makers_.clear();
    for_values_read(n, [&](ValueIndex v) {
      while (tg_.maker(v).op == kSplit) v = tg_.maker(v).inputs[0];
      makers_.push_back(number_[at(tg_.value(v).maker)]);
    });
    std::sort(makers_.begin(), makers_.end());
    makers_.erase(std::unique(makers_.begin(), makers_.end()), makers_.end());
    for (int m : makers_) {
      if (m < 0) continue;
      const PlanNode& maker = tg_.nodes[at(out_.nodes[at(m)])];
      out_.problem.edges.emplace_back(m, number_[at(i)]);
      // Forward values stay for the gradients that read them, gradients until the update.
      CutNode& made = out_.problem.nodes[at(m)];
      if (maker.scope == Scope::tower && maker.role == Role::forward && n.role == Role::backward) made.bytes = options_.in_flight * bytes_of(maker);
      if (maker.role == Role::backward && n.role == Role::update) made.bytes = bytes_of(maker);
    }
  }

  /// Devices need room for what a launch reads and writes besides.
  void leave_room() {
    const Share share = tg_.share(0);
    double most = 0;
    for (int i : out_.nodes) {
      const PlanNode& n = tg_.nodes[at(i)];
      if (n.scope != Scope::tower) continue;
      double bytes = bytes_of(n);
      for_values_read(n, [&](ValueIndex v) { bytes += tg_.maker(v).scope == Scope::tower ? static_cast<double>(local_bytes(tg_.value(v), share)) : 0; });
      most = std::max(most, bytes);
    }
    out_.room = most;
    for (CutKind& k : out_.problem.kinds) k.memory = std::max(k.memory - most, 0.0);
  }

  /// Whether a forward node outside the towers reads variables alone, as a cast of one does: it goes where they go.
  std::vector<bool> derived_from_variables() const {
    std::vector<bool> out(out_.nodes.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const PlanNode& n = tg_.nodes[at(out_.nodes[i])];
      out[i] = n.scope == Scope::shared && n.role == Role::forward && !n.inserted && !n.inputs.empty();
      for (ValueIndex v : values_read(n)) {
        const int m = number_[at(tg_.value(v).maker)];
        out[i] = out[i] && m >= 0 && (tg_.maker(v).scope == Scope::state || out[at(m)]);
      }
    }
    return out;
  }

  /// A variable, and all that follows it, goes with the first layer that reads it, or else with the one whose values update it.
  void keep_variables() {
    constexpr int kNone = -2;
    std::vector<int> with(at(tg_.graph->size()) + 1, kNone);  // per class of a variable, and -1: the layer's
    std::vector<bool> layers(with.size());
    auto node = [&](int i) -> const PlanNode& { return tg_.nodes[at(out_.nodes[at(i)])]; };
    auto together = [&](int i) { return out_.problem.nodes[at(i)].together; };
    auto keep = [&](int variable, int layer) {
      if (int& kept = with[at(variable + 1)]; kept == kNone) kept = layer;
    };
    for (int i = 0; i < static_cast<int>(out_.nodes.size()); ++i)
      if (node(i).scope != Scope::state && node(i).role == Role::forward) layers[at(together(i) + 1)] = true;
    const std::vector<bool> derived = derived_from_variables();
    for (auto edge = out_.problem.edges.rbegin(); edge != out_.problem.edges.rend(); ++edge)  // readers before their makers; of several the first stays
      if (const auto [m, reader] = *edge; derived[at(m)] && node(reader).role == Role::forward)
        if (const int layer = derived[at(reader)] ? with[at(together(reader) + 1)] : together(reader); layer != kNone) with[at(together(m) + 1)] = layer;
    for (Scope scope : {Scope::tower, Scope::shared})
      for (auto [m, reader] : out_.problem.edges)
        if (node(m).scope == Scope::state && node(reader).scope == scope && node(reader).role == Role::forward) {
          const int kept = derived[at(reader)] ? with[at(together(reader) + 1)] : kNone;
          keep(together(m), kept != kNone ? kept : together(reader));
        }
    for (auto [m, reader] : out_.problem.edges) {
      const int kept = with[at(together(m) + 1)], from = kept != kNone ? kept : together(m);
      if (node(reader).role == Role::update && !layers[at(together(reader) + 1)] && layers[at(from + 1)]) keep(together(reader), from);
    }
    for (CutNode& n : out_.problem.nodes)
      if (const int layer = with[at(n.together + 1)]; layer != kNone) n.together = layer;
  }

  const TowerGraph& tg_;
  const StageOptions& options_;
  LaunchesInTurn launches_;
  Transfer transfer_;
  std::vector<int> kinds_;                    // one device of each
  std::vector<int> number_;                   // per node of the tower graph, that in the problem
  std::vector<NodeId> fused_;                 // per user's node: where it is inside a fused one, the node that this stands for; else -1
  std::vector<int> makers_;
  TowerCut out_;
};

}  // namespace

TowerCut cut_problem_of(const TowerGraph& graph, const Cluster& cluster, const CostTable& costs, const StageOptions& options) { return Maker(graph, cluster, costs, options).make(); }

std::vector<std::vector<DeviceId>> stretches_of(const Cluster& cluster, std::vector<DeviceId> devices, int threads) {
  std::vector<std::vector<DeviceId>> out;
  while (devices.size() > 1) {
    const std::vector<Transfer> all = transfers(cluster, devices, threads);
    const double most = slowest(all).per_byte;
    std::size_t first = 0, longest = 0, begin = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {  // a stretch ends behind device i
      if (i + 1 < devices.size() && all[i].per_byte < most * (1 - 1e-9)) continue;
      if (i + 1 - begin > longest) first = begin, longest = i + 1 - begin;
      begin = i + 1;
    }
    std::vector<DeviceId> stretch(devices.begin() + static_cast<std::ptrdiff_t>(first), devices.begin() + static_cast<std::ptrdiff_t>(first + longest));
    out.push_back(std::exchange(devices, std::move(stretch)));
  }
  if (out.empty()) out.push_back(std::move(devices));
  return out;
}

}  // namespace belfry
