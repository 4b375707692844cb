#include <belfry/placer/expand.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/placement.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/graph/rewrite.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/groups_internal.h>
#include <belfry/placer/states.h>

namespace belfry {

namespace {

class Expander {
 public:
  Expander(std::shared_ptr<const Graph> graph, const ExpandOptions& options) : shared_(std::move(graph)), g_(*shared_), options_(options) {
    check();
    std::vector<ValueId> updates, fetched;
    for (const auto& [variable, v] : g_.updates) updates.insert(updates.end(), {v, {variable, 0}});
    for (const auto& [name, v] : options.fetches) fetched.push_back(v);
    core_ = ancestors(g_, updates);
    live_ = ancestors(g_, fetched);
    if (options.updates)
      for (std::size_t i = 0; i < live_.size(); ++i) live_[i] = live_[i] || core_[i];
    order_ = options.visiting_order;
    if (order_.empty())
      for (NodeId id = 0; id < g_.size(); ++id) order_.push_back(id);
  }

  TowerGraph run() {
    a_ = settled_states(g_, options_.batch, order_, core_, live_);
    groups_ = taken_groups(g_, options_, a_, core_, live_);
    out_.graph = shared_;
    out_.towers = options_.towers;
    out_.batch = options_.batch;
    out_.combine = options_.combine;
    out_.threads = options_.threads;
    for (const Node& n : g_.nodes()) first_.push_back(first_.back() + n.types.size());
    at_.assign(first_.back(), -1);
    whole_ = raw_ = at_;
    out_.nodes.reserve(order_.size());
    out_.values.reserve(first_.back());
    emit_all();
    emit_fetches();
    if (options_.updates)
      for (const auto& [variable, v] : g_.updates) {
        if (seen(v).is_per_tower()) throw UserError(fmt::format("'{}' becomes '{}', of which each tower has its own; take its tower_mean", node(variable).name, g_.name_of(v)));
        out_.updates.emplace_back(at({variable, 0}), read(v, kReplicated, v.node));
      }
    mark_unread(out_);
    return std::move(out_);
  }

 private:
  const Node& node(NodeId id) const { return g_.node(id); }
  SplitState seen(ValueId v) const { return a_.as_seen(v); }

  void check() const {
    if (options_.batch < 1) throw UserError(fmt::format("a batch has at least one row, not {}", options_.batch));
    if (options_.towers < 1) throw UserError(fmt::format("a plan has at least one tower, not {}", options_.towers));
    if (options_.towers > kMostTowers) throw UserError(fmt::format("a plan has at most {} towers, not {}", kMostTowers, options_.towers));
    if (options_.threads > kMostThreads) throw UserError(fmt::format("a tower has at most {} threads, not {}", kMostThreads, options_.threads));
    for (const Node& n : g_.nodes()) {
      for (const auto& [name, value] : n.attributes.entries())
        if (const Shape* shape = std::get_if<Shape>(&value)) check_bound(n, *shape);
      for (const TensorType& t : n.types) {
        check_bound(n, t.shape);
        check_size(n, t);
      }
    }
  }

  void check_bound(const Node& n, const Shape& shape) const {
    for (const Dim& d : shape)
      if (d.symbolic() && d.symbol != g_.row_symbol) throw UserError(fmt::format("'{}' has the symbol '{}', which is not bound: only what an input's shape has gets a size, from its feeds, and a plan is made for one: write the number{}", n.name, d.symbol, n.source.aside()));
  }

  /// The plan's file, its offsets and its sums of bytes have room for this much.
  void check_size(const Node& n, const TensorType& t) const {
    if (has_room(t, options_.batch)) return;
    const std::int64_t most = most_rows();
    throw UserError(fmt::format("'{}' {} with a batch of {} has more than {} bytes; take a smaller {}", n.name, to_string(t), options_.batch, kMostValueBytes,
                                most ? fmt::format("batch: this graph has room for 1 to {} rows", most) : "graph, since one row is too much"));
  }

  static bool has_room(const TensorType& t, std::int64_t batch) {
    __int128 size = static_cast<__int128>(size_of(t.dtype));
    for (const Dim& d : t.shape) {
      size *= d.factor;
      if (d.symbolic()) size *= batch;
      if (size > kMostValueBytes) return false;
    }
    return true;
  }

