#include <belfry/executor/device/cuda/cuda_device_internal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <belfry/executor/device/cuda/cuda_context_internal.h>
#include <belfry/executor/device/cuda/nccl_internal.h>
#include <belfry/graph/error.h>

namespace belfry {
namespace {

/// CU_DEVICE_ATTRIBUTE_MAX_PITCH of every GPU.
constexpr std::int64_t kLargestStep = 0x7FFFFFFF;

CUdeviceptr address_of(const std::byte* p) { return reinterpret_cast<CUdeviceptr>(p); }

class CudaGraph : public Captured {
 public:
  CudaGraph(std::shared_ptr<CudaContext> context, CUgraph graph) : context_(std::move(context)) {
    const CudaDriver& d = context_->driver();
    CUresult code = d.cuGraphInstantiate(&graph_, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);  // else all have the launching stream's
    d.cuGraphDestroy(graph);
    context_->check(code, "cuGraphInstantiate");
  }
  ~CudaGraph() override {
    if (context_->enter_if_alive()) context_->driver().cuGraphExecDestroy(graph_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  CUgraphExec handle() const { return graph_; }

 private:
  std::shared_ptr<CudaContext> context_;
  CUgraphExec graph_ = nullptr;
};

class CudaQueue : public Queue {
 public:
  CudaQueue(std::shared_ptr<CudaContext> context, int marks, Urgency urgency) : context_(std::move(context)), d_(context_->driver()) {
    context_->enter();
    int least = 0, greatest = 0;  // the most urgent is the smallest
    context_->check(d_.cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange");
    const int priority = std::max(greatest, least - static_cast<int>(urgency));
    context_->check(d_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority), "cuStreamCreateWithPriority");
    try {
      for (int k = 0; k < marks; ++k) marks_.push_back(event(CU_EVENT_DISABLE_TIMING));
      joined_ = event(CU_EVENT_DISABLE_TIMING);
    } catch (...) {
      release();
      throw;
    }
  }
  ~CudaQueue() override { release(); }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void* stream() const override { return stream_; }
  /// Between two GPUs only where they read each other's memory, or nothing is known of that: then the driver may go through the host.
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override {
    context_->enter();
    if (bytes) context_->check(d_.cuMemcpyAsync(address_of(to), address_of(from), static_cast<std::size_t>(bytes), stream_), "cuMemcpyAsync");
  }
  void copy_rows(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step, std::int64_t bytes, std::int64_t rows) override {
    context_->enter();
    if (bytes == 0 || rows == 0) return;
    CUDA_MEMCPY2D c{};
    c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    c.srcDevice = address_of(from), c.srcPitch = static_cast<std::size_t>(from_step);
    c.dstDevice = address_of(to), c.dstPitch = static_cast<std::size_t>(to_step);
    c.WidthInBytes = static_cast<std::size_t>(bytes), c.Height = static_cast<std::size_t>(rows);
    // Steps beyond the largest pitch, and in memory of one GPU any but those of cuMemAllocPitch, the driver may refuse: not again, within a capture.
    if (!refuses_rows_ && std::max(to_step, from_step) <= kLargestStep) {
      const CUresult code = d_.cuMemcpy2DAsync(&c, stream_);
      if (code != CUDA_ERROR_INVALID_VALUE) return context_->check(code, "cuMemcpy2DAsync");
      refuses_rows_ = true;
    }
    for (std::int64_t r = 0; r < rows; ++r) copy(to + r * to_step, from + r * from_step, bytes);
  }
  void mark(int k) override {
    context_->enter();
    while (marks_.size() <= static_cast<std::size_t>(k)) marks_.push_back(event(CU_EVENT_DISABLE_TIMING));
    context_->check(d_.cuEventRecord(marks_.at(static_cast<std::size_t>(k)), stream_), "cuEventRecord");
  }
  void wait(const Queue& other, int k) override {
    const auto& from = static_cast<const CudaQueue&>(other);
    context_->enter();
    context_->waits_for(from.context_);
    context_->check(d_.cuStreamWaitEvent(stream_, from.marks_.at(static_cast<std::size_t>(k)), 0), "cuStreamWaitEvent");
  }
  void join(Queue& other) override {
    auto& from = static_cast<CudaQueue&>(other);
    from.context_->enter();
    from.context_->check(d_.cuEventRecord(from.joined_, from.stream_), "cuEventRecord");
    context_->enter();
    context_->waits_for(from.context_);
    context_->check(d_.cuStreamWaitEvent(stream_, from.joined_, 0), "cuStreamWaitEvent");
  }
  void begin_capture() override {
    context_->enter();
    context_->check(d_.cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  }
  std::unique_ptr<Captured> end_capture() override {
    CUgraph graph = nullptr;
    context_->enter();
    context_->check(d_.cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    return std::make_unique<CudaGraph>(context_, graph);
  }
  void launch(const Captured& captured) override {
    context_->enter();
    context_->check(d_.cuGraphLaunch(static_cast<const CudaGraph&>(captured).handle(), stream_), "cuGraphLaunch");
  }
  void signal(Event& event, std::int64_t count) override {
    context_->enter();
    std::unique_ptr<Told>& told = told_[{&event, count}];  // kept: a captured one is told again and again
    if (!told) told = std::make_unique<Told>(event, count);
    CUhostFn tell = [](void* p) { static_cast<Told*>(p)->tell(); };
    context_->check(d_.cuLaunchHostFunc(stream_, tell, told.get()), "cuLaunchHostFunc");
  }
  void stamp() override {
    context_->enter();
    if (stamped_ == stamps_.size()) stamps_.push_back(event(CU_EVENT_DEFAULT));
    context_->check(d_.cuEventRecord(stamps_[stamped_], stream_), "cuEventRecord");
    if (stamped_++) return;
    finish();  // what ties the device's clock to the host's
    began_ns_ = now_ns();
  }
  std::vector<std::int64_t> stamps() override {
    context_->enter();
    std::vector<std::int64_t> out;
    for (std::size_t i = 0; i < stamped_; ++i) {
      float ms = 0;
      if (i) context_->check(d_.cuEventElapsedTime(&ms, stamps_[0], stamps_[i]), "cuEventElapsedTime");
      out.push_back(began_ns_ + static_cast<std::int64_t>(1e6 * static_cast<double>(ms)));
    }
    stamped_ = 0;
    return out;
  }
  void begin_range(const char* name) override { nvtxRangePushA(name); }
  void end_range() override { nvtxRangePop(); }
  void enter() override { context_->enter(); }
  void check() override { context_->look(stream_); }
  void finish() override {
    try {
      context_->finish(stream_);
    } catch (const DeviceError&) {  // what is still under way may go on when the events are gone
      for (auto& [key, told] : told_) told->forget();
      throw;
    }
  }

 private:
  class Told {
   public:
    Told(Event& event, std::int64_t count) : event_(&event), count_(count) {}
    void tell() {
      std::lock_guard lock(mutex_);
      if (event_) event_->signal(count_);
    }
    void forget() {
      std::lock_guard lock(mutex_);
      event_ = nullptr;
    }

   private:
    std::mutex mutex_;
    Event* event_;
    std::int64_t count_;
  };

  void release() noexcept {
    if (context_->lost() || !context_->enter_if_alive()) {
      for (auto& [key, told] : told_) told.release()->forget();  // their stream may come to them yet
      return;
    }
    d_.cuStreamSynchronize(stream_);
    for (auto* events : {&marks_, &stamps_})
      for (CUevent e : *events) d_.cuEventDestroy(e);
    if (joined_) d_.cuEventDestroy(joined_);
    d_.cuStreamDestroy(stream_);
  }

  CUevent event(unsigned flags) const {
    CUevent out = nullptr;
    context_->check(d_.cuEventCreate(&out, flags), "cuEventCreate");
    return out;
  }

  std::shared_ptr<CudaContext> context_;
  const CudaDriver& d_;
  CUstream stream_ = nullptr;
  CUevent joined_ = nullptr;
  std::vector<CUevent> marks_, stamps_;
  bool refuses_rows_ = false;
  std::map<std::pair<Event*, std::int64_t>, std::unique_ptr<Told>> told_;
  std::size_t stamped_ = 0;
  std::int64_t began_ns_ = 0;
};

class CudaDevice : public Device {
 public:
  CudaDevice(std::shared_ptr<CudaContext> context) : context_(std::move(context)), now_(context_, 0, Urgency::moves) {}
  void enter() override { context_->enter(); }
  Arena allocate(std::int64_t bytes, const std::string& space) override {
    context_->enter();
    const CudaDriver& d = context_->driver();
    CUdeviceptr p = 0;
    CUresult code = d.cuMemAlloc(&p, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
    if (code == CUDA_ERROR_OUT_OF_MEMORY) throw DeviceError(no_room_text(bytes, space));
    context_->check(code, "cuMemAlloc");
    Arena out(reinterpret_cast<std::byte*>(p), bytes, [context = context_](std::byte* q) {
      if (!context->lost() && context->enter_if_alive()) context->driver().cuMemFree(address_of(q));
    });
    if (bytes) context_->check(d.cuMemsetD8Async(p, kArenaFill, static_cast<std::size_t>(bytes), static_cast<CUstream>(now_.stream())), "cuMemsetD8Async");
    now_.finish();
    return out;
  }
  Arena allocate_host(std::int64_t bytes) override {
    context_->enter();
    void* p = nullptr;
    CUresult code = context_->driver().cuMemHostAlloc(&p, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)), CU_MEMHOSTALLOC_PORTABLE);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) throw DeviceError(no_room_text(bytes, "host"));
    context_->check(code, "cuMemHostAlloc");
    std::memset(p, kArenaFill, static_cast<std::size_t>(bytes));
    return {static_cast<std::byte*>(p), bytes, [context = context_](std::byte* q) {
              if (!context->lost() && context->enter_if_alive()) context->driver().cuMemFreeHost(q);
            }};
  }
  std::unique_ptr<Queue> queue(int marks, Urgency urgency) override { return std::make_unique<CudaQueue>(context_, marks, urgency); }
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override {
    now_.copy(to, from, bytes);
    now_.finish();
  }
  std::shared_ptr<Communicator> communicator(const std::vector<std::pair<std::string, Device*>>& ranks) override {
    std::vector<NcclRank> all;
    for (const auto& [name, device] : ranks) all.push_back({device, name});
    return open_nccl(context_->toolkit(), std::move(all));
  }
  /// Contexts reach each other from the first where the hardware lets them (CudaContext::of).
  bool reads(const Device& other) const override {
    const CudaContext& there = *static_cast<const CudaDevice&>(other).context_;
    int can = &there == context_.get();
    if (!can) context_->check(context_->driver().cuDeviceCanAccessPeer(&can, context_->device(), there.device()), "cuDeviceCanAccessPeer");
    return can;
  }

 private:
  std::shared_ptr<CudaContext> context_;
  CudaQueue now_;
};

}  // namespace

std::shared_ptr<Device> open_cuda_device(const std::shared_ptr<CudaToolkit>& toolkit, const DeviceId& id, std::chrono::milliseconds patience) {
  int count = 0;
  const CudaDriver& d = toolkit->driver();
  check_driver(d, d.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (id.kind != "gpu" || id.host != 0 || id.index >= count) throw DeviceError(fmt::format("there is no device {} here; GPUs here: {}", to_string(id), count));
  return std::make_shared<CudaDevice>(CudaContext::of(toolkit, id, patience));
}

}  // namespace belfry
