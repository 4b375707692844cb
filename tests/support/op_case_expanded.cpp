// One op between inputs of every state and fetches, through expand: the towers' results are those of the whole.
#include "op_case.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <belfry/graph/contexts.h>
#include <belfry/graph/evaluate.h>
#include <belfry/graph/gradients.h>
#include <belfry/graph/split_rules.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/build.h>
#include <belfry/placer/expand.h>

#include "interpreter.h"

namespace belfry::test {

namespace {

using Parts = std::vector<HostTensor>;

/// Each tower's own sum over its rows.
OpDef own_sum_def() {
  OpDef out = *standard_ops().find("reduce_sum");
  out.name = "own_sum";
  out.gradient = no_gradient("for tests of states alone");
  out.split = [](const SplitContext&) { return Split{{rows(0)}, {kPerTower}}; };
  return out;
}

class ExpandCheck {
 public:
  ExpandCheck(const OpDef& def, const OpCase& c, std::shared_ptr<const OpSet> ops, int towers, std::int64_t batch, bool dyadic)
      : def_(def), case_(c), ops_(std::move(ops)), towers_(towers), batch_(batch), dyadic_(dyadic), rng_(41) {}

  void operator()(const std::vector<SplitState>& states) {
    std::string list;
    for (SplitState s : states) list += " " + to_string(s);
    SCOPED_TRACE(fmt::format("{}: {}, T {} B {},{}", def_.name, case_.name, towers_, batch_, list));
    feeds_.clear();
    wholes_.clear();
    own_.clear();
    auto graph = std::make_shared<Graph>(ops_);
    std::vector<Value> inputs;
    for (std::size_t i = 0; i < states.size(); ++i) inputs.push_back(case_.inputs[i].given ? offer(*graph, i, states[i]) : left_out(i));
    Value y = graph->add(*ops_->find(def_.name), inputs, case_.attributes, "under_test");
    std::vector<std::pair<std::string, ValueId>> fetches;
    for (std::size_t k = 0; k < case_.outputs.size(); ++k) fetches.emplace_back(fmt::format("y{}", k), y.output(static_cast<int>(k)).id);
    bool per_tower = std::any_of(states.begin(), states.end(), [](SplitState s) { return s.is_per_tower(); });
    if (!per_tower && !case_.by_share) add_gradients(*graph, y, inputs, fetches);
    TowerGraph tg;
    std::string refused, refusal = refusal_of(*graph, states, inputs);
    try {
      tg = expand(graph, {.towers = towers_, .batch = batch_, .fetches = fetches});
    } catch (const UserError& e) {
      refused = e.what();
    }
    EXPECT_EQ(refused, refusal);
    if (!refused.empty()) return;
    Result got = run_towers(tg, feeds_, {});
    if (per_tower || case_.by_share) return compare_shares(tg, got);
    Result want = run_whole(*graph, feeds_, {}, batch_, fetches);
    for (const auto& [name, t] : want.fetched) {
      bool exact = !is_float(t.dtype()) || (dyadic_ && case_.exact_sums && name[0] == 'y');
      EXPECT_LE(distance(got.fetched.at(name), t), exact ? 0 : narrow() ? 1e-5 : 1e-11) << name;
    }
  }

 private:
  Range share(int t) const { return share_of(batch_, towers_, t); }
  int present() const { return static_cast<int>(std::min<std::int64_t>(towers_, batch_)); }

  bool narrow() const {
    return std::any_of(case_.inputs.begin(), case_.inputs.end(), [](const CaseInput& i) { return i.type.dtype == f32; });
  }

  /// What expand must say of inputs in these states by the op's own rule; nothing where they can be read.
  std::string refusal_of(const Graph& g, const std::vector<SplitState>& states, const std::vector<Value>& inputs) const {
    const Attributes attributes = checked(def_.attributes, case_.attributes, def_.name);
    SplitContext context{def_, attributes, {}, states, case_.outputs, batch_};
    for (const CaseInput& i : case_.inputs) context.inputs.push_back(i.given ? i.type : TensorType{});
    const std::vector<SplitState> reads = def_.split(context).reads;
    bool per_tower = false, part = false;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!inputs[i] || def_.inputs[std::min(i, def_.inputs.size() - 1)].shape_only) continue;
      per_tower |= reads[i].is_per_tower();
      part |= reads[i].is_partial();
      if (states[i].is_per_tower() && !reads[i].is_per_tower())
        return fmt::format("[{}] 'under_test' reads '{}', of which each tower has its own; take its tower_mean", def_.name, g.name_of(inputs[i].id));
    }
    return per_tower && part ? fmt::format("[{}] 'under_test' joins a value per tower with one that is summed over the towers; take a tower_mean first", def_.name) : "";
  }

