#include <belfry/frontends/cli/train_internal.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/frontends/state/checkpoint.h>
#include <belfry/frontends/train/checkpoints.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace fs = std::filesystem;

void take_from_run(TrainArguments& o, bool to_evaluate) {
  RunFacts run = read_run_facts(o.source);
  o.classes = std::move(run.classes);
  o.features = std::move(run.features);
  if (!to_evaluate) return;
  std::error_code error;
  if (o.hold_out <= 0 && (run.data == o.data || fs::equivalent(run.data, o.data, error))) o.hold_out = run.hold_out;
  if (run.pixels) o.trained_on = run.pixels->rescale;
  if (o.rescale.empty() && (run.pixels || !run.rescale.empty())) {
    const DataKind kind = data_kind(o.data);
    const bool scaled = kind == DataKind::mnist || kind == DataKind::cifar10;  // as they always are
    if (!scaled) o.rescale = run.rescale;
    // A program that wrote its own run says what becomes of pixels, not of which data they were.
    if (o.rescale.empty() && run.pixels && kind == DataKind::photos) o.rescale = rescale_text(run.pixels->rescale);
  }
  o.antialias = o.antialias || (run.pixels && run.pixels->antialias);
  o.averages = o.averages || run.averages;
}

namespace {

/// Whether the run that is in --out keeps its checkpoints in this folder.
bool keeps_in(const TrainArguments& o, const fs::path& folder) {
  std::error_code error;
  const std::string kept = is_run_folder(o.out) ? read_run_facts(o.out).checkpoints : "";
  return !kept.empty() && fs::equivalent(fs::path(o.out) / kept, folder, error);
}

bool holds_checkpoints(const fs::path& folder) {
  std::error_code error;
  return latest_checkpoint(folder) || fs::exists(best_checkpoint(folder), error);
}

/// What a folder of data has in it would be data.
void refuse_among_data(const TrainArguments& o, const char* option, const std::string& folder) {
  std::error_code error;
  if (folder.empty() || !fs::is_directory(o.data, error)) return;
  const fs::path data = fs::canonical(o.data, error), out = fs::weakly_canonical(fs::absolute(folder), error);
  if (std::mismatch(data.begin(), data.end(), out.begin(), out.end()).first == data.end()) throw UserError(fmt::format("{} {}: lies in the folder of the data, {}; name one beside it", option, folder, o.data));
}

/// Those that hold or compute what is the graph's own: feeds and results lie on the host.
std::string devices_of_nodes(const PlacedGraph& plan) {
  std::set<int> found;
  for (const PlanNode& n : plan.nodes)
    if (!n.inserted && n.op != kInput)
      for (int d : all_devices(plan, n)) found.insert(d);
  return to_string(plan.cluster.ids({found.begin(), found.end()}));
}

/// Of "-O towers=4 -O order=gpipe" what stands behind each -O, but for towers and threads, which a run has anyway.
std::string options_beside(const std::string& planned) {
  std::string out;
  std::istringstream words(planned);
  for (std::string word; words >> word;)
    if (word != "-O" && !word.starts_with("towers=") && !word.starts_with("threads=")) out += (out.empty() ? "" : " ") + word;
  return out;
}

}  // namespace

bool goes_on_there(const TrainArguments& o) {
  if (o.out.empty() || o.overwrite || !is_run_folder(o.out)) return false;
  if (!o.resume.empty()) return keeps_in(o, fs::absolute(o.resume).parent_path());
  return !o.checkpoints.empty() && keeps_in(o, o.checkpoints) && (!read_run_facts(o.out).ended || latest_checkpoint(o.checkpoints));
}

void refuse_run_there(const TrainArguments& o) {
  if (o.overwrite && o.out.empty()) throw WrongUse("--overwrite is of --out: give that too");
  refuse_among_data(o, "--out", o.out);
  refuse_among_data(o, "--checkpoints", o.checkpoints);
  if (o.overwrite && !o.checkpoints.empty() && holds_checkpoints(o.checkpoints)) {
    if (!o.resume.empty()) throw UserError(fmt::format("{}: holds checkpoints already, and the run that begins anew from {} would leave its own among them: name another folder", o.checkpoints, o.resume));
    if (!keeps_in(o, o.checkpoints)) throw UserError(fmt::format("{}: holds checkpoints of another run than the one in {}, and --overwrite replaces that one alone: name another folder for the checkpoints, or remove these", o.checkpoints, o.out));
  }
  if (o.out.empty() || o.overwrite || !is_run_folder(o.out) || goes_on_there(o)) return;
  if (!o.resume.empty()) throw UserError(fmt::format("{}: there is a run already, and {} is none of its checkpoints: name another folder, or replace the run with --overwrite", o.out, o.resume));
  const std::string kept = read_run_facts(o.out).checkpoints;
  if (kept.empty()) throw UserError(fmt::format("{}: there is a run already, of which no checkpoints were kept to go on from: name another folder, or replace it with --overwrite", o.out));
  throw UserError(fmt::format("{}: there is a run already: go on with it by --resume CHECKPOINT or --checkpoints {}, name another folder, or replace it with --overwrite", o.out, (fs::path(o.out) / kept).lexically_normal().string()));
}

