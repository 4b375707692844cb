#include <belfry/frontends/session/session.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/over_memory.h>
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
  std::unique_ptr<Program> program;  ///< null until it is run
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

/// Whether the feeds say how many rows a batch has.
bool has_rows(const Graph& graph) {
  for (NodeId id : graph.inputs())
    for (const Dim& d : graph.node(id).types[0].shape)
      if (d.symbol == graph.row_symbol) return true;
  return false;
}

std::vector<std::string> fetches_of(const PlacedGraph& plan) {
  std::vector<std::string> out;
  for (const auto& [name, v] : plan.fetches) out.push_back(name);
  return out;
}

/// Host threads as another plan has them, if the streams are the same.
void keep_threads(PlacedGraph& plan, const PlacedGraph& from) {
  bool same = std::equal(plan.streams.begin(), plan.streams.end(), from.streams.begin(), from.streams.end(), [](const PlanStream& a, const PlanStream& b) { return a.device == b.device && a.name == b.name; });
  for (std::size_t s = 0; same && s < plan.streams.size(); ++s) plan.streams[s].thread = from.streams[s].thread;
}

/// All devices here live in this host's memory.
void check_room_here(const PlacedGraph& plan) {
  std::int64_t bytes = 0, memory = host_facts().memory_bytes;
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) bytes += bytes_of(plan, static_cast<int>(d)).total();
  if (memory && bytes > memory) throw UserError(fmt::format("the plan needs {} bytes, but this host has {}; take a smaller batch, or more towers one after the other", bytes, memory));
}

}  // namespace

struct Session::Impl {
  Graph source;
  Strategy strategy;
  SessionOptions options;
  std::shared_ptr<const Library> library;
  Cluster cluster;
  std::shared_ptr<const PlacedGraph> decided;   ///< a plan whose decisions are kept
  bool as_given = false;                        ///< and that runs as it stands
  std::shared_ptr<const Graph> training;
  std::map<std::pair<Mode, std::vector<std::string>>, std::shared_ptr<const Graph>> inference;
  std::list<Built> programs;                    ///< the last used first
  State store;
  std::int64_t version = 0;                     ///< of the newest state
  Built* newest = nullptr;                      ///< the program that holds it; null: the store does
  Built* ran = nullptr;                         ///< the program that ran last
  bool rules_checked = false;
  StateAfter after = StateAfter::untouched;     ///< the last step
  std::vector<std::string> torn;
  bool tracing = false;
  std::vector<TraceEntry> trace;

  Impl(Graph graph, Strategy s, SessionOptions o) : source(std::move(graph)), strategy(std::move(s)), options(std::move(o)) {
    library = options.library ? options.library : standard_library();
    if (!options.cores) options.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    if (options.cluster) cluster = *options.cluster;
    else if (!strategy.devices.empty()) cluster = local_cluster(strategy.devices, options.cores, host_facts().memory_bytes);
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
    if (programs.size() >= kMostPrograms) {
      if (ran == &programs.back()) ran = nullptr;
      programs.pop_back();
    }
    programs.emplace_front();
    try {
      build(programs.front(), key);
    } catch (...) {
      programs.pop_front();
      throw;
    }
    return programs.front();
  }

  /// Makes and verifies the plan; the program is built when it is first run.
  void build(Built& b, const Key& key) {
    check_rules(key);
    b.key = key;
    if (runs_given(key)) {
      b.plan = decided;
      return;
    }
    PlacedGraph plan = placed(key, 0);
    if (as_given) keep_threads(plan, *decided);
    if (auto over = over_memory(plan); !over.empty())
      throw UserError(fmt::format("the plan does not fit: {}; take a smaller batch, more towers one after the other (--towers), or other devices", fmt::join(over, "; ")));
    if (auto found = verify(plan); !found.empty()) throw InternalError(fmt::format("a plan made here does not hold: {}", fmt::join(found, "; ")));
    b.plan = std::make_shared<const PlacedGraph>(std::move(plan));
    if (as_given && options.notice) options.notice(fmt::format("not the plan that was given runs, but one derived from its decisions: {}", fmt::join(departures(key), ", ")));
  }

