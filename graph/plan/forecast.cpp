#include <belfry/graph/plan/forecast.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include <belfry/graph/plan/forecast_parts_internal.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Walk {
 public:
  Walk(const PlacedGraph& plan, const CostTable& table, ForecastSteps steps, Links& links, CostModel& costs) 
      : plan_(plan), table_(table), steps_(std::move(steps)), links_(links), transfers_(steps_, links_), costs_(costs), max_min_(links_.ways()), load_(links_.ways().size()) {}

  /// Seconds of the step.
  double run() {
    prepare();
    while (!events_.empty() || !flows_.empty()) {
      const double now = std::min(events_.empty() ? kNever : events_.top().time, flows_end_);
      advance_flows(now);
      while (!events_.empty() && events_.top().time <= now) {
        Event e = events_.top();
        events_.pop();
        handle(e, now);
      }
      if (flows_changed_) settle_flows();
    }
    if (ended_ != steps_.steps.size()) throw InternalError("a forecast came to its end before all launches had ended");
    return finished_ + table_.step;
  }

  /// Of the step that was run.
  Forecast report() {
    out_.seconds = finished_ + table_.step;
    for (int s = last_; s >= 0; s = state(s).cause) out_.path.push_back(s);
    std::reverse(out_.path.begin(), out_.path.end());
    add_uses(plan_, steps_, out_);
    add_memory(plan_, steps_, out_);
    for (std::size_t w = 0; w < load_.size(); ++w)
      if (load_[w] > 0) out_.links.push_back({links_.ways()[w].from, links_.ways()[w].to, load_[w], load_[w] / links_.ways()[w].bandwidth});
    if (links_.empty() && plan_.cluster.devices.size() <= 256)
      for (const LinkLoad& l : link_bytes(plan_)) out_.links.push_back({l.from, l.to, static_cast<double>(l.bytes), 0});
    std::stable_sort(out_.links.begin(), out_.links.end(), [](const LinkForecast& a, const LinkForecast& b) { return a.busy != b.busy ? a.busy > b.busy : a.bytes > b.bytes; });
    return std::move(out_);
  }

 private:
  enum Kind { kStart, kFlow, kMoved, kEnd };
  struct Event {
    double time;
    std::int64_t number;  // equal times go in the order in which they were made
    Kind kind;
    int step;
    bool operator<(const Event& o) const { return time != o.time ? time > o.time : number > o.number; }
  };
  struct State {
    int pending = 0, cause = -1, open_flows = 0;
    double ready = 0, idle = kNever;  // since when its lane waits for nothing but it
  };

  void at(double time, Kind kind, int step) { events_.push({time, count_++, kind, step}); }
  State& state(int s) { return states_[static_cast<std::size_t>(s)]; }
  ForecastLaunch& launch(int s) { return out_.launches[static_cast<std::size_t>(s)]; }
  bool on_gpu(int s) const { return gpu_[static_cast<std::size_t>(steps_.steps[static_cast<std::size_t>(s)].device)]; }

  void prepare() {
    states_.resize(steps_.steps.size());
    left_ = steps_.producers;
    next_.assign(steps_.steps.size(), -1);
    gpu_free_.assign(plan_.cluster.devices.size(), true);
    queued_.resize(plan_.cluster.devices.size());
    taken_until_.resize(plan_.cluster.devices.size());
    memory_.resize(plan_.cluster.devices.size());
    halted_.resize(plan_.cluster.devices.size());
    for (const ClusterDevice& d : plan_.cluster.devices) {
      gpu_.push_back(d.id.kind == "gpu");
      bandwidth_.push_back(rate_of(d, plan_.threads).bandwidth);
    }
    if (!links_.empty()) coming_.resize(steps_.steps.size());
    out_.launches.reserve(steps_.steps.size());
    for (const ForecastStep& s : steps_.steps) out_.launches.push_back({s.node, s.tower, s.device, s.stream});
    for (std::size_t s = 0; s < steps_.steps.size(); ++s) state(static_cast<int>(s)).pending = static_cast<int>(steps_.waits[s].size()) + 1;
    for (const auto& lane : steps_.lanes)
      for (std::size_t k = 0; k + 1 < lane.size(); ++k) next_[static_cast<std::size_t>(lane[k])] = lane[k + 1];
    for (const auto& lane : steps_.lanes)
      if (!lane.empty()) next_in_lane(lane[0], -1, 0);
  }

  /// One thing less that the step waits for; what is last is its cause.
  void release(int s, int by, double time) {
    State& w = state(s);
    if (time >= w.ready) w.ready = time, w.cause = by;
    if (--w.pending == 0) at(w.ready, kStart, s);
  }

  void next_in_lane(int s, int by, double time) {
    state(s).idle = time;
    release(s, by, time);
  }

  void handle(const Event& e, double now) {
    switch (e.kind) {
      case kStart: return start(e.step, now);
      case kFlow:
        if (on_gpu(e.step)) take(launch(e.step).device, now, transfers_.reading(e.step, coming_[static_cast<std::size_t>(e.step)]));
        for (Flow& f : coming_[static_cast<std::size_t>(e.step)]) {
          for (int w : f.route) load_[static_cast<std::size_t>(w)] += f.bytes;
          use_memory(f.from, f.bytes, now);
          use_memory(launch(e.step).device, f.bytes, now);
          flows_.push_back(std::move(f));
          ++state(e.step).open_flows;
        }
        flows_changed_ = true;
        return;
      case kMoved: return moved(e.step, now);
      case kEnd: return end(e.step, now);
    }
  }

  void start(int s, double now) {
    launch(s).begin = now;
    if (transfers_.collective(s)) {
      // Everyone must have come; then all are under way for as long as the slowest way takes.
      std::vector<int>& here = arrived_[launch(s).node];
      here.push_back(s);
      if (here.size() < plan_.nodes[static_cast<std::size_t>(launch(s).node)].holders.size()) return;
      const auto [seconds, kernel, bytes] = transfers_.collective_cost(s, load_);
      for (int other : here) {
        if (other != s) state(other).cause = s;
        launch(other).moving = seconds;
        launch(other).fixed = rate_of(plan_.cluster.devices[static_cast<std::size_t>(launch(other).device)], plan_.threads).launch;
        launch(other).begin = now;
        take(launch(other).device, now, kernel);
        use_memory(launch(other).device, bytes, now);
        at(now + seconds, kEnd, other);
      }
      return;
    }
    if (links_.empty()) return moved(s, now);
    std::vector<Flow>& coming = coming_[static_cast<std::size_t>(s)] = transfers_.flows(s);
    if (coming.empty()) moved(s, now);
    else at(now + transfers_.latency(s, coming), kFlow, s);
  }

  /// A kernel that waits for links has the GPU, for all but its overlap.
  void take(int device, double now, double seconds) {
    const auto d = static_cast<std::size_t>(device);
    const double taken = (1 - plan_.cluster.devices[d].overlap) * seconds;
    taken_until_[d] = std::max(taken_until_[d], now) + taken;
    if (!gpu_free_[d]) halted_[d] += taken;
  }

  /// What moves is read from a GPU's memory, or written there: kernels beside it have that much less of it, unless nothing runs.
  void use_memory(int device, double bytes, double now) {
    const auto d = static_cast<std::size_t>(device);
    if (!gpu_[d]) return;
    rest(d, now);
    memory_[d].owed += bytes / bandwidth_[d];
  }
  void rest(std::size_t d, double now) {
    if (gpu_free_[d]) memory_[d].owed = std::max(0.0, memory_[d].owed - (now - memory_[d].since));
    memory_[d].since = now;
  }

  /// Its bytes are here: what is left is the device's own work.
  void moved(int s, double now) {
    launch(s).moving = now - launch(s).begin;
    if (!on_gpu(s)) return at(now + work(s, now), kEnd, s);
    auto d = static_cast<std::size_t>(launch(s).device);
    if (!gpu_free_[d]) return queued_[d].push(s);
    rest(d, now);
    gpu_free_[d] = false;
    at(now + work(s, now), kEnd, s);
  }

  double work(int s, double now) {
    const ForecastStep& step = steps_.steps[static_cast<std::size_t>(s)];
    const Cost c = costs_(step.node, *step.variant, step.tower, step.device, transfers_.parts(s));
    launch(s).fixed = c.fixed;
    const bool came = !links_.empty() && !coming_[static_cast<std::size_t>(s)].empty();
    const double seconds = came && transfers_.arrives_in_place(s) ? c.fixed : c.seconds;
    out_.by_source[static_cast<std::size_t>(c.source)] += seconds;
    if (!on_gpu(s)) return seconds + table_.dispatch;
    const auto d = static_cast<std::size_t>(step.device);
    const double owed = std::exchange(memory_[d].owed, 0.0), spare = std::max(0.0, seconds - c.memory);  // while it computes its memory has time
    return seconds + std::max(0.0, owed - spare) + std::max(0.0, taken_until_[d] - now);
  }

  void end(int s, double now) {
    if (on_gpu(s) && !transfers_.collective(s))
      if (const double halted = std::exchange(halted_[static_cast<std::size_t>(launch(s).device)], 0.0); halted > 0) return at(now + halted, kEnd, s);
    launch(s).end = now;
    ++ended_;
    finished_ = last_ < 0 || now >= finished_ ? (last_ = s, now) : finished_;
    const int lane = steps_.lane_of_stream[static_cast<std::size_t>(launch(s).stream)];
    if (int n = next_[static_cast<std::size_t>(s)]; n >= 0) next_in_lane(n, s, now);
    for (int g : steps_.opens[static_cast<std::size_t>(s)])
      if (--left_[static_cast<std::size_t>(g)] == 0)
        for (int w : steps_.waiters[static_cast<std::size_t>(g)]) {
          const bool same = steps_.lane_of_stream[static_cast<std::size_t>(launch(w).stream)] == lane;
          release(w, s, now + (same ? 0 : now - state(w).idle > kSpinSeconds ? table_.wake : table_.handoff));
        }
    if (!on_gpu(s) || transfers_.collective(s)) return;
    auto d = static_cast<std::size_t>(launch(s).device);
    if (queued_[d].empty()) {
      gpu_free_[d] = true;
      memory_[d].since = now;
      return;
    }
    const int n = queued_[d].front();
    queued_[d].pop();
    launch(n).begin = now - launch(n).moving;  // it begins when the GPU is free
    state(n).cause = s;
    at(now + work(n, now), kEnd, n);
  }

  void advance_flows(double now) {
    for (std::size_t i = 0; i < flows_.size();) {
      Flow& f = flows_[i];
      f.bytes -= f.rate * (now - flows_at_);
      if (f.bytes > f.rate * (1e-12 + now * 1e-15) + 1e-6) {  // more than what the clock rounds off
        ++i;
        continue;
      }
      if (--state(f.step).open_flows == 0) at(now, kMoved, f.step);
      flows_[i] = std::move(flows_.back());
      flows_.pop_back();
      flows_changed_ = true;
    }
    flows_at_ = now;
  }

  void settle_flows() {
    max_min_.share(flows_);
    flows_end_ = kNever;
    for (const Flow& f : flows_) flows_end_ = std::min(flows_end_, flows_at_ + f.bytes / f.rate);
    flows_changed_ = false;
  }

  const PlacedGraph& plan_;
  const CostTable& table_;
  ForecastSteps steps_;
  Links& links_;
  Transfers transfers_;
  CostModel& costs_;
  MaxMin max_min_;
  Forecast out_;
  std::vector<State> states_;
  std::vector<int> left_, next_;                // per gate, per step in its lane
  std::priority_queue<Event> events_;
  std::int64_t count_ = 0;
  std::vector<std::vector<Flow>> coming_;       // per step, where there are links: what it waits for
  std::vector<Flow> flows_;
  double flows_at_ = 0, flows_end_ = kNever;
  bool flows_changed_ = false;
  std::vector<double> load_;
  std::map<int, std::vector<int>> arrived_;     // per node that is a collective
  std::vector<char> gpu_;                       // per device
  std::vector<char> gpu_free_;                  // a GPU computes one kernel at a time, whatever its streams
  std::vector<std::queue<int>> queued_;
  std::vector<double> taken_until_;             // per GPU: collectives have it, or a sum that reads others
  std::vector<double> halted_;                  // of it what the kernel that was under way has still to wait
  struct Memory {
    double owed = 0, since = 0;                 // seconds that moves have of its memory, while it is free less and less
  };
  std::vector<Memory> memory_;                  // per GPU
  std::vector<double> bandwidth_;
  double finished_ = 0;
  int last_ = -1;
  std::size_t ended_ = 0;
};

}  // namespace

struct Forecaster::Parts {
  Links links;
  CostModel model;
};

Forecaster::Forecaster(const PlacedGraph& plan, const CostTable& costs) : plan_(plan), costs_(costs), parts_(std::make_unique<Parts>(Parts{Links(plan.cluster), CostModel(plan, costs)})) {}

Forecaster::~Forecaster() = default;

double Forecaster::seconds(std::size_t kept_values, const Instances& instances, const NumberLists& readers) {
  parts_->model.keep(kept_values);
  return Walk(plan_, costs_, ForecastSteps(plan_, instances, readers), parts_->links, parts_->model).run();
}

Forecast Forecaster::whole() {
  Walk walk(plan_, costs_, ForecastSteps(plan_), parts_->links, parts_->model);
  walk.run();
  return walk.report();
}

Forecast forecast(const PlacedGraph& plan, const CostTable& costs) { return Forecaster(plan, costs).whole(); }

}  // namespace belfry