void refuse_written_over(const TrainArguments& o, const Source& source) {
  auto folder = [](const fs::path& p) { return (p / "").lexically_normal(); };
  if (o.out.empty() || folder(fs::path(o.log).parent_path()) != folder(o.out)) refuse_unwritable({o.log});  // the folder of --out is yet to be made
  const std::vector<std::string> given = {o.state, o.resume, o.data, o.placement.placement_file, o.placement.cluster_file, o.placement.calibration};
  std::vector<std::string> read = given;
  read.insert(read.end(), {o.source, source.state});
  refuse_over("--log", o.log, read);
  if (o.out.empty()) return;
  std::error_code error;
  // A run that is trained further where it is keeps its graph.
  const bool own = !source.run.empty() && fs::equivalent(source.run, o.out, error);
  for (const fs::path& part : parts_of_run(o.out)) {
    refuse_over("--out", part.string(), own ? given : read);
    const bool result = part.extension() != ".jsonl" && part.filename() != "graph.json" && fs::is_regular_file(part, error);
    if (result && !is_run_folder(o.out)) throw UserError(fmt::format("{}: is of no run, and would be lost: name another folder for --out, or move the file away", part.string()));
  }
}

namespace {

/// UserError where the run that is there, which was ended before its first checkpoint, was told otherwise than this one, whose log would take its log's place. As between two
/// starts from checkpoints devices, and how long is trained, are no part of that.
void refuse_other_beginning(const TrainArguments& o, const Graph& graph, const RunFacts& run) {
  using Json = nlohmann::json;
  const fs::path folder = o.out;
  const RunFacts there = read_run_facts(folder);
  const Json record = Json::parse(read_file((folder / "run.json").string()));
  std::map<std::string, Json> here;
  for (const auto& [key, json] : run.settings) here[key] = Json::parse(json);
  std::vector<std::string> other;
  auto compare = [&](const char* what, const std::string& a, const std::string& b) {
    if (a != b) other.push_back(fmt::format("{}: {} there, {} here", what, shown(a), shown(b)));
  };
  for (const char* key : {"batch", "seed", "shuffle", "full_batches", "drop_last", "distort", "antialias", "shard", "began_with"})
    compare(key, record.contains(key) ? record[key].dump() : "none", here.contains(key) ? here[key].dump() : "none");
  std::error_code error;
  if (!fs::equivalent(there.data, run.data, error)) compare("data", there.data, run.data);
  compare("rescale", there.rescale, run.rescale);
  compare("hold_out", fmt::format("{}", there.hold_out), fmt::format("{}", run.hold_out));
  if (const fs::path file = folder / "graph.json"; fs::exists(file, error) && read_file(file.string()) != write_graph(graph)) other.push_back("another graph, as by --optimizer, --learning-rate or --precision");
  if (!other.empty())
    throw UserError(fmt::format("{}: has a run that was ended before its first checkpoint, and is another one than this ({}): give it what that one was given, name another folder, or replace it with --overwrite", o.out, fmt::join(other, "; ")));
}

}  // namespace

