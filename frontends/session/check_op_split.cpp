// The split rule alone: what it claims is compared with the op on the whole batch.
#include <belfry/frontends/session/check_op_internal.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/graph/plan/tower_graph.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

using Parts = std::vector<HostTensor>;

/// An input as the towers hold it.
struct Held {
  HostTensor whole;  ///< of a per-tower value: none
  Parts parts;       ///< of partial and per-tower values
};

std::string states_text(const std::vector<SplitState>& states) {
  std::vector<std::string> out;
  for (const SplitState& s : states) out.push_back(to_string(s));
  return fmt::format("({})", fmt::join(out, ", "));
}

HostTensor reduced(const Parts& parts, Reduction reduction) {
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
    place_ = fmt::format("{} towers of {} rows, offered {}: ", towers_, batch_, states_text(offered));
    try {
      Split s = def_.split(context);
      place_ = fmt::format("{} towers of {} rows, offered {} it reads {} and gives {}: ", towers_, batch_, states_text(offered), states_text(s.reads), states_text(s.gives));
      if (s.reads.size() != offered.size() || s.gives.size() != case_.outputs.size()) return object("the rule speaks of other inputs or outputs; give one state for each");
      for (std::size_t i = 0; i < offered.size(); ++i)
        if (shape_only(i)) s.reads[i] = offered[i];
      if (!legal(offered, s)) return;
      hold(s.reads);
      compare(s);
    } catch (const std::exception& e) {
      object(fmt::format("it ends with: {}", e.what()));
    }
  }

  const Objections& objections() const { return objections_; }

 private:
  void object(std::string_view what) { objections_.push_back(objection("split", def_, case_, place_ + std::string(what))); }
  bool shape_only(std::size_t i) const { return def_.inputs[std::min(i, def_.inputs.size() - 1)].shape_only; }
  int present() const { return static_cast<int>(std::min<std::int64_t>(towers_, batch_)); }
  Share share(int t) const {
    if (t < 0) return {0, batch_, batch_, 1, Combine::global_mean};
    Range r = share_of(batch_, towers_, t);
    return {r.first, r.count(), batch_, present(), Combine::global_mean};
  }

  /// False where the combination is an error for the user, or where expand rewrites the node.
  bool legal(const std::vector<SplitState>& offered, const Split& s) {
    bool per_tower = false, part = false;
    for (std::size_t i = 0; i < offered.size(); ++i) {
      if (shape_only(i)) continue;
      if (offered[i].is_per_tower() && !s.reads[i].is_per_tower()) return false;
      if (s.reads[i].is_per_tower() && !offered[i].is_per_tower()) return object(fmt::format("{} is read per tower, which it is not; read it as offered, or whole", input_of(def_, i))), false;
      if (s.reads[i].is_partial() && s.reads[i] != offered[i]) return object(fmt::format("{} is read as {}, which it is not; read it as offered, or whole", input_of(def_, i), to_string(s.reads[i]))), false;
      if (s.reads[i].is_rows() && !rows_of(case_.inputs[i].type, s.reads[i])) return object(fmt::format("{} is read as {}, and {} has no rows along that axis", input_of(def_, i), to_string(s.reads[i]), to_string(case_.inputs[i].type))), false;
      per_tower |= s.reads[i].is_per_tower();
      part |= s.reads[i].is_partial();
    }
    for (std::size_t k = 0; k < s.gives.size(); ++k)
      if (s.gives[k].is_rows() && !rows_of(case_.outputs[k], s.gives[k])) return object(fmt::format("{} is given as {}, and {} has no rows along that axis", output_of(def_, k), to_string(s.gives[k]), to_string(case_.outputs[k]))), false;
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
    return part_along(whole, s.axis, k * share(t).first_row, k * share(t).rows);
  }

  Parts evaluate_on(const Parts& inputs, const std::vector<SplitState>& gives, int t) {
    std::vector<LocalType> types;
    for (std::size_t k = 0; k < gives.size(); ++k) types.push_back(local_type({"", case_.outputs[k], gives[k], -1, 0, true}, share(t)));
    Parts out;
    for (const Guarded& made : run_guarded(def_, case_, inputs, types, share(t))) {
      if (made.overrun()) throw UserError(fmt::format("tower {} writes beyond {}, whose part is {}; its inputs must be split as it is", t, output_of(def_, out.size()), to_string(types[out.size()])));
      out.push_back(made.tensor());
    }
    return out;
  }

  Parts on_whole(int tower_of_own_values, bool magnitudes = false) {
    Parts inputs;
    for (const Held& h : held_) {
      bool own = tower_of_own_values >= 0 && !h.parts.empty();
      inputs.push_back(own ? h.parts[static_cast<std::size_t>(tower_of_own_values)] : h.whole);
      if (!magnitudes || !is_float(h.whole.dtype())) continue;
      Parts sizes;
      for (const HostTensor& p : h.parts) sizes.push_back(absolute(p));
      inputs.back() = sizes.empty() ? absolute(inputs.back()) : reduced(sizes, Reduction::sum);
    }
    return magnitudes ? inputs : evaluate_on(inputs, std::vector<SplitState>(case_.outputs.size(), kReplicated), -1);
  }

  /// Σ |terms| per element: the largest |output| over the signs of the inputs' magnitudes.
  Parts magnitudes() {
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
      for (std::size_t k = 0; k < out.size(); ++k) worst[k] = reduced({worst[k], out[k]}, Reduction::max);
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
      if (per_tower && g.is_replicated()) object(fmt::format("{} is said to be the same everywhere, but towers read their own; give per_tower", output_of(def_, k)));
      if (!per_tower && g.is_per_tower() && !case_.by_share) object(fmt::format("{} is said to be each tower's own, but no tower reads its own; where each share is meant alone, the case says by_share", output_of(def_, k)));
      if (g.is_partial() && !per_tower) compare_sum(k, g, made);
      // The op on each share means itself; that it was given the right share is seen through expand.
      if (g.is_partial() || case_.by_share) continue;
      for (int t = 0; t < present(); ++t) {
        HostTensor want = on_whole(per_tower ? t : -1)[k];
        want = local(want, {want}, case_.outputs[k], g.is_rows() ? g : kReplicated, t);
        const HostTensor& got = made[static_cast<std::size_t>(t)][k];
        if (got != want) object(fmt::format("tower {} has not its part of {}: {}; where an element needs more than the tower has, read it whole (replicated), or give a sum", t, output_of(def_, k), difference_of(got, want)));
      }
    }
  }

  void compare_sum(std::size_t k, SplitState g, const std::vector<Parts>& made) {
    if (case_.by_share) return;
    Parts parts;
    for (const Parts& tower : made) parts.push_back(tower[k]);
    const HostTensor got = reduced(parts, g.reduction), want = on_whole(-1)[k];
    bool exact = !is_float(want.dtype()) || g.reduction == Reduction::max || (dyadic_ && case_.exact_sums);
    if (got.type() != want.type()) return object(fmt::format("{} joined over the towers {}", output_of(def_, k), difference_of(got, want)));
    if (exact) {
      if (const Farthest f = farthest(got, want); f.distance != 0)
        object(fmt::format("{} joined over the towers is {} at element {}, not {}; give it in another state, or say exact_sums = false in a case whose op rounds", output_of(def_, k), f.got, f.element, f.wanted));
      return;
    }
    std::int64_t terms = towers_;
    for (const Held& h : held_) terms = std::max(terms, towers_ + h.whole.elements());
    HostTensor size = converted(magnitudes()[k], f64), a = converted(got, f64), b = converted(want, f64);
    bool narrow = std::any_of(held_.begin(), held_.end(), [](const Held& h) { return h.whole.dtype() == f32; });
    double unit = narrow ? 0x1p-24 : 0x1p-53;
    for (std::size_t i = 0; i < a.data<double>().size(); ++i) {
      const double p = a.data<double>()[i], q = b.data<double>()[i];
      if (!(std::abs(p - q) <= static_cast<double>(terms) * unit * size.data<double>()[i])) return object(fmt::format("{} joined over the towers is {} at element {}, not {}, which is more than rounding", output_of(def_, k), p, i, q));
    }
  }

  const OpDef& def_;
  const OpCase& case_;
  Attributes attributes_;
  int towers_;
  std::int64_t batch_;
  bool dyadic_;
  std::mt19937_64 rng_;
  std::vector<Held> held_;
  std::string place_;
  Objections objections_;
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

Objections objections_to_split(const OpUnderCheck& op, const OpCase& given) {
  Objections out;
  if (!given.no_reference.empty()) return out;
  const OpCase c = versions(op, given).back();
  for_each_shares([&](int towers, std::int64_t batch) {
    for (bool dyadic : {true, false}) {
      SplitCheck check(op.def, c, towers, batch, dyadic, 31 + static_cast<std::uint64_t>(batch));
      for_each_states(c, [&](const std::vector<SplitState>& states) { check(states); });
      out.insert(out.end(), check.objections().begin(), check.objections().end());
    }
  });
  return out;
}

}  // namespace belfry
