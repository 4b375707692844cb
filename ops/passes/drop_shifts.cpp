#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include <belfry/graph/rewrite.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), roots_(roots(g)), fixed_(of_variables(g)) {}

  /// Whether it is Σ dx of a batch norm over all axes but the last: γ/σ·(Σ dy − n·mean(dy) − mean(dy·x̂)·Σ x̂), and Σ x̂ is 0.
  bool is_zero(NodeId id) const {
    const Node& n = g_.node(id);
    if (n.op->name != "reduce_sum" || n.device || is_asked(id) || n.inputs[0].output != 0 || norm_of(g_, n.inputs[0].node) < 0 || !symbolic_axes(n.types[0].shape).empty()) return false;
    std::vector<int> axes = axes_from_front(n.attributes.integers("axes"), static_cast<int>(g_.type(n.inputs[0]).shape.size()));
    std::sort(axes.begin(), axes.end());
    for (std::size_t a = 0; a < axes.size(); ++a)
      if (axes[a] != static_cast<int>(a)) return false;
    return axes.size() + 1 == g_.type(n.inputs[0]).shape.size();
  }

  /// Which input of the addition before a norm is a bias that the norm takes away; no node but the norm and its gradients reads the sum.
  std::optional<std::size_t> bias_before(NodeId norm) const {
    const Node& n = g_.node(norm);
    if (n.op->name != "batch_norm" || n.inputs.size() > 5 || is_asked(norm)) return {};
    const ValueId x = n.inputs[0];
    const Node& sum = g_.node(x.node);
    if (sum.op->name != "add" || sum.device != n.device || is_asked(x.node)) return {};
    for (NodeId r : g_.readers(x.node))
      if (const std::vector<ValueId>& in = g_.node(r).inputs; (r != norm && norm_of(g_, r) != norm) || std::count(in.begin(), in.end(), x) != 1) return {};
    for (std::size_t i : {1, 0})
      if (g_.type(sum.inputs[i]) == n.types[1] && fixed_[static_cast<std::size_t>(sum.inputs[i].node)]) return i;
    return {};
  }

 private:
  bool is_asked(NodeId id) const { return std::any_of(roots_.begin(), roots_.end(), [&](ValueId v) { return v.node == id; }); }

  const Graph& g_;
  std::vector<ValueId> roots_;
  std::vector<bool> fixed_;
};

/// A sum before a norm, of the new graph, and the mean without the bias.
struct Shifted {
  Value x, bias, mean;
};

}  // namespace

Graph drop_shifts(const Graph& graph) {
  const Finder finder(graph);
  std::map<NodeId, std::size_t> biases;  // by norm
  for (NodeId id = 0; id < graph.size(); ++id)
    if (const std::optional<std::size_t> i = finder.bias_before(id)) biases[id] = *i;
  std::map<NodeId, Shifted> norms;
  std::vector<Value> zeros;
  return drop_dead_code(rewrite(graph, [&](Graph& out, const Node& n, NodeId id, std::vector<Value> inputs) -> std::optional<std::vector<Value>> {
    if (finder.is_zero(id)) {
      auto known = std::find_if(zeros.begin(), zeros.end(), [&](const Value& v) { return v.type() == n.types[0]; });
      if (known != zeros.end()) return std::vector<Value>{*known};
      out.cursor = {"", {}, -1, Role::backward, {}, &graph};
      const LocalType type = local_type(n.types[0], 1);
      return std::vector<Value>{zeros.emplace_back(out.add("constant", {}, {{"value", HostTensor(type.dtype, type.shape)}}, out.free_name("zeros")))};
    }
    if (const auto at = biases.find(id); at != biases.end()) {
      const Node& sum = out.node(inputs[0].id.node);
      Shifted& s = norms[id] = {out.value(sum.inputs[1 - at->second]), out.value(sum.inputs[at->second]), {}};
      inputs.resize(5);
      inputs[0] = s.x;
      inputs.push_back(s.bias);
      // Its mean is another: under the old name nobody finds it.
      const Value y = out.add(*n.op, inputs, n.attributes, out.free_name(n.name + "/without_bias"));
      s.mean = y.output(1);
      return std::vector<Value>{y, out.add("add", {s.mean, s.bias}, {}, out.free_name(n.name + "/mean")), y.output(2), y.output(3)};
    }
    if (const auto at = norms.find(norm_of(graph, id)); at != norms.end()) {
      inputs[0] = at->second.x;
      inputs[3] = at->second.mean;
      return out.add(*n.op, inputs, n.attributes, n.name).outputs();
    }
    if (n.op->name != "tower_mean" || n.inputs[0].output != 1) return {};
    const auto at = norms.find(n.inputs[0].node);
    if (at == norms.end()) return {};
    // Behind the join the addition is one for all towers, and part of what is made of the mean.
    const Value mean = out.add(*n.op, {at->second.mean}, n.attributes, out.free_name(n.name + "/without_bias"));
    return std::vector<Value>{out.add("add", {mean, at->second.bias}, {}, n.name)};
  }));
}

}  // namespace belfry
