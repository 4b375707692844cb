#include <belfry/frontends/draw/describe.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/texts_internal.h>
#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/landing.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>

namespace belfry {

std::string human_bytes(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double n = static_cast<double>(bytes);
  const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  std::size_t u = 0;
  for (n /= 1024; n >= 1024 && u < 3; ++u) n /= 1024;
  return fmt::format("{:.1f} {}", n, units[u]);
}

std::string describe_batch(const TowerGraph& plan) {
  std::string out = fmt::format("global batch {}", plan.batch);
  if (plan.towers == 1) return out;
  if (plan.present() > 8) {
    const std::int64_t least = plan.share(plan.present() - 1).rows, most = plan.share(0).rows;
    return out + fmt::format(" over {} towers of {}", plan.present(), least) + (least == most ? "" : fmt::format(" to {}", most));
  }
  std::string parts;
  for (int t = 0; t < plan.present(); ++t) parts += fmt::format("{}{}", t ? " + " : " = ", plan.share(t).rows);
  return out + parts;
}

namespace {

std::string device_name(const PlacedGraph& plan, int d) { return to_string(plan.cluster.devices[static_cast<std::size_t>(d)].id); }

/// "tower 0 on cpu:0, tower 1 on cpu:1"; runs of towers where there are many.
std::string towers_on(const PlacedGraph& plan, const PlanNode& n) {
  const std::vector<int>& v = plan.devices(n);
  std::string out;
  for (int t = 0; t < plan.present();) {
    int end = t + 1;
    while (end < plan.present() && v[static_cast<std::size_t>(end)] == v[static_cast<std::size_t>(t)]) ++end;
    if (v[static_cast<std::size_t>(t)] >= 0)
      out += fmt::format("{}{} on {}", out.empty() ? "" : ", ", end - t > 1 ? fmt::format("towers {}-{}", t, end - 1) : fmt::format("tower {}", t), device_name(plan, v[static_cast<std::size_t>(t)]));
    t = end;
  }
  return out;
}

/// Where and when a node runs: nothing for a variable, which only lies there.
std::string schedule_of(const std::vector<std::string>& streams, const PlanNode& n) {
  if (n.scope == Scope::state) return "";
  std::string stream = n.once ? "main, once" : "main";
  if (n.scope == Scope::tower) {
    std::set<int> phases(n.phases.begin(), n.phases.end());
    phases.erase(-1);
    stream = fmt::format("{}, phase {}", streams[static_cast<std::size_t>(n.vector)], fmt::join(phases, "|"));
  }
  return fmt::format("; stream {}; order {}.{}; kernel {}", stream, n.epoch, n.order, picture::kernels_of(n, "|"));
}

/// What a node carries in a step, and how much of it between memory spaces.
std::string moved(const Instances& instances, const PlanNode& n) {
  const Cluster& cluster = instances.plan().cluster;
  std::int64_t all = 0, over_links = 0, landed = 0;
  for (const Move& m : moves_of(instances, n)) {
    all += m.bytes;
    if (cluster.space(m.from) != cluster.space(m.to)) (reads_landed(instances.plan(), n, m.to) ? landed : over_links) += m.bytes;
  }
  if (!all) return "";
  std::string out = "; " + human_bytes(all);
  if (over_links) out += fmt::format(", {} over links", human_bytes(over_links));
  if (landed) out += fmt::format(", {} over links ahead of the step", human_bytes(landed));
  return out;
}

std::string line_of(const Instances& instances, const std::vector<std::string>& streams, const PlanNode& n) {
  const PlacedGraph& plan = instances.plan();
  std::string inputs;
  for (ValueIndex v : n.inputs) inputs += (inputs.empty() ? "" : ", ") + (v < 0 ? std::string("-") : plan.value(v).name);
  std::string where = n.scope == Scope::tower ? towers_on(plan, n) : to_string(plan.cluster.ids(n.holders));
  std::string what = n.op;
  if (n.ranged) where += " in ranges";
  if (n.sum != SumWay::direct) where += n.sum == SumWay::ring ? " round a ring" : " by link groups";
  if (n.bucket) where += fmt::format(", bucket {}", n.bucket);
  if (n.op == kAggregate || n.op == kAllGather || n.op == kPreAggregate || n.op == kFetch) what += " " + n.attributes.text("how");
  if (n.op == kFused) what += " " + n.attributes.text("kind");
  std::string out = fmt::format("  {} = {}({})  {} {}\n      {}{}; {}", n.name, what, inputs, to_string(plan.value(n.outputs[0]).type),
                                to_string(plan.value(n.outputs[0]).state), where, schedule_of(streams, n), n.reason);
  for (auto [u, variable] : n.donates) out += fmt::format("; writes {}", plan.value(variable).name);
  if (n.inserted) out += fmt::format("; cause {}", plan.graph->node(n.user).name);
  return out + moved(instances, n) + "\n";
}

std::string describe_nodes(const PlacedGraph& plan) {
  Instances instances(plan);
  std::vector<std::string> streams = picture::streams_by_vector(plan, "|");
  std::map<std::pair<int, int>, std::vector<const PlanNode*>> bands;
  for (const PlanNode& n : plan.nodes) bands[{n.scope == Scope::state ? -2 : n.epoch, n.scope == Scope::tower ? 0 : 1}].push_back(&n);
  std::string out;
  for (auto& [key, nodes] : bands) {
    std::sort(nodes.begin(), nodes.end(), [](const PlanNode* a, const PlanNode* b) { return a->order < b->order; });
    if (key.first == -2) out += "variables\n";
    else if (key.first == -1) out += "before the towers\n";
    else out += fmt::format("{}{}\n", key.second ? "joined: aggregates, updates, results" : "in every tower", key.first ? fmt::format(" (epoch {})", key.first) : "");
    for (const PlanNode* n : nodes) out += line_of(instances, streams, *n);
  }
  return out;
}

/// Streams of towers; devices whose streams are alike stand in one line.
std::string describe_streams(const PlacedGraph& plan) {
  std::vector<std::pair<std::tuple<std::string, std::size_t, int>, std::vector<int>>> lines;
  int threads = 0;
  for (const PlanStream& s : plan.streams) {
    threads = std::max(threads, s.thread + 1);
    if (s.name == "main") continue;
    std::tuple kind{s.name, s.entries.size(), s.slots};
    auto at = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == kind; });
    if (at == lines.end()) at = lines.insert(lines.end(), {kind, {}});
    at->second.push_back(s.device);
  }
  std::string out;
  for (const auto& [kind, devices] : lines) {
    auto [name, phases, slots] = kind;
    out += fmt::format("stream {} of {}: {} phase{}, {} in flight\n", name, to_string(plan.cluster.ids(devices)), phases, phases == 1 ? "" : "s", slots);
  }
  return out + fmt::format("host threads: {}\n", threads);
}

