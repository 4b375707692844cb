// The short form of training: optimisers and schedules in files, weight decay, clipping, moving averages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include <belfry/belfry.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/graph/text.h>
#include <belfry/ops/passes/passes.h>

#include "says.h"

namespace belfry::test {
namespace {

using Build = std::function<Value(Builder&)>;

/// One dense layer that fits a line.
struct Line {
  Line() : b("line"), x(b.input("x", f32, {kBatch, 3})), kernel(b.variable("dense/kernel", {3, 2}, {.init = "glorot_uniform"})),
        bias(b.variable("dense/bias", {2}, {.init = "uniform", .init_value = 1})) {
    loss = identity(mean(square(matmul(x, kernel) + bias)), "loss");
  }
  Graph minimized(const Optimizer& optimizer, const MinimizeOptions& options = {}) && {
    b.minimize(loss, optimizer, options);
    return std::move(b).build();
  }
  Builder b;
  Value x, kernel, bias, loss;
};

HostTensor rows(std::int64_t n = 4) {
  HostTensor x(f32, {n, 3});
  for (std::size_t i = 0; i < x.data<float>().size(); ++i) x.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i) + 0.3));
  return x;
}

State trained(const Graph& graph, int steps = 12) {
  Session session(graph);
  HostTensor x = rows();
  for (int k = 0; k < steps; ++k) session.step({{"x", x}});
  return session.state();
}

Graph read_back(const Graph& graph) { return read_graph(write_graph(graph), "graph.json", graph.shared_ops()); }

const std::vector<Optimizer>& optimizers() {
  static const std::vector<Optimizer> all = {Sgd{.learning_rate = 0.5, .weight_decay = 0.1},
                                             Momentum{.momentum = 0.5, .nesterov = true},
                                             Adam{.beta1 = 0.8, .powers = "exact"},
                                             Adam{.beta2 = 0.5, .amsgrad = true},
                                             AdamW{},
                                             AdamW{.weight_decay = 0},
                                             Adamax{.epsilon = 1e-3},
                                             Rmsprop{.epsilon_inside = false, .initial = 1},
                                             Rmsprop{.momentum = 0.5, .centered = true},
                                             Adafactor{.learning_rate = 0.1, .clip_threshold = 0.5, .weight_decay = 0.1},
                                             Adagrad{.initial = 0.5},
                                             Adadelta{.learning_rate = 1, .rho = 0.5},
                                             Ftrl{.l1 = 0.1, .l2 = 0.2, .l2_shrinkage = 0.1, .beta = 0.1},
                                             Ftrl{.power = -0.75},
                                             Lion{.beta2 = 0.5},
                                             Lamb{.weight_decay = 0.01}};
  return all;
}

TEST(Optimizers, are_read_from_files_as_they_were_written) {
  for (const Optimizer& o : optimizers()) {
    Graph graph = Line().minimized(o), again = read_back(graph);
    EXPECT_EQ(write_graph(again), write_graph(graph)) << o.kind;
    EXPECT_EQ(to_text(run_passes(training_passes(), again)), to_text(run_passes(training_passes(), graph))) << o.kind;
    Graph expanded = run_passes(training_passes(), graph);
    EXPECT_EQ(write_graph(read_back(expanded)), write_graph(expanded)) << o.kind << ", the long form";
  }
}

TEST(Optimizers, all_make_the_loss_smaller_and_differ) {
  std::vector<State> seen;
  for (const Optimizer& o : optimizers()) {
    Session session(Line().minimized(o));
    HostTensor x = rows();
    float first = session.step({{"x", x}}, {"loss"}).item<float>("loss"), last = first;
    for (int k = 0; k < 20; ++k) last = session.step({{"x", x}}, {"loss"}).item<float>("loss");
    EXPECT_LT(last, first) << o.kind;
    State s = {{"w", session.variable("dense/kernel")}};
    for (const State& other : seen) EXPECT_FALSE(other == s) << o.kind << " does what another does";
    seen.push_back(std::move(s));
  }
}

