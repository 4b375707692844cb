#include <belfry/frontends/json/problem_file.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_folds.h>
#include <belfry/frontends/json/records.h>
#include <belfry/graph/structural.h>

namespace belfry {

std::string rule_name(const PlanNode& n) { return n.scope == Scope::tower ? "tower_*/" + n.name : n.name; }

namespace {

/// What place() puts in itself, or computes where it is read, is none of a placer's business.
bool is_free(const PlanNode& n) { return !n.again && n.op != kInput && n.op != kFetch && n.op != kSplit && !changes_nothing(n) && !(n.def && n.def->source && n.scope != Scope::state); }

const Variant* variant_of(const PlanNode& n) {
  const auto& all = n.scope == Scope::tower ? n.by_class : n.by_group;
  auto known = std::find_if(all.begin(), all.end(), [](const Variant& v) { return !v.kernel.empty(); });
  return known != all.end() ? &*known : all.empty() ? nullptr : &all.front();
}

std::int64_t bytes_of(const PlacedGraph& plan, const PlanNode& n) {
  std::int64_t out = 0;
  for (ValueIndex v : n.outputs)
    if (plan.value(v).read) out += local_type(plan.value(v), plan.share(n.scope == Scope::tower ? 0 : -1)).bytes();
  return out;
}

/// What a join adds or gathers: each device's sums, where there are such, or what each tower has.
int parts_of(const PlacedGraph& plan, const PlanNode& join) {
  const PlanNode& m = plan.maker(join.inputs[0]);
  return m.scope == Scope::device ? static_cast<int>(std::ssize(pieces(plan.vectors[static_cast<std::size_t>(m.owners)], plan.towers))) : plan.present();
}

std::string problem_line(const PlacedGraph& plan, CostModel& model, int i) {
  const PlanNode& n = plan.nodes[static_cast<std::size_t>(i)];
  const Variant* variant = variant_of(n);
  LineWriter line, seconds;
  line.add("name", json_text(rule_name(n)));
  if (n.user >= 0) {
    const Node& user = plan.graph->node(n.user);
    if (user.of >= 0) line.add("of", json_text(plan.graph->node(user.of).name));
    if (user.device) line.add("pin", json_text(to_string(*user.device)));
  }
  line.add("assigned", json_of_devices(all_devices(plan, n), plan.cluster));
  if (variant && n.scope != Scope::state) {
    const int parts = is_join(n) ? parts_of(plan, n) : 0;
    for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d)
      seconds.add(to_string(plan.cluster.devices[d].id), json_real(model(i, *variant, n.scope == Scope::tower ? 0 : -1, static_cast<int>(d), parts).seconds));
    line.add("seconds", seconds.text());
    if (variant->scratch_bytes) line.add("scratch", std::to_string(variant->scratch_bytes));
  }
  line.add("bytes", std::to_string(bytes_of(plan, n)));
  return line.text();
}

/// The free nodes that a value comes from, through what place() puts in.
void makers_of(const PlacedGraph& plan, ValueIndex v, std::set<int>& out) {
  const PlanNode& m = plan.maker(v);
  if (is_free(m)) out.insert(plan.value(v).maker);
  else
    for (ValueIndex inner : values_read(m)) makers_of(plan, inner, out);
}

}  // namespace

std::vector<std::string> problem_nodes(const PlacedGraph& plan) {
  std::vector<std::string> out;
  for (const PlanNode& n : plan.nodes)
    if (is_free(n)) out.push_back(rule_name(n));
  return out;
}

std::string write_problem(const PlacedGraph& plan, const CostTable& costs) {
  CostModel model(plan, costs);
  std::vector<std::string> nodes, edges, devices;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    if (!is_free(n)) continue;
    nodes.push_back(problem_line(plan, model, static_cast<int>(i)));
    std::set<int> from;
    for (ValueIndex v : values_read(n)) makers_of(plan, v, from);
    for (int m : from) {
      const PlanNode& maker = plan.nodes[static_cast<std::size_t>(m)];
      edges.push_back(json_list({json_text(rule_name(maker)), json_text(rule_name(n)), std::to_string(bytes_of(plan, maker))}));
    }
  }
  std::vector<std::string> entries = {"\"belfry\": 1", fmt::format("\"towers\": {}", plan.towers), fmt::format("\"batch\": {}", plan.batch), "\"combine\": " + json_text(to_string(plan.combine)), fmt::format("\"threads\": {}", plan.threads),
                                      "\"order\": " + json_text(to_string(plan.placement.order)), "\"nodes\": " + json_lines(nodes),
                                      "\"edges\": " + json_lines(edges)};
  for (std::string& e : cluster_entries(plan.cluster)) entries.push_back(std::move(e));
  return json_file(entries);
}

}  // namespace belfry
