#include <belfry/executor/run.h>

#include <omp.h>

#include <algorithm>
#include <random>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/structural.h>

namespace belfry {

namespace {

std::int64_t now_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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

Runner::Runner(Program& program) : program_(program), events_(program.bound().streams.size()) {
  for (const auto& s : program.bound().streams) progress_.emplace_back(s.size());
  trace_of_thread_.resize(program.threads().size());
  for (std::size_t t = 0; t < program.threads().size(); ++t) threads_.emplace_back([this, t] { work(static_cast<int>(t)); });
  // Kernels are prepared on the threads that launch them.
  while (done_.load() < static_cast<std::int64_t>(threads_.size())) std::this_thread::yield();
  if (error_) {
    std::exception_ptr error = error_;
    stop_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
    std::rethrow_exception(error);
  }
}

Runner::~Runner() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void Runner::work(int thread) {
  try {
    start_openmp(program_.plan().threads);
    program_.prepare_thread(thread);
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
    run_thread(thread);
    done_.fetch_add(1);
    done_.notify_all();
  }
}

void Runner::run_thread(int thread) {
  auto& launches = program_.launches();
  for (auto [s, k] : program_.threads()[static_cast<std::size_t>(thread)]) {
    Launch& l = launches[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
    for (const StepWait& w : l.step->waits)
      if (!events_[static_cast<std::size_t>(w.stream)].wait(w.count)) return;
    if (failed_.load(std::memory_order_relaxed)) return;
    std::int64_t begin = options_->trace ? now_ns() : 0;
    try {
      launch(s, k);
    } catch (...) {
      fail(s, k);
      return;
    }
    if (options_->trace) trace_of_thread_[static_cast<std::size_t>(thread)].push_back({s, k, begin, now_ns()});
    events_[static_cast<std::size_t>(s)].signal(k + 1);
  }
}

void Runner::launch(int stream, int index) {
  Launch& l = program_.launches()[static_cast<std::size_t>(stream)][static_cast<std::size_t>(index)];
  char& progress = progress_[static_cast<std::size_t>(stream)][static_cast<std::size_t>(index)];
  if (options_->delays) {
    std::mt19937_64 rng(options_->delays * 1000003 + static_cast<std::uint64_t>(stream) * 8191 + static_cast<std::uint64_t>(index));
    std::this_thread::sleep_for(std::chrono::microseconds(rng() % 200));
  }
  if (options_->before) {
    progress = 1;
    options_->before(*l.step);
  }
  progress = 1;
  l.kernel->launch(l.arguments);
  progress = 2;
  if (options_->after) options_->after(*l.step);
}

void Runner::fail(int stream, int index) {
  {
    std::lock_guard lock(error_mutex_);
    if (!error_) {
      error_ = std::current_exception();
      failed_node_ = program_.plan().nodes[static_cast<std::size_t>(program_.bound().streams[static_cast<std::size_t>(stream)][static_cast<std::size_t>(index)].node)].name;
    }
  }
  failed_ = true;
  for (Event& e : events_) e.abort();
}

void Runner::start(const Feeds& feeds, const RunOptions& options) {
  options_ = &options;
  error_ = nullptr;
  failed_ = false;
  failed_node_.clear();
  for (Event& e : events_) e.reset();
  for (auto& p : progress_) std::fill(p.begin(), p.end(), 0);
  for (auto& t : trace_of_thread_) t.clear();
  const PlacedGraph& plan = program_.plan();
  for (auto& stream : program_.launches())
    for (Launch& l : stream)
      for (std::size_t i : l.feed_inputs) {
        const BufferRef& b = l.step->reads[i][0].buffer;
        const std::string& name = plan.value(b.tag.value).name;
        auto at = feeds.find(name);
        if (at == feeds.end()) throw UserError(fmt::format("there is no feed for the input '{}'", name));
        if (!(at->second->type() == b.type)) throw UserError(fmt::format("the feed '{}' is {}, but the plan wants {}", name, to_string(at->second->type()), to_string(b.type)));
        l.arguments.inputs[i] = at->second->raw();
      }
}

Outcome Runner::finish() {
  const PlacedGraph& plan = program_.plan();
  Outcome out;
  out.error = error_;
  out.failed_node = failed_node_;
  std::map<ValueIndex, std::pair<int, int>> holders;  // variable → holders that have begun, that are done
  std::map<ValueIndex, int> all;
  for (const PlanNode& n : plan.nodes)
    for (auto [u, variable] : n.donates) all[variable] = static_cast<int>(n.holders.size());
  for (std::size_t s = 0; s < progress_.size(); ++s)
    for (std::size_t k = 0; k < progress_[s].size(); ++k)
      if (progress_[s][k])
        for (auto [u, variable] : plan.nodes[static_cast<std::size_t>(program_.bound().streams[s][k].node)].donates) {
          ++holders[variable].first;
          holders[variable].second += progress_[s][k] == 2;
        }
  if (holders.empty()) out.state = all.empty() ? StateAfter::complete : StateAfter::untouched;
  else {
    out.state = StateAfter::complete;
    for (auto [variable, count] : all) {
      if (holders[variable].second == count) continue;
      out.state = StateAfter::torn;
      if (holders[variable].first) out.torn.push_back(plan.value(variable).name);
    }
    // Variables of which some are new and some old are torn together.
    if (out.state == StateAfter::torn)
      for (auto [variable, count] : all)
        if (holders[variable].second == count) out.torn.push_back(plan.value(variable).name);
    std::sort(out.torn.begin(), out.torn.end());
  }
  if (!error_)
    for (const auto& [name, v] : plan.fetches)
      for (auto& stream : program_.launches())
        for (Launch& l : stream) {
          const PlanNode& n = plan.nodes[static_cast<std::size_t>(l.step->node)];
          if (n.outputs.empty() || n.outputs[0] != v) continue;
          const BufferRef& b = l.step->writes[0][0].buffer;
          HostTensor t(b.type.dtype, b.type.shape);
          if (b.bytes) std::memcpy(t.raw(), program_.address(b), static_cast<std::size_t>(b.bytes));
          out.fetched.insert_or_assign(name, std::move(t));
        }
  trace_.clear();
  for (auto& t : trace_of_thread_) trace_.insert(trace_.end(), t.begin(), t.end());
  std::sort(trace_.begin(), trace_.end(), [](const TraceEntry& a, const TraceEntry& b) { return a.begin_ns < b.begin_ns; });
  return out;
}

Outcome Runner::run(const Feeds& feeds, const RunOptions& options) {
  start(feeds, options);
  done_ = 0;
  generation_.fetch_add(1);
  generation_.notify_all();
  auto want = static_cast<std::int64_t>(threads_.size());
  auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
  while (done_.load(std::memory_order_acquire) < want && std::chrono::steady_clock::now() < end) __builtin_ia32_pause();
  for (std::int64_t now = done_.load(); now < want; now = done_.load()) done_.wait(now);
  return finish();
}

Outcome Runner::run_interleaved(const Feeds& feeds, const std::function<int(const std::vector<int>&)>& choose, Watcher* watcher, const RunOptions& options) {
  start(feeds, options);
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
      launch(s, static_cast<int>(k));
    } catch (...) {
      fail(s, static_cast<int>(k));
      break;
    }
    if (options.trace) trace_of_thread_[0].push_back({s, static_cast<int>(k), begin, now_ns()});
    ++k;
  }
  if (!error_)
    for (std::size_t s = 0; s < streams.size(); ++s)
      if (at[s] < streams[s].size()) throw InternalError("streams wait for each other");
  return finish();
}

}  // namespace belfry
