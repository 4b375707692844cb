#include <belfry/frontends/cli/common_internal.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <set>
#include <thread>

#include <fmt/format.h>

#include <belfry/frontends/cli/device_options_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/optimizer_options_internal.h>
#include <belfry/frontends/cli/partitioning_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/data/pictures.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/describe_slow.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/json/cost_file.h>
#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/json/plan_facts.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/session/stand_ins.h>
#include <belfry/frontends/state/npy.h>
#include <belfry/frontends/state/safetensors.h>
#include <belfry/frontends/train/fit.h>
#include <belfry/frontends/train/run_folder.h>
#include <belfry/placer/diff.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

void say_unlike(const PlacedGraph& a, const std::string& file_a, const PlacedGraph& b, const std::string& file_b) {
  const std::string unlike = unlike_graphs(*a.graph, *b.graph).how;
  if (unlike.empty()) return;
  std::set<std::string> names;
  for (const PlanNode& n : a.nodes) names.insert(n.name);
  if (std::none_of(b.nodes.begin(), b.nodes.end(), [&](const PlanNode& n) { return names.contains(n.name); }))
    throw UserError(fmt::format("{} and {} are plans of graphs that have no node in common: {}; take two plans of one graph, or look at each with belfry show", file_a, file_b, unlike));
  say(fmt::format("{} and {} are plans of unlike graphs: {}; nodes of one name alone stand beside each other\n", file_a, file_b, unlike));
}

Graph with_precision(Graph graph, const std::string& precision) {
  if (!precision.empty()) graph.precision = parse_precision(precision);
  return graph;
}

PlacementRule parse_move(const std::string& text) {
  auto equal = text.rfind('=');
  if (equal == text.npos || equal == 0) throw UserError(fmt::format("'{}' is not of the form 'tower_1/logits/**=cpu:0'", text));
  return {text.substr(0, equal), parse_devices(text.substr(equal + 1)), "moved by hand"};
}

