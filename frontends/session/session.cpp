#include <belfry/frontends/session/session.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/ops/random/random.h>

namespace belfry {

const HostTensor& Results::operator[](const std::string& name) const {
  if (auto at = tensors_.find(name); at != tensors_.end()) return at->second;
  std::vector<std::string> names;
  for (const auto& [n, t] : tensors_) names.push_back(n);
  throw UserError(fmt::format("'{}' was not fetched; fetched were: {}", name, fmt::join(names, ", ")));
}

std::int64_t rows_of(const Graph& graph, const Batch& feeds) {
  std::int64_t rows = -1;
  std::string from;
  for (NodeId id : graph.inputs()) {
    const Node& n = graph.node(id);
    auto feed = feeds.all().find(n.name);
    if (feed == feeds.all().end()) throw UserError(fmt::format("there is no feed for the input '{}' {}", n.name, to_string(n.types[0])));
    const LocalType& given = feed->second->type();
    const TensorType& want = n.types[0];
    auto refuse = [&] { throw UserError(fmt::format("the feed '{}' is {}, but the input is {}", n.name, to_string(given), to_string(want))); };
    if (given.dtype != want.dtype || given.shape.size() != want.shape.size()) refuse();
    for (std::size_t a = 0; a < want.shape.size(); ++a) {
      const Dim& d = want.shape[a];
      if (!d.symbolic()) {
        if (d.factor != given.shape[a]) refuse();
        continue;
      }
      if (d.symbol != graph.row_symbol) continue;
      if (d.factor == 0 || given.shape[a] % d.factor) refuse();
      std::int64_t here = given.shape[a] / d.factor;
      if (rows < 0) rows = here, from = n.name;
      if (here != rows) throw UserError(fmt::format("the feeds disagree about the batch: '{}' has {} rows, '{}' has {}", from, rows, n.name, here));
    }
  }
  if (rows == 0) throw UserError("the feeds have no rows: a batch has at least one");
  return std::max<std::int64_t>(rows, 1);
}

// ---------------------------------------------------------------- implementation

namespace {

constexpr std::size_t kMostPrograms = 8;

struct Key {
  Mode mode;
  std::int64_t batch;
  std::map<std::string, std::int64_t> symbols;
  std::vector<std::string> fetches;
  bool operator==(const Key&) const = default;
};

struct Built {
  Key key;
  std::shared_ptr<const PlacedGraph> plan;
  std::unique_ptr<Program> program;
  std::unique_ptr<Runner> runner;
  std::int64_t version = -1;  ///< of the state that it holds
};

/// The gradient of a variable is the input of that name of its update.
std::optional<ValueId> gradient_of(const Graph& g, const std::string& name) {
  const std::string prefix = "gradient/";
  if (!name.starts_with(prefix)) return {};
  NodeId variable = g.find_node(name.substr(prefix.size()));
  auto update = g.updates.find(variable);
  if (variable < 0 || update == g.updates.end()) return {};
  const Node& n = g.node(update->second.node);
  for (std::size_t i = 0; i < n.op->inputs.size(); ++i)
    if (n.op->inputs[i].name == "gradient") return n.inputs[i];
  return {};
}

ValueId fetched_value(const Graph& g, std::string name) {
  if (name.ends_with(kTowersSuffix)) name.resize(name.size() - std::string_view(kTowersSuffix).size());
  if (auto metric = g.metrics.find(name); metric != g.metrics.end()) return metric->second;
  if (auto v = g.find(name)) return *v;
  if (auto v = gradient_of(g, name)) return *v;
  std::vector<std::string> known;
  for (const auto& [metric, v] : g.metrics) known.push_back(metric);
  for (const Node& n : g.nodes()) known.push_back(n.name);
  throw UserError(fmt::format("there is no value '{}' to fetch in the graph '{}'{}", name, g.name, did_you_mean(name, known)));
}

[[noreturn]] void rethrow(const Outcome& outcome) {
  std::string where = fmt::format("; while running '{}'", outcome.failed_node);
  try {
    std::rethrow_exception(outcome.error);
  } catch (const UserError& e) {
    throw UserError(e.what() + where);
  } catch (const DeviceError& e) {
    throw DeviceError(e.what() + where);
  } catch (const std::exception& e) {
    throw InternalError(e.what() + where);
  }
}

}  // namespace

struct Session::Impl {
  Graph source;
  Strategy strategy;
  SessionOptions options;
  std::shared_ptr<const Library> library;
  Cluster cluster;
  std::optional<Placement> fixed;               ///< decisions of a plan that was given
  std::shared_ptr<const PlacedGraph> given;
  std::shared_ptr<const Graph> training;
  std::map<std::pair<Mode, std::vector<std::string>>, std::shared_ptr<const Graph>> inference;
  std::list<Built> programs;                    ///< the last used first
  State store;
  std::int64_t version = 0;                     ///< of the newest state
  Built* newest = nullptr;                      ///< the program that holds it; null: the store does
  std::vector<std::string> torn;
  bool tracing = false;
  std::vector<TraceEntry> trace;

