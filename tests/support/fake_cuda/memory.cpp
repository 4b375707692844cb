// Memory, copies and fills. Fresh memory holds noise.
#include <cstdlib>
#include <cstring>

#include "state_internal.h"

using namespace fake_cuda;

namespace {

constexpr std::size_t kAlignment = 512;

void* address(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(p)); }

/// Whether the bytes lie in one block, or wholly outside all of them: then they are pageable memory of the host.
bool fits(CUdeviceptr p, std::size_t bytes) {
  std::uintptr_t start = 0;
  const Block* block = block_of(p, &start);
  if (block) return bytes <= block->bytes - (p - start);
  return p != 0 && (bytes == 0 || !block_of(p + bytes - 1));
}

bool on_device(CUdeviceptr p, std::size_t bytes) {
  const Block* block = block_of(p);
  return block && block->context && fits(p, bytes);
}

std::string place_of(CUdeviceptr p) {
  const Block* block = block_of(p);
  return !block || !block->context ? "the host" : "GPU " + std::to_string(block->context->device);
}

CUresult copied(Call& call, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (call.error) return call.error;
  if (bytes && (!fits(to, bytes) || !fits(from, bytes))) return CUDA_ERROR_INVALID_VALUE;
  FakeOp op{{}, [=] {
                 // What was freed by its owner meanwhile is no longer there.
                 if (!fits(to, bytes) || !fits(from, bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
                 std::memmove(address(to), address(from), bytes);
                 return CUDA_SUCCESS;
               }};
  op.access = {"a copy of " + std::to_string(bytes) + " bytes from " + place_of(from) + " to " + place_of(to), {{address(from), bytes, false}, {address(to), bytes, true}}};
  return queue(call, stream, std::move(op));
}

CUresult give(std::size_t bytes, CUctx_st* context, void** out) {
  void* p = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (!p) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(p, static_cast<int>(0x81 + state().random() % 64), bytes);
  state().blocks[reinterpret_cast<std::uintptr_t>(p)] = {bytes, context, true};
  forget(reinterpret_cast<std::uintptr_t>(p), bytes);
  *out = p;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* out, std::size_t bytes) {
  Call call("cuMemAlloc_v2");
  if (call.error) return call.error;
  if (CUresult code = not_while_captured(nullptr)) return code;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > state().settings.memory - call.context->used) return CUDA_ERROR_OUT_OF_MEMORY;
  void* p = nullptr;
  if (CUresult code = give(bytes, call.context, &p)) return code;
  call.context->used += bytes;
  *out = reinterpret_cast<std::uintptr_t>(p);
  return CUDA_SUCCESS;
}

/// Waits for the work of the memory's device, as the driver does.
CUresult cuMemFree(CUdeviceptr p) {
  Call call("cuMemFree_v2");
  if (call.error || p == 0) return call.error;
  if (CUresult code = not_while_captured(nullptr)) return code;
  auto at = state().blocks.find(p);
  if (at == state().blocks.end() || !at->second.context) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* owner = at->second.context;
  CUresult code = run_until(call, [owner] {
    if (owner->broken) return true;
    for (const CUstream_st& s : state().streams)
      if (s.context == owner && !idle(s)) return false;
    return true;
  });
  if (code || owner->broken) return code ? code : owner->broken;
  owner->used -= at->second.bytes;
  state().blocks.erase(at);
  std::free(address(p));
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  Call call("cuMemGetInfo_v2");
  if (call.error) return call.error;
  *total = state().settings.memory;
  *free = *total - call.context->used;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** out, std::size_t bytes, unsigned) {
  Call call("cuMemHostAlloc");
  if (call.error) return call.error;
  if (CUresult code = not_while_captured(nullptr)) return code;
  return bytes ? give(bytes, nullptr, out) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeHost(void* p) {
  Call call("cuMemFreeHost");
  if (call.error) return call.error;
  if (CUresult code = not_while_captured(nullptr)) return code;
  auto at = state().blocks.find(reinterpret_cast<std::uintptr_t>(p));
  if (at == state().blocks.end() || at->second.context || !at->second.owned) return CUDA_ERROR_INVALID_VALUE;
  state().blocks.erase(at);
  std::free(p);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* p, std::size_t bytes, unsigned) {
  Call call("cuMemHostRegister_v2");
  if (call.error) return call.error;
  if (CUresult code = not_while_captured(nullptr)) return code;
  if (!p || !bytes) return CUDA_ERROR_INVALID_VALUE;
  auto from = reinterpret_cast<std::uintptr_t>(p);
  if (block_of(from) || block_of(from + bytes - 1)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  state().blocks[from] = {bytes, nullptr, false};
  forget(from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* p) {
  Call call("cuMemHostUnregister");
  if (call.error) return call.error;
  auto at = state().blocks.find(reinterpret_cast<std::uintptr_t>(p));
  if (at == state().blocks.end() || at->second.owned) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  state().blocks.erase(at);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  Call call("cuMemcpyAsync", Needs::context, true);
  return copied(call, to, from, bytes, stream);
}

/// Of unified addresses alone.
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* c, CUstream stream) {
  Call call("cuMemcpy2DAsync_v2", Needs::context, true);
  if (call.error) return call.error;
  const CUdeviceptr to = c->dstDevice, from = c->srcDevice;
  const std::size_t bytes = c->WidthInBytes, rows = c->Height, to_step = c->dstPitch, from_step = c->srcPitch;
  const bool plain = c->srcMemoryType == CU_MEMORYTYPE_UNIFIED && c->dstMemoryType == CU_MEMORYTYPE_UNIFIED && !c->srcXInBytes && !c->srcY && !c->dstXInBytes && !c->dstY;
  if (!plain || !bytes || !rows || to_step < bytes || from_step < bytes || !fits(to, (rows - 1) * to_step + bytes) || !fits(from, (rows - 1) * from_step + bytes)) return CUDA_ERROR_INVALID_VALUE;
  FakeOp op{{}, [=] {
              if (!fits(to, (rows - 1) * to_step + bytes) || !fits(from, (rows - 1) * from_step + bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
              for (std::size_t r = 0; r < rows; ++r) std::memmove(address(to + r * to_step), address(from + r * from_step), bytes);
              return CUDA_SUCCESS;
            }};
  op.access = {"a copy of " + std::to_string(rows) + " rows from " + place_of(from) + " to " + place_of(to), {}};
  for (std::size_t r = 0; r < rows; ++r) {
    op.access.ranges.push_back({address(from + r * from_step), bytes, false});
    op.access.ranges.push_back({address(to + r * to_step), bytes, true});
  }
  return queue(call, stream, std::move(op));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t bytes, CUstream stream) {
  Call call("cuMemcpyPeerAsync", Needs::context, true);
  if (call.error) return call.error;
  const Block *a = block_of(to), *b = block_of(from);
  if (!a || !b || a->context != to_context || b->context != from_context) return CUDA_ERROR_INVALID_VALUE;
  return copied(call, to, from, bytes, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  Call call("cuMemsetD8Async", Needs::context, true);
  if (call.error) return call.error;
  if (!on_device(to, count)) return CUDA_ERROR_INVALID_VALUE;
  FakeOp op{{}, [=] {
              std::memset(address(to), value, count);
              return CUDA_SUCCESS;
            }};
  op.access = {"a fill of " + std::to_string(count) + " bytes", {{address(to), count, true}}};
  return queue(call, stream, std::move(op));
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  Call call("cuMemsetD32Async", Needs::context, true);
  if (call.error) return call.error;
  if (to % 4 || !on_device(to, count * 4)) return CUDA_ERROR_INVALID_VALUE;
  FakeOp op{{}, [=] {
              for (std::size_t i = 0; i < count; ++i) std::memcpy(static_cast<char*>(address(to)) + i * 4, &value, 4);
              return CUDA_SUCCESS;
            }};
  op.access = {"a fill of " + std::to_string(4 * count) + " bytes", {{address(to), 4 * count, true}}};
  return queue(call, stream, std::move(op));
}

}  // extern "C"
