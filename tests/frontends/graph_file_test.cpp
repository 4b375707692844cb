#include <gtest/gtest.h>

#include <belfry/frontends/json/graph_file.h>
#include <belfry/graph/text.h>

#include "nets.h"
#include "random_graph.h"
#include "says.h"
#include "swapped.h"

namespace belfry::test {
namespace {

std::shared_ptr<const OpSet> ops() {
  static const auto set = std::make_shared<const OpSet>(standard_ops());
  return set;
}

/// A side file in memory.
struct SideTensors {
  std::map<std::string, HostTensor> held;
  TensorStore store() {
    return {[this](const std::string& name, const HostTensor& t) { held.insert_or_assign(name, t); },
            [this](const std::string& name) {
              if (!held.contains(name)) throw UserError("no tensor '" + name + "'");
              return held.at(name);
            }};
  }
};

void expect_reads_back(const Graph& graph, const std::string& where) {
  SideTensors tensors;
  std::string text = write_graph(graph, tensors.store());
  std::string again = write_graph(read_graph(text, "graph.json", graph.shared_ops(), tensors.store()), tensors.store());
  ASSERT_EQ(text, again) << where;
  ASSERT_EQ(text.back(), '\n');
}

TEST(GraphFile, a_thousand_random_graphs_read_back_to_the_same_bytes) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    expect_reads_back(random_graph(seed), "seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

TEST(GraphFile, every_net_reads_back_in_short_and_long_form) {
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list) {
      Builder b(n.name);
      n.build(b, f32);
      expect_reads_back(std::move(b).build(), n.name + " (short)");
      expect_reads_back(training_graph(n), n.name + " (long)");
    }
}

TEST(GraphFile, the_passes_give_one_graph_for_the_builder_and_for_its_file) {
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list) {
      Builder b(n.name);
      n.build(b, f32);
      Graph graph = std::move(b).build();
      SideTensors tensors;
      Graph read = read_graph(write_graph(graph, tensors.store()), "graph.json", graph.shared_ops(), tensors.store());
      EXPECT_EQ(to_text(run_passes(training_passes(), read)), to_text(run_passes(training_passes(), graph))) << n.name;
    }
}

TEST(GraphFile, the_gate_of_a_short_form_is_kept) {
  Builder b("gated");
  Value x = b.input("x", f32, {kBatch, 2}), w = b.variable("w", {2});
  Value loss = mean(x * w);
  b.gate(all_finite(loss));
  b.minimize(loss, Sgd{});
  Graph graph = std::move(b).build();
  std::string text = write_graph(graph);
  EXPECT_NE(text.find("\"gate\": "), text.npos);
  Graph back = read_graph(text, "graph.json", graph.shared_ops());
  EXPECT_EQ(back.name_of(back.gate), graph.name_of(graph.gate));
  EXPECT_EQ(write_graph(back), text);
}

TEST(GraphFile, the_short_form_trains_like_the_graph_it_was_written_from) {
  for (const Net& n : nets()) {
    Builder b(n.name);
    n.build(b, f32);
    Graph graph = std::move(b).build();
    Graph again = read_graph(write_graph(graph), "graph.json", graph.shared_ops());
    EXPECT_EQ(write_graph(differentiate(graph)), write_graph(differentiate(again))) << n.name;
  }
}

constexpr const char* kSmallGraph = R"({
  "belfry": 1,
  "name": "small",
  "opset": {"constant": 1, "matmul": 1, "relu": 1},
  "inputs": [
    {"name": "x", "dtype": "f32", "shape": ["batch", 3]}
  ],
  "variables": [
    {"name": "w", "dtype": "f32", "shape": [3, 2], "init": {"kind": "normal", "value": 0.5}, "trainable": false}
  ],
  "nodes": [
    {"name": "y", "op": "matmul", "inputs": ["x", "w"], "device": "gpu:0"},
    {"name": "z", "op": "relu", "inputs": ["y"], "of": "y", "role": "backward"},
    {"name": "c", "op": "constant", "attributes": {"value": {"dtype": "f32", "shape": [3], "values": [0.1, "nan", -0.0]}}}
  ],
  "outputs": ["z"]
}
)";

TEST(GraphFile, the_canonical_text_is_this) {
  // Only "opset" counts inputs and variables too.
  Graph g = read_graph(kSmallGraph, "small.json", ops());
  EXPECT_EQ(write_graph(g), swapped(swapped(kSmallGraph, "\"constant\": 1, ", "\"constant\": 1, \"input\": 1, "), "\"relu\": 1", "\"relu\": 1, \"variable\": 1"));
  EXPECT_EQ(g.node(g.find_node("z")).of, g.find_node("y"));
}

