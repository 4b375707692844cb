#include <belfry/graph/passes/pass.h>

#include <algorithm>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/gradients.h>
#include <belfry/graph/text.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/expand.h>

#include "graphs.h"
#include "interpreter.h"
#include "nets.h"
#include "says.h"

namespace belfry::test {
namespace {

using Build = std::function<Value(Builder&)>;

Graph graph_of(const Build& build) {
  Builder b("net");
  b.output(build(b));
  return std::move(b).build();
}

Value x_of(Builder& b) { return b.input("x", f32, {kBatch, 3}); }
/// Every pass of a graph without updates.
Graph optimise(const Graph& g) { return run_passes(inference_passes(), g); }

// ---------------------------------------------------------------- canonicalise

TEST(Canonicalise, removes_what_changes_nothing) {
  Graph plain = graph_of([](Builder& b) { return relu(x_of(b)); });
  const std::vector<Build> same = {
      [](Builder& b) { return relu(x_of(b) + 0); }, [](Builder& b) { return relu(0 + x_of(b)); }, [](Builder& b) { return relu(x_of(b) - 0); }, [](Builder& b) { return relu(x_of(b) * 1); },
      [](Builder& b) { return relu(1 * x_of(b)); }, [](Builder& b) { return relu(x_of(b) / 1); }, [](Builder& b) { return relu(reshape(x_of(b), {kBatch, 3})); }, [](Builder& b) { return relu(add_n({x_of(b)})); }};
  for (std::size_t i = 0; i < same.size(); ++i) EXPECT_SAME_GRAPH(optimise(graph_of(same[i])), plain) << i;
}

TEST(Canonicalise, keeps_what_changes_the_value_or_its_type) {
  for (const Build& other : std::vector<Build>{[](Builder& b) { return relu(x_of(b) * 0); }, [](Builder& b) { return relu(0 - x_of(b)); }, [](Builder& b) { return relu(1 / x_of(b)); },
                                               [](Builder& b) { return relu(reshape(x_of(b), {3 * kBatch})); }, [](Builder& b) { return relu(cast(x_of(b), f64)); }}) {
    Graph g = graph_of(other);
    EXPECT_SAME_GRAPH(optimise(g), g);
  }
  Graph wider = graph_of([](Builder& b) { return relu(x_of(b) + constant(b.graph(), HostTensor(f32, {2, 1, 3}))); });
  EXPECT_SAME_GRAPH(canonicalise(wider), wider) << "a zero that stretches x is no zero";
}

TEST(Canonicalise, keeps_nodes_that_are_asked_for_or_placed) {
  Graph asked = graph_of([](Builder& b) { return x_of(b) + 0; });
  EXPECT_SAME_GRAPH(canonicalise(asked), asked);
  Graph placed = graph_of([](Builder& b) {
    auto on = b.device("cpu:1");
    return relu(x_of(b) + 0);
  });
  EXPECT_SAME_GRAPH(canonicalise(placed), placed);
}

/// The gradient of a sum of one function of each part, simplified.
Graph gradient_of_parts(const Shape& sizes, const Shape& read, Tensors* values = nullptr) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 6});
  Value y = x * 2;
  Shape begin = {0, 0};
  std::vector<Value> terms;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (read[i] != Dim(0)) terms.push_back(reduce_sum(square(slice(y, begin, {kBatch, sizes[i]})) * (1.0 + static_cast<double>(i))));
    begin[1].factor += sizes[i].factor;
  }
  Value dx = gradients(b.graph(), {add_n(terms).id}, {x.id})[0];
  b.output(identity(dx, "dx"));
  Graph g = std::move(b).build(), simple = optimise(g);
  if (values) {
    Tensors feeds{{"x", HostTensor::of<float>({2, 6}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})}};
    for (const Graph* each : {&g, &simple}) values->emplace(each == &g ? "plain" : "simple", run_whole(*each, feeds, {}, 2, {{"dx", *each->find("dx")}}).fetched.at("dx"));
  }
  return simple;
}

TEST(Canonicalise, puts_the_gradients_of_all_parts_side_by_side) {
  auto count = [](const Graph& g, const char* op) { return std::ranges::count_if(g.nodes(), [&](const Node& n) { return n.op->name == op; }); };
  Tensors values;
  Graph all = gradient_of_parts({2, 1, 3}, {1, 1, 1}, &values);
  EXPECT_EQ(count(all, "concat"), 1);
  EXPECT_EQ(count(all, "slice_gradient"), 0);
  EXPECT_EQ(values.at("simple"), values.at("plain"));
  Graph gap = gradient_of_parts({2, 1, 3}, {1, 0, 1});
  EXPECT_EQ(count(gap, "concat"), 0);
  EXPECT_EQ(count(gap, "slice_gradient"), 2);
}

