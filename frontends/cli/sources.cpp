#include <belfry/frontends/cli/common_internal.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/frontends/data/pictures.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/known_kernels.h>
#include <belfry/frontends/train/run_folder.h>
#include <belfry/ops/optimizer/optimizer.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

/// The reader of files knows no optimizers: what it cannot say is said here.
void check_optimizer(const Graph& graph, const std::string& file) {
  if (!graph.train) return;
  try {
    training_options(*graph.train);
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: /train/optimizer: {}", file, e.what()));
  }
}

/// What stands behind the name in "mobilenet_v2:alpha=0.35,image=96". The net itself refuses the names that it has not.
Settings settings_of(const std::string& what, const NetDef& net) {
  Settings out;
  for (const auto& [name, text] : named_values(what, "a net's settings are NAME=NUMBER")) {
    double value = 0;
    const char *first = text.data(), *last = first + text.size();
    const auto [end, error] = std::from_chars(first, last, value);
    if (net.settings.contains(name) && (end != last || error != std::errc())) throw WrongUse(fmt::format("'{}': '{}={}' has no number that a double can be", what, name, text));
    out.emplace(name, value);
  }
  return out;
}

/// Of a run's folder.
std::string graph_file(const std::string& folder) { return (std::filesystem::path(folder) / "graph.json").string(); }

}  // namespace

std::optional<std::string> source_text(const std::string& what) {
  const std::string name = what.substr(0, what.find(':'));
  for (const NetDef& n : standard_nets())
    if (n.name == name) return {};
  if (std::error_code error; std::filesystem::is_directory(what, error)) {
    if (!is_run_folder(what)) {
      refuse_closed(what);
      throw UserError(fmt::format("{}: is a folder, and no run's: it has no run.json; name a net, a graph file, a plan file or what belfry train --out wrote", what));
    }
    return read_file(graph_file(what));
  }
  if (name.find('.') == name.npos && name.find('/') == name.npos) net_named(name);  // neither a net nor a file: says which nets there are
  if (name.ends_with(".onnx")) throw UserError(fmt::format("{}: is an ONNX file, which is not read: write the net with Builder or as a graph file (docs/from_pytorch.md), and its weights by name as .safetensors or .npz", what));
  if (is_picture(what)) throw UserError(fmt::format("{}: is a picture, and no net: belfry predict NET --feed {} takes it", what, what));
  for (const char* values : {".safetensors", ".npz", ".npy"})
    if (name.ends_with(values)) throw UserError(fmt::format("{}: holds values, and no net: name the net, graph or run that they are of, and give them as --state (variables) or --feed (inputs)", what));
  return read_file(what);
}

Source load_source(const std::string& what, const Library& library) { return load_source(what, source_text(what), library); }

Source load_source(const std::string& given, const std::optional<std::string>& file, const Library& library) {
  const bool run = file && is_run_folder(given);
  const std::string what = run ? graph_file(given) : given;
  if (!file) {
    const NetDef& net = net_named(what.substr(0, what.find(':')));
    return {made_of_options([&] { return std::make_shared<const Graph>(net.build(library.ops, settings_of(what, net))); }), nullptr};
  }
  const std::string& text = *file;
  if (!JsonDocument(text, what).root().find("plan")) {
    Source out;
    auto graph = std::make_shared<Graph>(read_graph(text, what, library.ops, {}, &out.state));
    if (!graph->size()) throw UserError(fmt::format("{}: the graph is empty: it has no \"inputs\", no \"variables\" and no \"nodes\"; belfry convert mnist_cnn shows one that has", what));
    check_optimizer(*graph, what);
    out.graph = std::move(graph);
    out.file = what;
    if (!out.state.empty()) out.state = (std::filesystem::path(what).parent_path() / out.state).string();
    if (run) {
      out.run = given;
      out.state = find_run_state(given).value_or("").string();
    }
    return out;
  }
  auto plan = std::make_shared<const PlacedGraph>(read_plan(text, what, library.ops));
  return {.graph = plan->graph, .plan = plan, .file = what};
}

