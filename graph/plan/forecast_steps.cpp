#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/plan/forecast_steps_internal.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/unbound.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Pictures are drawn of plans that no verifier has seen.
void check_entry(const PlacedGraph& plan, const PlanStream& s, const StreamEntry& e) {
  if (e.tower >= 0 && e.tower < plan.towers && e.slot >= 0 && e.slot < s.slots && s.slots <= plan.towers) return;
  unbound(fmt::format("tower {} of {} has slot {} of {} on {}", e.tower, plan.towers, e.slot, s.slots, to_string(plan.cluster.devices[static_cast<std::size_t>(s.device)].id)));
}

}  // namespace

ForecastSteps::ForecastSteps(const PlacedGraph& plan) : ForecastSteps(std::make_unique<Own>(Own{Instances(plan), readers_of(plan)})) {}

ForecastSteps::ForecastSteps(std::unique_ptr<Own> own) : ForecastSteps(own->instances.plan(), own->instances, own->readers) { own_ = std::move(own); }

ForecastSteps::ForecastSteps(const PlacedGraph& plan, const Instances& instances, const NumberLists& readers) : plan(plan), stacks(plan), instances_(instances), readers_(readers) {
  queue();
  make_gates();
  make_lanes();
}

/// The queues of BoundPlan: main by order, tower streams by their entries' phases.
void ForecastSteps::queue() {
  class_of_.assign(static_cast<std::size_t>(plan.towers), -1);
  group_of_.assign(plan.cluster.devices.size(), -1);
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (int t : plan.classes[c].towers) class_of_[static_cast<std::size_t>(t)] = static_cast<int>(c);
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (int d : plan.groups[g].devices) group_of_[static_cast<std::size_t>(d)] = static_cast<int>(g);
  const auto by_order = [&](int a, int b) { return plan.nodes[static_cast<std::size_t>(a)].order < plan.nodes[static_cast<std::size_t>(b)].order; };
  std::vector<int> of_towers, of_devices;
  int place = 0;
  for (auto* list : {&first_where_, &of_towers, &of_devices}) list->reserve(plan.nodes.size() + 1);
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    first_where_.push_back(place);
    place += is_there(n) ? 0 : n.scope == Scope::tower ? plan.towers : n.holders.size() == 1 ? 1 : static_cast<int>(plan.cluster.devices.size());
    if (!is_there(n)) (n.scope == Scope::tower ? of_towers : of_devices).push_back(static_cast<int>(i));
  }
  first_where_.push_back(place);
  steps.reserve(static_cast<std::size_t>(place));
  where_.assign(static_cast<std::size_t>(place), -1);
  for (auto* nodes : {&of_towers, &of_devices})
    if (!std::is_sorted(nodes->begin(), nodes->end(), by_order)) std::sort(nodes->begin(), nodes->end(), by_order);
  const NumberLists main(plan.cluster.devices.size(), [&](auto add) {
    for (int i : of_devices)
      for (int d : plan.nodes[static_cast<std::size_t>(i)].holders) add(static_cast<std::size_t>(d), i);
  });
  // Per class the nodes of its towers by epoch, phase and order.
  using Key = std::pair<int, int>;
  std::vector<std::vector<std::pair<Key, int>>> own(plan.classes.size());
  if (own.size() == 1) own[0].reserve(of_towers.size());
  for (int i : of_towers) {
    const PlanNode& n = plan.nodes[static_cast<std::size_t>(i)];
    for (std::size_t c = 0; c < std::min(own.size(), n.phases.size()); ++c)
      if (n.phases[c] >= 0) own[c].emplace_back(Key{n.epoch, n.phases[c]}, i);
  }
  for (auto& nodes : own) std::stable_sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  auto add = [&](int i, int tower, int device, std::size_t stream) {
    const PlanNode& n = plan.nodes[static_cast<std::size_t>(i)];
    const auto& variants = tower >= 0 ? n.by_class : n.by_group;
    const int which = tower >= 0 ? class_of_[static_cast<std::size_t>(tower)] : group_of_[static_cast<std::size_t>(device)];
    if (which < 0 || which >= static_cast<int>(variants.size())) unbound(fmt::format("'{}' has no kernel for its device", n.name));
    where(i, tower, device) = static_cast<int>(steps.size());
    steps.push_back({i, tower, device, static_cast<int>(stream), &variants[static_cast<std::size_t>(which)]});
  };
  for (std::size_t s = 0; s < plan.streams.size(); ++s) {
    const PlanStream& stream = plan.streams[s];
    first.push_back(static_cast<int>(steps.size()));
    if (stream.name == "main")
      for (int i : main[static_cast<std::size_t>(stream.device)]) add(i, -1, stream.device, s);
    for (const StreamEntry& e : stream.entries) {
      check_entry(plan, stream, e);
      const std::size_t before = steps.size();
      const int c = class_of_[static_cast<std::size_t>(e.tower)];
      if (c < 0) continue;
      const auto& nodes = own[static_cast<std::size_t>(c)];
      const Key key{e.epoch, e.phase};
      for (auto n = std::lower_bound(nodes.begin(), nodes.end(), key, [](const auto& a, const Key& k) { return a.first < k; }); n != nodes.end() && n->first == key; ++n)
        if (plan.device_of(plan.nodes[static_cast<std::size_t>(n->second)], e.tower) == stream.device) add(n->second, e.tower, stream.device, s);
      if (e.after >= 0 && steps.size() > before) after_[{static_cast<int>(before), stream.device}] = e.after;
    }
  }
  first.push_back(static_cast<int>(steps.size()));
}

