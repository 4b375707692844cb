#include <belfry/frontends/session/calibration.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

namespace belfry {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string id_of(const PlacedGraph& plan) { return plan.arithmetic_hash + "/" + plan.placement.strategy + "/" + std::to_string(plan.streams.size()); }

double seconds_of(const TraceEntry& e) { return static_cast<double>(e.end_ns - e.begin_ns) / 1e9; }

int parts_of(const Step& step) { return step.reads.empty() ? 0 : static_cast<int>(step.reads[0].size()); }

}  // namespace

std::map<std::string, HostTensor> synthetic_feeds(const Graph& graph, std::int64_t batch) {
  std::map<std::string, HostTensor> out;
  std::uint32_t x = 1;
  for (NodeId id : graph.inputs()) {
    const Node& n = graph.node(id);
    HostTensor t(n.types[0].dtype, extents_of(n.types[0].shape, batch));
    if (t.dtype() == f32)
      for (float& v : t.data<float>()) v = static_cast<float>((x = x * 1664525u + 1013904223u) >> 8) / 16777216.0f;
    if (t.dtype() == f64)
      for (double& v : t.data<double>()) v = static_cast<double>((x = x * 1664525u + 1013904223u) >> 8) / 16777216.0;
    out.insert_or_assign(n.name, std::move(t));
  }
  return out;
}

void Calibration::add_trace(const BoundPlan& bound, const std::vector<TraceEntry>& trace) {
  const PlacedGraph& plan = bound.plan;
  PlanTimes& times = plans_[id_of(plan)];
  times.launches = trace.size();
  std::vector<std::vector<std::int64_t>> end(bound.streams.size());  // of every step
  for (std::size_t s = 0; s < end.size(); ++s) end[s].resize(bound.streams[s].size());
  for (const TraceEntry& e : trace) end[static_cast<std::size_t>(e.stream)][static_cast<std::size_t>(e.index)] = e.end_ns;
  std::map<int, const TraceEntry*> before;  // per thread
  double sum = 0;
  for (const TraceEntry& e : trace) {
    const Step& step = bound.streams[static_cast<std::size_t>(e.stream)][static_cast<std::size_t>(e.index)];
    const PlanNode& n = plan.nodes[static_cast<std::size_t>(step.node)];
    const Share share = plan.share(step.tower);
    sum += seconds_of(e);
    Samples& samples = kernels_[cost_key(plan, n, *step.variant, share)][cost_rows(plan, n, share)];
    if (samples.seconds.empty()) samples.work = work_of(plan, n, share, parts_of(step));
    samples.seconds.push_back(seconds_of(e));
    const int thread = plan.streams[static_cast<std::size_t>(e.stream)].thread;
    std::int64_t waited = 0;
    for (const StepWait& w : step.waits)
      if (plan.streams[static_cast<std::size_t>(w.stream)].thread != thread) waited = std::max(waited, end[static_cast<std::size_t>(w.stream)][static_cast<std::size_t>(w.count) - 1]);
    if (const TraceEntry* last = before[thread]) {
      if (waited <= last->end_ns) gaps_.push_back(static_cast<double>(e.begin_ns - last->end_ns) / 1e9);
      else if (waited <= e.begin_ns) handoffs_.push_back(static_cast<double>(e.begin_ns - waited) / 1e9);
    }
    before[thread] = &e;
  }
  times.one_thread = before.size() == 1;
  times.sums.push_back(sum);
}

void Calibration::add_step(const BoundPlan& bound, double seconds) { plans_[id_of(bound.plan)].steps.push_back(seconds); }

CostTable Calibration::table(std::string machine, Keep keep) const {
  auto kept = [keep](const std::vector<double>& seconds) {
    const MeasuredSeconds s = spread_of(seconds);
    return keep == Keep::mean ? s.mean : s.quarter;
  };
  CostTable out;
  out.machine = std::move(machine);
  out.memmove = memmove_bandwidth();
  out.dispatch = kept(gaps_);
  out.handoff = kept(handoffs_);
  std::vector<double> beside;
  for (const auto& [id, times] : plans_)
    if (times.one_thread && !times.steps.empty() && !times.sums.empty())
      beside.push_back(kept(times.steps) - kept(times.sums) - static_cast<double>(times.launches) * out.dispatch);
  out.step = std::max(0.0, spread_of(beside).quarter);
  for (const auto& [key, by_rows] : kernels_)
    for (const auto& [rows, samples] : by_rows) out.kernels[key].push_back({rows, kept(samples.seconds), samples.work});
  return out;
}

MeasuredSeconds spread_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  auto at = [&](double share) { return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))]; };
  return {at(0.5), at(0.25), at(0.1), at(0.9), std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size())};
}

double timed_step(Session& session, const std::map<std::string, HostTensor>& feeds, const std::vector<std::string>& fetches) {
  const Batch batch(feeds);
  auto start = Clock::now();
  session.step(batch, fetches);
  return seconds_since(start);
}

double memmove_bandwidth() {
  std::vector<char> from(std::size_t{1} << 26, 1), to(from.size());
  double best = 0;
  for (int round = 0; round < 8; ++round) {
    auto start = Clock::now();
    std::memmove(to.data(), from.data(), from.size());
    best = std::max(best, static_cast<double>(from.size()) / seconds_since(start));
    std::swap(from, to);  // what was written is read next
  }
  return best;
}

}  // namespace belfry
