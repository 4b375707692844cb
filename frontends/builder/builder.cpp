#include <belfry/frontends/builder/builder.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/glob.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

Value named_state(Graph& g, const std::string& name, const VariableOptions& options, SourceLine at) {
  if (NodeId id = g.find_node(name); id >= 0) return g.value({id, 0});
  CursorGuard guard(g, g.cursor);
  g.cursor.scope = {};
  return variable(g, name, {}, options, at);
}

/// The options that differ from a kind's defaults, in the order of files; the learning rate always, unless it is a value.
Attributes spoken(const Optimizer& o, const MinimizeOptions& m) {
  Attributes all = o.options, out;
  const Attributes common = {{"clip_norm", m.clip_norm}, {"clip_each_norm", m.clip_each_norm}, {"clip_value", m.clip_value}, {"no_decay", m.no_decay},
                             {"average_decay", m.average_decay}, {"average_by_step", m.average_by_step}, {"skip_nonfinite", m.skip_nonfinite},
                             {"loss_scale", m.loss_scale}, {"loss_scale_steps", m.loss_scale_steps}};
  for (const auto& [name, value] : common.entries()) all.set(name, value);
  if (!o.learning_rate.value) out.set("learning_rate", o.learning_rate.number);
  for (const AttributeDef& def : optimizer_options(o.kind))
    if (const AttributeValue* value = all.find(def.name); value && *value != *def.fallback) out.set(def.name, *value);
  return out;
}

/// Whether nobody gave it its name: that of its op, or with a number.
bool is_unnamed(const Node& n) {
  const std::string name = n.name.substr(n.name.rfind('/') + 1), &op = n.op->name;
  return name == op || (name.starts_with(op + "_") && name.find_first_not_of("0123456789", op.size() + 1) == name.npos);
}

}  // namespace

Value step_of(Graph& graph) { return named_state(graph, "step", {.dtype = i64, .trainable = false}, {}); }
Value seed_of(Graph& graph) { return named_state(graph, "seed", {.dtype = i64, .init = "seed", .trainable = false}, {}); }

Builder::Builder(std::string name, std::shared_ptr<const OpSet> ops) {
  if (!ops) ops = std::make_shared<const OpSet>(standard_ops());
  graph_ = std::make_unique<Graph>(std::move(ops), std::move(name));
}

Value Builder::input(const std::string& name, DType dtype, Shape shape, SourceLine at) {
  if (!shape.empty() && shape[0].factor < 0) throw UserError(fmt::format("[input] '{}' has the shape {}: write kBatch for the rows, {{kBatch, …}}", name, to_string(std::span<const Dim>(shape))));
  return belfry::input(graph(), name, dtype, std::move(shape), at);
}
Value Builder::variable(const std::string& name, Shape shape, const VariableOptions& options, SourceLine at) {
  return belfry::variable(graph(), name, std::move(shape), options, at);
}
Value Builder::step(SourceLine) { return step_of(graph()); }
Value Builder::seed(SourceLine) { return seed_of(graph()); }

CursorGuard Builder::device(const std::string& id) {
  Graph& g = graph();
  CursorGuard guard(g, g.cursor);
  g.cursor.device = parse_device(id);
  return guard;
}

CursorGuard Builder::scope(const std::string& name) {
  Graph& g = graph();
  CursorGuard guard(g, g.cursor);
  g.cursor.scope = g.cursor.scope.empty() ? name : g.cursor.scope + "/" + name;
  return guard;
}

void Builder::minimize(Value loss, const Optimizer& o, const MinimizeOptions& m) {
  Graph& g = graph_with("minimize", {loss});
  if (o.learning_rate.value) graph_with("learning_rate", {o.learning_rate.value});
  if (!is_float(loss.dtype()) || !loss.shape().empty()) throw UserError(fmt::format("a loss is a float scalar, but '{}' is {}; take its mean", loss.name(), to_string(loss.type())));
  TrainSpec next{{loss.id}, o.kind, spoken(o, m), o.learning_rate.value.id};
  training_options(next);
  if (g.train) {
    const TrainSpec& first = *g.train;
    if (first.optimizer != next.optimizer || first.options != next.options || first.learning_rate != next.learning_rate)
      throw UserError("all losses are minimised by one optimizer with the same options");
    next.losses.insert(next.losses.begin(), first.losses.begin(), first.losses.end());
    if (auto alias = g.aliases.find("loss"); alias != g.aliases.end() && alias->second == first.losses[0]) g.aliases.erase(alias);
  } else if (is_unnamed(g.node(loss.id.node)) && g.find_node("loss") < 0) {
    g.aliases["loss"] = loss.id;
  }
  g.train = std::move(next);
}

