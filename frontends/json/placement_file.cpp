#include <belfry/frontends/json/placement_file.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_folds.h>
#include <belfry/frontends/json/records.h>

namespace belfry {

namespace {

void read_version(JsonObject& root) {
  const JsonValue& version = root.at("belfry");
  if (root.document.integer(version, 1) > 1) root.document.fail(version, fmt::format("the file is of format {}; this program reads format 1", version.integer));
}

std::vector<DeviceId> devices_of(const JsonDocument& d, const JsonValue& v) {
  std::vector<DeviceId> out;
  if (v.kind == JsonValue::kArray)
    for (const JsonValue& e : v.items) out.push_back(device_of(d, e));
  else out = placed(d, v, [&] { return parse_devices(d.text(v)); });
  if (out.empty()) d.fail(v, "names no device");
  return out;
}

PlacementRule rule_of(const JsonDocument& d, const JsonValue& v) {
  JsonObject o(d, v);
  PlacementRule out{d.text(o.at("match")), devices_of(d, o.at("device")), "the placement file says so"};
  if (const JsonValue* reason = o.find("reason")) out.reason = d.text(*reason);
  if (const JsonValue* ranges = o.find("ranges")) out.ranges = d.flag(*ranges);
  if (const JsonValue* sum = o.find("sum")) out.sum = placed(d, *sum, [&] { return parse_sum_way(d.text(*sum)); });
  if (const JsonValue* bucket = o.find("bucket")) out.bucket = static_cast<int>(d.integer(*bucket, 1, kMostTowers));
  if (out.match.empty()) d.fail(o.at("match"), "matches nothing; write \"**\" for everything");
  o.done();
  return out;
}

}  // namespace

PlacementFile read_placement(const std::string& text, const std::string& file) {
  JsonDocument d(text, file);
  JsonObject root(d, d.root());
  PlacementFile out;
  if (const JsonValue* split = d.root().find("accelerators"); split && !d.root().find("belfry"))
    d.fail(*split, "is of an answer in dnn-partitioning's format, which place and forecast take as a file by --placement; here a placement file is wanted");
  if (const JsonValue* nodes = d.root().find("nodes"))
    d.fail(*nodes, "is of a graph or plan, and a placement file is wanted here: give a plan to place as it is, or write the rules (\"placement\")");
  read_version(root);
  if (const JsonValue* v = root.find("towers")) out.towers = static_cast<int>(d.integer(*v, 1, kMostTowers));
  if (const JsonValue* v = root.find("batch")) out.batch = d.integer(*v, 1, kMostBytes);
  if (const JsonValue* v = root.find("combine")) out.combine = placed(d, *v, [&] { return parse_combine(d.text(*v)); });
  if (const JsonValue* v = root.find("threads")) out.threads = static_cast<int>(d.integer(*v, 1, kMostThreads));
  if (const JsonValue* v = root.find("order")) out.order = placed(d, *v, [&] { return parse_phase_order(d.text(*v)); });
  if (const JsonValue* v = root.find("collectives")) out.collectives = placed(d, *v, [&] { return parse_collectives(d.text(*v)); });
  if (const JsonValue* v = root.find("recompute"))
    for (const JsonValue& name : d.array(*v)) out.recompute.push_back(d.text(name));
  for (const JsonValue& v : d.array(root.at("placement"))) out.rules.push_back(rule_of(d, v));
  root.done();
  return out;
}

std::string write_placement(const Placement& p) {
  std::vector<std::string> lines;
  for (const PlacementRule& r : p.rules) {
    std::vector<DeviceId> sorted = r.devices;
    std::sort(sorted.begin(), sorted.end());
    bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    std::vector<std::string> devices;
    for (const DeviceId& id : r.devices) devices.push_back(json_text(to_string(id)));
    LineWriter line;
    line.add("match", json_text(r.match));
    line.add("device", distinct ? json_text(to_string(r.devices)) : json_list(devices));
    if (r.ranges) line.add("ranges", "true");
    if (r.sum != SumWay::direct) line.add("sum", json_text(to_string(r.sum)));
    if (r.bucket) line.add("bucket", fmt::format("{}", r.bucket));
    line.add("reason", json_text(r.reason));
    lines.push_back(line.text());
  }
  std::vector<std::string> entries = {"\"belfry\": 1", fmt::format("\"towers\": {}", p.towers), fmt::format("\"batch\": {}", p.batch), "\"combine\": " + json_text(to_string(p.combine)),
                                      fmt::format("\"threads\": {}", p.threads), "\"order\": " + json_text(to_string(p.order))};
  if (p.collectives != Collectives::tree) entries.push_back("\"collectives\": " + json_text(to_string(p.collectives)));
  std::vector<std::string> again;
  for (const std::string& name : p.recompute) again.push_back(json_text(name));
  if (!again.empty()) entries.push_back("\"recompute\": " + json_list(again));
  entries.push_back("\"placement\": " + json_lines(lines));
  return json_file(entries);
}

Cluster read_cluster(const std::string& text, const std::string& file) {
  JsonDocument d(text, file);
  JsonObject root(d, d.root());
  for (const char* key : {"nodes", "placement"})
    if (const JsonValue* v = root.find(key); v && !d.root().find("devices")) d.fail(*v, fmt::format("is of a {}, and a cluster is wanted here, which has \"devices\" and \"links\"", key == std::string_view("nodes") ? "graph or plan" : "placement"));
  read_version(root);
  Cluster out = take_cluster(root);
  if (const JsonValue* links = root.find("links")) refuse_idle_links(d, *links, out);
  root.done();
  return out;
}

std::string write_cluster(const Cluster& cluster) {
  std::vector<std::string> entries = {"\"belfry\": 1"};
  for (std::string& e : cluster_entries(cluster)) entries.push_back(std::move(e));
  return json_file(entries);
}

}  // namespace belfry