TEST(Optimizers, leave_out_of_the_file_what_is_the_default) {
  std::string text = write_graph(Line().minimized(Adam{}, {.clip_value = 0.5}));
  EXPECT_THAT(text, testing::HasSubstr(R"("optimizer": {"kind": "adam", "learning_rate": 0.001, "clip_value": 0.5})"));
}

TEST(Optimizers, refuse_what_contradicts_itself) {
  EXPECT_TRUE(says([] { Line().minimized(Sgd{}, {.clip_norm = 1, .clip_value = 1}); }, {"one of clip_norm, clip_each_norm and clip_value"}));
  EXPECT_TRUE(says([] { Line().minimized(Sgd{}, {.clip_norm = -1}); }, {"clip_norm", "-1"}));
  EXPECT_TRUE(says([] { Line().minimized(Sgd{}, {.no_decay = "x"}); }, {"no_decay says nothing without a weight_decay"}));
  EXPECT_TRUE(says([] { Line().minimized(Sgd{}, {.average_by_step = true}); }, {"without an average_decay"}));
  EXPECT_TRUE(says([] { run_passes(training_passes(), Line().minimized(AdamW{}, {.no_decay = "dense/bais"})); }, {"no_decay names 'dense/bais'", "no variable"}));
}

/// The option, its value and what it may be.
TEST(Optimizers, refuse_settings_outside_their_range) {
  auto refused = [](const Optimizer& o, const std::vector<std::string>& words) { EXPECT_TRUE(says([&] { Line().minimized(o); }, words)) << o.kind; };
  refused(Adam{.beta1 = 1}, {"optimizer 'adam'", "'beta1' is 1", "[0, 0.9999999]"});
  refused(Adamax{.beta2 = 1}, {"optimizer 'adamax'", "'beta2' is 1", "[0, 0.9999999]"});
  refused(Lamb{.beta2 = -0.1}, {"'beta2' is -0.1"});
  refused(Sgd{.learning_rate = -0.1}, {"optimizer 'sgd'", "'learning_rate' is -0.1", "[0, 1e+30]"});
  refused(Sgd{.learning_rate = std::nan("")}, {"'learning_rate' is nan"});
  refused(Ftrl{.learning_rate = 0}, {"optimizer 'ftrl'", "'learning_rate' is 0", "give it a positive one"});
  State still = trained(Line().minimized(Sgd{.learning_rate = 0})), begun = trained(Line().minimized(Sgd{}), 0);
  EXPECT_TRUE(still.at("dense/kernel") == begun.at("dense/kernel"));
  Line by_value;
  Value rate = constant_rate(by_value.b.step(), {.rate = 0.1});
  EXPECT_FALSE(says([&] { std::move(by_value).minimized(Ftrl{.learning_rate = rate}); }, {""})) << "a rate that is a value is no number of 0";
  std::string text = write_graph(Line().minimized(Adam{}));
  text.replace(text.find("0.001"), 5, "-0.001");
  Graph read = read_graph(text, "graph.json", std::make_shared<const OpSet>(standard_ops()));
  EXPECT_TRUE(says([&] { run_passes(training_passes(), read); }, {"'learning_rate' is -0.001"}));
}

// ---------------------------------------------------------------- weight decay

TEST(WeightDecay, shrinks_all_but_the_variables_that_are_named) {
  for (const Optimizer& o : std::vector<Optimizer>{Sgd{.learning_rate = 0.1, .weight_decay = 0.5}, AdamW{.learning_rate = 0.1, .weight_decay = 0.5}, Lamb{.learning_rate = 0.1, .weight_decay = 0.5}}) {
    Optimizer plain = o;
    plain.options.set("weight_decay", 0.0);
    State none = trained(Line().minimized(plain), 1), all = trained(Line().minimized(o), 1), spared = trained(Line().minimized(o, {.no_decay = "**/bias"}), 1);
    EXPECT_TRUE(spared.at("dense/bias") == none.at("dense/bias")) << o.kind;
    EXPECT_FALSE(all.at("dense/bias") == none.at("dense/bias")) << o.kind;
    EXPECT_TRUE(spared.at("dense/kernel") == all.at("dense/kernel")) << o.kind;
    EXPECT_FALSE(spared.at("dense/kernel") == none.at("dense/kernel")) << o.kind;
  }
}