Value Builder::l2_penalty(const std::string& variables, double factor, SourceLine at) {
  Graph& g = graph();
  SourceGuard line(g, at);
  std::vector<NodeId> named;
  for (const std::string& pattern : globs_of(variables)) {
    bool any = false;
    for (NodeId id : g.variables()) {
      if (!g.node(id).attributes.flag("trainable") || !glob_matches(pattern, g.node(id).name)) continue;
      any = true;
      if (std::find(named.begin(), named.end(), id) == named.end()) named.push_back(id);
    }
    if (!any) throw UserError(fmt::format("l2_penalty of '{}': no trainable variable that is there so far matches it", pattern));
  }
  if (named.empty()) throw UserError("l2_penalty names no variables");
  std::vector<Value> terms;
  for (NodeId id : named) terms.push_back(l2_loss(g.value({id, 0})) * factor);
  return terms.size() == 1 ? terms[0] : add_n(terms);
}

void Builder::metric(const std::string& name, Value value) {
  Graph& g = graph_with("metric", {value});
  if (auto [at, fresh] = g.metrics.emplace(name, value.id); !fresh) throw UserError(fmt::format("[metric] '{}' is the metric '{}' already: give '{}' another name", g.name_of(at->second), name, value.name()));
}

void Builder::metric(const std::string& name, Value numerator, Value denominator) {
  graph_with("metric", {numerator, denominator});
  for (const Value& v : {numerator, denominator})
    if (!v.shape().empty() || !is_float(v.dtype())) throw UserError(fmt::format("the metric '{}' is one scalar by another, both f32 or f64, but '{}' is {}", name, v.name(), to_string(v.type())));
  const std::string weight = name + "/weight";
  if (const Graph& g = graph_with("metric", {numerator}); g.metrics.contains(weight)) throw UserError(fmt::format("[metric] '{}' is a metric already, and the weight of '{}': give one of both another name", weight, name));
  metric(name, numerator / where(equal(denominator, constant_like(denominator, 0)), constant_like(denominator, 1), denominator));
  metric(weight, denominator);
}

void Builder::output(Value value) { graph_with("output", {value}).outputs.push_back(value.id); }

void Builder::output(const std::string& name, Value value) {
  Graph& g = graph_with("output", {value});
  if (value.name() == name) return output(value);
  if (g.metrics.contains(name)) throw UserError(fmt::format("[output] '{}' is a metric's name already", name));
  CursorGuard guard(g, g.cursor);
  g.cursor.scope = {};
  output(identity(value, name, {}));
}

void Builder::precision(const GraphPrecision& precision) { graph().precision = parse_precision(name_of(precision)); }

void Builder::gate(Value condition) {
  Graph& g = graph_with("gate", {condition});
  if (condition.type() != TensorType{boolean, {}}) throw UserError(fmt::format("a gate is a bool scalar, but '{}' is {}; use all_of or all_finite", condition.name(), to_string(condition.type())));
  g.gate = g.gate.valid() ? all_of({g.value(g.gate), condition}).id : condition.id;
}

void Builder::update(Value variable, Value value) {
  Graph& g = graph_with("update", {variable, value});
  const Node& n = g.node(variable.id.node);
  if (n.op->name != kVariable) throw UserError(fmt::format("'{}' is no variable: it cannot be updated", variable.name()));
  if (variable.type() != value.type()) throw UserError(fmt::format("the update of '{}' is {}, not {}", n.name, to_string(value.type()), to_string(variable.type())));
  if (!g.updates.emplace(variable.id.node, value.id).second) throw UserError(fmt::format("'{}' has an update already", n.name));
}

Graph Builder::build() && { return std::move(graph()); }

Graph& Builder::graph() {
  if (!graph_) throw UserError("this Builder was moved from: the one that it went to has its graph");
  if (!graph_->shared_ops()) throw UserError("this Builder is spent: build() gave its graph away; begin another graph with another Builder");
  return *graph_;
}

Graph& Builder::graph_with(const char* function, std::initializer_list<Value> values) {
  Graph& g = graph();
  for (const Value& v : values) {
    if (!v) throw UserError(fmt::format("[{}] was given an empty Value", function));
    if (v.graph != &g) throw UserError(fmt::format("[{}] the value '{}' is of the graph '{}', not of this Builder's '{}'", function, v.name(), v.graph->name, g.name));
  }
  return g;
}

}  // namespace belfry
