#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/describe_forecast.h>
#include <belfry/frontends/draw/diagram_internal.h>
#include <belfry/frontends/draw/texts_internal.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

std::string name_of_device(const PlacedGraph& plan, int d) { return d < 0 ? "nowhere" : to_string(plan.cluster.devices[static_cast<std::size_t>(d)].id); }

}  // namespace

std::string moved_from(const PlacedGraph& plan, const PlanNode& node, const PlacedGraph& before, const PlanNode& old) {
  if (node.scope != Scope::tower || old.scope != Scope::tower) {
    const std::string was = to_string(before.cluster.ids(all_devices(before, old))), is = to_string(plan.cluster.ids(all_devices(plan, node)));
    return was == is ? "" : was + " → " + is;
  }
  std::string out;
  for (int t = 0; t < std::min(plan.present(), before.present()); ++t) {
    const std::string was = name_of_device(before, before.device_of(old, t)), is = name_of_device(plan, plan.device_of(node, t));
    if (was != is) out += fmt::format("{}tower {}: {} → {}", out.empty() ? "" : "; ", t, was, is);
  }
  return out;
}

namespace picture {

std::string_view to_string(Fill fill) {
  constexpr std::string_view names[] = {"feed", "state", "forward", "backward", "join", "update"};
  return names[static_cast<std::size_t>(fill)];
}

double text_width(std::string_view text, double size) {
  double out = 0;
  for (char c : text) {
    if ((c & 0xC0) == 0x80) continue;  // of a character that was counted
    if (c & 0x80) out += 0.9;
    else if (std::string_view("il.,:;'|!jI").find(c) != std::string_view::npos) out += 0.34;
    else if (std::string_view("frt/()[] -").find(c) != std::string_view::npos) out += 0.42;
    else if (std::string_view("mwMW%@").find(c) != std::string_view::npos) out += 0.98;
    else if (c >= 'A' && c <= 'Z') out += 0.72;
    else out += 0.61;
  }
  return out * size;
}

std::string shortened(const std::string& name, std::size_t most) {
  std::size_t length = 0;
  for (char c : name) length += (c & 0xC0) != 0x80;
  if (length <= most) return name;
  std::size_t at = name.size();
  for (std::size_t kept = 0; at > 0 && kept + 1 < most;) kept += (name[--at] & 0xC0) != 0x80;
  if (std::size_t slash = name.find('/', at); slash != name.npos && slash + 6 < name.size()) at = slash;
  return "…" + name.substr(at);
}

std::vector<std::string> layers_of(const Graph& graph) {
  std::vector<std::string> out;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.of >= 0 && n.of < id) {
      out.push_back(out[static_cast<std::size_t>(n.of)]);
      continue;
    }
    const std::string_view name = n.name, op = n.op->name;
    bool made = name.starts_with(op) && (name.size() == op.size() || name[op.size()] == '_');
    for (char c : name.substr(std::min(name.size(), op.size() + 1))) made = made && c >= '0' && c <= '9';
    NodeId read = -1;
    if (made)
      for (ValueId v : n.inputs)
        if (v.node > read && !graph.node(v.node).inputs.empty()) read = v.node;
    out.push_back(read >= 0 ? out[static_cast<std::size_t>(read)] : n.name);
  }
  return out;
}

std::string kernels_of(const PlanNode& n, std::string_view between) {
  std::set<std::string> out;
  for (const auto* variants : {&n.by_class, &n.by_group})
    for (const Variant& v : *variants)
      if (!v.kernel.empty()) out.insert(v.kernel);
  return fmt::format("{}", fmt::join(out, between));
}

std::vector<std::string> streams_by_vector(const PlacedGraph& plan, std::string_view between) {
  std::vector<std::string> out;
  for (const std::vector<int>& devices : plan.vectors) {
    std::set<std::string> names;
    for (const PlanStream& s : plan.streams)
      for (const StreamEntry& e : s.entries)
        if (const auto t = static_cast<std::size_t>(e.tower); t < devices.size() && devices[t] == s.device) names.insert(s.name);
    out.push_back(fmt::format("{}", fmt::join(names, between)));
  }
  return out;
}

