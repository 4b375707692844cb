#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/glob.h>
#include <belfry/graph/gradients.h>
#include <belfry/graph/rewrite.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/loss_scale.h>
#include <belfry/ops/passes/optimizer_kinds.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

/// Which variables move: an update that is the variable itself, a constant, or what stands still too gives one value, from some step on.
class Movement {
 public:
  explicit Movement(const Graph& g) : g_(g) {}

  /// Whether any of the nodes is fed, or is a variable that moves.
  bool of(const std::vector<bool>& nodes) {
    for (NodeId id = 0; id < g_.size(); ++id)
      if (nodes[static_cast<std::size_t>(id)] && (g_.node(id).op->name == kInput || (g_.node(id).op->name == kVariable && of_variable(id)))) return true;
    return false;
  }

 private:
  bool of_variable(NodeId variable) {
    const auto update = g_.updates.find(variable);
    if (update == g_.updates.end()) return false;
    auto [known, fresh] = known_.try_emplace(variable, true);  // a ring of variables may well move
    if (!fresh) return known->second;
    ValueId next = update->second;
    while (g_.node(next.node).op->name == "identity") next = g_.node(next.node).inputs[0];
    const bool moves = next.node != variable && of(ancestors(g_, {next}));
    return known_[variable] = moves;
  }

  const Graph& g_;
  std::map<NodeId, bool> known_;
};

class Trainer {
 public:
  explicit Trainer(Graph& g) : g_(g), spec_(*g.train), kind_(optimizer_kind(spec_.optimizer)), options_(training_options(spec_)) {}

  void run() {
    std::vector<NodeId> variables;
    std::vector<ValueId> wanted;
    for (NodeId id : g_.variables())
      if (g_.node(id).attributes.flag("trainable")) wanted.push_back({id, 0});
    g_.losses = spec_.losses;
    g_.train.reset();
    LossScale scale(g_, options_);
    std::vector<Value> found = gradients(g_, g_.losses, wanted, scale ? scale.begin(g_.losses) : std::vector<Value>{}), some;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (found[i]) {
        variables.push_back(wanted[i].node);
        some.push_back(found[i]);
      }
    if (some.empty()) throw UserError(fmt::format("no trainable variable of the graph '{}' reaches its loss", g_.name));
    Value finite = scale || options_.flag("skip_nonfinite") ? gate(some) : Value{};
    if (scale) scale.divide(some);
    clip(some);
    if (real("weight_decay") > 0) choose_decayed(variables);
    for (std::size_t i = 0; i < variables.size(); ++i) {
      update(variables[i], some[i]);
      if (real("average_decay") > 0) average(variables[i]);
    }
    count_steps();
    if (scale) scale.update(g_.gate, finite);
  }

  /// Once it has run.
  void refuse_steps_that_stand_still() {
    if (reads_steps_ && !Movement(g_).of(ancestors(g_, {step().id}))) refuse_step("which is the same in each step");
  }

 private:
  double real(const char* name) const { return options_.real(name); }

  void clip(std::vector<Value>& gradients) {
    g_.cursor = {"clip", {}, -1, Role::update, {}};
    if (double limit = real("clip_norm"); limit > 0) gradients = clip_by_global_norm(gradients, limit, {});
    for (Value& v : gradients) {
      if (double limit = real("clip_each_norm"); limit > 0) v = clip_by_norm(v, limit, {});
      if (double limit = real("clip_value"); limit > 0) v = belfry::clip(v, -limit, limit, {});
    }
    g_.cursor = {};
  }

  /// A gradient that is not finite closes the updates of this step, beside the gate that is there. Gives whether all are finite.
  Value gate(const std::vector<Value>& gradients) {
    g_.cursor = {"gate", {}, -1, Role::update, {}};
    std::vector<Value> conditions;
    for (Value v : gradients) conditions.push_back(all_finite(v));
    Value finite = all_of(conditions);
    g_.gate = g_.gate.valid() ? all_of({g_.value(g_.gate), finite}).id : finite.id;
    g_.cursor = {};
    return finite;
  }

  /// All but those that `no_decay` names; a pattern that names none is a mistake.
  void choose_decayed(const std::vector<NodeId>& variables) {
    decayed_.insert(variables.begin(), variables.end());
    for (const std::string& pattern : globs_of(options_.text("no_decay"))) {
      bool any = false;
      for (NodeId id : variables)
        if (glob_matches(pattern, g_.node(id).name)) any = true, decayed_.erase(id);
      if (!any) throw UserError(fmt::format("optimizer '{}': no_decay names '{}', but no variable that is trained matches it", spec_.optimizer, pattern));
    }
  }

