// Text for folds whose order is fixed: values are read far ahead, or brought to shared memory by a whole block.
#pragma once

namespace belfry {

/// in_order<N>(sum, x, step, count, fold): fold(sum, x[k * step]) for k < count, N reads at a time.
/// staged(sum, values, width, at, fold), by all of a block of 256 threads: thread c < width (at most 32) folds at(k, c) for all k with k * width + c < values,
/// in rows of `width`, the last of which may be short; there is one value at least. Loads stand under no condition, so that they go out together.
inline const char* const kStaged = R"(
template <int N, class A, class S, class F> A next_of(A sum, const S* x, i64 step, i64 count, F fold) {
  S v[N];
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = x[(j < count ? j : 0) * step];
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (j < count) sum = fold(sum, v[j]);
  return sum;
}
template <int N, class A, class S, class F> A in_order(A sum, const S* x, i64 step, i64 count, F fold) {
  i64 k = 0;
  for (; k + N <= count; k += N) sum = next_of<N>(sum, x + k * step, step, N, fold);
  for (; k < count; k += 4) sum = next_of<4>(sum, x + k * step, step, count - k, fold);
  return sum;
}
/// Seven warps read a tile while the first folds the one before.
template <class S, class A, class At, class F> A staged(A sum, i64 values, int width, At at, F fold) {
  const int kReaders = 224, kAhead = sizeof(S) < 8 ? 16 : 8;
  __shared__ S tiles[2][kReaders * kAhead];
  const int c = threadIdx.x < 32 ? (int)threadIdx.x : ((int)threadIdx.x - 32) % width, row = ((int)threadIdx.x - 32) / width, across = kReaders / width;
  const i64 tile = across * kAhead, rows = (values - c + width - 1) / width;
  int which = 0;
  for (i64 from = -tile; from * width < values; from += tile, which ^= 1) {
    if (threadIdx.x >= 32) {
      S v[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const i64 k = from + tile + j * across + row;
        v[j] = at(k < rows ? k : 0, rows > 0 ? c : 0);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j)
        if (row < across) tiles[which ^ 1][(j * across + row) * width + c] = v[j];
    } else if (c < width && from >= 0) {
      sum = in_order<32>(sum, tiles[which] + c, width, rows - from < tile ? rows - from : tile, fold);
    }
    __syncthreads();
  }
  return sum;
}
/// What `blocks` blocks hold of a column, `step` apart, by all of a block of 256 threads, of which those of a column are four apart: 64 groups of neighbours at most, in order, then the groups in order.
/// For the first thread of each column, where it is `there`.
template <class A, class F> A join_groups(const A* x, i64 blocks, i64 step, bool there, F fold) {
  __shared__ A parts[256];
  const i64 group = (blocks + 63) / 64, first = threadIdx.x / 4 * group, left = blocks - first;
  if (there && left > 0) parts[threadIdx.x] = in_order<16>(x[first * step], x + (first + 1) * step, step, (left < group ? left : group) - 1, fold);
  __syncthreads();
  A sum = parts[threadIdx.x % 4];
  if (there && threadIdx.x < 4) sum = in_order<16>(sum, parts + threadIdx.x + 4, 4, (blocks + group - 1) / group - 1, fold);
  __syncthreads();
  return sum;
}
/// In the order of reduce_sum: the blocks of x (blocks, columns), of four columns from `first`.
template <class Read, class Y> void join_blocks(const double* x, i64 blocks, i64 columns, i64 first, Y* to) {
  const i64 c = first + threadIdx.x % 4;
  const double sum = join_groups(x + c, blocks, columns, c < columns, [](double p, double q) { return p + q; });
  if (threadIdx.x < 4 && c < columns) to[c] = convert<Y>((Read)sum);
}
)";

}  // namespace belfry
