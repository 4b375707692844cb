// Zeros around pictures that become the padding of what reads them.
#include <algorithm>
#include <functional>
#include <limits>

#include <belfry/frontends/builder/builder.h>
#include <belfry/ops/passes/passes.h>

#include "graphs.h"
#include "interpreter.h"
#include "nets.h"

namespace belfry::test {
namespace {

Value around(Value x, std::int64_t n, double value = 0) { return pad(x, {.before = {0, n, n, 0}, .after = {0, n, n, 0}, .value = value}); }

struct Pictures {
  Builder& b;
  Value x = b.input("x", f64, {kBatch, 7, 7, 2}), filter = b.variable("filter", {3, 3, 2, 4}, {.dtype = f64, .init = "uniform", .init_value = 0.5});
};
Graph pictures(const std::function<Value(Pictures)>& build) {
  Builder b("net");
  b.output(build(Pictures{b}));
  return std::move(b).build();
}
Graph cleaned(const Graph& g) { return drop_dead_code(g); }

TEST(FoldPads, gives_convolutions_and_maxima_their_padding) {
  EXPECT_SAME_GRAPH(cleaned(fold_pads(pictures([](Pictures p) { return conv2d(around(p.x, 2), p.filter, {.strides = {2, 2}}); }))),
                    cleaned(pictures([](Pictures p) { return conv2d(p.x, p.filter, {.strides = {2, 2}, .pads = {2, 2, 2, 2}}); })));
  EXPECT_SAME_GRAPH(cleaned(fold_pads(pictures([](Pictures p) { return max_pool2d(around(relu(p.x), 1), {.window = {3, 2}}); }))),
                    cleaned(pictures([](Pictures p) { return max_pool2d(relu(p.x), {.window = {3, 2}, .pads = {1, 1, 1, 1}}); })));
  EXPECT_SAME_GRAPH(cleaned(fold_pads(pictures([](Pictures p) { return max_pool2d(around(p.x, 1, -std::numeric_limits<double>::infinity())); }))),
                    cleaned(pictures([](Pictures p) { return max_pool2d(p.x, {.pads = {1, 1, 1, 1}}); })));
  EXPECT_SAME_GRAPH(cleaned(fold_pads(pictures([](Pictures p) { Value y = around(p.x, 1); return conv2d(y, p.filter) + conv2d(y, square(p.filter)); }))),
                    cleaned(pictures([](Pictures p) { return conv2d(p.x, p.filter, {.pads = {1, 1, 1, 1}}) + conv2d(p.x, square(p.filter), {.pads = {1, 1, 1, 1}}); })))
      << "of all that read it";
}

TEST(FoldPads, leaves_the_padded_picture_its_name) {
  Builder b("net");
  Pictures p{b};
  Value y = around(p.x, 1);
  b.output(conv2d(y, p.filter));
  const Graph g = std::move(b).build(), folded = fold_pads(g);
  const auto padded = folded.find("pad");
  ASSERT_TRUE(padded);
  EXPECT_EQ(folded.type(*padded).shape[1], Dim(9));
}

TEST(FoldPads, leaves_what_is_no_padding_of_theirs) {
  for (const std::function<Value(Pictures)>& build : std::vector<std::function<Value(Pictures)>>{
           [](Pictures p) { Value y = around(p.x, 1); p.b.output(y); return conv2d(y, p.filter); },
           [](Pictures p) { Value y = around(p.x, 1); return reduce_sum(conv2d(y, p.filter)) + reduce_sum(y); },
           [](Pictures p) { return conv2d(around(p.x, 3), p.filter); },
           [](Pictures p) { return conv2d(around(p.x, 1, 0.5), p.filter); },
           [](Pictures p) { return conv2d(around(p.x, 1), p.filter, {.padding = "same"}); },
           [](Pictures p) { return conv2d(around(p.x, 1), p.filter, {.pads = {1, 1, 1, 1}}); },
           [](Pictures p) { return conv2d(pad(p.x, {.before = {0, 1, 1, 0}, .after = {0, 1, 1, 0}, .mode = "reflect"}), p.filter); },
           [](Pictures p) { return max_pool2d(pad(relu(p.x), {.before = {0, 1, 1, 1}, .after = {0, 0, 0, 0}})); },
           [](Pictures p) { return max_pool2d(around(p.x, 1)); },
           [](Pictures p) { return conv2d(p.x, pad(p.filter, {.before = {0, 1, 0, 0}, .after = {0, 0, 0, 0}})); },
           [](Pictures p) { Value y = around(p.b.variable("square", {2, 2, 2, 4}, {.dtype = f64}), 1); return conv2d(y, y); },
           [](Pictures p) { return cast(max_pool2d(around(relu(p.x), 1)).output(1), f64); },
           [](Pictures p) { return max_pool2d(pad(relu(reshape(p.x, {kBatch, 1, 49, 2})), {.before = {0, 2, 0, 0}, .after = {0, 2, 0, 0}}), {.window = {2, 2}, .dilations = {3, 1}}); },
           [](Pictures p) { return max_pool2d(around(relu(p.x), 1, 1.0)); },
           [](Pictures p) { return avg_pool2d(around(relu(p.x), 1)); },
           [](Pictures p) { Value y = around(p.x, 1); auto on = p.b.device("cpu:1"); return conv2d(y, p.filter); }}) {
    const Graph g = pictures(build);
    EXPECT_SAME_GRAPH(fold_pads(g), g);
  }
}

TEST(FoldPads, gives_the_losses_and_gradients_that_the_graph_gave) {
  Builder b("net");
  Pictures p{b};
  Value y = relu(conv2d(around(p.x, 2), p.filter, {.strides = {2, 1}}));
  y = max_pool2d(around(y, 1), {.window = {3, 3}, .strides = {2, 2}});
  b.minimize(mean(square(y)) + mean(y), Sgd{.learning_rate = 0.1});
  const Graph g = std::move(b).build(), plain = differentiate(lower_means(g)), folded = cleaned(differentiate(fold_pads(lower_means(g))));
  EXPECT_TRUE(std::none_of(folded.nodes().begin(), folded.nodes().end(), [](const Node& n) { return n.op->name.starts_with("pad"); })) << "forward and back";
  auto run = [&](const Graph& of) {
    std::vector<std::pair<std::string, ValueId>> wanted = {{"loss", of.losses[0]}};
    for (const auto& [variable, value] : of.updates) wanted.emplace_back(of.node(variable).name, value);
    return run_whole(of, feeds_for(g, 3), state_for(of), 3, wanted).fetched;
  };
  EXPECT_LT(difference(run(folded), run(plain)), 1e-12);
}

}  // namespace
}  // namespace belfry::test