  // ---------------------------------------------------------------- scalars, once per dtype

  /// "" for the first dtype, then "_f64".
  template <class Make>
  Value once(std::map<DType, Value>& made, DType dtype, Make make) {
    auto [at, fresh] = made.try_emplace(dtype);
    if (!fresh) return at->second;
    const std::string ending = made.size() > 1 ? "_" + std::string(name_of(dtype)) : "";
    Cursor before = std::exchange(g_.cursor, {"", {}, -1, Role::update, {}});
    Value out = make(ending);
    g_.cursor = before;
    return made[dtype] = out;
  }

  Value number_of_rate(DType dtype, const std::string& name) {
    if (const NodeId taken = g_.find_node(name); taken >= 0) {
      throw UserError(fmt::format("the graph '{}' has a node '{}'{}, and the optimizer's learning rate is called so in what is trained: give the node another name", g_.name, name, g_.node(taken).source.aside()));
    }
    return g_.add("constant", {}, {{"value", converted(HostTensor::scalar(real("learning_rate")), dtype)}}, name);
  }

  /// The learning rate as it was given.
  Value base_rate(DType dtype) {
    return once(base_rates_, dtype, [&](const std::string& ending) {
      if (!spec_.learning_rate.valid() && spec_.schedule.entries().empty()) return number_of_rate(dtype, "learning_rate" + ending);
      if (!spec_.learning_rate.valid() && !scheduled_) {
        g_.cursor.scope = "learning_rate";
        scheduled_ = schedule(step(), spec_.schedule);
      }
      Value out = cast(scheduled_ ? scheduled_ : g_.value(spec_.learning_rate), dtype);
      if (!g_.find("learning_rate")) g_.aliases["learning_rate"] = out.id;  // each kind of rate is fetched by one name
      return out;
    });
  }

  Value corrected(Value rate, bool first, bool second, const std::string& name) {
    return g_.add("adam_rate", {rate, step()}, {{"beta1", first ? real("beta1") : 0.0}, {"beta2", second ? real("beta2") : 0.0}, {"powers", options_.text("powers")}}, name);
  }

  Value rate(DType dtype) {
    if (kind_.correction == RateCorrection::none) return base_rate(dtype);
    Value base = base_rate(dtype);
    return once(rates_, dtype, [&](const std::string& ending) {
      g_.cursor.scope = kind_.prefix;
      return corrected(base, true, kind_.correction == RateCorrection::both, "rate" + ending);
    });
  }

  Value decay(DType dtype) {
    Value base = base_rate(dtype);
    return once(decays_, dtype, [&](const std::string&) { return base * real("weight_decay"); });
  }

  /// The user's own node of that name, or a variable that is added; none where the user's cannot count.
  std::optional<Value> counter() {
    if (NodeId id = g_.find_node("step"); id >= 0) return g_.node(id).types.at(0) == counts_in_ ? std::optional(g_.value({id, 0})) : std::nullopt;
    Cursor before = std::exchange(g_.cursor, {"", {}, -1, Role::update, {}});
    Value out = variable(g_, "step", {}, {.dtype = i64, .trainable = false}, {});
    g_.cursor = before;
    return out;
  }

  [[noreturn]] void refuse_step(const std::string& why) const {
    const Node& n = g_.node(g_.find_node("step"));
    throw UserError(fmt::format("the graph '{}' has a node '{}'{}, {}, and what is trained counts its steps in {} of that name: give the node another name", g_.name, n.name, n.source.aside(), why, to_string(counts_in_)));
  }

  /// What counts the steps, for what reads them.
  Value step() {
    std::optional<Value> out = counter();
    if (!out) refuse_step("which is " + to_string(g_.node(g_.find_node("step")).types.at(0)));
    reads_steps_ = true;
    return *out;
  }

  // ---------------------------------------------------------------- updates

  /// The options that the op has too.
  Attributes attributes_of(const std::string& op) const {
    Attributes out;
    for (const AttributeDef& def : g_.ops().at(op).attributes)
      if (const AttributeValue* given = options_.find(def.name)) out.set(def.name, *given);
    return out;
  }

  /// What an update reads; `decay` where the variable decays.
  struct Step {
    Value w;
    std::vector<Value> slots;
    Value gradient, rate, decay;
    UpdateRule rule;
  };

