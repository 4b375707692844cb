// Passes that speak of particular ops, and the order in which all passes run.
#pragma once

#include <belfry/graph/passes/pass.h>

namespace belfry {

/// Every reduce_mean over rows becomes a sum and a count. A mean that a loss reads through add, sub, add_n, neg and scaling
/// by constants becomes reduce_sum(x·row_weight), which `combine` decides about; any other reduce_sum(x)/row_count.
Graph lower_means(const Graph& graph);
/// Zeros around pictures that convolutions alone read become their `pads`; of maxima, where pictures come from relu or relu6, or the padding is of −inf.
Graph fold_pads(const Graph& graph);
/// The short form of training becomes gradients, slots, the step counter and updates.
Graph differentiate(const Graph& graph);
/// UserError, of a graph that `differentiate` trains, for a node `step` that is the same in each step where the optimizer or its schedule reads the steps.
void refuse_steps_that_stand_still(const Graph& graph);
/// UserError, where there are updates, for a random op whose step is a variable that none of them changes (one by the variable itself, by a constant or by
/// what stands still counts as none), while its seed stays too: it would draw the same in each step. A step that reads no variable is meant so.
void refuse_draws_that_repeat(const Graph& graph);
/// Every update becomes where(gate, new value, old value): a gate that is false keeps all state, bit for bit. `gate`: a
/// bool scalar of the graph; UserError for another type.
Graph gate_updates(const Graph& graph, ValueId gate);
/// x + 0, x·1, reshape to the same shape, a cast to the same dtype, a sum of one: the value itself. The gradients of all parts
/// of a split, each in zeros of its own, and added: the parts side by side.
Graph canonicalise(const Graph& graph);

/// Of a graph with gradients, what batch norms take away: in front of one, the addition of a bias that variables decide, one value a channel; and the sum over
/// rows of the dx of one, which is zero. Running means have the bias as before. What is asked for, or read besides, stays.
Graph drop_shifts(const Graph& graph);
/// Of a graph with gradients: that of a relu or relu6 behind a batch norm becomes part of the norm's, which alone reads it and makes y from x once more: within rounding of its edges another side may be taken. Norms with `sync` stay.
Graph fold_slopes(const Graph& graph);

/// Per node whether variables and constants alone decide what it gives: the same in each step between two updates of them.
std::vector<bool> of_variables(const Graph& graph);
/// Of a graph that trains nothing: a batch norm that alone reads a convolution becomes the scale of its filters and one addition, which takes up a bias between
/// them. Rounds otherwise than the norm. What is asked for, or read besides, stays.
Graph fold_norms(const Graph& graph);
/// The graph for inference, as for_inference, with its norms folded.
Graph for_serving(const Graph& graph, const std::vector<std::string>& outputs = {});

/// Where the graph's precision is bf16 or f16: products read and give halves, what follows them takes the dtype of what it reads, and all else, variables and
/// their gradients too, stays f32. One cast per value, with its readers' names unchanged; outputs, metrics and losses keep their types. Again, it changes nothing.
Graph mixed_precision(const Graph& graph);

/// The passes of a training graph, in order.
std::vector<Pass> training_passes();
/// The passes of a graph without updates.
std::vector<Pass> inference_passes();

/// The schema of an optimiser's options. UserError for an unknown kind.
const std::vector<AttributeDef>& optimizer_options(const std::string& kind);
/// All options of a short form, with their defaults. UserError for what no optimiser or schedule takes.
Attributes training_options(const TrainSpec& spec);

}  // namespace belfry