namespace {

std::map<std::string, std::string> strategy_options(const PlacementArguments& a) {
  std::map<std::string, std::string> out;
  for (const std::string& o : a.options) {
    auto equal = o.find('=');
    if (!out.emplace(o.substr(0, equal), o.substr(equal + 1)).second) throw WrongUse(fmt::format("-O {0}: the option {1} is given twice; leave one out", o, o.substr(0, equal)));
  }
  auto own = [&](const char* option, const char* key, int value) {
    if (value && !out.emplace(key, std::to_string(value)).second) throw WrongUse(fmt::format("{} {} and -O {}={} say one thing twice; leave one out", option, value, key, out[key]));
  };
  own("--towers", "towers", a.towers);
  own("--threads-per-tower", "threads", a.threads);
  return out;
}

/// Options that would do nothing, by name.
void refuse_idle(const std::vector<std::pair<const char*, bool>>& options, const std::string& why) {
  std::vector<std::string> given;
  for (const auto& [name, is] : options)
    if (is) given.push_back(name);
  if (!given.empty()) throw WrongUse(fmt::format("{} {} nothing here: {}", fmt::join(given, ", "), given.size() == 1 ? "does" : "do", why));
}

PlacementFile read_rules(const PlacementArguments& a) {
  const std::string text = read_file(a.placement_file);
  if (is_split(text, a.placement_file)) throw UserError(fmt::format("{}: is an answer in the format of dnn-partitioning, which place and forecast take: belfry place -o PLAN makes a plan of it that runs", a.placement_file));
  return read_placement(text, a.placement_file);
}

/// With the devices that are given in place of its own.
Rules rules_of(const PlacementFile& file, const PlacementArguments& a) { return a.devices.empty() ? file.rules : with_stand_ins(file.rules, parse_devices(a.devices)); }

/// What is made up for another machine runs here with its threads, on what is here.
void say_elsewhere(const Cluster& cluster, const PlacementArguments& a) {
  if (const int here = static_cast<int>(std::thread::hardware_concurrency()); cluster.cores != here)
    say(fmt::format("--cluster {}: a machine of {} core{}, and this one has {}: threads go by that, and all runs here; what it would take there say belfry forecast and place\n", a.cluster_file, cluster.cores, cluster.cores == 1 ? "" : "s", here));
}

/// Devices that a cluster's file lacks: naming them again would not help.
void refuse_absent(const std::vector<DeviceId>& devices, const SessionOptions& options, const PlacementArguments& a) {
  if (!options.cluster) return;
  for (const DeviceId& d : devices)
    if (options.cluster->find(d) < 0)
      throw UserError(fmt::format("{}: the cluster has no device {}; it has {}: name some of these, or leave --cluster out", a.cluster_file, to_string(d), to_string(options.cluster->ids())));
}

/// What the command line gives goes before what the file says.
Session session_of_placement(Graph graph, const PlacementArguments& a, SessionOptions options) {
  refuse_idle({{"--strategy", !a.strategy.empty()}, {"-O", !a.options.empty()}},
              fmt::format("{} says which nodes go to which devices; change its rules, or leave --placement out", a.placement_file));
  const PlacementFile file = read_rules(a);
  const Rules rules = rules_of(file, a);
  // In the order of --devices; the rest, a host's CPUs last, in one that no order of rules changes.
  std::vector<DeviceId> named;
  if (!a.devices.empty()) named = parse_devices(a.devices);
  for (const DeviceId& d : named_devices(rules))
    if (std::find(named.begin(), named.end(), d) == named.end()) named.push_back(d);
  if (rules != file.rules && !a.said) say(fmt::format("{}: {} in place of {}\n", a.placement_file, a.devices, to_string(replaceable_devices(file.rules))));
  refuse_absent(named, options, a);
  Division division{a.towers ? a.towers : file.towers.value_or(1), file.combine.value_or(Combine::global_mean), a.threads ? a.threads : file.threads.value_or(0), file.order.value_or(PhaseOrder::by_tower), 0, file.collectives.value_or(Collectives::tree)};
  options.stand_ins = stand_ins_of(graph, rules, options);
  options.rules.insert(options.rules.end(), rules.begin(), rules.end());  // before what the graph requests
  if (!a.recompute) options.recompute.nodes = file.recompute;
  return Session(std::move(graph), Strategy{"placement", named, [=](const Graph&, const Cluster&) { return division; }, [](const TowerGraph&, const Cluster&, const CostTable&) { return Rules{}; }}, options);
}

std::string first_lines(const std::string& text) {
  constexpr std::ptrdiff_t kShown = 5;
  const auto more = std::count(text.begin(), text.end(), '\n') + 1 - (text.ends_with('\n') ? 1 : 0) - kShown;
  std::size_t end = 0;
  for (std::ptrdiff_t k = 0; k < kShown && end != text.npos; ++k) end = text.find('\n', end + (k ? 1 : 0));
  return more > 0 ? fmt::format("{}\nand {} more: --verbose", text.substr(0, end), more) : text;
}

/// Without --devices a cluster's GPUs, if it has any; auto has all devices of one without.
std::vector<DeviceId> devices_of(const PlacementArguments& a, const std::optional<Cluster>& cluster) {
  if (!a.devices.empty()) return parse_devices(a.devices);
  std::vector<DeviceId> gpus;
  for (const ClusterDevice& d : cluster ? cluster->devices : std::vector<ClusterDevice>{})
    if (d.id.kind == "gpu") gpus.push_back(d.id);
  if (gpus.empty() && cluster && a.strategy == "auto") return cluster->ids();
  return gpus.empty() ? std::vector{cpu(0)} : gpus;
}

/// Whether anything could run on a GPU.
bool names_gpu(const Source& source, const PlacementArguments& a, const std::optional<Cluster>& cluster) {
  auto is_gpu = [](const DeviceId& d) { return d.kind == "gpu"; };
  auto any = [&](const std::vector<DeviceId>& devices) { return std::any_of(devices.begin(), devices.end(), is_gpu); };
  if (std::any_of(a.moves.begin(), a.moves.end(), [&](const std::string& m) { return any(parse_move(m).devices); })) return true;
  if (source.plan && !a.devices.empty()) return any(parse_devices(a.devices));
  if (source.plan) return std::any_of(source.plan->cluster.devices.begin(), source.plan->cluster.devices.end(), [&](const ClusterDevice& d) { return is_gpu(d.id); });
  for (NodeId id = 0; id < source.graph->size(); ++id)
    if (auto asked = source.graph->node(id).device; asked && is_gpu(*asked)) return true;
  if (std::any_of(a.options.begin(), a.options.end(), [](const std::string& o) { return o.find("gpu:") != o.npos; })) return true;  // as in variables=gpu:0
  if (a.placement_file.empty()) return any(devices_of(a, cluster));
  const Rules rules = rules_of(read_rules(a), a);
  return std::any_of(rules.begin(), rules.end(), [&](const PlacementRule& r) { return any(r.devices); });
}

}  // namespace