std::string describe_links(const PlacedGraph& plan) {
  constexpr std::size_t kShown = 8;
  std::vector<LinkLoad> links = link_bytes(plan);
  std::string out;
  for (std::size_t i = 0; i < std::min(links.size(), kShown); ++i) out += fmt::format("link {} to {}: {} a step\n", links[i].from, links[i].to, human_bytes(links[i].bytes));
  if (links.size() > kShown) out += fmt::format("and {} links that carry no more\n", links.size() - kShown);
  return out;
}

}  // namespace

std::string describe_memory(const PlacedGraph& plan) {
  std::vector<std::int64_t> live = live_maxima(BoundPlan(plan));
  std::vector<DeviceBytes> bytes = device_bytes(plan);
  std::vector<std::pair<std::string, std::vector<int>>> lines;  // devices with the same bytes stand in one line
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) {
    const DeviceBytes& b = bytes[d];
    std::int64_t planned = b.total() - b.state - b.landing;
    std::string line = b.total() == 0 ? "nothing" : fmt::format("{} planned = state {} + shared {} + kept frames {} + transient frames {}", human_bytes(b.total()), human_bytes(b.state), human_bytes(b.region), human_bytes(b.kept), human_bytes(b.transient));
    if (b.landing) line += fmt::format(" + feeds that {} {}", plan.cluster.devices[d].id.kind == "gpu" ? "land" : "leave", human_bytes(b.landing));
    if (live[d]) line += fmt::format("; values {} beside a live maximum of {}: {:.2f}x", human_bytes(planned), human_bytes(live[d]), static_cast<double>(planned) / static_cast<double>(live[d]));
    if (lines.empty() || lines.back().first != line) lines.push_back({line, {}});
    lines.back().second.push_back(static_cast<int>(d));
  }
  std::string out = "memory\n";
  for (const auto& [line, devices] : lines) out += fmt::format("  {}: {}{}\n", to_string(plan.cluster.ids(devices)), devices.size() > 1 && line != "nothing" ? "each " : "", line);
  return out;
}

