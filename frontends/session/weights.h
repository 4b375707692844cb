// The variables that are a model's, apart from those of its training, and what of other arrays fits them by name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <belfry/graph/graph.h>
#include <belfry/graph/host_tensor.h>

namespace belfry {

/// Values of variables by name: weights, slots, step counter and seed, or some of them.
using State = std::map<std::string, HostTensor>;

struct LoadWeights {
  bool strict = true;  ///< each weight must be given and each array must be one; else what is there is taken by name
};

/// Names that a load without `strict` passed over.
struct LoadedWeights {
  std::vector<std::string> missing;  ///< weights that keep their values
  std::vector<std::string> unknown;  ///< arrays that are no weight of this graph
};

/// Whether a step changes what is to be trained. Statistics of batch norm are updated without a loss too; a graph that has nothing to train may count.
bool trains(const Graph& graph);

/// Trained and kept variables alike, batch norm's moving averages among them; no slots, moving averages of variables, step, seed or loss scale.
std::vector<std::string> weight_names(const Graph& graph);

/// Whether a training of the graph keeps a value of this name beside its `weights` (`weight_names`): by this optimizer or another.
bool is_of_training(const Graph& graph, const std::string& name, const std::vector<std::string>& weights);

/// "; did you mean head/kernel?" for "head.weight", a name as PyTorch has it, else the names nearest to one that is misspelt.
std::string nearest_variables(const std::string& name, const std::vector<std::string>& known);

/// The arrays of `given` that are weights of the graph. What a training keeps beside them, of any optimizer, is left out without a word. UserError, all
/// names at once, for weights of another type and, if strict, for what is missing and what is unknown; also where no weight is among them.
State fitting_weights(const Graph& graph, const State& given, const LoadWeights& how, LoadedWeights* passed_over = nullptr);

/// UserError, all names at once, for values of what is no variable, or of another type.
void check_state(const Graph& graph, const State& state);

/// What a safetensors file or a .npz holds.
State read_weights(const std::string& file);

}  // namespace belfry
