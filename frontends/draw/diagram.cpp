#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/describe_forecast.h>
#include <belfry/frontends/draw/plan_boxes_internal.h>
#include <belfry/frontends/draw/reads_internal.h>
#include <belfry/frontends/draw/texts_internal.h>
#include <belfry/graph/structural.h>

namespace belfry::picture {

namespace {

Band band_of_role(Role role) { return role == Role::forward ? Band::forward : role == Role::backward ? Band::backward : Band::update; }

}  // namespace

std::vector<Band> bands_of(const PlacedGraph& plan) {
  std::vector<Band> out;
  for (const PlanNode& n : plan.nodes) {
    Band b = band_of_role(n.role);
    if (n.op == kInput || (n.op == kSplit && plan.maker(n.inputs[0]).op == kInput)) b = Band::input;
    else if (n.op == kAggregate || n.op == kPreAggregate || n.op == kFetch) b = Band::aggregate;
    else if (n.op == kStore) b = Band::update;
    out.push_back(b);
  }
  // What reads nothing, and copies of it, stand where they are read first.
  const std::vector<std::vector<int>> readers(readers_of(plan));
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    const bool copied = n.op == kCopy && plan.maker(copied_by(plan, n)).inputs.empty() && plan.maker(copied_by(plan, n)).op != kInput;
    if (n.op == kInput || !(n.inputs.empty() || copied)) continue;
    Band first = Band::update;
    for (int r : readers[static_cast<std::size_t>(copied ? copied_by(plan, n) : n.outputs[0])])
      if (plan.nodes[static_cast<std::size_t>(r)].op != kCopy) first = std::min(first, out[static_cast<std::size_t>(r)]);
    out[i] = first;
  }
  return out;
}

Fill fill_of(const PlacedGraph& plan, const PlanNode& n) {
  if (n.op == kInput || (n.op == kSplit && plan.maker(n.inputs[0]).op == kInput)) return Fill::input;
  if (n.op == kVariable || (n.op == kCopy && plan.maker(copied_by(plan, n)).op == kVariable)) return Fill::state;
  if (n.op == kAggregate || n.op == kPreAggregate || n.op == kFetch) return Fill::aggregate;
  if (n.op == kStore) return Fill::update;
  return n.role == Role::forward ? Fill::forward : n.role == Role::backward ? Fill::backward : Fill::update;
}

Outline outline_of(const std::string& op) {
  static const std::map<std::string, Outline> known = {{kInput, Outline::input}, {kVariable, Outline::state}, {kCopy, Outline::copy}, {kSplit, Outline::split}, {kAggregate, Outline::aggregate},
                                                       {kPreAggregate, Outline::aggregate}, {kFused, Outline::fused}, {kFetch, Outline::fetch}, {kStore, Outline::store}};
  auto at = known.find(op);
  return at == known.end() ? Outline::plain : at->second;
}

std::string label_of(const std::string& name, std::size_t most) {
  std::string rest = name, sign;
  constexpr std::string_view gradient = "gradient/", aggregate = ".aggregate";
  if (rest.starts_with(gradient)) rest = rest.substr(gradient.size()), sign = "∇ ";
  if (rest.ends_with(aggregate)) rest.resize(rest.size() - aggregate.size()), sign = "Σ ";
  return sign + shortened(rest, most - (sign.empty() ? 0 : 2));
}

Times::Times(const PictureOptions& options, const Lanes& lanes) {
  if (!options.forecast) return;
  std::set<int> path(options.forecast->path.begin(), options.forecast->path.end());
  for (std::size_t k = 0; k < options.forecast->launches.size(); ++k) {
    const ForecastLaunch& l = options.forecast->launches[k];
    auto lane = lanes.lane_of.find({l.device, l.tower});
    if (lane == lanes.lane_of.end()) continue;
    auto& [seconds, launches, critical] = of_[{l.node, lane->second}];
    seconds += l.end - l.begin;
    ++launches;
    critical = critical || path.count(static_cast<int>(k));
  }
}

double Times::seconds(int node, int lane) const {
  auto at = of_.find({node, lane});
  return at == of_.end() ? 0 : std::get<0>(at->second) / std::get<1>(at->second);
}

bool Times::critical(int node, int lane) const {
  auto at = of_.find({node, lane});
  return at != of_.end() && std::get<2>(at->second);
}

Moved::Moved(const PlacedGraph& plan, const PlacedGraph* before) : plan_(plan), before_(before) {
  if (!before) return;
  for (const PlanNode& n : before->nodes) old_[n.name] = &n;
}