TEST(Canonicalise, leaves_the_removed_name_as_an_alias) {
  Graph g = optimise(graph_of([](Builder& b) { return relu(identity(x_of(b) + 0, "kept")); }));
  ASSERT_TRUE(g.find("add"));
  EXPECT_EQ(g.name_of(*g.find("add")), "x");
}

// ---------------------------------------------------------------- fold, merge, drop

TEST(FoldConstants, computes_what_is_known) {
  Graph folded = optimise(graph_of([](Builder& b) { return x_of(b) * (constant(b.graph(), HostTensor::scalar(2.0f)) * 3 + 4); }));
  EXPECT_SAME_GRAPH(folded, graph_of([](Builder& b) { return x_of(b) * 10; }));
}

TEST(FoldConstants, names_the_node_whose_constants_have_no_result) {
  Graph bad = graph_of([](Builder& b) { return gather(constant(b.graph(), HostTensor(f32, {2, 1})), constant(b.graph(), HostTensor::of<std::int32_t>({1}, {7}))); });
  EXPECT_TRUE(says([&] { fold_constants(bad); }, {"[gather] index 7 at position 0", "2 rows", "node 'gather'", "passes_test.cpp:"}));
}

TEST(FoldConstants, leaves_large_and_random_values_and_those_of_rows) {
  Graph large = graph_of([](Builder& b) { return relu(constant(b.graph(), HostTensor(f32, {65}))); });
  EXPECT_SAME_GRAPH(fold_constants(large), large);
  Graph rows = graph_of([](Builder& b) { return x_of(b) * row_count(b.graph(), {kBatch}, f32); });
  EXPECT_SAME_GRAPH(fold_constants(rows), rows);
  Graph random = graph_of([](Builder& b) {
    Value key = constant(b.graph(), HostTensor::scalar<std::int64_t>(1));
    return random_uniform(key, key, {3});
  });
  EXPECT_SAME_GRAPH(fold_constants(random), random);
}

TEST(MergeCommonSubexpressions, finds_the_operands_of_a_sum_in_either_order) {
  auto both = [](Value (*f)(Value, Value, SourceLine)) {
    Graph merged = merge_common_subexpressions(graph_of([&](Builder& b) {
      Value x = x_of(b), e = exp(x);
      return f(x, e, {}) / f(e, x, {});
    }));
    return merged.size();
  };
  EXPECT_EQ(both(add), both(sub) - 1);
  EXPECT_EQ(both(maximum), both(sub)) << "of 0 and −0 it is the first";
}

TEST(MergeCommonSubexpressions, makes_equal_nodes_one) {
  Graph merged = optimise(graph_of([](Builder& b) {
    Value x = x_of(b);
    return exp(relu(x)) + exp(relu(x));
  }));
  EXPECT_SAME_GRAPH(merged, graph_of([](Builder& b) {
    Value e = exp(relu(x_of(b)));
    return e + e;
  }));
}

TEST(MergeCommonSubexpressions, tells_attributes_inputs_outputs_and_devices_apart) {
  for (const Build& build : std::vector<Build>{[](Builder& b) { Value x = x_of(b); return softmax(x, 0) + softmax(x, 1); }, [](Builder& b) { Value x = x_of(b); return (x - exp(x)) + (exp(x) - x); },
                                               [](Builder& b) {
                                                 Value x = x_of(b), a;
                                                 {
                                                   auto on = b.device("cpu:1");
                                                   a = relu(x);
                                                 }
                                                 return a + relu(x);
                                               }}) {
    Graph g = graph_of(build);
    NodeId twins = 0;  // exp(x) of the second build
    for (const Node& n : g.nodes()) twins += n.name == "exp_1";
    EXPECT_EQ(merge_common_subexpressions(g).size(), g.size() - twins);
  }
}

TEST(MergeCommonSubexpressions, merges_draws_of_one_stream_and_no_others) {
  auto draws = [](const char* one, const char* other) {
    return graph_of([=](Builder& b) {
      Value x = x_of(b), first = dropout(x, b.seed(), b.step(), 0.5, one);
      Attributes a = b.graph().node(first.id.node).attributes;
      if (one == other) return first + b.graph().add("dropout", {x, b.seed(), b.step()}, a);
      return first + dropout(x, b.seed(), b.step(), 0.5, other);
    });
  };
  auto count = [](const Graph& g) { return std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return n.op->name == "dropout"; }); };
  const char* same = "drop";
  EXPECT_EQ(count(merge_common_subexpressions(draws(same, same))), 1);
  EXPECT_EQ(count(merge_common_subexpressions(draws(same, "other"))), 2);
}

