// The part of Runner that puts work on the queues of devices. What is there is computed later: waits between queues are theirs, and
// `drain` sees the errors.
#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/executor/joint_launch.h>
#include <belfry/executor/run.h>
#include <belfry/graph/plan/lanes.h>
#include <belfry/graph/plan/small_steps.h>

namespace belfry {

namespace {

template <class V>
auto& of(V& v, int i) {
  return v[static_cast<std::size_t>(i)];
}

constexpr int kMostLanes = 16;  // more would not run at once

/// Names what is put on queues meanwhile.
class Named {
 public:
  Named(Queue* queue, const char* name) : queue_(queue) {
    if (queue) queue->begin_range(name);
  }
  ~Named() {
    if (queue_) queue_->end_range();
  }
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;

 private:
  Queue* queue_;
};

/// Called where an error is caught, which it throws on: whose device is not lost by it is told how to do without recording.
[[noreturn]] void stop_recording(Queue& origin) {
  try {
    origin.end_capture();
  } catch (const DeviceError&) {  // the first error is the one to tell
  }
  try {
    throw;
  } catch (const DeviceError& e) {
    if (!origin.works()) throw;
    throw DeviceError(fmt::format("{}; it was to be recorded: with --no-cuda-graph each kernel is launched by itself", e.what()));
  }
}

/// What is recorded of a segment: a launch of some of its tasks, or a word to the host behind one.
struct Item {
  std::vector<std::size_t> tasks;  // in the place of the last
  bool tells;
};

struct Items {
  std::vector<Item> all;
  Precedence order;
};

/// The host is told of a step once all that was put before it is done: its counters mean all of a stream, and what that has waited for.
Items items_of(const Segment& s, const Task* tasks) {
  Items out;
  std::vector<std::vector<std::size_t>> launches(s.place.size());
  for (std::size_t t = 0; t < s.place.size(); ++t) of(launches, s.place[t]).push_back(t);
  std::vector<int> item_of(s.place.size()), untold;  // per task; all since the host was last told something
  for (std::size_t t = 0; t < s.place.size(); ++t) {
    if (launches[t].empty()) continue;
    const int me = static_cast<int>(out.all.size());
    std::set<int> before;
    for (std::size_t member : launches[t]) {
      for (int b : s.order[member]) before.insert(of(item_of, b));
      item_of[member] = me;
    }
    out.all.push_back({std::move(launches[t]), false});
    out.order.emplace_back(before.begin(), before.end());
    untold.push_back(me);
    if (!tasks[t].signals) continue;
    out.all.push_back({{t}, true});
    out.order.push_back(untold);
    untold.assign(1, me + 1);
  }
  return out;
}

/// On a lane, whatever queues the tasks have.
void launch_on(Queue& lane, const std::vector<std::size_t>& launched, const Task* tasks) {
  std::vector<Arguments> arguments;
  for (std::size_t t : launched) {
    arguments.push_back(*tasks[t].arguments);
    arguments.back().queue = &lane;
    arguments.back().stream = lane.stream();
  }
  if (launched.size() == 1) return tasks[launched[0]].kernel->launch(arguments[0]);
  std::vector<LaunchesJointly::One> all;
  for (std::size_t k = 0; k < launched.size(); ++k) all.push_back({dynamic_cast<LaunchesJointly*>(tasks[launched[k]].kernel), &arguments[k]});
  all.back().kernel->launch_jointly(all);
}

}  // namespace

/// A segment ends where a task waits for the host or another thread's queue, and behind what such a queue waits for.
void Runner::find_segments(int thread) {
  if (program_.queues(thread).empty()) return;
  const std::vector<Task>& tasks = program_.tasks(thread);
  std::vector<Segment>& out = of(segments_, thread);
  auto device_of = [&](const Task& t) { return program_.plan().streams[static_cast<std::size_t>(t.stream)].device; };
  bool ended = true;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& t = tasks[i];
    bool recorded = t.drive && t.kernel->capturable();
    bool waits = t.wait_count || (t.drive && std::any_of(t.drive->waits.begin(), t.drive->waits.end(), [](const QueueWait& w) { return w.task < 0; }));
    bool elsewhere = !out.empty() && t.drive && out.back().captured && device_of(t) != device_of(tasks[out.back().first]);
    if (ended || waits || !recorded || !out.back().captured || elsewhere) out.push_back({i, i, recorded});
    Segment& s = out.back();
    s.past = i + 1;
    if (t.drive && !s.origin) s.origin = t.drive->queue;
    s.feeds = s.feeds || (t.drive && t.drive->feeds);
    if (t.drive && t.drive->landed) s.landed = t.drive->landed;
    ended = (t.drive && t.drive->mark_for_others) || s.past - s.first == kLongestSegment;
  }
  for (Segment& s : out) {
    s.captured = s.captured && s.past - s.first > 1;  // one alone is launched as fast
    if (s.captured) s.name = std::string(tasks[s.first].drive->name) + " … " + tasks[s.past - 1].drive->name;
  }
  std::vector<bool> small;
  for (Small s : small_steps(program_.plan())) small.push_back(s != Small::no);
  for (Segment& s : out)
    if (s.captured) find_launches(thread, s, small);
}

