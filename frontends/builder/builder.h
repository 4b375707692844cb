// The C++ way to a graph: inputs, variables, scopes, losses, metrics and updates around the free functions of Values.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include <belfry/frontends/builder/optimizers.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/build.h>

namespace belfry {

/// Any of them: its kind and options as files have them.
struct Optimizer {
  Optimizer(const Sgd& o);
  Optimizer(const Momentum& o);
  Optimizer(const Adam& o);
  Optimizer(const AdamW& o);
  Optimizer(const Adamax& o);
  Optimizer(const Rmsprop& o);
  Optimizer(const Adafactor& o);
  Optimizer(const Adagrad& o);
  Optimizer(const Adadelta& o);
  Optimizer(const Ftrl& o);
  Optimizer(const Lion& o);
  Optimizer(const Lamb& o);
  std::string kind;
  Rate learning_rate;
  Attributes options;
};

/// What is done with gradients before the update, and with variables behind it. At most one of the three clips.
struct MinimizeOptions {
  double clip_norm = 0;           ///< all gradients together are held to this global norm; 0: they are not
  double clip_each_norm = 0;      ///< each gradient to this norm
  double clip_value = 0;          ///< each element to ± this
  std::string no_decay = {};      ///< variables that weight_decay leaves alone: patterns as in placement files, "**/bias, embedding/*"
  double average_decay = 0;       ///< not 0: a moving average of each variable that is trained, called w/ExponentialMovingAverage
  bool average_by_step = false;   ///< its decay is at most (1 + s)/(10 + s) at step s = 1, 2, …: TensorFlow's num_updates
  bool skip_nonfinite = false;    ///< a step with a gradient that is infinite or NaN changes no state
  double loss_scale = 0;          ///< gradients are taken of so many times the loss, and divided by it: what is small in f16 is kept. 0: 2^15 and 2000 steps with f16, else 1
  int loss_scale_steps = 0;       ///< the scale doubles after so many steps with finite gradients, and halves at any other; 0: it is constant
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

  /// Losses are scalars; those of several calls are added, with one optimiser and the same options. UserError for options that contradict each other.
  void minimize(Value loss, const Optimizer& optimizer, const MinimizeOptions& options = {});
  /// factor·Σ w²/2 over the trainable variables whose names match (patterns as in placement files, between commas): a term of the loss. UserError
  /// for a pattern that names none.
  Value l2_penalty(const std::string& variables, double factor, SourceLine at = SourceLine::here());
  /// A scalar's mean over batches is by their rows. UserError for a name that a metric has. A value that is no scalar can be fetched by the name, but `fit` and
  /// `evaluate` refuse it, and a metric by the name of a loss that it is not.
  void metric(const std::string& name, Value value);
  /// numerator / denominator, both sums over the batch, or 0 where that is 0; over batches it is the sum of the numerators by that of the denominators. The
  /// denominator is the metric "name/weight".
  void metric(const std::string& name, Value numerator, Value denominator);
  void output(Value value);
  /// The same by this name: of the value itself where it has it, else of an identity of it.
  void output(const std::string& name, Value value);
  /// bf16 or f16: products and what follows them are computed on halves (the pass mixed_precision); variables and updates stay f32. tf32: GPUs may round what they multiply to TF32. UserError for other dtypes but f32.
  void precision(const GraphPrecision& precision);
  /// A bool scalar: where it is false, the step keeps all state, its counter included. Several gates must all be open.
  void gate(Value condition);
  /// The variable's value after the step. UserError for another type, or a second update.
  void update(Value variable, Value value);

  /// UserError for a builder that is spent: `build` was called, or it was moved from.
  Graph& graph();
  /// The finished graph; the builder is spent, and its Values with it.
  Graph build() &&;

 private:
  /// The graph, of which each of these is a Value: UserError for others, and for empty ones.
  Graph& graph_with(const char* function, std::initializer_list<Value> values);
  std::unique_ptr<Graph> graph_;
};

/// The step counter and the seed of a graph, made on first use: what layers that draw random values need.
Value step_of(Graph& graph);
Value seed_of(Graph& graph);

}  // namespace belfry