TEST(WeightDecay, as_a_term_of_the_loss_is_half_the_square_of_what_it_names) {
  Line line;
  line.b.metric("one", line.b.l2_penalty("dense/bias", 0.5));
  line.b.metric("all", line.b.l2_penalty("**", 0.5));
  EXPECT_TRUE(says([&] { line.b.l2_penalty("dense/bais", 0.5); }, {"dense/bais", "no trainable variable"}));
  Session session(std::move(line).minimized(Sgd{}));
  HostTensor x = rows();
  Results r = session.run({{"x", x}}, {"one", "all"});
  auto squares = [&](const char* name) {
    double out = 0;
    const HostTensor w = session.variable(name);
    for (float v : w.data<float>()) out += static_cast<double>(v) * static_cast<double>(v);
    return out;
  };
  EXPECT_NEAR(r.item<float>("one"), 0.25 * squares("dense/bias"), 1e-6);
  EXPECT_NEAR(r.item<float>("all"), 0.25 * (squares("dense/bias") + squares("dense/kernel")), 1e-6);
}

// ---------------------------------------------------------------- schedules in files

TEST(Schedules, of_a_file_train_like_those_of_a_builder) {
  Line built;
  const Value step = built.b.step();
  Graph by_builder = std::move(built).minimized(Adam{.learning_rate = cosine_decay(step, {.rate = 0.1, .steps = 10, .alpha = 0.1, .warm_up = {.steps = 4, .from = 0.01}})});
  std::string text = write_graph(Line().minimized(Adam{.learning_rate = 0.125}));
  const std::string number = "\"learning_rate\": 0.125", object = R"("learning_rate": {"kind": "cosine_decay", "rate": 0.1, "steps": 10, "alpha": 0.1, "warmup_steps": 4, "warmup_from": 0.01})";
  ASSERT_NE(text.find(number), text.npos) << text;
  text.replace(text.find(number), number.size(), object);
  Graph by_file = read_graph(text, "graph.json", by_builder.shared_ops());
  EXPECT_EQ(write_graph(by_file), text);
  State a = trained(by_builder), b = trained(by_file);
  EXPECT_TRUE(a == b);
  EXPECT_FALSE(a == trained(Line().minimized(Adam{.learning_rate = 0.1})));
}

TEST(Schedules, of_files_with_lists_are_read_and_what_they_do_not_know_is_refused) {
  std::string text = write_graph(Line().minimized(Sgd{.learning_rate = 0.125}));
  auto with = [&](const std::string& object) {
    std::string out = text;
    out.replace(out.find("0.125"), 5, object);
    return read_graph(out, "graph.json", std::make_shared<const OpSet>(standard_ops()));
  };
  auto expand = [](const Graph& g) { return run_passes(training_passes(), g); };
  State steps = trained(with(R"({"kind": "piecewise_constant", "boundaries": [2, 5], "rates": [1, 0.5, 0.1]})"), 4);
  Line by_hand;
  Value rate = piecewise_constant(by_hand.b.step(), {.boundaries = {2, 5}, .rates = {1, 0.5, 0.1}});
  EXPECT_TRUE(steps == trained(std::move(by_hand).minimized(Sgd{.learning_rate = rate}), 4));
  EXPECT_TRUE(says([&] { expand(with(R"({"kind": "cosine_decoy", "rate": 1, "steps": 3})")); }, {"no schedule 'cosine_decoy'", "did you mean cosine_decay"}));
  EXPECT_TRUE(says([&] { expand(with(R"({"kind": "cosine_decay", "rate": 1})")); }, {"schedule 'cosine_decay'", "needs the attribute 'steps'"}));
  EXPECT_TRUE(says([&] { expand(with(R"({"kind": "cosine_decay", "rate": 1, "steps": 3, "speed": 2})")); }, {"no attribute 'speed'"}));
  EXPECT_TRUE(says([&] { expand(with(R"({"kind": "piecewise_constant", "boundaries": [5], "rates": [1, -0.5]})")); }, {"schedule 'piecewise_constant'", "'rates' is -0.5", "[0, 1e+30]"}));
  EXPECT_TRUE(says([&] { expand(with(R"({"kind": "piecewise_constant", "boundaries": [5, 2], "rates": [1, 0.5, 0.1]})")); }, {"do not ascend"}));
  EXPECT_TRUE(says([&] { with(R"({"rate": 1})"); }, {"kind"}));
}