/// Small steps are one launch where their kernels can do that.
void Runner::find_launches(int thread, Segment& s, const std::vector<bool>& small) {
  const Task* tasks = program_.tasks(thread).data() + s.first;
  std::vector<const Step*> steps;
  std::vector<Joining> joining;
  std::map<const void*, int> kinds;
  for (const Task* t = tasks; t != tasks + (s.past - s.first); ++t) {
    steps.push_back(t->step);
    auto* kernel = small[static_cast<std::size_t>(steps.back()->node)] ? dynamic_cast<LaunchesJointly*>(t->kernel) : nullptr;
    joining.push_back({-1, 1, t->signals});
    if (kernel) joining.back() = {kinds.try_emplace(kernel->kind(), static_cast<int>(kinds.size())).first->second, kernel->most(), t->signals};
  }
  s.order = precedence(steps);
  s.place = joined(s.order, joining);
}

/// False if the run was aborted.
bool Runner::wait_for_others(int thread, const Task& task) {
  // What is waited for may itself wait for this thread's queues, which a fault keeps from ever saying so.
  auto look = [&] {
    for (Queue* q : program_.queues(thread)) q->check();
  };
  for (int w = 0; w < task.wait_count; ++w)
    if (!of(events_, task.waits[w].stream).wait(task.waits[w].count, look)) return false;
  if (task.drive)
    for (const QueueWait& w : task.drive->waits)
      if (w.task < 0 && !of(queued_, w.stream).wait(w.count, look)) return false;
  return !failed_.load(std::memory_order_relaxed);
}

/// Launches with all that stands around it but waits.
void Runner::put(int thread, const Task& task) {
  const Step& step = *task.step;
  Queue* queue = task.drive ? task.drive->queue : nullptr;
  const bool watched = options_->before || options_->after;
  const Named named(queue, task.drive ? task.drive->name : "");
  if (options_->delays) std::this_thread::sleep_for(std::chrono::microseconds(std::mt19937_64(options_->delays * 1000003 + static_cast<std::uint64_t>(task.stream) * 8191 + static_cast<std::uint64_t>(task.index))() % 200));
  if (watched && queue) queue->finish();
  if (options_->before) options_->before(step);
  if (options_->trace && queue) queue->stamp();
  std::int64_t begin = options_->trace ? now_ns() : 0;
  launch(task);
  if (options_->trace && queue) queue->stamp();
  if (options_->trace && !queue) of(trace_of_thread_, thread).push_back({task.stream, task.index, begin, now_ns()});
  if (watched && queue) queue->finish();
  if (options_->after) options_->after(step);
  if (!queue) {
    if (task.signals) of(events_, task.stream).signal(task.index + 1);
    return;
  }
  if (task.drive->mark >= 0) queue->mark(task.drive->mark);
  if (task.signals) queue->signal(of(events_, task.stream), task.index + 1);
}

bool Runner::is_captured(int thread, int task) const {
  const std::vector<Segment>& segments = of(segments_, thread);
  auto past = std::upper_bound(segments.begin(), segments.end(), static_cast<std::size_t>(task), [](std::size_t i, const Segment& s) { return i < s.first; });
  return std::prev(past)->captured;
}

