#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include <belfry/graph/graph.h>
#include <belfry/graph/plan/cut_problem.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

int StrategyOptions::integer(const std::string& name, int fallback) {
  std::string given = text(name, "");
  if (given.empty()) return fallback;
  int out = 0;
  auto [end, status] = std::from_chars(given.data(), given.data() + given.size(), out);
  if (status != std::errc{} || end != given.data() + given.size() || out < 0)
    throw UserError(fmt::format("strategy {}: option {} is '{}', not a count", strategy_, name, given));
  return out;
}

std::string StrategyOptions::text(const std::string& name, const std::string& fallback) {
  asked_.push_back(name);
  auto at = given_.find(name);
  return at == given_.end() ? fallback : at->second;
}

Combine StrategyOptions::combine() { return parse_combine(text("combine", "global_mean")); }

void StrategyOptions::finish() const {
  for (const auto& [name, value] : given_)
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end())
      throw UserError(fmt::format("strategy {} has no option '{}'; it has {}{}", strategy_, name, fmt::join(asked_, ", "), did_you_mean(name, asked_)));
}

namespace {

LayerCut parse_layer_cut(const std::string& text) {
  if (text == "variables") return LayerCut::variables;
  if (text != "max-load" && text != "latency") throw UserError(fmt::format("objective {}: a cut makes max-load or latency small, or deals variables", text));
  return parse_cut_objective(text) == CutObjective::latency ? LayerCut::latency : LayerCut::max_load;
}

Reduce parse_reduce(const std::string& text) {
  const std::pair<const char*, Reduce> kWays[] = {{"tree", Reduce::tree}, {"hierarchical", Reduce::hierarchical}, {"reduce-to-one", Reduce::to_one}, {"ring", Reduce::ring}};
  for (const auto& [name, way] : kWays)
    if (text == name) return way;
  throw UserError(fmt::format("reduction {}: gradients are added by tree, hierarchical, reduce-to-one or ring", text));
}

/// Bytes, "auto" for what the forecast says, "none" for 0.
std::optional<std::int64_t> parse_bucket(const std::string& text) {
  if (text == "auto") return {};
  if (text == "none") return 0;
  std::int64_t out = 0;
  auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (status != std::errc{} || end != text.data() + text.size() || out < 1) throw UserError(fmt::format("buckets {}: a number of bytes, auto or none", text));
  return out;
}

}  // namespace

Strategy to_strategy(const Single& s) { return strategy("single", {s.device}, s); }

Strategy to_strategy(const Towers& s) {
  auto devices = s.devices;
  if (!s.spread && std::find(devices.begin(), devices.end(), s.variables) == devices.end()) devices.push_back(s.variables);
  return strategy("towers", devices, s);
}

Strategy to_strategy(const Mirrored& s) { return strategy("mirrored", s.devices, s); }
Strategy to_strategy(const Sharded& s) { return strategy("sharded", s.devices, s); }
Strategy to_strategy(const Layers& s) { return strategy(s.towers > 1 ? "pipeline" : "layers", s.devices, s); }

