// What a program that is not right yet is told: empty Values, spent builders, sessions that were moved, steps that train nothing.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>

#include <belfry/belfry.h>

#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/split_rules.h>
#include <belfry/ops/emit.h>
#include <belfry/ops/passes/passes.h>

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
  EXPECT_TRUE(says([&] { l.x + other.y; }, {"[add]", "its input 'line/bias_add' belongs to another graph, 'line'; this one is 'line'"}));
  EXPECT_TRUE(says([&] { l.b.minimize(mean(l.y), Sgd{.learning_rate = constant_rate(other.b.step(), {})}); }, {"[learning_rate] the value"}));
}

TEST(Mistakes, a_layer_object_is_of_one_graph_also_where_that_is_gone) {
  nn::Dense dense({.units = 2, .name = "head"});
  nn::Conv2d conv({.filters = 2, .name = "stem"});
  auto applied = [&](const char* name) {
    auto b = std::make_unique<Builder>(name);
    dense(b->input("x", f32, {kBatch, 3}));
    conv(b->input("image", f32, {kBatch, 5, 5, 1}));
    return b;
  };
  std::unique_ptr<Builder> first = applied("first"), second = std::make_unique<Builder>("second");
  auto refused = [&](Builder& b, const std::string& input) {
    EXPECT_TRUE(says([&] { dense(b.input(input, f32, {kBatch, 3})); }, {"[dense] the layer 'head' has its variables in another graph than 'second': make a layer object for each graph"}));
    EXPECT_TRUE(says([&] { conv(b.input(input + "_image", f32, {kBatch, 5, 5, 1})); }, {"[conv2d] the layer 'stem' has its variables in another graph"}));
  };
  dense(first->input("again", f32, {kBatch, 3}));
  refused(*second, "x");
  first.reset();
  refused(*second, "y");
  auto there = std::make_unique<Builder>("second");  // perhaps where the first one was
  refused(*there, "x");
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

/// Two classes of pictures, with a loss and a metric.
Graph two_classes() {
  Builder b("pictures");
  Value image = b.input("image", f32, {kBatch, 6, 5, 3}), label = b.input("label", i32, {kBatch});
  Value logits = nn::dense(flatten(image), {.units = 2, .name = "head"});
  b.output("logits", logits);
  b.metric("accuracy", mean(equal(argmax(logits), label)));
  b.minimize(mean(sparse_softmax_cross_entropy(logits, label)), Sgd{});
  return std::move(b).build();
}

TEST(Mistakes, names_that_are_none_get_the_nearest_and_what_is_there) {
  Session session(two_classes());
  const HostTensor image(f32, {4, 6, 5, 3}), label(i32, {4});
  auto fetching = [&](const char* name) { return [&, name] { session.step({{"image", image}, {"label", label}}, {name}); }; };
  EXPECT_TRUE(says(fetching("acuracy"), {"no value 'acuracy' to fetch in the graph 'pictures'; did you mean accuracy?"}));
  EXPECT_TRUE(says(fetching("los"), {"did you mean loss"}));
  EXPECT_TRUE(says(fetching("top_5_errors"), {"; it has the losses loss, the metrics accuracy, the outputs logits; "}));
  EXPECT_TRUE(says([&] { session.predict({{"imag", image}}, {"logit"}); }, {"no value 'logit' to fetch", "logits"}));

  const Results r = session.step({{"image", image}, {"label", label}}, {"loss", "logits"});
  EXPECT_TRUE(says([&] { session.variable("head/kernels"); }, {"no variable 'head/kernels'; did you mean head/kernel?"}));
  EXPECT_TRUE(says([&] { r.item<double>("loss"); }, {"'loss' is f32(), and was read as f64"}));
  EXPECT_TRUE(says([&] { r.item<float>("logits"); }, {"'logits' is f32(4, 2): item() is of one element"}));
  EXPECT_TRUE(says([&] { r.data<std::int32_t>("logits"); }, {"'logits' is f32(4, 2), and was read as i32"}));
  EXPECT_TRUE(says([&] { r["lots"]; }, {"'lots' was not fetched; fetched were: logits, loss; did you mean loss"}));

  DataSet data;
  data.columns = {{"image", image}, {"label", label}};
  EXPECT_TRUE(says([&] { evaluate(session, data).at("acuracy"); }, {"no 'acuracy' among what was evaluated: accuracy, loss; did you mean accuracy"}));
  EXPECT_TRUE(says([&] { evaluate(session, data)["acuracy"]; }, {"no 'acuracy'"}));
  EXPECT_EQ(evaluate(session, data)["accuracy"], 1);
}

TEST(Mistakes, feeds_of_another_layout_or_type_are_told_the_way_out) {
  Session session(two_classes());
  const HostTensor first(f32, {4, 3, 6, 5}), other(f32, {4, 6, 4, 3}), label(i32, {4});
  EXPECT_TRUE(says([&] { session.step({{"image", first}, {"label", label}}); }, {"f32(4, 3, 6, 5), but the input is f32(batch, 6, 5, 3); channels come last: (rows, height, width, channels)"}));
  const HostTensor column(i64, {4, 1}), float64(f64, {4, 6, 5, 3});
  EXPECT_TRUE(says([&] { session.step({{"image", HostTensor(f32, {4, 6, 5, 3})}, {"label", column}}); }, {"'label' is i64(4, 1), but the input is i32(batch); axes of 1 are all that differs"}));
  EXPECT_TRUE(says([&] { session.predict({{"image", float64}}); }, {"is f64(4, 6, 5, 3), but the input is f32(batch, 6, 5, 3); converted(tensor, f32)"}));
  EXPECT_TRUE(says([&] { session.predict({{"image", HostTensor(u8, {4, 6, 5, 3})}}); }, {"converted(tensor, f32)", "pictures_of(tensor, size, pixels)"}));
  const std::string message = message_of([&] { session.step({{"image", other}, {"label", label}}); });
  EXPECT_NE(message.find("f32(4, 6, 4, 3), but"), message.npos) << message;
  EXPECT_EQ(message.find("channels"), message.npos) << message;
  auto net = [](const Shape& image) {
    Builder b("net");
    nn::conv2d(b.input("image", f32, image), {.filters = 8, .kernel = 5});
  };
  EXPECT_TRUE(says([&] { net({kBatch, 3, 32, 32}); }, {"does not fit without padding into height 3 and width 32; use padding \"same\"; or is that height the channels? They come last"}));
  EXPECT_EQ(message_of([&] { net({kBatch, 32, 4, 3}); }).find("channels?"), std::string::npos);
}

TEST(Mistakes, a_batch_without_its_symbol_is_not_divided) {
  auto fixed = [] {
    Builder b("fixed");
    Value image = b.input("image", f32, {64, 28});
    b.minimize(mean(square(nn::dense(image, {.units = 2}))), Sgd{});
    return std::move(b).build();
  };
  const HostTensor rows(f32, {64, 28}), fewer(f32, {32, 28});
  Session two(fixed(), Towers{.devices = parse_devices("sim:0,sim:1")}), one(fixed());
  EXPECT_TRUE(says([&] { two.step({{"image", rows}}); }, {"no input of the graph 'fixed' has the symbol of the batch", "nothing to divide over 2 towers: write {kBatch, 28} ([\"batch\", 28] in files), or take one tower"}));
  one.step({{"image", rows}});
  EXPECT_TRUE(says([&] { one.step({{"image", fewer}}); }, {"the feed 'image' is f32(32, 28), but the input is f32(64, 28); for any number of rows write {kBatch, …}"}));
  Builder b("torch");
  EXPECT_TRUE(says([&] { b.input("x", f32, {-1, 28}); }, {"[input] 'x' has the shape (-1, 28): write kBatch for the rows, {kBatch, …}"}));
}

TEST(Mistakes, names_and_shapes_of_pytorch_are_understood) {
  Session session(two_classes());
  const HostTensor flat(f32, {4, 90}), one(f32, {6, 5, 3}), other(f32, {4, 91}), label(i32, {4});
  EXPECT_TRUE(says([&] { session.variable("head.weight"); }, {"no variable 'head.weight'; did you mean head/kernel?"}));
  for (const char* name : {"gradient of head/kernel", "head/kernel.grad"}) EXPECT_TRUE(says([&] { session.step({{"image", HostTensor(f32, {4, 6, 5, 3})}, {"label", label}}, {name}); }, {"; did you mean gradient/head/kernel?"}));
  EXPECT_TRUE(says([&] { session.predict({{"image", flat}}); }, {"f32(4, 90), but the input is f32(batch, 6, 5, 3); the same numbers: HostTensor::of<float>({4, 6, 5, 3}, t.data<float>())"}));
  EXPECT_TRUE(says([&] { session.predict({{"image", one}}); }, {"HostTensor::of<float>({1, 6, 5, 3}, t.data<float>())"}));
  EXPECT_EQ(message_of([&] { session.predict({{"image", other}}); }).find("the same numbers"), std::string::npos);
  EXPECT_EQ(message_of([&] { session.predict({{"image", HostTensor(f64, {4, 91})}}); }).find("converted"), std::string::npos);
  EXPECT_TRUE(says([&] { session.predict({{"image", HostTensor(f32, {4, 6, 5, 3})}}, {"logits", "accuracy"}); }, {"no feed for the input 'label' i32(batch); there are feeds for image; 'accuracy', which is fetched, needs it"}));
}

/// y = 2·x, with rules as a first try may have them.
struct OwnOp {
  GradientRule gradient = {[](GradientContext& g) { return std::vector<Value>{g.output_gradient()}; }};
  ReferenceRule reference = [](const Call&) {};
  SplitRule split = split_elementwise();
  InferRule infer = [](InferContext& c) { return c.same_type_as(0); };
  std::shared_ptr<const OpSet> ops() const {
    auto ops = std::make_shared<OpSet>(standard_ops());
    ops->add({.name = "twice", .inputs = {"x"}, .infer = infer, .reference = reference, .gradient = gradient, .split = split});
    return ops;
  }
  Graph net() const {
    Builder b("own", ops());
    Value x = b.input("x", f32, {kBatch, 2});
    b.minimize(mean(emit("twice", {x * b.variable("w", {2})}, {}, SourceLine::here())), Sgd{});
    return std::move(b).build();
  }
};

TEST(Mistakes, in_an_op_of_ones_own_are_its_own) {
  EXPECT_TRUE(says([] { Session(OwnOp{.gradient = {[](GradientContext& g) { return g.output_gradient(), std::vector<Value>{}; }}}.net()); },
                   {"[twice] its gradient rule gives 0 values for 1 inputs", "node 'twice' (mistakes_test.cpp:"}));
  EXPECT_TRUE(says([] { Session(OwnOp{.gradient = {[](GradientContext& g) { return std::vector<Value>{mean(g.output_gradient())}; }}}.net()); },
                   {"[twice] its gradient rule gives f32() for the input 0, which is f32(batch, 2); node 'twice' (mistakes_test.cpp:"}));
  OwnOp lazy;
  lazy.split = {[](const SplitContext&) { return Split{}; }};
  EXPECT_TRUE(says([&] { Session(lazy.net()).plan(4); }, {"[twice] the op's split rule speaks of 0 inputs and 0 outputs, but 'twice' has 1 and 1; mistakes_test.cpp:"}));
  const OwnOp throwing{.reference = [](const Call& c) { c.inputs[0].as<float>().empty() ? throw std::runtime_error("none") : throw std::out_of_range("element 9"); }};
  Session throws(throwing.net());
  Builder constants("folded", throwing.ops());
  constants.output(emit("twice", {constant(constants.graph(), HostTensor(f32, {2}))}, {}, SourceLine::here()));
  const Graph folded = std::move(constants).build();
  EXPECT_TRUE(says([&] { throws.step({{"x", pairs()}}); }, {"[twice] its reference failed: element 9; node 'twice' (mistakes_test.cpp:", "while running 'twice' on cpu:0"}));
  EXPECT_TRUE(says([&] { run_passes(training_passes(), folded); }, {"[twice] element 9; node 'twice', whose inputs are constants (mistakes_test.cpp:"}));
  EXPECT_TRUE(says([] { emit("twice", {Unfinished().x}, {}, SourceLine::here()); }, {"there is no op 'twice'", "Builder b(name, ops)", "cli_main (docs/add_an_op.md)"}));
}

TEST(Mistakes, in_the_rules_of_an_op_of_ones_own_name_op_and_node) {
  const OwnOp types{.infer = [](InferContext&) -> std::vector<TensorType> { throw std::out_of_range("boom"); }}, split{.split = {[](const SplitContext&) -> Split { throw std::runtime_error("odd rows"); }}};
  EXPECT_TRUE(says([&] { types.net(); }, {"[twice] its infer rule failed: boom; node 'twice', input 'x' f32(batch, 2)"}));
  EXPECT_TRUE(says([&] { Session(split.net()).plan(4); }, {"[twice] its split rule failed: odd rows; node 'twice' (mistakes_test.cpp:"}));
}

TEST(Feeds, whole_numbers_of_numpy_go_into_inputs_of_i32_where_they_fit) {
  Session session(two_classes());
  HostTensor image(f32, {2, 6, 5, 3}), narrow = HostTensor::of<std::int32_t>({2}, {1, 0}), wide = HostTensor::of<std::int64_t>({2}, {1, 0});
  for (float& x : image.data<float>()) x = static_cast<float>(&x - image.data<float>().data()) / 64;
  const std::vector<std::string> all = {"loss", "accuracy"};
  const Results one = session.run({{"image", image}, {"label", narrow}}, all), other = session.run({{"image", image}, {"label", wide}}, all);
  EXPECT_EQ(one.all(), other.all());
  wide.data<std::int64_t>()[1] = std::int64_t{1} << 32;  // 0 in its low half
  EXPECT_TRUE(says([&] { session.run({{"image", image}, {"label", wide}}); }, {"'label' is i64 for an input of i32, which does not hold the 4294967296 in element 1"}));
  wide.data<std::int64_t>()[0] = std::numeric_limits<std::int64_t>::min();
  EXPECT_TRUE(says([&] { session.run({{"image", image}, {"label", wide}}); }, {"does not hold the -9223372036854775808 in element 0"}));
  EXPECT_TRUE(says([&] { session.run({{"image", image}, {"label", HostTensor(u8, {2})}}); }, {"'label' is u8(2), but the input is i32(batch); converted(tensor, i32)"}));
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
  session.plan(1, Mode::infer);
  for (int batch = 2; batch <= 64; ++batch) session.plan(batch, Mode::infer);
  EXPECT_TRUE(notices.empty());
  for (int batch = 65; batch <= 67; ++batch) session.plan(batch, Mode::infer);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("64 programs are kept"), std::string::npos);
}

