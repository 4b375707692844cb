#include <algorithm>
#include <map>

#include <belfry/graph/halves.h>
#include <belfry/graph/rewrite.h>
#include <belfry/ops/build.h>
#include <belfry/ops/norms.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

const InputDef& definition(const Node& n, std::size_t i) { return n.op->inputs[std::min(i, n.op->inputs.size() - 1)]; }

/// What becomes of each node: its inputs that may be halves are halves, or it stays in f32. Of the latter some read halves as they are beside f32 (`mixes`), or round what they give (`rounds`).
class Decisions {
 public:
  explicit Decisions(const Graph& g) : g_(g), roots_(roots(g)), lowers(static_cast<std::size_t>(g.size())), wide(lowers), mixes(lowers), rounds(lowers), parameter_(of_variables(g)) {
    for (NodeId id = 0; id < g.size(); ++id) decide(id);
    for (NodeId id = g.size() - 1; id >= 0; --id)
      if (is_moved_as_half(id)) lowers[static_cast<std::size_t>(id)] = true;
    for (NodeId id = 0; id < g.size(); ++id) rounds[static_cast<std::size_t>(id)] = is_rounded(id);
  }
  bool is_root(ValueId v) const { return std::find(roots_.begin(), roots_.end(), v) != roots_.end(); }

 private:
  /// f32 now, and a half if the node is lowered.
  bool can_lower(const Node& n, std::size_t i) const {
    ValueId v = n.inputs[i];
    return v.valid() && g_.type(v).dtype == f32 && may_be_half(*n.op, i) && !definition(n, i).shape_only;
  }

  bool is_half_later(ValueId v) const {
    const Node& n = g_.node(v.node);
    if (is_half(n.types[static_cast<std::size_t>(v.output)].dtype)) return true;
    auto id = static_cast<std::size_t>(v.node);
    return lowers[id] && !wide[id] && n.types[static_cast<std::size_t>(v.output)].dtype == f32 && !n.op->outputs[static_cast<std::size_t>(v.output)].wide;
  }

  void decide(NodeId id) {
    const Node& n = g_.node(id);
    auto me = static_cast<std::size_t>(id);
    if (!n.op->takes_halves() || n.op->name == kCast) return;
    bool any = false, half = false, computed = false;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      if (!can_lower(n, i)) continue;
      any = true;
      bool later = is_half_later(n.inputs[i]);
      half |= later;
      computed |= !later && !parameter_[static_cast<std::size_t>(n.inputs[i].node)] && definition(n, i).name != "dy";  // of what was computed in halves, slopes are
    }
    const bool low = n.op->precision == Precision::low;
    lowers[me] = any && (low || (half && !computed));
    wide[me] = lowers[me] && low && (sums_rows(n) || all_want_f32(id));
    mixes[me] = half && !lowers[me] && n.attributes.find("wide");
  }

  /// Whether it moves or repeats elements of one f32 value that are halves behind it: rounded before it, they have the same bits and are half the bytes.
  bool is_moved_as_half(NodeId id) const {
    const std::string& op = g_.node(id).op->name;
    return (op == "pad" || op == "reshape" || op == "transpose" || op == "broadcast_like" || op == "broadcast_to") && is_for_halves(id);
  }

  /// Whether it computes y in f32 and only readers of halves want that, so that it may round it itself.
  bool is_rounded(NodeId id) const { return g_.node(id).attributes.find(kRoundedTo) && is_for_halves(id); }

  bool is_for_halves(NodeId id) const {
    const Node& n = g_.node(id);
    if (lowers[static_cast<std::size_t>(id)] || n.types[0].dtype != f32 || is_root({id, 0})) return false;
    bool any = false;
    for (NodeId r : g_.readers(id)) {
      const Node& reader = g_.node(r);
      for (std::size_t i = 0; i < reader.inputs.size(); ++i) {
        if (reader.inputs[i] != ValueId{id, 0} || definition(reader, i).shape_only) continue;
        if (!lowers[static_cast<std::size_t>(r)] || !may_be_half(*reader.op, i)) return false;
        any = true;
      }
    }
    return any;
  }

  /// The towers' results are parts of a sum, which is never one of halves.
  bool sums_rows(const Node& n) const {
    bool rows = false;
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      if (can_lower(n, i)) rows |= !symbolic_axes(g_.type(n.inputs[i]).shape).empty();
    return rows && symbolic_axes(n.types[0].shape).empty();
  }

  bool all_want_f32(NodeId id) const {
    const bool product = g_.node(id).op->name == "matmul";
    for (NodeId r : g_.readers(id)) {
      const Node& n = g_.node(r);
      for (std::size_t i = 0; i < n.inputs.size(); ++i)
        if (n.inputs[i].node == id && can_lower(n, i) && n.op->name != kCast && !(product && ends_in_f32_sum(id, {id, 0}, r))) return false;
    }
    return true;
  }

  /// Whether a product, with its bias or without, is added to what is computed in f32: kernels of GPUs add while they multiply, and round nothing before.
  bool ends_in_f32_sum(NodeId product, ValueId v, NodeId reader, bool may_add_bias = true) const {
    const Node& n = g_.node(reader);
    if ((n.op->name != "add" && !n.op->sum_of_inputs) || n.inputs.size() != 2) return false;
    const ValueId other = n.inputs[n.inputs[0] == v ? 1 : 0];
    if (!parameter_[static_cast<std::size_t>(other.node)]) return other.node < product && !is_half_later(other) && g_.type(other) == n.types[0];
    const std::vector<NodeId>& readers = g_.readers(reader);
    return may_add_bias && !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId r) { return ends_in_f32_sum(product, {reader, 0}, r, false); });
  }

  const Graph& g_;
  std::vector<ValueId> roots_;

 public:
  std::vector<bool> lowers, wide, mixes, rounds;

 private:
  std::vector<bool> parameter_;
};

