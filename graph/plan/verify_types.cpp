#include <algorithm>
#include <map>

#include <belfry/graph/contexts.h>
#include <belfry/graph/halves.h>
#include <belfry/graph/plan/verify_parts_internal.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

class TypeChecker : public PlanChecker {
 public:
  explicit TypeChecker(const PlacedGraph& plan) : PlanChecker(plan), types_(plan.graph->shared_ops()) {}

  void run() {
    for (const PlanValue& v : plan_.values) check_rows(v);
    for (const Node& n : plan_.graph->nodes())
      for (const auto& [name, value] : n.attributes.entries())
        if (const Shape* shape = std::get_if<Shape>(&value)) check_symbols(n.name, *shape);
    if (!found_.empty()) return;
    for (const PlanNode& n : plan_.nodes) {
      if (n.def) check_op(n);
      else if (n.op == kFused) check_fused(n);
      else if (is_join(n) || n.op == kPreAggregate) check_join(n);
      else if (n.op == kSplit && !state(n.inputs[0]).is_replicated()) object("split: '{}' splits '{}', which is {}", n.name, plan_.value(n.inputs[0]).name, to_string(state(n.inputs[0])));
      else if (n.op != kSplit && state(n.inputs[0]) != state(n.outputs[0])) object("split: '{}' moves {} into {}", n.name, to_string(state(n.inputs[0])), to_string(state(n.outputs[0])));
    }
  }

 private:
  const TensorType& type(ValueIndex v) const { return plan_.value(v).type; }
  const SplitState& state(ValueIndex v) const { return plan_.value(v).state; }

  /// A value of a type for inference to look at; one per type.
  ValueId example(const TensorType& type) {
    auto [at, fresh] = examples_.try_emplace(to_string(type));
    if (fresh) at->second = types_.add(kInput, {}, {{"dtype", type.dtype}, {"shape", type.shape}}, fmt::format("v{}", examples_.size())).id;
    return at->second;
  }

  /// Shares are cut along an axis that counts the rows; no other symbol is left.
  void check_rows(const PlanValue& v) {
    check_symbols(v.name, v.type.shape);
    if (!v.state.is_rows()) return;
    if (v.state.axis < 0 || v.state.axis >= static_cast<int>(v.type.shape.size()) || !v.type.shape[static_cast<std::size_t>(v.state.axis)].symbolic())
      object("split: '{}' {} is {}, but counts no rows there", v.name, to_string(v.type), to_string(v.state));
  }

  void check_symbols(const std::string& name, const Shape& shape) {
    for (const Dim& d : shape)
      if (d.symbolic() && d.symbol != plan_.graph->row_symbol) object("type: '{}' has the symbol '{}', which is not bound", name, d.symbol);
  }

