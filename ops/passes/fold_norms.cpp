#include <algorithm>
#include <map>
#include <optional>

#include <belfry/graph/halves.h>
#include <belfry/graph/rewrite.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

/// A convolution that a norm alone reads, behind the addition of a bias or not.
struct Folded {
  NodeId norm = -1, convolution = -1, biased = -1;
};

class Finder {
 public:
  explicit Finder(const Graph& g) : fixed(of_variables(g)), g_(g), roots_(roots(g)) {}

  std::optional<Folded> behind(NodeId norm) const {
    const Node& n = g_.node(norm);
    if (n.op->name != "batch_norm" || std::any_of(n.inputs.begin() + 1, n.inputs.end(), [&](ValueId v) { return !is_fixed(v); })) return {};
    Folded out{norm};
    ValueId x = n.inputs[0];
    if (!serves(x, norm)) return {};
    if (const Node& sum = g_.node(x.node); sum.op->name == "add") {
      const std::size_t bias = is_fixed(sum.inputs[1]) ? 1 : 0;
      if (!is_fixed(sum.inputs[bias]) || g_.type(sum.inputs[bias]).shape != Shape{sum.types[0].shape.back()} || !serves(sum.inputs[1 - bias], x.node)) return {};
      out.biased = x.node;
      x = sum.inputs[1 - bias];
    }
    out.convolution = x.node;
    const Node& convolution = g_.node(x.node);
    return convolution.op->name == "conv2d" && is_fixed(convolution.inputs[1]) && !is_fixed(convolution.inputs[0]) ? std::optional(out) : std::nullopt;
  }

  std::vector<bool> fixed;

 private:
  bool is_fixed(ValueId v) const { return !v.valid() || fixed[static_cast<std::size_t>(v.node)]; }
  /// Read by this node alone, on the same device, and asked for by nobody.
  bool serves(ValueId v, NodeId reader) const {
    return g_.node(v.node).device == g_.node(reader).device && g_.readers(v.node).size() == 1 && std::find(roots_.begin(), roots_.end(), v) == roots_.end();
  }

  const Graph& g_;
  std::vector<ValueId> roots_;
};

}  // namespace

std::vector<bool> of_variables(const Graph& graph) {
  std::vector<bool> out(static_cast<std::size_t>(graph.size()));
  auto is_known = [&](ValueId v) { return !v.valid() || out[static_cast<std::size_t>(v.node)]; };
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    out[static_cast<std::size_t>(id)] = n.op->name == kVariable || n.op->name == kConstant || (!n.op->source && !n.op->random && !n.inputs.empty() && std::all_of(n.inputs.begin(), n.inputs.end(), is_known));
  }
  return out;
}

Graph fold_norms(const Graph& graph) {
  const Finder finder(graph);
  std::map<NodeId, Folded> of;  // all three nodes
  for (NodeId id = 0; id < graph.size(); ++id)
    if (const std::optional<Folded> f = finder.behind(id)) of[f->norm] = of[f->convolution] = of[f->biased >= 0 ? f->biased : f->norm] = *f;
  if (of.empty()) return graph;
  std::vector<NodeId> nodes;  // norms' variables before convolutions
  for (const bool first : {true, false})
    for (NodeId id = 0; id < graph.size(); ++id)
      if (finder.fixed[static_cast<std::size_t>(id)] == first) nodes.push_back(id);
  std::map<NodeId, ChannelScale> scales;  // by norm
  auto fold = [&](Graph& out, const Node& n, NodeId id, std::vector<Value> inputs) -> std::optional<std::vector<Value>> {
    const auto at = of.find(id);
    if (at == of.end()) return {};
    const Folded& f = at->second;
    const Node& norm = graph.node(f.norm);
    // As wide as it was before it became a half.
    auto wide = [&](ValueId v) {
      if (const Node& cast = graph.node(v.node); cast.op->name == kCast && is_half(cast.types[0].dtype)) v = cast.inputs[0];
      return out.value(*out.find(graph.name_of(v)));
    };
    if (id == f.convolution) {
      auto own = [&](std::size_t i) { return i < norm.inputs.size() && norm.inputs[i].valid() ? wide(norm.inputs[i]) : Value{}; };
      out.cursor.scope = norm.name;
      const Value lacks = own(5), mean = lacks ? own(3) - lacks : own(3);
      ChannelScale& c = scales[f.norm] = batch_norm_scale(own(1), own(2), mean, own(4), norm.attributes.real("epsilon"));
      const Value filter = in_dtype(in_dtype(wide(n.inputs[1]), c.scale.dtype()) * c.scale, graph.type(n.inputs[1]).dtype);
      if (f.biased >= 0) {
        const Node& sum = graph.node(f.biased);
        c.shift = in_dtype(wide(sum.inputs[sum.inputs[0].node == id ? 1 : 0]), c.scale.dtype()) * c.scale + c.shift;
      }
      out.cursor.scope = {};
      return out.add(*n.op, {inputs[0], filter}, n.attributes, n.name).outputs();
    }
    if (id == f.biased) return std::vector<Value>{inputs[n.inputs[0].node == f.convolution ? 0 : 1]};
    const Value shift = in_dtype(scales.at(f.norm).shift, n.types[0].dtype), mean = inputs.size() > 5 && inputs[5] ? inputs[3] - inputs[5] : inputs[3];
    return std::vector<Value>{out.add("add", {inputs[0], shift}, {}, n.name), mean, inputs[4], inputs[4]};
  };
  return rewrite(graph, fold, nodes);
}

Graph for_serving(const Graph& graph, const std::vector<std::string>& outputs) { return for_inference(fold_norms(without_training(graph, outputs))); }

}  // namespace belfry
