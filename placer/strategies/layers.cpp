#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <belfry/graph/structural.h>
#include <belfry/placer/cut/cut.h>
#include <belfry/placer/cut/tower_cut.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

/// A node follows its variable, whose stage is given, or its furthest forward input.
std::vector<int> stages_from(const Graph& g, std::vector<int> stage) {
  for (NodeId id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    int& mine = stage[static_cast<std::size_t>(id)];
    if (mine >= 0) continue;
    if (n.of >= 0 && n.of < id) {
      mine = stage[static_cast<std::size_t>(n.of)];
      continue;
    }
    for (ValueId v : n.inputs)
      if (v.valid()) mine = std::max(mine, stage[static_cast<std::size_t>(v.node)]);
    mine = std::max(mine, 0);
  }
  return stage;
}

std::vector<NodeId> trained_variables(const Graph& g) {
  std::vector<NodeId> out;
  for (NodeId id : g.variables())
    if (g.node(id).of < 0) out.push_back(id);
  return out;
}

/// Variables in order of first use are cut into equal counts.
std::vector<int> stages_by_variables(const Graph& g, int count) {
  const std::vector<NodeId> trained = trained_variables(g);
  std::vector<int> stage(static_cast<std::size_t>(g.size()), -1);
  for (std::size_t i = 0; i < trained.size(); ++i) stage[static_cast<std::size_t>(trained[i])] = static_cast<int>(i * static_cast<std::size_t>(count) / trained.size());
  return stages_from(g, std::move(stage));
}

/// A variable's stage is where the middle of its first reader's layer lies when the seconds of all layers, both ways, are cut into equal parts.
std::vector<int> stages_by_seconds(const TowerGraph& tg, const Cluster& cluster, const CostTable& costs, const DeviceId& device, int count) {
  const Graph& g = *tg.graph;
  const TowerCut t = cut_problem_of(tg, cluster, costs, {{device}, tg.present()});
  auto layer = [&](std::size_t i) { return t.problem.nodes[i].together >= 0 ? t.problem.nodes[i].together : -1 - static_cast<int>(i); };
  std::map<int, double> seconds, middle;
  for (std::size_t i = 0; i < t.nodes.size(); ++i) seconds[layer(i)] += t.problem.nodes[i].seconds[0];
  std::vector<double> at(static_cast<std::size_t>(g.size()), -1);
  double now = 0;
  for (std::size_t i = 0; i < t.nodes.size(); ++i) {
    const PlanNode& n = tg.nodes[static_cast<std::size_t>(t.nodes[i])];
    if (n.scope != Scope::tower || n.role != Role::forward) continue;
    if (auto [mine, fresh] = middle.try_emplace(layer(i), now + seconds[layer(i)] / 2); fresh) now += seconds[layer(i)];
    for (ValueIndex v : values_read(n))
      if (const PlanNode& m = tg.maker(v); m.scope == Scope::state && at[static_cast<std::size_t>(m.user)] < 0) at[static_cast<std::size_t>(m.user)] = middle[layer(i)];
  }
  std::vector<int> stage(static_cast<std::size_t>(g.size()), -1);
  for (NodeId id : trained_variables(g)) {
    const double share = now > 0 ? std::max(0.0, at[static_cast<std::size_t>(id)]) / now : 0;
    stage[static_cast<std::size_t>(id)] = std::min(count - 1, static_cast<int>(share * count));
  }
  return stages_from(g, std::move(stage));
}

std::string text_of(double seconds) { return seconds < 1e-3 ? fmt::format("{:.4g} us", seconds * 1e6) : fmt::format("{:.4g} ms", seconds * 1e3); }

/// What dealing variables would have made of the same costs.
double value_by_variables(const TowerGraph& tg, const TowerCut& t) {
  const std::vector<int> stage = stages_by_variables(*tg.graph, t.problem.devices());
  std::vector<int> device;
  for (int i : t.nodes) {
    const NodeId user = tg.nodes[static_cast<std::size_t>(i)].user;
    device.push_back(user < 0 ? 0 : stage[static_cast<std::size_t>(user)]);
  }
  return value_of(t.problem, device);
}

/// Where no cut fits by what it knows of memory, which is rather more than a plan takes, one of more memory, first without room for launches, in
/// the end one that ignores it: the plan's own bytes then decide, and say what is too large. `more`: so many times as much; 0: with room.
Cut cut_over(const Graph& g, TowerCut& t, std::int64_t steps, double& more) {
  std::string why;
  std::vector<double> memory;
  for (const CutKind& k : t.problem.kinds) memory.push_back(k.memory + t.room);
  for (double next : {0.0, 1.0, 1.25, 1.6, 2.5, std::numeric_limits<double>::infinity()}) {
    more = next;
    for (std::size_t k = 0; more > 0 && k < memory.size(); ++k) t.problem.kinds[k].memory = more * memory[k];
    try {
      return belfry::cut(t.problem, {steps});
    } catch (const UserError& e) {
      if (why.empty()) why = e.what();
    }
  }
  throw UserError(fmt::format("the layers of '{}' cannot be cut over {} device{}: {}", g.name, t.devices.size(), t.devices.size() == 1 ? "" : "s", why));
}

