#include <belfry/frontends/train/fit.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/session/feeds.h>
#include <belfry/frontends/train/early_stop_internal.h>
#include <belfry/frontends/train/fit_checks_internal.h>
#include <belfry/frontends/train/input_internal.h>
#include <belfry/frontends/train/log_internal.h>
#include <belfry/frontends/train/means_internal.h>
#include <belfry/frontends/train/run_checkpoints_internal.h>
#include <belfry/graph/float_environment.h>

namespace belfry {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr const char* kRate = "learning_rate";

/// Whether each step has a learning rate to fetch that is not a metric already.
bool has_rate(const Session& session) {
  const Graph& g = session.training_graph();
  const auto rate = g.find(kRate);
  return rate && !g.metrics.contains(kRate) && g.type(*rate).shape.empty() && is_float(g.type(*rate).dtype);
}

/// What a step gave: of loops one or several mini-batches.
struct Part {
  const Results* results;
  std::int64_t rows;
};

class Fitter {
 public:
  Fitter(Session& session, const DataSet& data, const FitOptions& options)
      : session_(session), options_(checked(options)), batches_(data, rows_handed_out(session, options.batch), options.shuffle, options.last_batch), stop_(session.graph(), options),
        fetches_(fit_fetches(session, options)), names_(reported(session.graph())), losses_(loss_names(session.graph())), before_(steps_of(session)), before_of_run_(session.data_progress.steps_of_run) {
    const Graph& g = session.graph();
    if (losses_.empty()) throw UserError(fmt::format("the graph '{}' has no loss to train on", g.name));
    check_columns(g, data);
    check_names(g, names_, options);
    check_validation();
    checkpoints_ = std::make_unique<RunCheckpoints>(session, data, options);
    read_ = options.on_batch || options.on_epoch || logs(options);
    log_ = std::make_unique<TrainingLog>(options, before_, session.data_progress.epoch, logs(options) ? device_shares() : std::map<std::string, double>{});
    batches_.seek({session.data_progress.epoch, session.data_progress.position});
    input_ = std::make_unique<Input>(batches_.position(), [this](Input::Columns& out) {
      batches_.next_into(out);
      return batches_.position();
    });
    if (options.averages) check_averages(session);
    auto fetched = [&](const std::string& name) { return std::find(fetches_.begin(), fetches_.end(), name) != fetches_.end(); };
    std::erase_if(names_, [&](const std::string& name) { return !fetched(name); });
    with_rate_ = fetched(kRate) && has_rate(session);
    const std::optional<Loops>& loops = session.strategy().loops;
    step_rows_ = loops && !loops->backup ? rows_handed_out(session, options.batch) : options.batch;
    if (loops) loops_ = std::make_unique<TrainingLoops>(session, LoopOptions{rows_handed_out(session, options.batch), fetches_});
    if (options.steps) steps_wanted_ = std::max<std::int64_t>(0, options.steps - (options.resumed ? session.data_progress.steps_of_run : 0));
    epochs_ = options.steps ? epoch_after(data.rows()) : options.epochs + (options.resumed ? 0 : input_->position().epoch);
    if (!options.checkpoints.empty() && std::filesystem::exists(best_checkpoint(options.checkpoints))) {
      stop_.take(options.notes);
      if (stop_.any()) best_ = std::make_unique<Checkpoint>(load_best(options.checkpoints));
    }
  }

  History run() {
    History out;
    checkpoints_->prune();
    while (!over()) out.push_back(epoch());
    if (stop_.any()) {
      session_.load_state(best_->data().state);
      session_.data_progress.steps = best_->data().step, session_.data_progress.steps_of_run = best_->steps_of_run();
    }
    if (options_.notice && (stop_.any() || stop_.over())) options_.notice(stop_.text());
    return out;
  }

