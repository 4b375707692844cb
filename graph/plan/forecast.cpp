#include <belfry/graph/plan/forecast.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include <belfry/graph/plan/forecast_parts_internal.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/small_steps.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

enum Kind { kStart, kFlow, kMoved, kEnd, kLand };
struct Event {
  Kind kind;
  int step;  ///< of kLand: a number among what lands
};

/// Events by time, those of one time in the order in which they were made. Many are made one behind the other for one time, since devices
/// do alike: such a run has one place in the heap.
class Events {
 public:
  bool empty() const { return heap_.empty(); }
  double next() const { return heap_.top().time; }
  void push(double time, Event e) {
    if (open_ < 0 || time != open_time_) {
      if (free_.empty()) free_.push_back(static_cast<int>(runs_.size())), runs_.emplace_back();
      open_ = free_.back(), open_time_ = time;
      free_.pop_back();
      heap_.push({time, count_++, open_});
    }
    runs_[static_cast<std::size_t>(open_)].push_back(e);
  }
  /// The first run, in place of what `events` has.
  void pop(std::vector<Event>& events) {
    const int run = heap_.top().run;
    heap_.pop();
    if (run == open_) open_ = -1;
    events.clear();
    std::swap(events, runs_[static_cast<std::size_t>(run)]);
    free_.push_back(run);
  }

 private:
  struct Run {
    double time;
    std::int64_t number;
    int run;
    bool operator<(const Run& o) const { return time != o.time ? time > o.time : number > o.number; }
  };
  std::priority_queue<Run> heap_;
  std::vector<std::vector<Event>> runs_;
  std::vector<int> free_;       // of the runs
  int open_ = -1;               // the run to which another event of its time is added
  double open_time_ = 0;
  std::int64_t count_ = 0;
};

class Walk {
 public:
  /// `records`: what `report` says, which a search does not ask for.
  Walk(const PlacedGraph& plan, const CostTable& table, ForecastSteps steps, Links& links, CostModel& costs, bool records)
      : plan_(plan), table_(table), steps_(std::move(steps)), links_(links), transfers_(steps_, links_), costs_(costs), max_min_(links_.ways()), records_(records), load_(links_.ways().size()) {}

  /// Seconds of the step; those until then, where something goes on beyond the limit.
  double run(double limit = kNever) {
    prepare();
    std::vector<Event> run;
    while (!events_.empty() || !flows_.empty()) {
      const double now = std::min(events_.empty() ? kNever : events_.next(), flows_end_);
      if (now > limit) return now;
      if (now >= flows_end_) advance_flows(now);
      while (!events_.empty() && events_.next() <= now) {
        events_.pop(run);
        for (const Event& e : run) handle(e, now);
      }
      if (flows_changed_) settle_flows();
    }
    if (ended_ != steps_.steps.size()) throw InternalError("a forecast came to its end before all launches had ended");
    return seconds();
  }

