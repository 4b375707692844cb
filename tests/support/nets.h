// Small nets chosen for their split states: nine whole ones and the places where the rules are easily got wrong.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <belfry/frontends/builder/builder.h>
#include <belfry/ops/passes/passes.h>

namespace belfry::test {

struct Net {
  std::string name;
  std::function<void(Builder&, DType)> build;  ///< adds losses by minimize and fetches by metric
  bool per_tower = false;                      ///< towers differ from the whole by meaning
};

const std::vector<Net>& nets();
const std::vector<Net>& probes();
const Net& net(const std::string& name);
/// Of all nets and probes but two_heads, which asks for devices by name.
std::vector<std::string> names_of_nets();

inline Graph built(const std::string& name, DType dtype = f32) {
  Builder b(name);
  net(name).build(b, dtype);
  return std::move(b).build();
}

/// Built, differentiated, simplified.
Graph training_graph(const Net& net, DType dtype = f64);

/// Feeds and initial state that suit any net here, by name: labels and indices in range, weights positive.
std::map<std::string, HostTensor> feeds_for(const Graph& graph, std::int64_t batch, std::uint64_t seed = 0);
std::map<std::string, HostTensor> state_for(const Graph& graph, std::uint64_t seed = 0);
/// Metrics and gradients by name ("gradient of w").
std::vector<std::pair<std::string, ValueId>> fetches_of(const Graph& graph);

}  // namespace belfry::test
