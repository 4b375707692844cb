#include <belfry/frontends/cli/train_internal.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/frontends/state/checkpoint.h>
#include <belfry/frontends/state/safetensors.h>
#include <belfry/frontends/train/checkpoints.h>
#include <belfry/frontends/train/run_folder.h>

namespace belfry {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void put_record(const fs::path& out, const Json& run) { write_file(out / "run.json", run.dump(1) + "\n"); }

/// Until then the newest checkpoint is what serves.
void note_end(const fs::path& out) {
  Json run = Json::parse(read_file(out / "run.json"));
  run["state"] = "state.safetensors";
  put_record(out, run);
}

}  // namespace

void take_from_run(TrainArguments& o, bool to_evaluate) {
  const Json run = Json::parse(read_file(fs::path(o.source) / "run.json"), nullptr, false);
  if (!run.is_object()) throw UserError(fmt::format("{}/run.json: holds no JSON object", o.source));
  auto of = [&](const char* key, Json::value_t type) {
    if (!run.contains(key)) return Json(type);
    if (run[key].type() != type) throw UserError(fmt::format("{}/run.json: /{} is no {}", o.source, key, Json(type).type_name()));
    return run[key];
  };
  for (const Json& name : of("classes", Json::value_t::array))
    if (name.is_string()) o.classes.push_back(name.get<std::string>());
  if (!to_evaluate) return;
  std::error_code error;
  const std::string data = of("data", Json::value_t::string).get<std::string>();
  if (o.hold_out <= 0 && (data == o.data || fs::equivalent(data, o.data, error))) o.hold_out = of("hold_out", Json::value_t::number_float).get<double>();
  if (o.rescale.empty()) o.rescale = of("rescale", Json::value_t::string).get<std::string>();
  o.antialias = o.antialias || of("antialias", Json::value_t::boolean).get<bool>();
  o.averages = o.averages || of("averages", Json::value_t::boolean).get<bool>();
}

namespace {

std::string text_in_run(const fs::path& folder, const char* key) {
  const Json run = Json::parse(read_file(folder / "run.json"), nullptr, false);
  return run.is_object() && run.contains(key) && run[key].is_string() ? run[key].get<std::string>() : "";
}

/// Whether the run that is in --out keeps its checkpoints in this folder.
bool keeps_in(const TrainArguments& o, const fs::path& folder) {
  std::error_code error;
  const std::string kept = is_run_folder(o.out) ? text_in_run(o.out, "checkpoints") : "";
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

}  // namespace

bool goes_on_there(const TrainArguments& o) {
  if (o.out.empty() || o.overwrite || !is_run_folder(o.out)) return false;
  if (!o.resume.empty()) return keeps_in(o, fs::absolute(o.resume).parent_path());
  std::error_code error;
  const bool unfinished = !fs::exists(fs::path(o.out) / "state.safetensors", error);
  return !o.checkpoints.empty() && keeps_in(o, o.checkpoints) && (unfinished || latest_checkpoint(o.checkpoints));
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
  throw UserError(fmt::format("{}: there is a run already: go on with it by --resume CHECKPOINT or its --checkpoints, name another folder, or replace it with --overwrite", o.out));
}

void write_run(Session& session, const TrainArguments& o, const DataSet& train, const FitOptions& options, const std::vector<std::string>& fetches) {
  if (o.overwrite && o.resume.empty() && !o.checkpoints.empty() && keeps_in(o, o.checkpoints)) {  // before run.json, which says whose they are
    for (auto old = latest_checkpoint(o.checkpoints); old; old = latest_checkpoint(o.checkpoints)) fs::remove(*old);
    fs::remove(best_checkpoint(o.checkpoints));
  }
  if (o.overwrite)
    for (const char* part : {"run.json", "graph.json", "plan.json", "log.jsonl", "state.safetensors", "trace.json", "tensorboard"}) fs::remove_all(fs::path(o.out) / part);
  Json run = {{"net", o.source}, {"data", o.data}, {"batch", options.batch}};
  if (o.steps) run["steps"] = o.steps;
  else run["epochs"] = o.epochs;
  run["seed"] = o.placement.seed;
  run["shuffle"] = options.shuffle.has_value();
  run["full_batches"] = o.full_batches;
  if (o.drop_last) run["drop_last"] = true;
  if (!o.distort.empty()) run["distort"] = o.distort;
  if (!o.rescale.empty()) run["rescale"] = o.rescale;
  if (o.antialias) run["antialias"] = true;
  if (!o.shard.empty()) run["shard"] = o.shard;
  if (o.hold_out > 0) run["hold_out"] = o.hold_out;
  if (o.patience) run["patience"] = o.patience;
  run["precision"] = name_of(session.graph().precision);
  run["strategy"] = session.strategy().name;
  run["devices"] = o.placement.devices.empty() ? "cpu:0" : o.placement.devices;
  if (!session.strategy().loops) {
    const PlacedGraph& plan = session.plan(options.batch, Mode::step, fetches);
    run["towers"] = plan.towers;
    run["threads"] = plan.threads;
    run["arithmetic_hash"] = plan.arithmetic_hash;
  }
  if (!o.placement.options.empty()) run["options"] = fmt::format("{}", fmt::join(o.placement.options, " "));
  if (o.averages) run["averages"] = true;
  if (const std::string kept = goes_on_there(o) ? text_in_run(o.out, "checkpoints") : ""; o.checkpoints.empty() && !kept.empty()) run["checkpoints"] = kept;
  if (!o.checkpoints.empty()) run["checkpoints"] = fs::proximate(fs::absolute(o.checkpoints), fs::absolute(o.out)).generic_string();
  const DataWanted wanted = data_wanted(session, o);
  if (const auto names = class_names(o.data, wanted); !names.empty()) run["classes"] = names;
  // Arrays of which nobody says what their numbers are say nothing of pictures to come.
  std::optional<Pixels> pixels = pixels_of(o.data, wanted);
  if (!pixels && holds_bytes(train)) pixels = Pixels{.rescale = {1, 0}};
  if (wanted.height && pixels) run["pixels"] = Json::parse(pixels_text(*pixels));
  write_file(fs::path(o.out) / "graph.json", write_graph(session.graph()));
  put_record(o.out, run);
}

void write_results(Session& session, const DataSet& data, const std::string& out, std::int64_t batch, const std::vector<std::string>& fetches) {
  const fs::path dir = out;
  State trained = session.state();
  if (session.strategy().loops) {
    write_safetensors(dir / "state.safetensors", trained);
    note_end(dir);
    say(fmt::format("wrote {0}/state.safetensors; there is no trace, since no step is like another\n", out));
    return;
  }
  write_file((dir / "plan.json").string(), write_plan(session.plan(batch, Mode::step, fetches)));
  write_safetensors(dir / "state.safetensors", trained);
  note_end(dir);
  // The trace is of a step as training runs it: the first ones wake the threads, and what they change is put back.
  session.set_trace(true);
  Batches batches(data, std::min(batch, data.rows()));
  const NamedTensors rows = batches.next();
  for (int k = 0; k < 10; ++k) session.step(rows, fetches);
  write_file((dir / "trace.json").string(), chrome_trace(session.last_program().bound(), session.trace(), session.gpu_readings()));
  session.load_state(trained);
  say(fmt::format("wrote {0}/plan.json, {0}/state.safetensors, {0}/trace.json; belfry predict {0} --feed FILES serves it\n", out));
}

}  // namespace belfry
