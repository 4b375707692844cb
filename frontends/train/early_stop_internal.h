// When training ends by itself: one metric of the epochs, and which of them was the best.
#pragma once

#include <cstdint>
#include <string>

#include <belfry/frontends/train/fit.h>
#include <belfry/graph/graph.h>

namespace belfry {

class EarlyStop {
 public:
  /// Does nothing without a patience. UserError for a metric that an epoch does not have, or whose better direction is not known.
  EarlyStop(const Graph& graph, const FitOptions& options);
  /// An epoch has ended: whether it is the best so far. Never for a value that is no number.
  bool best(std::int64_t epoch, const Metrics& metrics);
  bool over() const { return patience_ && waited_ >= patience_; }
  /// Whether an epoch was the best at all.
  bool any() const { return best_epoch_ >= 0; }
  /// "val_loss was not better for 3 epochs; the variables are those of epoch 5, with 0.1234".
  std::string text() const;
  /// Among the notes of a checkpoint; `take` goes on from them, where they are of the same metric.
  void note(TextMap& notes) const;
  void take(const TextMap& notes);

 private:
  std::string metric_;
  bool high_ = false;  ///< the higher, the better
  int patience_ = 0, waited_ = 0;
  std::int64_t best_epoch_ = -1;
  double best_ = 0;
};

}  // namespace belfry
