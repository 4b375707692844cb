#include <belfry/ops/layer_norm/lines_cuda_internal.h>

namespace belfry {

const char* const norm_gradient_texts::kColumns = R"(
/// A thread takes W channels of a block of rows, and reads the next rows ahead.
template <int W, int AHEAD> void columns(const Args& a) {
  typedef Pack<T, W> X;
  typedef Pack<U, W> D;
  const i64 across = a.channels / W;
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.blocks * across; u += (i64)gridDim.x * blockDim.x) {
    const i64 k = u % across, b = u / across, own = ROWS ? 0 : k * W / a.width, past = (b + 1) * a.block < a.rows ? (b + 1) * a.block : a.rows;
    Pack<double, W> dgamma = {}, dbeta = {};
    for (i64 row = b * a.block; row < past; row += AHEAD) {
      const i64 example = ROWS ? row : row / a.places;
      const u32 place = ROWS ? 0 : (u32)(row % a.places);
      X x[AHEAD];
      D d[AHEAD];
      Real mean[AHEAD], inverse[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; ++j) {
        const int more = row + j < past ? j : 0;
        const i64 at = row + more, group = ROWS ? at : (example + (place + more) / (u32)a.places) * a.groups + own;
        x[j] = ((const X*)a.in[0])[at * across + k];
        d[j] = ((const D*)a.in[3])[at * across + k];
        mean[j] = ((const Real*)a.in[1])[group];
        inverse[j] = ((const Real*)a.in[2])[group];
      }
#pragma unroll
      for (int j = 0; j < AHEAD; ++j)
#pragma unroll
        for (int e = 0; e < W; ++e)
          if (row + j < past) {
            const double dy = (double)convert<Real>(d[j].e[e]);
            dgamma.e[e] += dy * (((double)convert<Real>(x[j].e[e]) - (double)mean[j]) * (double)inverse[j]);
            dbeta.e[e] += dy;
          }
    }
    ((Pack<double, W>*)a.scratch)[u] = dgamma;
    ((Pack<double, W>*)a.scratch)[a.blocks * across + u] = dbeta;
  }
}
)";

/// Eight warps add every eighth block of 32 sums, then the first adds what the eight have. Rows of what is made are added as reduce_sum does.
const char* const norm_gradient_texts::kJoin = R"(
KERNEL_AHEAD void join(const Args a) {
#if ADDED
  if (blockIdx.x >= a.joins) {
    for (i64 first = (blockIdx.x - a.joins) * 4; first < a.channels; first += (gridDim.x - a.joins) * 4) join_blocks<Real>(added_blocks(a), a.added_blocks, a.channels, first, (Y*)ADDED_TO);
    return;
  }
#endif
  __shared__ double parts[8][32];
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  for (i64 first = (i64)blockIdx.x * 32; first < 2 * a.channels; first += a.joins * 32) {
    const i64 u = first + lane, which = u / a.channels, k = u % a.channels;
    void* const to = which == 0 ? DGAMMA : which == 1 ? DBETA : 0;
    double sum = 0;
    if (to && part < a.blocks) sum = in_order<16>(sum, (const double*)a.scratch + (which * a.blocks + part) * a.channels + k, 8 * a.channels, (a.blocks - part + 7) / 8, Add());
    parts[part][lane] = sum;
    __syncthreads();
    if (part == 0 && to) {
      for (int j = 1; j < 8; ++j) sum += parts[j][lane];
      ((Real*)to)[k] = (Real)sum;
    }
    __syncthreads();
  }
}
)";