std::string note_of(const PlacedGraph& plan, const PlanNode& n) {
  std::string out = n.name + "\n" + n.op;
  if (n.op == kAggregate || n.op == kPreAggregate || n.op == kFetch) out += " " + n.attributes.text("how");
  if (n.op == kFused) out += " " + n.attributes.text("kind");
  if (const std::string kernels = kernels_of(n, ", "); !kernels.empty()) out += ", kernel " + kernels;
  for (ValueIndex v : n.outputs)
    if (plan.value(v).read || v == n.outputs[0])
      out += fmt::format("\n{} {}, {}{}", to_string(plan.value(v).type), belfry::to_string(plan.value(v).state),
                         human_bytes(local_type(plan.value(v), plan.share(n.scope == Scope::tower ? 0 : -1)).bytes()), n.scope == Scope::tower ? " a tower" : "");
  out += fmt::format("\non {}: {}", to_string(plan.cluster.ids(all_devices(plan, n))), n.reason);
  if (n.inserted) out += "\ninserted for " + plan.graph->node(n.user).name;
  return out;
}

std::string note_of(const Graph& graph, const Node& n) {
  std::string out = n.name + "\n" + n.op->name;
  for (std::size_t k = 0; k < n.types.size(); ++k) out += fmt::format("\n{}", to_string(n.types[k]));
  if (n.device) out += "\nrequested on " + to_string(*n.device);
  if (n.of >= 0) out += "\nof " + graph.node(n.of).name;
  return out;
}

void describe_heads(const PlacedGraph& plan, const PictureOptions& options, Diagram& d) {
  d.title = plan.graph->name;
  d.subtitle = fmt::format("{} · {} tower{} · {}", plan.placement.strategy, plan.towers, plan.towers == 1 ? "" : "s", describe_batch(plan));
  const Forecast* f = options.forecast;
  if (f) {
    d.summary = human_seconds(f->seconds) + " a step";
    double all = 0, unsure = 0;
    for (int k = 0; k < kCostSources; ++k) {
      all += f->by_source[static_cast<std::size_t>(k)];
      if (static_cast<CostSource>(k) == CostSource::guessed) unsure += f->by_source[static_cast<std::size_t>(k)];
    }
    d.subtitle += all > 0 && unsure > all / 2 ? " · forecast from guessed rates" : " · forecast";
  }
  const std::vector<DeviceBytes> bytes = device_bytes(plan);
  std::int64_t most = 1;
  for (const DeviceBytes& b : bytes) most = std::max(most, b.total());
  std::map<int, double> busy;
  if (f)
    for (const DeviceForecast& of : f->devices) busy[of.device] = f->seconds > 0 ? of.busy / f->seconds : 0;
  for (Column& c : d.columns) {
    const std::vector<DeviceId> ids = plan.cluster.ids(c.devices);
    c.name = to_string(ids);
    if (ids.size() > 1) c.name = fmt::format("{}  ×{}", c.name.size() <= 24 ? c.name : to_string(ids[0]) + " …", ids.size());
    std::int64_t planned = 0;
    double low = 1e9, high = 0;
    for (int k : c.devices) {
      planned = std::max(planned, bytes[static_cast<std::size_t>(k)].total());
      low = std::min(low, busy.count(k) ? busy[k] : 0);
      high = std::max(high, busy.count(k) ? busy[k] : 0);
    }
    const std::int64_t limit = plan.cluster.devices[static_cast<std::size_t>(c.devices[0])].memory;
    const bool limited = limit != ClusterDevice{}.memory;
    c.memory_share = std::min(1.0, static_cast<double>(planned) / static_cast<double>(limited ? limit : most));
    c.over = limited && planned > limit;
    c.memory = human_bytes(planned) + (limited ? " of " + human_bytes(limit) : "") + (c.over ? ": does not fit" : "");
    if (!f) continue;
    c.busy_share = std::min(1.0, high);
    c.busy = high - low < 0.01 ? fmt::format("{:.0f} %", 100 * high) : fmt::format("{:.0f}–{:.0f} %", 100 * low, 100 * high);
  }
}

}  // namespace picture
}  // namespace belfry
