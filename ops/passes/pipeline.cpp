#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

Graph gate_own_updates(const Graph& graph) { return graph.gate.valid() ? gate_updates(graph, graph.gate) : graph; }

}  // namespace

std::vector<Pass> inference_passes() {
  return {
      {"lower_means", lower_means, Stage::built},
      {"fold_pads", fold_pads, Stage::built},
      {"write_out_ops", write_out_ops, Stage::built},
      {"fold_constants", fold_constants, Stage::built},
      {"canonicalise", canonicalise, Stage::built},
      {"merge_common_subexpressions", merge_common_subexpressions, Stage::built},
      {"drop_dead_code", drop_dead_code, Stage::built},
      {"mixed_precision", mixed_precision, Stage::built},
      {"order_nodes", order_nodes, Stage::built},
  };
}

std::vector<Pass> training_passes() {
  return {
      {"lower_means", lower_means, Stage::built},              // before gradients: combine is about the losses' means
      {"fold_pads", fold_pads, Stage::built},                  // before gradients, which follow
      {"differentiate", differentiate, Stage::differentiated},
      {"gate_updates", gate_own_updates, Stage::differentiated},
      {"write_out_ops", write_out_ops, Stage::differentiated},  // after gradients: from its parts, one gradient would be two aggregates
      {"fold_constants", fold_constants, Stage::simplified},    // before canonicalise, which looks for constants
      {"canonicalise", canonicalise, Stage::simplified},
      {"merge_common_subexpressions", merge_common_subexpressions, Stage::simplified},
      {"drop_dead_code", drop_dead_code, Stage::simplified},    // behind the others: they leave nodes behind
      {"drop_shifts", drop_shifts, Stage::simplified},          // without dead readers of what it drops
      {"fold_slopes", fold_slopes, Stage::simplified},          // with no other reader of what it folds
      {"mixed_precision", mixed_precision, Stage::simplified},  // after gradients, so that those of variables are f32, and without dead readers
      {"order_nodes", order_nodes, Stage::simplified},
  };
}

}  // namespace belfry
