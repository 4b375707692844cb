// The split rule alone: what it claims is compared with the op on the whole batch.
#include "op_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/graph/contexts.h>
#include <belfry/graph/evaluate.h>
#include <belfry/graph/plan/tower_graph.h>
#include <belfry/ops/loops.h>

#include "interpreter.h"

namespace belfry::test {

namespace {

using Parts = std::vector<HostTensor>;

/// An input as the towers hold it.
struct Held {
  HostTensor whole;  ///< of a per-tower value: none
  Parts parts;       ///< of partial and per-tower values
};

std::string list(const std::vector<SplitState>& states) {
  std::string out;
  for (const SplitState& s : states) out += (out.empty() ? "" : ", ") + to_string(s);
  return "(" + out + ")";
}

HostTensor joined(const Parts& parts, Reduction reduction) {
  HostTensor out = parts[0];
  visit_dtype(out.dtype(), [&]<class T>() {
    for (std::size_t t = 1; t < parts.size(); ++t)
      for (std::size_t i = 0; i < out.data<T>().size(); ++i) {
        T a = out.data<T>()[i], b = parts[t].data<T>()[i];
        out.data<T>()[i] = reduction == Reduction::max ? std::max(a, b) : static_cast<T>(a + b);
      }
  });
  return out;
}

HostTensor absolute(HostTensor x) {
  visit_float(x.dtype(), [&]<class T>() {
    for (T& e : x.data<T>()) e = std::abs(e);
  });
  return x;
}

class SplitCheck {
 public:
  SplitCheck(const OpDef& def, const OpCase& c, int towers, std::int64_t batch, bool dyadic, std::uint64_t seed)
      : def_(def), case_(c), attributes_(checked(def.attributes, c.attributes, def.name)), towers_(towers), batch_(batch), dyadic_(dyadic), rng_(seed) {}

  void operator()(const std::vector<SplitState>& offered) {
    SplitContext context{def_, attributes_, {}, offered, case_.outputs, batch_};
    for (const CaseInput& i : case_.inputs) context.inputs.push_back(i.given ? i.type : TensorType{});
    Split s = def_.split(context);
    SCOPED_TRACE(fmt::format("{}: {}, T {} B {}, {} read as {} gives {}", def_.name, case_.name, towers_, batch_, list(offered), list(s.reads), list(s.gives)));
    if (s.reads.size() != offered.size() || s.gives.size() != case_.outputs.size()) return void(ADD_FAILURE() << "speaks of other inputs or outputs");
    for (std::size_t i = 0; i < offered.size(); ++i)
      if (shape_only(i)) s.reads[i] = offered[i];
    if (!legal(offered, s)) return;
    hold(s.reads);
    compare(s);
  }

 private:
  bool shape_only(std::size_t i) const { return def_.inputs[std::min(i, def_.inputs.size() - 1)].shape_only; }
  int present() const { return static_cast<int>(std::min<std::int64_t>(towers_, batch_)); }
  Share share(int t) const {
    if (t < 0) return {0, batch_, batch_, 1, Combine::global_mean};
    Range r = share_of(batch_, towers_, t);
    return {r.first, r.count(), batch_, present(), Combine::global_mean};
  }

  /// False where the combination is an error for the user, or where expand rewrites the node.
  bool legal(const std::vector<SplitState>& offered, const Split& s) const {
    bool per_tower = false, part = false;
    for (std::size_t i = 0; i < offered.size(); ++i) {
      if (shape_only(i)) continue;
      if (offered[i].is_per_tower() && !s.reads[i].is_per_tower()) return false;
      if (s.reads[i].is_per_tower() && !offered[i].is_per_tower()) return ADD_FAILURE() << "reads a value per tower that is none", false;
      if (s.reads[i].is_partial() && s.reads[i] != offered[i]) return ADD_FAILURE() << "demands a partial", false;
      if (s.reads[i].is_rows() && !rows_of(case_.inputs[i].type, s.reads[i])) return ADD_FAILURE() << "reads rows along an axis without them", false;
      per_tower |= s.reads[i].is_per_tower();
      part |= s.reads[i].is_partial();
    }
    for (std::size_t k = 0; k < s.gives.size(); ++k)
      if (s.gives[k].is_rows() && !rows_of(case_.outputs[k], s.gives[k])) return ADD_FAILURE() << "gives rows along an axis without them", false;
    bool cut = def_.sum_of_inputs && part && s.gives[0].is_replicated();
    return !(per_tower && part) && !cut && !(def_.joins_towers && per_tower);
  }

  static bool rows_of(const TensorType& type, SplitState s) {
    return s.axis >= 0 && s.axis < static_cast<int>(type.shape.size()) && type.shape[static_cast<std::size_t>(s.axis)].symbolic();
  }

