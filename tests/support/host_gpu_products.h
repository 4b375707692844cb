// What products of a warp need, in the place of instructions: lanes exchange what they have. Part of the shim.
#pragma once

/// Whole here, so that a product in the warp is held to its references as closely as others.
static inline float to_tf32(float x) { return x; }
/// Of words of PER elements each, of which `element(word, k)` is the k-th. Lane l of a product of 16 x 8 has of a rows l/4 and l/4 + 8 at columns l%4, then l%4 + 4; of b rows l%4 and l%4 + 4 of column l/4; of c rows
/// l/4, then l/4 + 8 at columns 2(l%4) and one more (PTX: mma.m16n8k8, and k16 of halves in pairs).
template <int PER, class Element> UNSEEN void host_multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Element element) {
  const unsigned warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
  unsigned of[32][6];
  char (*const values)[32] = host_values();
  memcpy(values[threadIdx.x], &a, sizeof a), memcpy(values[threadIdx.x] + sizeof a, &b, sizeof b);
  belfry_thread.wait(32, 0);
  for (int l = 0; l < 32; ++l) memcpy(of[l], values[warp + l], sizeof a + sizeof b);
  for (unsigned k = 0; k < 8; ++k)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2, left = of[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2], right = of[column * 4 + k % 4][4 + k / 4];
      for (int e = 0; e < PER; ++e) c[i] += element(left, e) * element(right, e);
    }
}
static inline void multiply_in_warp(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
  unsigned left[4], right[2];
  memcpy(left, a, sizeof left), memcpy(right, b, sizeof right);
  host_multiply<1>(c, left, right, [](unsigned word, int) __attribute__((always_inline)) {
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
  });
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
/// Copies are there at once, and may be read once they are awaited.
template <int BYTES> UNSEEN void copy_bytes(void* to, const void* from, bool there) {
  struct alignas(BYTES) Bytes { char of[BYTES]; };
  host_touched(to, BYTES, 2);
  if (there) host_touched(from, BYTES, 0);
  *(Bytes*)to = there ? *(const Bytes*)from : Bytes{};
}
static inline void commit_copies() { host_copies(-1); }
template <int N> void await_copies_but() { host_copies(N); }
static inline void copy_four(float* to, const float* from, bool there) { copy_bytes<16>(to, from, there); }
static inline void copy_one(float* to, const float* from, bool there) { copy_bytes<4>(to, from, there); }
static inline void await_copies() { host_copies(-2); }
static inline float power_of_two(float x) { return exp2f(x); }
static inline unsigned thread_now() { return threadIdx.x; }
