#include <belfry/frontends/session/session.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include <fmt/format.h>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/frontends/session/failure_internal.h>
#include <belfry/frontends/session/gpu_watch.h>
#include <belfry/frontends/session/gpus.h>
#include <belfry/frontends/session/one_caller_internal.h>
#include <belfry/frontends/session/plan_maker.h>
#include <belfry/frontends/session/room_internal.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/ops/optimizer/optimizer.h>
#include <belfry/ops/random/random.h>

namespace belfry {

struct Session::Impl {
  struct Built {
    PlanKey key;
    std::shared_ptr<const PlacedGraph> plan;
    std::shared_ptr<Program> program;  ///< null until it is run
    std::unique_ptr<Runner> runner;
    std::int64_t version = -1;  ///< of the state that it holds
    std::int64_t bytes = 0;     ///< that it takes, and shares of the state
    std::uint64_t told = 0;     ///< the number of the batch to come of which the runner has a copy; 0: of none
  };

  PlanMaker maker;
  Devices gpus;                                 ///< those that plans have run on
  std::string lost;                             ///< as an outcome has it
  std::list<Built> programs;                    ///< the last used first
  std::shared_ptr<StateStore> placed = std::make_shared<StateStore>();
  State store;                                  ///< values that no device holds yet: what was loaded, and initial ones once they are asked for
  std::map<std::string, std::int64_t> newest;   ///< per variable the version of its newest value
  std::int64_t version = 0;                     ///< of the newest state
  Built* stepped = nullptr;                     ///< the program whose buffers have that version, until `settle` writes it down
  Built* ran = nullptr;                         ///< the program that ran last
  StateAfter after = StateAfter::untouched;     ///< the last step
  std::optional<std::vector<std::string>> torn; ///< what a failed step has updated in part; empty: there was no memory to tell
  std::unique_ptr<GpuWatch> watch;              ///< while tracing on GPUs
  const bool has_training = trains(maker.training());
  int process = 0;                              ///< that the programs' threads are in; 0: nothing is ready yet
  bool tracing = false, unwatched = false;      ///< unwatched: it was said why there is no watch
  bool dropped = false;                         ///< a program made room for another
  std::atomic<std::thread::id> inside = {};     ///< the thread whose call is under way
  bool asking = false;                          ///< it is in the caller's `next`
  std::vector<TraceEntry> trace;

  explicit Impl(PlanMaker m) : maker(std::move(m)) { reset(); }

  void reset() {
    store.clear();
    stepped = nullptr;
    ++version;
    const Graph& g = maker.training();
    for (NodeId id : g.variables()) newest[g.node(id).name] = version;
    torn.reset();
  }

  Built& built(const PlanKey& key) {
    auto at = std::find_if(programs.begin(), programs.end(), [&](const Built& b) { return b.key == key; });
    if (at != programs.end()) {
      programs.splice(programs.begin(), programs, at);
      return programs.front();
    }
    settle();
    make_room();
    programs.emplace_front();
    try {
      programs.front().plan = maker.make(key);
      programs.front().key = key;
      for (const DeviceBytes& d : device_bytes(*programs.front().plan)) programs.front().bytes += d.total();
    } catch (...) {
      programs.pop_front();
      throw;
    }
    return programs.front();
  }

  /// For one more program. Who takes turns among more of them than are kept pays for a plan at each call: that is told once.
  void make_room() {
    constexpr std::size_t kFewPrograms = 8, kMostPrograms = 64;
    constexpr std::int64_t kPartOfMemory = 16;  // of this host's: more than a few may take that much
    std::int64_t bytes = 0;
    for (const Built& b : programs) bytes += b.bytes;
    if (programs.size() < kFewPrograms || (programs.size() < kMostPrograms && bytes < host_facts().memory_bytes / kPartOfMemory)) return;
    if (!std::exchange(dropped, true) && maker.options().notice)
      maker.options().notice(fmt::format("{} programs are kept, one for each batch size, mode and set of fetches: those used longest ago go, and their plans are made anew for each call that asks for them", programs.size()));
    if (ran == &programs.back()) ran = nullptr;
    programs.pop_back();
  }

  /// Where those that are ready leave no room, the ones used longest ago give up their memory, and keep their plans.
  void release_for(const Built& b) {
    for (;;) {
      std::vector<const PlacedGraph*> ready;
      Built* oldest = nullptr;
      for (Built& other : programs)
        if (other.runner && &other != &b) ready.push_back(other.plan.get()), oldest = &other;
      if (!oldest || fits_beside(ready, *b.plan)) return;
      settle();
      if (ran == oldest) ran = nullptr;
      oldest->runner.reset(), oldest->program.reset();
      oldest->version = -1, oldest->told = 0;
    }
  }

