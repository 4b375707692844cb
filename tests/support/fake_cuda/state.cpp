#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>

#include "state_internal.h"

namespace fake_cuda {
namespace {

thread_local bool in_host_function = false;
thread_local CUctx_st* current = nullptr;

std::string text_setting(const char* name, const std::string& otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? text : otherwise;
}

/// Errors after which a context is of no use.
bool breaks(CUresult code) {
  constexpr CUresult kBreaks[] = {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR,
                                  CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED};
  return std::find(std::begin(kBreaks), std::end(kBreaks), code) != std::end(kBreaks);
}

/// As the driver reads it: up to the first entry that is no device.
std::vector<int> visible(int gpus) {
  std::vector<int> out;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; !text && i < gpus; ++i) out.push_back(i);
  std::istringstream parts(text ? text : "");
  for (std::string part; std::getline(parts, part, ',');) {
    char* end = nullptr;
    long index = std::strtol(part.c_str(), &end, 10);
    if (part.empty() || *end || index < 0 || index >= gpus) break;
    out.push_back(static_cast<int>(index));
  }
  return out;
}

std::vector<Failure> failures() {
  std::vector<Failure> out;
  std::istringstream parts(text_setting("FAKE_CUDA_FAIL", ""));
  for (std::string part; std::getline(parts, part, ',');) {
    std::size_t a = part.find(':'), b = part.rfind(':');
    if (a == b) std::fprintf(stderr, "fake_cuda: FAKE_CUDA_FAIL has '%s', which is not name:n:code\n", part.c_str()), std::abort();
    out.push_back({part.substr(0, a), std::atoi(part.c_str() + a + 1), static_cast<CUresult>(std::atoi(part.c_str() + b + 1))});
  }
  return out;
}

bool ready(const CUstream_st& s) { return !s.busy && !s.ops.empty() && !s.context->broken && (!s.ops.front().ready || s.ops.front().ready()); }

/// Mostly goes on with the stream that ran last, so that one gets far ahead of another now and then.
CUstream_st* pick() {
  State& t = state();
  std::vector<CUstream_st*> able;
  for (CUstream_st& s : t.streams)
    if (ready(s)) able.push_back(&s);
  if (able.empty()) return nullptr;
  if (t.random() % 2 && std::find(able.begin(), able.end(), t.last) != able.end()) return t.last;
  return t.last = able[t.random() % able.size()];
}

bool reaches(const CUctx_st& context, const Access& access) {
  return !access.kernel || std::all_of(access.ranges.begin(), access.ranges.end(), [&](const Touched& t) {
    const Block* block = block_of(reinterpret_cast<std::uintptr_t>(t.at));
    return !block || !block->context || block->context == &context || context.peers.contains(block->context);
  });
}

bool run_one(Call& call) {
  CUstream_st* stream = pick();
  if (!stream) return false;
  FakeOp op = std::move(stream->ops.front());
  stream->ops.pop_front();
  join(stream->clock, op.known);
  if (op.choose) op = op.choose(*stream);
  Clock& clock = op.clock ? *op.clock : stream->clock;
  begin_step(clock, op.clock ? op.strand : stream->strand, op.access);
  stream->busy = true;
  if (!reaches(*stream->context, op.access)) op = {{}, [] { return CUDA_ERROR_ILLEGAL_ADDRESS; }};
  if (op.tells_host) host_saw(clock);  // its other threads may go on before the function has returned
  if (op.calls_out) {
    call.lock.unlock();
    in_host_function = true;
  }
  CUresult code = op.run();
  if (op.calls_out) {
    in_host_function = false;
    call.lock.lock();
  }
  if (op.clock) join(stream->clock, clock);
  ++state().clock;
  stream->busy = false;
  if (code != CUDA_SUCCESS) stream->context->broken = code;
  return true;
}

}  // namespace

State& state() {
  static State* s = new State;
  return *s;
}

int setting(const char* name, int otherwise) { return std::atoi(text_setting(name, std::to_string(otherwise)).c_str()); }