  Impl(Graph graph, Strategy s, SessionOptions o) : source(std::move(graph)), strategy(std::move(s)), options(std::move(o)) {
    library = options.library ? options.library : standard_library();
    if (!options.cores) options.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    if (options.cluster) cluster = *options.cluster;
    else if (!strategy.devices.empty()) cluster = local_cluster(strategy.devices, options.cores);
  }

  void finish() {
    training = std::make_shared<const Graph>(run_passes(training_passes(), source));
    reset();
  }

  void reset() {
    store.clear();
    for (NodeId id : training->variables()) store.insert_or_assign(training->node(id).name, initial_value(training->node(id), options.seed));
    newest = nullptr;
    ++version;
    torn.clear();
  }

  std::shared_ptr<const Graph> graph_for(Mode mode, const std::vector<std::string>& fetches) {
    if (mode != Mode::infer) return training;
    auto& g = inference[{mode, fetches}];
    if (!g) {
      // Fetch names are those of the user: a metric's name stands for its value.
      std::vector<std::string> values;
      for (const std::string& f : fetches) {
        auto metric = source.metrics.find(f);
        values.push_back(metric == source.metrics.end() ? f : source.name_of(metric->second));
      }
      Graph out = run_passes(inference_passes(), for_inference(source, values));
      for (const auto& [name, v] : source.metrics)
        if (auto kept = out.find(source.name_of(v))) out.metrics[name] = *kept;
      g = std::make_shared<const Graph>(std::move(out));
    }
    return g;
  }

  Built& built(const Key& key) {
    auto at = std::find_if(programs.begin(), programs.end(), [&](const Built& b) { return b.key == key; });
    if (at != programs.end()) {
      programs.splice(programs.begin(), programs, at);
      return programs.front();
    }
    flush();
    if (programs.size() >= kMostPrograms) programs.pop_back();
    programs.emplace_front();
    try {
      build(programs.front(), key);
    } catch (...) {
      programs.pop_front();
      throw;
    }
    return programs.front();
  }

  void build(Built& b, const Key& key) {
    std::shared_ptr<const Graph> graph = graph_for(key.mode, key.fetches);
    if (!key.symbols.empty()) graph = std::make_shared<const Graph>(bind_symbols(*graph, key.symbols));
    PlaceOptions place_options;
    for (const std::string& f : key.fetches) place_options.fetches.emplace_back(f, fetched_value(*graph, f));
    place_options.updates = key.mode == Mode::step;
    place_options.kernels = chooser(library->kernels);
    place_options.rules = options.rules;
    if (options.fuse) place_options.groups = library->groups;
    b.key = key;
    if (given && key.mode == Mode::step && key.batch == given->batch && key.fetches == fetches_of(*given)) b.plan = given;
    else if (fixed) {
      Placement p = *fixed;
      p.batch = key.batch;
      b.plan = std::make_shared<const PlacedGraph>(place(graph, p, cluster, place_options));
    } else b.plan = std::make_shared<const PlacedGraph>(place(graph, strategy, cluster, key.batch, place_options));
    if (auto found = verify(*b.plan); !found.empty()) {
      if (b.plan == given) throw UserError(fmt::format("the plan does not hold: {}; derive it anew with belfry place", fmt::join(found, "; ")));
      throw InternalError(fmt::format("a plan made here does not hold: {}", fmt::join(found, "; ")));
    }
    b.program = std::make_unique<Program>(b.plan, library->kernels);
    b.runner = std::make_unique<Runner>(*b.program);
  }

