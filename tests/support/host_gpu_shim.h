// What generated kernels need of CUDA, for the host's compiler.
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Three { unsigned x, y, z; };
/// Of the thread that runs, set by the test.
extern "C" {
struct HostThread { Three thread, block, block_size, grid; char (*values)[16]; void (*wait)(int threads); };
inline HostThread belfry_thread;
}
#define threadIdx belfry_thread.thread
#define blockIdx belfry_thread.block
#define blockDim belfry_thread.block_size
#define gridDim belfry_thread.grid
#define KERNEL static
#define KERNEL_AHEAD static
#define KERNEL_THREE static
#define __shared__ static
#define __device__
#define __constant__ static const
#define __grid_constant__

template <int bytes, class A> void belfry_run(void (*entry)(A), const void* words) {
  A a;
  static_assert(sizeof a == bytes, "words");
  memcpy((void*)&a, words, sizeof a);
  entry(a);
}

static inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
static inline float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline void __syncthreads() { belfry_thread.wait((int)blockDim.x); }
static inline void __syncwarp() { belfry_thread.wait(32); }
static inline unsigned long long atomicMin(unsigned long long* p, unsigned long long v) {
  unsigned long long was = *p;
  if (v < was) *p = v;
  return was;
}
template <class T> T host_exchange(T v, unsigned from) {
  memcpy(belfry_thread.values[threadIdx.x], &v, sizeof v);
  belfry_thread.wait(32);
  memcpy(&v, belfry_thread.values[from], sizeof v);
  belfry_thread.wait(32);
  return v;
}
#include "host_gpu_products.h"
template <class T> T __shfl_xor_sync(unsigned, T v, int mask) { return host_exchange(v, threadIdx.x ^ (unsigned)mask); }
template <class T> T __shfl_sync(unsigned, T v, int lane) { return host_exchange(v, threadIdx.x / 32 * 32 + (unsigned)lane % 32); }
/// The lanes of the warp whose value is what `is` asks for.
template <class T, class Is> unsigned host_lanes(T v, Is is) {
  memcpy(belfry_thread.values[threadIdx.x], &v, sizeof v);
  belfry_thread.wait(32);
  unsigned out = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    T of;
    memcpy(&of, belfry_thread.values[threadIdx.x / 32 * 32 + lane], sizeof of);
    out |= (unsigned)is(of) << lane;
  }
  belfry_thread.wait(32);
  return out;
}
static inline unsigned __ballot_sync(unsigned, int v) { return host_lanes(v, [](int of) { return of != 0; }); }
static inline unsigned __match_any_sync(unsigned, int v) { return host_lanes(v, [v](int of) { return of == v; }); }
