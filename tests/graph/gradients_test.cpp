#include <belfry/graph/gradients.h>

#include <belfry/frontends/builder/builder.h>

#include "says.h"

namespace belfry::test {
namespace {

struct Gradients : testing::Test {
  Builder b{"net"};
  Value x = b.input("x", f64, {kBatch, 3});
  Value w = b.variable("w", {3}, {.dtype = f64});
  std::vector<Value> of(Value loss, const std::vector<Value>& wanted) {
    std::vector<ValueId> ids;
    for (Value v : wanted) ids.push_back(v.id);
    return gradients(b.graph(), {loss.id}, ids);
  }
  const Node& maker(Value v) { return b.graph().node(v.id.node); }
};

TEST_F(Gradients, of_a_value_read_several_times_are_joined_by_one_sum) {
  Value d = of(reduce_sum(w * 2 + square(w) + w * x), {w})[0];
  EXPECT_EQ(maker(d).op->name, "add_n");
  EXPECT_EQ(maker(d).inputs.size(), 3u);
  EXPECT_EQ(maker(d).role, Role::backward);
}

TEST_F(Gradients, of_a_value_read_once_need_no_sum) { EXPECT_NE(maker(of(reduce_sum(w * x), {w})[0]).op->name, "add_n"); }

TEST_F(Gradients, are_empty_where_the_loss_does_not_depend_on_a_value) {
  Value v = b.variable("v", {3}, {.dtype = f64});
  auto d = of(reduce_sum(w * x), {v, w});
  EXPECT_FALSE(d[0]);
  EXPECT_TRUE(d[1]);
}

TEST_F(Gradients, build_nothing_for_what_nobody_differentiates) {
  NodeId before = b.graph().size();
  of(reduce_sum(exp(x) * w), {w});
  for (NodeId id = before; id < b.graph().size(); ++id) {
    NodeId of = b.graph().node(id).of;
    EXPECT_FALSE(of >= 0 && b.graph().node(of).op->name == "exp") << b.graph().node(id).name;
  }
}

TEST_F(Gradients, follow_their_forward_node) {
  Value y = w * x;
  Value d = of(reduce_sum(y), {w})[0];
  EXPECT_EQ(maker(d).of, y.id.node);
  EXPECT_TRUE(d.name().starts_with("gradient/")) << d.name();
}

TEST_F(Gradients, refuse_an_op_without_one_and_say_why) {
  EXPECT_TRUE(says([&] { of(reduce_sum(tower_mean(w)), {w}); }, {"[tower_mean] has no gradient (statistics are not differentiated)", "'tower_mean'"}));
}

TEST_F(Gradients, pass_an_op_without_one_beside_the_path) { EXPECT_TRUE(of(reduce_sum(w * cast(argmax(x, 0), f64)), {w})[0]); }

TEST_F(Gradients, end_at_what_is_flat_and_go_on_beside_it) {
  Value h = w * x;
  EXPECT_TRUE(of(reduce_sum(h * cast(greater(h, constant_like(h, 0)), f64)), {w})[0]);
  EXPECT_TRUE(of(reduce_sum(h * one_hot(argmax(h, 1), 3, f64)), {w})[0]);
}

TEST_F(Gradients, refuse_a_loss_that_reads_an_output_without_one) {
  Value gamma = b.variable("gamma", {3}, {.dtype = f64}), beta = b.variable("beta", {3}, {.dtype = f64}), m = b.variable("m", {3}, {.dtype = f64}), v = b.variable("v", {3}, {.dtype = f64});
  Value y = batch_norm(x * w, gamma, beta, m, v);
  EXPECT_TRUE(says([&] { of(reduce_sum(y) + reduce_sum(y.output(1)), {w}); }, {"output 'mean' of 'batch_norm' has no gradient"}));
}

TEST_F(Gradients, do_without_outputs_that_the_loss_does_not_read) {
  Value gamma = b.variable("gamma", {3}, {.dtype = f64}), beta = b.variable("beta", {3}, {.dtype = f64}), m = b.variable("m", {3}, {.dtype = f64}), v = b.variable("v", {3}, {.dtype = f64});
  EXPECT_TRUE(of(reduce_sum(batch_norm(x * w, gamma, beta, m, v)), {w})[0]);
}

TEST_F(Gradients, refuse_a_loss_of_an_output_alone_that_has_none) {
  Value gamma = b.variable("gamma", {3}, {.dtype = f64}), beta = b.variable("beta", {3}, {.dtype = f64}), m = b.variable("m", {3}, {.dtype = f64}), v = b.variable("v", {3}, {.dtype = f64});
  Value y = batch_norm(x * w, gamma, beta, m, v);
  EXPECT_TRUE(says([&] { of(reduce_sum(y.output(2)), {w}); }, {"output 'variance' of 'batch_norm' has no gradient"}));
}

TEST_F(Gradients, of_what_is_no_float_scalar_are_refused) {
  EXPECT_TRUE(says([&] { of(w * x, {w}); }, {"a loss is a float scalar", "f64(batch, 3)", "take its mean"}));
  EXPECT_TRUE(says([&] { of(reduce_sum(cast(x, i32)), {w}); }, {"a loss is a float scalar", "i32()"}));
}

}  // namespace
}  // namespace belfry::test