  /// Allocates and binds what has only been planned.
  void make_ready(Built& b) {
    if (b.runner) return;
    if (maker.options().forecast) throw UserError("this session is for forecasts alone: its plans may name kernels that are not here, and nothing runs");
    with_words_of_absence(*b.plan, maker.options().stand_ins, [&] {
      gpus.merge(open_gpus(*b.plan, *maker.library(), *maker.options().gpus, gpus));
      check_room_here(*b.plan);
      release_for(b);
      // The library has the kernels that a program reads, and stays with it.
      std::shared_ptr<Program> program(new Program(b.plan, maker.library()->kernels, placed, gpus), [library = maker.library()](const Program* p) { delete p; });
      process = ::getpid();
      b.runner = std::make_unique<Runner>(*program);
      b.program = std::move(program);
    });
  }

  static const std::string& variable_of(const Built& b, const StateBuffer& s) { return b.plan->nodes[static_cast<std::size_t>(s.node)].name; }

  StateStore::Held& held(const Built& b, const StateBuffer& s) {
    return placed->held({variable_of(b, s), to_string(b.plan->cluster.devices[static_cast<std::size_t>(s.device)].id), s});
  }

  /// Writes down which buffers the last steps have made new: steps themselves need not.
  void settle() {
    if (!stepped) return;
    for (const StateBuffer& s : stepped->program->bound().state) {
      newest[variable_of(*stepped, s)] = version;
      held(*stepped, s).version = version;
    }
    stepped = nullptr;
  }

  /// New values for variables. Gives who keeps its own.
  std::vector<std::string> put(const State& values) {
    settle();
    ++version;
    auto one = [&](const std::string& name, const HostTensor& value) {
      store.insert_or_assign(name, value);
      newest[name] = version;
    };
    for (const auto& [name, value] : values) {
      one(name, value);
      // A moving average that is not given begins anew with its variable.
      if (const std::string average = average_of(name); newest.contains(average) && !values.contains(average)) one(average, value);
    }
    std::vector<std::string> kept;
    for (const auto& [name, v] : newest)
      if (v != version) kept.push_back(name);
    const bool told = torn && std::erase_if(*torn, [&](const std::string& name) { return values.contains(name); }) > 0;
    if (kept.empty() || (told && torn->empty())) torn.reset();
    return kept;
  }

  const Node& variable(const std::string& name) const { return maker.training().node(maker.training().find_node(name)); }

  /// Copies bytes [first, first + bytes) of the newest value to where a device, or the host (null), has room for them.
  void copy_newest(const std::string& name, std::int64_t first, std::int64_t bytes, std::byte* to, Device* device) {
    if (placed->copy_to(name, newest.at(name), first, bytes, to, device)) return;
    auto at = store.find(name);
    if (at == store.end()) at = store.emplace(name, initial_value(variable(name), maker.options().seed)).first;
    copy_bytes(to, device, at->second.raw() + first, nullptr, bytes);
  }

  HostTensor value(const std::string& name) {
    LocalType type = type_of(name);
    HostTensor out(type.dtype, type.shape);
    copy_newest(name, 0, static_cast<std::int64_t>(out.bytes().size()), out.raw(), nullptr);
    return out;
  }

  LocalType type_of(const std::string& name) const { return local_type(variable(name).types[0], 1); }

  /// Brings the newest values into a program's buffers, most of which other programs share.
  void bring_state(Built& b) {
    if (b.version == version) return;
    settle();
    std::map<std::string, int> left;  // buffers that are still to have it
    for (const StateBuffer& s : b.program->bound().state) ++left[variable_of(b, s)];
    for (const StateBuffer& s : b.program->bound().state) {
      const std::string& name = variable_of(b, s);
      if (StateStore::Held& mine = held(b, s); mine.version != newest.at(name)) {
        copy_newest(name, s.first * static_cast<std::int64_t>(size_of(mine.type.dtype)), s.buffer.bytes, mine.arena.at(0), mine.device.get());
        mine.version = newest.at(name);
        ++placed->changes;
      }
      if (--left.at(name) == 0) store.erase(name);  // the device has it now; all at once would take the bytes of the state again
    }
    b.version = version;
  }