  void hold(const std::vector<SplitState>& reads) {
    held_.clear();
    for (std::size_t i = 0; i < reads.size(); ++i) {
      Held h{draw(case_.inputs[i], batch_, dyadic_, rng_), {}};
      if (reads[i].is_partial()) h.parts = parts_of(h.whole, present(), reads[i].reduction, dyadic_, rng_);
      if (reads[i].is_per_tower())
        for (int t = 0; t < present(); ++t) h.parts.push_back(draw(case_.inputs[i], batch_, dyadic_, rng_));
      held_.push_back(std::move(h));
    }
  }

  /// What tower t holds of a value in a state.
  HostTensor local(const HostTensor& whole, const Parts& parts, const TensorType& type, SplitState s, int t) const {
    if (s.is_partial() || s.is_per_tower()) return parts[static_cast<std::size_t>(t)];
    if (!s.is_rows()) return whole;
    std::int64_t k = type.shape[static_cast<std::size_t>(s.axis)].factor;
    return slice(whole, s.axis, k * share(t).first_row, k * share(t).rows);
  }

  Parts evaluate_on(const Parts& inputs, const std::vector<SplitState>& gives, int t) const {
    std::vector<LocalType> types;
    for (std::size_t k = 0; k < gives.size(); ++k) types.push_back(local_type({"", case_.outputs[k], gives[k], -1, 0, true}, share(t)));
    return evaluate(def_, attributes_, pointers(case_, inputs), case_.outputs, types, share(t));
  }

  Parts on_whole(int tower_of_own_values, bool magnitudes = false) const {
    Parts inputs;
    for (const Held& h : held_) {
      bool own = tower_of_own_values >= 0 && !h.parts.empty();
      inputs.push_back(own ? h.parts[static_cast<std::size_t>(tower_of_own_values)] : h.whole);
      if (!magnitudes || !is_float(h.whole.dtype())) continue;
      Parts sizes;
      for (const HostTensor& p : h.parts) sizes.push_back(absolute(p));
      inputs.back() = sizes.empty() ? absolute(inputs.back()) : joined(sizes, Reduction::sum);
    }
    return magnitudes ? inputs : evaluate_on(inputs, std::vector<SplitState>(case_.outputs.size(), kReplicated), -1);
  }

  /// Σ |terms| per element: the largest |output| over the signs of the inputs' magnitudes.
  Parts magnitudes() const {
    Parts sizes = on_whole(-1, true), worst;
    for (std::size_t signs = 0; signs < (std::size_t{1} << sizes.size()); ++signs) {
      Parts inputs = sizes;
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (is_float(inputs[i].dtype()) && (signs >> i & 1))
          visit_float(inputs[i].dtype(), [&]<class T>() {
            for (T& e : inputs[i].data<T>()) e = -e;
          });
      Parts out = evaluate_on(inputs, std::vector<SplitState>(case_.outputs.size(), kReplicated), -1);
      for (std::size_t k = 0; k < out.size(); ++k)
        if (is_float(out[k].dtype())) out[k] = absolute(out[k]);
      if (worst.empty()) worst = out;
      for (std::size_t k = 0; k < out.size(); ++k) worst[k] = joined({worst[k], out[k]}, Reduction::max);
    }
    return worst;
  }

  void compare(const Split& s) {
    bool per_tower = false;
    for (std::size_t i = 0; i < s.reads.size(); ++i) per_tower |= s.reads[i].is_per_tower() && !shape_only(i);
    std::vector<Parts> made;  // per tower
    for (int t = 0; t < present(); ++t) {
      Parts inputs;
      for (std::size_t i = 0; i < held_.size(); ++i) inputs.push_back(local(held_[i].whole, held_[i].parts, case_.inputs[i].type, s.reads[i], t));
      made.push_back(evaluate_on(inputs, s.gives, t));
    }
    for (std::size_t k = 0; k < s.gives.size(); ++k) {
      SplitState g = s.gives[k];
      SCOPED_TRACE(fmt::format("output {}", k));
      if (per_tower && g.is_replicated()) ADD_FAILURE() << "is said to be the same everywhere, but towers read their own";
      if (!per_tower && g.is_per_tower() && !case_.by_share) ADD_FAILURE() << "is said to be each tower's own";
      if (g.is_partial() && !per_tower) compare_sum(k, g, made);
      // The op on each share means itself; that it was given the right share is seen through expand.
      if (g.is_partial() || case_.by_share) continue;
      for (int t = 0; t < present(); ++t) {
        HostTensor want = on_whole(per_tower ? t : -1)[k];
        want = local(want, {want}, case_.outputs[k], g.is_rows() ? g : kReplicated, t);
        const HostTensor& got = made[static_cast<std::size_t>(t)][k];
        EXPECT_EQ(got, want) << "tower " << t << " has not its part of the whole; distance " << distance(got, want);
      }
    }
  }

