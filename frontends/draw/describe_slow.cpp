#include <belfry/frontends/draw/describe_slow.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/draw/describe.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

constexpr std::size_t kNamed = 5;  // names in a line

std::string some(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(kNamed, names.size());
  std::string out = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return names.size() > shown ? out + fmt::format(" and {} more", names.size() - shown) : out;
}

/// Nodes by op, those with the most operations first: a scalar's reference costs nothing that one would notice.
std::string references(const PlacedGraph& plan) {
  std::map<std::string, std::vector<std::string>> by_op;
  for (const PlanNode& n : plan.nodes) {
    auto is_reference = [](const Variant& v) { return v.kernel == "reference"; };
    if (!std::any_of(n.by_class.begin(), n.by_class.end(), is_reference) && !std::any_of(n.by_group.begin(), n.by_group.end(), is_reference)) continue;
    std::int64_t elements = 0;
    for (ValueIndex v : n.outputs) elements = std::max(elements, local_type(plan.value(v), plan.share(n.scope == Scope::tower ? 0 : -1)).elements());
    if (elements >= 1024) by_op[n.op].push_back(n.name);
  }
  std::string out;
  for (const auto& [op, names] : by_op) out += fmt::format("{} has no kernel for these values and runs as its reference, on one thread: {}\n", op, some(names));
  return out;
}

/// Nodes of towers on the host that read what a GPU of the same tower made, or that one there reads.
std::string left_to_host(const PlacedGraph& plan) {
  auto kind_of = [&](const PlanNode& n, int tower) -> std::string_view {
    const int d = n.scope == Scope::tower ? plan.device_of(n, tower) : -1;
    return d < 0 ? std::string_view{} : std::string_view(plan.cluster.devices[static_cast<std::size_t>(d)].id.kind);
  };
  auto computes = [](const PlanNode& n) { return (n.def && !n.def->source) || n.op == kFused; };
  if (std::none_of(plan.cluster.devices.begin(), plan.cluster.devices.end(), [](const ClusterDevice& d) { return d.id.kind == "gpu"; })) return "";
  std::map<std::string, std::string> left;  // with why it is there
  for (const PlanNode& n : plan.nodes)
    for (ValueIndex v : values_read(n)) {
      const PlanNode& maker = plan.maker(v);
      for (int t = 0; t < plan.present(); ++t) {
        if (kind_of(maker, t) == "gpu" && kind_of(n, t) == "cpu" && computes(n)) left.emplace(n.name, n.reason);
        if (kind_of(maker, t) == "cpu" && kind_of(n, t) == "gpu" && computes(maker)) left.emplace(maker.name, maker.reason);
      }
    }
  if (left.empty()) return "";
  std::vector<std::string> names;
  for (const auto& [name, reason] : left) names.push_back(name);
  const auto& [first, why] = *left.begin();
  return fmt::format("the host computes what GPUs read or have made, with the copies that this takes: {}{}\n", some(names), why.empty() ? "" : fmt::format("; of {}: {}", first, why));
}

std::string too_many_threads(const PlacedGraph& plan) {
  return plan.threads > plan.cluster.cores ? fmt::format("{} threads a tower take turns on {} core{}\n", plan.threads, plan.cluster.cores, plan.cluster.cores == 1 ? "" : "s") : "";
}

/// Rows are joined for results anyway; here it is because an op reads them all.
std::string whole_rows(const PlacedGraph& plan) {
  std::vector<std::string> names;
  std::int64_t bytes = 0;
  for (const PlanNode& n : plan.nodes) {
    if (n.op != kAggregate || n.attributes.text("how") != "concat_rows") continue;
    names.push_back(n.user < 0 ? n.name : plan.graph->node(n.user).name);
    bytes += local_type(plan.value(n.outputs[0]), plan.share(-1)).bytes();
  }
  return names.empty() ? "" : fmt::format("rows of all towers are joined, {} a step, for ops that read them whole: {}\n", human_bytes(bytes), some(names));
}

std::string crossing(const PlacedGraph& plan) {
  const std::vector<LinkLoad> links = link_bytes(plan);
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(kNamed, links.size()); ++i) shown.push_back(fmt::format("{} from {} to {}", human_bytes(links[i].bytes), links[i].from, links[i].to));
  const std::size_t more = links.size() - shown.size();
  return links.empty() ? "" : fmt::format("between memory spaces in each step: {}{}\n", fmt::join(shown, ", "), more ? fmt::format(" and {} more that carry no more", more) : "");
}

std::string untrained(const PlacedGraph& plan) {
  if (plan.updates.empty()) return "";
  std::set<std::string> updated;
  for (auto [variable, value] : plan.updates) updated.insert(plan.value(variable).name);
  std::vector<std::string> names;
  for (const PlanNode& n : plan.nodes)
    if (n.op == kVariable && plan.graph->node(n.user).of < 0 && n.attributes.flag("trainable") && !updated.contains(n.name)) names.push_back(n.name);
  return names.empty() ? "" : fmt::format("no loss depends on these variables, which stay as they are: {}\n", some(names));
}

}  // namespace

std::string describe_slow(const PlacedGraph& plan, bool links) {
  return too_many_threads(plan) + references(plan) + left_to_host(plan) + whole_rows(plan) + (links ? crossing(plan) : "") + untrained(plan);
}

}  // namespace belfry
