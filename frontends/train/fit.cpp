#include <belfry/frontends/train/fit.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/train/log_internal.h>

namespace belfry {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double as_double(const HostTensor& t) {
  return visit_dtype(t.dtype(), [&]<class T>() { return static_cast<double>(t.data<T>()[0]); });
}

constexpr std::string_view kWeight = "/weight";

/// Means batch by batch, over rows or by weights that were fetched too.
class RunningMeans {
 public:
  void add(const Results& results, const std::vector<std::string>& names, std::int64_t rows) {
    for (const std::string& n : names) {
      const auto at = results.all().find(n + std::string(kWeight));
      const double weight = at == results.all().end() ? static_cast<double>(rows) : as_double(at->second);
      if (weight == 0) continue;  // nothing of it is in this batch
      sums_[n].sum += as_double(results[n]) * weight;
      sums_[n].weight += weight;
    }
    rows_ += rows;
  }
  Metrics means() const {
    Metrics out;
    for (const auto& [name, s] : sums_) out[name] = s.sum / s.weight;
    return out;
  }
  std::int64_t rows() const { return rows_; }

 private:
  struct Sum {
    double sum = 0, weight = 0;
  };
  std::map<std::string, Sum> sums_;
  std::int64_t rows_ = 0;
};

std::vector<std::string> losses_of(const Graph& g) {
  std::vector<std::string> out;
  for (ValueId v : g.train ? g.train->losses : g.losses) out.push_back(g.name_of(v));
  return out;
}

/// Scalars that training reports: losses and metrics.
std::vector<std::string> reported(const Graph& g) {
  std::vector<std::string> out = losses_of(g), all = out;
  for (const auto& [name, v] : g.metrics)
    if (g.type(v).shape.empty()) all.push_back(name);
  auto weighs = [&](const std::string& name) { return name.ends_with(kWeight) && std::find(all.begin(), all.end(), name.substr(0, name.size() - kWeight.size())) != all.end(); };
  std::copy_if(all.begin() + static_cast<std::ptrdiff_t>(out.size()), all.end(), std::back_inserter(out), [&](const std::string& name) { return !weighs(name); });
  return out;
}

/// These, and what weighs them.
std::vector<std::string> with_weights(const Graph& g, std::vector<std::string> names) {
  for (std::size_t i = 0, n = names.size(); i < n; ++i)
    if (auto at = g.metrics.find(names[i] + std::string(kWeight)); at != g.metrics.end() && g.type(at->second).shape.empty()) names.push_back(at->first);
  return names;
}

constexpr const char* kRate = "learning_rate";

/// Whether each step has a learning rate to fetch that is not a metric already.
bool has_rate(const Session& session) {
  const Graph& g = session.training_graph();
  const auto rate = g.find(kRate);
  return rate && !g.metrics.contains(kRate) && g.type(*rate).shape.empty() && is_float(g.type(*rate).dtype);
}

/// The steps that a session has taken.
std::int64_t steps_before(Session& session) {
  const NodeId id = session.training_graph().find_node("step");
  if (id < 0 || session.training_graph().node(id).op->name != kVariable || session.training_graph().node(id).types[0].dtype != i64) return 0;
  return session.variable("step").item<std::int64_t>();
}

void check_columns(const Graph& g, const DataSet& data) {
  for (NodeId id : g.inputs()) {
    const std::string& name = g.node(id).name;
    if (data.columns.contains(name)) continue;
    std::vector<std::string> names;
    for (const auto& [column, t] : data.columns) names.push_back(column);
    throw UserError(fmt::format("the data have no column for the input '{}'; their columns are {}", name, fmt::join(names, ", ")));
  }
}

void check_finite(const Results& results, const std::vector<std::string>& losses, const Progress& p) {
  for (const std::string& name : losses)
    if (double x = as_double(results[name]); !std::isfinite(x))
      throw UserError(fmt::format("the loss '{}' is {} after batch {} of epoch {}; lower the learning rate, or look at the input", name, x, p.batch, p.epoch + 1));
}

/// What a step gave: of loops one or several mini-batches.
struct Part {
  const Results* results;
  std::int64_t rows;
};

class Fitter {
 public:
  Fitter(Session& session, const DataSet& data, const FitOptions& options)
      : session_(session), options_(options), batches_(data, rows_handed_out(session, options.batch), options.shuffle, options.full_batches), fetches_(fit_fetches(session, options)), names_(reported(session.graph())),
        losses_(losses_of(session.graph())), before_(steps_before(session)), log_(options.log, before_ > 0) {
    const Graph& g = session.graph();
    if (losses_.empty()) throw UserError(fmt::format("the graph '{}' has no loss to train on", g.name));
    check_columns(g, data);
    if (!options.checkpoints.empty()) make_folder(options.checkpoints);
    batches_.seek({session.data_progress.epoch, session.data_progress.position});
    if (options.averages) check_averages(session);
    read_ = options.on_batch || options.on_epoch || !options.log.empty();
    auto fetched = [&](const std::string& name) { return std::find(fetches_.begin(), fetches_.end(), name) != fetches_.end(); };
    std::erase_if(names_, [&](const std::string& name) { return !fetched(name); });
    with_rate_ = fetched(kRate) && has_rate(session);
    const std::optional<Loops>& loops = session.strategy().loops;
    step_rows_ = loops && !loops->backup ? rows_handed_out(session, options.batch) : options.batch;
    if (loops) loops_ = std::make_unique<TrainingLoops>(session, LoopOptions{rows_handed_out(session, options.batch), fetches_});
    epochs_ = options.steps ? epoch_after(data.rows()) : options.epochs + (options.resumed ? 0 : batches_.position().epoch);
  }

