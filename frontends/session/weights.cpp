#include <belfry/frontends/session/weights.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/frontends/state/npy.h>
#include <belfry/frontends/state/safetensors.h>
#include <belfry/ops/optimizer/optimizer.h>
#include <belfry/ops/passes/optimizer_kinds.h>

namespace belfry {

namespace {

constexpr std::size_t kMostListed = 6;

bool is_weight(const Node& n) {
  if (n.of >= 0 || n.role == Role::update) return false;  // slots, averages, and what the optimizer counts
  const bool counts = n.name == "step" && n.types[0].dtype == i64 && !n.attributes.flag("trainable");
  return !counts && n.attributes.text("init") != "seed";
}

}  // namespace

bool is_of_training(const Graph& graph, const std::string& name, const std::vector<std::string>& weights) {
  auto is_one = [&](const std::string& w) { return std::binary_search(weights.begin(), weights.end(), w); };
  if (NodeId id = graph.find_node(name); id >= 0 && graph.node(id).op->name == kVariable) return true;
  if (name == "step" || name == "seed" || name == "loss_scale" || name == "loss_scale/good_steps") return true;
  if (const std::string w = averaged_by(name); w != name && is_one(w)) return true;
  const std::size_t slash = name.find('/'), slot = name.rfind('_', slash);
  return slash != name.npos && slot != name.npos && is_slot_prefix(name.substr(0, slot)) && is_one(name.substr(slash + 1));
}

namespace {

std::string listed(const std::vector<std::string>& items, const char* between) {
  const std::size_t shown = std::min(items.size(), kMostListed);
  std::string out = fmt::format("{}", fmt::join(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shown), between));
  return shown < items.size() ? fmt::format("{}{}and {} more", out, between, items.size() - shown) : out;
}

LocalType type_of(const Graph& graph, const std::string& variable) { return local_type(graph.node(graph.find_node(variable)).types[0], 1); }

/// How values of the same shape become those of the variable.
std::string conversion(const LocalType& variable, const LocalType& given) {
  return variable.shape != given.shape ? "" : fmt::format("; converted(tensor, {0}), or numpy's astype, makes it {0}", name_of(variable.dtype));
}

/// What PyTorch calls a weight, by the names that it may have here: "head.weight" is head/kernel, or of a norm head/gamma.
std::string translated(std::string name, const std::vector<std::string>& known) {
  static constexpr std::pair<const char*, const char*> kNames[] = {{"weight", "kernel"}, {"weight", "gamma"}, {"bias", "bias"}, {"bias", "beta"},
                                                                   {"running_mean", "moving_mean"}, {"running_var", "moving_variance"}};
  std::replace(name.begin(), name.end(), '.', '/');
  const std::size_t slash = name.rfind('/'), from = slash == name.npos ? 0 : slash + 1;
  for (const auto& [theirs, ours] : kNames)
    if (std::string here = name.substr(0, from) + ours; name.substr(from) == theirs && std::find(known.begin(), known.end(), here) != known.end()) return here;
  return {};
}

}  // namespace

std::string nearest_variables(const std::string& name, const std::vector<std::string>& known) {
  if (const std::string here = translated(name, known); !here.empty()) return fmt::format("; did you mean {}?", here);
  return did_you_mean(name, known);
}

bool trains(const Graph& graph) {
  const std::vector<NodeId> variables = graph.variables();
  auto trainable = [&](NodeId id) { return graph.node(id).attributes.flag("trainable"); };
  if (std::none_of(variables.begin(), variables.end(), trainable)) return !graph.updates.empty();
  return std::any_of(variables.begin(), variables.end(), [&](NodeId id) { return trainable(id) && graph.updates.contains(id); });
}

std::vector<std::string> weight_names(const Graph& graph) {
  std::vector<std::string> out;
  for (NodeId id : graph.variables())
    if (is_weight(graph.node(id))) out.push_back(graph.node(id).name);
  std::sort(out.begin(), out.end());
  return out;
}

State fitting_weights(const Graph& graph, const State& given, const LoadWeights& how, LoadedWeights* passed_over) {
  const std::vector<std::string> names = weight_names(graph);
  State out;
  LoadedWeights left;
  std::vector<std::string> unlike, hints;
  std::string how_to;
  for (const std::string& name : names)
    if (!given.contains(name)) left.missing.push_back(name);
  for (const auto& [name, value] : given) {
    if (!std::binary_search(names.begin(), names.end(), name)) {
      if (is_of_training(graph, name, names)) continue;
      left.unknown.push_back(name);
      hints.push_back(name + nearest_variables(name, left.missing));
      continue;
    }
    if (const LocalType type = type_of(graph, name); type == value.type()) out.emplace(name, value);
    else {
      unlike.push_back(fmt::format("{} is {}, but {} in what is given", name, to_string(type), to_string(value.type())));
      if (how_to.empty()) how_to = conversion(type, value.type());
    }
  }
  std::vector<std::string> why;
  if (how.strict && !left.missing.empty()) why.push_back(fmt::format("missing: {}", listed(left.missing, ", ")));
  if (how.strict && !left.unknown.empty()) why.push_back(fmt::format("unknown: {}", listed(hints, ", ")));
  if (!unlike.empty()) why.push_back(fmt::format("of another type: {}{}", listed(unlike, ", "), how_to));
  if (why.empty() && out.empty() && !names.empty()) why.push_back(fmt::format("none of the {} arrays is one of its {} weights ({}, …)", given.size(), names.size(), names[0]));
  if (!why.empty())
    throw UserError(fmt::format("the weights do not fit the graph '{}'; {}{}", graph.name, fmt::join(why, "; "), how.strict && unlike.empty() && !out.empty() ? "; {.strict = false} takes those that are there" : ""));
  if (passed_over) *passed_over = std::move(left);
  return out;
}

void check_state(const Graph& graph, const State& state) {
  std::vector<std::string> names, wrong;
  std::string how_to;
  for (NodeId id : graph.variables()) names.push_back(graph.node(id).name);
  for (const auto& [name, value] : state) {
    if (std::find(names.begin(), names.end(), name) == names.end()) wrong.push_back(fmt::format("the graph has no variable '{}'{}", name, nearest_variables(name, names)));
    else if (LocalType type = type_of(graph, name); !(type == value.type())) {
      wrong.push_back(fmt::format("variable '{}' is {}, not {} as given", name, to_string(type), to_string(value.type())));
      if (how_to.empty()) how_to = conversion(type, value.type());
    }
  }
  if (wrong.empty()) return;
  const bool other = how_to.empty() && state.size() > 1 && wrong.size() == state.size();  // nothing in it fits
  throw UserError(listed(wrong, "; ") + how_to + (other ? fmt::format("; it is the state of another graph than '{}': take that graph, or a state that was saved of this one", graph.name) : ""));
}

State read_weights(const std::string& file) { return file.ends_with(".npz") ? read_npz(file) : read_safetensors(file); }

}  // namespace belfry