int ForecastSteps::near(const std::vector<int>& holders, int device) {
  if (holders.size() < 2) return !holders.empty() && instances_.same_space(holders[0], device) ? holders[0] : -1;
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
  if (holders.empty()) unbound(fmt::format("'{}' reads '{}' of every tower", move.name, plan.value(v).name));
  int beside = is_op(move, kCopy) ? -1 : near(holders, device);
  if (beside >= 0 || holders.size() < 2) return beside >= 0 ? beside : holders.front();
  return instances_.moved_from(move, v, device);
}

const std::vector<Piece>& ForecastSteps::pieces_of(int owners) const {
  auto [at, fresh] = pieces_.try_emplace(owners);
  if (fresh) at->second = pieces(plan.vectors.at(static_cast<std::size_t>(owners)), plan.towers);
  return at->second;
}

std::span<const int> ForecastSteps::towers_for(const PlanNode& join, int device) const {
  const int owners = is_op(join, kPreAggregate) ? join.owners : -1;
  auto known = towers_for_.find(owners);
  if (known == towers_for_.end()) known = towers_for_.emplace(owners, towers_taken(plan, join)).first;
  return known->second[owners < 0 ? 0 : static_cast<std::size_t>(device)];
}

std::vector<int> ForecastSteps::sources(const PlanNode& join, int device) const {
  const PlanNode& m = plan.maker(join.inputs[0]);
  std::vector<int> out;
  if (m.scope == Scope::device) {
    for (const Piece& p : pieces_of(m.owners))
      if (takes_part(plan, join, p.low, device)) out.push_back(p.device);
  } else if (m.scope == Scope::tower) {
    for (int t : towers_for(join, device))
      if (int d = plan.device_of(m, t); d >= 0 && stacks.is_joined(m, t)) out.push_back(d);
  } else if (joins_ranges(plan, join)) {
    out = m.holders;
  }
  return out;
}

int& ForecastSteps::where(int node, int tower, int device) {
  const PlanNode& n = plan.nodes[static_cast<std::size_t>(node)];
  const int first = first_where_[static_cast<std::size_t>(node)], past = first_where_[static_cast<std::size_t>(node) + 1];
  const int k = n.scope == Scope::tower ? tower : past - first == 1 && n.holders.front() == device ? 0 : device;
  if (k < 0 || k >= past - first) unbound(fmt::format("'{}' of tower {} is in no stream", n.name, tower));
  return where_[static_cast<std::size_t>(first) + static_cast<std::size_t>(k)];
}

int ForecastSteps::at(int node, int tower, int device) {
  const int out = where(node, tower, device);
  if (out < 0) unbound(fmt::format("'{}' of tower {} is in no stream", plan.nodes[static_cast<std::size_t>(node)].name, tower));
  return out;
}

std::pair<int, ValueIndex> ForecastSteps::read(int s, const PlanNode& n, ValueIndex v) {
  const ForecastStep& step = steps[static_cast<std::size_t>(s)];
  const PlanNode& m = plan.maker(v);
  const int maker = plan.value(v).maker;
  if ((is_join(n) || (is_op(n, kPreAggregate) && !accumulates(n))) && (m.scope == Scope::tower || m.scope == Scope::device)) return {-1, v};
  if (m.scope == Scope::shared && joins_ranges(plan, n)) return {-1, v};
  if (m.scope == Scope::tower) {
    if (step.tower < 0) unbound(fmt::format("'{}' reads '{}' of every tower", n.name, plan.value(v).name));
    auto from = is_op(n, kCopy) ? Instances::At{maker, plan.device_of(m, step.tower)} : instances_.own(v, step.tower, step.device);
    return {at(from.node, step.tower, from.device), from.node == maker ? v : plan.nodes[static_cast<std::size_t>(from.node)].outputs[0]};
  }
  auto from = moves_values(n) ? Instances::At{maker, moved_from(n, v, step.device)} : shared(v, step.device);
  const PlanNode& source = plan.nodes[static_cast<std::size_t>(from.node)];
  if (is_there(source)) return {-1, -1};
  return {at(from.node, -1, from.device), from.node == maker ? v : source.outputs[0]};
}

}  // namespace belfry