TEST(GraphFile, nodes_may_stand_in_any_order_and_carry_notes) {
  std::string text = swapped(kSmallGraph, R"({"name": "y", "op": "matmul", "inputs": ["x", "w"], "device": "gpu:0"},)", "");
  text = swapped(text, R"(-0.0]}}})", R"(-0.0]}}}, {"name": "y", "op": "matmul", "inputs": ["x", "w"], "device": "gpu:0", "note": "moved"})");
  Graph g = read_graph(text, "small.json", ops());
  EXPECT_LT(g.find_node("y"), g.find_node("z"));
  EXPECT_EQ(g.node(g.find_node("y")).device, parse_device("gpu:0"));
}

TEST(GraphFile, large_tensors_live_in_the_side_file) {
  Builder b("large");
  HostTensor value(f32, {13, 5});
  value.data<float>()[64] = 0.5f;
  b.output(constant(b.graph(), value));
  Graph g = std::move(b).build();
  EXPECT_THROW(write_graph(g), UserError);
  SideTensors tensors;
  std::string text = write_graph(g, tensors.store());
  EXPECT_EQ(tensors.held.size(), 1u);
  EXPECT_NE(text.find("\"stored\": \"" + tensors.held.begin()->first + "\""), text.npos);
  EXPECT_EQ(write_graph(read_graph(text, "f", ops(), tensors.store()), tensors.store()), text);
  EXPECT_THROW(read_graph(text, "f", ops()), UserError);
  tensors.held.begin()->second.data<float>()[3] = 1;
  EXPECT_THROW(read_graph(text, "f", ops(), tensors.store()), UserError);
}

TEST(GraphFile, large_tensors_of_one_value_need_no_side_file) {
  Builder b("large");
  HostTensor halves(f64, {2, 40}), zeros(f32, {65});
  for (double& v : halves.data<double>()) v = 0.5;
  b.output(constant(b.graph(), halves));
  b.output(constant(b.graph(), zeros));
  const Graph g = std::move(b).build();
  const std::string text = write_graph(g);
  EXPECT_NE(text.find(R"({"dtype": "f64", "shape": [2, 40], "values": [0.5]})"), text.npos);
  const Graph again = read_graph(text, "f", ops());
  EXPECT_EQ(write_graph(again), text);
  EXPECT_EQ(again.node(again.outputs[0].node).attributes.tensor("value"), halves);
  EXPECT_EQ(again.node(again.outputs[1].node).attributes.tensor("value"), zeros);
  EXPECT_TRUE(says([&] { read_graph(swapped(text, "[0.5]", "[0.5, 0.5]"), "f", ops()); }, {"2 values for the shape (2, 40)"}));
  EXPECT_TRUE(says([&] { read_graph(swapped(text, "[65]", "[100000000000]"), "f", ops()); }, {"one value for 100000000000 elements; up to 1048576 may be alike", "/values"}));
  EXPECT_TRUE(says([&] { read_graph(swapped(text, "[65]", "[64]"), "f", ops()); }, {"1 values for the shape (64)"})) << "as short as that each has its own";
}

TEST(GraphFile, the_state_file_is_named) {
  Builder b("b");
  b.output(b.variable("w", {2}));
  std::string state, text = write_graph(std::move(b).build(), {}, "w.safetensors");
  read_graph(text, "f", ops(), {}, &state);
  EXPECT_EQ(state, "w.safetensors");
}