TEST(DropDeadCode, keeps_inputs_and_what_is_asked_for) {
  Builder b("net");
  Value x = x_of(b), unread = b.input("unread", f32, {3});
  exp(unread);
  b.metric("m", reduce_sum(x));
  Value v = b.variable("v", {3});
  b.update(v, v * 2);
  b.variable("idle", {3});
  Graph g = drop_dead_code(std::move(b).build());
  EXPECT_GE(g.find_node("unread"), 0);
  EXPECT_EQ(g.find_node("exp"), -1);
  EXPECT_EQ(g.find_node("idle"), -1);
  EXPECT_EQ(g.updates.size(), 1u);
  EXPECT_EQ(g.metrics.size(), 1u);
}

// ---------------------------------------------------------------- differentiate

Graph drawn_by(const Build& step, const Optimizer& optimizer = Sgd{}) {
  Builder b("net");
  b.minimize(identity(mean(dropout(x_of(b) * b.variable("w", {3}), b.seed(), step(b), 0.5, "drop")), "loss"), optimizer);
  return std::move(b).build();
}

Value clock_of(Builder& b) { return b.variable("clock", {}, {.dtype = i64, .trainable = false}); }

TEST(Differentiate, refuses_draws_whose_step_nothing_updates) {
  for (const Build& step : std::vector<Build>{clock_of, [](Builder& b) { return clock_of(b) + 1; }})
    EXPECT_TRUE(says([&] { refuse_draws_that_repeat(run_passes(training_passes(), drawn_by(step))); },
                     {"[dropout] node 'drop' (", "passes_test.cpp:", "the variable 'clock', which nothing updates", "read the variable 'step', which training counts, or give 'clock' an update that counts"}));
  auto updated_by = [](const std::function<Value(Value)>& next) {
    return [next](Builder& b) {
      Value clock = clock_of(b);
      b.update(clock, next(clock));
      return clock;
    };
  };
  auto one = [](Value clock) { return constant(*clock.graph, HostTensor::scalar<std::int64_t>(1)); };
  for (const Build& step : std::vector<Build>{updated_by([](Value clock) { return identity(clock); }), updated_by([one](Value clock) { return one(clock) + 1; })})
    EXPECT_TRUE(says([&] { refuse_draws_that_repeat(run_passes(training_passes(), drawn_by(step))); }, {"[dropout] node 'drop' (", "the variable 'clock', whose update gives the same in each step", "give 'clock' an update that counts"}));
  auto set_anew = [](Builder& b) {
    Value clock = clock_of(b);
    b.update(clock, identity(b.input("clock_next", i64, {})));
    return clock;
  };
  const std::vector<Build> good = {updated_by([](Value clock) { return clock + 1; }), set_anew, [](Builder& b) { return b.step(); }, [](Builder& b) { return b.step() + 1000; }, [](Builder& b) { return b.input("clock", i64, {}); },
                                   [](Builder& b) { return constant(b.graph(), HostTensor::scalar<std::int64_t>(1)); }};
  for (const Build& step : good) EXPECT_EQ(message_of([&] { refuse_draws_that_repeat(run_passes(training_passes(), drawn_by(step))); }), "(no error)");
  Builder moved("moved");  // the seed moves, the step does not
  Value key = moved.input("key", i64, {});
  moved.minimize(mean(dropout(x_of(moved) * moved.variable("w", {3}), key, clock_of(moved), 0.5)), Sgd{});
  EXPECT_EQ(message_of([&] { refuse_draws_that_repeat(run_passes(training_passes(), std::move(moved).build())); }), "(no error)");
  Builder both("both");  // one step and two seeds, of which the second does not move
  Value clock = clock_of(both), half = dropout(x_of(both) * both.variable("w", {3}), both.input("key", i64, {}), clock, 0.5, "moving");
  both.minimize(mean(dropout(half, both.seed(), clock, 0.5, "standing")), Sgd{});
  EXPECT_TRUE(says([&] { refuse_draws_that_repeat(run_passes(training_passes(), std::move(both).build())); },
                   {"node 'standing'", "the variable 'clock', which nothing updates"}));
  // Without updates nothing is trained: it is for who loads the variable.
  EXPECT_EQ(message_of([&] { refuse_draws_that_repeat(run_passes(training_passes(), graph_of([](Builder& b) { return dropout(x_of(b), b.seed(), clock_of(b), 0.5); }))); }), "(no error)");
  EXPECT_EQ(message_of([&] { run_passes(training_passes(), drawn_by(clock_of)); }), "(no error)");
}

