#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include <belfry/graph/graph.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

using Values = std::vector<std::string>;

Values combines() { return {"global_mean", "tower_mean", "tower_sum"}; }
Values all_collectives() { return {"tree", "fastest"}; }
Values objectives() { return {"max-load", "latency", "variables"}; }
Values orders() { return {"1f1b", "gpipe", "interleaved", "by_tower"}; }
Values reductions() { return {"tree", "hierarchical", "reduce-to-one", "ring"}; }
Values reductions_of_ranges() { return {"tree", "hierarchical", "ring"}; }
Values reductions_of_towers() { return {"tree", "hierarchical"}; }

}  // namespace

int StrategyOptions::integer(const std::string& name, int fallback, int least, int most) {
  const std::string given = text(name, "");
  if (!given_.contains(name)) return fallback;
  int out = 0;
  auto [end, status] = std::from_chars(given.data(), given.data() + given.size(), out);
  if (status != std::errc{} || end != given.data() + given.size() || out < least || out > most)
    refuse_value(name, fmt::format("no whole number from {} to {}; give one, or leave the option out{}", least, most, fallback >= least ? fmt::format(" for {}", fallback) : ""));
  return out;
}

std::string StrategyOptions::text(const std::string& name, const std::string& fallback) {
  asked_.push_back(name);
  auto at = given_.find(name);
  return at == given_.end() ? fallback : at->second;
}

std::string StrategyOptions::choice(const std::string& name, const std::vector<std::string>& values) {
  std::string given = text(name, values.front());
  if (std::find(values.begin(), values.end(), given) == values.end())
    refuse_value(name, fmt::format("it is one of {}; leave it out for {}{}", fmt::join(values, ", "), values.front(), did_you_mean(given, values)));
  return given;
}

Combine StrategyOptions::combine() { return parse_combine(choice("combine", combines())); }

void StrategyOptions::refuse_value(const std::string& name, const std::string& why) const {
  const auto at = given_.find(name);
  throw UserError(fmt::format("[{}] -O {}{}: {}", strategy_, name, at == given_.end() ? " by default" : "=" + at->second, why));
}

void StrategyOptions::finish() const {
  for (const auto& [name, value] : given_)
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end())
      refuse_value(name, fmt::format("the strategy has no option '{}'; it has {}{}", name, fmt::join(asked_, ", "), did_you_mean(name, asked_)));
}

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

int towers_of(StrategyOptions& o, int fallback = 0) { return o.integer("towers", fallback, 1, kMostTowers); }
int threads_of(StrategyOptions& o) { return o.integer("threads", 0, 1, kMostThreads); }

/// Of a list, the first of which is the default.
Reduce reduction_of(StrategyOptions& o, const Values& ways) {
  const std::string way = o.choice("reduction", ways);
  return way == "hierarchical" ? Reduce::hierarchical : way == "reduce-to-one" ? Reduce::to_one : way == "ring" ? Reduce::ring : Reduce::tree;
}

Collectives collectives_of(StrategyOptions& o, Reduce reduction) {
  const Collectives out = parse_collectives(o.choice("collectives", all_collectives()));
  if (out == Collectives::fastest && reduction != Reduce::tree)
    o.refuse_value("collectives", "it leaves the order of sums to a library: leave -O reduction out, or give -O collectives=tree");
  return out;
}

/// Bytes, "auto" for what the forecast says, "none" for 0.
std::optional<std::int64_t> bucket_of(StrategyOptions& o) {
  const std::string text = o.text("buckets", "auto");
  if (text == "auto") return {};
  if (text == "none") return 0;
  std::int64_t out = 0;
  auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (status != std::errc{} || end != text.data() + text.size() || out < 1)
    o.refuse_value("buckets", fmt::format("no whole number of bytes from 1 to {}, nor auto or none; leave it out for auto", std::numeric_limits<std::int64_t>::max()));
  return out;
}

LayerCut cut_of(StrategyOptions& o) {
  const std::string objective = o.choice("objective", objectives());
  return objective == "latency" ? LayerCut::latency : objective == "variables" ? LayerCut::variables : LayerCut::max_load;
}

/// What a device or a list of them is read as, or why it cannot be, with the option.
template <class Read>
auto devices_read(const StrategyOptions& o, const std::string& name, const Read& read) {
  try {
    return read();
  } catch (const UserError& e) {
    o.refuse_value(name, e.what());
  }
}

Strategy make_auto(const Devices& devices, StrategyOptions& o) { return to_strategy(Auto{devices, towers_of(o), o.combine(), threads_of(o)}); }