  /// Of the step that was run.
  Forecast report() {
    out_.seconds = seconds();
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
  struct State {
    int pending = 0, cause = -1, open_flows = 0, next = -1;  // next: in its lane
    double ready = 0, idle = kNever;                         // idle: since when its lane waits for nothing but it
    bool came = false;                                       // something, over links
  };

  /// A step is over when the feeds of the next have landed too.
  double seconds() const { return std::max(finished_, out_.landed) + (measured(plan_.cluster.host()) ? table_.step : 0); }
  void at(double time, Kind kind, int step) { events_.push(time, {kind, step}); }
  State& state(int s) { return states_[static_cast<std::size_t>(s)]; }
  ForecastLaunch& launch(int s) { return out_.launches[static_cast<std::size_t>(s)]; }
  const ForecastStep& step(int s) const { return steps_.steps[static_cast<std::size_t>(s)]; }
  int device(int s) const { return step(s).device; }
  /// Whether what the table says of threads holds for the device's.
  bool measured(int device) const { return measured_[static_cast<std::size_t>(device)]; }
  bool on_gpu(int s) const { return gpu_[static_cast<std::size_t>(device(s))]; }

  void prepare() {
    states_.resize(steps_.steps.size());
    left_ = steps_.producers;
    gpu_free_.assign(plan_.cluster.devices.size(), true);
    queued_.resize(plan_.cluster.devices.size());
    taken_until_.resize(plan_.cluster.devices.size());
    memory_.resize(plan_.cluster.devices.size());
    halted_.resize(plan_.cluster.devices.size());
    const ClusterDevice& host = plan_.cluster.devices[static_cast<std::size_t>(plan_.cluster.host())];
    for (const ClusterDevice& d : plan_.cluster.devices) {
      gpu_.push_back(d.id.kind == "gpu");
      bandwidth_.push_back(rate_of(d, plan_.threads).bandwidth);
      measured_.push_back(is_measured(gpu_.back() ? host : d));  // threads of the host wait for a GPU
    }
    find_along();
    if (!links_.empty()) coming_.resize(steps_.steps.size());
    if (records_) out_.launches.reserve(steps_.steps.size());
    for (std::size_t s = 0; records_ && s < steps_.steps.size(); ++s) out_.launches.push_back({steps_.steps[s].node, steps_.steps[s].tower, steps_.steps[s].device, steps_.steps[s].stream});
    for (std::size_t s = 0; s < steps_.steps.size(); ++s) state(static_cast<int>(s)).pending = static_cast<int>(steps_.waits[s].size()) + 1;
    for (const auto& lane : steps_.lanes)
      for (std::size_t k = 0; k + 1 < lane.size(); ++k) state(lane[k]).next = lane[k + 1];
    for (const auto& lane : steps_.lanes)
      if (!lane.empty()) next_in_lane(lane[0], -1, 0);
    landing_ = transfers_.landing();
    for (std::size_t k = 0; k < landing_.size(); ++k) at(links_.latency(landing_[k].second.route), kLand, static_cast<int>(k));
  }

  /// Of small steps that can be one launch the first pays for it; one that waits for another device pays for its own.
  void find_along() {
    along_.resize(steps_.steps.size());
    const std::vector<int> joint = joint_steps(plan_);
    if (std::all_of(joint.begin(), joint.end(), [](int j) { return j < 0; })) return;
    std::vector<int> opened_by(steps_.producers.size(), -1);  // per gate: the device; -2: several
    for (std::size_t s = 0; s < steps_.steps.size(); ++s)
      for (int g : steps_.opens[s]) {
        int& by = opened_by[static_cast<std::size_t>(g)];
        by = by == -1 || by == steps_.steps[s].device ? steps_.steps[s].device : -2;
      }
    std::vector<const ForecastStep*> first(joint.size());  // per number, on the stream that is looked at
    for (std::size_t s = 0; s < steps_.steps.size(); ++s) {
      const ForecastStep& me = steps_.steps[s];
      const int number = joint[static_cast<std::size_t>(me.node)];
      if (number < 0) continue;
      const ForecastStep*& before = first[static_cast<std::size_t>(number)];
      if (!before || before->stream != me.stream || before->variant->kernel != me.variant->kernel) {
        before = &me;
        continue;
      }
      const auto gates = steps_.waits[s];
      along_[s] = std::all_of(gates.begin(), gates.end(), [&](int g) { return opened_by[static_cast<std::size_t>(g)] == me.device; });
    }
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
        advance_flows(now);  // those that are under way go on more slowly from here
        if (on_gpu(e.step)) take(device(e.step), now, transfers_.reading(e.step, coming_[static_cast<std::size_t>(e.step)]));
        for (Flow& f : coming_[static_cast<std::size_t>(e.step)]) {
          send(f, device(e.step), now);
          ++state(e.step).open_flows;
        }
        return;
      case kLand:
        advance_flows(now);
        return send(landing_[static_cast<std::size_t>(e.step)].second, landing_[static_cast<std::size_t>(e.step)].first, now);
      case kMoved: return moved(e.step, now);
      case kEnd: return end(e.step, now);
    }
  }

  void send(Flow& f, int to, double now) {
    for (int w : f.route) load_[static_cast<std::size_t>(w)] += f.bytes;
    use_memory(f.from, f.bytes, now);
    use_memory(to, f.bytes, now);
    flows_.push_back(std::move(f));
    flows_changed_ = true;
  }

  void start(int s, double now) {
    if (records_) launch(s).begin = now;
    if (!transfers_.moves(s)) return moved(s, now);
    if (transfers_.collective(s)) {
      // Everyone must have come; then all are under way for as long as the slowest way takes.
      std::vector<int>& here = arrived_[step(s).node];
      here.push_back(s);
      if (here.size() < plan_.nodes[static_cast<std::size_t>(step(s).node)].holders.size()) return;
      const auto [seconds, kernel, bytes] = transfers_.collective_cost(s, load_);
      for (int other : here) {
        if (other != s) state(other).cause = s;
        if (records_) {
          launch(other).moving = seconds;
          launch(other).fixed = rate_of(plan_.cluster.devices[static_cast<std::size_t>(device(other))], plan_.threads).launch;
          launch(other).begin = now;
        }
        take(device(other), now, kernel);
        use_memory(device(other), bytes, now);
        at(now + seconds, kEnd, other);
      }
      return;
    }
    if (links_.empty()) return moved(s, now);
    std::vector<Flow> coming = transfers_.flows(s);
    if (coming.empty()) return moved(s, now);
    state(s).came = true;
    at(now + transfers_.latency(s, coming), kFlow, s);
    coming_[static_cast<std::size_t>(s)] = std::move(coming);
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
    if (records_) launch(s).moving = now - launch(s).begin;
    if (!on_gpu(s)) return at(now + work(s, now), kEnd, s);
    auto d = static_cast<std::size_t>(device(s));
    if (!gpu_free_[d]) return queued_[d].push(s);
    rest(d, now);
    gpu_free_[d] = false;
    at(now + work(s, now), kEnd, s);
  }