TEST(Differentiate, reads_a_step_that_is_fed_and_does_not_count_it) {
  auto fed = [](Builder& b) { return b.input("step", i64, {}); };
  for (const Optimizer& optimizer : {Optimizer(Sgd{}), Optimizer(Adam{})}) {
    const Graph g = run_passes(training_passes(), drawn_by(fed, optimizer));
    EXPECT_FALSE(g.updates.contains(g.find_node("step")));
    EXPECT_TRUE(g.updates.contains(g.find_node("w")));
  }
}

// ---------------------------------------------------------------- for_inference

TEST(ForInference, makes_dropout_its_input) {
  Graph g = for_inference(graph_of([](Builder& b) { return exp(dropout(relu(x_of(b)), b.seed(), b.step(), 0.5, "drop")); }));
  EXPECT_SAME_GRAPH(g, graph_of([](Builder& b) { return exp(relu(x_of(b))); }));
}

TEST(ForInference, reads_running_statistics_in_batch_norm) {
  auto parameters = [](Builder& b) { return std::vector<Value>{b.variable("gamma", {3}), b.variable("beta", {3}), b.variable("mean", {3}), b.variable("variance", {3})}; };
  Graph g = for_inference(graph_of([&](Builder& b) {
    Value x = x_of(b);
    auto p = parameters(b);
    return batch_norm(x, p[0], p[1], p[2], p[3], {.epsilon = 0.25});
  }));
  EXPECT_SAME_GRAPH(g, graph_of([&](Builder& b) {
    Value x = x_of(b);
    auto p = parameters(b);
    Value scale = p[0] / sqrt(p[3] + 0.25);
    return x * scale + (p[1] - p[2] * scale);
  }));
}

TEST(ForInference, drops_training_and_needs_no_label_to_predict) {
  Builder b("net");
  Value x = x_of(b), label = b.input("label", i32, {kBatch});
  Value logits = matmul(x, b.variable("w", {3, 4}));
  b.metric("loss", mean(sparse_softmax_cross_entropy(logits, label)));
  b.minimize(b.graph().value(b.graph().metrics.at("loss")), Momentum{});
  Graph trained = run_passes(training_passes(), std::move(b).build());
  Graph all = for_inference(trained);
  EXPECT_TRUE(all.updates.empty() && all.losses.empty());
  EXPECT_GE(all.find_node("label"), 0);
  EXPECT_EQ(all.find_node("momentum_m/w"), -1);
  Graph predict = for_inference(trained, {"matmul"});
  EXPECT_EQ(predict.find_node("label"), -1);
  EXPECT_EQ(predict.size(), 3);
}

TEST(ForInference, needs_nothing_that_only_the_gate_reads) {
  Builder b("net");
  Value label = b.input("label", f32, {kBatch, 3}), z = x_of(b) * b.variable("w", {3});
  b.output(identity(z, "z"));
  Value loss = mean(square(z - label));
  b.gate(all_finite(loss));
  b.minimize(identity(loss, "loss"), Momentum{});
  EXPECT_EQ(for_inference(std::move(b).build(), {"z"}).find_node("label"), -1);
}

// ---------------------------------------------------------------- lower_means

std::int64_t weights_in(const Graph& g) {
  return std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return n.op->name == "row_weight"; });
}

TEST(LowerMeans, weighs_the_means_of_losses_and_counts_all_others) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 3}), w = b.variable("w", {3});
  Value loss = add_n({mean(x * w) * 2, mean(square(w)) / 4}) + -mean(x * x * w);
  b.metric("accuracy", mean(x));
  b.metric("root", sqrt(mean(square(x))));
  b.minimize(loss + sqrt(mean(square(x * w))), Sgd{});
  Graph g = lower_means(std::move(b).build());
  EXPECT_EQ(weights_in(g), 2);
  EXPECT_EQ(std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return n.op->name == "row_count"; }), 3);
  EXPECT_EQ(std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return n.op->name == "reduce_mean"; }), 1) << "a mean without rows stays";
}

