#include <belfry/graph/graph.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/text.h>

#include "says.h"

namespace belfry::test {
namespace {

std::shared_ptr<const OpSet> ops() { return std::make_shared<const OpSet>(standard_ops()); }

TEST(GraphNames, are_made_from_the_op_and_counted) {
  Graph g(ops());
  Value x = input(g, "x", f32, {kBatch, 3});
  EXPECT_EQ(relu(x).name(), "relu");
  EXPECT_EQ(relu(x).name(), "relu_1");
  g.cursor.scope = "head";
  EXPECT_EQ(relu(x).name(), "head/relu");
}

TEST(GraphNames, taken_twice_are_an_error_with_both_lines) {
  Graph g(ops());
  Value x = input(g, "x", f32, {3});
  int first = __LINE__; identity(x, "y");
  EXPECT_TRUE(says([&] { identity(x, "y"); }, {"[identity] node 'y': the name is taken at graph_test.cpp:" + std::to_string(first) + "; taken again at graph_test.cpp:" + std::to_string(__LINE__)}));
}

TEST(GraphNames, of_towers_are_reserved) {
  Graph g(ops());
  for (const char* wrong : {"tower_0/x", "tower_12/a/b", "tower_1", "a.whole", "a.group2", "a.again", "a..1"}) EXPECT_TRUE(says([&] { input(g, wrong, f32, {}); }, {wrong, "reserved for plans"}));
  for (const char* right : {"tower_x/a", "tower_/a", "tower_", "my/tower_0/x"}) EXPECT_EQ(input(g, right, f32, {}).name(), right);
}

TEST(GraphNames, are_made_of_letters_digits_and_a_few_signs) {
  Graph g(ops());
  for (const char* wrong : {"1x", "a b", "a:0", "é", "/a", "-a", "a\n"}) EXPECT_TRUE(says([&] { input(g, wrong, f32, {}); }, {"a name is made of"})) << wrong;
  EXPECT_TRUE(says([&] { input(g, std::string(1025, 'a'), f32, {}); }, {"a name is made of"}));
}

TEST(GraphNames, lead_to_values_or_name_the_nearest) {
  Graph g(ops());
  Value x = input(g, "logits", f32, {kBatch, 3}), label = input(g, "label", i32, {kBatch});
  Value loss = sparse_softmax_cross_entropy(x, label);
  EXPECT_EQ(g.at(loss.name() + ":1"), loss.output(1).id);
  EXPECT_EQ(g.find("logits:1"), std::nullopt);
  EXPECT_EQ(g.find("logits:x"), std::nullopt);
  EXPECT_EQ(g.find("logits:99999999999"), std::nullopt);
  EXPECT_TRUE(says([&] { g.at("logit"); }, {"no value 'logit'", "did you mean logits"}));
  EXPECT_TRUE(says([&] { g.add("rleu", {x}); }, {"no op 'rleu'", "relu"}));
}

TEST(GraphInputs, that_do_not_fit_are_named_with_their_makers_line) {
  Graph g(ops()), other(ops());
  int line = __LINE__ + 1;
  Value x = input(g, "x", f32, {2, 3});
  EXPECT_TRUE(says([&] { softmax(x, 3); }, {"[softmax] axis 3 is out of range for shape (2, 3); node 'softmax', input 'x' f32(2, 3) from 'x' (graph_test.cpp:" + std::to_string(line) + ")"}));
  EXPECT_TRUE(says([&] { relu(input(other, "x", f32, {})), g.add("relu", {input(other, "y", f32, {})}); }, {"another graph"}));
  EXPECT_TRUE(says([&] { g.add("add", {x, Value{}}); }, {"needs its input 'b'"}));
  EXPECT_TRUE(says([&] { g.add("add", {x}); }, {"takes 2 inputs, not 1"}));
  EXPECT_TRUE(says([&] { g.add("input", {x}, {{"dtype", f32}, {"shape", Shape{}}}); }, {"takes 0 inputs, not 1"}));
  EXPECT_EQ(g.size(), 1) << "a refused node leaves nothing behind";
}

TEST(GraphReaders, stand_once_each_in_order) {
  Graph g(ops());
  Value x = input(g, "x", f32, {3}), y = x * x, z = x + y;
  EXPECT_EQ(g.readers(x.id.node), (std::vector<NodeId>{y.id.node, z.id.node}));
  Graph copy = g;
  EXPECT_EQ(copy.readers(x.id.node), g.readers(x.id.node));
}

TEST(OpSets, refuse_an_op_that_is_there) {
  OpSet set = standard_ops();
  OpDef again = *set.find("relu");
  EXPECT_TRUE(says([&] { set.add(again); }, {"an op 'relu' is there already"}));
}

TEST(GraphText, says_one_node_a_line) {
  Builder b("net");
  Value x = b.input("x", f32, {kBatch, 3});
  Value w = b.variable("w", {3, 2});
  Value y;
  {
    auto on = b.device("cpu:1");
    y = softmax(matmul(x, w), 0);
  }
  b.metric("top", reduce_max(y, {.keep = true}));
  b.minimize(mean(y), Sgd{.learning_rate = 0.5});
  EXPECT_EQ(to_text(b.graph()),
            "graph net\n"
            "x = input() {dtype: f32, shape: (batch, 3)} : f32(batch, 3)\n"
            "w = variable() {dtype: f32, shape: (3, 2)} : f32(3, 2)\n"
            "matmul = matmul(x, w) : f32(batch, 2) @cpu:1\n"
            "softmax = softmax(matmul) {axis: 0} : f32(batch, 2) @cpu:1\n"
            "reduce_max = reduce_max(softmax) {keep: true} : f32(1, 1)\n"
            "reduce_mean = reduce_mean(softmax) : f32()\n"
            "metric top = reduce_max\n"
            "minimize reduce_mean by sgd learning_rate: 0.5\n");
}

TEST(Graph, refuses_a_tensor_that_no_machine_holds) {
  Graph g(std::make_shared<const OpSet>(standard_ops()));
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_TRUE(says([&] { g.add("input", {}, {{"dtype", f32}, {"shape", Shape{kHuge, kHuge}}}, "x"); }, {"[input]", "2^48 elements", "x"}));
  Value y = g.add("input", {}, {{"dtype", f32}, {"shape", Shape{2, 3}}}, "y");
  EXPECT_TRUE(says([&] { g.add("reshape", {y}, {{"shape", Shape{kHuge, kHuge, 6}}}); }, {"cannot bring (2, 3)"}));
}

}  // namespace
}  // namespace belfry::test
