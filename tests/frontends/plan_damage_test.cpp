#include <gtest/gtest.h>

#include <random>

#include <belfry/frontends/json/plan_file.h>

#include "plans.h"
#include "swapped.h"

namespace belfry::test {
namespace {

PlacedGraph sample_plan() {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  return place(graph, to_strategy(Layers{.devices = sims(2), .towers = 4, .order = PhaseOrder::gpipe, .threads = 1, .cut = LayerCut::variables}), sim_cluster(2), 7, {.fetches = fetches_of(*graph)});
}

/// What became of a text: refused by the reader, objected to by the verifier, or run.
std::string judged(const std::string& text, const PlacedGraph& plan) {
  try {
    PlacedGraph read = read_plan(text, "plan.json", plan.graph->shared_ops());
    auto objections = verify(read);
    return objections.empty() ? "" : "objection: " + objections[0];
  } catch (const UserError& e) {
    return std::string("refused: ") + e.what();
  }
}

TEST(PlanDamage, every_nonsense_is_refused_or_objected_to) {
  PlacedGraph plan = sample_plan();
  const std::string text = write_plan(plan);
  ASSERT_EQ(judged(text, plan), "");
  struct Case {
    const char *from, *to;
  };
  const std::vector<Case> cases = {
      {"\"towers\": 4", "\"towers\": 0"},
      {"\"towers\": 4", "\"towers\": 3"},
      {"\"towers\": 4", "\"towers\": 65536"},
      {"\"towers\": 4", "\"towers\": 99999999999"},
      {"\"batch\": 7", "\"batch\": 0"},
      {"\"batch\": 7", "\"batch\": 3"},
      {"\"batch\": 7", "\"batch\": 9000000000000000000"},
      {"\"batch\": 7", "\"batch\": 10000000"},
      {"\"combine\": \"global_mean\"", "\"combine\": \"median\""},
      {"\"order\": \"gpipe\"", "\"order\": \"random\""},
      {"\"threads\": 1,", "\"threads\": -1,"},
      {"\"devices\": \"sim:0-1\"", "\"devices\": \"sim:0-2\""},
      {"\"devices\": \"sim:0-1\"", "\"devices\": \"sim:0\""},
      {"\"space\": \"host\"", "\"space\": 7"},
      {"\"vectors\": [", "\"vectors\": [{\"0-3\": \"sim:0\"},"},
      {"\"0-3\": \"sim:0\"", "\"0-4\": \"sim:0\""},
      {"\"0-3\": \"sim:0\"", "\"0-2\": \"sim:0\""},
      {"\"0-3\": \"sim:0\"", "\"0-3\": \"sim:0\", \"1\": \"sim:1\""},
      {"\"classes\": [", "\"classes\": [{\"towers\": \"0\", \"share\": 1, \"kinds\": [], \"pattern\": [], \"frames\": []},"},
      {"\"share\": 2", "\"share\": -2"},
      {"\"pattern\": [", "\"pattern\": [[0, 0],"},
      {"\"region\": ", "\"region\": 1"},
      {"\"region\": ", "\"region\": 0.5, \"note\": \"\", \"x\": "},
      {"\"state\": ", "\"state\": -"},
      {"\"kept\": ", "\"kept\": -"},
      {"\"kept\": ", "\"kept\": 100000000000"},
      {"\"name\": \"main\"", "\"name\": \"tower0\""},
      {"\"name\": \"tower0\"", "\"name\": \"main\""},
      {"\"slots\": ", "\"slots\": -"},
      {"\"threads\": [", "\"threads\": [-1, "},
      {"\"threads\": [", "\"threads\": [0, 0, 0, 0, "},
      {"{\"devices\": \"sim:0\", \"kept\": ", "{\"devices\": \"sim:0\", \"kept\": 0, \"transient\": 0}, {\"devices\": \"sim:0\", \"kept\": "},
      {"\"entries\": [", "\"entries\": [[0, 0, 0, 0, -1], "},
      {"\"entries\": [", "\"entries\": [[9, 9, 9, 9, 9], "},
      {"\"scope\": \"tower\"", "\"scope\": \"shared\""},
      {"\"scope\": \"tower\"", "\"scope\": \"state\""},
      {"\"scope\": \"shared\"", "\"scope\": \"tower\""},
      {"\"scope\": \"shared\"", "\"scope\": \"device\""},
      {"\"scope\": \"state\"", "\"scope\": \"shared\""},
      {"\"assigned\": {", "\"assigned\": {\"0\": \"gpu:0\", "},
      {"\"assigned\": \"sim:0\"", "\"assigned\": \"sim:1\""},
      {"\"assigned\": \"cpu:0\"", "\"assigned\": \"\""},
      {"\"reason\": \"", "\"reason\": \"\", \"note\": \""},
      {"\"state\": \"rows(0)\"", "\"state\": \"rows\""},
      {"\"state\": \"rows(0)\"", "\"state\": \"replicated\""},
      {"\"dtype\": \"f64\", \"shape\": [\"batch\"", "\"dtype\": \"f32\", \"shape\": [\"batch\""},
      {"\"outputs\": [{\"dtype\"", "\"outputs\": [], \"x\": [{\"dtype\""},
      {"\"epoch\": 0", "\"epoch\": 5"},
      {"\"phases\": [0", "\"phases\": [7"},
      {"\"phases\": [0", "\"phases\": [0, 0, 0"},
      {"\"waits\": [[", "\"waits\": [[\"own\", \"nothing\"], ["},
      {"\"kernel\": \"reference\"", "\"note\": \"\""},
      {"[\"kept\", 0]", "[\"kept\", 1]"},
      {"[\"kept\", 0]", "[\"kept\", 17592186044416]"},
      {"[\"kept\", 0]", "[\"kept\", -64]"},
      {"[\"region\", 0", "[\"region\", 64000"},
      {"[\"state\", 0", "[\"state\", 64"},
      {"\"cause\": \"", "\"cause\": \"no such node "},
      {"\"op\": \"copy\"", "\"op\": \"split\""},
      {"\"op\": \"aggregate\"", "\"op\": \"copy\""},
      {"\"how\": \"sum\"", "\"how\": \"product\""},
      {"\"donates\": [[", "\"donates\": [[\"loss\", \"loss\"], ["},
      {"\"fetches\": {", "\"fetches\": {\"again\": \"loss\", "},
      {"\"applies\": {", "\"applies\": {\"loss\": \"loss\", "},
      {"\"position\": 0", "\"position\": -1"},
  };
  EXPECT_GE(cases.size(), 40u);
  for (const Case& c : cases) EXPECT_NE(judged(swapped(text, c.from, c.to), plan), "") << c.from << " → " << c.to;
}

TEST(PlanDamage, no_damaged_text_crashes_reader_or_verifier) {
  PlacedGraph plan = sample_plan();
  const std::string text = write_plan(plan);
  std::size_t refused = 0, objected = 0, ran = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng(seed);
    std::string damaged = text;
    auto digit = [&] {
      std::size_t at = rng() % damaged.size();
      while (damaged[at] < '0' || damaged[at] > '9') at = (at + 1) % damaged.size();
      return at;
    };
    switch (seed % 5) {
      case 0: damaged[rng() % damaged.size()] = static_cast<char>(rng()); break;
      case 1: damaged.resize(rng() % damaged.size()); break;
      case 2: damaged[digit()] = static_cast<char>('0' + rng() % 10); break;
      case 3: damaged.insert(digit(), std::to_string(rng() % 1000)); break;
      default: {  // two lines change places
        std::size_t a = damaged.find('\n', rng() % (damaged.size() / 2)), b = damaged.find('\n', a + 1), c = damaged.find('\n', b + 1);
        damaged = damaged.substr(0, a) + damaged.substr(b, c - b) + damaged.substr(a, b - a) + damaged.substr(c);
      }
    }
    std::string verdict = judged(damaged, plan);
    ++(verdict.empty() ? ran : verdict[0] == 'r' ? refused : objected);
  }
  std::cout << refused << " refused, " << objected << " objected to, " << ran << " run\n";
  EXPECT_GT(refused, 250u);
  EXPECT_GT(objected, 150u);
}

TEST(PlanDamage, a_terabyte_arena_costs_the_verifier_no_memory) {
  PlacedGraph plan = sample_plan();
  for (DeviceGroup& g : plan.groups) g.region = std::int64_t{1} << 39;
  const std::vector<std::string> found = verify(plan);
  EXPECT_EQ(found.size(), plan.groups.size());
  for (const std::string& f : found) EXPECT_TRUE(f.starts_with("memory: the region of ")) << f;
}

}  // namespace
}  // namespace belfry::test
