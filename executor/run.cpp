#include <belfry/executor/run.h>

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <random>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/float_environment.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// oneDNN waits for ever where OpenMP delivers fewer threads than it was made for: ask for exactly the budget, and look.
void start_openmp(int threads) {
  omp_set_dynamic(0);
  omp_set_max_active_levels(1);
  omp_set_num_threads(threads);
  int delivered = 0;
#pragma omp parallel
  {
#pragma omp single
    delivered = omp_get_num_threads();
  }
  if (delivered != threads) throw UserError(fmt::format("OpenMP gives {} threads where the plan wants {}; unset OMP_THREAD_LIMIT and OMP_DYNAMIC, or place with --threads-per-tower {}", delivered, threads, delivered));
}

}  // namespace

std::string to_string(StateAfter state) {
  constexpr const char* kNames[] = {"untouched", "torn", "complete"};
  return kNames[static_cast<int>(state)];
}

Runner::Runner(Program& program) : program_(program), events_(program.bound().streams.size()), queued_(program.bound().streams.size()), process_(::getpid()), updates_(program.updates().size()) {
  trace_of_thread_.resize(program.threads().size());
  segments_.resize(program.threads().size());
  for (auto& lanes : lanes_) lanes.resize(program.threads().size());
  try {
    for (std::size_t t = 0; t < program.threads().size(); ++t) threads_.emplace_back([this, t] { work(static_cast<int>(t)); });
  } catch (const std::system_error& e) {
    const std::size_t begun = threads_.size();
    end_threads();
    throw UserError(fmt::format("of the {} host threads that the plan wants this process gets {} ({}): raise its limit (ulimit -u), or take fewer towers", program.threads().size(), begun, e.what()));
  } catch (...) {
    end_threads();
    throw;
  }
  // Kernels are prepared on the threads that launch them.
  while (done_.load() < static_cast<std::int64_t>(threads_.size())) std::this_thread::yield();
  if (error_) {
    end_threads();
    std::rethrow_exception(error_);
  }
}

Runner::~Runner() {
  if (process_ != ::getpid()) {  // a fork: nobody is there to be joined
    static auto* const gone = new (std::nothrow) std::vector<std::vector<std::thread>>;
    if (gone) gone->push_back(std::move(threads_));
    return;
  }
  end_threads();
}

void Runner::end_threads() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