TEST(Session, refuses_draws_that_repeat_at_each_step_and_in_no_inference) {
  Unfinished l;
  Value clock = l.b.variable("clock", {}, {.dtype = i64, .trainable = false});
  Value dropped = dropout(l.y, l.b.seed(), clock, 0.5, "drop");
  l.b.output("scores", dropped);
  l.b.minimize(mean(dropped), Sgd{});
  Session session(l.built(), Single{});
  for (int k = 0; k < 2; ++k)
    EXPECT_TRUE(says([&] { session.step({{"x", pairs()}}); }, {"node 'drop'", "the variable 'clock', which nothing updates"})) << k;
  EXPECT_EQ(session.predict({{"x", pairs()}})["scores"].shape(), (Extents{2, 1}));
}

TEST(Session, gives_plans_and_programs_that_stay) {
  auto library = std::make_shared<Library>(*standard_library());
  const std::weak_ptr<const Library> lent = library;
  std::optional<Session> session;
  Unfinished l;
  l.b.output("scores", l.y);
  session.emplace(l.built(), SessionOptions{.library = std::move(library)});
  const PlacedGraph plan = session->plan(2, Mode::infer);
  session->predict({{"x", pairs()}});
  std::shared_ptr<const Program> program = session->last_program();
  for (int batch = 3; batch <= 70; ++batch) session->plan(batch, Mode::infer);
  EXPECT_TRUE(says([&] { session->last_program(); }, {"nothing has run yet"}));  // that of two rows made room
  session.reset();
  EXPECT_EQ(write_plan(program->plan()), write_plan(plan));
  EXPECT_EQ(program->bound().spaces.size(), 1u);
  EXPECT_TRUE(program->kernels().contains("cpu"));
  EXPECT_FALSE(lent.expired());
  program.reset();
  EXPECT_TRUE(lent.expired());  // with the last that reads its kernels
}

}  // namespace
}  // namespace belfry::test