  PlacedGraph placed(const Key& key, std::size_t must_decide) {
    std::shared_ptr<const Graph> graph = graph_for(key.mode, key.fetches);
    if (!key.symbols.empty()) graph = std::make_shared<const Graph>(bind_symbols(*graph, key.symbols));
    PlaceOptions o;
    for (const std::string& f : key.fetches) o.fetches.emplace_back(f, fetched(*graph, key.mode, f));
    o.updates = key.mode == Mode::step;
    o.kernels = as_given ? keeping(decided, library->kernels) : chooser(library->kernels);
    o.must_decide = must_decide;
    if (decided) {
      o.groups = [this](const Graph& g) { return groups_of(*decided, g); };
      Placement p = placement_of(*decided);
      p.rules.insert(p.rules.begin(), options.rules.begin(), options.rules.end());
      p.batch = key.batch;
      return place(graph, p, cluster, o);
    }
    o.rules = options.rules;
    if (options.fuse) o.groups = library->groups;
    return place(graph, strategy, cluster, key.batch, o);
  }

  ValueId fetched(const Graph& graph, Mode mode, const std::string& name) const {
    if (decided && mode != Mode::infer)
      for (const auto& [known, v] : request_of(*decided).fetches)
        if (known == name) return v;
    return fetched_value(graph, name);
  }

  /// Each rule of the options must decide something in a step, whatever runs first.
  void check_rules(const Key& key) {
    if (options.rules.empty() || rules_checked) return;
    Key step{Mode::step, key.batch, key.symbols, default_fetches(Mode::step)};
    if (key.mode != Mode::infer)
      for (const std::string& f : key.fetches)
        if (std::find(step.fetches.begin(), step.fetches.end(), f) == step.fetches.end()) step.fetches.push_back(f);
    placed(step, options.rules.size());
    rules_checked = true;
  }

  // ---------------------------------------------------------------- the plan that was given

  /// Whether updates are in the given plan, or the graph has none.
  bool given_steps() const { return !decided->updates.empty() || decided->graph->updates.empty(); }

  bool runs_given(const Key& key) const {
    if (!as_given || key.batch != decided->batch || !key.symbols.empty()) return false;
    if (key.mode == Mode::infer || (key.mode == Mode::step ? !given_steps() : !decided->updates.empty())) return false;
    std::vector<std::string> has = fetches_of(*decided);
    return std::all_of(key.fetches.begin(), key.fetches.end(), [&](const std::string& f) { return std::find(has.begin(), has.end(), f) != has.end(); });
  }

  /// In what a plan differs from the given one.
  std::vector<std::string> departures(const Key& key) const {
    std::vector<std::string> out, has = fetches_of(*decided), besides;
    if (key.mode == Mode::infer) out.push_back("the graph for inference");
    if (key.mode == Mode::run && !decided->updates.empty()) out.push_back("without its updates");
    if (key.mode == Mode::step && !given_steps()) out.push_back("with the updates that it lacks");
    if (key.batch != decided->batch) out.push_back(fmt::format("{} row{} instead of {}", key.batch, key.batch == 1 ? "" : "s", decided->batch));
    for (const std::string& f : key.fetches)
      if (std::find(has.begin(), has.end(), f) == has.end()) besides.push_back(f);
    if (!besides.empty() && key.mode != Mode::infer) out.push_back(fmt::format("fetching {} besides", fmt::join(besides, ", ")));
    return out;
  }

