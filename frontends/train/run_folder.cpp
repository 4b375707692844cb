#include <belfry/frontends/train/run_folder.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/state/checkpoint.h>
#include <belfry/frontends/state/safetensors.h>
#include <belfry/frontends/train/checkpoints.h>
#include <belfry/graph/rewrite.h>
#include <belfry/ops/optimizer/optimizer.h>

namespace belfry {
namespace {

namespace fs = std::filesystem;

constexpr const char *kRecord = "run.json", *kGraph = "graph.json", *kState = "state.safetensors";
/// All that `belfry train` and programs leave in a run's folder.
constexpr const char* kParts[] = {kRecord, kGraph, kState, "plan.json", "plan.worker.json", "plan.server.json", "log.jsonl", "trace.json", "tensorboard"};

/// Where this run's variables are; what lies there of an earlier one is none of them.
std::optional<fs::path> state_of(const RunFacts& facts, const fs::path& folder) {
  if (facts.ended) return folder / kState;
  if (facts.checkpoints.empty()) return {};
  const fs::path dir = (folder / facts.checkpoints).lexically_normal();
  std::error_code error;
  if (fs::exists(best_checkpoint(dir), error)) return best_checkpoint(dir);
  return latest_checkpoint(dir);
}

fs::path need_state(const RunFacts& facts, const fs::path& folder) {
  if (const auto file = state_of(facts, folder)) return *file;
  std::error_code error;
  const fs::path left = folder / kState;
  throw UserError(fmt::format("{}: its training has not ended, and has no checkpoint: there are no weights yet{}", folder.string(),
                              fs::exists(left, error) ? fmt::format("; {} is of a training before it: --state {} takes that", left.string(), left.string()) : ""));
}

Pixels pixels_of(const JsonDocument& d, const JsonValue& value) {
  JsonObject o(d, value);
  Pixels out{.rescale = {1, 0}};
  if (const JsonValue* v = o.find("standardise")) out.rescale.standardised = d.flag(*v);
  if (const JsonValue* v = o.find("scale")) out.rescale.scale = d.real(*v);
  if (const JsonValue* v = o.find("offset")) out.rescale.offset = d.real(*v);
  if (const JsonValue* v = o.find("antialias")) out.antialias = d.flag(*v);
  if (const JsonValue* v = o.find("resized")) out.resized = d.integer(*v, 0, 1 << 16);
  o.done();
  return out;
}

Graph without_training(Graph graph) {
  graph.updates.clear();
  graph.train.reset();
  graph.gate = {};
  return only(graph, roots(graph));
}

/// The variables of the graph out of all that a training keeps, averages in their place where it evaluated those.
State weights_of(const Graph& graph, State all, bool averages) {
  State out;
  for (NodeId id : graph.variables()) {
    const std::string& name = graph.node(id).name;
    auto at = averages ? all.find(average_of(name)) : all.end();
    if (at == all.end()) at = all.find(name);
    if (at != all.end()) out.emplace(name, std::move(at->second));
  }
  return out;
}

std::string pixels_text(const Pixels& p) {
  std::string out = p.rescale.standardised ? "\"standardise\": true" : fmt::format("\"scale\": {}, \"offset\": {}", json_real(p.rescale.scale), json_real(p.rescale.offset));
  if (p.antialias) out += ", \"antialias\": true";
  if (p.resized) out += fmt::format(", \"resized\": {}", p.resized);
  return "{" + out + "}";
}

std::string record_text(const RunFacts& facts, const Graph& graph) {
  std::vector<std::string> lines;
  auto put = [&](const std::string& key, const std::string& json) { lines.push_back(fmt::format(" {}: {}", json_text(key), json)); };
  put("net", json_text(facts.net.empty() ? graph.name : facts.net));
  if (!facts.data.empty()) put("data", json_text(facts.data));
  for (const auto& [key, json] : facts.settings) put(key, json);
  if (!facts.rescale.empty()) put("rescale", json_text(facts.rescale));
  if (facts.hold_out > 0) put("hold_out", json_real(facts.hold_out));
  if (facts.averages) put("averages", "true");
  if (!facts.checkpoints.empty()) put("checkpoints", json_text(facts.checkpoints));
  for (const auto& [key, names] : {std::pair{"classes", &facts.classes}, {"features", &facts.features}}) {
    std::vector<std::string> quoted;
    for (const std::string& name : *names) quoted.push_back(json_text(name));
    if (!quoted.empty()) put(key, fmt::format("[{}]", fmt::join(quoted, ", ")));
  }
  if (facts.pixels) put("pixels", pixels_text(*facts.pixels));
  if (facts.ended) put("state", json_text(kState));
  return fmt::format("{{\n{}\n}}\n", fmt::join(lines, ",\n"));
}

/// Whose run is there that is none of this graph's program, in words; nothing where there is no such.
std::string other_run(const fs::path& folder, const std::string& graph) {
  const fs::path file = folder / kGraph, record = folder / kRecord;
  std::error_code error;
  if (fs::exists(file, error) && read_file(file.string()) != graph) return "a run of another graph";
  if (!is_run_folder(folder) || !fs::exists(folder / "log.jsonl", error)) return {};
  const JsonDocument d(read_file(record.string()), record.string());
  return d.object(d.root()).find("strategy") ? "a run of belfry train" : "";  // it says so in each
}

/// predict names the values of an output's last axis by the classes.
void check_classes(const Graph& graph, const std::vector<std::string>& classes) {
  std::vector<std::string> outputs;
  for (ValueId v : graph.outputs) {
    const TensorType& type = graph.type(v);
    if (!type.shape.empty() && type.shape.back() == Dim(static_cast<std::int64_t>(classes.size()))) return;
    outputs.push_back(fmt::format("'{}' is {}", graph.name_of(v), to_string(type)));
  }
  if (!classes.empty() && !outputs.empty()) throw UserError(fmt::format("{} names of classes, but no output has a value for each: {}", classes.size(), fmt::join(outputs, ", ")));
}

}  // namespace

std::vector<fs::path> parts_of_run(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const char* part : kParts)
    if (fs::exists(folder / part, error)) out.push_back(folder / part);
  return out;
}

