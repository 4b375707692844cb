#include <belfry/ops/schedule/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>

namespace belfry {

namespace {

constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

/// A schedule under construction: nodes go into a scope of their own, counted steps are f64, which holds them exactly.
class Making {
 public:
  Making(Value step, const char* kind, const WarmUp& warm_up, SourceLine at) : graph_(graph_of(step, kind, at)), line_(graph_, at), before_(graph_.cursor), kind_(kind), warm_up_(warm_up) {
    if (step.type() != TensorType{i64, {}}) throw UserError(fmt::format("[{}] the step is a scalar of i64, but '{}' is {}", kind, step.name(), to_string(step.type())));
    if (warm_up.steps) need_steps("warm-up's steps", warm_up.steps);
    need_rates({warm_up.from});
    graph_.cursor.scope = graph_.free_scope(kind);
    now_ = cast(step, f64);
    t = warm_up.steps ? maximum(now_ - static_cast<double>(warm_up.steps), number(0)) : now_;
  }
  ~Making() { graph_.cursor = before_; }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

  void need_steps(const char* what, std::int64_t steps) const {
    if (steps < 1 || steps > kMostSteps) throw UserError(fmt::format("[{}] the {} are {}; they go from 1 to 2^53", kind_, what, steps));
  }
  void need_positive(const char* what, double x) const {
    if (!(x > 0)) throw UserError(fmt::format("[{}] {} is {}; it must be positive", kind_, what, x));
  }
  void need_rates(const Reals& rates) const {
    for (double x : rates)
      if (!(x >= 0)) throw UserError(fmt::format("[{}] a rate is {}; it must be at least 0", kind_, x));
  }
  Value number(double x) const { return constant_like(now_, x); }
  Value power(double base, Value exponent) const { return pow(number(base), exponent); }
  /// t/steps, rounded down where it is a staircase.
  Value progress(std::int64_t steps, bool staircase = false) const {
    need_steps("steps", steps);
    Value p = t / static_cast<double>(steps);
    return staircase ? floor(p) : p;
  }
  /// min(t, steps)/steps.
  Value progress_to_the_end(std::int64_t steps) const { return minimum(progress(steps), number(1)); }
  /// The schedule's value, with the line before it.
  Value with_warm_up(Value rate) const {
    if (!warm_up_.steps) return rate;
    Value line = (rate - warm_up_.from) * (now_ / static_cast<double>(warm_up_.steps)) + warm_up_.from;
    return where(less(now_, number(static_cast<double>(warm_up_.steps))), line, rate);
  }

  Value t;  ///< steps since the end of the warm-up