 private:
  void end_here() { steps_wanted_ = steps_, is_ended_ = true; }
  bool enough() const { return steps_ >= steps_wanted_; }
  bool over() const { return stop_.over() || enough() || (!options_.steps && input_->position().epoch >= epochs_); }
  /// The epoch in which the last of the wanted steps is, and one. The first epoch has the batches that its rows left over still make.
  std::int64_t epoch_after(std::int64_t rows) const {
    const DataPosition& at = input_->position();
    if (steps_wanted_ == 0) return at.epoch;
    if (options_.last_batch == LastBatch::runs_on) return at.epoch + 1 + static_cast<std::int64_t>((at.position + static_cast<__int128>(steps_wanted_ - 1) * step_rows_) / rows);
    // Of loops a step is several batches; there what is dropped is less than one of them.
    const bool drops = options_.last_batch == LastBatch::dropped;
    const std::int64_t more = drops ? 0 : step_rows_ - 1, left = (rows - at.position + more) / step_rows_, each = std::max<std::int64_t>(1, (rows + more) / step_rows_);
    return at.epoch + 1 + (steps_wanted_ > left ? (steps_wanted_ - left - 1) / each + 1 : 0);
  }

  /// An epoch under way.
  struct Epoch {
    Progress p;
    RunningMeans means = {};
    Clock::time_point start = Clock::now();
    std::int64_t timed = 0;
    double waited_before = 0;
    double first = 0, first_rate = 0;  ///< seconds and rows a second of the step that builds the program
  };

  EpochResult epoch() {
    const std::int64_t epoch = input_->position().epoch;
    Epoch e{{epoch, epochs_, 0, batches_.batches_per_epoch(), 0, before_ + steps_, 0, 0, 0, 0, {}, {}}};
    e.waited_before = input_->waited();
    if (steps_ == 0) begin_within(e);
    while (input_->position().epoch == epoch && !enough()) {
      if (loops_) run_loops(e);
      else {
        const Input::Columns& columns = input_->next();
        const std::int64_t rows = columns.begin()->second.shape()[0];
        const Results r = step(columns);
        finished(e, {{&r, rows}});
        if (options_.ends && options_.ends()) end_here();
      }
      // At an epoch's end it is written behind the validation, so that no start loses that.
      if (checkpoints_->due(before_ + steps_) && input_->position().epoch == epoch && !enough()) save(&e);
    }
    Progress& p = e.p;
    p.metrics = e.means.means();
    if (!e.timed) p.seconds = e.first, p.rows_per_second = e.first_rate;  // it had that step alone
    EpochResult result{p.metrics, p.seconds, p.loops};
    if (const double part = p.waited / std::max(p.seconds, 1e-9); options_.notice && e.timed && p.seconds > 1 && part > 0.05)
      options_.notice(fmt::format("the input limits: {:.0f} % of epoch {} waited for batches, with {} made ahead", 100 * part, epoch + 1, p.ahead));
    const bool within = input_->position().epoch == epoch;
    try {
      for (const auto& [name, value] : within && is_ended_ ? Metrics() : validated()) result.metrics["val_" + name] = value;
    } catch (...) {
      save(within ? &e : nullptr);  // of training that is done nothing is lost
      throw;
    }
    p.metrics = result.metrics;
    if (!within && stop_.best(epoch, p.metrics)) {  // the run made longer has the rest of the epoch before it is judged
      best_ = std::make_unique<Checkpoint>(Checkpoint::of(session_));
      checkpoints_->save_best();
    }
    told([&] { log_->epoch(p); });
    try {
      if (options_.on_epoch) options_.on_epoch(p);
    } catch (...) {
      save(within ? &e : nullptr);
      throw;
    }
    if (options_.ends && options_.ends()) end_here();
    if (!options_.checkpoint_every || checkpoints_->due(before_ + steps_) || over()) save(within ? &e : nullptr);
    return result;
  }

  /// Not more rows at a time than training takes: those fit.
  std::int64_t rows_validated() const { return std::min(kRowsEvaluated, options_.batch); }

  /// Before the first epoch, at whose end they are read.
  void check_validation() const {
    if (!options_.validation) return;
    try {
      check_columns(session_.graph(), *options_.validation);
      Batches first(*options_.validation, std::min(rows_validated(), std::max<std::int64_t>(1, options_.validation->rows())));
      rows_of(session_.graph(), Batch(first.next()));
    } catch (const UserError& e) {
      throw UserError(fmt::format("the data to validate on: {}", e.what()));
    }
  }

  Metrics validated() {
    if (!options_.validation) return {};
    std::optional<AveragesInPlace> averages;
    if (options_.averages) averages.emplace(session_);
    return evaluate(session_, *options_.validation, rows_validated());
  }