Session make_session(const Source& source, const PlacementArguments& a, const std::shared_ptr<const Library>& library, bool anew) {
  SessionOptions options;
  if (!a.cluster_file.empty()) options.cluster = read_cluster(cluster_text(a.cluster_file), a.cluster_file);
  if (options.cluster && a.runs && !a.forecast) say_elsewhere(*options.cluster, a);
  if ((a.no_cuda_graph || a.fast_nondeterministic || (a.memory_fraction && !options.cluster)) && !names_gpu(source, a, options.cluster))
    refuse_idle({{"--no-cuda-graph", a.no_cuda_graph}, {"--fast-nondeterministic", a.fast_nondeterministic}, {"--memory-fraction", a.memory_fraction && !options.cluster}}, "no device is a GPU");
  if (options.cluster) refuse_idle({{"--memory-fraction", a.memory_fraction.has_value()}}, fmt::format("{} says itself how much memory its devices have; change its \"memory\", or leave --memory-fraction out", a.cluster_file));
  options.seed = a.seed;
  options.library = library;
  options.cuda_graphs = !a.no_cuda_graph;
  options.fast_nondeterministic = a.fast_nondeterministic;
  if (a.memory_fraction) options.memory_fraction = *a.memory_fraction;
  options.forecast = a.forecast;
  options.recompute.stretches = a.recompute;
  if (!a.calibration.empty()) options.costs = std::make_shared<const CostTable>(read_costs(read_file(a.calibration), a.calibration));
  if (options.costs && !a.said) say_measured_elsewhere(*options.costs, source, options.cluster, a);
  options.soft_placement = a.soft;
  if (!a.said) options.notice = [brief = a.brief](const std::string& text) { say((brief ? first_lines(text) : text) + "\n"); };
  for (const std::string& m : a.moves) options.rules.push_back(parse_move(m));
  options.rules.insert(options.rules.end(), a.rules.begin(), a.rules.end());
  // The engines that a table names are of every plan for GPUs, but for one that runs as it stands.
  const bool chooses = !source.plan || anew || !a.moves.empty() || !a.devices.empty();
  const bool idle_costs = options.costs && !a.forecast && (a.runs || a.moves.empty()) && (options.costs->engines.empty() || !chooses || !names_gpu(source, a, options.cluster));
  if (source.plan) {
    refuse_idle({{"--precision", !a.precision.empty()}, {"--optimizer", !a.optimizer.empty()}, {"--learning-rate", a.learning_rate.has_value()}, {"--strategy", !a.strategy.empty()}, {"--towers", a.towers != 0}, {"--threads-per-tower", a.threads != 0}, {"-O", !a.options.empty()},
                 {"--placement", !a.placement_file.empty()}, {"--cluster", !a.cluster_file.empty()}, {"--memory-fraction", a.memory_fraction && a.devices.empty()}, {"--recompute", a.recompute != 0}, {"--soft-placement", a.soft},
                 {"--fast-nondeterministic", a.fast_nondeterministic && !chooses}, {"--calibration", idle_costs}},
                "a plan has its precision, optimizer, strategy, towers and threads, and its kernels unless it is derived anew; --devices names others in place of its own, --move changes where its nodes are, and place of its graph makes another plan");
    if (!a.devices.empty()) options.devices = parse_devices(a.devices);
    return anew ? Session::placed_anew(source.plan, options) : Session::from_plan(source.plan, options);
  }
  Graph graph = with_optimizer(with_precision(*source.graph, a.precision), a);
  if (!a.placement_file.empty()) return session_of_placement(std::move(graph), a, std::move(options));
  const std::vector<DeviceId> devices = devices_of(a, options.cluster);
  std::string name = !a.strategy.empty() ? a.strategy : devices.size() > 1 ? "towers" : "single";
  if (name == "single" || name == "towers" || name == "sharded")
    refuse_idle({{"--calibration", idle_costs}}, "it is of forecasts, of --problem, of strategies that go by cost (auto, mirrored, layers, pipeline, hybrid), and of plans for GPUs where it names engines");
  if (name == "single" && !a.devices.empty() && devices.size() > 1)
    say(fmt::format("single takes {} alone, and leaves {} idle: take --strategy towers, mirrored or layers for all, or name one device\n", to_string(devices[0]), to_string(std::vector(devices.begin() + 1, devices.end()))));
  const std::map<std::string, std::string> given = strategy_options(a);
  Strategy strategy = strategy_named(*library, name, devices, given);
  for (const auto& [key, value] : given) strategy.options += fmt::format("{}-O {}={}", strategy.options.empty() ? "" : " ", key, value);
  refuse_absent(strategy.devices, options, a);
  return Session(std::move(graph), std::move(strategy), options);
}