  void update(NodeId id, Value gradient) {
    Value w = g_.value({id, 0}), r = rate(w.dtype());
    Value d = decayed_.contains(id) && spec_.optimizer != "lamb" ? decay(w.dtype()) : Value{};
    Step s{w, {}, gradient, r, d, kind_.update(options_, w.shape())};
    g_.cursor = {"", {}, id, Role::update, {}};
    for (const SlotRule& slot : s.rule.slots)
      s.slots.push_back(variable(g_, kind_.prefix + "_" + slot.name + "/" + w.name(), slot.shape.value_or(w.shape()),
                                 {.dtype = w.dtype(), .init = slot.start.empty() ? "zeros" : "constant", .init_value = slot.start.empty() ? 0 : real(slot.start.c_str()), .trainable = false}, {}));
    std::vector<Value> next = spec_.optimizer == "lamb" ? by_lamb(s) : spec_.optimizer == "adafactor" ? by_adafactor(s) : by_op(s);
    g_.updates[id] = next[0].id;
    for (std::size_t k = 0; k < s.slots.size(); ++k) g_.updates[s.slots[k].id.node] = next[k + 1].id;
    g_.cursor = {};
  }

  // Each gives the new value, then the slots anew.

  std::vector<Value> by_op(const Step& s) {
    std::vector<Value> inputs = with_slots(s);
    inputs.push_back(s.rate);
    if (s.decay) inputs.push_back(s.decay);
    return outputs(g_.add(s.rule.op, inputs, attributes_of(s.rule.op), update_name(s.w)), s.slots.size());
  }

  std::vector<Value> by_lamb(const Step& s) {
    auto [scale, root] = lamb_corrections(s.w.dtype());
    std::vector<Value> inputs = with_slots(s);
    inputs.insert(inputs.end(), {scale, root});
    Attributes attributes = attributes_of(s.rule.op);
    if (!decayed_.contains(s.w.id.node)) attributes.set("weight_decay", 0.0);
    std::vector<Value> out = outputs(g_.add(s.rule.op, inputs, attributes, kind_.prefix + "/direction/" + s.w.name()), s.slots.size());
    out[0] = g_.add("sgd", {s.w, out[0], s.rate * trust(s.w, out[0])}, {}, update_name(s.w));
    return out;
  }

  std::vector<Value> by_adafactor(const Step& s) {
    const DType t = s.w.dtype();
    Value count = once(counts_, t, [&](const std::string&) { return g_.cursor.scope = kind_.prefix, cast(step(), t) + 1; });
    Value bounded = once(rates_, t, [&](const std::string&) { return g_.cursor.scope = kind_.prefix, minimum(s.rate, 1 / sqrt(count)); });
    Value kept = once(roots_, t, [&](const std::string&) { return g_.cursor.scope = kind_.prefix, 1 - pow(count, constant_like(count, real("beta2_decay"))); });
    g_.cursor.scope = kind_.prefix + "/direction/" + s.w.name();
    Value w = s.decay ? s.w - s.decay * s.w : s.w;
    Factored made = adafactor(w, s.slots, s.gradient, bounded, kept, options_);
    g_.cursor.scope = {};
    std::vector<Value> out = {g_.add("sgd", {w, made.direction, made.rate}, {}, update_name(s.w))};
    out.insert(out.end(), made.slots.begin(), made.slots.end());
    return out;
  }

  /// The variable, its slots and the gradient: how the inputs of an update begin.
  static std::vector<Value> with_slots(const Step& s) {
    std::vector<Value> out = {s.w};
    out.insert(out.end(), s.slots.begin(), s.slots.end());
    out.push_back(s.gradient);
    return out;
  }

  std::string update_name(Value w) const { return kind_.prefix + "/" + w.name(); }

  static std::vector<Value> outputs(Value first, std::size_t others) {
    std::vector<Value> out = {first};
    for (std::size_t k = 1; k <= others; ++k) out.push_back(first.output(static_cast<int>(k)));
    return out;
  }

  std::pair<Value, Value> lamb_corrections(DType dtype) {
    Value one = once(ones_, dtype, [&](const std::string&) { return g_.add("constant", {}, {{"value", converted(HostTensor::scalar(1.0), dtype)}}); });
    Value scale = once(rates_, dtype, [&](const std::string& ending) { return g_.cursor.scope = kind_.prefix, corrected(one, true, true, "scale" + ending); });
    Value root = once(roots_, dtype, [&](const std::string& ending) { return g_.cursor.scope = kind_.prefix, corrected(one, false, true, "root" + ending); });
    return {scale, root};
  }

