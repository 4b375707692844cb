#include <belfry/frontends/json/cut_file.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/json/records.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/graph/error.h>

namespace belfry {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kAccelerator = 0, kCpu = 1;  // kinds

/// Truth is written both ways in these files.
bool truth(const JsonDocument& d, const JsonValue& v) { return v.kind == JsonValue::kBoolean ? d.flag(v) : d.integer(v, 0, 1) != 0; }

/// Numbers that are finite and not negative.
double amount(const JsonDocument& d, const JsonValue& v) {
  const double out = d.real(v);
  if (!(out >= 0) || !std::isfinite(out)) d.fail(v, "is no amount: a finite number that is not negative");
  return out;
}

CutNode cut_node_of(const JsonDocument& d, const JsonValue& v) {
  JsonObject o(d, v);
  CutNode n;
  n.id = d.integer(o.at("id"), 0);
  n.name = o.find("name") ? d.text(o.at("name")) : fmt::format("node{}", n.id);
  const JsonValue* supported = o.find("supportedOnFpga");
  n.seconds = {supported && !truth(d, *supported) ? kInfinity : amount(d, o.at("fpgaLatency")), amount(d, o.at("cpuLatency"))};
  n.bytes = amount(d, o.at("size"));
  if (const JsonValue* back = o.find("isBackwardNode")) n.backward = truth(d, *back);
  if (const JsonValue* colour = o.find("colorClass"); colour && colour->kind != JsonValue::kNull) n.together = static_cast<int>(d.integer(*colour, 0, INT32_MAX));
  return n;
}

void need_format(const CutProblem& p) {
  if (p.kinds.size() != 2 || !p.kinds[kAccelerator].pays || p.kinds[kCpu].pays)
    throw UserError("the format of dnn-partitioning has accelerators of one kind, and CPUs: not what this problem has");
}

std::vector<std::int64_t> ids_of(const CutProblem& p) {
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < p.nodes.size(); ++i) out.push_back(p.nodes[i].id < 0 ? static_cast<std::int64_t>(i) : p.nodes[i].id);
  return out;
}

}  // namespace

CutProblem read_cut_problem(const std::string& text, const std::string& file) {
  JsonDocument d(text, file);
  JsonObject root(d, d.root());
  CutProblem out;
  const JsonValue* cpus = root.find("maxCPUs");
  out.kinds = {{"accelerator", static_cast<int>(d.integer(root.at("maxFPGAs"), 0, 1 << 20)), amount(d, root.at("maxSizePerFPGA")), true},
               {"cpu", cpus ? static_cast<int>(d.integer(*cpus, 0, 1 << 20)) : 0, kInfinity, false}};
  std::map<std::int64_t, int> number;
  for (const JsonValue& v : d.array(root.at("nodes"))) {
    out.nodes.push_back(cut_node_of(d, v));
    if (!number.try_emplace(out.nodes.back().id, static_cast<int>(number.size())).second) d.fail(v, fmt::format("the id {} stands there twice", out.nodes.back().id));
  }
  for (const JsonValue& v : d.array(root.at("edges"))) {
    JsonObject o(d, v);
    auto end = [&](const char* key) {
      auto known = number.find(d.integer(o.at(key)));
      if (known == number.end()) d.fail(o.at(key), "is the id of no node");
      return known->second;
    };
    const int from = end("sourceId"), to = end("destId");
    out.edges.emplace_back(from, to);
    double& transfer = out.nodes[static_cast<std::size_t>(from)].transfer;
    transfer = std::max(transfer, amount(d, o.at("cost")));
  }
  return out;
}

