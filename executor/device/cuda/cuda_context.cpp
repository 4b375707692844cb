#include <belfry/executor/device/cuda/cuda_context_internal.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <belfry/executor/device/cuda/gpu_facts.h>

namespace belfry {
namespace {

const char* way_to_a_context(CUresult code) {
  switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY: return "other processes hold its memory: nvidia-smi names them; end one, or wait for it";
    case CUDA_ERROR_DEVICE_UNAVAILABLE: return "another process has it for itself alone: nvidia-smi names it; wait for it, or let several in with nvidia-smi --compute-mode=DEFAULT";
    case CUDA_ERROR_INVALID_DEVICE: return "belfry devices lists those that are here";
    default: return "look with nvidia-smi whether the GPU works; after a fault it may need a reset";
  }
}

}  // namespace

std::shared_ptr<CudaContext> CudaContext::of(const std::shared_ptr<CudaToolkit>& toolkit, const DeviceId& id, std::chrono::milliseconds patience) {
  static std::mutex mutex;
  static std::map<std::pair<const CudaToolkit*, int>, std::weak_ptr<CudaContext>> known;
  std::lock_guard lock(mutex);
  std::weak_ptr<CudaContext>& mine = known[{toolkit.get(), id.index}];
  if (auto there = mine.lock()) return there;
  auto fresh = std::make_shared<CudaContext>(toolkit, id, patience);
  const CudaDriver& d = fresh->driver();
  auto reach = [&](CudaContext& from, const CudaContext& to) {
    int can = 0;
    from.check(d.cuDeviceCanAccessPeer(&can, from.device(), to.device()), "cuDeviceCanAccessPeer");
    if (!can) return;
    from.enter();
    CUresult code = d.cuCtxEnablePeerAccess(to.context_, 0);
    if (code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) from.check(code, "cuCtxEnablePeerAccess");
  };
  for (auto& [key, other] : known)
    if (auto there = other.lock(); there && key.first == toolkit.get()) {
      reach(*fresh, *there);
      reach(*there, *fresh);
    }
  mine = fresh;
  return fresh;
}

CudaContext::CudaContext(std::shared_ptr<CudaToolkit> toolkit, const DeviceId& id, std::chrono::milliseconds patience) : toolkit_(std::move(toolkit)), d_(toolkit_->driver()), name_(to_string(id)), patience_(patience) {
  auto begin = [&](CUresult code, const char* call) {
    if (code != CUDA_SUCCESS) throw MissingError({name_, fmt::format("no context can be made on it: {} gives {}", call, error_text(d_, code)), way_to_a_context(code)});
  };
  begin(d_.cuDeviceGet(&device_, id.index), "cuDeviceGet");
  begin(d_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

CudaContext::~CudaContext() {
  if (!lost()) d_.cuDevicePrimaryCtxRelease(device_);  // the last release resets the GPU, and may wait for work that never ends
  if (failed_) --toolkit_->failed_gpus;
}

std::string CudaContext::gives(CUresult code, const char* call) const { return fmt::format("{} gives {}", call, error_text(d_, code)); }

void CudaContext::check(CUresult code, const char* call) const {
  if (code != CUDA_SUCCESS) throw DeviceError(fmt::format("{}: {}", name_, gives(code, call)));
}

void CudaContext::check_work(CUresult code, const char* call) {
  if (code != CUDA_SUCCESS) fail(gives(code, call));
  check(code, call);
}

void CudaContext::fail(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (first_.empty()) first_ = why;
  }
  if (!failed_.exchange(true)) ++toolkit_->failed_gpus;
}

void CudaContext::enter() { check_work(d_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

bool CudaContext::enter_if_alive() const noexcept { return d_.cuCtxSetCurrent(context_) == CUDA_SUCCESS; }

void CudaContext::waits_for(const std::shared_ptr<CudaContext>& other) {
  if (other.get() == this) return;
  std::lock_guard lock(mutex_);
  waits_ = true;
  if (std::none_of(before_.begin(), before_.end(), [&](const std::weak_ptr<CudaContext>& known) { return !known.owner_before(other) && !other.owner_before(known); })) before_.push_back(other);
}

std::vector<std::shared_ptr<CudaContext>> CudaContext::before() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<CudaContext>> out;
  for (const std::weak_ptr<CudaContext>& known : before_)
    if (auto there = known.lock()) out.push_back(std::move(there));
  return out;
}

/// One that failed, of all for which it waits, and for which those wait.
std::string CudaContext::waits_in_vain_for() const {
  std::vector<std::shared_ptr<CudaContext>> all = before();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->failed_) return all[i]->name_;
    for (auto& further : all[i]->before())
      if (std::find(all.begin(), all.end(), further) == all.end()) all.push_back(std::move(further));
  }
  return {};
}

DeviceError CudaContext::given_up() const {
  std::lock_guard lock(mutex_);
  return DeviceError(fmt::format("{}: its work has not ended{}", name_, failed_before_.empty() ? ", and it has failed before: " + first_ : fmt::format(" {} ms after {} failed", patience_.count(), failed_before_)));
}

void CudaContext::look(CUstream stream) {
  enter();
  const CUresult code = d_.cuStreamQuery(stream);
  if (code != CUDA_ERROR_NOT_READY) return check_work(code, "cuStreamQuery");
  if (failed_) throw given_up();
}

void CudaContext::finish(CUstream stream) {
  enter();
  if (failed_) return look(stream);
  if (!waits_) return check_work(d_.cuStreamSynchronize(stream), "cuStreamSynchronize");
  // Again and again: the driver's own wait for a GPU that fails would not end.
  std::optional<std::chrono::steady_clock::time_point> end;
  CUresult code;
  for (std::string failed; (code = d_.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY;) {
    if (!lost() || (failed = waits_in_vain_for()).empty()) {
      std::this_thread::yield();
      continue;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!end) end = now + patience_;
    if (now > *end) {
      {
        std::lock_guard lock(mutex_);
        failed_before_ = failed;
      }
      const DeviceError why = given_up();
      fail(why.what());
      throw why;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  check_work(code, "cuStreamQuery");
}

}  // namespace belfry
