#include "random_plan.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include <belfry/graph/passes/cut_updates.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/placer/strategies/strategies.h>

#include "all_groups.h"
#include "nets.h"
#include "plans.h"
#include "random_net.h"

namespace belfry::test {

namespace {

constexpr int kRandomNets = 200, kFewTowers = 8, kMostTowers = 16, kMostRows = 12;

/// Training graphs by name and precision: their passes take longer than a plan.
std::shared_ptr<const Graph> graph_of(int net_number, int precision) {
  static std::map<std::pair<int, int>, std::shared_ptr<const Graph>> known;
  std::shared_ptr<const Graph>& out = known[{net_number, precision}];
  if (out) return out;
  static const std::vector<std::string> names = names_of_nets();
  const auto number = static_cast<std::size_t>(net_number);
  Graph g = number < names.size() ? built(names[number], precision ? f32 : f64) : number == names.size() ? built("two_heads", precision ? f32 : f64)
                                  : grown(random_recipe(number), precision ? f32 : f64);
  g.precision = precision == 1 ? bf16 : precision == 2 ? f16 : f32;
  return out = std::make_shared<const Graph>(run_passes(training_passes(), g));
}

class Drawer {
 public:
  Drawer(const Draw& draw, bool to_run) : draw_(draw), to_run_(to_run) {}

  RandomPlan make() {
    const int nets = static_cast<int>(names_of_nets().size()) + 1;
    const int number = pick("net", nets + kRandomNets / 4) < nets ? pick("known net", nets) : nets + pick("random net", kRandomNets);
    const int precision = one_in("half precision", 6) ? 1 + pick("bf16 or f16", 2) : 0;
    out_.graph = graph_of(number, precision);
    const bool many = one_in("many towers", 4);
    batch_ = 1 + pick("rows", many ? 2 * kMostRows : kMostRows);
    towers_ = 1 + pick("towers", many ? kMostTowers : kFewTowers);
    combine_ = static_cast<Combine>(pick("combine", 3));
    draw_cluster();
    draw_options();
    // Requests of the net for devices that are not there are left to the strategy.
    out_.options.soft = out_.graph->name == "two_heads" || one_in("soft placement", 4);
    place_it();
    out_.what = fmt::format("{}{}, {} towers, {} rows, {} on {}{}", out_.graph->name, precision ? fmt::format(" in {}", name_of(out_.graph->precision)) : "", out_.plan.towers, batch_, words_, to_string(devices_),
                            out_.options.recompute.stretches ? fmt::format(", recompute {}", out_.options.recompute.stretches) : "");
    return std::move(out_);
  }

 private:
  int pick(const char* what, int n) { return n < 2 ? 0 : draw_(what, n); }
  bool one_in(const char* what, int n) { return pick(what, n) == n - 1; }
  const DeviceId& any_device(const char* what) { return devices_[static_cast<std::size_t>(pick(what, static_cast<int>(devices_.size())))]; }

  /// One to four devices: with memory of their own or not, or some of them, GPUs whole or in slices, or of every kind.
  void draw_cluster() {
    constexpr const char* kLists[] = {"sim:0-3", "cpu:0-3", "gpu:0-3", "gpu:0/0,gpu:0/1,gpu:1/0,gpu:1/1", "sim:0,gpu:0/0,cpu:1,gpu:0/1", "sim:0,sim:1,cpu:0,cpu:1"};
    std::vector<DeviceId> all = parse_devices(kLists[to_run_ ? std::array{0, 1, 5}[static_cast<std::size_t>(pick("kinds", 3))] : pick("kinds", 6)]);
    constexpr int kCounts[] = {2, 1, 3, 4};
    all.resize(static_cast<std::size_t>(kCounts[pick("devices", 4)]));
    devices_ = all;
    all.push_back(cpu(0));
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    cluster_ = local_cluster(all, 2);
    const int streams = 1 + pick("streams", 3);
    const bool known = one_in("costs", 2);
    const bool shared = one_in("shared memories", 4);
    for (ClusterDevice& d : cluster_.devices) {
      if (shared && d.id.kind == "sim") d.space = fmt::format("memory {}", pick("memory of a device", 3));
      d.streams = streams;
      if (known) d.flops = 1e12, d.bandwidth = 1e11, d.launch = 1e-6;
    }
    has_gpu_ = std::any_of(all.begin(), all.end(), [](const DeviceId& d) { return d.kind == "gpu"; });
    if (!has_gpu_) return;
    constexpr const char* kPeers[] = {"", "gpu:0;gpu:1;gpu:2;gpu:3", "gpu:0-1;gpu:2-3", "gpu:0-1;gpu:1-2;gpu:3", "gpu:0-3"};
    const std::string groups = kPeers[pick("peers", 5)];
    for (std::size_t at = 0, end = 0; at < groups.size(); at = end + 1) {
      end = std::min(groups.find(';', at), groups.size());
      cluster_.peers.push_back(parse_devices(groups.substr(at, end - at)));
    }
  }