  void watch_gpus() {
    if (!tracing || gpus.empty() || watch || unwatched) return;
    try {
      if (auto meter = open_meter(gpus, *maker.library())) watch = std::make_unique<GpuWatch>(std::move(meter));
      unwatched = !watch;
    } catch (const std::exception& e) {
      unwatched = true;
      if (maker.options().notice) maker.options().notice(fmt::format("the trace has no utilisation of GPUs: {}", e.what()));
    }
  }

  /// Threads do not survive a fork: a step in the child would wait for ever.
  void refuse_fork() const {
    if (process && process != ::getpid()) throw UserError("this session's threads are in the process that made it: make a Session after fork()");
  }

  Results execute(Mode mode, const Batch& given, const std::vector<std::string>& wanted, const std::function<Batch()>& next = {}) {
    const OneCaller caller(inside, asking);
    if (mode == Mode::step) after = StateAfter::untouched;
    refuse_fork();
    const std::vector<std::string> fetches = wanted.empty() ? maker.default_fetches(mode) : wanted;
    if (!lost.empty()) throw DeviceError(fmt::format("this session has lost {}", lost));
    if (mode == Mode::step && !has_training)
      throw UserError(fmt::format("a step of the graph '{}' would train nothing: no loss is minimised (Builder::minimize, \"train\" in a file), and no trainable variable has "
                                  "an update; run() gives its values, evaluate() their means", maker.training().name));
    if (mode == Mode::step && torn)
      throw UserError(fmt::format("a failed step left these variables partly updated: {}; load a state or reset", torn->empty() ? "some" : fmt::format("{}", fmt::join(*torn, ", "))));
    const PlanKey key = maker.key_of(mode, given, fetches);
    std::map<std::string, HostTensor> narrow, narrow_next;
    const std::optional<Batch> fitting = narrowed(maker.source(), given, narrow);
    const Batch& feeds = fitting ? *fitting : given;
    Built& b = built(key);
    make_ready(b);
    ran = &b;
    bring_state(b);
    watch_gpus();
    RunOptions options{.trace = tracing, .graphs = maker.options().cuda_graphs};
    options.staged = b.told && b.told == feeds.number();
    b.told = 0;
    Batch later;
    if (next)
      options.next = [&] {
        {
          const Asking now(asking);
          later = next();
        }
        try {
          const std::optional<Batch> fits = narrowed(maker.source(), later, narrow_next);
          b.told = later.number();
          return (fits ? *fits : later).all();
        } catch (const UserError&) {}  // told when it is its turn
        return Feeds();
      };
    Outcome outcome = b.runner->run(feeds.all(), options);
    if (mode == Mode::step && (!outcome.error || outcome.state != StateAfter::untouched)) {
      b.version = ++version;
      stepped = &b;
    }
    if (mode == Mode::step) {
      after = outcome.state;
      if (after == StateAfter::torn) torn = std::move(outcome.torn);
    }
    if (tracing) trace = b.runner->trace();
    if (!outcome.lost.empty()) lost = fmt::format("{}; {}", outcome.lost, outcome.way_out);
    if (outcome.error) rethrow(outcome, *b.plan);
    if (outcome.ahead) std::rethrow_exception(outcome.ahead);
    std::erase_if(outcome.fetched, [&](const auto& f) { return std::find(fetches.begin(), fetches.end(), f.first) == fetches.end(); });
    return Results(std::move(outcome.fetched));
  }
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Session::Session(Graph graph, SessionOptions options) : Session(std::move(graph), to_strategy(Single{}), std::move(options)) {}

Session::Session(Graph graph, Strategy strategy, SessionOptions options) : impl_(std::make_unique<Impl>(PlanMaker(std::move(graph), std::move(strategy), std::move(options)))) {}

Session Session::from_plan(std::shared_ptr<const PlacedGraph> plan, SessionOptions options) { return Session(std::make_unique<Impl>(PlanMaker(std::move(plan), true, std::move(options)))); }

Session Session::placed_anew(std::shared_ptr<const PlacedGraph> plan, SessionOptions options) { return Session(std::make_unique<Impl>(PlanMaker(std::move(plan), false, std::move(options)))); }

Results Session::step(const Batch& feeds, const std::vector<std::string>& fetches, const std::function<Batch()>& next) { return alive(impl_).execute(Mode::step, feeds, fetches, next); }
Results Session::run(const Batch& feeds, const std::vector<std::string>& fetches, const std::function<Batch()>& next) { return alive(impl_).execute(Mode::run, feeds, fetches, next); }
Results Session::predict(const Batch& feeds, const std::vector<std::string>& fetches, const std::function<Batch()>& next) { return alive(impl_).execute(Mode::infer, feeds, fetches, next); }

void Session::prepare(const std::vector<std::int64_t>& batches, Mode mode, const std::vector<std::string>& fetches) {
  Impl& impl = alive(impl_);
  const OneCaller caller(impl.inside, impl.asking);
  impl.refuse_fork();
  for (std::int64_t b : batches) impl.make_ready(impl.built(impl.maker.key_of(mode, b, fetches)));
}

PlacedGraph Session::plan(std::int64_t batch, Mode mode, const std::vector<std::string>& fetches) {
  Impl& impl = alive(impl_);
  const OneCaller caller(impl.inside, impl.asking);
  return *impl.built(impl.maker.key_of(mode, batch, fetches)).plan;
}

std::string Session::what_would_fit(std::int64_t batch, Mode mode, const std::vector<std::string>& fetches) {
  const PlacedGraph made = plan(batch, mode, fetches);
  PlanMaker& maker = alive(impl_).maker;
  return maker.what_would_fit(maker.key_of(mode, batch, fetches), made);
}

PlacementScorer Session::scorer(std::int64_t batch, CostTable costs, const std::vector<std::string>& fetches, const SaidOfPlacements& said, Mode mode) {
  PlanMaker& maker = alive(impl_).maker;
  return maker.scorer(maker.key_of(mode, batch, fetches), std::move(costs), said);
}

State Session::state() {
  Impl& impl = alive(impl_);
  const OneCaller caller(impl.inside, impl.asking);
  impl.settle();
  State out;
  for (const auto& [name, version] : impl.newest) out.insert_or_assign(name, impl.value(name));
  return out;
}

std::vector<std::string> Session::load_state(const State& state) {
  Impl& impl = alive(impl_);
  const OneCaller caller(impl.inside, impl.asking);
  check_state(impl.maker.training(), state);
  return impl.put(state);
}

State Session::weights() {
  State out;
  for (const std::string& name : weight_names(training_graph())) out.insert_or_assign(name, variable(name));
  return out;
}

LoadedWeights Session::load_weights(const State& weights, const LoadWeights& how) {
  Impl& impl = alive(impl_);
  const OneCaller caller(impl.inside, impl.asking);
  LoadedWeights passed_over;
  impl.put(fitting_weights(impl.maker.training(), weights, how, &passed_over));
  return passed_over;
}

LoadedWeights Session::load_weights(const std::string& file, const LoadWeights& how) {
  const State weights = read_weights(file);
  try {
    return load_weights(weights, how);
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", file, e.what()));
  }
}

void Session::reset() {
  Impl& impl = alive(impl_);
  const OneCaller caller(impl.inside, impl.asking);
  impl.reset();
  data_progress = {};
}

std::uint64_t Session::seed() const { return alive(impl_).maker.options().seed; }

HostTensor Session::variable(const std::string& name) {
  Impl& impl = alive(impl_);
  const OneCaller caller(impl.inside, impl.asking);
  if (!impl.newest.contains(name)) {
    std::vector<std::string> names;
    for (const auto& [known, version] : impl.newest) names.push_back(known);
    throw UserError(fmt::format("the graph has no variable '{}'{}", name, nearest_variables(name, names)));
  }
  impl.settle();
  return impl.value(name);
}

const Cluster& Session::cluster() const { return alive(impl_).maker.cluster(); }
const Strategy& Session::strategy() const { return alive(impl_).maker.strategy(); }
const std::vector<Candidate>& Session::candidates() const { return alive(impl_).maker.candidates(); }
const SessionOptions& Session::options() const { return alive(impl_).maker.options(); }
const Graph& Session::graph() const { return alive(impl_).maker.source(); }
const Graph& Session::training_graph() const { return alive(impl_).maker.training(); }
std::vector<std::string> Session::default_fetches(Mode mode) const { return alive(impl_).maker.default_fetches(mode); }
void Session::set_trace(bool on) {
  alive(impl_).tracing = on;
  if (!on) impl_->watch.reset();
}
std::vector<GpuReading> Session::gpu_readings() { return alive(impl_).watch ? impl_->watch->readings() : std::vector<GpuReading>{}; }
const std::vector<TraceEntry>& Session::trace() const { return alive(impl_).trace; }
StateAfter Session::state_after() const { return alive(impl_).after; }

std::shared_ptr<const Program> Session::last_program() const {
  const Impl& impl = alive(impl_);
  if (impl.ran) return impl.ran->program;
  for (const Impl::Built& b : impl.programs)
    if (b.program) return b.program;
  throw UserError("nothing has run yet: there is no program");
}

}  // namespace belfry
