#include <belfry/frontends/json/cost_file.h>

#include <fmt/format.h>

#include <belfry/frontends/json/records.h>

namespace belfry {

namespace {

double no_less_than_0(const JsonDocument& d, const JsonValue& v, double most) {
  double out = d.real(v);
  if (!(out >= 0 && out <= most)) d.fail(v, fmt::format("is {}; it must be a number from 0 to {}", out, most));
  return out;
}

Measurement measurement_of(const JsonDocument& d, const JsonValue& v) {
  if (d.array(v).size() != 4) d.fail(v, "is rows, seconds, flops and bytes");
  return {d.integer(v.items[0], 0), no_less_than_0(d, v.items[1], 1e6), {no_less_than_0(d, v.items[2], 1e30), no_less_than_0(d, v.items[3], 1e30)}};
}

}  // namespace

CostTable read_costs(const std::string& text, const std::string& file) {
  JsonDocument d(text, file);
  JsonObject root(d, d.root());
  CostTable out;
  const JsonValue& version = root.at("belfry");
  if (d.integer(version, 1) > 1) d.fail(version, fmt::format("the file is of format {}; this program reads format 1", version.integer));
  if (!root.find("machine")) d.fail(d.root(), "is no calibration: it has no \"machine\"; belfry bench --calibrate -o FILE writes one");
  out.machine = d.text(root.at("machine"));
  out.dispatch = no_less_than_0(d, root.at("dispatch"), 1);
  out.handoff = no_less_than_0(d, root.at("handoff"), 1);
  out.wake = no_less_than_0(d, root.at("wake"), 1);
  out.step = no_less_than_0(d, root.at("step"), 1);
  out.memmove = no_less_than_0(d, root.at("memmove"), 1e18);
  if (out.memmove > 0 && out.memmove < 1) d.fail(root.at("memmove"), "is no rate: bytes a second are at least 1, or 0 where they were not measured");
  for (const JsonValue& v : d.array(root.at("kernels"))) {
    JsonObject line(d, v);
    const JsonValue& key = line.at("key");
    auto [at, fresh] = out.kernels.try_emplace(d.text(key));
    if (!fresh) d.fail(key, "stands there twice");
    for (const JsonValue& m : d.array(line.at("measured"))) {
      at->second.push_back(measurement_of(d, m));
      if (at->second.size() > 1 && at->second[at->second.size() - 2].rows >= at->second.back().rows) d.fail(m, "its rows are not more than those before it");
    }
    if (at->second.empty()) d.fail(line.at("measured"), "holds nothing");
    line.done();
  }
  if (const JsonValue* engines = root.find("engines"))
    for (const JsonValue& v : d.array(*engines)) {
      JsonObject line(d, v);
      const JsonValue& key = line.at("key");
      if (!out.engines.try_emplace(d.text(key), d.text(line.at("engine"))).second) d.fail(key, "stands there twice");
      line.done();
    }
  root.done();
  return out;
}

std::string write_costs(const CostTable& table) {
  std::vector<std::string> lines;
  for (const auto& [key, measurements] : table.kernels) {
    std::vector<std::string> items;
    for (const Measurement& m : measurements) items.push_back(json_list({std::to_string(m.rows), json_real(m.seconds), json_real(m.work.flops), json_real(m.work.bytes)}));
    LineWriter line;
    line.add("key", json_text(key));
    line.add("measured", json_list(items));
    lines.push_back(line.text());
  }
  std::vector<std::string> engines;
  for (const auto& [key, engine] : table.engines) {
    LineWriter line;
    line.add("key", json_text(key));
    line.add("engine", json_text(engine));
    engines.push_back(line.text());
  }
  std::vector<std::string> entries = {"\"belfry\": 1", "\"machine\": " + json_text(table.machine), "\"dispatch\": " + json_real(table.dispatch), "\"handoff\": " + json_real(table.handoff), "\"wake\": " + json_real(table.wake), "\"step\": " + json_real(table.step),
                    "\"memmove\": " + json_real(table.memmove), "\"kernels\": " + json_lines(lines)};
  if (!engines.empty()) entries.push_back("\"engines\": " + json_lines(engines));
  return json_file(entries);
}

}  // namespace belfry
