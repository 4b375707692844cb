// What a program that is not right yet is told: empty Values, spent builders, sessions that were moved, steps that train nothing.
#include <gtest/gtest.h>

#include <belfry/belfry.h>

#include "says.h"

namespace belfry::test {
namespace {

struct Unfinished {
  Unfinished() : x(b.input("x", f32, {kBatch, 2})), y(nn::dense(x, {.units = 1, .name = "line"})) {}
  Graph built() { return std::move(b).build(); }
  Builder b = Builder("line");
  Value x, y;
};

HostTensor pairs() { return HostTensor::of<float>({2, 2}, {1, 2, 3, 4}); }

TEST(Mistakes, an_empty_value_is_named_where_it_is_given) {
  Unfinished l;
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"[dense] its input is an empty Value at mistakes_test.cpp", [] { nn::dense({}, {.units = 3}); }},
      {"[conv2d] its input", [] { nn::conv2d({}, {.filters = 3, .kernel = 3}); }},
      {"[batch_norm] its input", [] { nn::batch_norm({}); }},
      {"[dropout] its input", [] { nn::dropout({}); }},
      {"[embedding] its input", [] { nn::embedding({}, {.rows = 3, .size = 2}); }},
      {"[layer_norm] its input", [] { nn::layer_norm({}); }},
      {"[multi_head_attention] its input", [&] { nn::multi_head_attention({}, l.x, {}, {.heads = 1, .key_size = 1}); }},
      {"[relu] all inputs are empty Values", [] { relu({}); }},
      {"[mean_squared_error] its input", [] { mean_squared_error({}, {}); }},
      {"[concat] all inputs are empty Values", [] { concat({}, 0); }},
      {"[clip_by_norm] its input", [] { clip_by_norm({}, 1); }},
      {"[adjust_brightness] its input", [] { adjust_brightness({}, 1); }},
      {"[exponential_decay] its input", [] { exponential_decay({}, {}); }},
      {"[random_uniform] its input", [] { random_uniform({}, {}, {2}); }},
      {"empty Value", [] { Value{} + 1.0; }},
      {"needs its input", [&] { l.x + Value{}; }},
      {"empty Value", [] { matmul({}, {}); }},
      {"[minimize] was given an empty Value", [&] { l.b.minimize({}, Sgd{}); }},
      {"a learning rate is an empty Value", [&] { l.b.minimize(mean(l.y), Sgd{.learning_rate = Value{}}); }},
      {"[metric] was given an empty Value", [&] { l.b.metric("m", {}); }},
      {"[metric] was given an empty Value", [&] { l.b.metric("m", mean(l.y), {}); }},
      {"[output] was given an empty Value", [&] { l.b.output({}); }},
      {"[output] was given an empty Value", [&] { l.b.output("y", {}); }},
      {"[gate] was given an empty Value", [&] { l.b.gate({}); }},
      {"[update] was given an empty Value", [&] { l.b.update({}, l.y); }}};
  for (const auto& [words, call] : calls) EXPECT_TRUE(says(call, {words})) << words;
}

TEST(Mistakes, a_value_of_another_graph_is_refused) {
  Unfinished l, other;
  EXPECT_TRUE(says([&] { l.b.minimize(mean(other.y), Sgd{}); }, {"[minimize] the value 'reduce_mean' is of the graph 'line', not of this Builder's"}));
  EXPECT_TRUE(says([&] { l.b.output("y", other.y); }, {"[output] the value"}));
  EXPECT_TRUE(says([&] { l.b.minimize(mean(l.y), Sgd{.learning_rate = constant_rate(other.b.step(), {})}); }, {"[learning_rate] the value"}));
}

TEST(Mistakes, a_spent_builder_and_its_values_say_so) {
  Unfinished l;
  {
    auto on = l.b.scope("still");
    l.built();
  }
  const char* spent = "this Builder is spent";
  EXPECT_TRUE(says([&] { l.b.input("z", f32, {kBatch}); }, {spent}));
  EXPECT_TRUE(says([&] { l.b.variable("w", {2}); }, {spent}));
  EXPECT_TRUE(says([&] { l.b.step(); }, {spent}));
  EXPECT_TRUE(says([&] { auto on = l.b.scope("more"); }, {spent}));
  EXPECT_TRUE(says([&] { l.b.minimize(l.y, Sgd{}); }, {spent}));
  EXPECT_TRUE(says([&] { l.b.graph(); }, {spent}));
  EXPECT_TRUE(says([&] { l.built(); }, {spent}));
  EXPECT_TRUE(says([&] { relu(l.y); }, {"[relu] this graph was built or moved"}));
  EXPECT_TRUE(says([&] { nn::dense(l.y, {.units = 2}); }, {"built or moved"}));
  EXPECT_TRUE(says([&] { l.y.type(); }, {"this Value's graph was built or moved"}));
  Unfinished from;
  Builder to = std::move(from.b);
  EXPECT_TRUE(says([&] { from.b.graph(); }, {"this Builder was moved from"}));  // NOLINT: that is what is asked
  to.output(relu(from.y));
}