std::string write_cut_problem(const CutProblem& p) {
  need_format(p);
  const std::vector<std::int64_t> ids = ids_of(p);
  std::vector<std::string> nodes, edges;
  for (std::size_t i = 0; i < p.nodes.size(); ++i) {
    const CutNode& n = p.nodes[i];
    const bool supported = std::isfinite(n.seconds[kAccelerator]);
    LineWriter line;
    line.add("id", std::to_string(ids[i]));
    line.add("name", json_text(n.name));
    line.add("supportedOnFpga", supported ? "1" : "0");
    line.add("cpuLatency", json_real(n.seconds[kCpu]));
    line.add("fpgaLatency", json_real(supported ? n.seconds[kAccelerator] : 0.0));
    line.add("isBackwardNode", n.backward ? "1" : "0");
    if (n.together >= 0) line.add("colorClass", std::to_string(n.together));
    line.add("size", json_real(n.bytes));
    nodes.push_back(line.text());
  }
  for (auto [a, b] : p.edges) {
    LineWriter line;
    line.add("sourceId", std::to_string(ids[static_cast<std::size_t>(a)]));
    line.add("destId", std::to_string(ids[static_cast<std::size_t>(b)]));
    line.add("cost", json_real(p.nodes[static_cast<std::size_t>(a)].transfer));
    edges.push_back(line.text());
  }
  return json_file({"\"maxSizePerFPGA\": " + json_real(p.kinds[kAccelerator].memory), fmt::format("\"maxFPGAs\": {}", p.kinds[kAccelerator].count), fmt::format("\"maxCPUs\": {}", p.kinds[kCpu].count),
                    "\"nodes\": " + json_lines(nodes), "\"edges\": " + json_lines(edges)});
}

std::string write_cut(const CutProblem& p, const std::vector<int>& device) {
  need_format(p);
  const std::vector<std::int64_t> ids = ids_of(p);
  std::vector<std::vector<std::int64_t>> parts(static_cast<std::size_t>(p.kinds[kAccelerator].count));
  std::vector<std::int64_t> cpu;
  for (std::size_t i = 0; i < p.nodes.size(); ++i) (p.kind_of(device[i]) == static_cast<int>(kCpu) ? cpu : parts[static_cast<std::size_t>(device[i])]).push_back(ids[i]);
  std::vector<std::string> lines;
  for (const auto& part : parts) lines.push_back(fmt::format("[{}]", fmt::join(part, ", ")));
  return json_file({"\"accelerators\": " + json_lines(lines), fmt::format("\"cpu\": [{}]", fmt::join(cpu, ", "))});
}

std::vector<int> read_cut(const std::string& text, const std::string& file, const CutProblem& p) {
  need_format(p);
  JsonDocument d(text, file);
  JsonObject root(d, d.root());
  const std::vector<std::int64_t> ids = ids_of(p);
  std::map<std::int64_t, std::size_t> number;
  for (std::size_t i = 0; i < ids.size(); ++i) number[ids[i]] = i;
  std::vector<int> out(p.nodes.size(), -1);
  auto take = [&](const JsonValue& list, int device) {
    for (const JsonValue& v : d.array(list)) {
      const auto known = number.find(d.integer(v));
      if (known == number.end()) d.fail(v, fmt::format("is the id of no node; the problem has {} of them: it is that of these arguments, those with which it was written", ids.size()));
      int& there = out[known->second];
      if (there >= 0) d.fail(v, fmt::format("stands there twice: it is '{}'", p.nodes[known->second].name));
      there = device;
    }
  };
  const JsonValue& accelerators = root.at("accelerators");
  const std::vector<JsonValue>& lists = d.array(accelerators);
  if (lists.size() > static_cast<std::size_t>(p.kinds[kAccelerator].count)) d.fail(accelerators, fmt::format("has {} lists, but the problem has {} accelerators", lists.size(), p.kinds[kAccelerator].count));
  for (std::size_t k = 0; k < lists.size(); ++k) take(lists[k], static_cast<int>(k));
  if (const JsonValue* cpu = root.find("cpu")) {
    if (!p.kinds[kCpu].count && !d.array(*cpu).empty()) d.fail(*cpu, "has nodes, but the problem has no CPU beside its accelerators");
    take(*cpu, p.kinds[kAccelerator].count);
  }
  if (const auto missing = std::find(out.begin(), out.end(), -1); missing != out.end())
    d.fail(d.root(), fmt::format("lacks the node {}, '{}'", ids[static_cast<std::size_t>(missing - out.begin())], p.nodes[static_cast<std::size_t>(missing - out.begin())].name));
  return out;
}

}  // namespace belfry
