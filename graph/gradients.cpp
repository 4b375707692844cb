#include <belfry/graph/gradients.h>

#include <map>

#include <fmt/format.h>

#include <belfry/graph/contexts.h>
#include <belfry/graph/halves.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

class Differentiator {
 public:
  Differentiator(Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& wanted, const std::vector<Value>& begin) : graph_(graph), forward_(graph.size()) {
    mark_dependent(wanted);
    mark_reaching(losses);
    for (std::size_t i = 0; i < losses.size(); ++i) parts_[losses[i]].push_back(begin.empty() ? one(losses[i]) : begin[i]);
  }

  void run() {
    Cursor before = graph_.cursor;
    for (NodeId id = forward_ - 1; id >= 0; --id)
      if (dependent_[static_cast<std::size_t>(id)] && reaching_[static_cast<std::size_t>(id)] && has_gradient(id)) visit(id);
    graph_.cursor = before;
  }

  Value gradient_of(ValueId v) { return total(v); }

 private:
  Value one(ValueId loss) {
    const TensorType& type = graph_.type(loss);
    if (!is_float(type.dtype) || !type.shape.empty())
      throw UserError(fmt::format("a loss is a float scalar, but '{}' is {}; take its mean", graph_.name_of(loss), to_string(type)));
    HostTensor value = type.dtype == f32 ? HostTensor::scalar(1.0f) : HostTensor::scalar(1.0);
    set_cursor(loss.node);
    Value out = graph_.add(kConstant, {}, {{"value", std::move(value)}});
    graph_.cursor = {};
    return out;
  }

  void set_cursor(NodeId id) { graph_.cursor = {"gradient/" + graph_.node(id).name, {}, id, Role::backward, graph_.node(id).source}; }

  void mark_dependent(const std::vector<ValueId>& wanted) {
    dependent_.assign(static_cast<std::size_t>(forward_), false);
    for (ValueId v : wanted) dependent_[static_cast<std::size_t>(v.node)] = true;
    for (NodeId id = 0; id < forward_; ++id)
      for (ValueId v : graph_.node(id).inputs)
        if (v.valid() && dependent_[static_cast<std::size_t>(v.node)]) dependent_[static_cast<std::size_t>(id)] = true;
  }

  void mark_reaching(const std::vector<ValueId>& losses) {
    reaching_.assign(static_cast<std::size_t>(forward_), false);
    for (ValueId v : losses) reaching_[static_cast<std::size_t>(v.node)] = true;
    for (NodeId id = forward_ - 1; id >= 0; --id)
      if (reaching_[static_cast<std::size_t>(id)])
        for (ValueId v : graph_.node(id).inputs)
          if (v.valid()) reaching_[static_cast<std::size_t>(v.node)] = true;
  }

  bool has_gradient(NodeId id) const {
    auto at = parts_.lower_bound({id, 0});
    return at != parts_.end() && at->first.node == id;
  }

  Value total(ValueId v) {
    auto at = parts_.find(v);
    if (at == parts_.end()) return {};
    if (at->second.size() > 1) at->second = {graph_.add(kAddN, at->second)};
    return at->second[0];
  }

  /// Ops of a user's own have rules that may be wrong.
  [[noreturn]] static void fail(const Node& node, const std::string& what) {
    throw UserError(fmt::format("[{}] its gradient rule {}; node '{}'{}", node.op->name, what, node.name, node.source.aside()));
  }

  void visit(NodeId id) {
    const Node node = graph_.node(id);  // a copy: building adds nodes
    if (node.inputs.empty()) return;
    set_cursor(id);
    if (!node.op->differentiable()) {
      bool reaches_wanted = false;
      for (ValueId v : node.inputs) reaches_wanted |= v.valid() && dependent_[static_cast<std::size_t>(v.node)];
      if (!reaches_wanted) return;
      throw UserError(fmt::format("[{}] has no gradient ({}); node '{}' lies between a loss and a trainable variable", node.op->name, node.op->gradient.no_gradient_reason, node.name));
    }
    std::vector<Value> inputs, outputs, dys;
    for (ValueId v : node.inputs) inputs.push_back(v.valid() ? graph_.value(v) : Value{});
    for (int k = 0; k < static_cast<int>(node.types.size()); ++k) {
      outputs.push_back(graph_.value({id, k}));
      dys.push_back(total({id, k}));
    }
    GradientContext context(graph_, node.attributes, widened(*node.op, inputs), widened(*node.op, outputs), widened(*node.op, dys));
    // Rules build from the gradient of output 0; without it they have nothing to start from.
    std::vector<Value> dxs = dys[0] ? node.op->gradient.build(context) : std::vector<Value>(node.inputs.size());
    for (int k = 0; k < static_cast<int>(node.types.size()); ++k)
      if (dys[static_cast<std::size_t>(k)] && !context.asked(k))
        throw UserError(fmt::format("[{}] output '{}' of '{}' has no gradient, but a loss reads it", node.op->name, node.op->outputs[static_cast<std::size_t>(k)].name, node.name));
    if (dxs.size() != node.inputs.size()) fail(node, fmt::format("gives {} values for {} inputs: one for each, an empty one where there is none", dxs.size(), node.inputs.size()));
    for (std::size_t i = 0; i < dxs.size(); ++i) {
      ValueId x = node.inputs[i];
      if (!x.valid() || !dependent_[static_cast<std::size_t>(x.node)] || !dxs[i]) continue;
      if (!node.op->stores && is_half(graph_.type(x).dtype)) dxs[i] = in_dtype(dxs[i], graph_.type(x).dtype);
      if (dxs[i].type() != graph_.type(x))
        fail(node, fmt::format("gives {} for the input {}, which is {}", to_string(dxs[i].type()), i, to_string(graph_.type(x))));
      parts_[x].push_back(dxs[i]);
    }
  }

  Graph& graph_;
  NodeId forward_;
  std::vector<bool> dependent_, reaching_;
  std::map<ValueId, std::vector<Value>> parts_;
};

}  // namespace

std::vector<Value> gradients(Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& wanted, const std::vector<Value>& begin) {
  Cursor before = graph.cursor;
  Differentiator d(graph, losses, wanted, begin);
  d.run();
  std::vector<Value> out;
  for (ValueId v : wanted) {
    graph.cursor = {"gradient/" + graph.node(v.node).name, {}, v.node, Role::backward, {}};
    out.push_back(d.gradient_of(v));
  }
  graph.cursor = before;
  return out;
}

}  // namespace belfry
