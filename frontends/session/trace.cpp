#include <belfry/frontends/session/trace.h>

#include <algorithm>

#include <fmt/format.h>

namespace belfry {

std::string chrome_trace(const BoundPlan& bound, const std::vector<TraceEntry>& trace, const std::vector<GpuReading>& readings) {
  const PlacedGraph& plan = bound.plan;
  std::string out = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  for (std::size_t s = 0; s < plan.streams.size(); ++s)
    out += fmt::format("{{\"ph\": \"M\", \"pid\": 0, \"tid\": {}, \"name\": \"thread_name\", \"args\": {{\"name\": \"{} {}\"}}}},\n", s,
                       to_string(plan.cluster.devices[static_cast<std::size_t>(plan.streams[s].device)].id), plan.streams[s].name);
  out += "{\"ph\": \"M\", \"pid\": 0, \"name\": \"process_name\", \"args\": {\"name\": \"host 0\"}}";
  std::int64_t start = trace.empty() ? 0 : trace.front().begin_ns;
  if (!readings.empty()) start = trace.empty() ? readings.front().at_ns : std::min(start, readings.front().at_ns);
  for (const TraceEntry& e : trace) {
    const Step& step = bound.streams[static_cast<std::size_t>(e.stream)][static_cast<std::size_t>(e.index)];
    const PlanNode& n = plan.nodes[static_cast<std::size_t>(step.node)];
    std::string name = step.tower < 0 ? n.name : fmt::format("tower_{}/{}", step.tower, n.name);
    out += fmt::format(",\n{{\"ph\": \"X\", \"pid\": 0, \"tid\": {}, \"ts\": {:.3f}, \"dur\": {:.3f}, \"name\": \"{}\", \"args\": {{\"op\": \"{}\", \"kernel\": \"{}\", \"tower\": {}, \"phase\": \"{}\"}}}}", e.stream,
                       static_cast<double>(e.begin_ns - start) / 1e3, static_cast<double>(e.end_ns - e.begin_ns) / 1e3, name, n.op, step.variant->kernel, step.tower, to_string(n.role));
  }
  for (const GpuReading& r : readings) {
    auto counter = [&](const char* what, const char* unit, double value) {
      if (value < 0) return;  // it cannot say
      out += fmt::format(",\n{{\"ph\": \"C\", \"pid\": 0, \"ts\": {:.3f}, \"name\": \"gpu:{} {}\", \"args\": {{\"{}\": {}}}}}",
                         static_cast<double>(r.at_ns - start) / 1e3, r.gpu, what, unit, value);
    };
    counter("busy", "percent", r.busy);
    counter("memory busy", "percent", r.memory_busy);
    counter("memory used", "bytes", static_cast<double>(r.used_bytes));
    counter("power", "watts", r.watts);
  }
  return out + "\n]}\n";
}

}  // namespace belfry