TEST(Schedules, refuse_steps_and_factors_that_mean_nothing) {
  Builder b("net");
  Value step = b.step();
  EXPECT_TRUE(says([&] { exponential_decay(step, {.steps = 0}); }, {"[exponential_decay]", "steps are 0"}));
  EXPECT_TRUE(says([&] { exponential_decay(step, {.factor = -1}); }, {"factor is -1"}));
  EXPECT_TRUE(says([&] { polynomial_decay(step, {.end = -1}); }, {"[polynomial_decay]", "a rate is -1", "at least 0"}));
  EXPECT_TRUE(says([&] { piecewise_constant(step, {.boundaries = {1}, .rates = {1}}); }, {"1 boundaries need 2 rates"}));
  EXPECT_TRUE(says([&] { cosine_decay_restarts(step, {.t_mul = 0.5}); }, {"t_mul is 0.5"}));
  EXPECT_TRUE(says([&] { cosine_decay(b.variable("x", {}), {}); }, {"[cosine_decay]", "scalar of i64", "'x'"}));
  EXPECT_TRUE(says([&] { constant_rate(step, {.warm_up = {.steps = -1}}); }, {"[constant_rate]", "-1"}));
  EXPECT_TRUE(says([&] { scaled_rate(0.1, 0); }, {"scaled by 0"}));
}

// ---------------------------------------------------------------- moving averages

const MinimizeOptions kAveraged = {.average_decay = 0.5};

TEST(Averages, begin_with_their_variable_also_where_it_is_loaded) {
  Session session(Line().minimized(Sgd{}, kAveraged));
  EXPECT_EQ(session.variable("dense/kernel/ExponentialMovingAverage"), session.variable("dense/kernel"));
  HostTensor loaded = HostTensor::of<float>({2}, std::vector<float>{3, 4});
  session.load_state({{"dense/bias", loaded}});
  EXPECT_EQ(session.variable("dense/bias/ExponentialMovingAverage"), loaded);
  HostTensor other = HostTensor::of<float>({2}, std::vector<float>{5, 6});
  session.load_state({{"dense/bias", loaded}, {"dense/bias/ExponentialMovingAverage", other}});
  EXPECT_EQ(session.variable("dense/bias/ExponentialMovingAverage"), other);
}

TEST(Averages, follow_the_new_values) {
  Session session(Line().minimized(Sgd{.learning_rate = 0.5}, kAveraged));
  HostTensor x = rows();
  for (int k = 0; k < 3; ++k) {
    HostTensor before = session.variable("dense/bias/ExponentialMovingAverage");
    session.step({{"x", x}});
    HostTensor w = session.variable("dense/bias"), after = session.variable("dense/bias/ExponentialMovingAverage");
    for (std::size_t i = 0; i < 2; ++i) EXPECT_FLOAT_EQ(after.data<float>()[i], 0.5f * before.data<float>()[i] + 0.5f * w.data<float>()[i]);
  }
}

