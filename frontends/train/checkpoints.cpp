#include <belfry/frontends/train/checkpoints.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/train/fit.h>
#include <belfry/frontends/train/run_checkpoints_internal.h>
#include <belfry/graph/structural.h>

namespace belfry {

/// Among what a checkpoint says of its run: the variable `step` may have begun elsewhere, or count by more than one.
static constexpr const char* kStepsOfRun = "steps of the run";

std::int64_t steps_of(Session& session) {
  const Graph& g = session.training_graph();
  const NodeId id = g.find_node("step");
  if (id < 0 || g.node(id).op->name != kVariable || g.node(id).types[0].dtype != i64) return session.data_progress.steps;
  return std::max(session.variable("step").item<std::int64_t>(), session.data_progress.steps);  // a step that a gate closed does not count itself
}

Checkpoint Checkpoint::of(Session& session, TextMap run) {
  CheckpointData data;
  data.state = session.state();
  data.step = steps_of(session);
  data.epoch = session.data_progress.epoch;
  data.position = session.data_progress.position;
  data.seed = session.seed();
  data.note = session.graph().name;
  data.run = std::move(run);
  data.run[kStepsOfRun] = std::to_string(session.data_progress.steps_of_run);
  return Checkpoint(std::move(data));
}

Checkpoint Checkpoint::load(const std::string& path) { return Checkpoint(read_checkpoint(path)); }
void Checkpoint::save(const std::string& path) const { write_checkpoint(path, data_); }

void Checkpoint::restore(Session& session) const {
  State have = session.state();
  for (const auto& [name, value] : have)
    if (!data_.state.contains(name)) throw UserError(fmt::format("the checkpoint of '{}' lacks the variable '{}' of the graph '{}'", data_.note, name, session.graph().name));
  session.load_state(data_.state);
  session.data_progress = {data_.epoch, data_.position, data_.step, steps_of_run()};
}

std::int64_t Checkpoint::steps_of_run() const {
  std::int64_t out = data_.step;
  if (const auto steps = data_.run.find(kStepsOfRun); steps != data_.run.end()) std::from_chars(steps->second.data(), steps->second.data() + steps->second.size(), out);
  return out;
}

std::filesystem::path best_checkpoint(const std::filesystem::path& dir) { return dir / "best.safetensors"; }

// ---------------------------------------------------------------- of a run

namespace {

constexpr const char *kArithmetic = "arithmetic", *kValues = "values of the data", *kSources = "what the data are made of", *kGraphHash = "hash of the graph";

/// Of all that is stored; of what is made row by row the first and the last, which are as quick.
std::string hash_of_values(const DataSet& data) {
  std::uint64_t hash = 0;
  auto add = [&](std::span<const std::byte> bytes) { hash = XXH3_64bits_withSeed(bytes.data(), bytes.size(), hash); };
  for (const auto& [name, x] : data.columns) add(x.bytes());
  for (const auto& [name, made] : data.made) {
    std::vector<std::byte> row(static_cast<std::size_t>(made.row.bytes()));
    for (std::int64_t r : {std::int64_t{0}, data.rows() - 1}) {
      made.make({0, data.first_row + r * data.row_step}, row);
      add(row);
    }
  }
  return fmt::format("{:016x}", hash);
}

/// Of what rows that are made are made of; empty where none is known.
std::string hash_of_sources(const DataSet& data) {
  std::uint64_t hash = 0;
  for (const auto& [name, made] : data.made)
    if (const std::uint64_t source = made.source ? made.source() : 0) hash = XXH3_64bits_withSeed(&source, sizeof source, hash);
  return hash ? fmt::format("{:016x}", hash) : "";
}

/// Of nodes, attributes and training as the user wrote them; devices and precision belong to the plan.
std::string hash_of_graph(Graph graph) {
  graph.precision = f32;
  for (NodeId id = 0; id < graph.size(); ++id) graph.edit(id).device.reset();
  const std::string text = write_graph(graph, {.put = [](const std::string&, const HostTensor&) {}});
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

/// What two starts of one run have in common: devices are no part of it.
TextMap settings_of(const Session& session, const DataSet& data, const FitOptions& options) {
  std::string columns = fmt::format("{} rows of", data.rows());
  for (const auto& [name, type] : data.types()) columns += fmt::format(" {} {}", name, to_string(type));
  for (const auto& [name, made] : data.made) columns += fmt::format(", {}: {}", name, made.how);
  TextMap out = options.told;
  out["batch"] = std::to_string(options.batch);
  out["data"] = columns;
  out["net"] = session.graph().name;
  if (session.graph().train) out[kGraphHash] = hash_of_graph(session.graph());  // a plan's graph has it written out
  out["order"] = options.shuffle ? fmt::format("shuffled by {}", *options.shuffle) : "that of the data";
  out["short batches"] = options.last_batch == LastBatch::runs_on ? "run on" : options.last_batch == LastBatch::dropped ? "are dropped" : "stay";
  if (data.rows()) out[kValues] = hash_of_values(data);
  if (const std::string hash = hash_of_sources(data); !hash.empty()) out[kSources] = hash;
  return out;
}

/// The hash of all that the plan of a full batch computes; empty for a session that trains by loops.
std::string arithmetic_of(Session& session, const FitOptions& options) {
  return session.strategy().loops ? "" : session.plan(options.batch, Mode::step, fit_fetches(session, options)).arithmetic_hash;
}

/// UserError with what the run goes on from without it.
Checkpoint load_latest(const std::filesystem::path& file) {
  try {
    return Checkpoint::load(file.string());
  } catch (const UserError& e) {
    const std::filesystem::path dir = file.parent_path();
    const auto earlier = latest_checkpoint(dir, latest_checkpoint_step(dir));
    throw UserError(fmt::format("{}; move that file away, and the run {}", e.what(), earlier ? "goes on from " + earlier->string() : "begins anew, where its folder has no results yet"));
  }
}

/// A long one by its beginning and what tells it from others.
std::string in_line(const std::string& value) {
  constexpr std::size_t kShown = 200;
  return value.size() <= kShown ? shown(value) : fmt::format("{} (hash {:016x})", shown_start(value, kShown), XXH3_64bits(value.data(), value.size()));
}

}  // namespace

std::vector<std::string> differences(const Checkpoint& checkpoint, const Session& session, const DataSet& data, const FitOptions& options) {
  std::vector<std::string> out;
  std::string values;
  for (const auto& [key, here] : settings_of(session, data, options)) {
    const auto there = checkpoint.data().run.find(key);
    if (there == checkpoint.data().run.end() || there->second == here) continue;
    const std::string line = fmt::format("{}: {} there, {} here", key, in_line(there->second), in_line(here));
    if (key == kValues || key == kSources) values = line;
    else if (key == kGraphHash && checkpoint.data().note != session.graph().name) continue;  // the net says it
    else out.push_back(line);
  }
  if (checkpoint.data().seed != session.seed()) out.push_back(fmt::format("seed: {} there, {} here", checkpoint.data().seed, session.seed()));
  if (out.empty() && !values.empty()) out.push_back(values);  // they follow from the others
  return out;
}

void resume(Session& session, const Checkpoint& checkpoint, FitOptions& options) {
  checkpoint.restore(session);
  options.resumed = true;
  options.notes = checkpoint.data().run;
  options.notes[kStepOfNotes] = std::to_string(steps_of(session));
  const auto there = options.notes.find(kArithmetic);
  if (!options.notice || there == options.notes.end() || there->second.empty()) return;
  if (const std::string here = arithmetic_of(session, options); !here.empty() && here != there->second)
    options.notice("this plan computes otherwise than the one that wrote the checkpoint (other towers, threads, kernels or attributes): bits may differ from a run that was never interrupted");
}

std::optional<std::filesystem::path> resume_latest(Session& session, const DataSet& data, FitOptions& options) {
  options.resumed = true;
  refuse_closed(options.checkpoints);  // it may hold another run's
  std::optional<std::filesystem::path> file = latest_checkpoint(options.checkpoints);
  if (!file) return {};
  const Checkpoint checkpoint = load_latest(*file);
  if (const auto other = differences(checkpoint, session, data, options); !other.empty())
    throw OtherRun(fmt::format("{}: is of another run ({}); choose another folder for the checkpoints of this one", file->string(), fmt::join(other, "; ")));
  resume(session, checkpoint, options);
  return file;
}

Checkpoint load_best(const std::filesystem::path& dir) {
  try {
    return Checkpoint::load(best_checkpoint(dir).string());
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}; move that file away, and the best epoch is looked for from here on", e.what()));
  }
}

RunCheckpoints::RunCheckpoints(Session& session, const DataSet& data, const FitOptions& options) : session_(session), options_(options) {
  if (options.checkpoints.empty()) return;
  make_folder(options.checkpoints);
  refuse_closed(options.checkpoints);
  remove_unfinished(options.checkpoints);
  if (const std::int64_t latest = latest_checkpoint_step(options.checkpoints), here = steps_of(session); latest > here)
    throw UserError(fmt::format("{}: has a checkpoint of step {}, and this training goes on from step {}; resume from that one, or choose another folder", options.checkpoints, latest, here));
  settings_ = settings_of(session, data, options);
  if (const std::string hash = arithmetic_of(session, options); !hash.empty()) settings_[kArithmetic] = hash;
}

void RunCheckpoints::prune() const {
  if (!options_.checkpoints.empty()) keep_last(options_.checkpoints, options_.keep);
}

void RunCheckpoints::begun() {
  if (!options_.checkpoints.empty()) std::filesystem::remove(best_checkpoint(options_.checkpoints));
}

std::string RunCheckpoints::last_good() const {
  const auto last = latest_checkpoint(options_.checkpoints);
  return last ? "the last good checkpoint is " + last->string() : "there is no checkpoint yet";
}

void RunCheckpoints::make_anew() const {
  std::error_code error;
  if (std::filesystem::is_directory(options_.checkpoints, error)) return;
  make_folder(options_.checkpoints);
  if (options_.notice) options_.notice(fmt::format("{}: the folder of the checkpoints was removed while training, and is made anew", options_.checkpoints));
}

void RunCheckpoints::save(const TextMap& notes, bool has_best) {
  if (options_.checkpoints.empty()) return;
  make_anew();
  TextMap run = settings_;
  run.insert(notes.begin(), notes.end());
  Checkpoint c = Checkpoint::of(session_, std::move(run));
  try {
    c.save(checkpoint_path(options_.checkpoints, c.data().step).string());
    keep_last(options_.checkpoints, options_.keep);
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}; {}", e.what(), last_good()));
  }
  if (!has_best) std::filesystem::remove(best_checkpoint(options_.checkpoints));
}

void RunCheckpoints::save_best() {
  if (options_.checkpoints.empty()) return;
  make_anew();
  Checkpoint::of(session_, settings_).save(best_checkpoint(options_.checkpoints).string());
}

}  // namespace belfry
