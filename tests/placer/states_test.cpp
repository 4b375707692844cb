#include <gtest/gtest.h>

#include <algorithm>

#include <belfry/graph/structural.h>
#include <belfry/placer/expand.h>

#include "interpreter.h"
#include "nets.h"
#include "says.h"

namespace belfry::test {
namespace {

/// What the specification of the split states says of a net at T = 3, B = 7.
struct Expected {
  friend void PrintTo(const Expected& e, std::ostream* out) { *out << e.net; }
  std::string net;
  std::map<std::string, std::string> states;  ///< of fetched values, before they are fetched
  std::vector<std::string> inserted;          ///< types of aggregated and gathered values, sorted
};

const std::string kRows0 = "rows(0)", kWhole = "replicated", kSum = "partial(sum)";

const std::vector<Expected>& table() {
  static const std::vector<Expected> all = {
      {"decay", {{"h", kRows0}, {"loss", kSum}, {"gradient of conv/w", kWhole}, {"gradient of fc/w", kWhole}}, {"aggregate (144, 5)", "aggregate (2, 4)", "aggregate (4)", "aggregate (5)"}},
      {"batch_norm", {{"normalised", kRows0}, {"loss", kSum}, {"gradient of bn/gamma", kWhole}},
       {"aggregate (3, 6)", "aggregate (5)", "aggregate (6)", "aggregate (6)", "aggregate (6, 5)"}},
      {"batch_norm_sync", {{"normalised", kRows0}, {"loss", kSum}, {"gradient of bn/gamma", kWhole}},
       {"aggregate (3, 6)", "aggregate (5)", "aggregate (6)", "aggregate (6)", "aggregate (6)", "aggregate (6)", "aggregate (6)", "aggregate (6, 5)"}},
      {"embedding", {{"rows", kRows0}, {"loss", kSum}, {"gradient of table", kWhole}}, {"aggregate (11, 6)", "aggregate (5)", "aggregate (6, 5)"}},
      {"attention", {{"scores", kRows0}, {"loss", kSum}, {"gradient of q/w", kWhole}, {"gradient of out/b", kWhole}},
       {"aggregate (24, 5)", "aggregate (5)", "aggregate (6)", "aggregate (6)", "aggregate (6)", "aggregate (6, 6)", "aggregate (6, 6)", "aggregate (6, 6)"}},
      {"contrastive", {{"logits", kRows0}, {"loss", kSum}, {"gradient of temperature", kWhole}},
       {"aggregate ()", "aggregate (3)", "aggregate (3)", "aggregate (4, 3)", "aggregate (5, 3)", "aggregate (batch, 3)", "gather (batch, 3)"}},
      {"weighted_mean", {{"numerator", kSum}, {"denominator", kWhole}, {"loss", kSum}}, {"aggregate ()", "aggregate (4, 5)", "aggregate (5)"}},
      {"accuracy", {{"logits", kRows0}, {"loss", kSum}, {"perplexity", kWhole}, {"thrice", kSum}, {"accuracy", kSum}}, {"aggregate ()", "aggregate (4, 6)", "aggregate (5)", "aggregate (6)", "aggregate (6, 5)"}},
      {"tied", {{"hidden", kRows0}, {"first", kSum}, {"second", kSum}, {"loss", kWhole}, {"gradient of table", kWhole}}, {"aggregate ()", "aggregate (11, 6)", "aggregate (2)", "aggregate (6, 2)"}},
      {"dropout", {{"dropped", kRows0}, {"loss", kSum}}, {"aggregate (4, 8)", "aggregate (5)", "aggregate (8)", "aggregate (8, 5)"}},
      {"max_over_rows", {{"top", kWhole}}, {"aggregate (3)", "aggregate (3)", "aggregate (3)", "aggregate (4, 3)"}},
      {"pairwise", {{"distances", kRows0}}, {"aggregate (1, batch, 3)", "aggregate (3)", "aggregate (4, 3)", "gather (1, batch, 3)"}},
      {"symmetric_contrastive", {{"logits", kRows0}},
       {"aggregate (3)", "aggregate (3)", "aggregate (4, 3)", "aggregate (5, 3)", "aggregate (batch, 3)", "gather (batch, 3)", "gather (batch, batch)", "gather (batch, batch)"}},
      {"neighbours", {{"hidden", kRows0}}, {"aggregate (3)", "aggregate (4, 3)", "aggregate (batch, 3)", "gather (batch, 3)"}},
      {"lookup_in_batch", {}, {"aggregate (4, 5)", "aggregate (5)", "aggregate (batch, 5)", "gather (batch, 5)"}},
      {"time_major", {{"dropped", "rows(1)"}}, {"aggregate (4, 6)", "aggregate (5)", "aggregate (6)", "aggregate (6, 5)"}},
      {"loss_times_penalty", {}, {"aggregate (1, 1)", "aggregate (4, 5)"}},
      {"flattened_late", {{"flat", kWhole}}, {"aggregate (4, 5)", "aggregate (5)", "gather (3*batch, 5)", "gather (3, batch, 5)"}},
      {"own_batch_norm", {}, {"aggregate (1, 5)", "aggregate (1, 5)", "aggregate (4, 5)", "aggregate (5)", "aggregate (5)", "aggregate (5)"}},
  };
  return all;
}

TEST(SplitStates, read_back_as_they_are_written) {
  for (const SplitState& state : {kReplicated, kPerTower, partial(Reduction::sum), partial(Reduction::max), rows(0), rows(15), rows(16), rows(1234)}) EXPECT_EQ(parse_split_state(to_string(state)), state);
  for (const char* wrong : {"rows", "rows()", "rows(-1)", "rows(01)", "rows(1) ", "rows(99999999999)", "partial(mean)", ""}) EXPECT_TRUE(says([&] { parse_split_state(wrong); }, {"is no split state; write replicated"})) << wrong;
}

class States : public testing::TestWithParam<Expected> {};

TEST_P(States, and_inserted_nodes_are_as_the_specification_says) {
  const Expected& e = GetParam();
  auto graph = std::make_shared<const Graph>(training_graph(net(e.net)));
  TowerGraph tg = expand(graph, {.towers = 3, .batch = 7, .fetches = fetches_of(*graph)});
  std::map<std::string, std::string> states;
  std::vector<std::string> inserted;
  for (const PlanNode& n : tg.nodes) {
    if (n.op == kFetch) {
      // A value given as a partial and demanded whole is fetched from its aggregate.
      for (const auto& [name, v] : tg.fetches)
        if (v == n.outputs[0]) states[name] = to_string(tg.value(n.inputs[0]).state);
    } else if (n.op == kAggregate && n.inserted) {
      inserted.push_back(std::string(n.attributes.text("how") == "concat_rows" ? "gather " : "aggregate ") + to_string(std::span(tg.value(n.outputs[0]).type.shape)));
    }
  }
  for (const auto& [name, state] : e.states) EXPECT_EQ(states[name], state) << name;
  std::sort(inserted.begin(), inserted.end());
  EXPECT_EQ(inserted, e.inserted);
}

INSTANTIATE_TEST_SUITE_P(Specification, States, testing::ValuesIn(table()), [](const auto& info) { return info.param.net; });

}  // namespace
}  // namespace belfry::test
