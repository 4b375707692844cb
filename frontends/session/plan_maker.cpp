#include <belfry/frontends/session/plan_maker.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/problem_file.h>
#include <belfry/frontends/session/fetch_names.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/frontends/session/gpus.h>
#include <belfry/frontends/session/known_kernels.h>
#include <belfry/frontends/session/memory_advice.h>
#include <belfry/frontends/session/stand_ins.h>
#include <belfry/graph/float_environment.h>
#include <belfry/graph/fusion_group.h>
#include <belfry/graph/glob.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/assign.h>
#include <belfry/placer/choose.h>
#include <belfry/placer/left_whole.h>

namespace belfry {

namespace {

/// Whether the feeds say how many rows a batch has.
bool has_rows(const Graph& graph) {
  for (NodeId id : graph.inputs())
    for (const Dim& d : graph.node(id).types[0].shape)
      if (d.symbol == graph.row_symbol) return true;
  return false;
}

/// Towers share the rows of a batch: without these each would compute the whole.
void check_divides(const Graph& graph, int towers) {
  if (towers < 2 || graph.inputs().empty() || has_rows(graph)) return;
  const Shape& shape = graph.node(graph.inputs()[0]).types[0].shape;
  std::string behind;
  for (std::size_t a = 1; a < shape.size(); ++a) behind += fmt::format(", {}", to_string(shape[a]));
  throw UserError(fmt::format("no input of the graph '{0}' has the symbol of the batch, so there is nothing to divide over {1} towers: write {{kBatch{2}}} ([\"{3}\"{2}] in files), or take one tower", graph.name,
                              towers, behind, graph.row_symbol));
}

/// A value that is fetched and computed from the input, in words.
std::string needing(const Graph& g, NodeId input, const std::vector<std::string>& fetches) {
  std::vector<bool> reads(static_cast<std::size_t>(g.size()));
  reads[static_cast<std::size_t>(input)] = true;
  for (NodeId id = input + 1; id < g.size(); ++id)
    for (ValueId v : g.node(id).inputs)
      if (v.valid() && reads[static_cast<std::size_t>(v.node)]) reads[static_cast<std::size_t>(id)] = true;
  for (const std::string& f : fetches)
    if (reads[static_cast<std::size_t>(value_to_fetch(g, f).node)]) return fmt::format("; '{}', which is fetched, needs it", f);
  return {};
}

std::vector<std::string> fetches_of(const PlacedGraph& plan) {
  std::vector<std::string> out;
  for (const auto& [name, v] : plan.fetches) out.push_back(name);
  return out;
}

/// A name that is given twice is fetched once.
std::vector<std::string> once(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& n : names)
    if (std::find(out.begin(), out.end(), n) == out.end()) out.push_back(n);
  return out;
}

int cores_of(const SessionOptions& options) { return options.cores ? options.cores : std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// Host threads as another plan has them, if the streams are the same.
void keep_threads(PlacedGraph& plan, const PlacedGraph& from) {
  bool same = std::equal(plan.streams.begin(), plan.streams.end(), from.streams.begin(), from.streams.end(), [](const PlanStream& a, const PlanStream& b) { return a.device == b.device && a.name == b.name; });
  for (std::size_t s = 0; same && s < plan.streams.size(); ++s) plan.streams[s].thread = from.streams[s].thread;
}

std::vector<FusionGroup> left_whole(std::vector<FusionGroup> all, const Graph& graph, const Rules& rules) {
  const GroupsBesideRules groups(graph, std::move(all));
  return groups.without(groups.giving_way(rules));
}

/// Sessions that are made of a session's options, as loops are, ask for its GPUs no more.
SessionOptions knowing(SessionOptions options) {
  if (!options.gpus) options.gpus = std::make_shared<const KnownGpus>();
  return options;
}

}  // namespace

PlanMaker::PlanMaker(Graph graph, Strategy strategy, SessionOptions options)
    : source_(std::move(graph)), strategy_(std::move(strategy)), options_(knowing(std::move(options))), library_(options_.library ? options_.library : standard_library()) {
  const DefaultFloats floats;  // passes compute what is constant
  cluster_ = options_.cluster ? *options_.cluster : local(strategy_.devices, strategy_.devices);
  cluster_.check();
  if (options_.stand_ins.empty()) options_.stand_ins = stand_ins_of(source_, strategy_.devices, options_);
  know_kernels(strategy_.devices);  // of what requests and rules place there the chooser says it
  training_ = std::make_shared<const Graph>(run_passes(training_passes(), source_));
}

PlanMaker::PlanMaker(std::shared_ptr<const PlacedGraph> plan, bool as_given, SessionOptions options)
    : source_(*plan->graph), options_(knowing(std::move(options))), library_(options_.library ? options_.library : standard_library()), cluster_(plan->cluster), decided_(std::move(plan)), as_given_(as_given && options_.rules.empty() && options_.devices.empty()),
      training_(decided_->graph) {
  if (!options_.devices.empty()) {
    cluster_ = local(named_devices(decisions().rules), options_.devices);
    if (options_.notice) options_.notice(fmt::format("not the plan that was given: its decisions, with {} in place of {}", to_string(options_.devices), to_string(replaceable_devices(*decided_))));
  }
  auto refuse = [](const auto& found) { if (!found.empty()) throw UserError(fmt::format("the plan does not hold: {}; derive it anew with belfry place", fmt::join(found, "; "))); };
  if (as_given_) refuse(verify(*decided_));
  if (options_.stand_ins.empty()) options_.stand_ins = stand_ins_of(*decided_, options_);
  know_kernels(as_given_ ? used_devices(*decided_) : options_.rules.empty() ? named_devices(decisions().rules) : std::vector<DeviceId>());
  if (!as_given_) return;
  refuse(unknown_kernels(*decided_, library_->kernels));
  if (const std::string hash = arithmetic_hash(*decided_); hash != decided_->arithmetic_hash) {  // edited by hand: checkpoints and runs go by what it computes
    auto hashed = std::make_shared<PlacedGraph>(*decided_);
    hashed->arithmetic_hash = hash, decided_ = hashed;
  }
}

/// This machine with the devices, among them those that are asked for.
Cluster PlanMaker::local(const std::vector<DeviceId>& devices, const std::vector<DeviceId>& asked) {
  Cluster out = local_cluster(devices, cores_of(options_), host_.memory_bytes, gpu_memory(asked, options_.memory_fraction, *options_.gpus));
  out.peers = gpu_peers(asked, *options_.gpus);
  return out;
}

/// Forecasts need none.
void PlanMaker::know_kernels(const std::vector<DeviceId>& needed) {
  library_ = with_gpu_kernels(library_, cluster_.ids(), options_.forecast ? std::vector<DeviceId>() : needed, options_.stand_ins);
}

std::shared_ptr<const PlacedGraph> PlanMaker::make(const PlanKey& key) {
  if (strategy_.loops && key.mode == Mode::step)
    throw UserError(fmt::format("[{}] with staleness or backup workers there is no plan of a step: fit and belfry train run loops of a worker's plan and the servers', which belfry place writes; leave both options out for the synchronous plan", strategy_.name));
  std::shared_ptr<PlacedGraph> plan;
  if (strategy_.choice) plan = choose_strategy(key);
  check_rules(key);
  if (runs_given(key)) return decided_;
  if (!plan) plan = std::make_shared<PlacedGraph>(placed(key, strategy_, 0));
  if (!decided_) check_divides(source_, plan->towers);
  if (as_given_) keep_threads(*plan, *decided_);
  if (options_.forecast) return plan;
  if (auto over = over_memory(*plan); !over.empty()) throw UserError(fmt::format("the plan does not fit: {}; {}", fmt::join(over, "; "), what_would_fit(key, *plan)));
  if (auto found = verify(*plan); !found.empty()) throw InternalError(fmt::format("a plan made here does not hold: {}", fmt::join(found, "; ")));
  if (as_given_ && options_.notice && (key.mode == Mode::step || !std::exchange(told_, true))) options_.notice(fmt::format("not the plan that was given runs{}, but one derived from its decisions: {}", key.mode == Mode::infer ? " where batches are served or evaluated" : "", fmt::join(departures(key), ", ")));
  return plan;
}

std::string PlanMaker::what_would_fit(const PlanKey& key, const PlacedGraph& plan, const Strategy& made_by) {
  auto attempt = [&](const Strategy& strategy, std::int64_t batch, int stretches) -> std::optional<PlacedGraph> {
    PlanKey other = key;
    other.batch = batch;
    try {
      PlacedGraph out = placed(other, strategy, key.mode == Mode::step ? options_.rules.size() : 0, stretches);
      if (over_memory(out).empty()) return out;
    } catch (const UserError&) {  // the change does not suit the graph
    }
    return {};
  };
  const std::vector<std::string> advice = memory_advice({plan, strategy_, made_by, options_.recompute.stretches}, library_->strategies, attempt);
  return fmt::format("most is held {}; {}", tensors_at_peak(plan),
                     advice.empty() ? "no other batch, towers, strategy or device of its cluster that was tried fits, nor does computing values again" : fmt::format("{}: {}", advice.size() == 1 ? "this fits" : "each of these fits", fmt::join(advice, "; ")));
}

std::shared_ptr<const Graph> PlanMaker::graph_for(Mode mode, const std::vector<std::string>& fetches) {
  if (mode == Mode::step && !draws_checked_) {
    refuse_steps_that_stand_still(source_);
    refuse_draws_that_repeat(*training_);
    draws_checked_ = true;
  }
  if (mode != Mode::infer) return training_;
  auto& g = inference_[{mode, fetches}];
  if (!g) {
    // Fetch names are those of the user: a metric's name stands for its value.
    std::vector<std::string> values;
    for (const std::string& f : fetches) {
      value_to_fetch(source_, f);
      auto metric = source_.metrics.find(f);
      values.push_back(metric == source_.metrics.end() ? f : source_.name_of(metric->second));
    }
    Graph out = run_passes(inference_passes(), for_serving(source_, values));
    for (const auto& [name, v] : source_.metrics)
      if (auto kept = out.find(source_.name_of(v))) out.metrics[name] = *kept;
    g = std::make_shared<const Graph>(std::move(out));
  }
  return g;
}

std::shared_ptr<const Graph> PlanMaker::bound_graph(const PlanKey& key) {
  std::shared_ptr<const Graph> graph = graph_for(key.mode, key.fetches);
  return key.symbols.empty() ? graph : std::make_shared<const Graph>(bind_symbols(*graph, key.symbols));
}

std::map<std::string, std::string> PlanMaker::engines() const { return options_.costs ? options_.costs->engines : std::map<std::string, std::string>{}; }

/// By the cluster, so that all placements on it compute the same.
const std::function<std::vector<FusionGroup>(const Graph&)>& PlanMaker::groups() const {
  const bool gpus = std::any_of(cluster_.devices.begin(), cluster_.devices.end(), [](const ClusterDevice& d) { return d.id.kind == "gpu"; });
  return gpus && library_->gpu_groups ? library_->gpu_groups : library_->groups;
}

std::function<std::vector<FusionGroup>(const Graph&)> PlanMaker::all_groups() const {
  std::function<std::vector<FusionGroup>(const Graph&)> found = options_.fuse ? groups() : nullptr;
  if (decided_) return [plan = decided_, found](const Graph& g) { return groups_of(*plan, g, found ? found(g) : std::vector<FusionGroup>{}); };
  return found;
}

PlaceOptions PlanMaker::place_options(const Graph& graph, const PlanKey& key) const {
  PlaceOptions o;
  for (const std::string& f : key.fetches) o.fetches.emplace_back(f, fetched(graph, key.mode, f));
  o.updates = key.mode == Mode::step;
  const bool any_bits = options_.fast_nondeterministic;
  o.kernels = options_.forecast ? or_roofline(library_->kernels, engines(), any_bits) : as_given_ ? keeping(*decided_, library_->kernels, any_bits) : chooser(library_->kernels, engines(), any_bits);
  o.isa = isa_text(host_);
  o.libraries = libraries_text(host_);
  o.groups = all_groups();
  if (o.groups && !options_.rules.empty()) o.groups = [find = o.groups, rules = options_.rules](const Graph& g) { return left_whole(find(g), g, rules); };
  o.costs = options_.costs;
  return o;
}

PlaceOptions PlanMaker::strategy_options(const Graph& graph, const PlanKey& key) const {
  PlaceOptions o = place_options(graph, key);
  o.rules = options_.rules;
  if (key.mode != Mode::infer) o.recompute = options_.recompute;
  o.soft = options_.soft_placement;
  o.warn = options_.notice;
  return o;
}

Placement PlanMaker::decisions() const { return options_.devices.empty() ? placement_of(*decided_) : with_stand_ins(*decided_, options_.devices); }

PlacedGraph PlanMaker::placed(const PlanKey& key, const Strategy& strategy, std::size_t must_decide, std::optional<int> stretches) {
  const std::shared_ptr<const Graph> graph = bound_graph(key);
  if (decided_) {
    PlaceOptions o = place_options(*graph, key);
    o.must_decide = must_decide;
    Placement p = decisions();
    p.rules.insert(p.rules.begin(), options_.rules.begin(), options_.rules.end());
    p.batch = key.batch;
    if (key.mode == Mode::infer) p.recompute.clear();
    return place(graph, p, cluster_, o);
  }
  PlaceOptions o = strategy_options(*graph, key);
  o.must_decide = must_decide;
  if (stretches && *stretches && key.mode != Mode::infer) o.recompute = {*stretches, {}};
  if (must_decide || stretches) o.warn = {};  // once, for the plan that is made
  return place(graph, strategy, cluster_, key.batch, o);
}

PlacementScorer PlanMaker::scorer(const PlanKey& key, CostTable costs, const SaidOfPlacements& said) {
  const std::shared_ptr<const PlacedGraph> plan = make(key);
  const std::shared_ptr<const Graph> graph = bound_graph(key);
  Placement fixed = plan->placement;
  std::vector<PlacementRule> last = decided_ ? decisions().rules : rules_of_requests(*graph);
  if (!decided_) fixed.threads = strategy_.divide(*graph, cluster_).threads;
  fixed.rules = options_.rules;
  PlaceOptions o = place_options(*graph, key);
  o.groups = all_groups();  // trees give way to a line's rules and the options' as one list
  if (!decided_ && key.mode != Mode::infer) o.recompute.stretches = options_.recompute.stretches;
  return {Scorer(graph, cluster_, std::move(costs), std::move(o)), std::move(fixed), std::move(last), problem_nodes(*plan), said};
}

ValueId PlanMaker::fetched(const Graph& graph, Mode mode, const std::string& name) const {
  if (decided_ && mode != Mode::infer)
    for (const auto& [known, v] : request_of(*decided_).fetches)
      if (known == name) return v;
  return value_to_fetch(graph, name);
}

/// By the program for inference that is asked for, or by the step of this batch: what a session makes first decides.
std::shared_ptr<PlacedGraph> PlanMaker::choose_strategy(const PlanKey& key) {
  const PlanKey by = key.mode == Mode::run ? PlanKey{Mode::step, key.batch, key.symbols, default_fetches(Mode::step)} : key;
  const std::shared_ptr<const Graph> graph = bound_graph(by);
  std::vector<Candidate> found = look_at(graph, strategy_, cluster_, key.batch, strategy_options(*graph, by));
  const Candidate& first = found.front();
  if (!first.refused.empty()) {
    const std::string none = "no strategy can be taken:\n" + describe(found);
    if (!first.plan) throw UserError(none);
    throw UserError(fmt::format("{}{} lacks the least: {}; {}", none, describe(first.strategy), first.refused, what_would_fit(by, *first.plan, first.strategy)));
  }
  strategy_ = first.strategy;
  if (options_.notice) options_.notice("chosen by forecast: " + describe(strategy_) + "\n" + describe(found));
  std::shared_ptr<PlacedGraph> plan = key == by ? first.plan : nullptr;
  candidates_ = std::move(found);
  candidates_.front().plan.reset();
  return plan;
}

/// Each rule of the options must decide something in a step, whatever runs first.
void PlanMaker::check_rules(const PlanKey& key) {
  if (options_.rules.empty() || rules_checked_) return;
  PlanKey step{Mode::step, key.batch, key.symbols, default_fetches(Mode::step)};
  for (const std::string& f : key.fetches) {
    bool there = key.mode != Mode::infer || training_->metrics.contains(f) || training_->find(f);
    if (there && std::find(step.fetches.begin(), step.fetches.end(), f) == step.fetches.end()) step.fetches.push_back(f);
  }
  placed(step, strategy_, options_.rules.size());
  rules_checked_ = true;
}

// ---------------------------------------------------------------- the plan that was given

/// Whether updates are in the given plan, or the graph has none.
bool PlanMaker::given_steps() const { return !decided_->updates.empty() || decided_->graph->updates.empty(); }

/// Whether it was made for inference: nothing in it becomes anything else there.
bool PlanMaker::given_serves() const {
  const Graph& g = *decided_->graph;
  const std::vector<Node>& nodes = g.nodes();
  return decided_->updates.empty() && g.updates.empty() && g.losses.empty() && std::none_of(nodes.begin(), nodes.end(), [](const Node& n) { return static_cast<bool>(n.op->inference); });
}

bool PlanMaker::runs_given(const PlanKey& key) const {
  if (!as_given_ || key.batch != decided_->batch || !key.symbols.empty()) return false;
  if (!(key.mode == Mode::infer ? given_serves() : key.mode == Mode::step ? given_steps() : decided_->updates.empty())) return false;
  std::vector<std::string> has = fetches_of(*decided_);
  return std::all_of(key.fetches.begin(), key.fetches.end(), [&](const std::string& f) { return std::find(has.begin(), has.end(), f) != has.end(); });
}

/// In what a plan differs from the given one.
std::vector<std::string> PlanMaker::departures(const PlanKey& key) const {
  std::vector<std::string> out, has = fetches_of(*decided_), besides;
  if (key.mode == Mode::infer) out.push_back("the graph for inference");
  if (key.mode == Mode::run && !decided_->updates.empty()) out.push_back("without its updates");
  if (key.mode == Mode::step && !given_steps()) out.push_back("with the updates that it lacks");
  if (key.batch != decided_->batch) out.push_back(fmt::format("{} row{} instead of {}", key.batch, key.batch == 1 ? "" : "s", decided_->batch));
  for (const std::string& f : key.fetches)
    if (std::find(has.begin(), has.end(), f) == has.end()) besides.push_back(f);
  if (!besides.empty() && key.mode != Mode::infer) out.push_back(fmt::format("fetching {} besides", fmt::join(besides, ", ")));
  for (const std::string& name : several_kernels(*decided_)) out.push_back(fmt::format("one kernel of '{}' for all towers of the same rows", name));
  return out;
}

PlanKey PlanMaker::key_of(Mode mode, std::int64_t batch, const std::vector<std::string>& fetches) const {
  if (mode == Mode::run && training_->updates.empty()) mode = Mode::step;  // the same program
  PlanKey key{mode, batch, {}, fetches.empty() ? default_fetches(mode) : once(fetches)};
  if (runs_given(key)) key.fetches = fetches_of(*decided_);
  return key;
}

PlanKey PlanMaker::key_of(Mode mode, const Batch& feeds, const std::vector<std::string>& fetches) {
  const std::vector<std::string> wanted = fetches.empty() ? default_fetches(mode) : once(fetches);
  std::shared_ptr<const Graph> graph = graph_for(mode, wanted);
  if (feeds.written_out()) check_written_out(source_, feeds);
  if (mode == Mode::infer)
    for (NodeId id : graph->inputs())
      if (!feeds.all().contains(graph->node(id).name)) refuse_missing(graph->node(id), feeds, needing(*graph, id, wanted));
  std::int64_t rows = rows_of(*graph, feeds);
  PlanKey key = key_of(mode, decided_ && !has_rows(*graph) ? decided_->batch : rows, wanted);
  for (NodeId id : graph->inputs()) {
    const Node& n = graph->node(id);
    const LocalType& given = feeds.all().at(n.name)->type();
    for (std::size_t a = 0; a < n.types[0].shape.size(); ++a) {
      const Dim& d = n.types[0].shape[a];
      if (d.symbolic() && d.symbol != graph->row_symbol) key.symbols[d.symbol] = given.shape[a] / std::max<std::int64_t>(d.factor, 1);
    }
  }
  return key;
}

std::vector<std::string> PlanMaker::default_fetches(Mode mode) const {
  if (decided_ && mode != Mode::infer && !decided_->fetches.empty()) return fetches_of(*decided_);
  std::vector<std::string> out;
  auto add = [&](const std::string& name) {
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  };
  for (ValueId v : source_.outputs) add(source_.name_of(v));
  if (mode != Mode::infer)
    for (const std::string& loss : loss_names(source_)) add(loss);
  if (mode != Mode::infer || source_.outputs.empty())
    for (const auto& [name, v] : source_.metrics) add(name);
  return out;
}

}  // namespace belfry
