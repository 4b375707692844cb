// Text of the launch that adds partial gradients of filters.
#pragma once

namespace belfry {

/// Of `a.parts` times `a.elements` values of F in the scratch: output 0, of Y. Eight warps add every eighth part of 32 elements, then the first adds what the eight have.
inline const char* const kJoinParts = R"(
KERNEL void join(const Args a) {
  __shared__ F shared[8][32];
  const int lane = threadIdx.x % 32, turn = threadIdx.x / 32;
  for (I first = (I)blockIdx.x * 32; first < (I)a.elements; first += (I)gridDim.x * 32) {
    const I u = first + lane;
    F sum = 0;
#pragma unroll 8
    for (I part = turn; part < (I)a.parts && u < (I)a.elements; part += 8) sum += ((const F*)a.scratch)[(i64)part * a.elements + u];
    shared[turn][lane] = sum;
    __syncthreads();
    if (turn == 0 && u < (I)a.elements) {
      for (int j = 1; j < 8; ++j) sum += shared[j][lane];
      ((Y*)a.out[0])[u] = convert<Y>(sum);
    }
    __syncthreads();
  }
}
)";

}  // namespace belfry