void load_states(Session& session, const Source& source, const std::string& file) {
  auto load = [&](const std::string& path, const std::string& who) {
    try {
      State state = load_tensors(path);
      if (const Graph& g = session.graph(); source.plan && g.updates.empty()) {  // a plan that serves
        const bool averages = std::any_of(state.begin(), state.end(), [&](const auto& one) { return state.contains(average_of(one.first)); });
        if (averages) say(fmt::format("{} '{}' has moving averages of the variables too: it is the variables that serve; belfry predict takes a run's folder, and then what the run evaluated\n", who, path));
        const std::vector<std::string> weights = weight_names(g);
        std::erase_if(state, [&](const auto& one) { return g.find_node(one.first) < 0 && is_of_training(g, one.first, weights); });
      }
      // Slots of another optimizer, of a graph that is trained otherwise here.
      std::string slot;
      const Graph& trained = session.training_graph();
      const std::vector<std::string> weights = weight_names(session.graph());
      const std::size_t passed = std::erase_if(state, [&](const auto& one) {
        const bool other = trained.find_node(one.first) < 0 && is_of_training(session.graph(), one.first, weights);
        if (other && slot.empty()) slot = one.first;
        return other;
      });
      if (passed) say(fmt::format("{} '{}' has {} tensor{} of another training, which {} passed over: {}{}\n", who, path, passed, passed == 1 ? "" : "s", passed == 1 ? "is" : "are", slot, passed == 1 ? "" : ", …"));
      session.load_state(state);
      std::vector<std::string> left;
      for (NodeId id : session.graph().variables())
        if (const Node& n = session.graph().node(id); n.attributes.flag("trainable") && !state.contains(n.name)) left.push_back(n.name);
      if (!left.empty()) say(fmt::format("{} '{}' lacks {} of the variables that are trained, which keep the values that they had: {}{}\n", who, path, left.size(), left[0], left.size() > 1 ? ", …" : ""));
    } catch (const UserError& e) {
      throw UserError(std::string_view(e.what()).starts_with(path) ? fmt::format("{} {}", who, e.what()) : fmt::format("{} '{}': {}", who, path, e.what()));
    }
  };
  if (!source.run.empty() && source.state.empty() && file.empty()) run_state(source.run);  // says why there are none
  if (!source.state.empty()) load(source.state, "the state that the graph's file names,");
  if (!file.empty()) load(file, "--state");
}

void say_initial(const Session& session, const Source& source, const std::string& file) {
  if (!file.empty() || !source.state.empty()) return;
  const Graph& g = session.graph();
  const std::vector<NodeId> variables = g.variables();  // of them step and seed are whole numbers
  if (std::none_of(variables.begin(), variables.end(), [&](NodeId id) { return is_float(g.node(id).types[0].dtype); })) return;
  const std::string run = std::filesystem::path(source.file).parent_path().string();
  say(fmt::format("the variables have their initial values: no --state was given{}\n", source.file.empty() || !is_run_folder(run) || !find_run_state(run) ? "" : fmt::format("; those of the run that {} lies in are in {}", source.file, find_run_state(run)->string())));
}

void refuse_objections(const std::vector<std::string>& found, const std::string& file) {
  if (!found.empty()) throw UserError(fmt::format("{} does not hold: {}\nderive what follows from its decisions:  belfry place {} -o {}", file, fmt::join(found, "\n  "), file, file));
}

void refuse_broken(const Source& source, const std::string& file, const Library& library) {
  if (!source.plan) return;
  refuse_objections(verify(*source.plan, library.kernels), file);
  if (std::string hash = arithmetic_hash(*source.plan); hash != source.plan->arithmetic_hash)
    say(fmt::format("{}: its arithmetic hash is {}, but the file says {}: it was edited, or made by another version\n", file, hash, source.plan->arithmetic_hash));
  const HostFacts host = host_facts();
  auto say_other = [&](const std::string& there, const std::string& here, const char* what) {
    if (!there.empty() && there != here) say(fmt::format("{}: {} '{}' where it was made, '{}' here: bits may differ\n", file, what, there, here));
  };
  say_other(source.plan->isa, isa_text(host), "instruction set");
  say_other(source.plan->libraries, libraries_text(host), "libraries");
}

}  // namespace belfry