  /// Allocates and binds what has only been planned.
  void make_ready(Built& b) {
    if (b.runner) return;
    check_room_here(*b.plan);
    auto program = std::make_unique<Program>(b.plan, library->kernels);
    b.runner = std::make_unique<Runner>(*program);
    b.program = std::move(program);
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

  Key key_of(Mode mode, std::int64_t batch, const std::vector<std::string>& fetches) const {
    Key key{mode, batch, {}, fetches.empty() ? default_fetches(mode) : fetches};
    if (runs_given(key)) key.fetches = fetches_of(*decided);
    return key;
  }

  Key key_for(Mode mode, const Batch& feeds, std::vector<std::string> fetches, const Graph& graph) const {
    Key key{mode, rows_of(graph, feeds), {}, std::move(fetches)};
    if (decided && !has_rows(graph)) key.batch = decided->batch;
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
    if (mode == Mode::step) after = StateAfter::untouched;
    if (mode == Mode::step && !torn.empty())
      throw UserError(fmt::format("a failed step left these variables partly updated: {}; load a state or reset", fmt::join(torn, ", ")));
    Key key = key_for(mode, feeds, fetches, *graph_for(mode, fetches));
    if (runs_given(key)) key.fetches = fetches_of(*decided);
    Built& b = built(key);
    make_ready(b);
    ran = &b;
    bring_state(b);
    Outcome outcome = b.runner->run(feeds.all(), {.trace = tracing});
    if (tracing) trace = b.runner->trace();
    if (mode == Mode::step && (!outcome.error || outcome.state != StateAfter::untouched)) {
      b.version = ++version;
      newest = &b;
    }
    if (mode == Mode::step) {
      after = outcome.state;
      torn = outcome.torn;
    }
    if (outcome.error) rethrow(outcome);
    std::erase_if(outcome.fetched, [&](const auto& f) { return std::find(fetches.begin(), fetches.end(), f.first) == fetches.end(); });
    return Results(std::move(outcome.fetched));
  }

  std::vector<std::string> default_fetches(Mode mode) const {
    if (decided && mode != Mode::infer && !decided->fetches.empty()) return fetches_of(*decided);
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
  bool as_given = options.rules.empty();
  if (as_given)
    if (auto found = verify(*plan); !found.empty()) throw UserError(fmt::format("the plan does not hold: {}; derive it anew with belfry place", fmt::join(found, "; ")));
  Session session = placed_anew(std::move(plan), std::move(options));
  session.impl_->as_given = as_given;
  return session;
}

Session Session::placed_anew(std::shared_ptr<const PlacedGraph> plan, SessionOptions options) {
  auto impl = std::make_unique<Impl>(*plan->graph, Strategy{}, std::move(options));
  impl->cluster = plan->cluster;
  impl->training = plan->graph;
  impl->decided = std::move(plan);
  impl->reset();
  return Session(std::move(impl));
}

Results Session::step(const Batch& feeds, const std::vector<std::string>& fetches) { return impl_->execute(Mode::step, feeds, fetches); }
Results Session::run(const Batch& feeds, const std::vector<std::string>& fetches) { return impl_->execute(Mode::run, feeds, fetches); }
Results Session::predict(const Batch& feeds, const std::vector<std::string>& fetches) { return impl_->execute(Mode::infer, feeds, fetches); }

void Session::prepare(const std::vector<std::int64_t>& batches, Mode mode, const std::vector<std::string>& fetches) {
  for (std::int64_t b : batches) impl_->make_ready(impl_->built(impl_->key_of(mode, b, fetches)));
}

const PlacedGraph& Session::plan(std::int64_t batch, Mode mode, const std::vector<std::string>& fetches) {
  return *impl_->built(impl_->key_of(mode, batch, fetches)).plan;
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
StateAfter Session::state_after() const { return impl_->after; }

const Program& Session::last_program() const {
  if (impl_->ran) return *impl_->ran->program;
  for (const Built& b : impl_->programs)
    if (b.program) return *b.program;
  throw UserError("nothing has run yet: there is no program");
}

}  // namespace belfry