/// Steps that need not wait for each other are recorded on lanes of their own; the order of bytes holds all others apart.
void Runner::record(int thread, Segment& s) {
  const Task* tasks = program_.tasks(thread).data() + s.first;
  const auto [items, order] = items_of(s, tasks);
  Lanes lanes = assign_lanes(reduced(order));
  lanes.count = std::min(lanes.count, kMostLanes);
  for (int& lane : lanes.lane) lane %= kMostLanes;
  std::vector<int> mark(items.size(), -1), marks(static_cast<std::size_t>(lanes.count));  // of what another lane waits for; per lane
  for (const std::vector<int>& waits : lanes.waits)
    for (int w : waits)
      if (of(mark, w) < 0) of(mark, w) = of(marks, of(lanes.lane, w))++;
  std::vector<bool> urgent(static_cast<std::size_t>(lanes.count), true);  // all of it is: what lies between holds up nothing else
  for (std::size_t i = 0; i < items.size(); ++i)
    if (program_.plan().streams[static_cast<std::size_t>(tasks[items[i].tasks.back()].stream)].name != "main") urgent[static_cast<std::size_t>(lanes.lane[i])] = false;
  const std::vector<Queue*> on = lanes_for(thread, urgent, tasks[0].stream);
  s.origin->begin_capture();
  for (Queue* lane : on) lane->join(*s.origin);
  for (std::size_t i = 0; i < items.size(); ++i) {
    Queue& lane = *of(on, lanes.lane[i]);
    for (int w : lanes.waits[i]) lane.wait(*of(on, of(lanes.lane, w)), of(mark, w));
    const Task& task = tasks[items[i].tasks.back()];
    lane.enter();
    const Named named(&lane, task.drive->name);
    if (items[i].tells) lane.signal(of(events_, task.stream), task.index + 1);
    else launch_on(lane, items[i].tasks, tasks);
    if (mark[i] >= 0) lane.mark(mark[i]);
  }
  for (Queue* lane : on) s.origin->join(*lane);
  s.graphs[s.feeds ? staged_in_ : 0] = s.origin->end_capture();
}

/// What is recorded needs its streams no longer: all segments are recorded on the same ones.
std::vector<Queue*> Runner::lanes_for(int thread, const std::vector<bool>& urgent, int stream) {
  std::vector<Queue*> out;
  std::size_t used[2] = {};
  for (bool u : urgent) {
    auto& pool = of(lanes_[u], thread);
    if (used[u] == pool.size()) pool.push_back(program_.make_lane(stream, u ? Urgency::joins : Urgency::computes));
    out.push_back(pool[used[u]++].get());
  }
  return out;
}

/// Everything that the thread has put on its queues comes before, and everything that follows behind.
void Runner::run_captured(int thread, Segment& s) {
  for (Queue* q : program_.queues(thread))
    if (q != s.origin) s.origin->join(*q);
  std::unique_ptr<Captured>& graph = s.graphs[s.feeds ? staged_in_ : 0];
  if (!graph) {
    try {
      record(thread, s);
    } catch (...) {
      stop_recording(*s.origin);
    }
  }
  for (std::size_t i = s.first; i < s.past; ++i)
    if (int update = program_.tasks(thread)[i].update; update >= 0) of(updates_, update) = kBegun;
  {
    const Named named(s.origin, s.name.c_str());
    s.origin->launch(*graph);
  }
  for (Queue* q : program_.queues(thread))
    if (q != s.origin) q->join(*s.origin);
  const Task& last = program_.tasks(thread)[s.past - 1];
  if (last.drive->mark_for_others) last.drive->queue->mark(last.drive->mark);
}

/// What is compiled for launches of several tasks is loaded before anything of the first recorded step is on a queue: a load may wait for a collective that waits for another GPU.
void Runner::prepare_launches(int thread) {
  std::vector<LaunchesJointly*> joint;
  for (Segment& s : of(segments_, thread)) {
    if (!s.captured || s.prepared) continue;
    for (std::size_t t = 0; t < s.place.size(); ++t)
      if (s.place[t] != static_cast<int>(t)) joint.push_back(&dynamic_cast<LaunchesJointly&>(*program_.tasks(thread)[s.first + static_cast<std::size_t>(s.place[t])].kernel));
  }
  for (LaunchesJointly* j : joint) j->prepare_joint();
  for (LaunchesJointly* j : joint) j->finish_joint();
  for (Segment& s : of(segments_, thread)) s.prepared = s.captured;  // not before all is loaded: within a capture nothing can be
}