RunFacts write_run(Session& session, const TrainArguments& o, const Splits& data, const FitOptions& options, const std::vector<std::string>& fetches) {
  const fs::path graph = fs::path(o.out) / "graph.json";
  if (!is_run_folder(o.out) && fs::exists(graph) && read_file(graph) != write_graph(session.graph())) throw UserError(fmt::format("{}: is another graph and of no run, and would be lost: name another folder for --out, or move the file away", graph.string()));
  RunFacts run{.averages = o.averages, .net = o.source, .data = o.data, .rescale = o.rescale, .hold_out = o.hold_out, .ended = false, .own = true};
  auto number = [&](const char* key, auto value) { run.settings.emplace_back(key, fmt::format("{}", value)); };
  auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) run.settings.emplace_back(key, json_text(value));
  };
  number("batch", options.batch);
  if (o.steps) number("steps", o.steps);
  else number("epochs", o.epochs);
  if (o.placement.seed > INT64_MAX) text("seed", fmt::format("{}", o.placement.seed));  // JSON's readers have no such numbers
  else number("seed", o.placement.seed);
  number("shuffle", options.shuffle.has_value());
  number("full_batches", o.full_batches);
  if (o.drop_last) number("drop_last", true);
  text("distort", o.distort);
  if (o.antialias) number("antialias", true);
  text("shard", o.shard);
  if (o.patience) number("patience", o.patience);
  text("optimizer", o.placement.optimizer);
  if (o.placement.learning_rate) number("learning_rate", *o.placement.learning_rate);
  text("began_with", o.state);
  text("precision", std::string(name_of(session.graph().precision)));
  std::string options_said = fmt::format("{}", fmt::join(o.placement.options, " "));  // else those that the plan records
  if (session.strategy().loops) {
    text("strategy", session.strategy().name);
    text("devices", to_string(session.strategy().devices));
  } else {
    const PlacedGraph& plan = session.plan(options.batch, Mode::step, fetches);
    text("strategy", plan.placement.strategy);
    text("devices", o.placement.devices.empty() ? devices_of_nodes(plan) : o.placement.devices);
    number("towers", plan.towers);
    number("threads", plan.threads);
    text("arithmetic_hash", plan.arithmetic_hash);
    if (const auto count = std::count_if(plan.nodes.begin(), plan.nodes.end(), is_nondeterministic); count > 0) number("nondeterministic", count);
    if (options_said.empty()) options_said = options_beside(plan.placement.options);
  }
  text("options", options_said);
  if (!o.checkpoints.empty()) run.checkpoints = fs::proximate(fs::absolute(o.checkpoints), fs::absolute(o.out)).generic_string();
  else if (goes_on_there(o)) run.checkpoints = read_run_facts(o.out).checkpoints;
  if (const std::string log = options.log.empty() ? "" : fs::proximate(fs::absolute(options.log), fs::absolute(o.out)).generic_string(); log != "log.jsonl" && json_quoted(log)) text("log", log);
  const DataWanted wanted = data_wanted(session, o);
  run.classes = data.classes;
  run.features = data.features;
  // Arrays of which nobody says what their numbers are say nothing of pictures to come.
  if (wanted.height) run.pixels = pixels_of(o.data, wanted);
  if (wanted.height && !run.pixels && holds_bytes(data.train)) run.pixels = Pixels{.rescale = {1, 0}};
  if (goes_on_there(o) && o.resume.empty() && !latest_checkpoint(o.checkpoints)) refuse_other_beginning(o, session.graph(), run);
  write_run_folder(o.out, session, run);
  return run;
}

namespace {

/// Back from the folder in which they were set aside, in the place of what is there.
void put_back(const fs::path& room) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(room, error), end; !error && it != end; it.increment(error)) files.push_back(it->path());
  for (const fs::path& file : files) {
    const fs::path place = room.parent_path() / file.filename();
    fs::remove_all(place, error);
    fs::rename(file, place, error);
  }
  fs::remove(room, error);
}

bool is_room(const fs::path& path) {
  std::error_code error;
  return path.filename().string().starts_with(fmt::format("{}{}", kSetAside, kPartialSuffix)) && fs::is_directory(path, error);
}

constexpr std::string_view kGone = "gone";

bool is_gone(const fs::path& path) { return path.filename().string().starts_with(fmt::format("{}{}", kGone, kPartialSuffix)); }

/// A run's own room, and that of its checkpoints where its run.json names their folder.
std::vector<fs::path> rooms_by(const fs::path& own) {
  std::vector<fs::path> out = {own};
  const std::string name = own.filename().string();
  try {
    if (const std::string kept = is_run_folder(own) ? read_run_facts(own).checkpoints : ""; !kept.empty()) out.push_back(own.parent_path() / kept / (kSetAside + name.substr(name.find(kPartialSuffix))));
  } catch (const UserError&) {  // a damaged run.json names none
  }
  return out;
}

/// Rooms, the first of which is the run's own: under another name it says that none of them counts any more, and it goes last, since a start after a kill
/// finds the others by it.
void remove_rooms(const std::vector<fs::path>& rooms) {
  if (rooms.empty()) return;
  std::error_code error;
  const fs::path& own = rooms.front();
  const std::string name = own.filename().string();
  const fs::path gone = own.parent_path() / (std::string(kGone) + name.substr(name.find(kPartialSuffix)));
  fs::rename(own, gone, error);
  const fs::path last = error ? own : gone;
  for (std::size_t k = 1; k < rooms.size(); ++k) fs::remove_all(rooms[k], error);
  fs::remove_all(last, error);
}

}  // namespace

