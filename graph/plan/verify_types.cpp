#include <belfry/graph/plan/verify_types.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <belfry/graph/contexts.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

class TypeChecker {
 public:
  TypeChecker(const PlacedGraph& plan, std::vector<std::string>& found) : plan_(plan), found_(found), types_(plan.graph->shared_ops()) {}

  void run() {
    for (const PlanNode& n : plan_.nodes) {
      if (n.def) check_op(n);
      else if (n.op == kFused) check_fused(n);
      else if (is_join(n) || n.op == kPreAggregate) check_join(n);
      else if (n.op != kSplit && state(n.inputs[0]) != state(n.outputs[0])) object("split: '{}' moves {} into {}", n.name, to_string(state(n.inputs[0])), to_string(state(n.outputs[0])));
    }
  }

 private:
  template <class... A>
  void object(fmt::format_string<A...> text, A&&... arguments) {
    if (found_.size() < 64) found_.push_back(fmt::format(text, std::forward<A>(arguments)...));
  }
  const TensorType& type(ValueIndex v) const { return plan_.value(v).type; }
  const SplitState& state(ValueIndex v) const { return plan_.value(v).state; }

  /// A value of a type for inference to look at; one per type.
  ValueId example(const TensorType& type) {
    auto [at, fresh] = examples_.try_emplace(to_string(type));
    if (fresh) at->second = types_.add(kInput, {}, {{"dtype", type.dtype}, {"shape", type.shape}}, fmt::format("v{}", examples_.size())).id;
    return at->second;
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
      if (n.def->infer(context) != split.outputs) return object("type: '{}' makes other types than {} infers", n.name, n.op);
    } catch (const std::exception& e) {
      return object("type: {}", e.what());
    }
    if (n.scope == Scope::state || n.op == kInput) return;
    Split s = n.def->split(split);
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

  /// A fused node reads what its members read from outside, in order.
  void check_fused(const PlanNode& n) {
    const Graph& g = *plan_.graph;
    std::vector<TensorType> wanted, given;
    auto inside = [&](NodeId id) { return std::any_of(n.members.begin(), n.members.end(), [&](const Member& m) { return m.node == id; }); };
    for (const Member& m : n.members)
      for (ValueId v : g.node(m.node).inputs)
        if (!inside(v.node)) wanted.push_back(v.valid() ? g.type(v) : TensorType{});
    for (ValueIndex v : n.inputs) given.push_back(v < 0 ? TensorType{} : type(v));
    if (n.members.empty() || wanted != given || n.outputs.size() != 1 || type(n.outputs[0]) != g.node(n.members.back().node).types[0])
      object("type: '{}' reads or makes other values than its members", n.name);
  }

  /// What is joined is rows side by side, partials added, or values per tower stacked or averaged.
  void check_join(const PlanNode& n) {
    const SplitState& from = state(n.inputs[0]);
    const std::string& how = n.attributes.text("how");
    bool fits = false;
    switch (from.kind) {
      case SplitState::kRows: fits = how == "concat_rows" && n.attributes.integer("axis") == from.axis; break;
      case SplitState::kPartial: fits = how == (from.reduction == Reduction::max ? "max" : "sum") || (n.op == kFetch && how == "stack"); break;
      case SplitState::kPerTower: fits = how == "stack" || how == "mean" || (n.op == kPreAggregate && how == "sum"); break;
      case SplitState::kReplicated: fits = how == "same"; break;
    }
    // What devices have added of values per tower is a sum that the mean is taken of.
    fits = fits || (how == "mean" && plan_.maker(n.inputs[0]).op == kPreAggregate);
    TensorType made = type(n.inputs[0]);
    if (how == "stack") made.shape.insert(made.shape.begin(), Dim(plan_.present()));
    if (!fits) object("split: '{}' joins {} by {}", n.name, to_string(from), how);
    if (type(n.outputs[0]) != made) object("type: '{}' joins {} into {}", n.name, to_string(type(n.inputs[0])), to_string(type(n.outputs[0])));
    if (n.op != kPreAggregate && !state(n.outputs[0]).is_replicated()) object("split: '{}' gives {}", n.name, to_string(state(n.outputs[0])));
  }

  const PlacedGraph& plan_;
  std::vector<std::string>& found_;
  Graph types_;
  std::map<std::string, ValueId> examples_;
};

}  // namespace

void check_types(const PlacedGraph& plan, std::vector<std::string>& found) { TypeChecker(plan, found).run(); }

}  // namespace belfry