void Runner::drive(int thread, const Task*& at) {
  const Task* tasks = program_.tasks(thread).data();
  const bool graphs = warm_ && options_->graphs && !options_->trace && !options_->delays && !options_->before && !options_->after;
  if (options_->trace)
    for (Queue* q : program_.queues(thread)) q->stamp();
  if (graphs) prepare_launches(thread);
  for (Segment& s : of(segments_, thread)) {
    const bool captured = graphs && s.captured;
    at = tasks + s.first;
    if (captured) {
      if (!wait_for_others(thread, *at)) return;
      for (const QueueWait& w : at->drive->waits)
        if (w.task < 0) s.origin->wait(*w.queue, w.mark);
      if (s.landed) s.origin->wait(*s.landed, 0);  // before the launch: what is recorded knows nothing of this run
      run_captured(thread, s);
    }
    for (; at != tasks + s.past; ++at) {
      if (!captured) {
        if (!wait_for_others(thread, *at)) return;
        if (at->drive)
          for (const QueueWait& w : at->drive->waits)
            if (w.task < 0 || !graphs || !is_captured(thread, w.task)) at->drive->queue->wait(*w.queue, w.mark);
        if (at->drive && at->drive->landed) at->drive->queue->wait(*at->drive->landed, 0);
        put(thread, *at);
      }
      if (at->drive) of(queued_, at->stream).signal(at->index + 1);
    }
  }
}

void Runner::run_driving(int thread, const Task*& at) {
  const Task* tasks = program_.tasks(thread).data();
  try {
    drive(thread, at);
  } catch (...) {
    fail(at == tasks + program_.tasks(thread).size() ? nullptr : at->step);
  }
  drain(thread, tasks, at);
}

/// Behind all that the thread has put on its queues.
void Runner::fetch_faults(int thread) {
  FaultWords& f = *program_.faults(thread);
  Queue& last = *program_.queues(thread)[0];
  for (Queue* q : program_.queues(thread))
    if (q != &last) last.join(*q);
  last.copy(f.seen->at(0), f.words->at(0), f.seen->bytes());
  last.finish();
}

/// The first in the order of the thread is the step's error; all are forgotten.
void Runner::look_for_faults(int thread) {
  FaultWords& f = *program_.faults(thread);
  auto* word = reinterpret_cast<std::uint64_t*>(f.seen->at(0));
  auto* found = std::find_if(word, word + f.of.size(), [](std::uint64_t w) { return w != kNoFault; });
  if (found == word + f.of.size()) return;
  const auto& [task, finds] = f.of[static_cast<std::size_t>(found - word)];
  faulty_ = true;
  try {
    throw UserError(finds->fault(*found));
  } catch (const UserError&) {
    fail(task->step);
  }
  std::fill_n(word, f.of.size(), kNoFault);
  Queue& queue = *program_.queues(thread)[0];
  queue.copy(f.words->at(0), f.seen->at(0), f.seen->bytes());
  queue.finish();
}

/// Waits for the thread's queues, also after an error: nothing of a step runs on when it has returned.
void Runner::drain(int thread, const Task* tasks, const Task* past) {
  std::exception_ptr unseen;  // faults: what a queue says below goes before
  if (program_.faults(thread)) {
    try {
      fetch_faults(thread);
      look_for_faults(thread);
    } catch (...) {
      unseen = std::current_exception();
    }
  }
  for (Queue* q : program_.queues(thread)) {
    try {
      q->finish();
      for (const auto& c : program_.communicators()) c->check();
      std::vector<std::int64_t> stamps = options_->trace ? q->stamps() : std::vector<std::int64_t>{};
      std::size_t next = 1;  // behind the one of the beginning
      for (const Task* t = tasks; t != past; ++t) {
        if (!t->drive || t->drive->queue != q) continue;
        if (t->update >= 0 && of(updates_, t->update) == kBegun) of(updates_, t->update) = kDone;
        if (next + 1 < stamps.size()) of(trace_of_thread_, thread).push_back({t->stream, t->index, stamps[next], stamps[next + 1]});
        next += 2;
      }
    } catch (...) {
      const Step* last = past == tasks ? nullptr : tasks->step;  // the newest on that queue, else the first of all
      for (const Task* t = tasks; t != past; ++t)
        if (t->drive && t->drive->queue == q) last = t->step;
      fail(last);
    }
  }
  if (!unseen) return;
  faulty_ = true;
  try {
    std::rethrow_exception(unseen);
  } catch (...) {
    fail(nullptr);
  }
}

}  // namespace belfry