  History run() {
    History out;
    while (options_.steps ? !enough() : batches_.position().epoch < epochs_) out.push_back(epoch());
    return out;
  }

 private:
  bool enough() const { return options_.steps && steps_ >= options_.steps; }
  /// The epoch in which the last of `steps` is, and one. The first epoch has the batches that its rows left over still make.
  std::int64_t epoch_after(std::int64_t rows) const {
    if (options_.full_batches) return batches_.position().epoch + 1 + static_cast<std::int64_t>((batches_.position().position + static_cast<__int128>(options_.steps - 1) * step_rows_) / rows);
    const std::int64_t left = (rows - batches_.position().position + step_rows_ - 1) / step_rows_, each = (rows + step_rows_ - 1) / step_rows_;
    return batches_.position().epoch + 1 + (options_.steps > left ? (options_.steps - left - 1) / each + 1 : 0);
  }

  /// An epoch under way.
  struct Epoch {
    Progress p;
    RunningMeans means = {};
    Clock::time_point start = Clock::now();
    std::int64_t timed = 0;
  };

  EpochResult epoch() {
    const std::int64_t epoch = batches_.position().epoch;
    Epoch e{{epoch, epochs_, 0, batches_.batches_per_epoch(), 0, before_ + steps_, 0, 0, {}, {}}};
    while (batches_.position().epoch == epoch && !enough()) {
      if (loops_) run_loops(e);
      else {
        const auto& columns = batches_.next();
        const std::int64_t rows = columns.begin()->second.shape()[0];
        const Results r = step(columns);
        finished(e, {{&r, rows}});
      }
      if (options_.checkpoint_every && steps_ % options_.checkpoint_every == 0) save();
    }
    Progress& p = e.p;
    p.metrics = e.means.means();
    EpochResult result{p.metrics, p.seconds, p.loops};
    if (options_.validation) {
      std::optional<AveragesInPlace> averages;
      if (options_.averages) averages.emplace(session_);
      for (const auto& [name, value] : evaluate(session_, *options_.validation)) result.metrics["val_" + name] = value;
    }
    p.metrics = result.metrics;
    log_.epoch(p);
    if (options_.on_epoch) options_.on_epoch(p);
    if (!options_.checkpoint_every) save();
    return result;
  }

  /// A step is done: what it gave is counted and told.
  void finished(Epoch& e, const std::vector<Part>& parts) {
    Progress& p = e.p;
    RunningMeans here;
    for (const Part& part : parts) {
      e.means.add(*part.results, names_, part.rows);
      here.add(*part.results, names_, part.rows);
    }
    p.batch += static_cast<std::int64_t>(parts.size());
    p.step = before_ + ++steps_;
    if (read_ && parts.size() == 1)
      for (const std::string& n : names_) p.last[n] = as_double((*parts[0].results)[n]);
    else if (read_) p.last = here.means();
    if (with_rate_) p.learning_rate = as_double((*parts[0].results)[kRate]);
    if (p.loops) p.last["staleness"] = staleness_;
    log_.step(p, here.rows());
    for (const Part& part : parts) check_finite(*part.results, losses_, p);
    if (steps_ == 1) e.start = Clock::now();  // the first step builds the program
    else e.timed += here.rows();
    p.rows = e.means.rows();
    p.seconds = since(e.start);
    p.rows_per_second = e.timed ? static_cast<double>(e.timed) / std::max(p.seconds, 1e-9) : 0;
    if (!options_.on_batch) return;
    p.metrics = e.means.means();
    options_.on_batch(p);
  }

  /// To the end of the epoch, the next checkpoint or the last step: there all that was handed out is applied.
  void run_loops(Epoch& e) {
    const std::int64_t epoch = e.p.epoch;
    std::int64_t steps = options_.steps ? options_.steps - steps_ : std::numeric_limits<std::int64_t>::max();
    if (options_.checkpoint_every) steps = std::min(steps, options_.checkpoint_every - steps_ % options_.checkpoint_every);
    auto source = [&]() -> std::optional<NamedTensors> { return batches_.position().epoch == epoch ? std::optional(batches_.next()) : std::nullopt; };
    auto applied = [&](const std::vector<Applied>& gradients) {
      std::vector<Part> parts;
      double sum = 0;
      for (const Applied& g : gradients) {
        parts.push_back({&g.results, g.rows});
        sum += static_cast<double>(g.staleness);
      }
      e.p.loops = loops_->counts();
      staleness_ = sum / static_cast<double>(gradients.size());
      finished(e, parts);
    };
    auto stands = [&] { session_.data_progress = {batches_.position().epoch, batches_.position().position}; };
    try {
      loops_->run(source, steps, applied);
      stands();
      e.p.loops = loops_->counts();
    } catch (...) {
      stands();
      throw;
    }
  }

