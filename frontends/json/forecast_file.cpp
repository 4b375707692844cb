#include <belfry/frontends/json/forecast_file.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/frontends/json/records.h>
#include <belfry/graph/float_environment.h>

namespace belfry {

namespace {

std::string device_name(const PlacedGraph& plan, int device) { return to_string(plan.cluster.devices[static_cast<std::size_t>(device)].id); }

std::string launch_name(const PlacedGraph& plan, const ForecastLaunch& l) {
  const std::string& name = plan.nodes[static_cast<std::size_t>(l.node)].name;
  return l.tower < 0 ? name : fmt::format("tower_{}/{}", l.tower, name);
}

std::string device_line(const PlacedGraph& plan, const DeviceForecast& d) {
  std::vector<std::string> peak;
  for (const auto& [name, bytes] : d.peak) peak.push_back(json_list({json_text(name), std::to_string(bytes)}));
  LineWriter line;
  line.add("device", json_text(device_name(plan, d.device)));
  line.add("busy", json_real(d.busy));
  line.add("bytes", std::to_string(d.bytes));
  if (const std::int64_t memory = plan.cluster.devices[static_cast<std::size_t>(d.device)].memory; memory != ClusterDevice{}.memory) line.add("memory", std::to_string(memory));
  if (!peak.empty()) {
    line.add("live", std::to_string(d.live));
    line.add("peak", json_list(peak));
  }
  return line.text();
}

std::string launch_line(const PlacedGraph& plan, const ForecastLaunch& l) {
  LineWriter line;
  line.add("launch", json_text(launch_name(plan, l)));
  line.add("device", json_text(device_name(plan, l.device)));
  line.add("stream", json_text(plan.streams[static_cast<std::size_t>(l.stream)].name));
  line.add("begin", json_real(l.begin));
  line.add("end", json_real(l.end));
  if (l.moving > 0) line.add("moving", json_real(l.moving));
  return line.text();
}

std::vector<std::string> path_lines(const PlacedGraph& plan, const Forecast& f) {
  std::vector<std::string> out;
  for (int k : f.path) out.push_back(launch_line(plan, f.launches[static_cast<std::size_t>(k)]));
  return out;
}

std::string launches_entry(const PlacedGraph& plan, const Forecast& f) {
  std::vector<std::string> all;
  for (const ForecastLaunch& l : f.launches) all.push_back(launch_line(plan, l));
  return "\"launches\": " + json_lines(all);
}

}  // namespace

std::string write_timeline(const PlacedGraph& plan, const Forecast& f) {
  return json_file({"\"belfry\": 1", "\"seconds\": " + json_real(f.seconds), "\"path\": " + json_lines(path_lines(plan, f)), launches_entry(plan, f)});
}

std::string write_forecast(const PlacedGraph& plan, const Forecast& f, bool launches, const std::vector<std::string>& candidates) {
  std::vector<std::string> devices, streams, links;
  for (const DeviceForecast& d : f.devices) devices.push_back(device_line(plan, d));
  for (const StreamForecast& s : f.streams) {
    const PlanStream& stream = plan.streams[static_cast<std::size_t>(s.stream)];
    if (s.busy > 0) streams.push_back(json_list({json_text(device_name(plan, stream.device)), json_text(stream.name), json_real(s.busy)}));
  }
  for (const LinkForecast& l : f.links) links.push_back(json_list({json_text(l.from), json_text(l.to), json_real(l.bytes), json_real(l.busy)}));
  LineWriter sources;
  for (int k = 0; k < kCostSources; ++k) sources.add(to_string(static_cast<CostSource>(k)), json_real(f.by_source[static_cast<std::size_t>(k)]));
  std::vector<std::string> entries = {"\"belfry\": 1", "\"strategy\": " + json_text(plan.placement.strategy), "\"options\": " + json_text(plan.placement.options), "\"seconds\": " + json_real(f.seconds), "\"rows_per_second\": " + json_real(static_cast<double>(plan.batch) / f.seconds), "\"sources\": " + sources.text(),
                                      "\"why_not_more\": " + json_text(why_not_more(plan, f)), "\"devices\": " + json_lines(devices), "\"streams\": " + json_lines(streams), "\"links\": " + json_lines(links),
                                      "\"path\": " + json_lines(path_lines(plan, f))};
  if (f.landed > 0) entries.insert(entries.begin() + 4, "\"landed\": " + json_real(f.landed));
  if (!candidates.empty()) entries.push_back("\"candidates\": " + json_lines(candidates));
  if (launches) entries.push_back(launches_entry(plan, f));
  return json_file(entries);
}

std::vector<std::pair<double, double>> read_trace_times(const std::string& text, const std::string& file, const PlacedGraph& plan, const Forecast& f) {
  const DefaultFloats floats;
  JsonDocument d(text, file);
  struct Slice {
    double begin, seconds;
    std::string name;
    const JsonValue* at;
  };
  std::vector<std::vector<Slice>> streams(plan.streams.size());
  const JsonValue* events = d.object(d.root()).find("traceEvents");
  if (!events) d.fail(d.root(), "is no trace: it has no \"traceEvents\"; belfry run --trace FILE writes one");
  double begin = 0;
  bool first = true;
  for (const JsonValue& e : d.array(*events)) {
    const JsonValue* kind = d.object(e).find("ph");
    if (!kind || d.text(*kind) != "X") continue;
    JsonObject slice(d, e);
    const double from = d.real(slice.at("ts")) / 1e6, seconds = d.real(slice.at("dur")) / 1e6;
    const auto stream = static_cast<std::size_t>(d.integer(slice.at("tid"), 0, INT32_MAX));
    if (stream >= streams.size()) d.fail(e, fmt::format("is of stream {}, but the plan has {}: the trace is of another plan", stream, streams.size()));
    streams[stream].push_back({from, seconds, d.text(slice.at("name")), &e});
    begin = first ? from : std::min(begin, from);
    first = false;
  }
  std::vector<std::pair<double, double>> out;
  std::vector<std::size_t> at(streams.size());
  for (auto& s : streams) std::stable_sort(s.begin(), s.end(), [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
  for (const ForecastLaunch& l : f.launches) {
    auto s = static_cast<std::size_t>(l.stream);
    const std::string name = launch_name(plan, l);
    if (at[s] >= streams[s].size()) d.fail(*events, fmt::format("lacks '{}': the trace is of another plan, or of an evaluation: run --steps 1 --trace writes that of a step", name));
    const Slice& slice = streams[s][at[s]++];
    if (slice.name != name) d.fail(*slice.at, fmt::format("is '{}' where the plan runs '{}': the trace is of another plan, or of an evaluation: run --steps 1 --trace writes that of a step", slice.name, name));
    out.emplace_back(slice.begin - begin, slice.seconds);
  }
  for (std::size_t s = 0; s < streams.size(); ++s)
    if (at[s] < streams[s].size())
      d.fail(*streams[s][at[s]].at, fmt::format("is '{}' behind the last launch of the plan's stream {}: the trace is of another plan", streams[s][at[s]].name, s));
  return out;
}

std::vector<double> read_trace(const std::string& text, const std::string& file, const PlacedGraph& plan, const Forecast& f) {
  std::vector<double> out;
  double end = 0;
  for (const auto& [begin, seconds] : read_trace_times(text, file, plan, f)) {
    out.push_back(seconds);
    end = std::max(end, begin + seconds);
  }
  out.push_back(end);
  return out;
}

}  // namespace belfry
