#include <algorithm>
#include <string>

#include <fmt/format.h>

#include <belfry/graph/plan/forecast_steps_internal.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

[[noreturn]] void unbound_step(const std::string& what) { throw UserError("unbound: " + what); }

}  // namespace

ForecastSteps::ForecastSteps(const PlacedGraph& plan) : plan(plan), instances_(plan), readers_(readers_of(plan)) {
  queue();
  make_gates();
  make_lanes();
}

/// The queues of BoundPlan: main by order, tower streams by their entries' phases.
void ForecastSteps::queue() {
  std::vector<int> class_of(static_cast<std::size_t>(plan.towers), -1), group_of(plan.cluster.devices.size(), -1);
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (int t : plan.classes[c].towers) class_of[static_cast<std::size_t>(t)] = static_cast<int>(c);
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (int d : plan.groups[g].devices) group_of[static_cast<std::size_t>(d)] = static_cast<int>(g);
  std::map<std::tuple<int, int, int>, std::vector<int>> own;  // class, epoch, phase → nodes
  std::vector<std::vector<int>> main(plan.cluster.devices.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    const bool towers = n.scope == Scope::tower;
    where_.emplace_back(n.scope == Scope::state ? 0 : towers ? static_cast<std::size_t>(plan.towers) : plan.cluster.devices.size(), -1);
    for (std::size_t c = 0; towers && c < plan.classes.size(); ++c)
      if (c < n.phases.size() && n.phases[c] >= 0) own[{static_cast<int>(c), n.epoch, n.phases[c]}].push_back(static_cast<int>(i));
    if (!towers && n.scope != Scope::state)
      for (int d : n.holders) main[static_cast<std::size_t>(d)].push_back(static_cast<int>(i));
  }
  auto by_order = [&](int a, int b) { return plan.nodes[static_cast<std::size_t>(a)].order < plan.nodes[static_cast<std::size_t>(b)].order; };
  for (auto& [key, nodes] : own) std::sort(nodes.begin(), nodes.end(), by_order);
  for (auto& nodes : main) std::sort(nodes.begin(), nodes.end(), by_order);
  auto add = [&](int i, int tower, int device, std::size_t stream) {
    const PlanNode& n = plan.nodes[static_cast<std::size_t>(i)];
    const auto& variants = tower >= 0 ? n.by_class : n.by_group;
    const int which = tower >= 0 ? class_of[static_cast<std::size_t>(tower)] : group_of[static_cast<std::size_t>(device)];
    if (which < 0 || which >= static_cast<int>(variants.size())) unbound_step(fmt::format("'{}' has no kernel for its device", n.name));
    where_[static_cast<std::size_t>(i)][static_cast<std::size_t>(tower >= 0 ? tower : device)] = static_cast<int>(steps.size());
    steps.push_back({i, tower, device, static_cast<int>(stream), &variants[static_cast<std::size_t>(which)]});
  };
  for (std::size_t s = 0; s < plan.streams.size(); ++s) {
    const PlanStream& stream = plan.streams[s];
    first.push_back(static_cast<int>(steps.size()));
    if (stream.name == "main")
      for (int i : main[static_cast<std::size_t>(stream.device)]) add(i, -1, stream.device, s);
    for (const StreamEntry& e : stream.entries) {
      const std::size_t before = steps.size();
      for (int i : own[{class_of[static_cast<std::size_t>(e.tower)], e.epoch, e.phase}])
        if (plan.device_of(plan.nodes[static_cast<std::size_t>(i)], e.tower) == stream.device) add(i, e.tower, stream.device, s);
      if (e.after >= 0 && steps.size() > before) after_[{static_cast<int>(before), stream.device}] = e.after;
    }
  }
  first.push_back(static_cast<int>(steps.size()));
}