  static std::vector<std::string> fetches_of(const PlacedGraph& plan) {
    std::vector<std::string> out;
    for (const auto& [name, v] : plan.fetches) out.push_back(name);
    return out;
  }

  /// Brings the newest state into the store.
  void flush() {
    if (!newest) return;
    for (const StateBuffer& s : newest->program->bound().state) {
      const std::string& name = newest->plan->nodes[static_cast<std::size_t>(s.node)].name;
      store.insert_or_assign(name, newest->program->state(name));
    }
    newest = nullptr;
  }

  /// Brings the newest state into a program.
  void bring_state(Built& b) {
    if (b.version == version) return;
    flush();
    for (const StateBuffer& s : b.program->bound().state) {
      const std::string& name = b.plan->nodes[static_cast<std::size_t>(s.node)].name;
      b.program->set_state(name, store.at(name));
    }
    b.version = version;
  }

  Key key_for(Mode mode, const Batch& feeds, std::vector<std::string> fetches, const Graph& graph) const {
    Key key{mode, rows_of(graph, feeds), {}, std::move(fetches)};
    for (NodeId id : graph.inputs()) {
      const Node& n = graph.node(id);
      const LocalType& given_type = feeds.all().at(n.name)->type();
      for (std::size_t a = 0; a < n.types[0].shape.size(); ++a) {
        const Dim& d = n.types[0].shape[a];
        if (d.symbolic() && d.symbol != graph.row_symbol) key.symbols[d.symbol] = given_type.shape[a] / std::max<std::int64_t>(d.factor, 1);
      }
    }
    return key;
  }

  Results execute(Mode mode, const Batch& feeds, const std::vector<std::string>& wanted) {
    std::vector<std::string> fetches = wanted.empty() ? default_fetches(mode) : wanted;
    if (mode == Mode::step && !torn.empty())
      throw UserError(fmt::format("a failed step left these variables partly updated: {}; load a state or reset", fmt::join(torn, ", ")));
    Built& b = built(key_for(mode, feeds, fetches, *graph_for(mode, fetches)));
    bring_state(b);
    Outcome outcome = b.runner->run(feeds.all(), {.trace = tracing});
    if (tracing) trace = b.runner->trace();
    if (mode == Mode::step && (!outcome.error || outcome.state != StateAfter::untouched)) {
      b.version = ++version;
      newest = &b;
    }
    if (outcome.error) {
      torn = outcome.torn;
      rethrow(outcome);
    }
    return Results(std::move(outcome.fetched));
  }

