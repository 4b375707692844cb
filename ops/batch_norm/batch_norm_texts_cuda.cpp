#include <belfry/ops/batch_norm/texts_cuda_internal.h>

namespace belfry {

const char* const batch_norm_texts::kTiles = R"(
typedef Pack<T, N> Data;
typedef Pack<F, N> Reals;
/// What a thread has of a tile: the pack at `channel` in `count` rows, from element `first` on, `step` elements apart.
struct Tile { i64 channel, first, step; int lane, count; };
inline Tile tile_of(const Args& a, u32 block, i64 rows) {
  const u32 columns = (u32)a.columns, lanes = (u32)a.lanes, across = (u32)a.across, lane = threadIdx.x / columns;
  const i64 pack = (i64)(block % across) * columns + threadIdx.x % columns, top = (i64)(block / across) * rows, row = top + lane, past = top + rows < a.rows ? top + rows : a.rows;
  const bool some = lane < lanes && pack < a.packs && row < past;
  return {pack * N, row * a.channels + pack * N, a.lanes * a.channels, (int)lane, some ? (int)(((u32)(past - row) + lanes - 1) / lanes) : 0};
}
template <bool IN_PACKS> Data read(const T* at) {
  if (IN_PACKS) return *(const Data*)at;
  Data v;
#pragma unroll
  for (int i = 0; i < N; ++i) v.e[i] = at[i];
  return v;
}
template <bool IN_PACKS, class S> void write(S* at, const Pack<S, N>& v) {
  if (IN_PACKS) put((Pack<S, N>*)at, v);
  else {
#pragma unroll
    for (int i = 0; i < N; ++i) at[i] = v.e[i];
  }
}
/// COUNT rows, all read before the first is used.
template <bool IN_PACKS, int COUNT> void read_rows(const T* at, i64 step, Data (&v)[COUNT]) {
#pragma unroll
  for (int j = 0; j < COUNT; ++j) v[j] = read<IN_PACKS>(at + j * step);
}
/// The sums of all lanes of a column, by halves, for its first lane.
template <int M> void fold_lanes(double (&sum)[M], int lane, int lanes, int columns) {
  __shared__ double parts[M][256];
  const int t = threadIdx.x;
#pragma unroll
  for (int i = 0; i < M; ++i) parts[i][t] = sum[i];
  for (int apart = 128; apart > 0; apart /= 2) {
    __syncthreads();
    if (lane >= apart || lane + apart >= lanes) continue;
#pragma unroll
    for (int i = 0; i < M; ++i) parts[i][t] = sum[i] = sum[i] + parts[i][t + apart * columns];
  }
}
/// A few rows are added in F, all else in f64.
inline void add_to(double (&sum)[2 * N], const F (&part)[2 * N]) {
#pragma unroll
  for (int i = 0; i < 2 * N; ++i) sum[i] += (double)part[i];
}
inline void keep(const Args& a, const Tile& t, double (&sum)[2 * N]) {
  fold_lanes(sum, t.lane, (int)a.lanes, (int)a.columns);
  if (t.lane != 0 || t.count == 0) return;
  double* out = (double*)a.scratch + blockIdx.x / (u32)a.across * a.channels + t.channel;
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = sum[i], out[a.blocks * a.channels + i] = sum[N + i];
}
/// What the last launch wants of channel k, number `which`: behind the sums in memory, or where that launch joins them, what each block has of its own channels.
inline F* wanted_of(const Args& a, int which, i64 k) {
  __shared__ Reals own[4][32 / N];
  return a.joins ? (F*)own[which] + (u32)k % (u32)(a.columns * N) : (F*)((double*)a.scratch + 2 * a.blocks * a.channels) + which * a.channels + k;
}
inline double parameter(const void* all, i64 k, double otherwise) { return all ? (double)((const F*)all)[k] : otherwise; }
/// Of channel k, of whom it tells others too.
void joined(const Args& a, i64 k, double first, double second, bool tells);
/// A block's own channels, 32 at most, of 32 blocks at most: eight lanes for each add what `join` adds, in its order.
inline void join_own(const Args& a, u32 block) {
  const int width = (int)a.columns * N, lane = threadIdx.x / 32, own = threadIdx.x % 32, blocks = (int)a.blocks;
  const i64 k = (i64)(block % (u32)a.across) * width + own;
  const bool some = own < width && k < a.channels;
  double v[2][4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int b = lane + 8 * j;
    const double* at = (const double*)a.scratch + b * a.channels + k;
    if (some && b < blocks) v[0][j] = at[0], v[1][j] = at[blocks * a.channels];
  }
  double sum[2] = {(v[0][0] + v[0][2]) + (v[0][1] + v[0][3]), (v[1][0] + v[1][2]) + (v[1][1] + v[1][3])};
  fold_lanes(sum, lane, 8, 32);
  if (lane == 0 && some) joined(a, k, sum[0], sum[1], block < (u32)a.across);
  __syncthreads();
}
/// Four channels of 64 lanes, which take blocks in turn.
KERNEL void join(const Args a) {
  const int lane = threadIdx.x / 4, blocks = (int)a.blocks;
  const i64 k = (i64)blockIdx.x * 4 + threadIdx.x % 4;
  double sum[2] = {};
  if (k < a.channels) {
    const double* at = (const double*)a.scratch + k;
#pragma unroll 4
    for (int b = lane; b < blocks; b += 64) sum[0] += at[b * a.channels], sum[1] += at[(blocks + b) * a.channels];
  }
  fold_lanes(sum, lane, 64, 4);
  if (lane == 0 && k < a.channels) joined(a, k, sum[0], sum[1], true);
}
)";