 private:
  Graph& graph_;
  SourceGuard line_;
  Cursor before_;
  const char* kind_;
  WarmUp warm_up_;
  Value now_;
};

Value half_cosine(Value part) { return (1 + cos(part * std::numbers::pi)) * 0.5; }

double grown(double times, RateScaling scaling) { return scaling == RateScaling::linear ? times : std::sqrt(times); }

}  // namespace

Value constant_rate(Value step, const ConstantRate& o, SourceLine at) {
  Making m(step, "constant_rate", o.warm_up, at);
  m.need_rates({o.rate});
  return m.with_warm_up(m.number(o.rate));
}

Value exponential_decay(Value step, const ExponentialDecay& o, SourceLine at) {
  Making m(step, "exponential_decay", o.warm_up, at);
  m.need_rates({o.rate});
  m.need_positive("factor", o.factor);
  return m.with_warm_up(m.power(o.factor, m.progress(o.steps, o.staircase)) * o.rate);
}

Value inverse_time_decay(Value step, const InverseTimeDecay& o, SourceLine at) {
  Making m(step, "inverse_time_decay", o.warm_up, at);
  m.need_rates({o.rate});
  return m.with_warm_up(o.rate / (m.progress(o.steps, o.staircase) * o.decay + 1));
}

Value piecewise_constant(Value step, const PiecewiseConstant& o, SourceLine at) {
  Making m(step, "piecewise_constant", o.warm_up, at);
  m.need_rates(o.rates);
  if (o.rates.size() != o.boundaries.size() + 1) throw UserError(fmt::format("[piecewise_constant] {} boundaries need {} rates, not {}", o.boundaries.size(), o.boundaries.size() + 1, o.rates.size()));
  if (!std::is_sorted(o.boundaries.begin(), o.boundaries.end())) throw UserError("[piecewise_constant] the boundaries do not ascend");
  Value rate = m.number(o.rates.back());
  for (std::size_t i = o.boundaries.size(); i-- > 0;) rate = where(less_equal(m.t, m.number(static_cast<double>(o.boundaries[i]))), m.number(o.rates[i]), rate);
  return m.with_warm_up(rate);
}

Value polynomial_decay(Value step, const PolynomialDecay& o, SourceLine at) {
  Making m(step, "polynomial_decay", o.warm_up, at);
  m.need_rates({o.rate, o.end});
  m.need_positive("power", o.power);
  Value p = m.progress(o.steps);
  p = o.cycle ? p / maximum(ceil(p), m.number(1)) : minimum(p, m.number(1));
  return m.with_warm_up(pow(1 - p, m.number(o.power)) * (o.rate - o.end) + o.end);
}

Value cosine_decay(Value step, const CosineDecay& o, SourceLine at) {
  Making m(step, "cosine_decay", o.warm_up, at);
  m.need_rates({o.rate});
  return m.with_warm_up((half_cosine(m.progress_to_the_end(o.steps)) * (1 - o.alpha) + o.alpha) * o.rate);
}

Value cosine_decay_restarts(Value step, const CosineDecayRestarts& o, SourceLine at) {
  Making m(step, "cosine_decay_restarts", o.warm_up, at);
  m.need_rates({o.rate});
  if (!(o.t_mul >= 1)) throw UserError(fmt::format("[cosine_decay_restarts] t_mul is {}; it must be at least 1", o.t_mul));
  m.need_positive("m_mul", o.m_mul);
  Value p = m.progress(o.steps), run, part;
  if (o.t_mul == 1) {
    run = floor(p);
    part = p - run;
  } else {
    // The first run that has not ended: 1 + t_mul + … + t_mul^(run−1) ≤ p. Logarithms of powers may fall a hair below the whole number.
    run = floor(log(1 + p * (o.t_mul - 1)) / std::log(o.t_mul) + 1e-12);
    Value length = m.power(o.t_mul, run);
    part = (p - (length - 1) / (o.t_mul - 1)) / length;
  }
  Value decayed = m.power(o.m_mul, run) * half_cosine(part) * (1 - o.alpha) + o.alpha;
  return m.with_warm_up(decayed * o.rate);
}

Value epoch_ramp(Value step, const EpochRamp& o, SourceLine at) {
  Making m(step, "epoch_ramp", {}, at);
  m.need_rates({o.start, o.most, o.least});
  m.need_steps("epochs of the way up", o.up);
  m.need_positive("factor", o.factor);
  if (o.hold < 0) throw UserError(fmt::format("[epoch_ramp] it holds for {} epochs", o.hold));
  Value epoch = m.progress(o.epoch_steps, true), down = maximum(epoch - static_cast<double>(o.up + o.hold), m.number(0));
  Value later = m.power(o.factor, down) * (o.most - o.least) + o.least;
  if (o.hold) later = where(less(epoch, m.number(static_cast<double>(o.up + o.hold))), m.number(o.most), later);
  return where(less(epoch, m.number(static_cast<double>(o.up))), epoch * ((o.most - o.start) / static_cast<double>(o.up)) + o.start, later);
}

double scaled_rate(double rate, double times, RateScaling scaling) {
  if (!(times > 0)) throw UserError(fmt::format("a rate is scaled by {}; it must be a positive number of replicas", times));
  return rate * grown(times, scaling);
}

Value batch_scaled_rate(Graph& graph, double rate, double rows, RateScaling scaling, SourceLine at) {
  if (!(rows > 0)) throw UserError(fmt::format("a rate was found for {} rows; that must be positive", rows));
  SourceGuard line(graph, at);
  Value times = row_count(graph, {Dim(1, graph.row_symbol)}, f64) / rows;
  return (scaling == RateScaling::linear ? times : sqrt(times)) * rate;
}

// ---------------------------------------------------------------- the short form

namespace {

using Fields = std::vector<AttributeDef>;

struct Kind {
  std::string name;
  Fields options;
  Value (*build)(Value step, const Attributes& a);
};

WarmUp warm_up(const Attributes& a) { return {a.integer("warmup_steps"), a.real("warmup_from")}; }

AttributeDef no_less_than_0(AttributeDef def) { return def.between(0, 1e30); }

Fields warmed(Fields own) {
  own.push_back({"warmup_steps", 0});
  own.push_back(no_less_than_0({"warmup_from", 0.0}));
  return own;
}

/// Options without a default must be said: a rate and its steps.
const std::vector<Kind>& kinds() {
  const AttributeDef rate = no_less_than_0({"rate", AttributeKind::real}), steps{"steps", AttributeKind::integer}, staircase{"staircase", false}, alpha{"alpha", 0.0};
  static const std::vector<Kind> table = {
      {"constant_rate", warmed({rate}), [](Value s, const Attributes& a) { return constant_rate(s, {a.real("rate"), warm_up(a)}); }},
      {"cosine_decay", warmed({rate, steps, alpha}), [](Value s, const Attributes& a) { return cosine_decay(s, {a.real("rate"), a.integer("steps"), a.real("alpha"), warm_up(a)}); }},
      {"cosine_decay_restarts", warmed({rate, steps, {"t_mul", 2.0}, {"m_mul", 1.0}, alpha}),
       [](Value s, const Attributes& a) { return cosine_decay_restarts(s, {a.real("rate"), a.integer("steps"), a.real("t_mul"), a.real("m_mul"), a.real("alpha"), warm_up(a)}); }},
      {"epoch_ramp",
       {{"epoch_steps", AttributeKind::integer}, no_less_than_0({"start", 1e-5}), no_less_than_0({"most", 5e-5}), no_less_than_0({"least", 1e-5}), {"factor", 0.8}, {"up", 5}, {"hold", 0}},
       [](Value s, const Attributes& a) { return epoch_ramp(s, {a.integer("epoch_steps"), a.real("start"), a.real("most"), a.real("least"), a.real("factor"), a.integer("up"), a.integer("hold")}); }},
      {"exponential_decay", warmed({rate, steps, {"factor", AttributeKind::real}, staircase}),
       [](Value s, const Attributes& a) { return exponential_decay(s, {a.real("rate"), a.integer("steps"), a.real("factor"), a.flag("staircase"), warm_up(a)}); }},
      {"inverse_time_decay", warmed({rate, steps, {"decay", AttributeKind::real}, staircase}),
       [](Value s, const Attributes& a) { return inverse_time_decay(s, {a.real("rate"), a.integer("steps"), a.real("decay"), a.flag("staircase"), warm_up(a)}); }},
      {"piecewise_constant", warmed({{"boundaries", AttributeKind::integers}, no_less_than_0({"rates", AttributeKind::reals})}),
       [](Value s, const Attributes& a) { return piecewise_constant(s, {a.integers("boundaries"), a.get<Reals>("rates"), warm_up(a)}); }},
      {"polynomial_decay", warmed({rate, steps, no_less_than_0({"end", 0.0001}), {"power", 1.0}, {"cycle", false}}),
       [](Value s, const Attributes& a) { return polynomial_decay(s, {a.real("rate"), a.integer("steps"), a.real("end"), a.real("power"), a.flag("cycle"), warm_up(a)}); }}};
  return table;
}

/// A kind with its options, defaults filled in.
std::pair<const Kind*, Attributes> read(const Attributes& spec) {
  const AttributeValue* named = spec.find("kind");
  if (!named || !std::holds_alternative<std::string>(*named)) throw UserError("a schedule of the learning rate names its \"kind\"");
  const std::string& name = std::get<std::string>(*named);
  auto at = std::find_if(kinds().begin(), kinds().end(), [&](const Kind& k) { return k.name == name; });
  if (at == kinds().end()) {
    std::vector<std::string> names;
    for (const Kind& k : kinds()) names.push_back(k.name);
    throw UserError(fmt::format("there is no schedule '{}'; there are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
  }
  Attributes given;
  for (const auto& [key, value] : spec.entries())
    if (key != "kind") given.set(key, value);
  return {&*at, checked(at->options, given, fmt::format("schedule '{}':", name))};
}

}  // namespace

void check_schedule(const Attributes& spec) { read(spec); }

Value schedule(Value step, const Attributes& spec) {
  auto [kind, options] = read(spec);
  return kind->build(step, options);
}

}  // namespace belfry