Strategy make_single(const Devices& devices, StrategyOptions& o) { return to_strategy(Single{devices.at(0), towers_of(o, 1), o.combine(), threads_of(o)}); }

Strategy make_towers(const Devices& devices, StrategyOptions& o) {
  const std::string variables = o.text("variables", "cpu:0");
  const bool over_all = variables == "spread" || variables == "chosen";
  if (!over_all && variables.find(':') == variables.npos)
    o.refuse_value("variables", fmt::format("it is a device (cpu:0), spread or chosen; leave it out for cpu:0{}", did_you_mean(variables, {"spread", "chosen"})));
  const DeviceId device = over_all ? cpu(0) : devices_read(o, "variables", [&] { return parse_device(variables); });
  Towers s{devices, device, variables == "spread", towers_of(o), o.combine(), threads_of(o), variables == "chosen"};
  s.reduction = reduction_of(o, reductions_of_towers());
  return to_strategy(s);
}

Strategy make_mirrored(const Devices& devices, StrategyOptions& o) {
  const Reduce reduction = reduction_of(o, reductions());
  return to_strategy(Mirrored{devices, towers_of(o), o.combine(), threads_of(o), reduction, bucket_of(o), collectives_of(o, reduction)});
}

Strategy make_sharded(const Devices& devices, StrategyOptions& o) {
  const Reduce reduction = reduction_of(o, reductions_of_ranges());
  return to_strategy(Sharded{devices, towers_of(o), o.combine(), threads_of(o), reduction, collectives_of(o, reduction)});
}

Strategy make_parameter_server(const Devices& devices, StrategyOptions& o) {
  const std::string servers = o.text("servers", "cpu:0");
  ParameterServer s{devices, devices_read(o, "servers", [&] { return parse_devices(servers); })};
  if (const int staleness = o.integer("staleness", -1); staleness >= 0) s.staleness = staleness;
  s.backup = o.integer("backup", 0, 0, kMostTowers - 1);
  s.towers = towers_of(o), s.combine = o.combine(), s.threads = threads_of(o);
  return to_strategy(s);
}

Strategy make_layers(const Devices& devices, StrategyOptions& o) {
  Layers s{devices, towers_of(o, 1), 1, PhaseOrder::by_tower, 1, o.combine(), threads_of(o)};
  s.cut = cut_of(o);
  return to_strategy(s);
}

Strategy make_pipelines(const Devices& devices, StrategyOptions& o, int replicas) {
  Layers s{devices, towers_of(o, static_cast<int>(devices.size())), o.integer("replicas", replicas, 1, kMostTowers)};
  s.order = parse_phase_order(o.choice("order", orders()));
  s.chunks = o.integer("chunks", 1, 1, Layers::kMostChunks);
  s.combine = o.combine(), s.threads = threads_of(o), s.cut = cut_of(o);
  s.check(replicas > 1 ? "hybrid" : "pipeline", !o.text("replicas", "").empty());
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
  const StrategyField towers{"towers", "how many towers; by default one per device"}, combine{"combine", "how the towers' gradients are combined", combines()}, threads{"threads", "threads of a tower; by default cores / towers"},
      objective{"objective", "what a cut makes small: max-load (the busiest device), latency (of one batch), or variables: as many to each", objectives()},
      collectives{"collectives", "who sums over GPUs: tree (the same bits on any devices) or fastest (NCCL, which promises no bits)", all_collectives()}, order{"order", "in which stages take micro-batches", orders()},
      chunks{"chunks", "stages of each device, where phases are interleaved"};
  return {
      def("auto", "the strategy, and as many of the devices, that are forecast to be fastest", {towers, combine, threads}, make_auto),
      def("single", "everything on the first device", {towers, combine, threads}, make_single),
      def("towers", "a tower per device, shared variables on one device",
          {{"variables", "the device of the variables, by default cpu:0; spread: over the towers' devices by bytes; chosen: each where it is forecast to cost the least"},
           {"reduction", "hierarchical: each link group adds its own first; the same bits", reductions_of_towers()}, towers, combine, threads}, make_towers),
      def("mirrored", "a tower and a copy of every variable per device",
          {{"reduction", "how gradients are added: ring has bits of its own, the others the same", reductions()},
           {"buckets", "bytes of gradients that are added together; auto: the size with the shortest forecast step (by default); none"}, towers, combine, threads, collectives}, make_mirrored),
      def("sharded", "a tower per device; the optimiser's state, the sums of gradients and the updates in ranges over the devices",
          {{"reduction", "ring has bits of its own, the others the same", reductions_of_ranges()}, towers, combine, threads, collectives}, make_sharded),
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