  /// A step that fails when all updates are done is a finished one.
  Results step(const std::map<std::string, HostTensor>& columns) {
    auto finished = [&] { session_.data_progress = {batches_.position().epoch, batches_.position().position}; };
    try {
      const Batch known = std::exchange(ahead_, {});
      Results r = session_.step(known.number() ? known : Batch(columns), fetches_, [this] { return ahead_ = Batch(batches_.ahead()); });
      finished();
      return r;
    } catch (...) {
      if (session_.state_after() == StateAfter::complete) finished();
      throw;
    }
  }

  void save() {
    if (options_.checkpoints.empty()) return;
    Checkpoint c = Checkpoint::of(session_);
    c.save(checkpoint_path(options_.checkpoints, c.data().step).string());
    keep_last(options_.checkpoints, options_.keep);
  }

  Session& session_;
  const FitOptions& options_;
  Batches batches_;
  Batch ahead_;                                        ///< the next one, where it was made already
  std::vector<std::string> fetches_, names_, losses_;  ///< names_: what is reported of them
  bool with_rate_ = false, read_ = false;              ///< read_: somebody looks at Progress::last
  std::int64_t epochs_ = 0, before_, steps_ = 0;       ///< before_: steps of the session before this training
  std::int64_t step_rows_ = 0;
  std::unique_ptr<TrainingLoops> loops_;               ///< of a strategy that has some
  double staleness_ = 0;                               ///< of their last update
  TrainingLog log_;
};

}  // namespace

std::vector<std::string> fit_fetches(const Session& session, const FitOptions& options) {
  const std::vector<std::string> losses = losses_of(session.graph()), fetched = session.default_fetches(Mode::step);
  std::vector<std::string> out = with_weights(session.graph(), reported(session.graph()));
  auto in = [](const std::vector<std::string>& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  std::erase_if(out, [&](const std::string& name) { return !in(losses, name) && !in(fetched, name); });
  if ((options.learning_rate || !options.log.empty()) && has_rate(session) && (session.graph().train || in(fetched, kRate))) out.push_back(kRate);
  return out;
}

std::int64_t rows_handed_out(const Session& session, std::int64_t batch) {
  if (!session.strategy().loops) return batch;
  const auto workers = static_cast<std::int64_t>(session.strategy().loops->workers.size());
  if (batch % workers) throw UserError(fmt::format("a batch of {} rows is not one of {} workers with equally many; take a multiple", batch, workers));
  return batch / workers;
}

History fit(Session& session, const DataSet& data, const FitOptions& options) { return Fitter(session, data, options).run(); }

Metrics evaluate(Session& session, const DataSet& data, std::int64_t batch) { return evaluate(session, std::vector<const DataSet*>{&data}, batch); }

Metrics evaluate(Session& session, const std::vector<const DataSet*>& parts, std::int64_t batch) {
  std::vector<std::string> names = reported(session.graph()), fetches = with_weights(session.graph(), names);
  if (names.empty()) throw UserError(fmt::format("the graph '{}' has neither loss nor metric to evaluate", session.graph().name));
  RunningMeans means;
  for (const DataSet* data : parts) {
    check_columns(session.graph(), *data);
    Batches batches(*data, batch);
    while (batches.position().epoch == 0) {
      const auto& columns = batches.next();
      means.add(session.predict(columns, fetches), names, columns.begin()->second.shape()[0]);
    }
  }
  return means.means();
}

// ---------------------------------------------------------------- checkpoints

Checkpoint Checkpoint::of(Session& session) {
  CheckpointData data;
  data.state = session.state();
  if (auto step = data.state.find("step"); step != data.state.end() && step->second.dtype() == i64) data.step = step->second.item<std::int64_t>();
  data.epoch = session.data_progress.epoch;
  data.position = session.data_progress.position;
  data.seed = session.seed();
  data.note = session.graph().name;
  return Checkpoint(std::move(data));
}

Checkpoint Checkpoint::load(const std::string& path) { return Checkpoint(read_checkpoint(path)); }
void Checkpoint::save(const std::string& path) const { write_checkpoint(path, data_); }

void Checkpoint::restore(Session& session) const {
  State have = session.state();
  for (const auto& [name, value] : have)
    if (!data_.state.contains(name)) throw UserError(fmt::format("the checkpoint of '{}' lacks the variable '{}' of the graph '{}'", data_.note, name, session.graph().name));
  session.load_state(data_.state);
  session.data_progress = {data_.epoch, data_.position};
}

}  // namespace belfry
