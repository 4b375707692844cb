#include "nets.h"

#include <random>

namespace belfry::test {

std::map<std::string, HostTensor> feeds_for(const Graph& graph, std::int64_t batch, std::uint64_t seed) {
  std::mt19937_64 rng(seed * 7919 + 1);
  std::normal_distribution<double> normal;
  const std::map<std::string, std::int64_t> tops = {{"label", 5}, {"label3", 3}, {"ids", 11}, {"word", 11}, {"row", batch}};
  std::map<std::string, HostTensor> out;
  for (NodeId id : graph.inputs()) {
    const Node& n = graph.node(id);
    HostTensor t(n.types[0].dtype, extents_of(n.types[0].shape, batch));
    auto top = tops.find(n.name);
    visit_dtype(t.dtype(), [&]<class T>() {
      for (T& x : t.data<T>())
        x = static_cast<T>(top != tops.end() ? static_cast<double>(rng() % static_cast<std::uint64_t>(top->second)) : n.name == "weight" ? 0.1 + static_cast<double>(rng() % 100) / 100 : normal(rng));
    });
    out.emplace(n.name, std::move(t));
  }
  return out;
}

std::map<std::string, HostTensor> state_for(const Graph& graph, std::uint64_t seed) {
  std::map<std::string, HostTensor> out;
  for (NodeId id : graph.variables()) out.emplace(graph.node(id).name, initial_value(graph.node(id), seed + 42));
  return out;
}

std::vector<std::pair<std::string, ValueId>> fetches_of(const Graph& graph) {
  std::vector<std::pair<std::string, ValueId>> out(graph.metrics.begin(), graph.metrics.end());
  for (const auto& [variable, v] : graph.updates) {
    const Node& update = graph.node(v.node);
    for (std::size_t i = 0; i < update.op->inputs.size(); ++i)
      if (update.op->inputs[i].name == "gradient" && v.output == 0) out.emplace_back("gradient of " + graph.node(variable).name, update.inputs[i]);
  }
  return out;
}

}  // namespace belfry::test
