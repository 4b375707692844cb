// The C++ way to a graph: inputs, variables, scopes, losses, metrics and updates around the free functions of Values.
#pragma once

#include <memory>
#include <string>

#include <belfry/ops/all_ops.h>
#include <belfry/ops/build.h>

namespace belfry {

/// Optimisers; fields are the options of their kind. A learning rate may be a scalar Value instead.
struct Sgd {
  double learning_rate = 0.01;
  Value rate = {};
  double clip_norm = 0;         ///< 0: gradients are not clipped by their global norm
  bool skip_nonfinite = false;  ///< a step with a gradient that is infinite or NaN changes no state
};
struct Momentum {
  double learning_rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
  Value rate = {};
  double clip_norm = 0;
  bool skip_nonfinite = false;
};
/// `powers`: how the bias correction is taken, "float32" as Keras 3 does or "exact".
struct Adam {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7;
  std::string powers = "float32";
  Value rate = {};
  double clip_norm = 0;
  bool skip_nonfinite = false;
};

/// Puts the cursor of a graph back when it goes.
class CursorGuard {
 public:
  CursorGuard(Graph& graph, Cursor before) : graph_(&graph), before_(std::move(before)) {}
  CursorGuard(CursorGuard&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)), before_(std::move(other.before_)) {}
  CursorGuard& operator=(CursorGuard&&) = delete;
  ~CursorGuard() {
    if (graph_) graph_->cursor = std::move(before_);
  }

 private:
  Graph* graph_;
  Cursor before_;
};

class Builder {
 public:
  /// With the standard ops, or a library's own set.
  explicit Builder(std::string name, std::shared_ptr<const OpSet> ops = nullptr);
  Builder(Builder&&) = default;
  Builder& operator=(Builder&&) = default;

  /// A named feed. Its first axis with the symbol `kBatch` are the rows.
  Value input(const std::string& name, DType dtype, Shape shape, SourceLine at = SourceLine::here());
  Value variable(const std::string& name, Shape shape, const VariableOptions& options = {}, SourceLine at = SourceLine::here());
  /// The number of finished steps, i64; counted by every optimiser.
  Value step(SourceLine at = SourceLine::here());
  /// The session's seed, i64: the key of all random draws.
  Value seed(SourceLine at = SourceLine::here());

  /// New nodes ask for this device while the guard lives.
  [[nodiscard]] CursorGuard device(const std::string& id);
  /// New names begin with `name/` while the guard lives.
  [[nodiscard]] CursorGuard scope(const std::string& name);

  /// Losses are scalars; those of several calls are added, with one optimiser.
  void minimize(Value loss, const Sgd& optimizer);
  void minimize(Value loss, const Momentum& optimizer);
  void minimize(Value loss, const Adam& optimizer);
  void metric(const std::string& name, Value value);
  void output(Value value);
  /// A bool scalar: where it is false, the step keeps all state, its counter included. Several gates must all be open.
  void gate(Value condition);
  /// The variable's value after the step. UserError for another type, or a second update.
  void update(Value variable, Value value);

  Graph& graph() { return *graph_; }
  /// The finished graph; the builder is spent.
  Graph build() &&;

 private:
  void train(Value loss, const std::string& optimizer, Attributes options, Value rate, bool skip_nonfinite);
  std::unique_ptr<Graph> graph_;
};

/// The step counter and the seed of a graph, made on first use: what layers that draw random values need.
Value step_of(Graph& graph);
Value seed_of(Graph& graph);

}  // namespace belfry