namespace {

/// How sums over towers are added, where it is not by each holder at once.
std::string describe_sums(const PlacedGraph& plan) {
  std::map<SumWay, int> ways;
  std::string buckets;
  for (const PlanNode& n : plan.nodes) {
    if (n.op == kAggregate) ++ways[n.sum];
    if (!n.bucket || !buckets.empty()) continue;
    const std::string of_bucket = fmt::format("; bucket {}: ", n.bucket);  // a hand that puts sums into one need not say why
    if (const std::size_t at = n.reason.find(of_bucket); at != n.reason.npos) buckets = n.reason.substr(at + of_bucket.size());
  }
  std::string out;
  if (int k = ways[SumWay::groups]) out += fmt::format("{} sum{} by link groups, along the tree: the bits are those of every reduction but ring\n", k, k == 1 ? "" : "s");
  if (int k = ways[SumWay::ring]) out += fmt::format("{} sum{} round a ring, in another order than the tree's: equal bits are promised to plans with this arithmetic hash alone\n", k, k == 1 ? "" : "s");
  if (!buckets.empty()) out += buckets + "\n";
  return out;
}

bool has_library_sums(const PlacedGraph& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return std::any_of(n.by_group.begin(), n.by_group.end(), [](const Variant& v) { return v.kernel == kNccl; }); });
}

/// Towers without rows, and devices or stages that a cut has left out, whose reasons end with why.
std::string describe_idle(const PlacedGraph& plan) {
  std::string out;
  if (const int absent = plan.towers - plan.present()) out = fmt::format("{} of {} towers have no rows: devices for them alone are idle\n", absent, plan.towers);
  for (const PlanNode& n : plan.nodes) {
    const std::size_t since = std::min(n.reason.find(" devices, since "), n.reason.find(" stages, since ")), begin = since == n.reason.npos ? since : n.reason.rfind("; ", since);
    if (begin != n.reason.npos) return out + n.reason.substr(begin + 2) + "\n";
  }
  return out;
}

}  // namespace

std::string describe(const PlacedGraph& plan, const DescribeOptions& options) {
  std::vector<int> all;
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) all.push_back(static_cast<int>(d));
  std::string out = fmt::format("{}: strategy {}, {} tower{}, {}, combine {}, {} thread{} a tower, devices {}\n", plan.graph->name, plan.placement.strategy, plan.towers, plan.towers == 1 ? "" : "s",
                                describe_batch(plan), to_string(plan.combine), plan.threads, plan.threads == 1 ? "" : "s", to_string(plan.cluster.ids(all)));
  if (plan.graph->precision == tf32) out += "GPUs may round f32 to TF32 before they multiply it\n";
  else if (plan.graph->precision != f32) out += fmt::format("products and what follows them in {}\n", name_of(plan.graph->precision));
  if (plan.combine == Combine::tower_sum) out += fmt::format("effective learning rate x {}\n", plan.towers);
  if (plan.placement.collectives == Collectives::fastest)
    out += has_library_sums(plan) ? "collectives fastest: what NCCL sums over GPUs has an order of its own, and promises no bits\n" : "collectives fastest: nothing here is summed over two whole GPUs, so the tree adds all\n";
  if (const auto count = std::count_if(plan.nodes.begin(), plan.nodes.end(), is_nondeterministic); count > 0)
    out += fmt::format("{} node{} by kernels whose bits may differ from run to run\n", count, count == 1 ? "" : "s");
  out += fmt::format("arithmetic hash {}\n", plan.arithmetic_hash);
  out += describe_idle(plan);
  out += describe_streams(plan);
  out += describe_links(plan);
  out += describe_sums(plan);
  if (options.nodes) out += describe_nodes(plan);
  if (options.memory) out += describe_memory(plan);
  return out;
}

}  // namespace belfry