TEST(Averages, stand_in_for_the_variables_while_they_are_evaluated) {
  Session session(Line().minimized(Sgd{.learning_rate = 0.5}, kAveraged));
  DataSet data;
  data.columns.insert_or_assign("x", rows());
  for (int k = 0; k < 3; ++k) session.step(data.columns);
  State before = session.state();
  double plain = evaluate(session, data).at("loss"), averaged = 0;
  {
    AveragesInPlace in_place(session);
    averaged = evaluate(session, data).at("loss");
  }
  EXPECT_EQ(session.state(), before);
  EXPECT_EQ(evaluate(session, data).at("loss"), plain);
  EXPECT_GT(averaged, plain) << "the averages lag behind";
  session.load_state({{"dense/kernel", before.at("dense/kernel/ExponentialMovingAverage")}, {"dense/bias", before.at("dense/bias/ExponentialMovingAverage")}});
  EXPECT_EQ(evaluate(session, data).at("loss"), averaged);
  Session without(Line().minimized(Sgd{}));
  EXPECT_TRUE(says([&] { AveragesInPlace in_place(without); }, {"'line' keeps no moving averages", "average_decay"}));
}

TEST(Averages, of_a_session_that_was_moved_meanwhile_do_not_end_the_program) {
  Session session(Line().minimized(Sgd{.learning_rate = 0.5}, kAveraged));
  AveragesInPlace in_place(session);
  const Session other = std::move(session);
  EXPECT_EQ(other.graph().name, "line");
}

TEST(Averages, of_a_step_that_is_skipped_stay) {
  Session session(Line().minimized(Sgd{}, {.average_decay = 0.5, .skip_nonfinite = true}));
  HostTensor x = rows(), bad = rows();
  bad.data<float>()[0] = INFINITY;
  session.step({{"x", x}});
  State before = session.state();
  session.step({{"x", bad}});
  EXPECT_EQ(session.state(), before);
}

TEST(Averages, validate_a_fit_where_they_are_asked_for) {
  DataSet data;
  data.columns.insert_or_assign("x", rows());
  auto validated = [&](bool averages) {
    Session session(Line().minimized(Sgd{.learning_rate = 0.5}, kAveraged));
    return fit(session, data, {.batch = 4, .epochs = 2, .validation = &data, .averages = averages}).back().metrics.at("val_loss");
  };
  EXPECT_GT(validated(true), validated(false));
}

// ---------------------------------------------------------------- clipping

TEST(Clipping, holds_each_element_each_norm_or_all_together) {
  auto moved = [](const MinimizeOptions& o) {
    Graph g = Line().minimized(Sgd{.learning_rate = 1}, o);
    State a = trained(g, 0), b = trained(g, 1);
    std::vector<double> out;
    for (const char* name : {"dense/kernel", "dense/bias"})
      for (std::size_t i = 0; i < a.at(name).data<float>().size(); ++i) out.push_back(static_cast<double>(a.at(name).data<float>()[i]) - static_cast<double>(b.at(name).data<float>()[i]));
    return out;
  };
  auto norm = [](auto first, auto last) {
    double out = 0;
    for (auto i = first; i != last; ++i) out += *i * *i;
    return std::sqrt(out);
  };
  std::vector<double> free = moved({}), value = moved({.clip_value = 0.1}), each = moved({.clip_each_norm = 0.1}), all = moved({.clip_norm = 0.1}), loose = moved({.clip_norm = 1e6});
  for (std::size_t i = 0; i < free.size(); ++i) EXPECT_NEAR(value[i], std::clamp(free[i], -0.1, 0.1), 1e-6);
  EXPECT_NEAR(norm(each.begin(), each.begin() + 6), 0.1, 1e-6);
  EXPECT_NEAR(norm(each.begin() + 6, each.end()), 0.1, 1e-6);
  EXPECT_NEAR(norm(all.begin(), all.end()), 0.1, 1e-6);
  EXPECT_EQ(loose, free);
}