void Runner::work(int thread) {
  const DefaultFloats floats;  // before OpenMP's threads begin, which take it over
  try {
    const std::vector<Task>& tasks = program_.tasks(thread);
    if (!std::all_of(tasks.begin(), tasks.end(), [](const Task& t) { return t.drive; }) || tasks.empty()) start_openmp(program_.plan().threads);
    program_.prepare_thread(thread);
    find_segments(thread);
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
  std::int64_t seen = 0;
  done_.fetch_add(1);
  while (true) {
    // Spin a little: the next step usually follows at once.
    auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    while (generation_.load(std::memory_order_acquire) == seen && std::chrono::steady_clock::now() < end) __builtin_ia32_pause();
    generation_.wait(seen);
    seen = generation_.load();
    if (stop_) return;
    making_ ? make_once(thread) : run_thread(thread);
    done_.fetch_add(1);
    done_.notify_all();
  }
}

void Runner::run_thread(int thread) {
  const std::vector<Task>& tasks = program_.tasks(thread);
  const Task *at = tasks.data(), *past = at + tasks.size();
  try {
    if (!program_.queues(thread).empty()) return run_driving(thread, at);
    if (options_->trace || options_->delays || options_->before || options_->after) return run_watched(thread, at);
    for (; at != past; ++at) {
      for (const StepWait *w = at->waits, *last = w + at->wait_count; w != last; ++w)
        if (!events_[static_cast<std::size_t>(w->stream)].wait(w->count)) return;
      if (failed_.load(std::memory_order_relaxed)) return;
      launch(*at);
      if (at->signals) events_[static_cast<std::size_t>(at->stream)].signal(at->index + 1);
    }
  } catch (...) {
    fail(at == past ? nullptr : at->step);
  }
}

/// Each on the thread that has it, one behind the other.
void Runner::make_once(int thread) {
  const std::vector<Task>& tasks = program_.once().tasks[static_cast<std::size_t>(thread)];
  const Task *at = tasks.data(), *past = at + tasks.size();
  try {
    for (; at != past && !failed_.load(std::memory_order_relaxed); ++at) {
      if (options_->before) options_->before(*at->step);
      launch(*at);
      if (options_->after && at->drive) at->drive->queue->finish();
      if (options_->after) options_->after(*at->step);
    }
  } catch (...) {
    fail(at == past ? nullptr : at->step);
  }
  if (!tasks.empty() && !program_.queues(thread).empty()) drain(thread, tasks.data(), at);
}

/// The same, with the options that a run for speed does not have.
void Runner::run_watched(int thread, const Task*& at) {
  const std::vector<Task>& tasks = program_.tasks(thread);
  for (const Task* past = at + tasks.size(); at != past; ++at) {
    for (int w = 0; w < at->wait_count; ++w)
      if (!events_[static_cast<std::size_t>(at->waits[w].stream)].wait(at->waits[w].count)) return;
    if (failed_.load(std::memory_order_relaxed)) return;
    if (options_->delays) {
      std::mt19937_64 rng(options_->delays * 1000003 + static_cast<std::uint64_t>(at->stream) * 8191 + static_cast<std::uint64_t>(at->index));
      std::this_thread::sleep_for(std::chrono::microseconds(rng() % 200));
    }
    if (options_->before) options_->before(*at->step);
    std::int64_t begin = now_ns();
    launch(*at);
    if (options_->after) options_->after(*at->step);
    if (options_->trace) trace_of_thread_[static_cast<std::size_t>(thread)].push_back({at->stream, at->index, begin, now_ns()});
    if (at->signals) events_[static_cast<std::size_t>(at->stream)].signal(at->index + 1);
  }
}

void Runner::launch(const Task& task) {
  if (task.arguments->queue) task.arguments->queue->enter();
  if (task.update < 0) return task.kernel->launch(*task.arguments);
  Progress& progress = updates_[static_cast<std::size_t>(task.update)];
  progress = kBegun;
  task.kernel->launch(*task.arguments);
  if (!task.drive) progress = kDone;
}

void Runner::fail(const Step* step) {
  {
    std::lock_guard lock(error_mutex_);
    if (!error_) {
      error_ = std::current_exception();
      failed_step_ = step;
    }
  }
  failed_ = true;
  for (const auto& c : program_.communicators()) c->cancel();
  for (Event& e : events_) e.abort();
  for (Event& e : queued_) e.abort();
}

void Runner::start(const Feeds& feeds, const RunOptions& options) {
  options_ = &options;
  error_ = error_ahead_ = nullptr;
  failed_ = false;
  faulty_ = false;
  failed_step_ = nullptr;
  for (Event& e : events_) e.reset();
  for (Event& e : queued_) e.reset();
  for (const auto& c : program_.communicators()) c->renew();
  std::fill(updates_.begin(), updates_.end(), kNotBegun);
  if (!updates_.empty()) ++program_.store().changes;
  for (auto& t : trace_of_thread_) t.clear();
  for (const FeedBinding& f : program_.feeds()) {
    auto at = feeds.find(f.name);
    if (at == feeds.end()) throw UserError(fmt::format("there is no feed for the input '{}'", f.name));
    if (!(at->second->type() == f.type)) throw UserError(fmt::format("the feed '{}' is {}, but the plan wants {}", f.name, to_string(at->second->type()), to_string(f.type)));
    for (const std::byte** address : f.addresses) *address = at->second->raw();
  }
}

/// To devices that work by themselves, what was not given ahead. False if that failed.
bool Runner::stage(const Feeds& feeds, const RunOptions& options) {
  Staging* staging = program_.staging();
  if (!staging) return true;
  const std::map<std::string, const std::byte*> ahead = options.staged ? std::move(ahead_) : std::map<std::string, const std::byte*>{};
  ahead_.clear();
  if (!ahead.empty()) staged_in_ = 1 - staged_in_;
  bool settled = false;
  const FeedBinding* now = nullptr;
  try {
    for (const FeedBinding& f : program_.feeds()) {
      if (f.staged.empty()) continue;
      now = &f;
      const HostTensor& value = *feeds.at(f.name);
      if (auto known = ahead.find(f.name); known == ahead.end() || known->second != value.raw()) {
        if (!std::exchange(settled, true)) staging->settle();
        staging->put(f, value, staged_in_);
      }
      for (const FeedBinding::Staged& s : f.staged) *s.address = staging->address(f, s.reader->device, staged_in_);
    }
    staging->mark();
  } catch (const std::exception&) {
    auto reader = [&](const FeedBinding& f) {  // the first on the device that failed
      const auto at = std::find_if(f.staged.begin(), f.staged.end(), [&](const FeedBinding::Staged& s) { return s.reader->device == staging->busy_with(); });
      return at == f.staged.end() ? nullptr : at->reader;
    };
    const Step* failed = now ? reader(*now) : nullptr;
    for (const FeedBinding& f : program_.feeds()) failed = failed ? failed : reader(f);
    fail(failed);
    return false;
  }
  return true;
}

/// Into the buffers that this run does not read.
void Runner::stage_ahead(const std::function<Feeds()>& next) {
  Feeds feeds;
  try {
    feeds = next();
  } catch (...) {
    error_ahead_ = std::current_exception();
    return;
  }
  try {
    program_.staging()->settle();
    for (const FeedBinding& f : program_.feeds()) {
      auto at = feeds.find(f.name);
      if (f.staged.empty() || at == feeds.end() || !(at->second->type() == f.type)) continue;
      program_.staging()->put(f, *at->second, 1 - staged_in_);
      ahead_[f.name] = at->second->raw();
    }
  } catch (const std::exception&) {  // of a device that is lost, or memory, as this run or the next finds out
  }
}

void Runner::run_threads() {
  done_ = 0;
  generation_.fetch_add(1);
  generation_.notify_all();
}

void Runner::await_threads() {
  auto want = static_cast<std::int64_t>(threads_.size());
  auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
  while (done_.load(std::memory_order_acquire) < want && std::chrono::steady_clock::now() < end) __builtin_ia32_pause();
  for (std::int64_t now = done_.load(); now < want; now = done_.load()) done_.wait(now);
}

Outcome Runner::run(const Feeds& feeds, const RunOptions& options) {
  start(feeds, options);
  if (!has_made_once()) {
    making_ = true;
    run_threads();
    await_threads();
    making_ = false;
    if (error_) return finish();
    program_.once().made = program_.store().changes;
  }
  if (!stage(feeds, options)) return finish();
  run_threads();
  if (options.next && program_.staging()) stage_ahead(options.next);
  await_threads();
  warm_ = warm_ || !error_;
  return finish();
}

Outcome Runner::run_interleaved(const Feeds& feeds, const std::function<int(const std::vector<int>&)>& choose, Watcher* watcher, const RunOptions& options) {
  const DefaultFloats floats;
  if (!program_.communicators().empty()) throw UserError("a plan whose sums are a library's (collectives fastest) needs a thread for each GPU, and cannot be run one step after the other; place it with collectives=tree");
  start(feeds, options);
  if (!has_made_once()) {
    for (std::size_t t = 0; t < program_.threads().size(); ++t) make_once(static_cast<int>(t));
    if (error_) return finish();
    program_.once().made = program_.store().changes;
  }
  if (!stage(feeds, options)) return finish();
  const auto& streams = program_.bound().streams;
  std::vector<std::size_t> at(streams.size());
  while (!error_) {
    std::vector<int> ready;
    for (std::size_t s = 0; s < streams.size(); ++s) {
      if (at[s] == streams[s].size()) continue;
      const Step& step = streams[s][at[s]];
      if (std::all_of(step.waits.begin(), step.waits.end(), [&](const StepWait& w) { return static_cast<int>(at[static_cast<std::size_t>(w.stream)]) >= w.count; })) ready.push_back(static_cast<int>(s));
    }
    if (ready.empty()) break;
    int s = choose(ready);
    auto& k = at[static_cast<std::size_t>(s)];
    if (watcher) watcher->begin(streams[static_cast<std::size_t>(s)][k]);
    std::int64_t begin = options.trace ? now_ns() : 0;
    try {
      Launch& l = program_.launches()[static_cast<std::size_t>(s)][k];
      if (options.before) options.before(*l.step);
      Staging* staging = l.feed_inputs.empty() ? nullptr : program_.staging();
      if (Queue* landed = staging ? staging->queue(l.step->device) : nullptr) program_.queue(s)->wait(*landed, 0);
      launch({l.kernel.get(), &l.arguments, nullptr, 0, s, static_cast<int>(k), l.update, false, nullptr, l.step});
      if (Queue* q = program_.queue(s)) q->finish();
      if (options.after) options.after(*l.step);
    } catch (...) {
      fail(&streams[static_cast<std::size_t>(s)][k]);
      break;
    }
    if (options.trace) trace_of_thread_[0].push_back({s, static_cast<int>(k), begin, now_ns()});
    ++k;
  }
  for (std::size_t t = 0; t < threads_.size(); ++t) {
    if (!program_.faults(static_cast<int>(t))) continue;
    fetch_faults(static_cast<int>(t));
    look_for_faults(static_cast<int>(t));
  }
  if (!error_)
    for (std::size_t s = 0; s < streams.size(); ++s)
      if (at[s] < streams[s].size()) throw InternalError("streams wait for each other");
  return finish();
}

}  // namespace belfry