/// What the busiest device does that others cannot take from it: the largest nodes that must be together, and moves.
std::string busiest_of(const TowerCut& t, const Cut& c, const std::vector<double>& loads) {
  const auto busiest = static_cast<int>(std::max_element(loads.begin(), loads.end()) - loads.begin());
  std::map<int, std::pair<double, const CutNode*>> together;
  double work = 0;
  for (std::size_t i = 0; i < c.device.size(); ++i) {
    if (c.device[i] != busiest) continue;
    const CutNode& n = t.problem.nodes[i];
    auto& [seconds, first] = together[n.together >= 0 ? n.together : -1 - static_cast<int>(i)];
    const double mine = n.seconds.at(static_cast<std::size_t>(t.problem.kind_of(busiest)));
    seconds += mine, work += mine;
    if (!first) first = &n;
  }
  if (together.empty()) return "";
  const auto& [seconds, first] = std::max_element(together.begin(), together.end(), [](const auto& a, const auto& b) { return a.second.first < b.second.first; })->second;
  return fmt::format(": {} is busy for {}, of which {} go to '{}' and what must be with it, {} to moves",
                     to_string(t.devices[static_cast<std::size_t>(busiest)]), text_of(loads[static_cast<std::size_t>(busiest)]),
                     text_of(seconds), first->name, text_of(std::max(0.0, loads[static_cast<std::size_t>(busiest)] - work)));
}

struct StageCut {
  TowerCut towers;
  Cut cut;
  double more = 0;  ///< cut_over
  bool uneven = false;  ///< moves between some neighbours take longer than between others: the cut pays the longest for all
};

/// Over all stages, or a stretch of them whose neighbours are nearer to each other, since a cut knows one rate of moves for all.
StageCut best_cut(const TowerGraph& tg, const Cluster& cluster, const CostTable& costs, const std::vector<DeviceId>& stages, StageOptions options, PhaseOrder order, std::int64_t steps) {
  std::optional<StageCut> best;
  const std::vector<std::vector<DeviceId>> stretches = stretches_of(cluster, stages, tg.threads);
  for (std::size_t k = 0; k < stretches.size(); ++k) {
    options.devices = stretches[k];
    options.in_flight = in_flight(order, options.rounds, static_cast<int>(stretches[k].size()));
    StageCut s{cut_problem_of(tg, cluster, costs, options), {}, 0, k + 1 < stretches.size()};
    if (s.towers.nodes.empty()) return s;
    s.cut = cut_over(*tg.graph, s.towers, steps, s.more);
    if (!best || std::tuple(s.more, s.cut.value) < std::tuple(best->more, best->cut.value)) best = std::move(s);
  }
  return std::move(*best);
}

/// A device's rules say its load, what the cut's objective came to, what no cut can beat, and why devices are left out.
std::vector<std::string> reasons_of(const TowerGraph& tg, const StageCut& s, std::size_t stages) {
  const auto& [t, c, more, uneven] = s;
  const std::string memory = more == 0 ? "" : std::isinf(more) ? "; memory left out, as no cut fits it" : fmt::format("; memory taken for {} of what there is, as no cut fits with room for launches", more);
  const std::vector<double> loads = loads_of(t.problem, c.device);
  const auto used = std::count_if(loads.begin(), loads.end(), [](double s) { return s > 0; });
  const std::string like = uneven ? " whose moves all take the slowest way between neighbours" : "";
  const std::string bound = c.optimal() ? fmt::format("which no cut{} beats", like) : fmt::format("and no cut{} has less than {}", like, text_of(c.bound));
  const std::string objective = to_string(t.problem.objective), by_variables = text_of(value_by_variables(tg, t));
  std::string idle;
  if (used < std::ssize(loads))
    idle = fmt::format("; {} of {} devices, since {} over more has a smaller {}{}", used, loads.size(), c.optimal() ? "no cut" : "no cut that was found", objective,
                       t.problem.objective == CutObjective::latency ? ": a batch goes through one after the other, and more moves lengthen its way" : busiest_of(t, c, loads));
  if (loads.size() < stages) idle += fmt::format("; over {} of {} devices, between which moves are quickest", loads.size(), stages);
  std::vector<std::string> out;
  for (std::size_t d = 0; d < loads.size(); ++d)
    out.push_back(fmt::format("cut by {0}: {1} a step on {2}; {0} of {3}, {4}; by variables {5}{6}{7}", objective, text_of(loads[d]), to_string(t.devices[d]), text_of(c.value), bound, by_variables,
                              memory, idle));
  return out;
}

/// The device of the first reader, of nodes that read nothing, such as the weights of rows in a mean: a cut has no cost for the phase that a source on another stage would make of its readers.
std::map<int, int> sources_at_readers(const TowerGraph& tg, const TowerCut& t, const Cut& c) {
  std::map<int, int> out;
  for (std::size_t i = 0; i < t.nodes.size(); ++i)
    for (ValueIndex v : values_read(tg.nodes[static_cast<std::size_t>(t.nodes[i])]))
      if (values_read(tg.maker(v)).empty()) out.try_emplace(tg.value(v).maker, c.device[i]);
  return out;
}