TEST(Mistakes, a_session_that_was_moved_says_so) {
  Unfinished l;
  l.b.output(l.y);
  Session from(l.built()), to = std::move(from);
  const char* moved = "this Session was moved from";
  EXPECT_TRUE(says([&] { from.predict({{"x", pairs()}}); }, {moved}));
  EXPECT_TRUE(says([&] { from.step({}); }, {moved}));
  EXPECT_TRUE(says([&] { from.state(); }, {moved}));
  EXPECT_TRUE(says([&] { from.weights(); }, {moved}));
  EXPECT_TRUE(says([&] { from.plan(2); }, {moved}));
  EXPECT_TRUE(says([&] { from.graph(); }, {moved}));
  EXPECT_TRUE(says([&] { from.set_trace(true); }, {moved}));
  to.predict({{"x", pairs()}});
}

TEST(Mistakes, a_step_that_would_train_nothing_is_refused) {
  Unfinished l;
  l.b.output("scores", nn::batch_norm(l.y));
  Session session(l.built());
  EXPECT_TRUE(says([&] { session.step({{"x", pairs()}}); }, {"a step of the graph 'line' would train nothing", "Builder::minimize", "run()"}));
  session.run({{"x", pairs()}});
  // What has nothing to train may count.
  Builder b("counts");
  Value n = b.variable("n", {}, {.trainable = false});
  b.update(n, n + 1);
  Session counts(std::move(b).build());
  counts.step({});
  EXPECT_EQ(counts.variable("n").item<float>(), 1);
}

TEST(Mistakes, a_feed_that_no_input_reads_is_named) {
  Unfinished l;
  l.b.output("scores", l.y);
  Session session(l.built());
  const HostTensor x = pairs(), weight(f32, {2});
  EXPECT_TRUE(says([&] { session.run({{"x", x}, {"wx", weight}}); }, {"the graph 'line' has no input 'wx'; did you mean x?"}));
  EXPECT_TRUE(says([&] { session.predict({{"x", x}, {"sample_weight", weight}}); }, {"no input 'sample_weight'; its inputs are: x"}));
  // A data set may have columns for other graphs.
  session.run(std::map<std::string, HostTensor>{{"x", x}, {"weight", weight}});
}

TEST(Builder, gives_outputs_names_to_fetch_them_by) {
  Unfinished l;
  {
    auto inside = l.b.scope("head");
    l.b.output("scores", l.y);
  }
  l.b.output("line/bias_add", l.y);
  l.b.minimize(mean(square(l.y)), Sgd{});
  l.b.metric("error", mean(l.y));
  EXPECT_TRUE(says([&] { l.b.output("line/kernel", l.x); }, {"the name is taken"}));
  EXPECT_TRUE(says([&] { l.b.output("error", l.y); }, {"[output] 'error' is a metric's name already"}));
  const Graph graph = l.built();
  EXPECT_EQ(graph.outputs.size(), 2u);
  Session session(graph);
  const Results r = session.predict({{"x", pairs()}}), stepped = session.step({{"x", pairs()}});
  EXPECT_EQ(r.all().size(), 2u);
  EXPECT_EQ(r["scores"], r["line/bias_add"]);
  EXPECT_EQ(stepped["scores"], r["scores"]);
}

TEST(Session, keeps_many_small_programs_and_says_when_one_goes) {
  std::vector<std::string> notices;
  Unfinished l;
  l.b.output("scores", l.y);
  Session session(l.built(), {.notice = [&](const std::string& text) { notices.push_back(text); }});
  const PlacedGraph* first = &session.plan(1, Mode::infer);
  for (int batch = 2; batch <= 64; ++batch) session.plan(batch, Mode::infer);
  EXPECT_EQ(first, &session.plan(1, Mode::infer));
  EXPECT_TRUE(notices.empty());
  for (int batch = 65; batch <= 67; ++batch) session.plan(batch, Mode::infer);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("64 programs are kept"), std::string::npos);
}

}  // namespace
}  // namespace belfry::test