/// Who does not read the steps leaves it alone.
TEST(Optimizers, refuse_a_step_that_cannot_count) {
  auto built = [](const Optimizer& optimizer, bool trainable) {
    Line line;
    line.loss = line.loss * line.b.variable("step", {}, {.init = "ones", .trainable = trainable});
    return std::move(line).minimized(optimizer);
  };
  for (const Optimizer& optimizer : {Optimizer(Adam{}), Optimizer(Adafactor{})})
    EXPECT_TRUE(says<UserError>([&] { run_passes(training_passes(), built(optimizer, false)); }, {"a node 'step' (optimizers_test.cpp:", "which is f32()", "in i64() of that name", "give the node another name"}));
  for (bool trainable : {false, true}) {
    const Graph graph = run_passes(training_passes(), built(Sgd{}, trainable));
    EXPECT_EQ(graph.updates.contains(graph.find_node("step")), trainable);
    EXPECT_EQ(trained(built(Sgd{}, trainable), 2).at("step").dtype(), f32);
  }
}

/// A node of that name which is the same in each step would leave the rate where it begins.
TEST(Optimizers, refuse_a_step_that_stands_still) {
  auto why = [](const Build& step, const Optimizer& optimizer = Adam{}) {
    Line line;
    step(line.b);
    const Graph graph = std::move(line).minimized(optimizer);
    EXPECT_EQ(message_of([&] { run_passes(training_passes(), graph); }), "(no error)") << "it may serve";
    return message_of([&] { refuse_steps_that_stand_still(graph); });
  };
  auto one = [](Builder& b) { return constant(b.graph(), HostTensor::scalar<std::int64_t>(1)); };
  auto clock = [](Builder& b, const std::string& name) { return b.variable(name, {}, {.dtype = i64, .trainable = false}); };
  const Build fixed = [one](Builder& b) { return identity(one(b), "step"); }, of_a_fixed = [clock](Builder& b) { return identity(clock(b, "clock"), "step"); };
  const Build kept = [clock](Builder& b) {
    Value s = clock(b, "step");
    b.update(s, identity(s));
    return s;
  };
  const Build of_what_stands = [clock](Builder& b) {
    Value s = clock(b, "step"), other = clock(b, "clock");
    b.update(other, identity(other));
    b.update(s, other);
    return s;
  };
  Line served;
  fixed(served.b);
  Session session(std::move(served).minimized(Adam{}));
  EXPECT_NO_THROW(session.predict({{"x", rows()}}, {"loss"}));
  EXPECT_TRUE(says<UserError>([&] { session.step({{"x", rows()}}); }, {"a node 'step' (", "which is the same in each step"}));
  for (const Build& step : {fixed, of_a_fixed, kept, of_what_stands}) {
    EXPECT_THAT(why(step), testing::AllOf(testing::HasSubstr("a node 'step' (optimizers_test.cpp:"), testing::HasSubstr("which is the same in each step"), testing::HasSubstr("give the node another name")));
    EXPECT_EQ(why(step, Sgd{}), "(no error)");
  }
  const Build fed = [](Builder& b) { return b.input("step", i64, {}); }, counted = [clock](Builder& b) { return clock(b, "step"); };
  const Build own = [clock, one](Builder& b) {
    Value s = clock(b, "step");
    b.update(s, s + one(b) + one(b));
    return s;
  };
  const Build of_own = [clock, one](Builder& b) {
    Value s = clock(b, "clock");
    b.update(s, s + one(b));
    return identity(s, "step");
  };
  const Build ring = [clock](Builder& b) {
    Value s = clock(b, "step"), other = clock(b, "clock");
    b.update(s, other);
    b.update(other, s);
    return s;
  };
  for (const Build& step : {fed, counted, own, of_own, ring}) EXPECT_EQ(why(step), "(no error)");
}

}  // namespace
}  // namespace belfry::test
