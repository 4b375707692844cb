#include <belfry/executor/device/cuda/nccl_internal.h>

#if __has_include(<nccl.h>)
#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include <belfry/graph/error.h>

namespace belfry {
namespace {

using Clock = std::chrono::steady_clock;

struct NcclApi {
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRankConfig) init_rank;
  decltype(&::ncclCommGetAsyncError) async_error;
  decltype(&::ncclCommAbort) abort;
  decltype(&::ncclCommDestroy) destroy;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclReduce) reduce;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclGetErrorString) error_string;
};

NcclApi api_of(void* library) {
  NcclApi out{};
  auto find = [&](auto& field, const char* name) {
    field = reinterpret_cast<std::remove_reference_t<decltype(field)>>(dlsym(library, name));
    if (!field) throw DeviceError(fmt::format("NCCL: the library lacks {}; install NCCL 2.28 or a later 2", name));
  };
  find(out.get_unique_id, "ncclGetUniqueId");
  find(out.init_rank, "ncclCommInitRankConfig");
  find(out.async_error, "ncclCommGetAsyncError");
  find(out.abort, "ncclCommAbort");
  find(out.destroy, "ncclCommDestroy");
  find(out.group_start, "ncclGroupStart");
  find(out.group_end, "ncclGroupEnd");
  find(out.all_reduce, "ncclAllReduce");
  find(out.reduce, "ncclReduce");
  find(out.broadcast, "ncclBroadcast");
  find(out.error_string, "ncclGetErrorString");
  return out;
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    default: return ncclUint8;  // is only carried
  }
}

std::string to_text(std::span<const Collective> group) {
  std::string out;
  constexpr const char* kNames[] = {"all_reduce", "reduce", "broadcast"};
  for (const Collective& c : group) out += fmt::format("{}{} of {} {}{}", out.empty() ? "" : ", ", kNames[static_cast<int>(c.what)], c.count, name_of(c.dtype), c.what == Collective::What::all_reduce ? "" : fmt::format(" (rank {})", c.root));
  return out.empty() ? "nothing" : out;
}

bool alike(std::span<const Collective> a, std::span<const Collective> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Collective& x, const Collective& y) { return x.what == y.what && x.dtype == y.dtype && x.count == y.count && x.root == y.root; });
}

/// What ends the communicator for all.
struct Broken {
  std::string why;
};

class Nccl : public Communicator {
 public:
  Nccl(std::shared_ptr<CudaToolkit> toolkit, std::vector<NcclRank> ranks, std::chrono::milliseconds patience)
      : toolkit_(std::move(toolkit)), api_(api_of(toolkit_->library(CudaLibrary::nccl))), driver_(toolkit_->driver()), patience_(patience), ranks_(ranks.size()) {
    for (std::size_t r = 0; r < ranks.size(); ++r) static_cast<NcclRank&>(ranks_[r]) = std::move(ranks[r]);
    try {
      start();
      watcher_ = std::thread([this] { watch(); });
    } catch (const Broken& b) {
      abort_all();
      throw DeviceError("NCCL: " + b.why);
    } catch (const std::system_error& e) {
      abort_all();
      throw DeviceError(fmt::format("NCCL: no thread can be started to watch it ({}); raise the limit of this process (ulimit -u)", e.what()));
    }
  }
  ~Nccl() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    watcher_.join();
    for (Rank& r : ranks_) {
      try {
        r.device->enter();
        driver_.cuEventDestroy(r.ended);
        if (r.handle) api_.destroy(r.handle);
      } catch (const DeviceError&) {  // a lost device has nothing left to free
      }
    }
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  void run(int rank, std::span<const Collective> group, Queue& queue) override {
    Rank& mine = ranks_[static_cast<std::size_t>(rank)];
    try {
      meet(mine, group);
      try {
        queue.enter();
      } catch (const DeviceError& e) {  // behind the barrier the others wait in their kernels
        throw Broken{e.what()};
      }
      put(mine, group, static_cast<cudaStream_t>(queue.stream()));
      settle(mine);
      if (CUresult code = driver_.cuEventRecord(mine.ended, static_cast<CUstream>(queue.stream()))) throw Broken{mine.name + ": " + error_text(driver_, code)};
    } catch (const Broken& b) {
      end(b.why);
      check();
    }
    std::lock_guard lock(mutex_);
    mine.since = Clock::now();
    changed_.notify_all();
  }
  void cancel() noexcept override {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }
  void renew() noexcept override {
    std::lock_guard lock(mutex_);
    cancelled_ = false;
    come_ = 0;
    for (Rank& r : ranks_) r.came = false;
  }
  void check() const override {
    std::lock_guard lock(mutex_);
    throw_error();
  }

