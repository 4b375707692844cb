#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include <unistd.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/cost_file.h>
#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/json/plan_file.h>

#include "plans.h"
#include "random_graph.h"

namespace belfry::test {
namespace {

/// All files of a folder against the schema: those whose names begin with "bad" must fail, the others pass.
constexpr const char* kValidate = R"(
import json, pathlib, sys
import jsonschema
v = jsonschema.Draft202012Validator(json.load(open(sys.argv[1])))
v.check_schema(v.schema)
wrong = 0
for f in sorted(pathlib.Path(sys.argv[2]).glob("*.json")):
    text = json.loads(f.read_text())
    # The branch that the keys choose tells more than the union of all.
    kind = "plan_file" if "plan" in text else "placement_file" if "placement" in text else "cluster_file" if "devices" in text else "cost_file" if "kernels" in text else "graph"
    branch = v.evolve(schema={"$schema": v.schema["$schema"], "$defs": v.schema["$defs"], "$ref": "#/$defs/" + kind})
    error = next(branch.iter_errors(text), None)
    if (error is not None) != f.name.startswith("bad"):
        wrong += 1
        print(f.name, error and (error.json_path, error.message[:300]))
sys.exit(1 if wrong else 0)
)";

TEST(Schema, what_is_written_validates_and_what_is_misspelt_does_not) {
  if (std::system("python3 -c 'import jsonschema; jsonschema.Draft202012Validator' > /dev/null 2>&1") != 0) GTEST_SKIP() << "python3 has no jsonschema of 2020 here";
  std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("belfry_schema_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  int count = 0;
  auto put = [&](const std::string& kind, const std::string& text) { write_file(folder / (kind + std::to_string(count++) + ".json"), text); };
  auto broken = [](std::string text, const std::string& from, const std::string& to) { return text.replace(text.find(from), from.size(), to); };
  for (std::uint64_t seed = 0; seed < 40; ++seed) put("graph", write_graph(random_graph(seed), {.put = [](const std::string&, const HostTensor&) {}}));
  Graph halves = built("decay");
  halves.precision = bf16;
  put("graph", write_graph(halves));
  put("bad", broken(write_graph(halves), "\"bf16\"", "\"f64\""));
  for (const Net& n : nets()) {
    auto graph = std::make_shared<const Graph>(training_graph(n));
    put("graph", write_graph(*graph));
    put("bad", broken(write_graph(*graph), "\"op\"", "\"opp\""));
    if (n.name == "two_heads") continue;
    // Every net comes with one strategy, every strategy with some net.
    auto all = strategies(3, 2);
    const NamedStrategy& s = all[static_cast<std::size_t>(count) % all.size()];
    PlacedGraph plan = place(graph, s.strategy, sim_cluster(2), 7, {.fetches = {fetches_of(*graph)[0]}, .isa = "avx2", .libraries = "oneDNN 3.1.0"});
    put("plan", write_plan(plan));
    put("placement", write_placement(placement_of(plan)));
    put("cluster", write_cluster(plan.cluster));
    put("bad", broken(write_plan(plan), "\"reason\"", "\"raeson\""));
    put("bad", broken(write_placement(placement_of(plan)), "\"match\"", "\"mtach\""));
  }
  const auto unequal = std::make_shared<const Graph>(training_graph(*std::find_if(nets().begin(), nets().end(), [](const Net& n) { return n.name == "batch_norm"; })));
  const std::string apart = write_plan(place(unequal, to_strategy(Layers{.devices = sims(2), .towers = 13, .order = PhaseOrder::one_f_one_b, .threads = 1}), sim_cluster(2), 14));
  ASSERT_NE(apart.find("[\"region\", ["), std::string::npos);
  put("plan", apart);
  put("bad", broken(apart, "[\"region\", [", "[\"transient\", ["));
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(BELFRY_SOURCE) / "clusters")) put("cluster", read_file(entry.path()));
  const std::string costs = write_costs({"here", 1e-7, 1e-6, 5e-6, 1e-5, 1e10, {{"a", {{4, 1e-3, {10, 20}}}}}, {}});
  put("costs", costs);
  put("bad", broken(costs, "\"measured\"", "\"maesured\""));
  write_file(folder / "validate.py", kValidate);
  std::string command = "python3 '" + (folder / "validate.py").string() + "' '" + BELFRY_SOURCE + "/frontends/json/belfry.schema.json' '" + folder.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace belfry::test