void read_settings() {
  Settings s;
  s.gpus = visible(setting("FAKE_CUDA_GPUS", 1));
  s.name = text_setting("FAKE_CUDA_NAME", "Fake GPU");
  s.memory = std::strtoull(text_setting("FAKE_CUDA_MEMORY", "1073741824").c_str(), nullptr, 10);
  std::sscanf(text_setting("FAKE_CUDA_CAPABILITY", "9.0").c_str(), "%d.%d", &s.major, &s.minor);
  s.driver_version = setting("FAKE_CUDA_DRIVER_VERSION", 13000);
  s.patience = setting("FAKE_CUDA_PATIENCE", 20000);
  s.peer = setting("FAKE_CUDA_PEER", 1) != 0;
  s.works = setting("FAKE_CUDA_WORKS", 0) != 0;
  s.failures = failures();
  State& t = state();
  t.settings = std::move(s);
  t.random.seed(static_cast<std::uint64_t>(setting("FAKE_CUDA_SEED", 1)));
  t.calls.clear();
  // Contexts keep their addresses: a second cuInit changes nothing that is in use.
  while (t.contexts.size() < t.settings.gpus.size()) {
    t.contexts.emplace_back();
    t.contexts.back().device = static_cast<int>(t.contexts.size()) - 1;
  }
}

Call::Call(const char* name, Needs needs, bool queues) : lock(state().mutex) {
  State& t = state();
  if (in_host_function) {
    error = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  if (needs != Needs::nothing && !t.started) {
    error = CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  context = current;
  if (needs == Needs::context) {
    if (!context || context->held == 0) error = CUDA_ERROR_INVALID_CONTEXT;
    else error = context->broken;
    if (error) return;
  }
  const int n = ++t.calls[name];
  for (const Failure& f : t.settings.failures) {
    if (f.name != name || f.at != n) continue;
    (queues && breaks(f.code) ? later : error) = f.code;
    if (error && breaks(error) && context) context->broken = error;
  }
}

bool idle(const CUstream_st& stream) { return stream.ops.empty() && !stream.busy; }

CUresult run_until(Call& call, const std::function<bool()>& done) {
  using Clock = std::chrono::steady_clock;
  auto since = Clock::now();
  std::uint64_t seen = state().clock;
  while (call.context->broken == CUDA_SUCCESS && !done()) {
    const bool ran = run_one(call);
    const std::uint64_t steps = state().clock;
    // What another thread is in the middle of may take as long as it likes: a host function, a kernel that is compiled first.
    const bool busy = std::any_of(state().streams.begin(), state().streams.end(), [](const CUstream_st& s) { return s.busy; });
    if (ran || busy || steps != seen) since = Clock::now();
    seen = steps;
    if (ran) continue;
    if (Clock::now() - since > std::chrono::milliseconds(state().settings.patience)) {
      std::fprintf(stderr, "fake_cuda: a wait is never ended: all that is queued waits too\n");
      return call.context->broken = CUDA_ERROR_LAUNCH_TIMEOUT;
    }
    // Another thread may write the value that is waited for.
    call.lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    call.lock.lock();
  }
  return call.context->broken;
}

void run_some(Call& call) {
  while (state().random() % 4 == 0 && run_one(call)) {
  }
}

namespace {

/// One thread for the process: it runs steps while the settings ask for it.
void start_worker() {
  static bool started = false;
  if (std::exchange(started, true)) return;
  std::thread([] {
    while (true) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      Call call("worker", Needs::nothing);
      while (state().settings.works && run_one(call)) {
      }
    }
  }).detach();
}

}  // namespace

CUresult queue(Call& call, CUstream stream, FakeOp op) {
  if (Access declared = take_declared(); !declared.name.empty()) {
    op.access = std::move(declared);
    op.tells_host = false;
  }
  if (call.error) return call.error;
  if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return CUDA_ERROR_NOT_SUPPORTED;
  if (op.access.kernel && stream->context != call.context) return CUDA_ERROR_INVALID_HANDLE;
  if (call.later) op.run = [code = call.later] { return code; };
  op.strand = stream->strand;
  if (stream->capture) return capture(stream, std::move(op));
  op.known = host_clock();
  stream->ops.push_back(std::move(op));
  if (state().settings.works) start_worker();
  run_some(call);
  return CUDA_SUCCESS;
}

const Block* block_of(std::uintptr_t address, std::uintptr_t* start) {
  auto& blocks = state().blocks;
  auto at = blocks.upper_bound(address);
  if (at == blocks.begin()) return nullptr;
  --at;
  if (address - at->first >= at->second.bytes) return nullptr;
  if (start) *start = at->first;
  return &at->second;
}

void make_current(CUctx_st* context) { current = context; }

}  // namespace fake_cuda
