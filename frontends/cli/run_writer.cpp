#include <belfry/frontends/cli/train_internal.h>

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

void refuse_run_there(const TrainArguments& o) {
  if (o.overwrite && o.out.empty()) throw WrongUse("--overwrite is of --out: give that too");
  if (o.out.empty() || o.overwrite || !is_run_folder(o.out)) return;
  std::error_code error;
  const bool unfinished = !fs::exists(fs::path(o.out) / "state.safetensors", error);
  if (!o.resume.empty() || (!o.checkpoints.empty() && (unfinished || latest_checkpoint(o.checkpoints)))) return;
  throw UserError(fmt::format("{}: there is a run already: go on with it by --resume CHECKPOINT or its --checkpoints, name another folder, or replace it with --overwrite", o.out));
}

void write_run(Session& session, const TrainArguments& o, const DataSet& train, const FitOptions& options, const std::vector<std::string>& fetches) {
  if (o.overwrite)
    for (const char* part : {"run.json", "graph.json", "plan.json", "log.jsonl", "state.safetensors", "trace.json", "tensorboard"}) fs::remove_all(fs::path(o.out) / part);
  Json run = {{"net", o.source}, {"data", o.data}, {"batch", options.batch}};
  if (o.steps) run["steps"] = o.steps;
  else run["epochs"] = o.epochs;
  run["seed"] = o.placement.seed;
  run["shuffle"] = o.shuffle;
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