  double work(int s, double now) {
    const ForecastStep& at = step(s);
    Cost c = costs_(at.node, *at.variant, at.tower, at.device, transfers_.parts(s));
    if (along_[static_cast<std::size_t>(s)]) c.seconds -= std::exchange(c.fixed, 0.0);
    if (records_) launch(s).fixed = c.fixed;
    const double seconds = state(s).came && transfers_.arrives_in_place(s) ? c.fixed : c.seconds;
    out_.by_source[static_cast<std::size_t>(c.source)] += seconds;
    if (!on_gpu(s)) return seconds + (measured(at.device) ? table_.dispatch : 0);
    const auto d = static_cast<std::size_t>(at.device);
    const double owed = std::exchange(memory_[d].owed, 0.0), spare = std::max(0.0, seconds - c.memory);  // while it computes its memory has time
    return seconds + std::max(0.0, owed - spare) + std::max(0.0, taken_until_[d] - now);
  }

  void end(int s, double now) {
    if (on_gpu(s) && !transfers_.collective(s))
      if (const double halted = std::exchange(halted_[static_cast<std::size_t>(device(s))], 0.0); halted > 0) return at(now + halted, kEnd, s);
    if (records_) launch(s).end = now;
    ++ended_;
    finished_ = last_ < 0 || now >= finished_ ? (last_ = s, now) : finished_;
    const int lane = steps_.lane_of_stream[static_cast<std::size_t>(step(s).stream)];
    if (int n = state(s).next; n >= 0) next_in_lane(n, s, now);
    for (int g : steps_.opens[static_cast<std::size_t>(s)])
      if (--left_[static_cast<std::size_t>(g)] == 0)
        for (int w : steps_.waiters[static_cast<std::size_t>(g)]) {
          const bool same = steps_.lane_of_stream[static_cast<std::size_t>(step(w).stream)] == lane;
          release(w, s, now + (same || !measured(device(w)) ? 0 : now - state(w).idle > kSpinSeconds ? table_.wake : table_.handoff));
        }
    if (!on_gpu(s) || transfers_.collective(s)) return;
    auto d = static_cast<std::size_t>(device(s));
    if (queued_[d].empty()) {
      gpu_free_[d] = true;
      memory_[d].since = now;
      return;
    }
    const int n = queued_[d].front();
    queued_[d].pop();
    if (records_) launch(n).begin = now - launch(n).moving;  // it begins when the GPU is free
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
      if (f.step < 0) out_.landed = std::max(out_.landed, now);
      else if (--state(f.step).open_flows == 0) at(now, kMoved, f.step);
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
  bool records_;
  Forecast out_;
  std::vector<State> states_;
  std::vector<int> left_;                       // per gate
  Events events_;
  std::vector<std::vector<Flow>> coming_;       // per step, where there are links: what it waits for
  std::vector<std::pair<int, Flow>> landing_;   // and to which devices
  std::vector<Flow> flows_;
  double flows_at_ = 0, flows_end_ = kNever;
  bool flows_changed_ = false;
  std::vector<double> load_;
  std::map<int, std::vector<int>> arrived_;     // per node that is a collective
  std::vector<char> along_;                     // per step
  std::vector<char> gpu_;                       // per device
  std::vector<char> measured_;                  // per device: the table holds for the threads that it waits in
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

double Forecaster::seconds(std::size_t kept_values, const Instances& instances, const NumberLists& readers, double limit) {
  parts_->model.keep(kept_values);
  return Walk(plan_, costs_, ForecastSteps(plan_, instances, readers), parts_->links, parts_->model, false).run(limit);
}

Forecast Forecaster::whole() {
  Walk walk(plan_, costs_, ForecastSteps(plan_), parts_->links, parts_->model, true);
  walk.run();
  return walk.report();
}

Forecast forecast(const PlacedGraph& plan, const CostTable& costs) { return Forecaster(plan, costs).whole(); }

}  // namespace belfry