/// As the command line has it, by what it does: pipelines side by side are hybrid.
const char* name_of(const Layers& s) { return s.replicas > 1 ? "hybrid" : s.towers > 1 ? "pipeline" : "layers"; }

}  // namespace

void Layers::check(const std::string& name, bool asked) const {
  if (devices.empty()) throw UserError(fmt::format("[{}] there is no device to cut the layers over: give it some, .devices = parse_devices(\"cpu:0,cpu:1\") (--devices)", name));
  if (replicas < 1 || devices.size() % static_cast<std::size_t>(replicas))
    throw UserError(
        fmt::format("[{}] {}{} device{} cannot be shared by {} replicas; give a multiple of {} devices (--devices), or another number of replicas (-O replicas=1)",
                    name, asked ? fmt::format("-O replicas={}: ", replicas) : "", devices.size(), devices.size() == 1 ? "" : "s", replicas, std::max(2, replicas)));
  if (chunks < 1 || chunks > kMostChunks) throw UserError(fmt::format("[{}] a device has 1 to {} chunks, not {}; leave chunks out for one, or give -O order=interleaved -O chunks=2", name, kMostChunks, chunks));
  if (chunks > 1 && order != PhaseOrder::interleaved)
    throw UserError(fmt::format("[{}] -O chunks={}: {} chunks a device are of interleaved phases, not of {}; give -O order=interleaved, or leave chunks out", name,
                                chunks, chunks, to_string(order)));
}

Division Layers::divide(const Graph&, const Cluster&) const {
  check(name_of(*this));
  return {towers, combine, threads, order};
}

Rules Layers::assign(const TowerGraph& tg, const Cluster& cluster, const CostTable& costs) const {
  constexpr std::int64_t kSteps = 2'000'000;  // about half a second
  const Graph& g = *tg.graph;
  const auto count = devices.size() / static_cast<std::size_t>(replicas);
  auto at = [&](std::size_t s) {
    std::vector<DeviceId> out;
    for (std::size_t r = 0; r < static_cast<std::size_t>(replicas); ++r) out.push_back(devices[r * count + s]);
    return out;
  };
  if (std::any_of(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return n.device && cluster.find(*n.device) >= 0; })) return {{"**", at(0), "no device was requested: the first stage"}};
  Rules out;
  if (cut == LayerCut::variables || chunks > 1) {
    const int parts = static_cast<int>(count) * chunks;
    const std::vector<int> stage = cut == LayerCut::variables ? stages_by_variables(g, parts) : stages_by_seconds(tg, cluster, costs, devices.front(), parts);
    const std::set<int> used(stage.begin(), stage.end());
    const std::string fewer = static_cast<int>(used.size()) < parts ? fmt::format("; {} of {} stages, since the layers are no more, or too unlike", used.size(), parts) : "";
    for (NodeId id = 0; id < g.size(); ++id) {
      auto s = static_cast<std::size_t>(stage[static_cast<std::size_t>(id)]);
      out.push_back({g.node(id).name, at(s % count), fmt::format("stage {} by {}{}", s, cut == LayerCut::variables ? "variables" : "seconds of the layers, both ways", fewer)});
    }
    out.push_back({"**", at(count - 1), "last stage"});
    return out;
  }
  const int rounds = (tg.present() + replicas - 1) / replicas;
  const std::vector<DeviceId> stages(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(count));
  const StageCut best = best_cut(tg, cluster, costs, stages, {{}, rounds, 1, cut == LayerCut::latency ? CutObjective::latency : CutObjective::max_load}, order, kSteps);
  const TowerCut& t = best.towers;
  const Cut& c = best.cut;
  if (t.nodes.empty()) return {{"**", at(0), "nothing to cut"}};
  const std::vector<std::string> reasons = reasons_of(tg, best, count);
  std::vector<std::vector<DeviceId>> lists;
  for (const DeviceId& d : t.devices) lists.push_back(at(static_cast<std::size_t>(std::find(stages.begin(), stages.end(), d) - stages.begin())));
  // Under 1F1B that phase has the last stage keep a second micro-batch, which it would otherwise wait for until its gradients are fetched.
  const std::map<int, int> sources = order == PhaseOrder::gpipe ? sources_at_readers(tg, t, c) : std::map<int, int>();
  int last = 0;
  out.reserve(t.nodes.size() + 1);
  for (std::size_t i = 0; i < t.nodes.size(); ++i) {
    const auto d = static_cast<std::size_t>(c.device[i]);
    const auto source = sources.find(t.nodes[i]);
    if (source != sources.end()) out.push_back({t.problem.nodes[i].name, lists[static_cast<std::size_t>(source->second)], "with its first reader"});
    else out.push_back({t.problem.nodes[i].name, lists[d], reasons[d]});
    if (!t.problem.nodes[i].backward) last = c.device[i];
  }
  out.push_back({"**", lists[static_cast<std::size_t>(last)], "with the last layer: it belongs to none"});
  return out;
}

}  // namespace belfry
