// Built gradients against central differences, in f64.
#pragma once

#include <cmath>
#include <functional>

#include <belfry/graph/gradients.h>

#include "interpreter.h"
#include "nets.h"

namespace belfry::test {

/// The largest difference, relative to 1 + |numeric|, over all elements of all variables that `build` makes (f64).
inline double gradient_error(const std::function<Value(Builder&)>& build, double step = 1e-5) {
  Builder b("check");
  Value loss = build(b);
  Graph& g = b.graph();
  std::vector<NodeId> variables = g.variables();
  std::vector<ValueId> wanted;
  for (NodeId v : variables) wanted.push_back({v, 0});
  std::vector<Value> built = gradients(g, {loss.id}, wanted);
  Tensors state = state_for(g);
  std::vector<std::pair<std::string, ValueId>> fetches = {{"loss", loss.id}};
  for (std::size_t i = 0; i < built.size(); ++i) fetches.emplace_back(g.node(variables[i]).name, built[i].id);
  Tensors got = run_whole(g, {}, state, 1, fetches).fetched;
  double worst = 0;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::string& name = g.node(variables[i]).name;
    for (std::size_t k = 0; k < state.at(name).data<double>().size(); ++k) {
      auto loss_at = [&](double offset) {
        Tensors moved = state;
        moved.at(name).data<double>()[k] += offset;
        return run_whole(g, {}, moved, 1, {{"loss", loss.id}}).fetched.at("loss").item<double>();
      };
      double numeric = (loss_at(step) - loss_at(-step)) / (2 * step);
      worst = std::max(worst, std::abs(numeric - got.at(name).data<double>()[k]) / (1 + std::abs(numeric)));
    }
  }
  return worst;
}

/// One op on host tensors, by its reference; all outputs.
inline std::vector<HostTensor> reference_of(const std::string& op, const std::vector<HostTensor>& inputs, const Attributes& attributes = {}) {
  Builder b("one");
  std::vector<Value> values;
  Tensors feeds;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Shape shape(inputs[i].shape().begin(), inputs[i].shape().end());
    values.push_back(b.input("x" + std::to_string(i), inputs[i].dtype(), shape));
    feeds.emplace("x" + std::to_string(i), inputs[i]);
  }
  Value y = b.graph().add(op, values, attributes);
  std::vector<std::pair<std::string, ValueId>> fetches;
  std::size_t outputs = b.graph().node(y.id.node).types.size();
  for (std::size_t k = 0; k < outputs; ++k) fetches.emplace_back(std::to_string(k), y.output(static_cast<int>(k)).id);
  Tensors got = run_whole(b.graph(), feeds, {}, 1, fetches).fetched;
  std::vector<HostTensor> out;
  for (std::size_t k = 0; k < outputs; ++k) out.push_back(got.at(std::to_string(k)));
  return out;
}

}  // namespace belfry::test