  /// With which every value has room; 0: there is no such batch.
  std::int64_t most_rows() const {
    std::int64_t low = 0, high = options_.batch;  // the last does not
    while (high - low > 1) {
      const std::int64_t rows = low + (high - low) / 2;
      const bool fits = std::all_of(g_.nodes().begin(), g_.nodes().end(),
                                    [&](const Node& n) { return std::all_of(n.types.begin(), n.types.end(), [&](const TensorType& t) { return has_room(t, rows); }); });
      (fits ? low : high) = rows;
    }
    return low;
  }

  // ---------------------------------------------------------------- nodes

  std::size_t number(ValueId v) const { return first_[static_cast<std::size_t>(v.node)] + static_cast<std::size_t>(v.output); }
  ValueIndex at(ValueId v) const { return at_[number(v)]; }

  ValueIndex add_value(std::string name, const TensorType& type, SplitState state, int output) {
    out_.values.push_back({std::move(name), type, state, static_cast<int>(out_.nodes.size()), output, true});
    return static_cast<ValueIndex>(out_.values.size()) - 1;
  }

  PlanNode& add_node(std::string name, std::string op, std::vector<ValueIndex> inputs, Scope scope, NodeId user, bool inserted) {
    PlanNode n;
    n.name = std::move(name);
    n.op = std::move(op);
    n.inputs = std::move(inputs);
    n.scope = scope;
    n.user = user;
    n.inserted = inserted;
    n.role = node(user).role;
    out_.nodes.push_back(std::move(n));
    return out_.nodes.back();
  }

  std::string inserted_name(ValueIndex v, const std::string& suffix) const {
    std::string name = out_.values[static_cast<std::size_t>(v)].name;
    std::replace(name.begin(), name.end(), ':', '.');
    return name + "." + suffix;
  }

  /// An aggregate, gather or split of a value: once per value and state, private to the readers that want it.
  ValueIndex insert(const std::string& suffix, ValueIndex source, SplitState state, NodeId cause) {
    auto [known, fresh] = made_.try_emplace({source, suffix});
    if (!fresh) return known->second;
    const PlanValue from = out_.values[static_cast<std::size_t>(source)];
    bool split = state.is_rows();
    Attributes attributes;
    if (!split) attributes = join_attributes(from.state);
    std::string name = inserted_name(source, suffix);
    ValueIndex v = add_value(name, from.type, state, 0);
    PlanNode& n = add_node(name, split ? kSplit : kAggregate, {source}, split ? Scope::tower : Scope::shared, cause, true);
    n.attributes = attributes;
    n.outputs = {v};
    n.role = from.maker < 0 ? n.role : out_.nodes[static_cast<std::size_t>(from.maker)].role;
    return known->second = v;
  }

  static Attributes join_attributes(SplitState state) {
    switch (state.kind) {
      case SplitState::kRows: return {{"how", "concat_rows"}, {"axis", state.axis}};
      case SplitState::kPartial: return {{"how", state.reduction == Reduction::sum ? "sum" : "max"}};
      case SplitState::kPerTower: return {{"how", "stack"}};
      case SplitState::kReplicated: break;
    }
    return {{"how", "same"}};
  }

  /// The value in the state that this reader wants.
  ValueIndex read(ValueId v, SplitState want, NodeId reader) {
    if (!v.valid()) return -1;
    ValueIndex whole = whole_[number(v)];
    ValueIndex source = whole >= 0 ? whole : at(v);
    SplitState have = out_.values[static_cast<std::size_t>(source)].state;
    if (have == want) return source;
    if (have.is_partial() || have.is_rows()) {
      source = insert(have.is_rows() ? "gather" : "aggregate", source, kReplicated, reader);
      have = kReplicated;
    }
    return have == want ? source : insert(fmt::format("split{}", want.axis), source, want, reader);
  }

  std::vector<ValueIndex> read_all(NodeId id) {
    std::vector<ValueIndex> out;
    out.reserve(node(id).inputs.size());
    for (std::size_t i = 0; i < node(id).inputs.size(); ++i) out.push_back(read(node(id).inputs[i], a_.reads[static_cast<std::size_t>(id)][i], id));
    return out;
  }

  bool is_shared(NodeId id) const {
    const Node& n = node(id);
    for (const SplitState& s : a_.gives[static_cast<std::size_t>(id)])
      if (!s.is_replicated()) return false;
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      if (n.inputs[i].valid() && !reads_shape_only(n, i) && !a_.reads[static_cast<std::size_t>(id)][i].is_replicated()) return false;
    return true;
  }