const CostTable& costs_of(const Session& session) {
  static const CostTable none;
  return session.options().costs ? *session.options().costs : none;
}

std::int64_t batch_of(std::int64_t given, const Source& source, const PlacementArguments& a) {
  if (given) return given;
  if (source.plan) return source.plan->batch;
  return a.placement_file.empty() ? 0 : read_rules(a).batch.value_or(0);
}

void say_loops(Session& session, std::int64_t batch, const std::vector<std::string>& fetches, const std::string& file, const PlacementArguments* placed, std::vector<std::string>* facts) {
  const LoopFiles files = file.empty() ? LoopFiles{} : loop_files(file);
  const std::int64_t rows = rows_handed_out(session, batch);
  TrainingLoops loops(session, {.rows = rows, .fetches = fetches});
  say(fmt::format("{}\nglobal batch {}: a worker takes {} rows at a time\n", loops.promise(), batch, rows));
  auto one = [&](const char* who, const PlacedGraph& plan, const std::string& path) {
    say(fmt::format("plan of {}:\n{}", who, describe(plan, {.memory = true, .nodes = false})));
    if (placed) say_what_stops(plan, *placed, session);
    if (path.empty()) return;
    write_file(path, write_plan(plan));
    say(fmt::format("wrote {}\n", path));
    if (facts) facts->push_back(fmt::format("\"{}\": {{\"plan\": {}, {}}}", who, json_text(printable(path)), fmt::join(plan_facts(plan), ", ")));
  };
  one("worker", loops.worker_plan(rows), files.worker);
  one("server", loops.server_plan(), files.server);
}

std::map<std::string, HostTensor> load_tensors(const std::string& path, const Graph* graph) {
  if (path.ends_with(".npy")) return {{std::filesystem::path(path).stem().string(), read_npy(path)}};
  if (graph && path.ends_with(".csv"))
    throw UserError(
        fmt::format("{}: is a table, and feeds are read here from .safetensors, .npz and .npy: belfry predict --feed takes tables, belfry train "
                    "and evaluate --data too",
                    path));
  if (is_picture(path)) throw UserError(fmt::format("{}: is a picture, and tensors are read here from .safetensors, .npz and .npy: belfry predict --feed takes pictures", path));
  const MappedFile file(path);
  auto read = [&](const Wanted& wanted) { return path.ends_with(".npz") ? parse_npz(file.bytes(), path, wanted) : parse_safetensors(file.bytes(), path, nullptr, wanted); };
  if (!graph) return read({});
  std::map<std::string, HostTensor> out = read([&](const std::string& name) { return graph->find_node(name) >= 0; });
  return out.empty() ? read({}) : out;
}

void refuse_ending(const std::string& file, std::size_t tensors) {
  const std::string ending = std::filesystem::path(file).extension().string();
  if (ending == ".npy" && tensors != 1) throw UserError(fmt::format("{}: a .npy holds one array, and {} are to be written: name a file that ends in .npz or .safetensors", file, tensors));
  if (!ending.empty() && ending != ".npy" && ending != ".npz" && ending != ".safetensors")
    throw WrongUse(fmt::format("{}: '{}' is the ending of no format that tensors are written in: name a file that ends in .safetensors, .npz or, for one array alone, .npy", file, ending));
}

void save_tensors(const std::string& path, const std::map<std::string, HostTensor>& tensors) {
  refuse_ending(path, tensors.size());
  if (path.ends_with(".npy")) write_npy(path, tensors.begin()->second);
  else path.ends_with(".npz") ? write_npz(path, tensors) : write_safetensors(path, tensors);
}

