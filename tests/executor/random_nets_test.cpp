// Random nets: every kernel beside its reference, towers beside the whole, and placements beside each other.
// BELFRY_RANDOM_NETS and BELFRY_SEED set how many and from which seed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/evaluate.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/cpu_kernels.h>

#include "all_groups.h"
#include "plans.h"
#include "random_net.h"

namespace belfry::test {
namespace {

constexpr std::int64_t kRows = 7;

using Found = std::string;  // what is wrong; empty: nothing

struct Placed {
  Placed(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, PlaceOptions options) {
    options.kernels = chooser(kernels());
    plan = std::make_shared<const PlacedGraph>(place(graph, strategy, sim_cluster(2), kRows, options));
    if (auto objections = verify(*plan); !objections.empty()) throw UserError("the verifier objects: " + objections[0]);
    program = std::make_unique<Program>(plan, kernels());
    for (int t = 0; t < static_cast<int>(program->threads().size()); ++t) program->prepare_thread(t);
    for (const std::string& name : variables()) program->set_state(name, state_for(*graph).at(name));
  }
  /// Those that the step reads: what is not read is not in the plan.
  std::set<std::string> variables() const {
    std::set<std::string> out;
    for (const StateBuffer& s : program->bound().state) out.insert(plan->nodes[static_cast<std::size_t>(s.node)].name);
    return out;
  }
  std::shared_ptr<const PlacedGraph> plan;
  std::unique_ptr<Program> program;
};

/// The inputs of a launch as they lie in memory.
std::vector<std::optional<HostTensor>> inputs_of(const KernelRequest& r, const Arguments& a) {
  std::vector<std::optional<HostTensor>> out(a.inputs.size());
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    if (!a.inputs[i]) continue;
    out[i].emplace(r.inputs[i].dtype, r.inputs[i].shape);
    if (r.inputs[i].elements()) std::memcpy(out[i]->raw(), a.inputs[i], out[i]->bytes().size());
  }
  return out;
}

/// The largest difference beside the tensor's largest value; integers must be equal.
double distance(const LocalType& type, const std::byte* got, const HostTensor& want) {
  HostTensor mine(type.dtype, type.shape);
  if (type.elements()) std::memcpy(mine.raw(), got, mine.bytes().size());
  if (!is_float(type.dtype)) return mine == want ? 0 : INFINITY;
  HostTensor x = converted(mine, f64), y = converted(want, f64);
  double most = 1, worst = 0;
  for (double v : y.data<double>())
    if (std::isfinite(v)) most = std::max(most, std::abs(v));
  for (std::size_t i = 0; i < x.data<double>().size(); ++i) {
    double p = x.data<double>()[i], q = y.data<double>()[i];
    if (p == q || (std::isnan(p) && std::isnan(q))) continue;
    double d = std::abs(p - q) / most;
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

Found kernels_beside_references(const NetRecipe& recipe) {
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), grown(recipe, f32)));
  Placed placed(graph, to_strategy(Single{.device = sims(1)[0], .threads = 1}), {.fetches = fetches_of(*graph)});
  std::map<const Step*, const Launch*> launches;
  for (const auto& stream : placed.program->launches())
    for (const Launch& l : stream) launches[l.step] = &l;
  std::vector<std::optional<HostTensor>> before;
  Found found;
  auto look_before = [&](const Step& s) {
    if (placed.plan->nodes[static_cast<std::size_t>(s.node)].def) before = inputs_of(placed.program->request(s), launches.at(&s)->arguments);
  };
  auto look_after = [&](const Step& s) {
    const PlanNode& n = placed.plan->nodes[static_cast<std::size_t>(s.node)];
    if (!n.def || n.op == kInput || n.op == kVariable || !found.empty()) return;
    KernelRequest r = placed.program->request(s);
    std::vector<const HostTensor*> pointers;
    for (const auto& t : before) pointers.push_back(t ? &*t : nullptr);
    std::vector<HostTensor> want = evaluate(*n.def, n.attributes, pointers, r.output_types, r.outputs, r.share);
    const Arguments& a = launches.at(&s)->arguments;
    for (std::size_t k = 0; k < want.size(); ++k)
      if (a.outputs[k] && r.wanted[k])
        if (double d = distance(r.outputs[k], a.outputs[k], want[k]); d > 2e-5) found = fmt::format("{} '{}', output {} differs by {}", n.op, n.name, k, d);
  };
  Runner runner(*placed.program);
  Tensors feeds = feeds_for(*graph, kRows, recipe.seed);
  Outcome o = runner.run_interleaved(views(feeds), in_turn(), nullptr, {.before = look_before, .after = look_after});
  if (o.error) std::rethrow_exception(o.error);
  return found;
}

std::vector<FusionGroup> without_trees(const Graph& graph) {
  std::vector<FusionGroup> out = all_groups(graph);
  std::erase_if(out, [](const FusionGroup& group) { return group.kind == kElementwise; });
  return out;
}