  void compare_sum(std::size_t k, SplitState g, const std::vector<Parts>& made) {
    if (case_.by_share) return;
    Parts parts;
    for (const Parts& tower : made) parts.push_back(tower[k]);
    HostTensor got = joined(parts, g.reduction), want = on_whole(-1)[k];
    bool exact = !is_float(want.dtype()) || g.reduction == Reduction::max || (dyadic_ && case_.exact_sums);
    if (exact) {
      EXPECT_EQ(distance(got, want), 0);
      return;
    }
    std::int64_t terms = towers_;
    for (const Held& h : held_) terms = std::max(terms, towers_ + h.whole.elements());
    HostTensor size = converted(magnitudes()[k], f64), a = converted(got, f64), b = converted(want, f64);
    bool narrow = std::any_of(held_.begin(), held_.end(), [](const Held& h) { return h.whole.dtype() == f32; });
    double unit = narrow ? 0x1p-24 : 0x1p-53;
    for (std::size_t i = 0; i < a.data<double>().size(); ++i)
      EXPECT_LE(std::abs(a.data<double>()[i] - b.data<double>()[i]), static_cast<double>(terms) * unit * size.data<double>()[i]) << "element " << i;
  }

  const OpDef& def_;
  const OpCase& case_;
  Attributes attributes_;
  int towers_;
  std::int64_t batch_;
  bool dyadic_;
  std::mt19937_64 rng_;
  std::vector<Held> held_;
};

}  // namespace

std::vector<SplitState> legal_states(const TensorType& type) {
  std::vector<SplitState> out;
  for (int axis : symbolic_axes(type.shape)) out.push_back(rows(axis));
  if (!out.empty()) return out;
  out = {kReplicated, kPerTower};
  if (type.dtype == boolean || type.dtype == u8) return out;
  out.insert(out.end(), {partial(Reduction::sum), partial(Reduction::max)});
  return out;
}

/// Of more combinations than this, those are taken in which at most two inputs are not in their first state.
constexpr std::int64_t kMostCombinations = 1024;

void for_each_states(const OpCase& c, const std::function<void(const std::vector<SplitState>&)>& f) {
  std::vector<std::vector<SplitState>> choices;
  for (const CaseInput& i : c.inputs) choices.push_back(i.given ? legal_states(i.type) : std::vector<SplitState>{kReplicated});
  Extents counts;
  for (const auto& some : choices) counts.push_back(static_cast<std::int64_t>(some.size()));
  const bool pairs = elements(counts) > kMostCombinations;
  for_each_index(counts, [&](const Extents& at) {
    if (pairs && std::count(at.begin(), at.end(), 0) < static_cast<std::int64_t>(at.size()) - 2) return;
    std::vector<SplitState> states;
    for (std::size_t i = 0; i < choices.size(); ++i) states.push_back(choices[i][static_cast<std::size_t>(at[i])]);
    f(states);
  });
}

void for_each_shares(const std::function<void(int towers, std::int64_t batch)>& f) {
  for (int towers : {2, 3})
    for (std::int64_t batch : std::set<std::int64_t>{1, towers - 1, towers, towers + 1}) f(towers, batch);
}

Parts parts_of(const HostTensor& whole, std::int64_t count, Reduction reduction, bool dyadic, std::mt19937_64& rng) {
  Parts out(static_cast<std::size_t>(count), whole);
  visit_dtype(whole.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      for (std::size_t i = 0; i < whole.data<T>().size(); ++i) {
        std::size_t last = rng() % out.size();
        T left = whole.data<T>()[i];
        for (std::size_t t = 0; t < out.size(); ++t) {
          if (t == last) continue;
          auto step = static_cast<double>(rng() % 16) / (is_float(whole.dtype()) ? dyadic ? 4 : 4.7 : 1);
          T& mine = out[t].data<T>()[i];
          if (reduction == Reduction::max) mine = static_cast<T>(left - static_cast<T>(step));
          else mine = static_cast<T>(step - 2), out[last].data<T>()[i] = static_cast<T>(out[last].data<T>()[i] - mine);
        }
      }
  });
  return out;
}

void check_split(const OpDef& def, const std::vector<OpCase>& cases) {
  for (const OpCase& given : cases) {
    if (!given.no_reference.empty()) continue;
    OpCase c = in_f64(def, given);
    for_each_shares([&](int towers, std::int64_t batch) {
      for (bool dyadic : {true, false}) {
        SplitCheck check(def, c, towers, batch, dyadic, 31 + static_cast<std::uint64_t>(batch));
        for_each_states(c, check);
      }
    });
  }
}

}  // namespace belfry::test
