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

double seconds_between(std::int64_t begin_ns, std::int64_t end_ns) { return static_cast<double>(end_ns - begin_ns) / 1e9; }

struct Mean {
  double sum = 0;
  std::size_t count = 0;
  void add(double x) { sum += x, ++count; }
  double value() const { return count ? sum / static_cast<double>(count) : 0; }
};

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

int Calibration::kernel(const BoundPlan& bound, const Step& step) {
  const PlacedGraph& plan = bound.plan;
  const PlanNode& n = plan.nodes[static_cast<std::size_t>(step.node)];
  const Share share = plan.share(step.tower);
  auto [at, fresh] = numbers_.try_emplace({cost_key(plan, n, *step.variant, share, parts_of(step)), cost_rows(plan, n, share)}, static_cast<int>(kernels_.size()));
  if (fresh) kernels_.push_back({at->first.first, at->first.second, work_of(plan, n, share, parts_of(step))});
  return at->second;
}

void Calibration::add_trace(const BoundPlan& bound, const std::vector<TraceEntry>& trace, double seconds) {
  if (trace.empty()) return;
  const PlacedGraph& plan = bound.plan;
  std::vector<std::vector<std::int64_t>> end(bound.streams.size());  // of every step
  for (std::size_t s = 0; s < end.size(); ++s) end[s].resize(bound.streams[s].size());
  for (const TraceEntry& e : trace) end[static_cast<std::size_t>(e.stream)][static_cast<std::size_t>(e.index)] = e.end_ns;
  std::map<int, const TraceEntry*> before;  // per thread
  TracedStep out;
  std::int64_t last_end = 0;
  for (const TraceEntry& e : trace) {
    const Step& step = bound.streams[static_cast<std::size_t>(e.stream)][static_cast<std::size_t>(e.index)];
    out.launches.emplace_back(kernel(bound, step), seconds_between(e.begin_ns, e.end_ns));
    last_end = std::max(last_end, e.end_ns);
    const int thread = plan.streams[static_cast<std::size_t>(e.stream)].thread;
    std::int64_t waited = 0;
    for (const StepWait& w : step.waits)
      if (plan.streams[static_cast<std::size_t>(w.stream)].thread != thread) waited = std::max(waited, end[static_cast<std::size_t>(w.stream)][static_cast<std::size_t>(w.count) - 1]);
    if (const TraceEntry* last = before[thread]) {
      if (waited <= last->end_ns) out.gaps.push_back(seconds_between(last->end_ns, e.begin_ns));
      else if (waited <= e.begin_ns) (seconds_between(last->end_ns, waited) > kSpinSeconds ? out.wakes : out.handoffs).push_back(seconds_between(waited, e.begin_ns));
    }
    before[thread] = &e;
  }
  out.seconds = seconds;
  out.beside = seconds - seconds_between(trace.front().begin_ns, last_end);
  steps_[id_of(plan)].push_back(std::move(out));
}

CostTable Calibration::table(std::string machine) const {
  CostTable out;
  out.machine = std::move(machine);
  out.memmove = memmove_bandwidth();
  std::vector<Mean> seconds(kernels_.size());
  std::vector<double> beside;  // per plan
  Mean gaps, handoffs, wakes;
  for (const auto& [id, steps] : steps_) {
    std::vector<const TracedStep*> order;
    for (const TracedStep& s : steps) order.push_back(&s);
    std::stable_sort(order.begin(), order.end(), [](const TracedStep* a, const TracedStep* b) { return a->seconds < b->seconds; });
    order.resize((order.size() + 1) / 2);
    std::vector<double> here;
    for (const TracedStep* s : order) {
      for (auto [k, t] : s->launches) seconds[static_cast<std::size_t>(k)].add(t);
      for (double g : s->gaps) gaps.add(g);
      for (double h : s->handoffs) handoffs.add(h);
      for (double w : s->wakes) wakes.add(w);
      here.push_back(s->beside);
    }
    beside.push_back(spread_of(here).median);
  }
  out.dispatch = gaps.value();
  out.handoff = handoffs.value();
  out.wake = wakes.count ? wakes.value() : out.handoff;
  // Putting a trace together is a part of it, the less the fewer launches there are.
  if (!beside.empty()) out.step = std::max(0.0, *std::min_element(beside.begin(), beside.end()));
  for (const auto& [key, k] : numbers_)
    if (const Mean& m = seconds[static_cast<std::size_t>(k)]; m.count) out.kernels[key.first].push_back({key.second, m.value(), kernels_[static_cast<std::size_t>(k)].work});
  return out;
}

MeasuredSeconds spread_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  auto at = [&](double share) { return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))]; };
  const auto half = static_cast<std::ptrdiff_t>((seconds.size() + 1) / 2);
  const double median = (seconds[(seconds.size() - 1) / 2] + seconds[seconds.size() / 2]) / 2;
  return {median, std::accumulate(seconds.begin(), seconds.begin() + half, 0.0) / static_cast<double>(half), at(0.1), at(0.9)};
}

bool disturbed(const MeasuredSeconds& steps) { return steps.high >= 1.5 * steps.quiet; }

double timed_step(Session& session, const std::map<std::string, HostTensor>& feeds, const std::vector<std::string>& fetches, Mode mode) {
  const Batch batch(feeds);
  auto start = Clock::now();
  if (mode == Mode::step && !trains(session.training_graph())) mode = Mode::run;
  mode == Mode::step ? session.step(batch, fetches) : mode == Mode::run ? session.run(batch, fetches) : session.predict(batch, fetches);
  return seconds_since(start);
}

double traced_step(Session& session, const std::map<std::string, HostTensor>& feeds, const std::vector<std::string>& fetches, Mode mode) {
  session.set_trace(true);
  const double out = timed_step(session, feeds, fetches, mode);
  session.set_trace(false);
  return out;
}

void measure_round(Session& session, const std::map<std::string, HostTensor>& feeds, std::int64_t round, std::vector<double>& seconds, Calibration* calibration, Mode mode) {
  timed_step(session, feeds, {}, mode);  // other sessions have taken the caches
  auto trace = [&] {
    const double took = traced_step(session, feeds, {}, mode);
    if (round >= 0) calibration->add_trace(session.last_program()->bound(), session.trace(), took);
  };
  const bool first = round % 2;
  if (calibration && first) trace();
  const double took = timed_step(session, feeds, {}, mode);
  if (round >= 0) seconds.push_back(took);
  if (calibration && !first) trace();
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
