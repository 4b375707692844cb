#include <belfry/graph/passes/cut_updates.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/gpu_kernel_names.h>

#include "damage.h"
#include "plans.h"

namespace belfry::test {

namespace {

/// A group that only the nets with a bias-free layer have.
std::vector<FusionGroup> matmul_relu(const Graph& g) {
  std::vector<FusionGroup> out;
  for (NodeId id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == "relu" && g.node(g.node(id).inputs[0].node).op->name == "matmul") out.push_back({"matmul_relu", {g.node(id).inputs[0].node, id}});
  return out;
}

PlacedGraph placed(Graph graph, const Strategy& strategy, std::int64_t batch, bool separate = true, std::vector<PlacementRule> rules = {}, int devices = 2, int stretches = 0, bool accumulate = false) {
  auto shared = std::make_shared<const Graph>(std::move(graph));
  return place(shared, strategy, sim_cluster(devices, separate), batch, {.fetches = fetches_of(*shared), .rules = std::move(rules), .groups = matmul_relu, .recompute = {stretches}, .accumulate_all = accumulate});
}

Strategy named(const std::string& name, int T, int n) {
  for (NamedStrategy& s : strategies(T, n))
    if (s.name == name) return s.strategy;
  throw InternalError("no strategy " + name);
}

/// A tower reads a variable after its gradient is ready.
Graph late_reader() {
  Builder b("late_reader");
  Value x = b.input("x", f64, {kBatch, 4}), w = b.variable("w", {4, 3}, {.dtype = f64, .init = "normal", .init_value = 0.7});
  Value h = matmul(x, w);
  b.metric("late", matmul(x * (reduce_sum(square(h)) * 0.5), w));
  b.minimize(reduce_sum(square(h)), Momentum{.learning_rate = 0.1});
  return run_passes(training_passes(), std::move(b).build());
}

/// Two stages and no way back: the slot's next tower must wait for the other stage to have read.
Graph forward_only() {
  Builder b("forward_only");
  Value h = b.input("x", f64, {kBatch, 4});
  for (const char* name : {"a", "b", "c", "d"}) h = relu(matmul(h, b.variable(std::string(name) + "/w", {4, 4}, {.dtype = f64, .init = "normal", .init_value = 0.7})));
  b.metric("h", h);
  return run_passes(inference_passes(), std::move(b).build());
}

/// Each variable becomes the other's old value.
Graph exchange() {
  Builder b("exchange");
  Value x = b.input("x", f64, {kBatch, 4}), v = b.variable("v", {4}, {.dtype = f64, .init = "ones"}), w = b.variable("w", {4}, {.dtype = f64, .init = "zeros"});
  b.metric("y", reduce_sum(x * v + w));
  b.update(v, w);
  b.update(w, v);
  return run_passes(training_passes(), std::move(b).build());
}

/// Two layers alike, each a group.
Graph two_groups() {
  Builder b("two_groups");
  Value h = b.input("x", f64, {kBatch, 4});
  for (const char* name : {"a/w", "b/w"}) h = relu(matmul(h, b.variable(name, {4, 4}, {.dtype = f64, .init = "normal", .init_value = 0.7})));
  b.metric("loss", reduce_sum(square(h)));
  b.minimize(reduce_sum(square(h)), Momentum{.learning_rate = 0.1});
  return run_passes(training_passes(), std::move(b).build());
}

/// Layers enough for stages and for stretches, one with values drawn at random.
Graph deep() {
  Builder b("deep");
  Value h = b.input("x", f64, {kBatch, 8});
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    h = matmul(h, b.variable(std::string(name) + "/w", {8, 8}, {.dtype = f64, .init = "normal", .init_value = 0.7})) + b.variable(std::string(name) + "/b", {8}, {.dtype = f64});
    h = *name == 'c' ? dropout(tanh(h), b.seed(), b.step(), 0.3, "drop") : tanh(h);
  }
  b.metric("loss", reduce_sum(square(h)));
  b.minimize(reduce_sum(square(h)), Momentum{.learning_rate = 0.1});
  return run_passes(training_passes(), std::move(b).build());
}

/// Variables long enough for ranges, and one that is not; two slots each, and a norm over all gradients.
Graph wide() {
  Builder b("wide");
  Value h = tanh(matmul(b.input("x", f64, {kBatch, 24}), b.variable("w0", {24, 60}, {.dtype = f64, .init = "normal", .init_value = 0.3})) + b.variable("offset", {60}, {.dtype = f64}));
  h = matmul(h, b.variable("w1", {60, 24}, {.dtype = f64, .init = "normal", .init_value = 0.3}));
  b.minimize(mean(square(h)), Adam{.learning_rate = 0.01}, {.clip_norm = 0.5});
  return run_passes(training_passes(), std::move(b).build());
}

/// Values of variables and constants alone, one by way of another, beside what a feed scales.
Graph weighed() {
  Builder b("weighed");
  Value x = b.input("x", f64, {kBatch, 8}), scale = b.input("scale", f64, {3}), small = b.variable("small", {8, 3}, {.dtype = f64, .init = "normal", .init_value = 0.7});
  Value turned = reshape(tanh(b.variable("flat", {24}, {.dtype = f64, .init = "normal", .init_value = 0.7})), {8, 3});
  b.metric("y", matmul(x, small + turned));
  auto in_steps = b.scope("scaled");
  b.metric("z", matmul(tanh(x), small * scale * exp(turned)));
  return run_passes(inference_passes(), std::move(b).build());
}

/// Products of halves, a scaled loss, and a gate on every update.
Graph halves() {
  Graph g = built("decay");
  g.precision = f16;
  return run_passes(training_passes(), g);
}

/// What an asynchronous worker computes, and what its servers do.
PlacedGraph of_worker(const CutGraphs& cut) {
  auto graph = std::make_shared<const Graph>(cut.worker);
  std::vector<std::pair<std::string, ValueId>> pushed(graph->metrics.begin(), graph->metrics.end());
  return place(graph, to_strategy(Single{.device = sims(1)[0], .threads = 1}), sim_cluster(2), 4, {.fetches = pushed, .updates = false});
}

PlacedGraph of_server(const CutGraphs& cut) {
  return place(std::make_shared<const Graph>(cut.server), to_strategy(ParameterServer{.devices = sims(1), .servers = sims(2), .towers = 1, .threads = 1}), sim_cluster(2), 1, {});
}

/// The first that GPUs have for the op, without asking whether it takes the request.
std::string gpu_kernel_of(const std::string& op) {
  for (const GpuKernelName& k : gpu_kernel_names())
    if (is_gpu_kernel(k.name, op)) return std::string(k.name);
  return "reference";
}

/// GPUs, whose memory nobody else reads: what a sum must land is in its scratch. Their kernels have names of theirs.
PlacedGraph on_gpus() {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  const std::vector<DeviceId> gpus = parse_devices("gpu:0-1");
  return place(graph, to_strategy(Mirrored{.devices = gpus, .towers = 4, .threads = 1}), local_cluster({gpus[0], gpus[1], cpu(0)}, 2), 8,
               {.fetches = fetches_of(*graph), .kernels = [](const KernelQuery& q) { return KernelChoice{q.device_kind == "gpu" ? gpu_kernel_of(q.node.op) : "reference", 0, true}; }});
}

}  // namespace