  Value feed(Graph& g, const TensorType& type, HostTensor value) {
    std::string name = fmt::format("feed{}", feeds_.size());
    feeds_.emplace(name, std::move(value));
    return input(g, name, type.dtype, type.shape);
  }

  Value left_out(std::size_t i) {
    wholes_.push_back(draw(case_.inputs[i], batch_, dyadic_, rng_));
    own_.emplace_back();
    return {};
  }

  /// An input in a state: a partial is a reduction over rows, other row axes come by a transposition.
  Value offer(Graph& g, std::size_t i, SplitState s) {
    TensorType type = case_.inputs[i].type;
    wholes_.push_back(draw(case_.inputs[i], batch_, dyadic_, rng_));
    own_.emplace_back();
    if (s.is_rows() && s.axis != symbolic_axes(type.shape)[0]) return offer_transposed(g, type, s.axis);
    if (s.is_rows() || s.is_replicated()) return feed(g, type, wholes_.back());
    TensorType many = type;
    many.shape.insert(many.shape.begin(), kBatch);
    if (s.is_partial()) {
      Value rows = feed(g, many, stacked(parts_of(wholes_.back(), batch_, s.reduction, dyadic_, rng_)));
      return s.reduction == Reduction::sum ? reduce_sum(rows, {.axes = {0}}) : reduce_max(rows, {.axes = {0}});
    }
    // Of bool and bytes there are no sums: they come by a cast.
    if (type.dtype == boolean || type.dtype == u8) many.dtype = i32;
    Parts all;
    for (int t = 0; t < present(); ++t) {
      own_.back().push_back(draw(case_.inputs[i], batch_, true, rng_));
      Parts mine = parts_of(converted(own_.back().back(), many.dtype), share(t).count(), Reduction::sum, true, rng_);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    return cast(g.add("own_sum", {feed(g, many, stacked(all))}, {{"axes", Integers{0}}}), type.dtype);
  }

  Value offer_transposed(Graph& g, const TensorType& type, int axis) {
    Integers swap;
    for (std::size_t a = 0; a < type.shape.size(); ++a) swap.push_back(static_cast<std::int64_t>(a));
    std::swap(swap[static_cast<std::size_t>(axis)], swap[static_cast<std::size_t>(symbolic_axes(type.shape)[0])]);
    TensorType turned = type;
    for (std::size_t a = 0; a < swap.size(); ++a) turned.shape[a] = type.shape[static_cast<std::size_t>(swap[a])];
    const OpDef& op = *ops_->find("transpose");
    auto value = evaluate(op, {{"order", swap}}, {&wholes_.back()}, {turned}, {local_type(turned, batch_)}, Share{0, batch_, batch_, 1, Combine::global_mean});
    return transpose(feed(g, turned, value[0]), swap);
  }

  void add_gradients(Graph& g, Value y, const std::vector<Value>& inputs, std::vector<std::pair<std::string, ValueId>>& fetches) {
    if (!def_.differentiable() || y.dtype() != f64 || case_.keep_dtypes) return;
    Value loss = reduce_sum(y * feed(g, y.type(), draw({y.type()}, batch_, dyadic_, rng_)));
    std::vector<ValueId> wanted;
    for (const Value& x : inputs)
      if (x && x.dtype() == f64) wanted.push_back(x.id);
    std::vector<Value> found = gradients(g, {loss.id}, wanted);
    for (std::size_t i = 0; i < found.size(); ++i)
      if (found[i]) fetches.emplace_back(fmt::format("gradient{}", i), found[i].id);
  }

  /// By its meaning: a row or a tower's own value is that of the op with what this tower has.
  void compare_shares(const TowerGraph& tg, const Result& got) {
    for (std::size_t k = 0; k < case_.outputs.size(); ++k) {
      std::string name = fmt::format("y{}", k);
      const PlanNode* fetch = nullptr;
      for (const PlanNode& n : tg.nodes)
        if (n.name == "fetch/" + name) fetch = &n;
      if (!fetch) return void(ADD_FAILURE() << "no fetch of " << name);
      const std::string how = fetch->attributes.text("how");
      Parts parts;
      if (how == "sum") continue;  // the sum of what each share gives, by definition
      for (int t = 0; t < present(); ++t) parts.push_back(of_tower(t, k, how == "concat_rows" ? static_cast<int>(fetch->attributes.integer("axis")) : -1));
      HostTensor want = how == "concat_rows" ? joined(parts, static_cast<int>(fetch->attributes.integer("axis"))) : how == "stack" ? stacked(parts) : parts[0];
      EXPECT_LE(distance(got.fetched.at(name), want), is_float(want.dtype()) ? 1e-11 : 0) << name << " by " << how;
    }
  }

  /// What tower t has of output k; its rows along `axis` if that is given.
  HostTensor of_tower(int t, std::size_t k, int axis) {
    Range r = share(t);
    Share share{r.first, r.count(), batch_, present(), Combine::global_mean};
    Parts inputs;
    for (std::size_t i = 0; i < wholes_.size(); ++i) {
      inputs.push_back(own_[i].empty() ? wholes_[i] : own_[i][static_cast<std::size_t>(t)]);
      auto axes = symbolic_axes(case_.inputs[i].type.shape);
      if (!case_.by_share || axes.empty()) continue;
      std::int64_t f = case_.inputs[i].type.shape[static_cast<std::size_t>(axes[0])].factor;
      inputs.back() = part_along(inputs.back(), axes[0], f * r.first, f * r.count());
    }
    std::vector<LocalType> local;
    for (const TensorType& type : case_.outputs) local.push_back(local_type(type, case_.by_share ? r.count() : batch_));
    if (!case_.by_share) share = {0, batch_, batch_, 1, Combine::global_mean};
    HostTensor out = evaluate(def_, checked(def_.attributes, case_.attributes, def_.name), pointers(case_, inputs), case_.outputs, local, share)[k];
    if (def_.joins_towers && t == 0) out = mean_of_own();
    if (axis < 0 || case_.by_share) return out;
    std::int64_t f = case_.outputs[k].shape[static_cast<std::size_t>(axis)].factor;
    return part_along(out, axis, f * r.first, f * r.count());
  }

  HostTensor mean_of_own() const {
    HostTensor out = own_[0][0];
    visit_float(out.dtype(), [&]<class T>() {
      for (std::size_t i = 0; i < out.data<T>().size(); ++i) {
        T sum = 0;
        for (const HostTensor& p : own_[0]) sum += p.data<T>()[i];
        out.data<T>()[i] = sum / static_cast<T>(own_[0].size());
      }
    });
    return out;
  }

  const OpDef& def_;
  const OpCase& case_;
  std::shared_ptr<const OpSet> ops_;
  int towers_;
  std::int64_t batch_;
  bool dyadic_;
  std::mt19937_64 rng_;
  Tensors feeds_;
  Parts wholes_;             ///< per input
  std::vector<Parts> own_;   ///< per input and tower, of per-tower inputs
};

}  // namespace

void check_expanded(const OpDef& def, const std::vector<OpCase>& cases) {
  OpSet set = standard_ops();
  if (!set.find(def.name)) set.add(def);
  set.add(own_sum_def());
  auto ops = std::make_shared<const OpSet>(std::move(set));
  for (const OpCase& given : cases) {
    if (!given.no_reference.empty()) continue;
    OpCase c = in_f64(def, given);
    for_each_shares([&](int towers, std::int64_t batch) {
      for (bool dyadic : {true, false}) {
        ExpandCheck check(*ops->find(def.name), c, ops, towers, batch, dyadic);
        for_each_states(c, [&](const std::vector<SplitState>& states) { check(states); });
      }
    });
  }
}

}  // namespace belfry::test
