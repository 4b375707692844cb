// Optimisers, clipping, moving averages and schedules against TensorFlow's and Keras's own runs, within the tolerances that stand with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>

#include <belfry/belfry.h>
#include <belfry/graph/gradients.h>

#include "golden.h"

namespace belfry::test {
namespace {

#define NEED_GOLDEN() NEED_SHARED("golden/optimizers")

const nlohmann::json& golden() {
  static const nlohmann::json all = expected("optimizers/expected.json");
  return all;
}
const TensorMap& stored(const std::string& file) {
  static std::map<std::string, TensorMap> read;
  auto [at, fresh] = read.try_emplace(file);
  if (fresh) at->second = tensors("optimizers/" + file);
  return at->second;
}

const std::vector<std::string> kVariables = {"a", "b", "c"};

/// Σ h/2·(p − t)² + 0.1·sin p over three variables.
struct Problem {
  Problem() : b("optimizers") {
    std::vector<Value> terms;
    for (const std::string& name : kVariables) {
      const HostTensor &h = stored("inputs.safetensors").at("h." + name), &t = stored("inputs.safetensors").at("t." + name);
      Shape shape(h.shape().begin(), h.shape().end());
      Value p = b.variable(name, shape);
      variables.push_back(p);
      terms.push_back(reduce_sum(constant(b.graph(), h) * square(p - constant(b.graph(), t)) * 0.5 + sin(p) * 0.1));
    }
    loss = identity(add_n(terms), "loss");
  }
  Builder b;
  std::vector<Value> variables;
  Value loss;
};

/// An update that no optimiser has, built of gradients and ops.
struct ByHand : Problem {
  ByHand() : step(b.step()), found(gradients(b.graph(), {loss.id}, {variables[0].id, variables[1].id, variables[2].id})) {
    b.graph().losses = {loss.id};
    b.update(step, step + 1);
  }
  Value slot(const std::string& name, std::size_t i) { return b.variable(name + "/" + kVariables[i], variables[i].shape(), {.trainable = false}); }
  /// Whether this step is the last of n.
  Value last_of(int n) const { return equal((step + 1) - (step + 1) / n * n, constant_like(step, 0)); }
  Value step;
  std::vector<Value> found;
};

/// What a slot of TensorFlow's holds of a variable, from the state behind the last step and that before it.
using Slot = std::function<HostTensor(const State& last, const State& before, const std::string& variable)>;
using Slots = std::map<std::string, Slot>;  ///< by the ending of TensorFlow's name

HostTensor element_by_element(const HostTensor& a, const HostTensor& b, const std::function<float(float, float)>& f) {
  HostTensor out(f32, a.shape());
  for (std::size_t i = 0; i < out.data<float>().size(); ++i) out.data<float>()[i] = f(a.data<float>()[i], b.data<float>()[i]);
  return out;
}
Slot kept(const std::string& ours) {
  return [ours](const State& last, const State&, const std::string& v) { return last.at(ours + "/" + v); };
}
/// Keras's momentum holds the step: −rate·m.
HostTensor momentum_step(const State& last, const State&, const std::string& v) {
  const HostTensor& m = last.at("momentum_m/" + v);
  return element_by_element(m, m, [](float x, float) { return -0.05f * x; });
}
/// TensorFlow 1 keeps the last step also where there is no momentum.
HostTensor last_step(const State& last, const State& before, const std::string& v) { return element_by_element(before.at(v), last.at(v), [](float x, float y) { return x - y; }); }
HostTensor shadow(const State& last, const State&, const std::string& v) { return last.at(average_of(v)); }
/// Adafactor's v where only the means of its rows and columns are kept.
HostTensor unfactored(const State& last, const State&, const std::string& v) {
  if (last.contains("adafactor_v/" + v)) return last.at("adafactor_v/" + v);
  const HostTensor &r = last.at("adafactor_r/" + v), &c = last.at("adafactor_c/" + v);
  HostTensor out(f32, last.at(v).shape());
  const auto columns = static_cast<std::size_t>(out.shape().back()), rows = static_cast<std::size_t>(r.shape().back());
  for (std::size_t i = 0; i < out.data<float>().size(); ++i) {
    const std::size_t row = i / columns, matrix = row / rows;
    float mean = 0;
    for (std::size_t k = 0; k < rows; ++k) mean += r.data<float>()[matrix * rows + k] / static_cast<float>(rows);
    out.data<float>()[i] = r.data<float>()[row] / mean * c.data<float>()[matrix * columns + i % columns];
  }
  return out;
}
/// Keras calls r and c alike, so its file has c alone; for a vector it keeps a 0.
HostTensor columns_of(const State& last, const State&, const std::string& v) { return last.contains("adafactor_c/" + v) ? last.at("adafactor_c/" + v) : HostTensor(f32, {1}); }

struct Golden {
  const char* name;
  std::function<Graph()> graph;
  Slots slots = {};
};

Golden by(const char* name, const Optimizer& optimizer, Slots slots = {}, const MinimizeOptions& options = {}) {
  return {name, [=] {
            Problem p;
            p.b.minimize(p.loss, optimizer, options);
            return std::move(p.b).build();
          }, std::move(slots)};
}

constexpr double kRate = 0.05;
const Slots kAdam = {{"momentum", kept("adam_m")}, {"velocity", kept("adam_v")}}, kAdam2 = {{"m", kept("adam_m")}, {"v", kept("adam_v")}};
const Slots kAverage = {{"average", shadow}};

Graph averaged_as_keras(int overwrite) {
  ByHand p;
  for (std::size_t i = 0; i < 3; ++i) {
    Value old = p.slot("average", i), next = p.variables[i] - p.found[i] * kRate;
    Value first = cast(greater(p.step, constant_like(p.step, 0)), f32) * 0.9;
    Value average = old * first + next * (1 - first);
    p.b.update(old, average);
    p.b.update(p.variables[i], overwrite ? where(p.last_of(overwrite), average, next) : next);
  }
  return std::move(p.b).build();
}

Graph accumulated(int steps) {
  ByHand p;
  for (std::size_t i = 0; i < 3; ++i) {
    Value old = p.slot("sum", i), sum = old + p.found[i];
    p.b.update(p.variables[i], where(p.last_of(steps), p.variables[i] - sum / steps * kRate, p.variables[i]));
    p.b.update(old, where(p.last_of(steps), sum * 0, sum));
  }
  return std::move(p.b).build();
}

Graph clipped_by_average_norm(double limit) {
  ByHand p;
  for (std::size_t i = 0; i < 3; ++i) p.b.update(p.variables[i], p.variables[i] - clip_by_average_norm(p.found[i], limit) * kRate);
  return std::move(p.b).build();
}

/// Keras's Nadam, of plain ops; 1 − beta is taken of the beta rounded to f32, as Keras does it.
Graph nadam() {
  ByHand p;
  const double new1 = 1 - static_cast<double>(0.9f), new2 = 1 - static_cast<double>(0.999f);
  Value t = cast(p.step, f32) + 1, product = p.b.variable("product", {}, {.init = "ones", .trainable = false});
  auto momentum = [&](Value at) { return 0.9 * (1 - 0.5 * pow(constant_like(at, 0.96), at)); };
  Value now = momentum(t), next = momentum(t + 1), so_far = product * now;
  p.b.update(product, so_far);
  for (std::size_t i = 0; i < 3; ++i) {
    Value g = p.found[i], m = p.slot("m", i), v = p.slot("v", i);
    Value m1 = m + (g - m) * new1, v1 = v + (square(g) - v) * new2;
    p.b.update(m, m1);
    p.b.update(v, v1);
    Value ahead = m1 * (next / (1 - so_far * next)) + g * ((1 - now) / (1 - so_far));
    p.b.update(p.variables[i], p.variables[i] - ahead * kRate / (sqrt(v1 / (1 - pow(constant_like(t, 0.999), t))) + 1e-7));
  }
  return std::move(p.b).build();
}

Graph adam_in_stairs() {
  Problem p;
  p.b.minimize(p.loss, Adam{.learning_rate = exponential_decay(p.b.step(), {.rate = kRate, .steps = 5, .factor = 0.5, .staircase = true})});
  return std::move(p.b).build();
}

const std::vector<Golden>& runs() {
  const Slots momentum = {{"momentum", kept("momentum_m")}}, rms = {{"rms", kept("rmsprop_v")}}, sum = {{"accumulator", kept("adagrad_sum")}};
  const Rmsprop tf1{.learning_rate = kRate, .epsilon = 1e-10, .initial = 1};
  Rmsprop tf1_momentum = tf1, tf1_centered = tf1;
  tf1_momentum.momentum = 0.9;
  tf1_centered.centered = true;
  static const std::vector<Golden> all = {
      by("keras_sgd", Sgd{.learning_rate = kRate}),
      by("keras_sgd_momentum", Momentum{.learning_rate = kRate}, {{"momentum", momentum_step}}),
      by("keras_sgd_nesterov", Momentum{.learning_rate = kRate, .nesterov = true}, {{"momentum", momentum_step}}),
      by("keras_sgd_weight_decay", Sgd{.learning_rate = kRate, .weight_decay = 0.01}),
      by("keras_adam", Adam{.learning_rate = kRate}, kAdam),
      by("keras_adam_betas", Adam{.learning_rate = kRate, .beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3}, kAdam),
      by("keras_adam_amsgrad", Adam{.learning_rate = kRate, .amsgrad = true}, {{"momentum", kept("adam_m")}, {"velocity", kept("adam_v")}, {"velocity_hat", kept("adam_top")}}),
      by("keras_adamw", AdamW{.learning_rate = kRate, .weight_decay = 0.01}, kAdam),
      by("keras_adamax", Adamax{.learning_rate = kRate}, {{"momentum", kept("adamax_m")}, {"norm", kept("adamax_u")}}),
      {"keras_nadam", nadam, {{"momentum", kept("m")}, {"velocity", kept("v")},
                              {"variable", [](const State& last, const State&, const std::string&) { return HostTensor::of<float>({1}, {last.at("product").item<float>()}); }}}},
      by("keras_adafactor", Adafactor{.learning_rate = kRate}, {{"", columns_of}, {"velocity", unfactored}}),
      by("keras_rmsprop", Rmsprop{.learning_rate = kRate}, {{"velocity", kept("rmsprop_v")}}),
      by("keras_rmsprop_momentum", Rmsprop{.learning_rate = kRate, .momentum = 0.9}, {{"velocity", kept("rmsprop_v")}, {"momentum", kept("rmsprop_m")}}),
      by("keras_rmsprop_centered", Rmsprop{.learning_rate = kRate, .centered = true}, {{"velocity", kept("rmsprop_v")}, {"average_gradient", kept("rmsprop_mean")}}),
      by("keras_adagrad", Adagrad{.learning_rate = kRate}, sum),
      by("keras_adadelta", Adadelta{.learning_rate = 1}, {{"accumulated_grad", kept("adadelta_v")}, {"accumulated_delta_var", kept("adadelta_u")}}),
      by("keras_ftrl", Ftrl{.learning_rate = kRate}, {{"accumulator", kept("ftrl_sum")}, {"linear", kept("ftrl_z")}}),
      by("keras_ftrl_l1_l2", Ftrl{.learning_rate = kRate, .l1 = 0.01, .l2 = 0.02}, {{"accumulator", kept("ftrl_sum")}, {"linear", kept("ftrl_z")}}),
      by("keras_lion", Lion{.learning_rate = 0.01}, {{"momentum", kept("lion_m")}}),
      by("keras_lamb", Lamb{.learning_rate = kRate}, {{"momentum", kept("lamb_m")}, {"velocity", kept("lamb_v")}}),
      by("keras_sgd_clipnorm", Sgd{.learning_rate = kRate}, {}, {.clip_each_norm = 0.5}),
      by("keras_sgd_global_clipnorm", Sgd{.learning_rate = kRate}, {}, {.clip_norm = 0.5}),
      by("keras_sgd_clipvalue", Sgd{.learning_rate = kRate}, {}, {.clip_value = 0.2}),
      by("keras_adam_global_clipnorm", Adam{.learning_rate = kRate}, kAdam, {.clip_norm = 0.5}),
      {"keras_sgd_ema", [] { return averaged_as_keras(0); }, {{"average", kept("average")}}},
      {"keras_sgd_ema_overwrite_5", [] { return averaged_as_keras(5); }, {{"average", kept("average")}}},
      {"keras_sgd_accumulate_4", [] { return accumulated(4); }, {{"gradient_accumulator", kept("sum")}}},
      {"keras_adam_exponential", adam_in_stairs, kAdam},
      by("tf1_sgd", Sgd{.learning_rate = kRate}),
      by("tf1_momentum", Momentum{.learning_rate = kRate}, momentum),
      by("tf1_nesterov", Momentum{.learning_rate = kRate, .nesterov = true}, momentum),
      by("tf1_adam", Adam{.learning_rate = kRate, .epsilon = 1e-8, .powers = "exact"}, kAdam2),
      by("tf1_adagrad", Adagrad{.learning_rate = kRate, .epsilon = 0}, sum),
      by("tf1_rmsprop", tf1, {{"rms", kept("rmsprop_v")}, {"momentum", last_step}}),
      by("tf1_rmsprop_momentum", tf1_momentum, {{"rms", kept("rmsprop_v")}, {"momentum", kept("rmsprop_m")}}),
      by("tf1_rmsprop_centered", tf1_centered, {{"rms", kept("rmsprop_v")}, {"mg", kept("rmsprop_mean")}, {"momentum", last_step}}),
      by("tf1_adadelta", Adadelta{.learning_rate = 1, .epsilon = 1e-8}, {{"accum", kept("adadelta_v")}, {"accum_update", kept("adadelta_u")}}),
      by("tf1_ftrl", Ftrl{.learning_rate = kRate}, {{"accum", kept("ftrl_sum")}, {"linear", kept("ftrl_z")}}),
      by("tf1_sgd_clip_by_global_norm", Sgd{.learning_rate = kRate}, {}, {.clip_norm = 0.5}),
      by("tf1_sgd_clip_by_norm", Sgd{.learning_rate = kRate}, {}, {.clip_each_norm = 0.5}),
      {"tf1_sgd_clip_by_average_norm", [] { return clipped_by_average_norm(0.05); }},
      by("tf1_sgd_moving_average", Sgd{.learning_rate = kRate}, kAverage, {.average_decay = 0.9}),
      by("tf1_sgd_moving_average_num_updates", Sgd{.learning_rate = kRate}, kAverage, {.average_decay = 0.9, .average_by_step = true}),
      by("keras2_sgd_momentum", Momentum{.learning_rate = kRate}, {{"momentum", momentum_step}}),
      by("keras2_sgd_nesterov", Momentum{.learning_rate = kRate, .nesterov = true}, {{"momentum", momentum_step}}),
      by("keras2_adam", Adam{.learning_rate = kRate, .powers = "exact"}, kAdam2),
      by("keras2_rmsprop", Rmsprop{.learning_rate = kRate, .epsilon_inside = false}, rms),
      by("keras2_adagrad", Adagrad{.learning_rate = kRate, .epsilon_inside = false}, sum)};
  return all;
}

/// |got − wanted| ≤ tolerance·max(1, |wanted|), but where runs that began ulps away ended elsewhere: gives how many elements these are.
int expect_close(const HostTensor& got, const HostTensor& wanted, double tolerance, const std::string& what, const std::vector<State>& nudged = {}) {
  int left_out = 0;
  EXPECT_EQ(got.type(), wanted.type()) << what;
  for (std::size_t i = 0; got.type() == wanted.type() && i < wanted.data<float>().size(); ++i) {
    double x = got.data<float>()[i], y = wanted.data<float>()[i], allowed = tolerance * std::max(1.0, std::abs(y)), moved = 0;
    for (const State& other : nudged) moved = std::max(moved, std::abs(x - double{other.at(what).data<float>()[i]}));
    if (moved > allowed && ++left_out) std::cout << "  " << what << ", element " << i << " is left out: ulps at the beginning move it by " << moved << "\n";
    else EXPECT_TRUE(within(x, y, allowed)) << what << ", element " << i;
  }
  return left_out;
}

class GoldenRun : public testing::TestWithParam<const char*> {};

TEST_P(GoldenRun, has_the_losses_values_and_slots_of_tensorflow) {
  NEED_GOLDEN();
  const Golden& run = *std::find_if(runs().begin(), runs().end(), [](const Golden& r) { return std::string(r.name) == GetParam(); });
  const std::string prefix = run.name + std::string("/");
  auto losses = golden()["runs"][run.name]["losses"].get<std::vector<double>>();
  Session session(run.graph(), Single{.device = golden_place().variables}, golden_place().options);
  session.load_state(stored("init.safetensors"));
  State before;
  for (std::size_t t = 0; t < losses.size(); ++t) {
    before = session.state();
    EXPECT_TRUE(within(session.step({}, {"loss"}).item<float>("loss"), losses[t], 5e-6 * std::max(1.0, std::abs(losses[t])))) << "step " << t;
  }
  State state = session.state();
  EXPECT_EQ(state.at("step").item<std::int64_t>(), static_cast<std::int64_t>(losses.size()));
  // Functions of other libraries than TensorFlow's round otherwise, which Adafactor at an optimum makes a tenth of a step of.
  std::vector<State> nudged;
  if (golden_place().variables.kind == "gpu")
    for (int ulps : {-2, -1, 1, 2}) {
      State begin = stored("init.safetensors");
      for (auto& [name, value] : begin)
        if (value.dtype() == f32)
          for (float& x : value.data<float>())
            for (int k = 0; k < std::abs(ulps); ++k) x = std::nextafter(x, ulps < 0 ? -INFINITY : INFINITY);
      Session other(run.graph(), Single{.device = golden_place().variables}, golden_place().options);
      other.load_state(begin);
      for (std::size_t t = 0; t < losses.size(); ++t) other.step({}, {"loss"});
      nudged.push_back(other.state());
    }
  int left_out = 0;
  for (const auto& [entry, wanted] : stored("final.safetensors")) {  // the run's values, and all its slots
    if (!entry.starts_with(prefix)) continue;
    std::string name = entry.substr(prefix.size()), ending = name;
    if (!name.starts_with("slot/")) {
      left_out += expect_close(state.at(name), wanted, 1e-5, name, nudged);
      continue;
    }
    std::string variable = name.substr(5, 1);
    if (name.size() == 6) ending = "";
    else if (name[6] == '_') ending = name.substr(7);
    else ending = name.substr(5), variable = "";
    ASSERT_TRUE(run.slots.contains(ending)) << name << " is compared with nothing";
    expect_close(run.slots.at(ending)(state, before, variable), wanted, 1e-5, name);
  }
  EXPECT_LE(left_out, 1);
}

const std::vector<const char*>& names() {
  static const std::vector<const char*> all = [] {
    std::vector<const char*> out;
    for (const Golden& r : runs()) out.push_back(r.name);
    return out;
  }();
  return all;
}
INSTANTIATE_TEST_SUITE_P(Runs, GoldenRun, testing::ValuesIn(names()), [](const auto& info) { return std::string(info.param); });

// ---------------------------------------------------------------- schedules

struct Schedule {
  const char* key;
  Value (*build)(Value step);
};

/// TensorFlow 1's linear_cosine_decay, of plain ops.
Value linear_cosine(Value step, double rate, double steps) {
  Value p = minimum(cast(step, f64) / steps, constant_like(cast(step, f64), 1));
  return ((1 - p) * ((1 + cos(p * M_PI)) * 0.5) + 0.001) * rate;
}

template <int replicas>
Value ramp(Value s) { return epoch_ramp(s, {.most = scaled_rate(5e-5, replicas)}); }

const std::vector<Schedule> kSchedules = {
    {"keras_exponential_staircase(0.1,7,0.5)", [](Value s) { return exponential_decay(s, {.rate = 0.1, .steps = 7, .factor = 0.5, .staircase = true}); }},
    {"keras_exponential(0.1,7,0.5)", [](Value s) { return exponential_decay(s, {.rate = 0.1, .steps = 7, .factor = 0.5}); }},
    {"keras_cosine(0.1,40,alpha=0.01)", [](Value s) { return cosine_decay(s, {.rate = 0.1, .steps = 40, .alpha = 0.01}); }},
    {"keras_cosine_warmup(0.0,30,alpha=0.1,warmup_target=0.2,warmup_steps=10)", [](Value s) { return cosine_decay(s, {.rate = 0.2, .steps = 30, .alpha = 0.1, .warm_up = {.steps = 10}}); }},
    {"keras_cosine_restarts(0.1,10,t_mul=2,m_mul=0.8,alpha=0.05)", [](Value s) { return cosine_decay_restarts(s, {.rate = 0.1, .steps = 10, .t_mul = 2, .m_mul = 0.8, .alpha = 0.05}); }},
    {"keras_piecewise([10,25],[0.1,0.01,0.001])", [](Value s) { return piecewise_constant(s, {.boundaries = {10, 25}, .rates = {0.1, 0.01, 0.001}}); }},
    {"keras_polynomial(0.1,30,0.001,power=1)", [](Value s) { return polynomial_decay(s, {.rate = 0.1, .steps = 30, .end = 0.001}); }},
    {"keras_polynomial(0.1,30,0.001,power=2)", [](Value s) { return polynomial_decay(s, {.rate = 0.1, .steps = 30, .end = 0.001, .power = 2}); }},
    {"keras_polynomial(0.1,15,0.001,power=0.5,cycle)", [](Value s) { return polynomial_decay(s, {.rate = 0.1, .steps = 15, .end = 0.001, .power = 0.5, .cycle = true}); }},
    {"keras_inverse_time(0.1,5,0.5)", [](Value s) { return inverse_time_decay(s, {.rate = 0.1, .steps = 5, .decay = 0.5}); }},
    {"keras_inverse_time_staircase(0.1,5,0.5)", [](Value s) { return inverse_time_decay(s, {.rate = 0.1, .steps = 5, .decay = 0.5, .staircase = true}); }},
    {"tf1_exponential_decay_staircase(0.1,20,0.1)", [](Value s) { return exponential_decay(s, {.rate = 0.1, .steps = 20, .factor = 0.1, .staircase = true}); }},
    {"tf1_exponential_decay(0.1,20,0.1)", [](Value s) { return exponential_decay(s, {.rate = 0.1, .steps = 20, .factor = 0.1}); }},
    {"tf1_natural_exp_decay(0.1,10,0.5)", [](Value s) { return exponential_decay(s, {.rate = 0.1, .steps = 10, .factor = std::exp(-0.5)}); }},
    {"tf1_inverse_time_decay(0.1,5,0.5)", [](Value s) { return inverse_time_decay(s, {.rate = 0.1, .steps = 5, .decay = 0.5}); }},
    {"tf1_polynomial_decay(0.1,30,0.001)", [](Value s) { return polynomial_decay(s, {.rate = 0.1, .steps = 30, .end = 0.001}); }},
    {"tf1_piecewise_constant([10,25],[0.1,0.01,0.001])", [](Value s) { return piecewise_constant(s, {.boundaries = {10, 25}, .rates = {0.1, 0.01, 0.001}}); }},
    {"tf1_cosine_decay(0.1,40)", [](Value s) { return cosine_decay(s, {.rate = 0.1, .steps = 40}); }},
    {"tf1_cosine_decay_restarts(0.1,10)", [](Value s) { return cosine_decay_restarts(s, {.rate = 0.1, .steps = 10}); }},
    {"tf1_linear_cosine_decay(0.1,40)", [](Value s) { return linear_cosine(s, 0.1, 40); }},
    {"epoch_ramp(replicas=1)", ramp<1>},
    {"epoch_ramp(replicas=2)", ramp<2>},
    {"epoch_ramp(replicas=4)", ramp<4>},
    {"epoch_ramp(replicas=8)", ramp<8>},
    {"linear_warmup(0.1,10) then constant: 0.1*min(1,(t+1)/10)", [](Value s) { return constant_rate(s, {.rate = 0.1, .warm_up = {.steps = 9, .from = 0.01}}); }}};

TEST(GoldenSchedules, have_the_values_of_tensorflow) {
  NEED_GOLDEN();
  Builder b("schedules");
  Value step = b.step();
  for (std::size_t i = 0; i < kSchedules.size(); ++i) b.metric("rate " + std::to_string(i), kSchedules[i].build(step));
  b.update(step, step + 1);
  Session session(std::move(b).build());
  for (std::size_t t = 0; t < 50; ++t) {
    Results r = session.step({});
    for (std::size_t i = 0; i < kSchedules.size(); ++i) {
      double want = golden()["schedules"][kSchedules[i].key][t].get<double>();
      // The ramps are exact doubles, the others were computed in f32.
      double tolerance = std::string(kSchedules[i].key).starts_with("epoch_ramp") ? 1e-14 * want : 1e-6 * want + 1e-8;
      EXPECT_TRUE(within(r.item<double>("rate " + std::to_string(i)), want, tolerance)) << kSchedules[i].key << " at step " << t;
    }
  }
}

TEST(GoldenSchedules, scale_a_rate_with_the_replicas_or_the_batch) {
  NEED_GOLDEN();
  Builder b("scaled");
  Value x = b.input("x", f32, {kBatch});
  b.metric("linear", batch_scaled_rate(b.graph(), 0.001, 2));
  b.metric("sqrt", batch_scaled_rate(b.graph(), 0.001, 2, RateScaling::sqrt));
  b.metric("sum", reduce_sum(x));
  Graph graph = std::move(b).build();
  Session one(graph), two(graph, Towers{.devices = parse_devices("cpu:0,cpu:1")});
  for (int k = 1; k <= 50; ++k) {
    double sqrt = golden()["schedules"]["sqrt_rule(0.001,k=t+1)"][static_cast<std::size_t>(k) - 1], linear = golden()["schedules"]["linear_rule(0.001,k=t+1)"][static_cast<std::size_t>(k) - 1];
    EXPECT_DOUBLE_EQ(scaled_rate(0.001, k, RateScaling::sqrt), sqrt);
    EXPECT_DOUBLE_EQ(scaled_rate(0.001, k), linear);
    if (k > 3) continue;
    HostTensor rows(f32, {2 * k});
    for (Session* s : {&one, &two}) {
      Results r = s->run({{"x", rows}});
      EXPECT_DOUBLE_EQ(r.item<double>("sqrt"), sqrt) << "a batch of " << 2 * k;
      EXPECT_DOUBLE_EQ(r.item<double>("linear"), linear) << "a batch of " << 2 * k;
    }
  }
}

TEST(GoldenOptimizers, every_run_and_schedule_is_compared) {
  NEED_GOLDEN();
  std::set<std::string> compared(names().begin(), names().end()), all, schedules = {"sqrt_rule(0.001,k=t+1)", "linear_rule(0.001,k=t+1)"}, all_schedules;
  for (const Schedule& s : kSchedules) schedules.insert(s.key);
  for (const auto& [name, run] : golden()["runs"].items()) all.insert(name);
  for (const auto& [name, values] : golden()["schedules"].items()) all_schedules.insert(name);
  EXPECT_EQ(compared, all);
  EXPECT_EQ(schedules, all_schedules);
}

}  // namespace
}  // namespace belfry::test
