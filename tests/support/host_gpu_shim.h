// What generated kernels need of CUDA, for the host's compiler.
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Three { unsigned x, y, z; };
/// Of the thread that runs, set by the test.
extern "C" {
struct HostThread {
  Three thread, block, block_size, grid;
  char (*values)[32];  ///< that lanes exchange: of 256 threads, and of as many
  unsigned turn;       ///< which of the two; a warp that has met takes the other, so that nobody writes what another still reads
  void (*wait)(int threads, int line);                           ///< line 0: to exchange values, which puts nothing in order
  void (*touched)(const void* at, unsigned long bytes, int how);  ///< 0: read, 1: written, 2: written when its group of copies is awaited
  void (*copies)(int groups);                                    ///< awaits all but so many; -1: one is closed, -2: awaits all that was begun
};
inline HostThread belfry_thread;
}
#include "host_gpu_accesses.h"
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
#define __syncthreads() belfry_thread.wait((int)blockDim.x, __LINE__)
#define __syncwarp() belfry_thread.wait(32, __LINE__)
UNSEEN static inline unsigned long long atomicMin(unsigned long long* p, unsigned long long v) {
  unsigned long long was = *p;
  if (v < was) *p = v;
  return was;
}
/// Where the warp's threads put what they exchange.
UNSEEN static inline char (*host_values())[32] { return belfry_thread.values + 256 * belfry_thread.turn; }
template <class T> UNSEEN T host_exchange(T v, unsigned from) {
  char (*const values)[32] = host_values();
  memcpy(values[threadIdx.x], &v, sizeof v);
  belfry_thread.wait(32, 0);
  memcpy(&v, values[from], sizeof v);
  return v;
}
#include "host_gpu_products.h"
template <class T> T __shfl_xor_sync(unsigned, T v, int mask) { return host_exchange(v, threadIdx.x ^ (unsigned)mask); }
template <class T> T __shfl_sync(unsigned, T v, int lane) { return host_exchange(v, threadIdx.x / 32 * 32 + (unsigned)lane % 32); }
/// The lanes of the warp whose value is what `is` asks for.
template <class T, class Is> UNSEEN unsigned host_lanes(T v, Is is) {
  char (*const values)[32] = host_values();
  memcpy(values[threadIdx.x], &v, sizeof v);
  belfry_thread.wait(32, 0);
  unsigned out = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    T of;
    memcpy(&of, values[threadIdx.x / 32 * 32 + lane], sizeof of);
    out |= (unsigned)is(of) << lane;
  }
  return out;
}
static inline unsigned __ballot_sync(unsigned, int v) { return host_lanes(v, [](int of) { return of != 0; }); }
static inline unsigned __match_any_sync(unsigned, int v) { return host_lanes(v, [v](int of) { return of == v; }); }
