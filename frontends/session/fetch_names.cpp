#include <belfry/frontends/session/fetch_names.h>

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/graph/error.h>
#include <belfry/graph/plan/tower_graph.h>

namespace belfry {

std::vector<std::string> loss_names(const Graph& graph) {
  const std::vector<ValueId>& losses = graph.train ? graph.train->losses : graph.losses;
  const auto alias = graph.aliases.find("loss");
  if (losses.size() == 1 && alias != graph.aliases.end() && alias->second == losses[0] && graph.find_node("loss") < 0 && !graph.metrics.contains("loss")) return {"loss"};
  std::vector<std::string> out;
  for (ValueId v : losses) out.push_back(graph.name_of(v));
  return out;
}

namespace {

/// The gradient of a variable is the input of that name of its update.
std::optional<ValueId> gradient_of(const Graph& g, const std::string& name) {
  const std::string prefix = "gradient/";
  if (!name.starts_with(prefix)) return {};
  NodeId variable = g.find_node(name.substr(prefix.size()));
  auto update = g.updates.find(variable);
  if (variable < 0 || update == g.updates.end()) return {};
  const Node& n = g.node(update->second.node);
  for (std::size_t i = 0; i < n.op->inputs.size(); ++i)
    if (n.op->inputs[i].name == "gradient") return n.inputs[i];
  return {};
}

/// "gradient/w" for what others call "gradient of w", "w.grad" or "grad/w".
std::string as_gradient(const Graph& g, std::string name) {
  for (const char* before : {"gradient of ", "grad/"})
    if (name.starts_with(before)) name.erase(0, std::string_view(before).size());
  for (const char* behind : {".grad", "/grad", "/gradient"})
    if (name.ends_with(behind)) name.resize(name.size() - std::string_view(behind).size());
  return gradient_of(g, "gradient/" + name) ? "gradient/" + name : "";
}

/// The names nearest to one that is none, else those that are fetched most.
std::string fetches_there(const Graph& g, const std::string& name) {
  if (const std::string gradient = as_gradient(g, name); !gradient.empty()) return fmt::format("; did you mean {}?", gradient);
  const std::vector<std::string> losses = loss_names(g);
  std::vector<std::string> metrics, outputs, known = losses;
  for (const auto& [metric, v] : g.metrics) metrics.push_back(metric);
  for (ValueId v : g.outputs) outputs.push_back(g.name_of(v));
  known.insert(known.end(), metrics.begin(), metrics.end());
  for (const Node& n : g.nodes())
    if (std::find(known.begin(), known.end(), n.name) == known.end()) known.push_back(n.name);
  if (std::string near = did_you_mean(name, known); !near.empty()) return near;
  std::string out;
  for (const auto& [what, names] : {std::pair("losses", &losses), {"metrics", &metrics}, {"outputs", &outputs}})
    if (!names->empty()) out += fmt::format("{} {} {}", out.empty() ? "; it has the" : ", the", what, fmt::join(*names, ", "));
  return out;
}

}  // namespace

ValueId value_to_fetch(const Graph& g, std::string name) {
  if (name.ends_with(kTowersSuffix)) name.resize(name.size() - std::string_view(kTowersSuffix).size());
  if (auto metric = g.metrics.find(name); metric != g.metrics.end()) return metric->second;
  if (auto v = g.find(name)) return *v;
  if (auto v = gradient_of(g, name)) return *v;
  throw UserError(fmt::format("there is no value '{}' to fetch in the graph '{}'{}; belfry show lists all, and what passes leave out stays where it is an output", name, g.name, fetches_there(g, name)));
}

}  // namespace belfry