namespace {

using Devices = std::vector<DeviceId>;

Strategy make_auto(const Devices& devices, StrategyOptions& o) { return to_strategy(Auto{devices, o.integer("towers", 0), o.combine(), o.integer("threads", 0)}); }

Strategy make_single(const Devices& devices, StrategyOptions& o) { return to_strategy(Single{devices.at(0), o.integer("towers", 1), o.combine(), o.integer("threads", 0)}); }

Strategy make_towers(const Devices& devices, StrategyOptions& o) {
  const std::string variables = o.text("variables", "cpu:0");
  const bool over_all = variables == "spread" || variables == "chosen";
  if (!over_all && variables.find(':') == variables.npos)
    throw UserError(fmt::format("[towers] variables={}: a device (cpu:0), spread or chosen{}", variables, did_you_mean(variables, {"spread", "chosen"})));
  Towers s{devices, over_all ? cpu(0) : parse_device(variables), variables == "spread", o.integer("towers", 0), o.combine(), o.integer("threads", 0), variables == "chosen"};
  s.reduction = parse_reduce(o.text("reduction", "tree"));
  return to_strategy(s);
}

Strategy make_mirrored(const Devices& devices, StrategyOptions& o) {
  return to_strategy(Mirrored{devices, o.integer("towers", 0), o.combine(), o.integer("threads", 0), parse_reduce(o.text("reduction", "tree")), parse_bucket(o.text("buckets", "auto")), parse_collectives(o.text("collectives", "tree"))});
}

Strategy make_sharded(const Devices& devices, StrategyOptions& o) {
  return to_strategy(Sharded{devices, o.integer("towers", 0), o.combine(), o.integer("threads", 0), parse_reduce(o.text("reduction", "tree")), parse_collectives(o.text("collectives", "tree"))});
}

Strategy make_parameter_server(const Devices& devices, StrategyOptions& o) {
  ParameterServer s{devices, parse_devices(o.text("servers", "cpu:0")), {}, o.integer("backup", 0), o.integer("towers", 0), o.combine(), o.integer("threads", 0)};
  if (!o.text("staleness", "").empty()) s.staleness = o.integer("staleness", 0);
  return to_strategy(s);
}

Strategy make_layers(const Devices& devices, StrategyOptions& o) {
  Layers s{devices, o.integer("towers", 1), 1, PhaseOrder::by_tower, 1, o.combine(), o.integer("threads", 0)};
  s.cut = parse_layer_cut(o.text("objective", "max-load"));
  return to_strategy(s);
}

Strategy make_pipelines(const Devices& devices, StrategyOptions& o, int replicas) {
  Layers s{devices, o.integer("towers", static_cast<int>(devices.size())), o.integer("replicas", replicas), parse_phase_order(o.text("order", "1f1b")), o.integer("chunks", 1), o.combine(), o.integer("threads", 0)};
  s.cut = parse_layer_cut(o.text("objective", "max-load"));
  return to_strategy(s);
}

/// `make` reads the options that it knows; others are refused.
StrategyDef def(const std::string& name, std::string doc, std::vector<StrategyField> options, const std::function<Strategy(const Devices&, StrategyOptions&)>& make) {
  return {name, std::move(doc), std::move(options), [name, make](const Devices& devices, const std::map<std::string, std::string>& given) {
            StrategyOptions o(name, given);
            Strategy s = make(devices, o);
            o.finish();
            s.name = name;
            s.given = Given{devices, given};
            return s;
          }};
}

}  // namespace

std::vector<StrategyDef> standard_strategies() {
  const StrategyField towers{"towers", "how many towers; by default one per device"}, combine{"combine", "global_mean (by default), tower_mean or tower_sum"}, threads{"threads", "threads of a tower; by default cores / towers"},
      objective{"objective", "what a cut makes small: max-load (the busiest device; by default), latency (of one batch), or variables: as many to each"},
      collectives{"collectives", "who sums over GPUs: tree (the same bits on any devices; by default) or fastest (NCCL, which promises no bits)"}, order{"order", "1f1b (by default), gpipe or interleaved"},
      chunks{"chunks", "stages of each device, where phases are interleaved"};
  return {
      def("auto", "the strategy, and as many of the devices, that are forecast to be fastest", {towers, combine, threads}, make_auto),
      def("single", "everything on the first device", {towers, combine, threads}, make_single),
      def("towers", "a tower per device, shared variables on one device",
          {{"variables", "the device of the variables, by default cpu:0; spread: over the towers' devices by bytes; chosen: each where it is forecast to cost the least"},
           {"reduction", "tree (by default), or hierarchical: each link group adds its own first; the same bits"}, towers, combine, threads}, make_towers),
      def("mirrored", "a tower and a copy of every variable per device",
          {{"reduction", "how gradients are added: tree (by default), hierarchical or reduce-to-one, which have the same bits; ring, which has others"},
           {"buckets", "bytes of gradients that are added together; auto: the size with the shortest forecast step (by default); none"}, towers, combine, threads, collectives}, make_mirrored),
      def("sharded", "a tower per device; the optimiser's state, the sums of gradients and the updates in ranges over the devices",
          {{"reduction", "tree (by default) or hierarchical, which have the same bits; ring, which has others"}, towers, combine, threads, collectives}, make_sharded),
      def("parameter_server", "a worker per device, variables spread over server devices; synchronous, or loops with staleness or backup workers",
          {{"servers", "devices of the variables, by default cpu:0"}, {"staleness", "asynchronous: updates that may come between a gradient's version and its own"},
           {"backup", "synchronous, but so many workers are not waited for"}, towers, combine, threads}, make_parameter_server),
      def("layers", "the net cut over the devices", {towers, objective, combine, threads}, make_layers),
      def("pipeline", "the net cut over the devices, micro-batches in turn", {towers, {"replicas", "pipelines side by side"}, order, chunks, objective, combine, threads},
          [](const Devices& devices, StrategyOptions& o) { return make_pipelines(devices, o, 1); }),
      def("hybrid", "pipelines side by side, each over its share of the devices", {towers, {"replicas", "of the pipeline; by default 2"}, order, chunks, objective, combine, threads},
          [](const Devices& devices, StrategyOptions& o) { return make_pipelines(devices, o, 2); }),
  };
}

}  // namespace belfry