bool is_part_of_run(const fs::path& folder, const fs::path& file) {
  std::error_code error;
  const fs::path run = fs::weakly_canonical(fs::absolute(folder), error), at = fs::weakly_canonical(fs::absolute(file), error);
  const std::string kept = read_run_facts(folder).checkpoints;
  auto lies_in = [&](const fs::path& dir) { return std::mismatch(dir.begin(), dir.end(), at.begin(), at.end()).first == dir.end(); };
  if (std::any_of(std::begin(kParts), std::end(kParts), [&](const char* part) { return lies_in(run / part); })) return true;
  return !kept.empty() && at.parent_path() == fs::weakly_canonical(run / kept, error) && (is_named_as_checkpoint(at) || at.filename() == best_checkpoint({}).filename());
}

bool is_run_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kRecord, error);
}

RunFacts read_run_facts(const fs::path& folder) {
  if (!is_run_folder(folder)) {
    refuse_closed(folder);
    throw UserError(fmt::format("{}: no folder of a run: it has no {}; belfry train --out makes one, and write_run_folder", folder.string(), kRecord));
  }
  const std::string file = (folder / kRecord).string();
  const JsonDocument d(read_file(file), file);
  const JsonValue& run = d.object(d.root());
  RunFacts out{.ended = false};
  auto text = [&](const char* key, std::string& field) {
    if (const JsonValue* v = run.find(key)) field = d.text(*v);
  };
  text("net", out.net);
  text("data", out.data);
  text("rescale", out.rescale);
  text("checkpoints", out.checkpoints);
  if (const JsonValue* v = run.find("hold_out")) out.hold_out = d.real(*v);
  if (const JsonValue* v = run.find("averages")) out.averages = d.flag(*v);
  for (const auto& [key, names] : {std::pair{"classes", &out.classes}, {"features", &out.features}})
    if (const JsonValue* v = run.find(key))
      for (const JsonValue& name : d.array(*v)) names->push_back(d.text(name));
  if (const JsonValue* v = run.find("pixels")) out.pixels = pixels_of(d, *v);
  if (const JsonValue* v = run.find("state")) {
    out.ended = true;
    if (d.text(*v) != kState) d.fail(*v, fmt::format("the variables of a run that has ended are in {}", kState));
  }
  return out;
}

void write_run_folder(const fs::path& folder, Session& session, const RunFacts& facts) {
  const std::string record = record_text(facts, session.graph());
  const JsonDocument readable(record, "run.json");  // UserError where a setting is no JSON, before anything is written
  const std::string graph = write_graph(session.graph());
  if (!facts.own) {
    check_classes(session.graph(), facts.classes);
    const std::string other = other_run(folder, graph);
    if (!other.empty() && !facts.overwrite) throw UserError(fmt::format("{}: {} is there: name another folder, or replace it with .overwrite = true", folder.string(), other));
    if (!other.empty() && is_run_folder(folder))  // else it is somebody's
      for (const fs::path& part : parts_of_run(folder)) fs::remove_all(part);
  }
  make_folder(folder.string());
  write_file((folder / kGraph).string(), graph);
  if (facts.ended) write_safetensors((folder / kState).string(), session.state());
  write_file((folder / kRecord).string(), record);
}

std::optional<fs::path> find_run_state(const fs::path& folder) { return state_of(read_run_facts(folder), folder); }
fs::path run_state(const fs::path& folder) { return need_state(read_run_facts(folder), folder); }

RunFolder read_run_folder(const fs::path& folder, const Library& library, const fs::path& state) {
  RunFacts facts = read_run_facts(folder);
  const std::string file = (folder / kGraph).string();
  std::error_code error;
  if (!fs::exists(file, error)) throw UserError(fmt::format("{}: has no {}; name the net or graph in its place, and --state {}", folder.string(), kGraph, (folder / kState).string()));
  RunFolder out{.graph = without_training(read_graph(read_file(file), file, library.ops))};
  out.state = state.empty() ? need_state(facts, folder) : state;
  out.weights = weights_of(out.graph, read_weights(out.state.string()), facts.averages);
  for (NodeId id : out.graph.variables())
    if (const Node& n = out.graph.node(id); n.attributes.flag("trainable") && !out.weights.contains(n.name)) throw UserError(fmt::format("{}: lacks the variable '{}' of {}", out.state.string(), n.name, file));
  out.classes = std::move(facts.classes);
  out.features = std::move(facts.features);
  out.pixels = facts.pixels;
  return out;
}

}  // namespace belfry