TEST(LowerMeans, combine_scales_the_losses_and_nothing_else) {
  Builder b("net");
  Value x = b.input("x", f64, {kBatch, 3}), w = b.variable("w", {3}, {.dtype = f64, .init = "ones"});
  Value loss = mean(x * w);
  b.metric("accuracy", mean(x));
  b.metric("loss", loss);
  b.minimize(loss, Sgd{});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  auto fetches = fetches_of(*graph);
  HostTensor feed(f64, {5, 3});
  for (std::size_t i = 0; i < 15; ++i) feed.data<double>()[i] = static_cast<double>(i + 1);
  auto run = [&](Combine combine) { return run_towers(expand(graph, {.towers = 2, .batch = 5, .combine = combine, .fetches = fetches}), {{"x", feed}}, state_for(*graph)).fetched; };
  double first = 45.0 / 9, second = 75.0 / 6;  // the means of the towers' shares of 3 and 2 rows
  EXPECT_NEAR(run(Combine::global_mean).at("loss").item<double>(), 8, 1e-12);
  EXPECT_NEAR(run(Combine::tower_mean).at("loss").item<double>(), (first + second) / 2, 1e-12);
  EXPECT_NEAR(run(Combine::tower_sum).at("loss").item<double>(), first + second, 1e-12);
  for (Combine c : {Combine::global_mean, Combine::tower_mean, Combine::tower_sum}) EXPECT_NEAR(run(c).at("accuracy").item<double>(), 8, 1e-12);
}

TEST(LowerMeans, over_two_row_axes_divides_by_the_batch_twice) {
  for (bool in_loss : {false, true}) {
    Builder b("net");
    Value m = mean(b.input("x", f64, {kBatch, kBatch}) * b.variable("w", {}, {.dtype = f64, .init = "ones"}));
    b.metric("m", m);
    if (in_loss) b.minimize(m, Sgd{});
    Graph g = run_passes(in_loss ? training_passes() : inference_passes(), std::move(b).build());
    HostTensor feed(f64, {4, 4});
    for (double& e : feed.data<double>()) e = 3;
    EXPECT_NEAR(run_whole(g, {{"x", feed}}, state_for(g), 4, {{"m", g.metrics.at("m")}}).fetched.at("m").item<double>(), 3, 1e-12) << in_loss;
  }
}

// ---------------------------------------------------------------- run_pass

TEST(RunPass, times_dumps_and_skips_by_name) {
  Graph g = graph_of([](Builder& b) { return relu(x_of(b) + 0); });
  std::vector<PassTime> times;
  std::vector<std::string> dumped;
  PassOptions options{{"fold_constants"}, [&](std::string_view pass, const Graph& after) { dumped.push_back(std::string(pass)); EXPECT_FALSE(to_text(after).empty()); }, &times};
  run_passes(inference_passes(), g, options);
  std::vector<std::string> names;
  for (const PassTime& t : times) names.push_back(t.name);
  EXPECT_EQ(names, (std::vector<std::string>{"lower_means", "fold_pads", "write_out_ops", "canonicalise", "merge_common_subexpressions", "drop_dead_code", "mixed_precision", "order_nodes"}));
  EXPECT_EQ(dumped, names);
  EXPECT_EQ(times.back().nodes_after, 2);
}

TEST(RunPass, finds_the_graph_that_a_pass_broke) {
  Graph g = graph_of([](Builder& b) { return relu(x_of(b)) + 1; });
  auto broken = [&](std::function<void(Graph&)> damage, const char* words) {
    Pass pass{"damage", [&](const Graph& from) { Graph out = from; damage(out); return out; }, Stage::built};
    return says<InternalError>([&] { run_pass(pass, g); }, {words});
  };
  EXPECT_TRUE(broken([](Graph& d) { d.edit(1).types[0].dtype = f64; }, "other types than its op infers"));
  EXPECT_TRUE(broken([](Graph& d) { d.edit(1).inputs[0] = {3, 0}; }, "reads what is not there before it"));
  EXPECT_TRUE(broken([](Graph& d) { d.edit(1).inputs[0] = {0, 1}; }, "reads what is not there before it"));
  EXPECT_TRUE(broken([](Graph& d) { d.edit(1).name = "other"; }, "does not lead to its node"));
  EXPECT_TRUE(broken([](Graph& d) { d.edit(1).of = 99; }, "follows a node that is not there"));
  EXPECT_TRUE(broken([](Graph& d) { d.updates[1] = {1, 0}; }, "is updated but no variable"));
  Graph training = [] {
    Builder b("net");
    b.minimize(mean(x_of(b) * b.variable("w", {3})), Sgd{});
    return std::move(b).build();
  }();
  Pass nothing{"nothing", [](const Graph& from) { return from; }, Stage::differentiated};
  EXPECT_TRUE(says<InternalError>([&] { run_pass(nothing, training); }, {"short form of training"}));
}

TEST(Passes, find_nothing_more_in_a_second_round_on_every_net) {
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list) {
      Graph once = training_graph(n), twice = run_passes(training_passes(), once);
      EXPECT_SAME_GRAPH(twice, once) << n.name;
    }
}

}  // namespace
}  // namespace belfry::test