  /// A log that cannot be written ends training with the words from where it goes on.
  template <class Write>
  void told(const Write& write) const {
    try {
      write();
    } catch (const UserError& e) {
      if (options_.checkpoints.empty()) throw;
      throw UserError(fmt::format("{}; {}", e.what(), checkpoints_->last_good()));
    }
  }

  void save(const Epoch* within) { checkpoints_->save(notes(within), stop_.any()); }

  /// The first epoch of a training that goes on in the middle of one.
  void begin_within(Epoch& e) {
    e.means.take(options_.notes);
    e.p.rows = e.means.rows();
    e.p.batch = e.p.rows / rows_handed_out(session_, options_.batch);
  }

  /// What a checkpoint says besides the state; of the epoch only where it stands within one.
  TextMap notes(const Epoch* within) const {
    TextMap out;
    if (within) within->means.note(out);
    stop_.note(out);
    return out;
  }

  /// The part of a step's rows that each device works on: all of them where it has a part of the net.
  std::map<std::string, double> device_shares() {
    std::map<std::string, double> out;
    if (session_.strategy().loops) {
      for (const DeviceId& d : session_.strategy().loops->workers) out[to_string(d)] += 1.0 / static_cast<double>(session_.strategy().loops->workers.size());
      return out;
    }
    const PlacedGraph& plan = session_.plan(options_.batch, Mode::step, fetches_);
    std::vector<double> shares(static_cast<std::size_t>(plan.towers));
    for (const TowerClass& c : plan.classes)
      for (int t : c.towers) shares[static_cast<std::size_t>(t)] = static_cast<double>(c.share) / static_cast<double>(options_.batch);
    std::set<std::pair<int, int>> seen;
    for (const PlanStream& s : plan.streams)
      for (const StreamEntry& e : s.entries)
        if (s.name.starts_with("tower") && seen.insert({s.device, e.tower}).second) out[to_string(plan.cluster.devices[static_cast<std::size_t>(s.device)].id)] += shares[static_cast<std::size_t>(e.tower)];
    return out;
  }

  void stands() { session_.data_progress = {input_->position().epoch, input_->position().position, before_ + steps_, before_of_run_ + steps_}; }

  /// A step is done: what it gave is counted and told.
  void finished(Epoch& e, const std::vector<Part>& parts) {
    Progress& p = e.p;
    RunningMeans here;
    for (const Part& part : parts) {
      e.means.add(*part.results, names_, part.rows);
      here.add(*part.results, names_, part.rows);
    }
    p.batch += static_cast<std::int64_t>(parts.size());
    p.step = before_ + steps_;
    if (!loops_) p.waited = input_->waited() - e.waited_before, p.ahead = input_->depth();  // of loops the workers read the input
    if (read_ && parts.size() == 1)
      for (const std::string& n : names_) p.last[n] = as_double((*parts[0].results)[n]);
    else if (read_) p.last = here.means();
    if (with_rate_) p.learning_rate = as_double((*parts[0].results)[kRate]);
    if (p.loops) p.last["staleness"] = staleness_;
    // A training that fails in its first step leaves the log that was there, and one that is killed before on_batch has ended: the run that this one
    // replaces counts until then.
    const bool anew = log_->replaces();
    auto log = [&] { log_->step(p, here.rows()); };
    if (!anew) told(log);
    for (const Part& part : parts) check_finite(*part.results, losses_, p);
    if (before_of_run_ + steps_ == 1) checkpoints_->begun();
    if (steps_ == 1) {  // the first step builds the program
      e.first = since(e.start);
      e.first_rate = static_cast<double>(here.rows()) / std::max(e.first, 1e-9);
      e.start = Clock::now();
      if (!loops_) e.waited_before = input_->waited();
    } else e.timed += here.rows();
    p.rows = e.means.rows();
    p.seconds = since(e.start);
    p.rows_per_second = e.timed ? static_cast<double>(e.timed) / std::max(p.seconds, 1e-9) : 0;
    if (options_.on_batch) {
      p.metrics = e.means.means();
      options_.on_batch(p);
    }
    if (anew) told(log);
  }

