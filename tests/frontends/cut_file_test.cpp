#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/cut_file.h>
#include <belfry/placer/cut/cut.h>

#include "says.h"

namespace belfry::test {
namespace {

const std::string kSmall = R"({"maxSizePerFPGA": 10.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [
  {"id": 7, "name": "a", "supportedOnFpga": 1, "cpuLatency": 30, "fpgaLatency": 3.0, "isBackwardNode": 0, "colorClass": 1, "size": 4},
  {"id": 9, "name": "b", "supportedOnFpga": true, "cpuLatency": 40, "fpgaLatency": 4, "isBackwardNode": false, "size": 7},
  {"id": 8, "supportedOnFpga": 0, "cpuLatency": 1, "fpgaLatency": 0, "isBackwardNode": 0, "colorClass": null, "size": 0}],
 "edges": [{"sourceId": 7, "destId": 9, "cost": 0.5, "size": 3}, {"sourceId": 9, "destId": 8, "cost": 0.25}]})";

std::string with(const std::string& from, const std::string& to) {
  std::string out = kSmall;
  out.replace(out.find(from), from.size(), to);
  return out;
}

TEST(CutFile, is_read_solved_and_written) {
  CutProblem p = read_cut_problem(kSmall, "small.json");
  Cut c = cut(p);
  // Both together are over memory, and the last one needs the CPU: b pays for what it reads and for what the CPU reads.
  EXPECT_TRUE(c.optimal());
  EXPECT_NEAR(c.value, 4.75, 1e-12);
  EXPECT_EQ(write_cut(p, c.device), "{\n  \"accelerators\": [\n    [7],\n    [9]\n  ],\n  \"cpu\": [8]\n}\n");
  CutProblem again = read_cut_problem(write_cut_problem(p), "again.json");
  ASSERT_EQ(again.nodes.size(), p.nodes.size());
  for (std::size_t i = 0; i < p.nodes.size(); ++i) {
    EXPECT_EQ(again.nodes[i].id, p.nodes[i].id);
    EXPECT_EQ(again.nodes[i].seconds, p.nodes[i].seconds);
    EXPECT_EQ(again.nodes[i].transfer, p.nodes[i].transfer);
    EXPECT_EQ(again.nodes[i].together, p.nodes[i].together);
  }
  EXPECT_EQ(again.edges, p.edges);
  EXPECT_EQ(write_cut_problem(again), write_cut_problem(p));
}

TEST(CutFile, that_is_wrong_is_refused_where_it_is) {
  auto refused = [](const std::string& text, const std::vector<std::string>& words) { EXPECT_TRUE(says([&] { read_cut_problem(text, "f.json"); }, words)); };
  refused(with("\"id\": 9", "\"id\": 7"), {"f.json:3", "the id 7 stands there twice"});
  refused(with("\"destId\": 9", "\"destId\": 5"), {"/edges/0/destId", "is the id of no node"});
  refused(with("3.0", "-3.0"), {"/nodes/0/fpgaLatency", "no amount"});
  refused(with("\"maxFPGAs\": 2, ", ""), {"maxFPGAs"});
  refused(with("\"id\": 9", "\"id\": -9"), {"/nodes/1/id", "-9"});
  CutProblem p = read_cut_problem(with("\"maxSizePerFPGA\": 10.0", "\"maxSizePerFPGA\": 3"), "f.json");
  p.kinds[1].memory = 3;
  EXPECT_TRUE(says([&] { cut(p); }, {"no split fits", "more devices"}));
  EXPECT_TRUE(says([&] { cut(read_cut_problem(with("\"maxCPUs\": 1", "\"maxCPUs\": 0"), "f.json")); }, {"'node8' cannot be on any device that there is"}));
}

TEST(CutFile, published_graphs_are_cut_as_well_as_is_known) {
  const std::filesystem::path folder = std::filesystem::path(BELFRY_SHARED) / "data/dnn-partitioning";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const std::vector<std::pair<const char*, double>> optimum = {
      {"layers_bert24_training", 41.7458125}, {"layers_gnmt_training", 107.0044141}, {"layers_resnet50_training", 78.6318125}, {"layers_inceptionv3_training", 122.7616163}};
  for (const auto& [name, best] : optimum) {
    const std::string file = (folder / (std::string(name) + ".json")).string();
    CutProblem p = read_cut_problem(read_file(file), file);
    Cut c = cut(p);
    EXPECT_EQ(objections_to(p, c.device), std::vector<std::string>()) << name;
    EXPECT_LE(c.value, best + 1e-6) << name;
    EXPECT_TRUE(c.optimal()) << name << ": no less than " << c.bound;
  }
}

}  // namespace
}  // namespace belfry::test