Result run(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const NetRecipe& recipe, std::string* hash, bool trees = true) {
  Placed placed(graph, strategy, {.fetches = fetches_of(*graph), .groups = trees ? all_groups : without_trees});
  const PlacedGraph& plan = *placed.plan;  // the hash names kernels of what is not exact
  *hash = std::all_of(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) { return !is_tree(plan, n) || is_exact(plan, n); }) ? plan.arithmetic_hash : "";
  Runner runner(*placed.program);
  Tensors feeds = feeds_for(*graph, kRows, recipe.seed);
  Outcome o = runner.run(views(feeds));
  if (o.error) std::rethrow_exception(o.error);
  Result out{{o.fetched.begin(), o.fetched.end()}, {}};
  for (const std::string& name : placed.variables()) out.state.emplace(name, placed.program->state(name));
  return out;
}

Found towers_beside_the_whole(const NetRecipe& recipe) {
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), grown(recipe, f64)));
  Result whole = run_whole(*graph, feeds_for(*graph, kRows, recipe.seed), state_for(*graph), kRows, fetches_of(*graph));
  std::vector<DeviceId> two = sims(2);
  for (int T : {2, 3}) {
    const std::pair<const char*, Strategy> layouts[] = {{"towers", to_strategy(Towers{.devices = two, .variables = cpu(0), .towers = T, .threads = 1})},
                                                        {"sharded", to_strategy(Sharded{.devices = two, .towers = T, .threads = 1})},
                                                        {"layers", to_strategy(Layers{.devices = two, .towers = T, .order = PhaseOrder::gpipe, .threads = 1, .cut = LayerCut::variables})}};
    std::optional<Result> first;
    for (const auto& [name, strategy] : layouts) {
      if (T == 3 && first) break;
      std::string hash, apart;
      Result got = run(graph, strategy, recipe, &hash);
      if (name == std::string("sharded")) {  // its members one by one
        Result members = run(graph, strategy, recipe, &apart, false);
        if (!same_bits(members.fetched, got.fetched) || !same_bits(members.state, got.state)) return fmt::format("{} towers, {}: trees have other bits than their members", T, name);
        if (!hash.empty() && apart != hash) return fmt::format("{} towers, {}: trees have another hash than their members", T, name);
      }
      for (auto [mine, wanted] : {std::pair{&got.fetched, &whole.fetched}, {&got.state, &whole.state}})
        if (double d = difference(*mine, *wanted); !(d < 1e-7)) return fmt::format("{} towers, {}: differ from the whole by {}", T, name, d);
      if (first && !(same_bits(first->fetched, got.fetched) && same_bits(first->state, got.state))) return fmt::format("{} towers, {}: other bits than by towers", T, name);
      if (!first) first = std::move(got);
    }
  }
  return {};
}

Found fault_of(const NetRecipe& recipe) {
  try {
    Found found = kernels_beside_references(recipe);
    return found.empty() ? towers_beside_the_whole(recipe) : found;
  } catch (const std::exception& e) {
    return e.what();
  }
}

/// f32 where the fault shows in f32 alone.
DType dtype_of_fault(const NetRecipe& recipe) {
  try {
    return kernels_beside_references(recipe).empty() ? f64 : f32;
  } catch (const std::exception&) {
    return f32;
  }
}

/// The same fault from as few steps as leaving out halves, quarters, … finds.
NetRecipe shrunk(NetRecipe recipe) {
  for (std::size_t part = recipe.steps.size(); part > 0; part = part == 1 ? 0 : (part + 1) / 2)
    for (std::size_t at = 0; at < recipe.steps.size();) {
      NetRecipe less = recipe;
      less.steps.erase(less.steps.begin() + static_cast<std::ptrdiff_t>(at), less.steps.begin() + static_cast<std::ptrdiff_t>(std::min(at + part, less.steps.size())));
      if (fault_of(less).empty()) at += part;
      else recipe = std::move(less);
    }
  return recipe;
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(RandomNets, give_the_references_results_on_any_kernels_towers_and_devices) {
  const std::uint64_t first = setting("BELFRY_SEED", 1), count = setting("BELFRY_RANDOM_NETS", 2000);
  std::size_t nodes = 0, least = ~std::size_t{0}, most = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    NetRecipe recipe = random_recipe(seed);
    const auto size = static_cast<std::size_t>(grown(recipe, f32).size());
    nodes += size, least = std::min(least, size), most = std::max(most, size);
    if (Found found = fault_of(recipe); !found.empty()) {
      NetRecipe small = shrunk(recipe);
      std::filesystem::path file = std::filesystem::temp_directory_path() / fmt::format("random_net_{}.json", seed);
      write_file(file, write_graph(grown(small, dtype_of_fault(small))));
      FAIL() << found << "\nshrunk to " << to_string(small) << "\n" << fault_of(small) << "\nwritten to " << file;
    }
  }
  std::cout << fmt::format("{} nets from seed {} of {} to {} nodes before gradients, {} on average\n", count, first, least, most, count ? nodes / count : 0);
  EXPECT_LE(most, 60u);
}

}  // namespace
}  // namespace belfry::test