 private:
  struct Rank : NcclRank {
    std::mutex in_use;                            // a handle is aborted while no call uses it
    ncclComm_t handle = nullptr;
    CUevent ended = nullptr;                      // behind the newest group
    std::optional<Clock::time_point> since = {};  // a group is under way since then
    std::vector<Collective> group = {};
    bool came = false;
  };

  void must(ncclResult_t code, const std::string& call) const {
    if (code != ncclSuccess && code != ncclInProgress) throw Broken{fmt::format("{} gives '{}' ({})", call, api_.error_string(code), static_cast<int>(code))};
  }
  void throw_error() const {
    if (!error_.empty()) throw DeviceError("NCCL: " + error_ + "; its communicator was aborted");
  }

  static void enter(const NcclRank& r) {
    try {
      r.device->enter();
    } catch (const DeviceError& e) {
      throw Broken{e.what()};
    }
  }

  /// Non-blocking, so that no call of the library can hold a thread for ever.
  void start() {
    ncclUniqueId id;
    must(api_.get_unique_id(&id), "ncclGetUniqueId");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    must(api_.group_start(), "ncclGroupStart");
    ncclResult_t worst = ncclSuccess;
    std::optional<Broken> lost;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      try {
        enter(ranks_[r]);
      } catch (const Broken& b) {
        lost = b;
        break;
      }
      const ncclResult_t code = api_.init_rank(&ranks_[r].handle, static_cast<int>(ranks_.size()), id, static_cast<int>(r), &config);
      if (code != ncclSuccess && code != ncclInProgress) worst = code;
    }
    const ncclResult_t ended = api_.group_end();  // also after an error: a group is the thread's
    if (lost) throw Broken(*lost);
    must(worst, "ncclCommInitRankConfig");
    must(ended, "ncclGroupEnd");
    for (Rank& r : ranks_) {
      settle(r);
      enter(r);
      if (CUresult code = driver_.cuEventCreate(&r.ended, CU_EVENT_DISABLE_TIMING)) throw Broken{r.name + ": " + error_text(driver_, code)};
    }
  }

  /// The barrier: nobody launches before all have come, and all ask for the same.
  void meet(Rank& mine, std::span<const Collective> group) {
    std::unique_lock lock(mutex_);
    throw_error();
    auto give_up = [&] { throw DeviceError(fmt::format("{}: another step failed before all ranks came to {}", mine.name, to_text(group))); };
    if (cancelled_) give_up();  // of those that came before nobody is there
    mine.group.assign(group.begin(), group.end());
    mine.came = true;
    const std::int64_t round = round_;
    if (++come_ < ranks_.size()) {
      changed_.wait_for(lock, patience_, [&] { return round_ != round || cancelled_ || !error_.empty(); });
      throw_error();
      if (round_ != round) return;
      if (cancelled_) give_up();
      std::string absent;
      for (const Rank& r : ranks_)
        if (!r.came) absent += (absent.empty() ? "" : ", ") + r.name;
      throw Broken{fmt::format("{} did not come to {} within {} ms", absent, to_text(group), patience_.count())};
    }
    for (const Rank& r : ranks_)
      if (!alike(r.group, ranks_[0].group)) throw Broken{fmt::format("ranks differ: {} asks for {}, {} for {}", ranks_[0].name, to_text(ranks_[0].group), r.name, to_text(r.group))};
    come_ = 0;
    ++round_;
    for (Rank& r : ranks_) r.came = false;
    changed_.notify_all();
  }

  void put(Rank& mine, std::span<const Collective> group, cudaStream_t stream) {
    std::lock_guard lock(mine.in_use);
    if (!mine.handle) throw Broken{"it is no longer there"};  // whoever aborted it has said why
    must(api_.group_start(), "ncclGroupStart");
    ncclResult_t worst = ncclSuccess;
    for (const Collective& c : group) {
      const auto count = static_cast<std::size_t>(c.count);
      const ncclDataType_t type = type_of(c.dtype);
      ncclResult_t code = ncclSuccess;
      switch (c.what) {
        case Collective::What::all_reduce: code = api_.all_reduce(c.from, c.to, count, type, ncclSum, mine.handle, stream); break;
        case Collective::What::reduce: code = api_.reduce(c.from, c.to, count, type, ncclSum, c.root, mine.handle, stream); break;
        case Collective::What::broadcast: code = api_.broadcast(c.from, c.to, count, type, c.root, mine.handle, stream); break;
      }
      if (code != ncclSuccess && code != ncclInProgress) worst = code;
    }
    const ncclResult_t ended = api_.group_end();  // also after an error: a group is the thread's
    must(worst, mine.name + ": " + to_text(group));
    must(ended, mine.name + ": ncclGroupEnd of " + to_text(group));
  }

  /// Until the library has done what it was called for: before that, nothing of it need be on the stream.
  void settle(Rank& r) {
    const auto past = Clock::now() + patience_;
    for (int looks = 0;; ++looks) {
      ncclResult_t state = ncclSuccess;
      {
        std::lock_guard lock(r.in_use);
        if (!r.handle) throw Broken{"it is no longer there"};
        must(api_.async_error(r.handle, &state), "ncclCommGetAsyncError");
      }
      must(state, r.name);
      if (state != ncclInProgress) return;
      if (Clock::now() > past) throw Broken{fmt::format("{} is not ready after {} ms", r.name, patience_.count())};
      if (looks < 1000) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  /// Looks after what is under way: the library's own errors, and whether it ends in time.
  void watch() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (!error_.empty() || std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.since.has_value(); })) {
        changed_.wait(lock);
        continue;
      }
      changed_.wait_for(lock, std::min(patience_ / 4, std::chrono::milliseconds(100)), [&] { return stop_; });
      for (Rank& r : ranks_) {
        if (stop_ || !r.since) continue;
        const Clock::time_point since = *r.since;
        const std::string what = to_text(r.group);
        lock.unlock();
        try {
          const bool ended = has_ended(r);
          if (!ended && Clock::now() - since > patience_) throw Broken{fmt::format("{} has not ended {} after {} ms", r.name, what, patience_.count())};
          lock.lock();
          if (ended && r.since == since) r.since.reset();
        } catch (const Broken& b) {
          end(b.why);
          lock.lock();
        }
      }
    }
  }
  bool has_ended(Rank& r) {
    std::lock_guard lock(r.in_use);
    if (!r.handle) return true;
    ncclResult_t state = ncclSuccess;
    must(api_.async_error(r.handle, &state), "ncclCommGetAsyncError");
    must(state, r.name);
    enter(r);
    const CUresult code = driver_.cuEventQuery(r.ended);
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY) throw Broken{r.name + ": " + error_text(driver_, code)};
    return code == CUDA_SUCCESS;
  }

  /// The first reason stands.
  void end(const std::string& why) {
    {
      std::lock_guard lock(mutex_);
      if (error_.empty()) error_ = why;
      changed_.notify_all();
    }
    abort_all();
  }
  void abort_all() noexcept {
    for (Rank& r : ranks_) {
      std::lock_guard lock(r.in_use);
      if (!r.handle) continue;
      try {
        r.device->enter();
      } catch (const DeviceError&) {  // the library ends what it can
      }
      api_.abort(r.handle);
      r.handle = nullptr;
    }
  }

  std::shared_ptr<CudaToolkit> toolkit_;
  NcclApi api_;
  const CudaDriver& driver_;
  std::chrono::milliseconds patience_;
  std::deque<Rank> ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string error_;                             // why it was aborted
  std::size_t come_ = 0;
  std::int64_t round_ = 0;
  bool cancelled_ = false, stop_ = false;
  std::thread watcher_;
};

}  // namespace

std::shared_ptr<Communicator> open_nccl(const std::shared_ptr<CudaToolkit>& toolkit, std::vector<NcclRank> ranks, std::chrono::milliseconds patience) {
  return std::make_shared<Nccl>(toolkit, std::move(ranks), patience);
}

}  // namespace belfry
#else
#include <belfry/graph/error.h>

namespace belfry {
std::shared_ptr<Communicator> open_nccl(const std::shared_ptr<CudaToolkit>&, std::vector<NcclRank>, std::chrono::milliseconds) { throw DeviceError("Belfry was built without NCCL's header"); }
}  // namespace belfry
#endif