  /// |w|/|direction|, or 1 where one of them is 0.
  Value trust(Value w, Value direction) {
    g_.cursor.scope = kind_.prefix + "/trust";
    Value above = global_norm({w}, {}), below = global_norm({direction}, {}), zero = constant_like(above, 0), one = constant_like(above, 1);
    Value out = where(logical_and(greater(above, zero), greater(below, zero)), above / where(greater(below, zero), below, one), one);
    g_.cursor.scope = {};
    return out;
  }

  /// 1 − decay; by the step counted from 1, decay is at most (1 + s)/(10 + s), as TensorFlow 1 has it with num_updates.
  Value average_weight(DType dtype) {
    return once(weights_, dtype, [&](const std::string&) {
      g_.cursor.scope = "average";
      if (!options_.flag("average_by_step")) return g_.add("constant", {}, {{"value", converted(HostTensor::scalar(1 - real("average_decay")), dtype)}});
      Value s = cast(step(), dtype) + 1;
      return 1 - minimum((s + 1) / (s + 10), constant_like(s, real("average_decay")));
    });
  }

  /// A moving average of the variable's new values.
  void average(NodeId id) {
    const Attributes a = g_.node(id).attributes;
    const std::string name = g_.node(id).name;
    Value w = g_.value({id, 0}), weight = average_weight(w.dtype());
    g_.cursor = {"", {}, id, Role::update, {}};
    Value mean = variable(g_, average_of(name), w.shape(), {.dtype = w.dtype(), .init = a.text("init"), .init_value = a.real("init_value"), .trainable = false}, {});
    g_.updates[mean.id.node] = g_.add("moving_average", {mean, g_.value(g_.updates.at(id)), weight}, {}, "average/" + name).id;
    g_.cursor = {};
  }

  void count_steps() {
    const std::optional<Value> s = counter();
    if (!s) return;  // nothing here reads the steps
    const NodeId id = s->id.node;
    if (g_.node(id).op->name == kVariable && !g_.updates.contains(id)) {  // else who feeds or updates it counts
      g_.cursor = {"", {}, id, Role::update, {}};
      g_.updates[id] = g_.add("add", {*s, constant_like(*s, 1)}, {}, "step/next").id;
      g_.cursor = {};
    }
  }

  const TensorType counts_in_{i64, {}};
  Graph& g_;
  TrainSpec spec_;
  const OptimizerKind& kind_;
  Attributes options_;
  std::map<DType, Value> base_rates_, rates_, decays_, ones_, roots_, counts_, weights_;
  Value scheduled_;
  bool reads_steps_ = false;
  std::set<NodeId> decayed_;
};

}  // namespace

Graph differentiate(const Graph& graph) {
  Graph out = graph;
  if (out.train) {
    // Values of a copied graph belong to the copy.
    Trainer(out).run();
  }
  return out;
}

void refuse_steps_that_stand_still(const Graph& graph) {
  const NodeId id = graph.find_node("step");
  if (!graph.train || id < 0 || (graph.node(id).op->name == kVariable && !graph.updates.contains(id))) return;  // training counts
  Graph trained = graph;
  Trainer trainer(trained);
  trainer.run();
  trainer.refuse_steps_that_stand_still();
}

void refuse_draws_that_repeat(const Graph& g) {
  if (g.updates.empty()) return;
  Movement movement(g);
  std::set<std::pair<ValueId, ValueId>> looked_at;  // most draws of a graph read one seed and step
  for (const Node& n : g.nodes()) {
    if (!n.op->random) continue;
    auto input = [&](const char* name) {
      for (std::size_t k = 0; k < std::min(n.inputs.size(), n.op->inputs.size()); ++k)
        if (n.op->inputs[k].name == name) return n.inputs[k];
      return ValueId{};
    };
    const ValueId seed = input("seed"), step = input("step");
    if (!step.valid() || !looked_at.insert({seed, step}).second) continue;
    const std::vector<bool> read = ancestors(g, {seed, step}), by_step = ancestors(g, {step});
    std::string still;
    for (NodeId id = 0; id < g.size(); ++id)
      if (by_step[static_cast<std::size_t>(id)] && g.node(id).op->name == kVariable) still = g.node(id).name;
    if (still.empty() || movement.of(read)) continue;
    const char* why = g.updates.contains(g.find_node(still)) ? "whose update gives the same in each step" : "which nothing updates";
    throw UserError(fmt::format("[{}] node '{}'{}: its step is the variable '{}', {}, so that it would draw the same in each step; {}give '{}' an update that counts", n.op->name, n.name,
                                n.source.aside(), still, why, still == "step" ? "" : "let it read the variable 'step', which training counts, or ", still));
  }
}

}  // namespace belfry