/// Casts of the new graph: one per value and dtype, beside what it casts.
class Casts {
 public:
  Value operator()(Value v, DType dtype) {
    if (v.dtype() == dtype) return v;
    auto [at, fresh] = made_.try_emplace({v.id, dtype});
    if (!fresh) return v.graph->value(at->second);
    Graph& g = *v.graph;
    const Node from = g.node(v.id.node);
    const std::string name = from.name + (v.id.output ? "_" + std::to_string(v.id.output) : "") + "/" + std::string(name_of(dtype));
    Cursor before = g.cursor;
    g.cursor = {"", {}, from.op->name == kVariable ? v.id.node : -1, before.role, from.source, before.avoid};
    Value out = from.op->name == kConstant ? g.add(kConstant, {}, {{"value", converted(from.attributes.tensor("value"), dtype)}}, g.free_name(name))
                                           : g.add(kCast, {v}, {{"dtype", dtype}}, g.free_name(name));
    g.cursor = before;
    at->second = out.id;
    return out;
  }
  void know(Value v, Value cast) { made_[{v.id, cast.dtype()}] = cast.id; }

 private:
  std::map<std::pair<ValueId, DType>, ValueId> made_;
};

}  // namespace

Graph mixed_precision(const Graph& graph) {
  const DType half = graph.precision.dtype;
  if (!is_half(half)) return graph;
  const Decisions decided(graph);
  Casts cast_to;
  std::map<ValueId, ValueId> roots_as_f32;  // of the new graph
  Graph out = rewrite(graph, [&](Graph& to, const Node& n, NodeId id, std::vector<Value> inputs) -> std::optional<std::vector<Value>> {
    const bool lowers = decided.lowers[static_cast<std::size_t>(id)], mixes = decided.mixes[static_cast<std::size_t>(id)];
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const InputDef& def = definition(n, i);
      if (!inputs[i] || def.shape_only || graph.type(n.inputs[i]).dtype != f32) continue;
      if (mixes && may_be_half(*n.op, i)) continue;
      inputs[i] = cast_to(inputs[i], lowers && may_be_half(*n.op, i) ? half : f32);
    }
    Attributes attributes = n.attributes;
    if (decided.wide[static_cast<std::size_t>(id)] || mixes) attributes.set("wide", true);
    if (decided.rounds[static_cast<std::size_t>(id)]) attributes.set(kRoundedTo, std::string(name_of(half)));
    // What users ask for keeps its name and type.
    const bool asked = lowers && !decided.wide[static_cast<std::size_t>(id)] && decided.is_root({id, 0}) && n.types[0].dtype == f32 && !n.op->outputs[0].wide;
    Value made = to.add(*n.op, inputs, attributes, asked ? to.free_name(n.name + "/" + std::string(name_of(half))) : n.name);
    if (asked) {
      Value f = to.add(kCast, {made}, {{"dtype", f32}}, n.name);
      cast_to.know(made, f);
      roots_as_f32[made.id] = f.id;
    }
    return made.outputs();
  });
  auto widen = [&](ValueId& v) {
    if (auto at = roots_as_f32.find(v); at != roots_as_f32.end()) v = at->second;
  };
  std::for_each(out.outputs.begin(), out.outputs.end(), widen);
  std::for_each(out.losses.begin(), out.losses.end(), widen);
  for (auto* named : {&out.metrics, &out.aliases})
    for (auto& [name, v] : *named) widen(v);
  for (auto& [variable, v] : out.updates) widen(v);
  return drop_dead_code(out);
}

}  // namespace belfry