  std::vector<std::string> default_fetches(Mode mode) const {
    std::vector<std::string> out;
    auto add = [&](const std::string& name) {
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
    };
    for (ValueId v : source.outputs) add(source.name_of(v));
    if (mode != Mode::infer) {
      const std::vector<ValueId>& losses = source.train ? source.train->losses : source.losses;
      for (ValueId v : losses) add(source.name_of(v));
    }
    if (mode != Mode::infer || source.outputs.empty())
      for (const auto& [name, v] : source.metrics) add(name);
    return out;
  }
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Session::Session(Graph graph, SessionOptions options) : Session(std::move(graph), to_strategy(Single{}), std::move(options)) {}

Session::Session(Graph graph, Strategy strategy, SessionOptions options) : impl_(std::make_unique<Impl>(std::move(graph), std::move(strategy), std::move(options))) { impl_->finish(); }

Session Session::from_plan(std::shared_ptr<const PlacedGraph> plan, SessionOptions options) {
  auto impl = std::make_unique<Impl>(*plan->graph, Strategy{}, std::move(options));
  impl->cluster = plan->cluster;
  impl->fixed = plan->placement;
  impl->given = std::move(plan);
  impl->training = impl->given->graph;
  impl->reset();
  return Session(std::move(impl));
}

Session Session::with_placement(std::shared_ptr<const Graph> graph, Placement placement, Cluster cluster, SessionOptions options) {
  auto impl = std::make_unique<Impl>(*graph, Strategy{}, std::move(options));
  impl->cluster = std::move(cluster);
  impl->fixed = std::move(placement);
  impl->training = std::move(graph);
  impl->reset();
  return Session(std::move(impl));
}

Results Session::step(const Batch& feeds, const std::vector<std::string>& fetches) { return impl_->execute(Mode::step, feeds, fetches); }
Results Session::run(const Batch& feeds, const std::vector<std::string>& fetches) { return impl_->execute(Mode::run, feeds, fetches); }
Results Session::predict(const Batch& feeds, const std::vector<std::string>& fetches) { return impl_->execute(Mode::infer, feeds, fetches); }

void Session::prepare(const std::vector<std::int64_t>& batches, Mode mode, const std::vector<std::string>& fetches) {
  for (std::int64_t b : batches) impl_->built({mode, b, {}, fetches.empty() ? impl_->default_fetches(mode) : fetches});
}

const PlacedGraph& Session::plan(std::int64_t batch, Mode mode, const std::vector<std::string>& fetches) {
  return *impl_->built({mode, batch, {}, fetches.empty() ? impl_->default_fetches(mode) : fetches}).plan;
}

State Session::state() {
  if (impl_->newest)
    for (const StateBuffer& s : impl_->newest->program->bound().state) {
      const std::string& name = impl_->newest->plan->nodes[static_cast<std::size_t>(s.node)].name;
      impl_->store.insert_or_assign(name, impl_->newest->program->state(name));
    }
  return impl_->store;
}

void Session::load_state(const State& state) {
  impl_->flush();
  for (const auto& [name, value] : state) {
    auto at = impl_->store.find(name);
    if (at == impl_->store.end()) {
      std::vector<std::string> names;
      for (const auto& [n, t] : impl_->store) names.push_back(n);
      throw UserError(fmt::format("the graph has no variable '{}'{}", name, did_you_mean(name, names)));
    }
    if (!(at->second.type() == value.type())) throw UserError(fmt::format("variable '{}' is {}, not {}", name, to_string(at->second.type()), to_string(value.type())));
  }
  for (const auto& [name, value] : state) impl_->store.insert_or_assign(name, value);
  ++impl_->version;
  std::erase_if(impl_->torn, [&](const std::string& name) { return state.contains(name); });
}

void Session::reset() {
  impl_->reset();
  data_progress = {};
}

std::uint64_t Session::seed() const { return impl_->options.seed; }

HostTensor Session::variable(const std::string& name) {
  if (impl_->newest)
    for (const StateBuffer& s : impl_->newest->program->bound().state)
      if (impl_->newest->plan->nodes[static_cast<std::size_t>(s.node)].name == name) return impl_->newest->program->state(name);
  if (auto at = impl_->store.find(name); at != impl_->store.end()) return at->second;
  throw UserError(fmt::format("the graph has no variable '{}'", name));
}

const Graph& Session::graph() const { return impl_->source; }
const Graph& Session::training_graph() const { return *impl_->training; }
std::vector<std::string> Session::default_fetches(Mode mode) const { return impl_->default_fetches(mode); }
void Session::set_trace(bool on) { impl_->tracing = on; }
const std::vector<TraceEntry>& Session::trace() const { return impl_->trace; }
const Program& Session::last_program() const { return *impl_->programs.front().program; }

}  // namespace belfry
