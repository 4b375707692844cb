// Streams, events, functions of the host, and waits for values.
#include <algorithm>

#include "state_internal.h"

using namespace fake_cuda;

namespace {

std::uint64_t* word(CUdeviceptr p) { return reinterpret_cast<std::uint64_t*>(static_cast<std::uintptr_t>(p)); }

/// In memory of a device, or of the host that is pinned.
bool holds_word(CUdeviceptr p) {
  std::uintptr_t start = 0;
  const Block* block = block_of(p, &start);
  return block && p % 8 == 0 && p - start + 8 <= block->bytes;
}

/// What happens before the values that streams wrote.
std::map<CUdeviceptr, Clock>& written() {
  static std::map<CUdeviceptr, Clock> all;
  return all;
}

bool is_stream(CUstream stream) {
  auto& all = state().streams;
  return std::any_of(all.begin(), all.end(), [&](const CUstream_st& s) { return &s == stream; });
}

/// Whoever records looks at no stream at all.
CUresult not_looked_at(CUstream stream) {
  const CUresult code = not_while_captured(stream);
  return code ? code : not_while_captured(nullptr);
}

bool reached(std::uint64_t now, std::uint64_t value, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<std::int64_t>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return now == value;
    case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
    default: return ~(now | value) != 0;
  }
}

}  // namespace

extern "C" {

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Call call("cuCtxGetStreamPriorityRange");
  if (call.error) return call.error;
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

/// Priorities change nothing: every order that they allow is allowed without.
CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  Call call("cuStreamCreateWithPriority");
  if (call.error) return call.error;
  // The other kind of stream waits for the default stream, which is not here.
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_NOT_SUPPORTED;
  state().streams.emplace_back();
  *out = &state().streams.back();
  (*out)->context = call.context;
  (*out)->strand = new_strand();
  (*out)->priority = priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  Call call("cuStreamGetPriority");
  if (call.error) return call.error;
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

/// What it holds still runs, as with the driver.
CUresult cuStreamDestroy(CUstream stream) {
  Call call("cuStreamDestroy_v2");
  if (call.error) return call.error;
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult code = not_while_captured(stream)) return code;
  if (CUresult code = run_until(call, [&] { return idle(*stream); })) return code;
  if (state().last == stream) state().last = nullptr;
  state().streams.remove_if([&](const CUstream_st& s) { return &s == stream; });
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  Call call("cuStreamSynchronize");
  if (call.error) return call.error;
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult code = not_looked_at(stream)) return code;
  if (CUresult code = run_until(call, [&] { return idle(*stream) || stream->context->broken; })) return code;
  host_saw(stream->clock);
  return stream->context->broken;
}

CUresult cuStreamQuery(CUstream stream) {
  Call call("cuStreamQuery");
  if (call.error) return call.error;
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult code = not_looked_at(stream)) return code;
  run_some(call);
  if (stream->context->broken) return stream->context->broken;
  if (!idle(*stream)) return CUDA_ERROR_NOT_READY;
  host_saw(stream->clock);
  return CUDA_SUCCESS;
}

/// The newest record of the event at the time of this call.
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  Call call("cuStreamWaitEvent", Needs::context, true);
  if (call.error) return call.error;
  if (!is_stream(stream) || !event) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
  if (event->capture || stream->capture) return capture_wait(stream, event);
  if (!event->last) return CUDA_SUCCESS;
  return queue(call, stream, {[record = event->last] { return record->done; }, [stream, record = event->last] {
                                join(stream->clock, record->clock);
                                return CUDA_SUCCESS;
                              }});
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr p, cuuint64_t value, unsigned condition) {
  Call call("cuStreamWaitValue64_v2", Needs::context, true);
  if (call.error) return call.error;
  if (condition > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!holds_word(p)) return CUDA_ERROR_INVALID_VALUE;
  return queue(call, stream, {[=] { return reached(__atomic_load_n(word(p), __ATOMIC_ACQUIRE), value, condition); }, [=] {
                                join(stream->clock, written()[p]);
                                return CUDA_SUCCESS;
                              }});
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr p, cuuint64_t value, unsigned flags) {
  Call call("cuStreamWriteValue64_v2", Needs::context, true);
  if (call.error) return call.error;
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
  if (!holds_word(p)) return CUDA_ERROR_INVALID_VALUE;
  return queue(call, stream, {{}, [=] {
                 join(written()[p], stream->clock);
                 __atomic_store_n(word(p), value, __ATOMIC_RELEASE);
                 return CUDA_SUCCESS;
               }});
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  Call call("cuLaunchHostFunc", Needs::context, true);
  if (call.error) return call.error;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  FakeOp op{{}, [=] {
              function(data);
              return CUDA_SUCCESS;
            }, true, {}, {}, true};
  return queue(call, stream, std::move(op));
}

CUresult cuEventCreate(CUevent* out, unsigned flags) {
  Call call("cuEventCreate");
  if (call.error) return call.error;
  if (flags & CU_EVENT_INTERPROCESS) return CUDA_ERROR_NOT_SUPPORTED;
  *out = new CUevent_st;
  (*out)->context = call.context;
  (*out)->timing = !(flags & CU_EVENT_DISABLE_TIMING);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  Call call("cuEventDestroy_v2");
  if (call.error) return call.error;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  Call call("cuEventRecord", Needs::context, true);
  if (call.error) return call.error;
  if (!event || !is_stream(stream) || event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  event->capture = stream->capture;
  event->nodes = stream->tail;
  if (stream->capture) return CUDA_SUCCESS;
  auto record = std::make_shared<FakeRecord>();
  CUresult code = queue(call, stream, {{}, [record, stream] {
                          record->done = true;
                          record->clock = stream->clock;
                          record->time = state().clock;
                          return CUDA_SUCCESS;
                        }});
  if (code == CUDA_SUCCESS) event->last = record;
  return code;
}

CUresult cuEventQuery(CUevent event) {
  Call call("cuEventQuery");
  if (call.error) return call.error;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult code = not_while_captured(nullptr)) return code;
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  run_some(call);
  if (call.context->broken) return call.context->broken;
  if (event->last && !event->last->done) return CUDA_ERROR_NOT_READY;
  if (event->last) host_saw(event->last->clock);
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  Call call("cuEventSynchronize");
  if (call.error) return call.error;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult code = not_while_captured(nullptr)) return code;
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  CUresult code = run_until(call, [record = event->last] { return !record || record->done; });
  if (!code && event->last) host_saw(event->last->clock);
  return code;
}

/// A millisecond per step that ran in between.
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  Call call("cuEventElapsedTime_v2");
  if (call.error) return call.error;
  if (!start || !end || !start->timing || !end->timing || !start->last || !end->last || start->context != end->context) return CUDA_ERROR_INVALID_HANDLE;
  if (!start->last->done || !end->last->done) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(end->last->time) - static_cast<float>(start->last->time);
  return CUDA_SUCCESS;
}

}  // extern "C"