  void draw_options() {
    PlaceOptions& o = out_.options;
    const auto fetches = fetches_of(*out_.graph);
    switch (fetches.empty() ? 0 : pick("fetches", 4)) {
      case 0: break;
      case 1: o.fetches = fetches; break;
      case 2: o.fetches.assign(fetches.begin(), fetches.begin() + 1); break;
      default: o.fetches = {{fetches[0].first + kTowersSuffix, fetches[0].second}, fetches[0]};
    }
    o.updates = !one_in("no updates", 4);
    if (!o.updates && !one_in("gradients", 3)) std::erase_if(o.fetches, [](const auto& f) { return f.first.starts_with("gradient of "); });
    if (one_in("groups", 2)) o.groups = all_groups;
    if (one_in("recompute", 3)) o.recompute.stretches = 2 + pick("stretches", 3);
    const int kernel = to_run_ ? 0 : pick("kernels", 3);
    out_.references = kernel == 0 && !has_gpu_;
    if (kernel == 1 && !has_gpu_) o.kernels = chooser(kernels());
    // Kernels that want scratch and refuse to work in place, each by its node's name.
    if (kernel == 2 || (kernel == 1 && has_gpu_))
      o.kernels = [](const KernelQuery& q) {
        const std::size_t h = std::hash<std::string>()(q.node.name);
        return KernelChoice{"kernel", static_cast<std::int64_t>(h % 3 ? 0 : h / 3 % 2000), h / 7 % 2 == 0};
      };
    if (one_in("rules", 4))
      for (int k = pick("rules more", 2); k >= 0; --k) {
        const Node& n = out_.graph->node(pick("rule for", out_.graph->size()));
        const bool tower = one_in("rule of a tower", 3);
        o.rules.push_back({tower ? fmt::format("tower_{}/{}", pick("of the tower", towers_), n.name) : n.name, {any_device("rule to")}, "by chance"});
      }
  }

  Strategy named(std::string words, Strategy s) {
    words_ = std::move(words);
    return s;
  }

  Strategy draw_strategy() {
    const std::vector<DeviceId>& d = devices_;
    const int n = static_cast<int>(d.size()), T = towers_;
    const LayerCut cuts[] = {LayerCut::variables, LayerCut::max_load, LayerCut::latency};
    auto cut = [&] { return cuts[pick("cut", 3)]; };
    switch (pick("strategy", 10)) {
      case 0: {
        const int where = pick("variables", 4);
        if (where == 3) return named("towers, variables spread", to_strategy(Towers{.devices = d, .spread = true, .towers = T, .combine = combine_, .threads = 1}));
        return named("towers", to_strategy(Towers{.devices = d, .variables = where == 0 ? cpu(0) : where == 1 ? d.front() : d.back(), .towers = T, .combine = combine_, .threads = 1}));
      }
      case 1: return named("single", to_strategy(Single{.device = d[0], .towers = T, .combine = combine_, .threads = 1}));
      case 2: return named("mirrored", to_strategy(Mirrored{.devices = d, .towers = T, .combine = combine_, .threads = 1}));
      case 3: return named("sharded", to_strategy(Sharded{.devices = d, .towers = T, .combine = combine_, .threads = 1}));
      case 4: return named("layers", to_strategy(Layers{.devices = d, .towers = T, .combine = combine_, .threads = 1, .cut = cut()}));
      case 5:
      case 6: {
        const auto order = static_cast<PhaseOrder>(1 + pick("order", 3));
        const int replicas = n % 2 == 0 && one_in("replicas", 2) ? 2 : 1, chunks = order == PhaseOrder::interleaved ? 1 + pick("chunks", 3) : 1;
        return named(fmt::format("{} {}{}", replicas > 1 ? "hybrid" : "pipeline", to_string(order), chunks > 1 ? fmt::format(", {} chunks", chunks) : ""),
                     to_strategy(Layers{.devices = d, .towers = T, .replicas = replicas, .order = order, .chunks = chunks, .combine = combine_, .threads = 1, .cut = cut()}));
      }
      case 7: return draw_parameter_server();
      case 8: return named("auto", to_strategy(Auto{.devices = d, .towers = one_in("towers of auto", 2) ? T : 0, .combine = combine_, .threads = 1}));
      default: return by_chance();
    }
  }

