#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/gradients.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

using Schema = std::vector<AttributeDef>;

/// Options of every kind; a learning rate may be a value in the graph instead.
Schema with_common(Schema own, double rate) {
  Schema out = {AttributeDef("learning_rate", rate)};
  out.insert(out.end(), own.begin(), own.end());
  out.push_back(AttributeDef("clip_norm", 0.0).between(0, 1e30));
  out.push_back({"skip_nonfinite", false});
  return out;
}

const std::map<std::string, Schema>& kinds() {
  static const std::map<std::string, Schema> table = {
      {"sgd", with_common({}, 0.01)},
      {"momentum", with_common({AttributeDef("momentum", 0.9).between(0, 1), {"nesterov", false}}, 0.01)},
      {"adam", with_common({AttributeDef("beta1", 0.9).between(0, 1), AttributeDef("beta2", 0.999).between(0, 1), AttributeDef("epsilon", 1e-7).between(0, 1),
                            AttributeDef("powers", "float32").one_of({"float32", "exact"})},
                           0.001)}};
  return table;
}

/// A slot of a variable: zeros of its type.
Value slot(Graph& g, const std::string& name, Value variable_) {
  return variable(g, name, variable_.shape(), {.dtype = variable_.dtype(), .trainable = false}, {});
}

class Trainer {
 public:
  explicit Trainer(Graph& g) : g_(g), spec_(*g.train), options_(checked(optimizer_options(spec_.optimizer), spec_.options, fmt::format("optimizer '{}':", spec_.optimizer))) {}

  void run() {
    std::vector<NodeId> variables;
    std::vector<ValueId> wanted;
    for (NodeId id : g_.variables())
      if (g_.node(id).attributes.flag("trainable")) wanted.push_back({id, 0});
    g_.losses = spec_.losses;
    g_.train.reset();
    std::vector<Value> found = gradients(g_, g_.losses, wanted), some;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (found[i]) {
        variables.push_back(wanted[i].node);
        some.push_back(found[i]);
      }
    if (some.empty()) throw UserError(fmt::format("no trainable variable of the graph '{}' reaches its loss", g_.name));
    if (options_.flag("skip_nonfinite")) gate(some);
    clip(some);
    for (std::size_t i = 0; i < variables.size(); ++i) update(variables[i], some[i]);
    count_steps();
  }

 private:
  double real(const char* name) const { return options_.real(name); }

  /// By the global norm: g·clip/max(norm, clip).
  void clip(std::vector<Value>& gradients) {
    double limit = real("clip_norm");
    if (limit == 0) return;
    g_.cursor = {"clip", {}, -1, Role::update, {}};
    std::map<DType, std::vector<Value>> squares;
    for (Value v : gradients) squares[v.dtype()].push_back(reduce_sum(square(v)));
    if (squares.size() > 1) throw UserError("clip_norm needs variables of one dtype");
    Value norm = sqrt(add_n(squares.begin()->second));
    Value factor = limit / maximum(norm, constant_like(norm, limit));
    for (Value& v : gradients) v = v * factor;
    g_.cursor = {};
  }

  /// A gradient that is not finite closes the updates of this step, beside the gate that is there.
  void gate(const std::vector<Value>& gradients) {
    g_.cursor = {"gate", {}, -1, Role::update, {}};
    std::vector<Value> conditions;
    if (g_.gate.valid()) conditions.push_back(g_.value(g_.gate));
    for (Value v : gradients) conditions.push_back(all_finite(v));
    g_.gate = all_of(conditions).id;
    g_.cursor = {};
  }

  Value rate(DType dtype) {
    auto [at, fresh] = rates_.try_emplace(dtype);
    if (!fresh) return at->second;
    g_.cursor = {"", {}, -1, Role::update, {}};
    Value base = spec_.learning_rate.valid() ? cast(g_.value(spec_.learning_rate), dtype)
                                             : g_.add("constant", {}, {{"value", converted(HostTensor::scalar(real("learning_rate")), dtype)}},
                                                      rates_.size() > 1 ? std::string("learning_rate_") + std::string(name_of(dtype)) : "learning_rate");
    if (spec_.optimizer == "adam") {
      g_.cursor.scope = "adam";
      base = g_.add("adam_rate", {base, step()}, {{"beta1", real("beta1")}, {"beta2", real("beta2")}, {"powers", options_.text("powers")}}, rates_.size() > 1 ? "" : "rate");
    }
    g_.cursor = {};
    return at->second = base;
  }

  Value step() {
    if (NodeId id = g_.find_node("step"); id >= 0) return g_.value({id, 0});
    Cursor before = std::exchange(g_.cursor, {"", {}, -1, Role::update, {}});
    Value out = variable(g_, "step", {}, {.dtype = i64, .trainable = false}, {});
    g_.cursor = before;
    return out;
  }

  void update(NodeId id, Value gradient) {
    Value w = g_.value({id, 0}), r = rate(w.dtype());
    const std::string name = g_.node(id).name, &kind = spec_.optimizer;
    g_.cursor = {"", {}, id, Role::update, {}};
    auto made = [&](Value out, std::vector<Value> slots) {
      g_.updates[id] = out.id;
      for (std::size_t k = 0; k < slots.size(); ++k) g_.updates[slots[k].id.node] = out.output(static_cast<int>(k) + 1).id;
    };
    if (kind == "sgd") made(g_.add("sgd", {w, gradient, r}, {}, "sgd/" + name), {});
    if (kind == "momentum") {
      Value m = slot(g_, "momentum_m/" + name, w);
      made(g_.add("momentum", {w, m, gradient, r}, {{"momentum", real("momentum")}, {"nesterov", options_.flag("nesterov")}}, "momentum/" + name), {m});
    }
    if (kind == "adam") {
      Value m = slot(g_, "adam_m/" + name, w), v = slot(g_, "adam_v/" + name, w);
      made(g_.add("adam", {w, m, v, gradient, r}, {{"beta1", real("beta1")}, {"beta2", real("beta2")}, {"epsilon", real("epsilon")}}, "adam/" + name), {m, v});
    }
    g_.cursor = {};
  }

  void count_steps() {
    Value s = step();
    g_.cursor = {"", {}, s.id.node, Role::update, {}};
    if (!g_.updates.contains(s.id.node)) g_.updates[s.id.node] = g_.add("add", {s, constant_like(s, 1)}, {}, "step/next").id;
    g_.cursor = {};
  }

  Graph& g_;
  TrainSpec spec_;
  Attributes options_;
  std::map<DType, Value> rates_;
};

}  // namespace

const std::vector<AttributeDef>& optimizer_options(const std::string& kind) {
  if (auto at = kinds().find(kind); at != kinds().end()) return at->second;
  std::vector<std::string> names;
  for (const auto& [name, schema] : kinds()) names.push_back(name);
  throw UserError(fmt::format("there is no optimizer '{}'; there are {}{}", kind, fmt::join(names, ", "), did_you_mean(kind, names)));
}

Graph differentiate(const Graph& graph) {
  Graph out = graph;
  if (out.train) {
    // Values of a copied graph belong to the copy.
    Trainer(out).run();
  }
  return out;
}

}  // namespace belfry
