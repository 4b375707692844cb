// Running a program: threads, or one thread that interleaves the streams at will; failure; state after it; the trace.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <belfry/executor/device/event.h>
#include <belfry/executor/program.h>
#include <belfry/executor/segment.h>
#include <belfry/graph/plan/watcher.h>

namespace belfry {

/// What a step leaves behind. Untouched: no update has begun, all state has its old bits. Complete: every holder of every
/// variable has its new value. Torn: some update has begun and some has not finished.
enum class StateAfter { untouched, torn, complete };
std::string to_string(StateAfter state);

struct TraceEntry {
  int stream = 0, index = 0;         ///< of bound().streams
  std::int64_t begin_ns = 0, end_ns = 0;
};

struct Outcome {
  std::map<std::string, HostTensor> fetched;
  StateAfter state = StateAfter::complete;
  std::vector<std::string> torn;     ///< variables of which an update has begun on some holder; all others have their old bits
  std::exception_ptr error, ahead;   ///< ahead: what `next` threw, which is not the step's
  std::string failed_node, failed_device;
  std::string lost, way_out;         ///< what no run can use any more and why, "its GPU: …", and what to do; empty: nothing
};

struct RunOptions {
  bool trace = false;
  bool graphs = true;                ///< on GPUs, what can be is recorded at the second step and put on its stream as a whole from then on
  /// The feeds of the run after this one, asked for while GPUs are busy with this one: what they read of them is copied meanwhile.
  std::function<Feeds()> next = {};
  bool staged = false;               ///< the feeds are those that `next` gave to the run before, as they were
  std::uint64_t delays = 0;          ///< a seed: every step begins a little late, by a random time
  /// For tests: called before a step's kernel; what it throws is the step's failure.
  std::function<void(const Step&)> before = {};
  /// For comparisons: called behind a step's kernel, while its outputs are there.
  std::function<void(const Step&)> after = {};
};

/// A thread per host thread of the plan, alive as long as this is, in the process that made it: a fork has none of them, and there this may only be destroyed.
class Runner {
 public:
  explicit Runner(Program& program);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  /// One step. Feeds must have the plan's types. Errors come back in the outcome.
  Outcome run(const Feeds& feeds, const RunOptions& options = {});
  /// The same on the calling thread: `choose` picks among the streams that may go on; `watcher` is told of every step.
  Outcome run_interleaved(const Feeds& feeds, const std::function<int(const std::vector<int>& ready)>& choose, Watcher* watcher = nullptr, const RunOptions& options = {});

  const std::vector<TraceEntry>& trace() const { return trace_; }  ///< of the last run with `trace`, by begin

 private:
  void work(int thread);
  void run_thread(int thread);
  void run_threads(), await_threads(), end_threads();
  bool has_made_once() { return program_.bound().once.empty() || program_.once().made == program_.store().changes; }
  void make_once(int thread);
  void run_watched(int thread, const Task*& at);
  void find_segments(int thread);
  void find_launches(int thread, Segment& segment, const std::vector<bool>& small);
  void prepare_launches(int thread);
  void run_driving(int thread, const Task*& at);
  void drive(int thread, const Task*& at);
  void run_captured(int thread, Segment& segment);
  void record(int thread, Segment& segment);
  void put(int thread, const Task& task);
  bool wait_for_others(int thread, const Task& task);
  bool is_captured(int thread, int task) const;
  void drain(int thread, const Task* tasks, const Task* past);
  std::vector<Queue*> lanes_for(int thread, const std::vector<bool>& urgent, int stream);
  void fetch_faults(int thread);
  void look_for_faults(int thread);
  void stage_ahead(const std::function<Feeds()>& next);
  bool stage(const Feeds& feeds, const RunOptions& options);
  void launch(const Task& task);
  void fail(const Step* step);                      // null: it is no step's
  void start(const Feeds& feeds, const RunOptions& options);
  StateAfter judged_state() const;
  void describe(Outcome& out) const;
  Outcome finish();

  Program& program_;
  std::vector<Event> events_;                       // per stream: steps that are done
  std::vector<Event> queued_;                       // per stream of a device that works by itself: steps that are on its queue
  std::vector<std::thread> threads_;
  const int process_;                               // that they are in
  std::atomic<std::int64_t> generation_{0}, done_{0};
  std::atomic<bool> stop_{false}, failed_{false};
  const RunOptions* options_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_, error_ahead_;
  const Step* failed_step_ = nullptr;               // null: none, or no step's
  enum Progress : char { kNotBegun, kBegun, kDone };
  std::vector<Progress> updates_;                   // of the program's updates
  std::vector<std::vector<Segment>> segments_;      // per thread that has queues
  std::vector<std::vector<std::unique_ptr<Queue>>> lanes_[2];  // per thread, what segments are recorded on: plain ones, urgent ones
  int staged_in_ = 0;                               // the buffers of feeds that this run reads
  std::map<std::string, const std::byte*> ahead_;   // feeds that were brought into the others
  std::atomic<bool> faulty_{false};                 // a kernel of a device found fault with its input
  bool warm_ = false, making_ = false;              // a step has run: what is loaded late was loaded; what is made once, and not a step
  std::vector<TraceEntry> trace_;
  std::vector<std::vector<TraceEntry>> trace_of_thread_;
};

}  // namespace belfry