  void check_op(const PlanNode& n) {
    SplitContext split{*n.def, n.attributes, {}, {}, {}, plan_.batch};
    std::vector<ValueId> inputs;
    for (ValueIndex v : n.inputs) {
      split.inputs.push_back(v < 0 ? TensorType{} : type(v));
      split.states.push_back(v < 0 ? kReplicated : state(v));
    }
    for (ValueIndex v : n.outputs) split.outputs.push_back(type(v));
    try {
      for (ValueIndex v : n.inputs) inputs.push_back(v < 0 ? ValueId{} : example(type(v)));
      InferContext context(types_, *n.def, n.name, n.attributes, inputs);
      if (inferred_types(context) != split.outputs) return object("type: '{}' makes other types than {} infers", n.name, n.op);
    } catch (const std::exception& e) {
      return object("type: {}", e.what());
    }
    if (n.scope == Scope::state || n.op == kInput) return;
    Split s;
    if (!find_split(n.name, split, s)) return;
    bool whole = true;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      if (n.def->inputs[std::min(i, n.def->inputs.size() - 1)].shape_only) continue;
      if (n.inputs[i] >= 0 && s.reads[i] != split.states[i]) return object("split: '{}' reads '{}' as {}, but {} wants {}", n.name, plan_.value(n.inputs[i]).name, to_string(split.states[i]), n.op, to_string(s.reads[i]));
      whole = whole && (n.inputs[i] < 0 || split.states[i].is_replicated());
    }
    for (std::size_t k = 0; k < n.outputs.size(); ++k) {
      if (s.gives[k] != state(n.outputs[k])) return object("split: '{}' gives {} as {}, but the plan says {}", n.name, plan_.value(n.outputs[k]).name, to_string(s.gives[k]), to_string(state(n.outputs[k])));
      whole = whole && s.gives[k].is_replicated();
    }
    if (whole != (n.scope == Scope::shared)) object("split: '{}' is {}, but its values are {}", n.name, to_string(n.scope), whole ? "whole" : "shares");
  }

  /// False where the rule refuses: some do once the batch is known.
  bool find_split(const std::string& name, const SplitContext& context, Split& out) {
    try {
      out = split_of(context.op, context);
      return true;
    } catch (const std::exception& e) {
      object("split: '{}': {}", name, e.what());
      return false;
    }
  }

  /// The members' split rules in turn, on what the fused node reads and on what the members before have made.
  void check_fused(const PlanNode& n) {
    const Graph& g = *plan_.graph;
    const std::vector<ValueId> made = values_of(plan_, n);
    if (n.members.empty() || n.outputs.size() != made.size()) return object("type: '{}' has {} members and makes {} values", n.name, n.members.size(), n.outputs.size());
    std::map<NodeId, std::vector<SplitState>> inner;
    std::size_t next = 0;
    bool whole = true;
    for (const Member& m : n.members) {
      const Node& u = g.node(m.node);
      SplitContext split{*u.op, u.attributes, {}, {}, u.types, plan_.batch};
      std::vector<ValueIndex> outside(u.inputs.size(), -1);
      for (std::size_t i = 0; i < u.inputs.size(); ++i) {
        ValueId v = u.inputs[i];
        auto before = inner.find(v.node);
        if (before == inner.end()) {
          if (next >= n.inputs.size()) return object("type: '{}' reads fewer values than its members", n.name);
          outside[i] = n.inputs[next++];
          const bool read = v.valid() && !reads_shape_only(u, i);
          if (read != (outside[i] >= 0) || (read && type(outside[i]) != g.type(v))) return object("type: '{}' reads other values than its member '{}'", n.name, u.name);
        }
        split.inputs.push_back(v.valid() ? g.type(v) : TensorType{});
        split.states.push_back(before != inner.end() ? before->second.at(0) : outside[i] >= 0 ? state(outside[i]) : kReplicated);
      }
      Split s;
      if (!find_split(n.name, split, s)) return;
      whole = true;  // as the last member is
      for (std::size_t i = 0; i < u.inputs.size(); ++i) {
        if (reads_shape_only(u, i)) continue;
        if (u.inputs[i].valid() && s.reads[i] != split.states[i]) return object("split: '{}' reads an input of its member '{}' as {}, but {} wants {}", n.name, u.name, to_string(split.states[i]), u.op->name, to_string(s.reads[i]));
        whole = whole && split.states[i].is_replicated();
      }
      if (!inner.try_emplace(m.node, s.gives).second) return object("type: '{}' has the member '{}' twice", n.name, u.name);
      whole = whole && std::all_of(s.gives.begin(), s.gives.end(), [](const SplitState& given) { return given.is_replicated(); });
    }
    if (next != n.inputs.size()) return object("type: '{}' reads other values than its members", n.name);
    for (std::size_t k = 0; k < made.size(); ++k) {
      if (type(n.outputs[k]) != g.type(made[k])) return object("type: '{}' makes other values than its members", n.name);
      const SplitState& given = inner.at(made[k].node).at(static_cast<std::size_t>(made[k].output));
      if (given != state(n.outputs[k])) return object("split: '{}' gives {} as {}, but the plan says {}", n.name, plan_.value(n.outputs[k]).name, to_string(given), to_string(state(n.outputs[k])));
    }
    if (whole != (n.scope == Scope::shared)) object("split: '{}' is {}, but its values are {}", n.name, to_string(n.scope), whole ? "whole" : "shares");
  }

  /// How what the towers have of a value becomes one: what its state says, and for values per tower the asker.
  std::string way(const PlanNode& n, const SplitState& from) const {
    switch (from.kind) {
      case SplitState::kRows: return "concat_rows";
      case SplitState::kPartial: return n.op == kFetch && n.attributes.text("how") == "stack" ? "stack" : from.reduction == Reduction::max ? "max" : "sum";
      case SplitState::kPerTower: return n.op == kPreAggregate ? "sum" : n.op == kFetch ? "stack" : "mean";
      case SplitState::kReplicated: break;
    }
    return "same";
  }

  /// Behind a pre_aggregate the same is asked of what that reads: the devices' sums of values per tower become a mean.
  void check_join(const PlanNode& n) {
    const PlanNode& before = plan_.maker(n.inputs[0]);
    ValueIndex parts = n.inputs[0];  // of a host's sum those of its groups' sums, of these those of their devices' sums, of these those that towers add to
    for (int k = 0; k < 4 && plan_.maker(parts).op == kPreAggregate; ++k) parts = plan_.maker(parts).inputs[0];
    const SplitState& from = state(parts);
    const std::string& how = n.attributes.text("how");
    bool apart = how == "stack" || how == "concat_rows" || how == "same";
    if (before.ranged || n.op == kAllGather || how == "ranges") {
      const bool ranged = before.ranged || (before.op == kAllGather && plan_.maker(before.inputs[0]).ranged);  // or what the host has gathered
      bool gathers = ranged && how == "ranges" && (n.op == kAllGather || n.op == kFetch) && state(n.outputs[0]) == from && type(n.outputs[0]) == type(n.inputs[0]);
      if (!gathers) object("ranges: '{}' joins '{}' by {}", n.name, before.name, how);
      return;
    }
    bool on_devices = n.op == kPreAggregate || before.op == kPreAggregate;
    bool fits = how == way(n, from) && !(on_devices && apart);
    if (how == "concat_rows") fits = fits && n.attributes.integer("axis") == from.axis;
    TensorType made = type(n.inputs[0]);
    if (how == "stack") made.shape.insert(made.shape.begin(), Dim(plan_.present()));
    if (!fits) object("split: '{}' joins {} by {}", n.name, to_string(from), how);
    if (type(n.outputs[0]) != made) object("type: '{}' joins {} into {}", n.name, to_string(type(n.inputs[0])), to_string(type(n.outputs[0])));
    SplitState gives = n.op == kPreAggregate ? partial(how == "max" ? Reduction::max : Reduction::sum) : kReplicated;
    if (state(n.outputs[0]) != gives) object("split: '{}' gives {}, not {}", n.name, to_string(state(n.outputs[0])), to_string(gives));
  }

  Graph types_;
  std::map<std::string, ValueId> examples_;
};

}  // namespace

std::vector<std::string> check_types(const PlacedGraph& plan) { return found_by<TypeChecker>(plan); }

}  // namespace belfry
