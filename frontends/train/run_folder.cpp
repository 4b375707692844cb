#include <belfry/frontends/train/run_folder.h>

#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/state/checkpoint.h>
#include <belfry/frontends/train/checkpoints.h>
#include <belfry/graph/rewrite.h>
#include <belfry/ops/optimizer/optimizer.h>

namespace belfry {
namespace {

namespace fs = std::filesystem;

JsonDocument record_of(const fs::path& folder) {
  const fs::path file = folder / "run.json";
  if (!is_run_folder(folder)) throw UserError(fmt::format("{}: no folder of a run: it has no run.json; belfry train --out makes one", folder.string()));
  return JsonDocument(read_file(file), file.string());
}

fs::path state_of(const JsonDocument& record, const fs::path& folder) {
  const JsonValue& run = record.object(record.root());
  if (const JsonValue* ended = run.find("state")) return folder / record.text(*ended);
  std::error_code error;
  if (const JsonValue* checkpoints = run.find("checkpoints")) {
    const fs::path dir = (folder / record.text(*checkpoints)).lexically_normal();
    if (fs::exists(best_checkpoint(dir), error)) return best_checkpoint(dir);
    if (const auto latest = latest_checkpoint(dir)) return *latest;
  }
  if (fs::exists(folder / "state.safetensors", error)) return folder / "state.safetensors";
  throw UserError(fmt::format("{}: its training has not ended, and has no checkpoint: there are no weights yet", folder.string()));
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

}  // namespace

bool is_run_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "run.json", error);
}

fs::path run_state(const fs::path& folder) { return state_of(record_of(folder), folder); }

RunFolder read_run_folder(const fs::path& folder, const Library& library, const fs::path& state) {
  const JsonDocument record = record_of(folder);
  const JsonValue& run = record.object(record.root());
  const std::string file = (folder / "graph.json").string();
  std::error_code error;
  if (!fs::exists(file, error)) throw UserError(fmt::format("{}: has no graph.json; name the net or graph in its place, and --state {}", folder.string(), (folder / "state.safetensors").string()));
  RunFolder out{.graph = without_training(read_graph(read_file(file), file, library.ops))};
  out.state = state.empty() ? state_of(record, folder) : state;
  const JsonValue* averages = run.find("averages");
  out.weights = weights_of(out.graph, read_weights(out.state.string()), averages && record.flag(*averages));
  for (NodeId id : out.graph.variables())
    if (const Node& n = out.graph.node(id); n.attributes.flag("trainable") && !out.weights.contains(n.name)) throw UserError(fmt::format("{}: lacks the variable '{}' of {}", out.state.string(), n.name, file));
  if (const JsonValue* names = run.find("classes"))
    for (const JsonValue& name : record.array(*names)) out.classes.push_back(record.text(name));
  if (const JsonValue* pixels = run.find("pixels")) out.pixels = pixels_of(record, *pixels);
  return out;
}

std::string pixels_text(const Pixels& p) {
  std::string out = p.rescale.standardised ? "\"standardise\": true" : fmt::format("\"scale\": {}, \"offset\": {}", json_real(p.rescale.scale), json_real(p.rescale.offset));
  if (p.antialias) out += ", \"antialias\": true";
  if (p.resized) out += fmt::format(", \"resized\": {}", p.resized);
  return "{" + out + "}";
}

}  // namespace belfry