  /// To the end of the epoch, the next checkpoint or the last step: there all that was handed out is applied.
  void run_loops(Epoch& e) {
    const std::int64_t epoch = e.p.epoch;
    std::int64_t steps = steps_wanted_ - steps_;
    if (options_.checkpoint_every) steps = std::min(steps, options_.checkpoint_every - (before_ + steps_) % options_.checkpoint_every);
    bool begun = steps_ > 0, ends = false;
    auto source = [&]() -> std::optional<NamedTensors> {
      ends = std::exchange(begun, true) && options_.ends && options_.ends();
      return !ends && input_->position().epoch == epoch ? std::optional(input_->next()) : std::nullopt;
    };
    auto applied = [&](const std::vector<Applied>& gradients) {
      std::vector<Part> parts;
      double sum = 0;
      for (const Applied& g : gradients) {
        parts.push_back({&g.results, g.rows});
        sum += static_cast<double>(g.staleness);
      }
      e.p.loops = loops_->counts();
      staleness_ = sum / static_cast<double>(gradients.size());
      ++steps_;
      finished(e, parts);
    };
    try {
      loops_->run(source, steps, applied);
      stands();
      e.p.loops = loops_->counts();
      if (ends) end_here();
    } catch (...) {
      stands();
      throw;
    }
  }

  /// A step that fails when all updates are done is a finished one.
  Results step(const Input::Columns& columns) {
    auto done = [&] {
      ++steps_;
      stands();
    };
    try {
      const Batch known = std::exchange(ahead_, {});
      Results r = session_.step(known.number() ? known : Batch(columns), fetches_, [this] { return ahead(); });
      done();
      return r;
    } catch (...) {
      if (session_.state_after() == StateAfter::complete) done();
      throw;
    }
  }

  /// None where a row cannot be made: that is told when it is its turn, behind this step.
  const Batch& ahead() {
    try {
      ahead_ = Batch(input_->ahead());
    } catch (const std::exception&) {
      ahead_ = {};
    }
    return ahead_;
  }

  Session& session_;
  const FitOptions& options_;
  Batches batches_;                                    ///< the input's: its thread may have gone ahead
  EarlyStop stop_;
  Batch ahead_;                                        ///< the next one, where it was made already
  std::vector<std::string> fetches_, names_, losses_;  ///< names_: what is reported of them
  bool with_rate_ = false, read_ = false;              ///< read_: somebody looks at Progress::last
  bool is_ended_ = false;                              ///< by FitOptions::ends
  std::int64_t epochs_ = 0, before_, before_of_run_, steps_ = 0;  ///< before_: steps of the session before this training
  std::int64_t steps_wanted_ = std::numeric_limits<std::int64_t>::max();  ///< of this training
  std::int64_t step_rows_ = 0;
  std::unique_ptr<TrainingLoops> loops_;               ///< of a strategy that has some
  double staleness_ = 0;                               ///< of their last update
  std::unique_ptr<Checkpoint> best_;                   ///< of an early stop
  std::unique_ptr<RunCheckpoints> checkpoints_;
  std::unique_ptr<TrainingLog> log_;
  std::unique_ptr<Input> input_;
};

}  // namespace

std::vector<std::string> fit_fetches(const Session& session, const FitOptions& options) {
  const std::vector<std::string> losses = loss_names(session.graph()), fetched = session.default_fetches(Mode::step);
  std::vector<std::string> out = with_weights(session.graph(), reported(session.graph()));
  auto in = [](const std::vector<std::string>& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  std::erase_if(out, [&](const std::string& name) { return !in(losses, name) && !in(fetched, name); });
  if ((options.learning_rate || logs(options)) && has_rate(session) && (session.graph().train || in(fetched, kRate))) out.push_back(kRate);
  return out;
}

std::int64_t rows_handed_out(const Session& session, std::int64_t batch) {
  if (!session.strategy().loops) return batch;
  const auto workers = static_cast<std::int64_t>(session.strategy().loops->workers.size());
  if (batch % workers)
    throw UserError(fmt::format("[{}] each of {} workers takes as many rows of a batch, and {} rows are no multiple of {}; take a batch of {} or {}", session.strategy().name, workers, batch, workers,
                                std::max<std::int64_t>(1, batch / workers) * workers, (batch / workers + 1) * workers));
  return batch / workers;
}

History fit(Session& session, const DataSet& data, const FitOptions& options) {
  const DefaultFloats floats;  // distortions and means
  FitOptions here = options;
  if (const auto step = here.notes.find(kStepOfNotes); step != here.notes.end() && step->second != std::to_string(steps_of(session))) here.notes.clear();
  return Fitter(session, data, here).run();
}

}  // namespace belfry