/// A thread's sums are of distances to its first row, then brought to the first of all: so the variance cancels nothing, wherever the mean is.
const char* const batch_norm_texts::kForward = R"(
inline F finite(F x) { return x - x == 0 ? x : F(0); }
template <bool IN_PACKS, int COUNT> void add_rows(double (&sum)[2 * N], const T* x, i64 step, const F (&origin)[N]) {
  Data v[COUNT];
  read_rows<IN_PACKS>(x, step, v);
  F part[2 * N] = {};
#pragma unroll
  for (int j = 0; j < COUNT; ++j) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const F d = convert<F>(v[j].e[i]) - origin[i];
      part[i] += d;
      part[N + i] += d * d;
    }
  }
  add_to(sum, part);
}
inline F origin_of(const Args& a, i64 k) { return finite(convert<F>(((const T*)a.in[X])[k])); }
template <bool IN_PACKS> void sums(const Args& a) {
  const Tile t = tile_of(a, blockIdx.x, a.block);
  double sum[2 * N] = {};
  if (t.count > 0) {
    const T* x = (const T*)a.in[X] + t.first;
    const Data top = read<IN_PACKS>(x);
    F origin[N];
#pragma unroll
    for (int i = 0; i < N; ++i) origin[i] = finite(convert<F>(top.e[i]));
    int left = t.count;
    for (; left >= 4; left -= 4, x += 4 * t.step) add_rows<IN_PACKS, 4>(sum, x, t.step, origin);
    for (; left > 0; --left, x += t.step) add_rows<IN_PACKS, 1>(sum, x, t.step, origin);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const double d = (double)origin[i] - (double)origin_of(a, t.channel + i), n = t.count;
      sum[N + i] += d * (2 * sum[i] + n * d);
      sum[i] += n * d;
    }
  }
  keep(a, t, sum);
}
void joined(const Args& a, i64 k, double distance, double squares, bool tells) {
  const double n = (double)a.rows, apart = distance / n, mean = (double)origin_of(a, k) + apart, rest = squares / n - apart * apart, variance = rest < 0 ? 0 : rest;
  const double scale = parameter(a.in[X + 1], k, 1) / sqrt(variance + a.epsilon);
  if (tells && a.out[1]) ((F*)a.out[1])[k] = (F)mean;
  if (tells && a.out[2]) ((F*)a.out[2])[k] = (F)variance;
  if (tells && a.out[3]) ((F*)a.out[3])[k] = (F)(variance * (n / (n > 1 ? n - 1 : 1)));
  *wanted_of(a, 0, k) = (F)mean;
  *wanted_of(a, 1, k) = (F)scale;
  *wanted_of(a, 2, k) = (F)(parameter(a.in[X + 2], k, 0) - (mean - (double)(F)mean) * scale);  // with what F has no room for of the mean
}
struct Channels {
  Channels(const Args& a, i64 k) : mean(*(const Reals*)wanted_of(a, 0, k)), scale(*(const Reals*)wanted_of(a, 1, k)), shift(*(const Reals*)wanted_of(a, 2, k)) {}
  Reals mean, scale, shift;
};
inline F y_of(F x, const Channels& c, int i) { return (x - c.mean.e[i]) * c.scale.e[i] + c.shift.e[i]; }
template <bool IN_PACKS, int COUNT> void normalise_rows(const Args& a, i64 at, i64 step, const Channels& c) {
  Data v[COUNT];
  read_rows<IN_PACKS>((const T*)a.in[X] + at, step, v);
  const Others<IN_PACKS, COUNT> others(a, at, step);
#pragma unroll
  for (int j = 0; j < COUNT; ++j) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[j].e[i] = others.with(a, convert<T>(y_of(convert<F>(v[j].e[i]), c, i)), j, i);
    write<IN_PACKS>((T*)a.out[0] + at + j * step, v[j]);
  }
}
typedef Channels OfChannels;
)";

