#include <belfry/frontends/cli/common_internal.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstring>
#include <iostream>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/nn/nets.h>
#include <belfry/frontends/state/npy.h>
#include <belfry/frontends/state/safetensors.h>
#include <belfry/graph/plan/verify.h>

namespace belfry {

void say(const std::string& text) { std::cerr << text << std::flush; }

Source load_source(const std::string& what, const Library& library) {
  for (const NetDef& n : standard_nets())
    if (n.name == what) return {std::make_shared<const Graph>(n.build(library.ops)), nullptr};
  if (what.find('.') == what.npos && what.find('/') == what.npos) net_named(what);  // neither a net nor a file: says which nets there are
  std::string text = read_file(what);
  if (!JsonDocument(text, what).root().find("plan")) return {std::make_shared<const Graph>(read_graph(text, what, library.ops)), nullptr};
  auto plan = std::make_shared<const PlacedGraph>(read_plan(text, what, library.ops));
  return {plan->graph, plan};
}

void PlacementArguments::add_to(CLI::App& app) {
  app.add_option("--strategy", strategy, "single, towers, mirrored, layers or pipeline; by default towers on several devices")->type_name("NAME");
  app.add_option("--devices", devices, "cpu:0,cpu:1  sim:0-7")->type_name("LIST");
  app.add_option("--towers", towers, "shares of the batch; by default one per device")->check(CLI::PositiveNumber);
  app.add_option("--threads-per-tower", threads, "by default cores / towers")->check(CLI::PositiveNumber);
  app.add_option("-O", options, "an option of the strategy: -O variables=cpu:0")->type_name("KEY=VALUE");
  app.add_option("--move", moves, "devices of nodes by name: 'tower_1/logits/**=cpu:0'")->type_name("GLOB=DEVICE");
  app.add_option("--placement", placement_file, "a placement file: towers and rules")->check(CLI::ExistingFile);
  app.add_option("--cluster", cluster_file, "devices, memory spaces and links from a file")->check(CLI::ExistingFile);
  app.add_option("--seed", seed, "of initial values and random draws");
}

PlacementRule parse_move(const std::string& text) {
  auto equal = text.rfind('=');
  if (equal == text.npos || equal == 0) throw UserError(fmt::format("--move '{}' is not of the form 'tower_1/logits/**=cpu:0'", text));
  return {text.substr(0, equal), parse_devices(text.substr(equal + 1)), "moved by hand"};
}

namespace {

std::map<std::string, std::string> strategy_options(const PlacementArguments& a) {
  std::map<std::string, std::string> out;
  for (const std::string& o : a.options) {
    auto equal = o.find('=');
    if (equal == o.npos) throw UserError(fmt::format("-O '{}' is not of the form key=value", o));
    out[o.substr(0, equal)] = o.substr(equal + 1);
  }
  if (a.towers) out["towers"] = std::to_string(a.towers);
  if (a.threads) out["threads"] = std::to_string(a.threads);
  return out;
}

}  // namespace

Session make_session(const Source& source, const PlacementArguments& a, std::shared_ptr<const Library> library, bool anew) {
  SessionOptions options;
  options.seed = a.seed;
  options.library = library;
  options.notice = [](const std::string& text) { say(text + "\n"); };
  for (const std::string& m : a.moves) options.rules.push_back(parse_move(m));
  if (source.plan && (!a.strategy.empty() || !a.placement_file.empty() || !a.cluster_file.empty() || a.towers || a.threads || !a.options.empty()))
    throw UserError("a plan has its strategy, towers, threads and devices; --move changes where its nodes are, and place of its graph makes another plan");
  if (source.plan) return anew ? Session::placed_anew(source.plan, options) : Session::from_plan(source.plan, options);
  std::vector<DeviceId> devices = parse_devices(a.devices);
  if (!a.cluster_file.empty()) options.cluster = read_cluster(read_file(a.cluster_file), a.cluster_file);
  if (!a.placement_file.empty()) {
    PlacementFile file = read_placement(read_file(a.placement_file), a.placement_file);
    std::vector<DeviceId> named;
    for (const PlacementRule& r : file.rules)
      for (const DeviceId& d : r.devices)
        if (std::find(named.begin(), named.end(), d) == named.end()) named.push_back(d);
    Division division{file.towers.value_or(a.towers ? a.towers : 1), file.combine.value_or(Combine::global_mean), file.threads.value_or(a.threads), file.order.value_or(PhaseOrder::by_tower)};
    options.rules.insert(options.rules.end(), file.rules.begin(), file.rules.end());  // before what the graph requests
    return Session(*source.graph, Strategy{"placement", named, [=](const Graph&, const Cluster&) { return division; }, [](const TowerGraph&, const Cluster&) { return Rules{}; }}, options);
  }
  std::string name = !a.strategy.empty() ? a.strategy : devices.size() > 1 ? "towers" : "single";
  return Session(*source.graph, library->strategy(name).make(devices, strategy_options(a)), options);
}

void refuse_broken(const Source& source, const std::string& file) {
  if (!source.plan) return;
  std::vector<std::string> found = verify(*source.plan);
  if (!found.empty()) throw UserError(fmt::format("{} does not hold: {}\nderive what follows from its decisions:  belfry place {} -o {}", file, fmt::join(found, "\n  "), file, file));
  if (std::string hash = arithmetic_hash(*source.plan); hash != source.plan->arithmetic_hash)
    say(fmt::format("{}: its arithmetic hash is {}, but the file says {}: it was edited, or made by another version\n", file, hash, source.plan->arithmetic_hash));
}

std::map<std::string, HostTensor> load_tensors(const std::string& path) {
  if (path.ends_with(".npz")) return read_npz(path);
  return read_safetensors(path);
}

std::vector<std::map<std::string, HostTensor>> feeds_of_steps(const Graph& graph, const std::map<std::string, HostTensor>& feeds, std::int64_t steps, std::optional<std::int64_t> batch) {
  std::int64_t rows = rows_of(graph, Batch(feeds));
  std::int64_t each = batch.value_or(rows / steps);
  if (each < 1 || each * steps > rows) throw UserError(fmt::format("{} steps of {} rows need {} rows, but the feeds have {}", steps, each, each * steps, rows));
  std::vector<std::map<std::string, HostTensor>> out;
  for (std::int64_t k = 0; k < steps; ++k) {
    std::map<std::string, HostTensor> step;
    for (NodeId id : graph.inputs()) {
      const Node& n = graph.node(id);
      const HostTensor& t = feeds.at(n.name);
      std::vector<int> axes = symbolic_axes(n.types[0].shape);
      if (axes.empty()) {
        step.emplace(n.name, t);
        continue;
      }
      if (axes.size() > 1 || axes[0] != 0) throw UserError(fmt::format("the feed '{}' has its rows not along its first axis alone; feed each step by itself", n.name));
      std::int64_t factor = n.types[0].shape[0].factor;
      Extents shape = t.shape();
      std::size_t row = shape[0] ? t.bytes().size() / static_cast<std::size_t>(shape[0]) : 0;
      shape[0] = each * factor;
      HostTensor part(t.dtype(), shape);
      std::memcpy(part.raw(), t.raw() + static_cast<std::size_t>(k * each * factor) * row, part.bytes().size());
      step.emplace(n.name, std::move(part));
    }
    out.push_back(std::move(step));
  }
  return out;
}

}  // namespace belfry