const std::map<std::string, PlacedGraph>& plans_to_damage() {
  static const std::map<std::string, PlacedGraph> plans = [] {
    std::map<std::string, PlacedGraph> out;
    for (const char* name : {"towers", "mirrored", "layers", "gpipe"}) out.emplace(name, placed(training_graph(net("decay")), named(name, 4, 2), 7));
    for (auto [name, T] : {std::pair("pieces", 4), std::pair("many pieces", 8)}) out.emplace(name, placed(training_graph(net("decay")), named("mirrored", T, 2), 8));
    out.emplace("few rows", placed(training_graph(net("decay")), named("mirrored", 8, 2), 5));
    out.emplace("batch norm", placed(training_graph(net("batch_norm")), named("mirrored", 4, 2), 8));
    out.emplace("exchange", placed(exchange(), named("towers", 4, 2), 7));
    out.emplace("tied", placed(training_graph(net("tied")), named("towers", 4, 2), 7));
    out.emplace("fused", placed(two_groups(), named("towers", 4, 2), 7));
    out.emplace("late reader", placed(late_reader(), named("towers, variables on the last", 4, 2), 7, false));
    out.emplace("forward only", placed(forward_only(), named("layers", 4, 2), 7, true, {{"x.split0", sims(1), "the first stage reads it"}}));
    out.emplace("sharded", placed(wide(), named("sharded", 4, 2), 8));
    out.emplace("sharded over four", placed(wide(), named("sharded", 4, 4), 8, true, {}, 4));
    out.emplace("recomputed", placed(deep(), named("towers", 4, 2), 7, true, {}, 2, 3));
    out.emplace("recomputed pipeline", placed(deep(), named("gpipe", 4, 2), 8, true, {}, 2, 3));
    out.emplace("interleaved", placed(deep(), to_strategy(Layers{.devices = sims(2), .towers = 4, .order = PhaseOrder::interleaved, .chunks = 2, .threads = 1}), 8));
    out.emplace("hybrid", placed(deep(), to_strategy(Layers{.devices = sims(4), .towers = 4, .replicas = 2, .order = PhaseOrder::one_f_one_b, .threads = 1}), 8, true, {}, 4));
    out.emplace("accumulating", placed(deep(), to_strategy(Layers{.devices = sims(4), .towers = 14, .replicas = 2, .order = PhaseOrder::one_f_one_b, .threads = 1}), 28, true, {}, 4, 0, true));
    out.emplace("places in slots", placed(deep(), to_strategy(Layers{.devices = sims(3), .towers = 5, .order = PhaseOrder::one_f_one_b, .threads = 1}), 37, true, {}, 3));
    out.emplace("made once", placed(weighed(), named("mirrored", 4, 2), 8));
    out.emplace("halves", placed(halves(), named("mirrored", 4, 2), 8));
    const CutGraphs cut = cut_updates(training_graph(net("batch_norm")));
    out.emplace("worker", of_worker(cut));
    out.emplace("server", of_server(cut));
    out.emplace("gpus", on_gpus());
    return out;
  }();
  return plans;
}

}  // namespace belfry::test