  /// A group stands where its last member does: who reads what an earlier one gives away comes behind it.
  void emit_all() {
    std::vector<NodeId> later;
    for (NodeId id : order_) {
      if (!live_[static_cast<std::size_t>(id)]) continue;
      if (!is_ready(id)) {
        later.push_back(id);
        continue;
      }
      emit(id);
      for (bool more = groups_.of.contains(id); more;)  // each may be a group that others wait for
        more = std::erase_if(later, [&](NodeId l) {
          const bool ready = is_ready(l);
          if (ready) emit(l);
          return ready;
        });
    }
    if (!later.empty()) throw InternalError(fmt::format("'{}' waits for a group that waits for it", node(later.front()).name));
  }

  /// Whether all is there that its node in the plan reads.
  bool is_ready(NodeId id) const {
    auto there = [&](NodeId of, const std::set<NodeId>& inside) {
      const std::vector<ValueId>& inputs = node(of).inputs;
      return std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) { return !v.valid() || inside.contains(v.node) || at(v) >= 0; });
    };
    auto group = groups_.of.find(id);
    if (group == groups_.of.end() || groups_.twins.contains(id)) return there(id, {});
    const std::vector<NodeId>& members = group->second->members;
    const std::set<NodeId> inside(members.begin(), members.end());
    return id != members.back() || std::all_of(members.begin(), members.end(), [&](NodeId m) { return there(m, inside); });
  }

  void emit(NodeId id) {
    const Node& n = node(id);
    if (auto group = groups_.of.find(id); group != groups_.of.end()) {
      if (id == group->second->members.back()) return emit_fused(id, *group->second);
      if (!groups_.twins.contains(id)) return;
    }
    const std::vector<SplitState>& gives = a_.gives[static_cast<std::size_t>(id)];
    bool mixed = n.op->sum_of_inputs && gives[0].is_replicated() &&
                 std::any_of(a_.reads[static_cast<std::size_t>(id)].begin(), a_.reads[static_cast<std::size_t>(id)].end(), [](SplitState s) { return s.is_partial(); });
    if (mixed) return emit_cut(id);
    std::vector<ValueIndex> inputs = read_all(id);
    Scope scope = n.op->name == kVariable ? Scope::state : is_shared(id) ? Scope::shared : Scope::tower;
    bool joins = n.op->joins_towers && a_.reads[static_cast<std::size_t>(id)][0].is_per_tower();
    std::vector<ValueIndex> outputs;
    outputs.reserve(n.types.size());
    for (std::size_t k = 0; k < n.types.size(); ++k)
      outputs.push_back(add_value(g_.name_of({id, static_cast<std::int32_t>(k)}), n.types[k], gives[k], static_cast<int>(k)));
    PlanNode& p = add_node(n.name, joins ? kAggregate : n.op->name, std::move(inputs), joins ? Scope::shared : scope, id, false);
    p.def = joins ? nullptr : n.op;
    p.attributes = joins ? Attributes{{"how", "mean"}} : n.attributes;
    p.outputs = outputs;
    place_outputs(id, outputs);
  }

  /// Readers see a settled state: a partial with rows is aggregated and split, a value computed whole is split for who wants it.
  void place_outputs(NodeId id, const std::vector<ValueIndex>& outputs) {
    for (std::size_t k = 0; k < outputs.size(); ++k) place({id, static_cast<std::int32_t>(k)}, outputs[k]);
  }
  void place(ValueId v, ValueIndex output) {
    const std::size_t mine = number(v);
    at_[mine] = raw_[mine] = output;
    SplitState given = out_.values[static_cast<std::size_t>(output)].state, state = seen(v);
    if (given == state) return;
    whole_[mine] = given.is_replicated() ? output : insert("aggregate", output, kReplicated, v.node);
    if (state.is_replicated()) at_[mine] = whole_[mine];
  }