std::string Moved::operator()(const PlanNode& n) const {
  if (!before_) return "";
  auto old = old_.find(n.name);
  if (old == old_.end()) return "not in the other plan";
  const std::string moved = moved_from(plan_, n, *before_, *old->second);
  return moved.empty() ? "" : "moved: " + moved;
}

bool Moved::operator()(const PlanNode& n, int tower) const {
  if (!before_) return false;
  auto old = old_.find(n.name);
  if (old == old_.end()) return true;
  if (tower < 0 || n.scope != Scope::tower || old->second->scope != Scope::tower) return !moved_from(plan_, n, *before_, *old->second).empty();
  if (tower >= before_->present()) return true;
  auto id = [&](const PlacedGraph& p, const PlanNode& of) {
    const int d = p.device_of(of, tower);
    return d < 0 ? std::string() : to_string(p.cluster.devices[static_cast<std::size_t>(d)].id);
  };
  return id(plan_, n) != id(*before_, *old->second);
}

std::string link_name(const PlacedGraph& plan, int from, int to) {
  const std::string &a = plan.cluster.space(from), &b = plan.cluster.space(to);
  return a == b ? "in " + a : a + " → " + b;
}

Diagram whole_diagram(const PlacedGraph& plan, const PictureOptions& options) {
  Lanes lanes = lanes_of(plan, false);
  Diagram d;
  d.columns = lanes.columns;
  d.lanes = lanes.lanes;
  describe_heads(plan, options, d);
  const std::vector<Band> bands = bands_of(plan);
  const Times times(options, lanes);
  const Moved moved(plan, options.beside);
  std::map<std::tuple<int, int, int>, int> box_of;  // node, tower, device
  double longest = 0;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    const int node = static_cast<int>(i);
    for (auto [tower, device] : instances_of(plan, n)) {
      Box b;
      b.label = label_of(n.name, 25);
      b.fill = fill_of(plan, n);
      b.outline = outline_of(n.op);
      b.band = bands[i];
      b.lane = lanes.lane_of.at({device, tower});
      b.order = (static_cast<std::int64_t>(n.epoch) + 1) * (std::int64_t{1} << 32) + n.order;
      b.share = times.seconds(node, b.lane);
      b.critical = times.critical(node, b.lane);
      b.moved = moved(n, tower);
      b.note = note_of(plan, n);
      if (b.share > 0) b.note += "\n" + human_seconds(b.share) + (b.critical ? ", on the critical path" : "");
      if (b.moved) b.note += "\n" + moved(n);
      b.nodes = {node};
      longest = std::max(longest, b.share);
      box_of[{node, tower, device}] = static_cast<int>(d.boxes.size());
      d.boxes.push_back(std::move(b));
    }
  }
  for (Box& b : d.boxes) b.share = longest > 0 ? b.share / longest : 0;
  const Instances instances(plan);
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    for (auto [tower, device] : instances_of(plan, plan.nodes[i]))
      for (const Read& r : reads_of(instances, plan.nodes[i], tower, device)) {
        Edge e{box_of.at({r.node, r.tower, r.device}), box_of.at({static_cast<int>(i), tower, device}), r.bytes, r.device != device, "", fill_of(plan, plan.nodes[static_cast<std::size_t>(r.node)])};
        if (e.across) e.link = link_name(plan, r.device, device);
        if (std::find(d.edges.begin(), d.edges.end(), e) == d.edges.end()) d.edges.push_back(e);
      }
  return d;
}

Diagram graph_diagram(const Graph& graph) {
  Diagram d;
  d.title = graph.name;
  d.subtitle = fmt::format("a graph of {} nodes, not placed", graph.size());
  d.columns.emplace_back();
  d.columns[0].name = "no devices yet";
  d.lanes.emplace_back();
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    Box b;
    b.label = label_of(n.name, 25);
    b.outline = outline_of(n.op->name);
    b.fill = n.op->name == kInput ? Fill::input : n.op->name == kVariable ? Fill::state : n.role == Role::forward ? Fill::forward : n.role == Role::backward ? Fill::backward : Fill::update;
    b.band = n.op->name == kInput ? Band::input : band_of_role(n.role);
    if (n.inputs.empty() && n.op->name != kInput) {
      b.band = graph.readers(id).empty() ? b.band : Band::update;
      for (NodeId r : graph.readers(id)) b.band = std::min(b.band, band_of_role(graph.node(r).role));
    }
    b.order = id;
    b.note = note_of(graph, n);
    b.nodes = {id};
    d.boxes.push_back(std::move(b));
    std::set<NodeId> seen;
    for (ValueId v : n.inputs)
      if (v.node >= 0 && seen.insert(v.node).second) d.edges.push_back({v.node, id, 0, false, "", Fill::forward});
  }
  return d;
}

}  // namespace belfry::picture