int ForecastSteps::near(const std::vector<int>& holders, int device) {
  if (holders.size() < 2) return !holders.empty() && (holders[0] == device || plan.cluster.space(holders[0]) == plan.cluster.space(device)) ? holders[0] : -1;
  auto [at, fresh] = near_.try_emplace(&holders);
  if (fresh) {
    std::unordered_map<std::string, int> of_space;
    for (int h : holders) of_space.try_emplace(plan.cluster.space(h), h);
    for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) {
      auto found = of_space.find(plan.cluster.space(static_cast<int>(d)));
      at->second.push_back(found == of_space.end() ? -1 : found->second);
    }
    for (int h : holders) at->second[static_cast<std::size_t>(h)] = h;
  }
  return at->second[static_cast<std::size_t>(device)];
}

Instances::At ForecastSteps::shared(ValueIndex v, int device) {
  int maker = plan.value(v).maker;
  if (int d = near(plan.maker(v).holders, device); d >= 0) return {maker, d};
  for (int c : instances_.copies(v))
    if (int d = near(plan.nodes[static_cast<std::size_t>(c)].holders, device); d >= 0) return {c, d};
  return instances_.shared(v, device);  // says what is wrong
}

int ForecastSteps::moved_from(const PlanNode& move, ValueIndex v, int device) {
  const std::vector<int>& holders = plan.maker(v).holders;
  int beside = move.op == kCopy ? -1 : near(holders, device);
  return beside >= 0 ? beside : holders.front();
}

const std::vector<Piece>& ForecastSteps::pieces_of(int owners) const {
  auto [at, fresh] = pieces_.try_emplace(owners);
  if (fresh) at->second = pieces(plan.vectors.at(static_cast<std::size_t>(owners)), plan.towers);
  return at->second;
}

std::vector<int> ForecastSteps::sources(const PlanNode& join) const {
  const PlanNode& m = plan.maker(join.inputs[0]);
  std::vector<int> out;
  if (m.scope == Scope::device) {
    for (const Piece& p : pieces_of(m.owners)) out.push_back(p.device);
  } else if (m.scope == Scope::tower) {
    for (int t = 0; t < plan.present(); ++t)
      if (int d = plan.device_of(m, t); d >= 0) out.push_back(d);
  } else if (joins_ranges(plan, join)) {
    out = m.holders;
  }
  return out;
}

int ForecastSteps::at(int node, int tower, int device) const {
  const auto& where = where_[static_cast<std::size_t>(node)];
  const auto k = static_cast<std::size_t>(plan.nodes[static_cast<std::size_t>(node)].scope == Scope::tower ? tower : device);
  if (k >= where.size() || where[k] < 0) unbound_step(fmt::format("'{}' of tower {} is in no stream", plan.nodes[static_cast<std::size_t>(node)].name, tower));
  return where[k];
}

void ForecastSteps::each_read(int s, const std::function<void(int, ValueIndex)>& f) {
  const ForecastStep& step = steps[static_cast<std::size_t>(s)];
  const PlanNode& n = plan.nodes[static_cast<std::size_t>(step.node)];
  for (ValueIndex v : values_read(n)) {
    const PlanNode& m = plan.maker(v);
    if (((is_join(n) || n.op == kPreAggregate) && (m.scope == Scope::tower || m.scope == Scope::device)) || (m.scope == Scope::shared && joins_ranges(plan, n))) {
      f(-1, v);
    } else if (m.scope == Scope::tower) {
      auto from = n.op == kCopy ? Instances::At{plan.value(v).maker, plan.device_of(m, step.tower)} : instances_.own(v, step.tower, step.device);
      f(at(from.node, step.tower, from.device), from.node == plan.value(v).maker ? v : plan.nodes[static_cast<std::size_t>(from.node)].outputs[0]);
    } else {
      auto from = moves_values(n) ? Instances::At{plan.value(v).maker, moved_from(n, v, step.device)} : shared(v, step.device);
      const PlanNode& maker = plan.nodes[static_cast<std::size_t>(from.node)];
      if (maker.scope != Scope::state) f(at(from.node, -1, from.device), from.node == plan.value(v).maker ? v : maker.outputs[0]);
    }
  }
}

}  // namespace belfry