  /// A sum of partials and others: the partials, one aggregate, then the rest in input order.
  void emit_cut(NodeId id) {
    const Node& n = node(id);
    std::vector<ValueIndex> parts, rest;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      SplitState s = a_.reads[static_cast<std::size_t>(id)][i];
      (s.is_partial() ? parts : rest).push_back(s.is_partial() ? at(n.inputs[i]) : read(n.inputs[i], s, id));
    }
    ValueIndex inner = add_value(n.name + ".partials", n.types[0], partial(Reduction::sum), 0);
    PlanNode& p = add_node(n.name + ".partials", n.op->name, parts, Scope::tower, id, true);
    p.def = n.op;
    p.outputs = {inner};
    rest.insert(rest.begin(), insert("aggregate", inner, kReplicated, id));
    ValueIndex sum = add_value(n.name, n.types[0], kReplicated, 0);
    PlanNode& q = add_node(n.name, n.op->name, rest, Scope::shared, id, false);
    q.def = n.op;
    q.outputs = {sum};
    q.members = {{id}};
    place_outputs(id, {sum});
  }

  void emit_fused(NodeId last, const FusionGroup& group) {
    std::set<NodeId> inside(group.members.begin(), group.members.end());
    std::vector<ValueIndex> inputs;
    for (NodeId id : group.members)
      for (std::size_t i = 0; i < node(id).inputs.size(); ++i)
        if (ValueId v = node(id).inputs[i]; !inside.contains(v.node)) inputs.push_back(reads_shape_only(node(id), i) ? -1 : read(v, a_.reads[static_cast<std::size_t>(id)][i], id));
    const std::vector<ValueId> made = values_of(g_, group);
    std::vector<ValueIndex> outputs;
    for (ValueId v : made) outputs.push_back(add_value(g_.name_of(v), g_.type(v), a_.gives[static_cast<std::size_t>(v.node)][static_cast<std::size_t>(v.output)], static_cast<int>(outputs.size())));
    PlanNode& p = add_node(node(last).name, kFused, inputs, is_shared(last) ? Scope::shared : Scope::tower, last, false);
    p.attributes = {{"kind", group.kind}};
    p.outputs = outputs;
    for (NodeId id : group.members) p.members.push_back({id, id != last && keeps(group, id)});
    for (std::size_t k = 0; k < made.size(); ++k) place(made[k], outputs[k]);
  }

  /// A fetch is a node that nobody reads. `x@towers` is what each tower has of x, also where x is their sum.
  void emit_fetches() {
    for (const auto& [name, v] : options_.fetches) {
      ValueIndex whole = whole_[number(v)];
      bool apart = name.ends_with(kTowersSuffix);
      ValueIndex source = apart ? raw_[number(v)] : whole >= 0 ? whole : at(v);
      const PlanValue from = out_.values[static_cast<std::size_t>(source)];
      if (const std::optional<ValueId> known = named_result(g_, name); known && *known != v)
        throw UserError(fmt::format("'{}' is to bring '{}', but in the graph it is the name of '{}'; give the result another name, or fetch that", name, g_.name_of(v), g_.name_of(*known)));
      if (apart && !from.state.is_per_tower() && !from.state.is_partial())
        throw UserError(fmt::format("'{}' asks for what each tower has of '{}', which is {}; fetch it without {}", name, from.name, to_string(from.state), kTowersSuffix));
      bool stacked = apart || from.state.is_per_tower();
      TensorType type = from.type;
      if (stacked) type.shape.insert(type.shape.begin(), Dim(out_.present()));
      const std::string node_name = fetch_node(name);
      ValueIndex out = add_value(node_name, type, kReplicated, 0);
      PlanNode& p = add_node(node_name, kFetch, {source}, Scope::shared, v.node, true);
      p.attributes = stacked ? Attributes{{"how", "stack"}} : join_attributes(from.state);
      p.outputs = {out};
      out_.fetches.emplace_back(name, out);
    }
  }

  std::shared_ptr<const Graph> shared_;
  const Graph& g_;
  const ExpandOptions& options_;
  std::vector<bool> core_, live_;
  std::vector<NodeId> order_;
  NodeStates a_;
  TowerGraph out_;
  TakenGroups groups_;  // whose bits stay whatever is fetched
  std::vector<std::size_t> first_ = {0};          // per node, the number of its first output
  std::vector<ValueIndex> at_, whole_, raw_;      // per output: as readers see it, computed whole, as the node gives it
  std::map<std::pair<ValueIndex, std::string>, ValueIndex> made_;
};

}  // namespace

TowerGraph expand(std::shared_ptr<const Graph> graph, const ExpandOptions& options) { return Expander(std::move(graph), options).run(); }

}  // namespace belfry