void say_slow(const PlacedGraph& plan, bool all, bool links) {
  const std::string lines = describe_slow(plan, links);
  if (lines.empty()) return;
  constexpr std::int64_t kShown = 3;
  const std::int64_t more = all ? 0 : std::count(lines.begin(), lines.end(), '\n') - kShown;
  std::string out = "slow on purpose:\n";
  std::int64_t shown = 0;
  for (std::size_t at = 0, end; at < lines.size() && (all || shown < kShown); at = end + 1, ++shown) {
    end = lines.find('\n', at);
    out += "  " + lines.substr(at, end - at) + "\n";
  }
  if (more > 0) out += fmt::format("  and {} more: --verbose\n", more);
  say(out);
}

std::vector<std::string> files_read(const std::string& source, const PlacementArguments& a, std::vector<std::string> more) {
  more.insert(more.end(), {source, a.placement_file, a.cluster_file, a.calibration});
  if (is_run_folder(source))
    for (const std::filesystem::path& part : parts_of_run(source)) more.push_back(part.string());
  return more;
}

void say_unread(const Graph& graph, const std::map<std::string, HostTensor>& feeds, const std::string& file) {
  std::vector<std::string> inputs, unread;
  for (NodeId id : graph.inputs()) inputs.push_back(graph.node(id).name);
  for (const auto& [name, value] : feeds)
    if (std::find(inputs.begin(), inputs.end(), name) == inputs.end()) unread.push_back(name);
  if (!unread.empty()) say(fmt::format("{}: the graph has no input '{}', and reads it not; its inputs are {}\n", file, fmt::join(unread, "', '"), fmt::join(inputs, ", ")));
}

namespace {

/// Other symbols are the same in each step.
std::vector<std::size_t> row_axes(const Graph& graph, const Shape& shape) {
  std::vector<std::size_t> out;
  for (std::size_t a = 0; a < shape.size(); ++a)
    if (shape[a].symbol == graph.row_symbol) out.push_back(a);
  return out;
}

bool has_rows(const Graph& graph) {
  const auto inputs = graph.inputs();
  return std::any_of(inputs.begin(), inputs.end(), [&](NodeId id) { return !row_axes(graph, graph.node(id).types[0].shape).empty(); });
}

}  // namespace

StepFeeds::StepFeeds(const Graph& graph, const std::map<std::string, HostTensor>& feeds, std::int64_t steps, std::optional<std::int64_t> batch) : graph_(graph), feeds_(feeds) {
  std::int64_t rows = rows_of(graph, Batch(feeds));
  if (!has_rows(graph)) return;
  rows_ = batch.value_or(std::max<std::int64_t>(rows / steps, 1));
  if (steps <= rows / rows_) return;
  std::vector<std::string> ways;
  if (rows >= rows_) ways.push_back(fmt::format("at most {} of --steps", rows / rows_));
  if (rows >= steps && rows_ > 1) ways.push_back(fmt::format("a --batch of at most {}", rows / steps));
  throw UserError(fmt::format("{} step{} of {} row{} need more than the {} rows that the feeds have{}{}", steps, steps == 1 ? "" : "s", rows_, rows_ == 1 ? "" : "s", rows, ways.empty() ? "; feed more" : ": take ", fmt::join(ways, ", or ")));
}

Batch StepFeeds::operator()(std::int64_t k) const {
  std::map<std::string, HostTensor> parts;
  std::vector<std::string> whole;
  for (NodeId id : graph_.inputs()) {
    const Node& n = graph_.node(id);
    const HostTensor& t = feeds_.at(n.name);
    const Shape& type = n.types[0].shape;
    const std::vector<std::size_t> axes = row_axes(graph_, type);
    Extents shape = t.shape();
    if (axes.empty() || shape[axes[0]] == rows_ * type[axes[0]].factor) {  // one step's, wherever its rows lie
      whole.push_back(n.name);
      continue;
    }
    if (axes.size() > 1 || axes[0] != 0) throw UserError(fmt::format("the feed '{}' has its rows not along its first axis alone; feed each step by itself", n.name));
    const std::int64_t factor = type[0].factor;
    std::size_t row = shape[0] ? t.bytes().size() / static_cast<std::size_t>(shape[0]) : 0;
    shape[0] = rows_ * factor;
    HostTensor part(t.dtype(), shape);
    std::memcpy(part.raw(), t.raw() + static_cast<std::size_t>(k * rows_ * factor) * row, part.bytes().size());
    parts.emplace(n.name, std::move(part));
  }
  Batch out(std::move(parts));
  for (const std::string& name : whole) out.replace(name, feeds_.at(name));
  return out;
}

}  // namespace belfry