void put_back_replaced(const TrainArguments& o) {
  if (o.out.empty()) return;
  const fs::path folder = o.out;
  bool is_put_back = false;
  for (const fs::path& room : unfinished_in(folder)) {
    if (is_gone(room)) remove_rooms(rooms_by(room));
    if (!is_room(room)) continue;
    if (is_run_folder(room) && is_run_folder(folder) && read_run_facts(folder).ended) {
      say(fmt::format("{}: holds an earlier run, which a training with --overwrite was to replace; the one in {} has ended since: remove the folder, or move its files to where they are wanted\n", room.string(), o.out));
      continue;
    }
    // Its checkpoints were set aside after it, and count as long as it does.
    if (const std::string kept = is_run_folder(room) ? read_run_facts(room).checkpoints : ""; !kept.empty()) put_back(folder / kept / room.filename());
    put_back(room);
    is_put_back = true;
    say(fmt::format("{}: what a training with --overwrite was to replace, which was killed before its first step, is put back\n", o.out));
  }
  if (is_put_back) remove_unfinished(folder);  // of the start that was killed
}

void BegunRun::begin(const TrainArguments& o) {
  if (o.out.empty() || goes_on_there(o)) return;
  const bool replaces = o.overwrite && is_run_folder(o.out);
  if (replaces) {
    std::vector<fs::path> old;  // looked for before run.json goes, which says whose they are
    if (o.resume.empty() && !o.checkpoints.empty() && keeps_in(o, o.checkpoints))
      for (const auto& entry : fs::directory_iterator(o.checkpoints))
        if (is_part_of_run(o.out, entry.path()) && entry.is_regular_file()) old.push_back(entry.path());
    set_aside(o.out, parts_of_run(o.out));
    if (!old.empty()) set_aside(o.checkpoints, old);
  }
  std::error_code error;
  had_graph_ = fs::exists(fs::path(o.out) / "graph.json", error);
  folder_ = o.out;  // last: until all is set aside, what lies there is the old run's
  replaces_ = replaces;
}

void BegunRun::set_aside(const std::string& folder, const std::vector<fs::path>& files) {
  const fs::path room = fs::path(folder) / (kSetAside + partial_suffix());
  make_folder(room);
  aside_.push_back(room);
  for (const fs::path& file : files) fs::rename(file, room / file.filename());
}

void BegunRun::stepped() {
  if (std::exchange(done_, true)) return;
  remove_rooms(aside_);
  if (!replaces_) return;
  for (const fs::path& path : unfinished_in(folder_))  // of a training before this one, too
    if (is_room(path)) remove_rooms(rooms_by(path));
}

BegunRun::~BegunRun() {
  if ((folder_.empty() && aside_.empty()) || done_) return;
  if (!std::uncaught_exceptions()) {
    stepped();
    return;
  }
  std::error_code error;
  if (aside_.empty()) {
    fs::remove(fs::path(folder_) / "run.json", error);
    if (!had_graph_) fs::remove(fs::path(folder_) / "graph.json", error);
    return;
  }
  if (replaces_)
    for (const fs::path& part : parts_of_run(folder_)) fs::remove_all(part, error);
  for (const fs::path& room : aside_) put_back(room);
}

void write_results(Session& session, const DataSet& data, const std::string& out, RunFacts run, std::int64_t batch, const std::vector<std::string>& fetches) {
  const fs::path dir = out;
  std::error_code error;
  if (!fs::is_regular_file(dir / "run.json", error)) {
    make_folder(dir);
    say(fmt::format("{}: what was there of this run was removed while training; its results are written, and only those\n", out));
  }
  if (!session.strategy().loops) write_file((dir / "plan.json").string(), write_plan(session.plan(batch, Mode::step, fetches)));
  run.ended = true;
  write_run_folder(dir, session, run);
  if (session.strategy().loops) {
    say(fmt::format("wrote {0}/state.safetensors; there is no trace, since no step is like another\n", out));
    return;
  }
  // The trace is of a step as training runs it: the first ones wake the threads, and what they change is put back.
  const State trained = session.state();
  session.set_trace(true);
  Batches batches(data, std::min(batch, data.rows()));
  const NamedTensors rows = batches.next();
  for (int k = 0; k < 10; ++k) session.step(rows, fetches);
  write_file((dir / "trace.json").string(), chrome_trace(session.last_program()->bound(), session.trace(), session.gpu_readings()));
  session.load_state(trained);
  say(fmt::format("wrote {0}/plan.json, {0}/state.safetensors, {0}/trace.json; belfry predict {0} --feed FILES serves it\n", out));
}

}  // namespace belfry