const char* const norm_gradient_texts::kGradientRows = R"(
#define COLUMNS (PACKS * PACK)
inline int lane_of(int k) { return k / PACK % WIDTH; }
inline int column_of(int k) { return k / (PACK * WIDTH) * PACK + k % PACK; }
/// What a piece adds to dgamma or dbeta, from what a thread has of its columns: the lines of a warp, then the warps.
void keep(const Args& a, i64 which, i64 piece, const Real (&sum)[COLUMNS]) {
  double* const out = (double*)a.scratch + (which * a.blocks + piece) * a.channels;
  __shared__ Real parts[COLUMNS][256];
  __syncthreads();
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) parts[c][threadIdx.x] = sum[c];
  __syncthreads();
  for (int k = threadIdx.x; k < (int)a.n; k += 256) {
    double all = 0;
#pragma unroll
    for (int warp = 0; warp < 256 / WIDTH; ++warp) all += (double)parts[column_of(k)][warp * WIDTH + lane_of(k)];
    out[k] = all;
  }
}
#if ADDED
/// The sums of what a block of threads makes, in the order of the rows, of which `a.added` are a sum: of a thread's own columns, or where a row is a warp's of every 256th.
struct Added {
  enum { OWN = WIDTH == 256 ? COLUMNS : (COLUMNS * WIDTH + 255) / 256 };
  double sum[OWN] = {};
  double* to;
  i64 left;
  Added(const Args& a, i64 top) : to(added_blocks(a) + top / a.added * a.channels), left(a.added) {}
  /// Behind each row.
  void end(const Args& a, bool last) {
    if (--left > 0 && !last) return;
#pragma unroll
    for (int c = 0; c < OWN; ++c) {
      const int k = WIDTH == 256 ? first_of(c / PACK) + c % PACK : c * 256 + (int)threadIdx.x;
      if (k < (int)a.n) to[k] = sum[c];
      sum[c] = 0;
    }
    to += a.channels;
    left = a.added;
  }
};
#endif
/// With sums a block of threads takes a piece of rows, or all of a stretch, and x and dy are read once for dx and for what the rows add to dgamma, dbeta and a bias's gradient.
template <bool Wide> void rows(const Args& a) {
#if ADDED
  Added added(a, blockIdx.x * a.stretch);
  __shared__ Real made[WIDTH == 32 ? 8 : 1][WIDTH == 32 ? COLUMNS * WIDTH : 1];
#endif
#if ADDED
  for (i64 piece = blockIdx.x * a.pieces; piece < (blockIdx.x + 1) * a.pieces; ++piece)
#endif
  {
#if !ADDED
  const i64 piece = blockIdx.x;
#endif
#if SUMS || ADDED
  const i64 stretch = piece / a.pieces * a.stretch, top = stretch + piece % a.pieces * a.block, end = top + a.block < stretch + a.stretch ? top + a.block : stretch + a.stretch, past = end < a.lines ? end : a.lines;
#endif
#if SUMS
  Real dgamma[COLUMNS] = {}, dbeta[COLUMNS] = {};
#endif
#if ADDED
  for (i64 first_line = top; first_line < past; first_line += 256 / WIDTH) {
    const i64 line = first_line + threadIdx.x / WIDTH;
    if (line < past)
#elif SUMS
  for (i64 line = top + threadIdx.x / WIDTH; line < past; line += 256 / WIDTH) {
#else
  EACH_LINE(line) {
#endif
    {
    const Real mean = ((const Real*)a.in[1])[line], inverse = ((const Real*)a.in[2])[line];
    P g[PACKS], normal[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      normal[p] = read<Wide>((const T*)a.in[0] + line * a.n, from(p, a));
      g[p] = read<Wide>((const U*)a.in[3] + line * a.n, from(p, a));
    }
    Real sum = 0, product = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const P gamma = parameter<Wide>(GAMMA, from(p, a), 1);
#pragma unroll
      for (int e = 0; e < PACK; ++e) {
        normal[p].e[e] = (normal[p].e[e] - mean) * inverse;
#if SUMS
        dgamma[p * PACK + e] += g[p].e[e] * normal[p].e[e];
        dbeta[p * PACK + e] += g[p].e[e];
#endif
        g[p].e[e] *= gamma.e[e];
        sum += there(p, a) ? g[p].e[e] : Real(0);
        product += there(p, a) ? g[p].e[e] * normal[p].e[e] : Real(0);
      }
    }
    sum = RMS ? Real(0) : across(sum, Add()) / (Real)a.n;
    product = across(product, Add()) / (Real)a.n;
#pragma unroll
    for (int first = 0; first < PACKS; first += AHEAD) {
      Others<Wide, PACK> others[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; ++j)
        if (first + j < PACKS && there(first + j, a)) others[j].read(a, line * a.n + first_of(first + j));
#pragma unroll
      for (int j = 0; j < AHEAD; ++j) {
        const int p = first + j;
        if (p >= PACKS || !there(p, a)) continue;
#pragma unroll
        for (int e = 0; e < PACK; ++e) {
          g[p].e[e] = others[j].with(a, inverse * (g[p].e[e] - sum - normal[p].e[e] * product), e);
#if ADDED
          g[p].e[e] = convert<Real>(convert<T>(g[p].e[e]));
#if WIDTH == 256
          added.sum[p * PACK + e] += (double)g[p].e[e];
#else
          made[threadIdx.x / WIDTH][first_of(p) + e] = g[p].e[e];
#endif
#endif
        }
        if (MADE) write<Wide>((T*)MADE + line * a.n, first_of(p), g[p]);
#if AS_HALVES
        write<Wide>((H*)HALVES + line * a.n, first_of(p), g[p]);
#endif
      }
    }
    }
#if ADDED && WIDTH == 32
    __syncthreads();
    for (int r = 0; r < 8 && first_line + r < past; ++r) {
#pragma unroll
      for (int c = 0; c < Added::OWN; ++c) added.sum[c] += (double)made[r][(c * 256 + threadIdx.x) % (COLUMNS * WIDTH)];
      added.end(a, first_line + r + 1 == a.lines);
    }
    __syncthreads();
#elif ADDED
    added.end(a, line + 1 == a.lines);
#endif
  }
#if SUMS
  keep(a, 0, piece, dgamma);
  keep(a, 1, piece, dbeta);
#endif
  }
}
)";

const char* const norm_gradient_texts::kGradient = R"(
KERNEL_AHEAD void norm_gradient(const Args a) {
  EACH_LINE(line) {
    const T* x = (const T*)a.in[0];
    const U* dy = (const U*)a.in[3];
    const Real mean = ((const Real*)a.in[1])[line], inverse = ((const Real*)a.in[2])[line];
    Real sum = 0, product = 0;
    EACH_OF(i, a.n) {
      const i64 at = place_of(line, i, a);
      const Real g = convert<Real>(dy[at]) * at_channel(GAMMA, channel_of(line, i, a), 1);
      sum += g;
      product += g * ((convert<Real>(x[at]) - mean) * inverse);
    }
    sum = RMS ? Real(0) : across(sum, Add()) / (Real)a.n;
    product = across(product, Add()) / (Real)a.n;
    EACH_OF(i, a.n) {
      const i64 at = place_of(line, i, a);
      const Real dx = inverse * (convert<Real>(dy[at]) * at_channel(GAMMA, channel_of(line, i, a), 1) - sum - (convert<Real>(x[at]) - mean) * inverse * product);
      Others<false, 1> others;
      others.read(a, at);
      ((T*)MADE)[at] = convert<T>(others.with(a, dx, 0));
    }
  }
}
)";

}  // namespace belfry
