#include <belfry/placer/place.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/assign.h>
#include <belfry/placer/choose.h>
#include <belfry/placer/placer_internal.h>
#include <belfry/placer/recompute.h>
#include <belfry/placer/requests.h>

namespace belfry {

int default_threads(const Cluster& cluster, int towers) { return std::clamp(cluster.cores / towers, 1, static_cast<int>(kMostThreads)); }

TowerGraph expand_for(std::shared_ptr<const Graph> graph, const Division& d, std::int64_t batch, const PlaceOptions& options) {
  ExpandOptions e{d.towers, batch, d.combine, d.threads, options.updates, options.fetches, {}, {}};
  if (options.groups) e.groups = options.groups(*graph);
  return expand(std::move(graph), e);
}

std::vector<std::string> recomputed_nodes(const TowerGraph& towers, int stretches, const std::vector<std::string>& nodes, const Rules& rules, const Cluster& cluster) {
  return stretches ? nodes_to_recompute(towers, stretches, leaves_device(towers, rules, cluster)) : nodes;
}

namespace {

PlacedGraph placed(TowerGraph towers, Placement placement, const Cluster& cluster, const PlaceOptions& options) {
  for (PlacementRule& r : placement.rules)  // of which a plan tells each node's
    if (r.reason.empty()) r.reason = fmt::format("by the rule \"{}\"", r.match);
  check_devices(towers, placement.rules, cluster);
  recompute(towers, placement.recompute);
  PlacedGraph plan = std::move(Placer(std::move(towers), cluster, options).place(placement, options.must_decide));
  plan.placement.rules = std::move(placement.rules);
  plan.arithmetic_hash = arithmetic_hash(plan);
  plan.isa = options.isa;
  plan.libraries = options.libraries;
  return plan;
}

}  // namespace

PlacedGraph place(std::shared_ptr<const Graph> graph, const Placement& p, const Cluster& cluster, const PlaceOptions& options) {
  TowerGraph towers = expand_for(std::move(graph), {p.towers, p.combine, p.threads, p.order}, p.batch, options);
  Placement again = p;
  again.recompute = recomputed_nodes(towers, options.recompute.stretches, p.recompute, p.rules, cluster);
  return placed(std::move(towers), again, cluster, options);
}

Division division_of(const Graph& graph, const Strategy& strategy, const Cluster& cluster) {
  if (!strategy.divide || !strategy.assign) throw UserError("a strategy without divide and assign: write Towers{.devices = parse_devices(\"cpu:0,cpu:1\")}, or take one of the library's by name");
  Division d = strategy.divide(graph, cluster);
  if (d.towers < 1) throw UserError(fmt::format("strategy {} makes {} towers: give it devices, .devices = parse_devices(\"cpu:0,cpu:1\"), or .towers", strategy.name, d.towers));
  if (d.threads < 0) throw UserError(fmt::format("strategy {} has {} threads a tower: there is at least one, or 0 for as many as cores give", strategy.name, d.threads));
  if (d.threads == 0) d.threads = default_threads(cluster, d.towers);
  return d;
}

std::pair<Placement, Rules> decided_by(const Strategy& strategy, const Division& d, const TowerGraph& towers, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options) {
  Placement p{d.towers, batch, d.combine, d.threads, {}, d.order, options.recompute.nodes, strategy.name, d.collectives, strategy.options};
  Rules rules = strategy.assign(towers, cluster, options.costs ? *options.costs : CostTable{});
  const int stretches = options.recompute.stretches || !options.recompute.nodes.empty() ? options.recompute.stretches : d.recompute;
  if (stretches) p.recompute = recomputed_nodes(towers, stretches, {}, all_rules(options, requests_of(towers, cluster, options, {}).rules, rules), cluster);
  return {std::move(p), std::move(rules)};
}

std::size_t hash_of(const Rules& rules) {
  std::string text;
  for (const PlacementRule& r : rules) text += r.match + " " + to_string(r.devices) + "\n";
  return XXH3_64bits(text.data(), text.size());
}

bool MemoryTold::is_new(const Rules& rules) const { return known_.empty() || std::find(known_.begin(), known_.end(), hash_of(rules)) == known_.end(); }

void MemoryTold::lacks(const Rules& rules, const std::vector<std::int64_t>& needed) {
  if (by_memory_) known_.push_back(hash_of(rules));
  if (known_.size() == 1)  // by the first plan
    for (std::size_t d = 0; d < lacked_.size(); ++d) lacked_[d] = needed[d] - cluster_.devices[d].memory;
}

bool MemoryTold::tighten() {
  constexpr int kRounds = 3;  // twice as much less each time, from a 64th on: a cut knows but part of what a plan holds
  if (rounds_ == 2 * kRounds || std::none_of(lacked_.begin(), lacked_.end(), [](std::int64_t l) { return l > 0; })) return false;
  told_ = cluster_;
  for (std::size_t d = 0; d < lacked_.size(); ++d) {
    const std::int64_t memory = cluster_.devices[d].memory;
    std::int64_t most = lacked_[d];
    for (std::size_t o = 0; o < lacked_.size(); ++o)  // then of all that have as much: else the same may go to the next of them
      if (rounds_ >= kRounds && cluster_.devices[o].memory == memory) most = std::max(most, lacked_[o]);
    if (most > 0) told_->devices[d].memory = memory - std::min(memory, std::max(most, memory / 64) << rounds_ % kRounds);
  }
  ++rounds_;
  return true;
}

Rules all_rules(const PlaceOptions& options, const Rules& requests, const Rules& strategy) {
  Rules out = options.rules;
  out.insert(out.end(), requests.begin(), requests.end());
  out.insert(out.end(), strategy.begin(), strategy.end());
  return out;
}

namespace {

/// By a strategy's rules; of requests that need not be met, those that lead to full devices are left out.
PlacedGraph placed_by(TowerGraph towers, Placement p, const Rules& rules, const Cluster& cluster, const PlaceOptions& options) {
  std::set<DeviceId> full;
  for (;;) {
    const Requests requests = requests_of(towers, cluster, options, full);
    p.rules = all_rules(options, requests.rules, rules);
    PlacedGraph plan = placed(options.soft ? towers : std::exchange(towers, {}), p, cluster, options);
    if (options.soft && add_full(plan, requests, full)) continue;
    note_unmet(plan, requests, options);
    return plan;
  }
}

}  // namespace

PlacedGraph place(std::shared_ptr<const Graph> graph, const Strategy& strategy, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options) {
  if (strategy.choice) return std::move(*choose(graph, strategy, cluster, batch, options).front().plan);
  const Division d = division_of(*graph, strategy, cluster);
  std::optional<PlacedGraph> first;
  std::vector<std::string> said, said_first;
  PlaceOptions quiet = options;  // what is not taken warns of nothing
  if (options.warn) quiet.warn = [&said](const std::string& text) { said.push_back(text); };
  auto taken = [&](PlacedGraph& plan, const std::vector<std::string>& warnings) {
    for (const std::string& w : warnings) options.warn(w);
    return std::move(plan);
  };
  MemoryTold told(strategy, cluster);
  do {
    TowerGraph towers = expand_for(graph, d, batch, options);
    auto [p, rules] = decided_by(strategy, d, towers, told.cluster(), batch, options);
    if (!told.is_new(rules)) continue;
    said.clear();
    PlacedGraph plan = placed_by(std::move(towers), std::move(p), rules, cluster, quiet);
    if (over_memory(plan).empty()) return taken(plan, said);
    told.lacks(rules, total_bytes(plan));
    if (!first) first = std::move(plan), said_first = said;
  } while (told.tighten());
  return taken(*first, said_first);
}

namespace {

std::string hex(XXH128_hash_t h) { return fmt::format("{:016x}{:016x}", h.high64, h.low64); }

std::string text_of(const Attributes& attributes) {
  std::string out;
  for (const auto& [name, value] : attributes.entries()) {
    const TensorRef* tensor = std::get_if<TensorRef>(&value);
    out += name + "=" + (tensor ? to_string((*tensor)->type()) + hex(XXH3_128bits((*tensor)->raw(), (*tensor)->bytes().size())) : to_string(value)) + ";";
  }
  return out;
}

/// "0-3 onednn, 4 reference": which towers run which kernel.
std::string kernels_by_tower(const PlacedGraph& plan, const PlanNode& n) {
  std::vector<const std::string*> of(static_cast<std::size_t>(plan.present()));
  for (std::size_t c = 0; c < n.by_class.size(); ++c)
    for (int t : plan.classes[c].towers)
      if (t < plan.present()) of[static_cast<std::size_t>(t)] = &n.by_class[c].kernel;
  std::string out;
  for (std::size_t t = 0, end = 0; t < of.size(); t = end) {
    for (end = t + 1; end < of.size() && of[t] && of[end] && *of[end] == *of[t];) ++end;
    if (of[t] && !of[t]->empty()) out += fmt::format("{}-{} {} ", t, end - 1, *of[t]);
  }
  return out;
}

/// Kernels by the rows they work on, where towers of the same rows run several by tower; those that give the same bits whatever they are called count by their op.
std::string kernels_of(const PlacedGraph& plan, const PlanNode& n) {
  std::set<std::string> out;
  if (n.def && n.def->exact) return "";
  std::map<std::int64_t, const std::string*> of_rows;
  for (std::size_t c = 0; c < n.by_class.size(); ++c) {
    const std::string& kernel = std::as_const(n.by_class)[c].kernel;
    if (kernel.empty()) continue;
    const std::int64_t rows = plan.share(plan.classes[c].towers[0]).rows;
    if (*of_rows.try_emplace(rows, &kernel).first->second != kernel) return kernels_by_tower(plan, n);
    out.insert(fmt::format("{}:{}", rows, kernel));
  }
  if (n.scope == Scope::tower) return fmt::format("{}", fmt::join(out, " "));
  for (const Variant& v : n.by_group)
    if (!v.kernel.empty()) out.insert(v.kernel);
  if (out.size() < 2) return out.empty() ? "" : *out.begin();
  std::string all;  // by range, or by device where plans were edited
  for (int d : n.holders)
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      if (const std::vector<int>& group = plan.groups[g].devices; std::find(group.begin(), group.end(), d) != group.end()) all += n.by_group[g].kernel + " ";
  return all;
}

/// Who is how far behind whom: it decides the order of a ring's sums, and a library's.
std::string ring_of(const PlacedGraph& plan, const PlanNode& n) {
  const Scope parts = plan.maker(n.inputs[0]).scope;  // one of each device, or of each tower
  std::string out = fmt::format("ring of {}{}:", n.holders.size(), parts == Scope::device ? "" : " by tower");
  for (int d : plan.vectors[static_cast<std::size_t>(n.owners)]) out += fmt::format(" {}", std::find(n.holders.begin(), n.holders.end(), d) - n.holders.begin());
  return out;
}

/// What has the bits of its members counts as these do where they stand alone.
void hash_members(const PlacedGraph& plan, const PlanNode& n, const std::function<std::string(ValueIndex)>& source, std::vector<std::string>& lines) {
  std::size_t next = 0;
  const std::vector<ValueId> made = values_of(plan, n);
  auto whole = std::find_if(made.begin(), made.end(), [&](ValueId v) { return v.output == 0 && !is_sum_aside(*plan.graph->node(v.node).op); });
  if (whole == made.end()) whole = made.begin();
  auto state = [&](ValueId v) {  // what stays inside is in the state of the whole
    const auto at = std::find(made.begin(), made.end(), v);
    return to_string(plan.value(n.outputs[static_cast<std::size_t>((at == made.end() ? whole : at) - made.begin())]).state);
  };
  for (auto m = n.members.begin(); m != n.members.end(); ++m) {
    const Node& member = plan.graph->node(m->node);
    std::string text = fmt::format("{} {}(", member.name, member.op->name);
    for (std::size_t i = 0; i < member.inputs.size(); ++i) {
      const ValueId v = member.inputs[i];
      const bool inner = std::any_of(n.members.begin(), m, [&](const Member& earlier) { return earlier.node == v.node; });
      const ValueIndex outer = inner ? -1 : n.inputs.at(next++);
      text += (inner || (v.valid() && reads_shape_only(member, i)) ? plan.graph->name_of(v) : outer < 0 ? "-" : source(outer)) + ",";
    }
    text += ")" + text_of(member.attributes);
    for (std::size_t k = 0; k < member.types.size(); ++k) text += to_string(member.types[k]) + state({m->node, static_cast<std::int32_t>(k)});
    lines.push_back(text + " " + (member.op->exact ? "" : kernels_of(plan, n)));
  }
}

}  // namespace

std::string arithmetic_hash(const PlacedGraph& plan) {
  std::vector<std::string> lines = {fmt::format("{} {} {} {}", plan.towers, plan.batch, to_string(plan.combine), plan.threads)};
  // The value itself, whatever brings it here: moves change no bits, and a device's join is along the same tree.
  auto source = [&](ValueIndex v) {
    while (changes_nothing(plan.maker(v))) v = plan.maker(v).inputs[0];
    return plan.maker(v).again ? plan.graph->name_of(values_of(plan, plan.maker(v)).at(static_cast<std::size_t>(plan.value(v).output))) : plan.value(v).name;
  };
  std::map<NodeId, std::string> kernels;  // of what is computed again, too
  if (std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.again; }))
    for (const PlanNode& n : plan.nodes)
      if (!n.again && n.user >= 0 && !changes_nothing(n) && n.op != kFetch) kernels[n.user] = kernels_of(plan, n);
  for (const PlanNode& n : plan.nodes) {
    if (n.again) {
      if (const std::string other = kernels_of(plan, n); other != kernels[n.user]) lines.push_back(fmt::format("{} by {}", n.name, other));
      continue;
    }
    if (changes_nothing(n) || n.op == kFetch) continue;
    if (has_bits_of_members(plan, n)) {
      hash_members(plan, n, source, lines);
      continue;
    }
    std::string text = fmt::format("{} {}(", n.name, n.op);
    for (ValueIndex v : n.inputs) text += (v < 0 ? "-" : source(v)) + ",";
    text += ")" + text_of(n.attributes);
    for (const Member& m : n.members) {
      const Node& member = plan.graph->node(m.node);
      text += fmt::format("[{} {} {}]", member.name, member.op->name, text_of(member.attributes));
    }
    const bool by_library = std::any_of(n.by_group.begin(), n.by_group.end(), [](const Variant& v) { return v.kernel == kNccl; });
    if (n.sum == SumWay::ring || (by_library && n.owners >= 0)) text += ring_of(plan, n);
    for (ValueIndex v : n.outputs) text += to_string(plan.value(v).type) + to_string(plan.value(v).state);
    lines.push_back(text + " " + kernels_of(plan, n));
  }
  for (auto [variable, u] : plan.updates) lines.push_back(fmt::format("{} becomes {}", plan.value(variable).name, source(u)));
  std::sort(lines.begin(), lines.end());  // in whatever order a file lists its nodes
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());  // members of a tree may stand beside it too
  const std::string text = fmt::format("{}", fmt::join(lines, "\n"));
  return hex(XXH3_128bits(text.data(), text.size()));
}

}  // namespace belfry