  /// Synchronous; or the plan of an asynchronous one's worker, or of its servers.
  Strategy draw_parameter_server() {
    const std::vector<DeviceId> servers = one_in("servers", 2) ? devices_ : std::vector<DeviceId>{cpu(0)};
    const int part = out_.graph->updates.empty() ? 0 : pick("parameter server", 3);
    if (part == 0) return named("parameter_server", to_strategy(ParameterServer{.devices = devices_, .servers = servers, .towers = towers_, .combine = combine_, .threads = 1}));
    const CutGraphs cut = cut_updates(*out_.graph);
    out_.graph = std::make_shared<const Graph>(part == 1 ? cut.worker : cut.server);
    out_.options.fetches.clear();
    if (part == 2) {
      batch_ = 1;
      return named("parameter_server's servers", to_strategy(ParameterServer{.devices = {servers[0]}, .servers = servers, .towers = 1, .combine = combine_, .threads = 1}));
    }
    out_.options.updates = false;
    for (const auto& [name, v] : out_.graph->metrics) out_.options.fetches.emplace_back(name, v);
    return named("parameter_server's worker", to_strategy(Single{.device = devices_[0], .towers = 1, .combine = combine_, .threads = 1}));
  }

  /// Any node anywhere, some of single towers; what is outside the towers on several devices, some of it in ranges.
  Strategy by_chance() {
    Rules rules;
    const int last = static_cast<int>(devices_.size());
    auto several = [&] { return std::vector<DeviceId>(devices_.begin(), devices_.begin() + 1 + pick("holders", last)); };
    for (int k = pick("nodes by chance", 8); k > 0; --k) {
      const Node& n = out_.graph->node(pick("a node", out_.graph->size()));
      rules.push_back({one_in("of a tower", 3) ? fmt::format("tower_{}/{}", pick("tower", towers_), n.name) : n.name, several(), "by chance"});
    }
    if (last > 1 && one_in("ways", 3)) add_ways(rules);
    if (one_in("dealt", 2))
      for (int t = 0; t < towers_; ++t) rules.push_back({fmt::format("tower_{}/**", t), {devices_[static_cast<std::size_t>(pick("its device", last))]}, "dealt"});
    rules.push_back({"tower_*/**", devices_, "a tower each"});
    rules.push_back({"**", several(), "by chance"});
    const Division division{towers_, combine_, 1, static_cast<PhaseOrder>(pick("order", 4))};
    return named("by chance", Strategy{"by chance", devices_, [=](const Graph&, const Cluster&) { return division; }, [=](const TowerGraph&, const Cluster&, const CostTable&) { return rules; }});
  }

  /// Each tower goes over devices in its own way, and may come back.
  void add_ways(Rules& rules) {
    const int stretches = 2 + pick("stretches of ways", 3), size = out_.graph->size(), last = static_cast<int>(devices_.size());
    const int first = pick("first of a way", size), step = 1 + pick("step of ways", last - 1);
    for (int t = 0; t < towers_; ++t) {
      const bool own = one_in("own way", 2);
      for (int k = stretches - 1; k > 0; --k) {
        const DeviceId to = devices_[static_cast<std::size_t>(own ? pick("way", last) : (t + k * step) % last)];
        for (NodeId i = first + (size - first) * (k - 1) / stretches; i < first + (size - first) * k / stretches; ++i) rules.push_back({fmt::format("tower_{}/{}", t, out_.graph->node(i).name), {to}, "on its way"});
      }
    }
  }

  /// Sometimes with parts of towers in turn added as they are made, and once more with little more memory than that took, or not quite as much.
  void place_it() {
    const Strategy s = draw_strategy();
    out_.options.accumulate_all = one_in("accumulates", 2);
    out_.plan = place(out_.graph, s, cluster_, batch_, out_.options);
    if (!one_in("memory", 4)) return;
    constexpr int kParts[] = {110, 100, 95, 80};
    const int part = kParts[pick("part of the memory", 4)];
    const std::vector<DeviceBytes> bytes = device_bytes(out_.plan);
    for (std::size_t d = 0; d < bytes.size(); ++d) cluster_.devices[d].memory = bytes[d].total() * part / 100 + 64;
    words_ += fmt::format(", {} % of the memory", part);
    out_.plan = place(out_.graph, s, cluster_, batch_, out_.options);
  }

  const Draw& draw_;
  const bool to_run_;
  RandomPlan out_;
  std::vector<DeviceId> devices_;
  Cluster cluster_;
  Combine combine_ = Combine::global_mean;
  int towers_ = 1;
  std::int64_t batch_ = 1;
  bool has_gpu_ = false;
  std::string words_;
};

}  // namespace

RandomPlan random_plan(const Draw& draw, bool to_run) { return Drawer(draw, to_run).make(); }

}  // namespace belfry::test