std::string refusal(const std::string& text) {
  try {
    read_graph(text, "small.json", ops());
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(GraphFile, what_is_wrong_is_told_with_its_place) {
  EXPECT_EQ(refusal(kSmallGraph), "");
  struct Case {
    const char *from, *to, *wanted;
  };
  for (const Case& c : std::initializer_list<Case>{
           {R"("inputs": ["y"])", R"("inputs": ["yy"])", "small.json:13: /nodes/1/inputs/0: there is no value 'yy'; did you mean"},
           {R"("inputs": ["y"])", R"("inputs": ["y:1"])", "small.json:13: /nodes/1/inputs/0: there is no value 'y:1': the node 'y' has no such output"},
           {R"("inputs": ["y"])", R"("inputs": ["z"])", "small.json:13: /nodes/1: nodes form a cycle: z reads z"},
           {R"(["x", "w"])", R"(["z", "w"])", "nodes form a cycle: "},
           {R"(["x", "w"])", R"(["x", "x"])", "small.json:12: /nodes/0: [matmul]"},
           {R"("name": "z")", R"("name": "y")", "small.json:13: /nodes/1: the name 'y' is taken at line 12"},
           {R"("name": "z")", R"("name": "tower_1/z")", "reserved"},
           {R"("name": "z")", R"("name": "9 z")", "small.json:13: /nodes/1: "},
           {R"("relu", "inputs")", R"("relux", "inputs")", "small.json:13: /nodes/1/op: there is no op 'relux'; did you mean relu"},
           {R"("relu", "inputs")", R"("variable", "inputs")", "stands in the list \"variables\""},
           {R"("role": "backward")", R"("rolle": "backward")", "small.json:13: /nodes/1/rolle: there is no key \"rolle\" here; did you mean role?"},
           {R"("role": "backward")", R"("role": "sideward")", "small.json:13: /nodes/1/role: role is 'sideward'"},
           {R"("of": "y")", R"("of": "q")", "small.json:13: /nodes/1/of: there is no node 'q'"},
           {R"("device": "gpu:0")", R"("device": "gpu")", "small.json:12: /nodes/0/device: 'gpu' is no device"},
           {R"("matmul": 1)", R"("matmul": 2)", "small.json:4: /opset/matmul: the file uses version 2 of the op 'matmul'; this program knows version 1"},
           {R"("matmul": 1)", R"("batch_norm_gradient": 1, "matmul": 1)", "small.json:4: /opset/batch_norm_gradient: the file uses version 1 of the op 'batch_norm_gradient', which reads other inputs in version 2; make the file anew"},
           {R"("belfry": 1)", R"("belfry": 2)", "small.json:2: /belfry: the file is of format 2"},
           {R"("belfry": 1,)", R"("belfry": 1, "functions": [],)", "small.json:2: /functions: \"functions\" is reserved"},
           {R"([3, 2])", R"([3, 2.0])", "small.json:9: /variables/0/shape/1: must be an integer, not the float 2.0"},
           {R"([3, 2])", R"([3, "2*2*b"])", "small.json:9: /variables/0/shape/1: '2*2*b' is no dimension"},
           {R"([3, 2])", R"([3, "batch"])", "small.json:9: /variables/0: [variable] a variable has a fixed shape"},
           {R"("kind": "normal")", R"("kind": "norml")", "attribute 'init' is \"norml\""},
           {R"("dtype": "f32", "shape": ["batch")", R"("dtype": "f33", "shape": ["batch")", "small.json:6: /inputs/0/dtype: unknown dtype 'f33'"},
           {R"([0.1, "nan", -0.0])", R"([0.1, "nan"])", "small.json:14: /nodes/2/attributes/value/values: 2 values for the shape (3)"},
           {R"([0.1, "nan", -0.0])", R"([0.1, "nan", 1e300])", "does not fit in f32"},
           {R"({"dtype": "f32", "shape": [3], "values": [0.1, "nan", -0.0]})", "5", "/nodes/2/attributes/value: must be an object of \"dtype\", \"shape\" and \"values\" (or \"stored\"), not the integer 5"},
           {R"("values": [0.1, "nan", -0.0])", R"("payload": [0.1])", "there is no key \"payload\" here; those that are read are dtype, shape, stored, values"},
           {R"("shape": [3], "values")", R"("shape": [4611686018427387904, 8], "values")", "more than 2^63 elements"},
           {R"("outputs": ["z"])", R"("outputs": ["q"])", "small.json:16: /outputs/0: there is no value 'q'"},
           {R"("outputs": ["z"])", R"("updates": {"y": "y"})", "small.json:16: /updates/y: 'y' is no variable"},
           {R"("outputs": ["z"])", R"("updates": {"w": "z"})", "the update of 'w' is f32(batch, 2), not f32(3, 2)"},
           {R"("outputs": ["z"])", R"("train": {"loss": "z", "optimizer": {"kind": "sgd"}})", "a loss is a float scalar"},
           {R"("outputs": ["z"])", R"("train": {"loss": [], "optimizer": {}})", "training needs a loss"},
           {R"("outputs": ["z"])", R"("plan": {})", "the file is a plan"},
       })
    EXPECT_NE(refusal(swapped(kSmallGraph, c.from, c.to)).find(c.wanted), std::string::npos) << c.to << "\n" << refusal(swapped(kSmallGraph, c.from, c.to));
}

/// Its nodes know their lines, for what is found once it was read.
TEST(GraphFile, names_its_lines_where_passes_and_plans_refuse_its_nodes) {
  const std::string text = R"({"belfry": 1, "name": "steps",
"inputs": [{"name": "x", "dtype": "f32", "shape": ["batch", 3]}],
"variables": [{"name": "w", "dtype": "f32", "shape": [3], "init": {"kind": "ones"}},
{"name": "step", "dtype": "f32", "shape": [], "init": {"kind": "ones"}}],
"nodes": [{"name": "y", "op": "mul", "inputs": ["x", "w"]}, {"name": "z", "op": "mul", "inputs": ["y", "step"]},
{"name": "loss", "op": "reduce_mean", "inputs": ["z"]}],
"train": {"loss": "loss", "optimizer": {"kind": "adam"}}})";
  EXPECT_TRUE(says([&] { run_passes(training_passes(), read_graph(text, "nets/steps.json", ops())); }, {"a node 'step' (steps.json:4)"}));
  const std::string wrong = swapped(text, "[\"y\", \"step\"]}", "[\"y\", \"step\"]}, {\"name\": \"v\", \"op\": \"matmul\", \"inputs\": [\"x\", \"w\"]}");
  EXPECT_TRUE(says([&] { read_graph(wrong, "nets/steps.json", ops()); }, {"nets/steps.json:5: /nodes/2: [matmul] ", "from 'x' (steps.json:2)", "from 'w' (steps.json:3)"}));
}

}  // namespace
}  // namespace belfry::test