/// Where dy is kept, the first pass writes what it adds, and the last reads that.
const char* const batch_norm_texts::kBackward = R"(
/// Where SLOPE says that dy is that of an activation, it goes through where that lets y = (x - mean)·scale + beta through: in both passes the same y.
inline F scale_of(const Args& a, i64 k) { return (F)parameter(a.in[X + 1], k, 1) / sqrt(((const F*)a.in[X + 4])[k] + (F)a.epsilon); }
inline bool passes(F y) { return SLOPE == 0 || (y > 0 && (SLOPE == 1 || y < 6)); }
/// Of a thread's channels. Rows ahead and sums want the registers: with a slope all are read from shared memory each time.
struct Line {
  F own[N];
  const volatile F *means, *scales, *betas;
  F mean(int i) const { return SLOPE == 0 ? own[i] : means[i]; }
  bool lets_through(F centred, int i) const { return SLOPE == 0 || passes(centred * scales[i] + betas[i]); }
};
inline Line line_of(const Args& a, const Tile& t) {
  __shared__ F line[3][32 * N];
  const F* const mean = (const F*)a.in[X + 3];
  Line out = {};
  if (SLOPE == 0 && t.count > 0) {
#pragma unroll
    for (int i = 0; i < N; ++i) out.own[i] = mean[t.channel + i];
  }
  if (SLOPE != 0) {
    const int width = (int)a.columns * N, at = threadIdx.x;
    const i64 k = (i64)(blockIdx.x % (u32)a.across) * width + at;
    if (at < width && k < a.channels) line[0][at] = mean[k], line[1][at] = scale_of(a, k), line[2][at] = (F)parameter(a.in[X + 2], k, 0);
    __syncthreads();
    const int first = t.channel % width;
    out.means = line[0] + first, out.scales = line[1] + first, out.betas = line[2] + first;
  }
  return out;
}
template <bool IN_PACKS, int COUNT> void add_rows(const Args& a, double (&sum)[2 * N], i64 at, i64 step, const Line& line) {
  constexpr int ROWS_AHEAD = !IN_PACKS && KEEPS_DY ? 1 : COUNT < AHEAD ? COUNT : AHEAD;
  F part[2 * N] = {};
#pragma unroll
  for (int row = 0; row < COUNT; row += ROWS_AHEAD, at += ROWS_AHEAD * step) {
    Data v[ROWS_AHEAD];
    read_rows<IN_PACKS>((const T*)a.in[X] + at, step, v);
    const Others<IN_PACKS, ROWS_AHEAD> dy(a, at, step);
#pragma unroll
    for (int j = 0; j < ROWS_AHEAD; ++j) {
      Data made;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        made.e[i] = dy.of(a, j, i);
        const F centred = convert<F>(v[j].e[i]) - line.mean(i), g = line.lets_through(centred, i) ? convert<F>(made.e[i]) : F(0);
        part[i] += g;
        part[N + i] += g * centred;
      }
#if KEEPS_DY
      write<IN_PACKS>((T*)DY + at + j * step, made);
#endif
    }
  }
  add_to(sum, part);
}
#if KEEPS_DY
template <bool IN_PACKS, int COUNT> struct Slope {
  Data dy[COUNT];
  Slope(const Args& a, i64 at, i64 step) { read_rows<IN_PACKS>((const T*)DY + at, step, dy); }
  T of(const Args& a, int j, int i) const { return dy[j].e[i]; }
};
#else
template <bool IN_PACKS, int COUNT> using Slope = Others<IN_PACKS, COUNT>;
#endif
template <bool IN_PACKS> void sums(const Args& a) {
  const Tile t = tile_of(a, blockIdx.x, a.block);
  const Line line = line_of(a, t);
  double sum[2 * N] = {};
  if (t.count > 0) {
    i64 at = t.first;
    int left = t.count;
    for (; left >= 4; left -= 4, at += 4 * t.step) add_rows<IN_PACKS, 4>(a, sum, at, t.step, line);
    for (; left > 0; --left, at += t.step) add_rows<IN_PACKS, 1>(a, sum, at, t.step, line);
  }
  keep(a, t, sum);
}
void joined(const Args& a, i64 k, double dbeta, double product, bool tells) {
  const double inverse = 1 / sqrt((double)((const F*)a.in[X + 4])[k] + a.epsilon), dgamma = product * inverse, scale = parameter(a.in[X + 1], k, 1) * inverse;
  if (tells && DGAMMA) ((F*)DGAMMA)[k] = (F)dgamma;
  if (tells && DBETA) ((F*)DBETA)[k] = (F)dbeta;
  *wanted_of(a, 0, k) = ((const F*)a.in[X + 3])[k];
  *wanted_of(a, 1, k) = SLOPE ? scale_of(a, k) : (F)scale;  // of whose y the sums are
  *wanted_of(a, 2, k) = (F)(-scale * inverse * dgamma / (double)a.rows);
  *wanted_of(a, 3, k) = (F)(-scale * dbeta / (double)a.rows);
}
struct Slopes {
  Slopes(const Args& a, i64 k)
      : mean(*(const Reals*)wanted_of(a, 0, k)), of_dy(*(const Reals*)wanted_of(a, 1, k)), of_x(*(const Reals*)wanted_of(a, 2, k)), shift(*(const Reals*)wanted_of(a, 3, k)) {
#pragma unroll
    for (int i = 0; i < N; ++i) beta[i] = SLOPE ? (F)parameter(a.in[X + 2], k + i, 0) : 0;
  }
  Reals mean, of_dy, of_x, shift;
  F beta[N];
};
inline F dx_of(F x, F dy, const Slopes& c, int i) {
  const F centred = x - c.mean.e[i];
  return (passes(centred * c.of_dy.e[i] + c.beta[i]) ? dy : F(0)) * c.of_dy.e[i] + centred * c.of_x.e[i] + c.shift.e[i];
}
/// Row j of what is made lies at made[j * apart], too, where its rows are added.
template <bool IN_PACKS, int COUNT> void normalise_rows(const Args& a, i64 at, i64 step, const Slopes& c, Data* made = 0, int apart = 0) {
  Data v[COUNT];
  read_rows<IN_PACKS>((const T*)a.in[X] + at, step, v);
  const Slope<IN_PACKS, COUNT> dy(a, at, step);
#pragma unroll
  for (int j = 0; j < COUNT; ++j) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[j].e[i] = convert<T>(dx_of(convert<F>(v[j].e[i]), convert<F>(dy.of(a, j, i)), c, i));
#if HAS_MADE
    write<IN_PACKS>((T*)MADE + at + j * step, v[j]);
#endif
#if AS_HALVES
    Pack<H, N> halves;
#pragma unroll
    for (int i = 0; i < N; ++i) halves.e[i] = convert<H>(v[j].e[i]);
    write<IN_PACKS>((H*)HALVES + at + j * step, halves);
#endif
#if ADDED
    made[j * apart] = v[j];
#endif
  }
}
#if ADDED
struct NextRow { double operator()(double sum, T x) const { return sum + (double)convert<F>(x); } };
inline double* added_blocks(const Args& a) { return (double*)a.scratch + (2 * a.blocks + 4) * a.channels; }
/// Of a block of rows that reduce_sum adds: four of each lane at a time lie in shared memory, where a thread for each column adds them in order while the others go on with the next.
template <bool IN_PACKS> void normalise(const Args& a) {
  __shared__ Data made[2][4 * 256];
  const u32 block = gridDim.x - 1 - blockIdx.x, across = (u32)a.across;
  const Tile t = tile_of(a, block, a.added);
  const Slopes c(a, t.count > 0 ? t.channel : 0);
  const int width = (int)a.columns * N, apart = (int)(a.columns * a.lanes), ahead = 4 * (int)a.lanes;
  const i64 b = block / across, k = (i64)(block % across) * width + threadIdx.x;
  const int rows = (int)(a.rows - b * a.added < a.added ? a.rows - b * a.added : a.added);
  const bool adds = (int)threadIdx.x < width && k < a.channels;
  double sum = 0;
  i64 at = t.first;
  for (int row = 0, left = t.count, which = 0; row < rows; row += ahead, left -= 4, which ^= 1, at += 4 * t.step) {
    Data* const to = made[which] + threadIdx.x;
    if (IN_PACKS && left >= 4) normalise_rows<IN_PACKS, 4>(a, at, t.step, c, to, apart);
    else
      for (int j = 0; j < left && j < 4; ++j) normalise_rows<IN_PACKS, 1>(a, at + j * t.step, t.step, c, to + j * apart, apart);
    __syncthreads();
    if (adds) sum = in_order<16>(sum, (const T*)made[which] + threadIdx.x, width, rows - row < ahead ? rows - row : ahead, NextRow());
  }
  if (adds) added_blocks(a)[b * a.channels + k] = sum;
}
KERNEL_AHEAD void join_added(const Args a) { join_blocks<F>(added_blocks(a), a.added_blocks, a.channels, (i64)blockIdx.x * 4, (Y*)ADDED_TO); }
#endif
typedef Slopes OfChannels;
)";

/// The last pass goes from the end: what the sums read last may still lie in the cache. Packs where pointers are multiples of 16, else the same elements one by one.
const char* const batch_norm_texts::kEntries = R"(
#if !ADDED
template <bool IN_PACKS> void normalise(const Args& a) {
  const u32 block = gridDim.x - 1 - blockIdx.x;
  const Tile t = tile_of(a, block, a.tile);
  if (a.joins) join_own(a, block);
  if (t.count == 0) return;
  const OfChannels c(a, t.channel);
  i64 at = t.first;
  int left = t.count;
  for (; left >= 4; left -= 4, at += 4 * t.step) normalise_rows<IN_PACKS, 4>(a, at, t.step, c);
  for (; left > 0; --left, at += t.step) normalise_rows<IN_PACKS, 1>(a, at, t.step, c);
}
#endif
FIRST_KERNEL void wide_sums(const Args a) { sums<true>(a); }
FIRST_KERNEL void narrow_sums(const Args a) { sums<false>(a); }
LAST_KERNEL void wide_normalise(const Args a) { normalise<true>(a); }
LAST_KERNEL void narrow_normalise(const Args a) { normalise<false>(a); }
)";

}  // namespace belfry
