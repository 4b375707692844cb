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
template <class T> T __shfl_xor_sync(unsigned, T v, int mask) { return host_exchange(v, threadIdx.x ^ (unsigned)mask); }
template <class T> T __shfl_sync(unsigned, T v, int lane) { return host_exchange(v, threadIdx.x / 32 * 32 + (unsigned)lane % 32); }
/// Whole here, so that a product in the warp is held to its references as closely as others.
static inline float to_tf32(float x) { return x; }
/// Lane l of a product of 16 x 8 has of a rows l/4 and l/4 + 8 at columns l%4, then l%4 + 4; of b rows l%4 and l%4 + 4 of column l/4; of c rows l/4, then l/4 + 8 at columns 2(l%4) and one more (PTX: mma.m16n8k8).
static inline void multiply_in_warp(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
  const unsigned warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
  float of[32][6];
  memcpy(belfry_thread.values[threadIdx.x], &a, sizeof a);
  belfry_thread.wait(32);
  for (int l = 0; l < 32; ++l) memcpy(of[l], belfry_thread.values[warp + l], sizeof a);
  belfry_thread.wait(32);
  memcpy(belfry_thread.values[threadIdx.x], &b, sizeof b);
  belfry_thread.wait(32);
  for (int l = 0; l < 32; ++l) memcpy(of[l] + 4, belfry_thread.values[warp + l], sizeof b);
  belfry_thread.wait(32);
  for (unsigned k = 0; k < 8; ++k)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      c[i] += of[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2] * of[column * 4 + k % 4][4 + k / 4];
    }
}
/// The same of words of PER elements each, of which `element(word, k)` is the k-th.
template <int PER, class Element> void host_multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Element element) {
  const unsigned warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
  unsigned of[32][6];
  memcpy(belfry_thread.values[threadIdx.x], &a, sizeof a);
  belfry_thread.wait(32);
  for (int l = 0; l < 32; ++l) memcpy(of[l], belfry_thread.values[warp + l], sizeof a);
  belfry_thread.wait(32);
  memcpy(belfry_thread.values[threadIdx.x], &b, sizeof b);
  belfry_thread.wait(32);
  for (int l = 0; l < 32; ++l) memcpy(of[l] + 4, belfry_thread.values[warp + l], sizeof b);
  belfry_thread.wait(32);
  for (unsigned k = 0; k < 8; ++k)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2, left = of[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2], right = of[column * 4 + k % 4][4 + k / 4];
      for (int e = 0; e < PER; ++e) c[i] += element(left, e) * element(right, e);
    }
}
static inline void load_matrices(float (&to)[4], const float* row) {
  for (unsigned m = 0; m < 4; ++m) to[m] = host_exchange(row, threadIdx.x / 32 * 32 + m * 8 + threadIdx.x % 32 / 4)[threadIdx.x % 4];
}
/// Of rows of eight halves: lane l gets rows 2(l%4) and one more of column l/4.
static inline void load_transposed(unsigned (&to)[4], const unsigned* row) {
  const unsigned warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
  for (unsigned m = 0; m < 4; ++m) {
    to[m] = 0;
    for (unsigned k = 0; k < 2; ++k) to[m] |= (host_exchange(row, warp + m * 8 + lane % 4 * 2 + k)[lane / 8] >> lane / 4 % 2 * 16 & 0xFFFFu) << 16 * k;
  }
}
/// Copies are there at once.
template <int BYTES> void copy_bytes(void* to, const void* from, bool there) {
  struct alignas(BYTES) Bytes { char of[BYTES]; };
  *(Bytes*)to = there ? *(const Bytes*)from : Bytes{};
}
static inline void commit_copies() {}
template <int N> void await_copies_but() {}
static inline void copy_four(float* to, const float* from, bool there) {
  for (int i = 0; i < 4; ++i) to[i] = there ? from[i] : 0;
}
static inline void copy_one(float* to, const float* from, bool there) { *to = there ? *from : 0; }
static inline void await_copies() {}
static inline unsigned thread_now() { return threadIdx.x; }
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
