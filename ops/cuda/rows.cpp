#include <belfry/ops/cuda/rows_internal.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/ops/cuda/staged_internal.h>

namespace belfry {
namespace {

constexpr std::int64_t kDigits = 256, kLong = 128;

/// Positions of indices are sorted by row, a digit of 8 bits in a pass, in chunks that are counted and placed side by side.
struct Sorting {
  Sorting(std::int64_t rows, std::int64_t n) : chunk(256 * std::max<std::int64_t>(1, up(n, 256 * 128))), chunks(std::max<std::int64_t>(1, up(n, chunk))), windows(n / kLong + 1) {
    while (passes < 4 && rows > std::int64_t{1} << 8 * passes) ++passes;
    ints = chunks * kDigits + 2 * rows + windows + std::min(passes, 2) * n;
  }
  std::int64_t chunk, chunks;
  std::int64_t windows;  ///< of kLong places in the sorted positions: in each the list of at most one row begins that is longer
  int passes = 1;
  std::int64_t ints = 0;
};

const char* const kSort = R"(
#define ALL 0xFFFFFFFFu
inline int* counts(const Args& a) { return (int*)a.scratch; }
inline int* firsts(const Args& a) { return counts(a) + a.chunks * 256; }
inline int* pasts(const Args& a) { return firsts(a) + a.rows; }
inline int* longs(const Args& a) { return pasts(a) + a.rows; }
inline int* sorted(const Args& a, int pass) { return longs(a) + a.windows + pass % 2 * a.n; }
/// What a pass sorts: positions, as the pass before left them; that of an index that is no row as ~position, in row 0.
inline int position(const Args& a, int pass, i64 i) {
  if (pass > 0) return sorted(a, pass - 1)[i];
  const i64 k = (i64)((const K*)INDICES)[i];
  return k < 0 || k >= a.rows ? ~(int)i : (int)i;
}
inline i64 row_of(const Args& a, int position) { return position < 0 ? 0 : (i64)((const K*)INDICES)[position]; }
/// A warp takes an eighth of the block's chunk in order. met[digit] goes up by one for each position of that digit; use(position, what it was).
template <class Use> void walk(const Args& a, int pass, int* met, Use use) {
  const int lane = threadIdx.x % 32;
  const i64 part = a.chunk / 8, from = blockIdx.x * a.chunk + threadIdx.x / 32 * part;
  for (i64 start = from; start < from + part && start < a.n; start += 32) {
    const bool there = start + lane < a.n;
    const int p = there ? position(a, pass, start + lane) : 0, digit = there ? (int)(row_of(a, p) >> 8 * pass & 255) : 256;
    const u32 same = __match_any_sync(ALL, digit);
    const int was = there ? met[digit] + __popc(same & ((1u << lane) - 1)) : 0;
    __syncwarp();
    if (there && same >> lane == 1) met[digit] = was + 1;
    __syncwarp();
    if (there) use(p, was);
  }
}
inline void count_met(const Args& a, int pass, int (*met)[256]) {
  for (int w = 0; w < 8; ++w) met[w][threadIdx.x] = 0;
  __syncthreads();
  walk(a, pass, met[threadIdx.x / 32], [](int, int) {});
  __syncthreads();
}
inline void count(const Args& a, int pass) {
  __shared__ int met[8][256];
  count_met(a, pass, met);
  int all = 0;
  for (int w = 0; w < 8; ++w) all += met[w][threadIdx.x];
  counts(a)[blockIdx.x * 256 + threadIdx.x] = all;
}
/// A thread per digit finds where its positions of the chunk go: behind all of lower digits, and behind its own of earlier chunks.
inline void place(const Args& a, int pass) {
  __shared__ int met[8][256], ends[256];
  count_met(a, pass, met);
  const int digit = threadIdx.x;
  int earlier = 0, all = 0;
  for (i64 c = 0; c < a.chunks; c += 16) {
    int v[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) v[j] = c + j < a.chunks ? counts(a)[(c + j) * 256 + digit] : 0;
#pragma unroll
    for (int j = 0; j < 16; ++j) all += v[j], earlier += c + j < blockIdx.x ? v[j] : 0;
  }
  ends[digit] = all;
  __syncthreads();
  for (int apart = 1; apart < 256; apart *= 2) {
    const int lower = digit >= apart ? ends[digit - apart] : 0;
    __syncthreads();
    ends[digit] += lower;
    __syncthreads();
  }
  int to = ends[digit] - all + earlier;
  for (int w = 0; w < 8; ++w) {
    const int own = met[w][digit];
    met[w][digit] = to;
    to += own;
  }
  __syncthreads();
  walk(a, pass, met[threadIdx.x / 32], [&](int p, int at) { sorted(a, pass)[at] = p; });
}
/// Before the first pass: what is no row, and no row has a list yet.
inline void begin(const Args& a) {
  const i64 me = (i64)blockIdx.x * blockDim.x + threadIdx.x, all = (i64)gridDim.x * blockDim.x;
  for (i64 i = me; i < a.n; i += all) {
    const i64 k = (i64)((const K*)INDICES)[i];
    if (k < 0 || k >= a.rows) fault(a.fault, i, k);
  }
  for (i64 row = me; row < a.rows; row += all) firsts(a)[row] = pasts(a)[row] = 0;
  for (i64 w = me; w < a.windows; w += all) longs(a)[w] = -1;
}
)";

const char* const kAdd = R"(
KERNEL void edges(const Args a) {
  const int* list = sorted(a, PASSES - 1);
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (i64)gridDim.x * blockDim.x) {
    const i64 row = row_of(a, list[i]);
    if (i == 0 || row_of(a, list[i - 1]) != row) {
      firsts(a)[row] = (int)i;
      if (i + LONG < a.n && row_of(a, list[i + LONG]) == row) longs(a)[i / LONG] = (int)row;
    }
    if (i + 1 == a.n || row_of(a, list[i + 1]) != row) pasts(a)[row] = (int)i + 1;
  }
}
/// A thread takes W elements of a row whose list is short.
template <int W> void add(const Args& a) {
  typedef Pack<T, W> P;
  const i64 across = a.inner / W;
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.outer * a.rows * across; u += (i64)gridDim.x * blockDim.x) {
    const i64 line = u / across, row = line % a.rows;
    const int from = firsts(a)[row], count = pasts(a)[row] - from;
    if (count > LONG) continue;
    const int* list = sorted(a, PASSES - 1) + from;
    const P* x = (const P*)UPDATES + line / a.rows * a.n * across + u % across;
    P sum = START(P, u);
    for (int k = 0; k < count; k += 8) {  // eight at a time: their updates are read together
      int at[8];
      P v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) at[j] = list[k + j < count ? k + j : k];
#pragma unroll
      for (int j = 0; j < 8; ++j) at[j] = k + j < count ? at[j] : -1;
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = x[(at[j] >= 0 ? at[j] : 0) * across];
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < W; ++e) {
          const T more = sum.e[e] + v[j].e[e];
          if (at[j] >= 0) sum.e[e] = more;
        }
    }
    ((P*)a.out[0])[u] = sum;
  }
}
)";

const char* const kAddLong = R"(
/// A block takes eight columns of a row whose list is long.
KERNEL_AHEAD void add_long(const Args a) {
  const i64 tiles = (a.inner + 7) / 8;
  for (i64 item = blockIdx.x; item < a.windows * a.outer * tiles; item += gridDim.x) {
    const i64 first = item % tiles * 8, outer = item / tiles % a.outer, row = longs(a)[item / tiles / a.outer];
    if (row < 0) continue;
    const int width = a.inner - first < 8 ? (int)(a.inner - first) : 8;
    const int* list = sorted(a, PASSES - 1) + firsts(a)[row];
    const T* x = (const T*)UPDATES + outer * a.n * a.inner + first;
    const i64 u = (outer * a.rows + row) * a.inner + first + threadIdx.x;
    const bool mine = threadIdx.x < width;
    const T sum = staged<T>(mine ? START(T, u) : T(0), (i64)(pasts(a)[row] - firsts(a)[row]) * width, width, [&](i64 k, int c) {
      const int p = list[k];
      const T v = x[(p >= 0 ? p : 0) * a.inner + c];
      return p >= 0 ? v : T(0);
    }, [](T p, T q) { return p + q; });
    if (mine) ((T*)a.out[0])[u] = sum;
  }
}
)";

}  // namespace

std::function<std::string(std::int64_t, const std::string&)> outside_table(std::string op, std::int64_t rows) {
  return [op = std::move(op), rows](std::int64_t position, const std::string& index) { return fmt::format("[{}] index {} at position {} is outside the table of {} rows", op, index, position, rows); };
}

std::int64_t listed_bytes(std::int64_t rows, std::int64_t indices) { return Sorting(rows, indices).ints * 4; }

Generated add_to_rows(const std::string& op, const KernelRequest& r, std::size_t indices, std::size_t updates, int start, TableRows t) {
  const std::int64_t n = r.inputs[indices].elements(), elements = t.outer * t.rows * t.inner;
  const Sorting s(t.rows, n);
  std::int64_t width = 16 / static_cast<std::int64_t>(size_of(r.outputs[0].dtype));
  while (t.inner % width != 0) width /= 2;
  Generated g(r);
  g.type("K", r.inputs[indices].dtype).type("T", r.outputs[0].dtype).number("n", n).number("outer", t.outer).number("rows", t.rows).number("inner", t.inner);
  g.number("chunk", s.chunk).number("chunks", s.chunks).number("windows", s.windows);
  g.head(fmt::format("#define INDICES a.in[{}]\n#define UPDATES a.in[{}]\n#define LONG {}\n#define PASSES {}", indices, updates, kLong, s.passes));
  g.head(start < 0 ? "#define START(P, u) P()" : fmt::format("#define START(P, u) ((const P*)a.in[{}])[u]", start));
  g.head(kStaged).faults(outside_table(op, t.rows)).body(kSort).body(kAdd);
  if (elements == 0) return g;
  for (int p = 0; p < s.passes; ++p) {
    g.body(fmt::format("KERNEL_AHEAD void count_{0}(const Args a) {{\n{1}  count(a, {0});\n}}\nKERNEL_AHEAD void place_{0}(const Args a) {{ place(a, {0}); }}\n", p, p == 0 ? "  begin(a);\n" : ""));
    g.launch(fmt::format("count_{}", p), {s.chunks, 256}).launch(fmt::format("place_{}", p), {s.chunks, 256});
  }
  g.launch("edges", grid_for(n)).body("KERNEL_AHEAD void narrow(const Args a) { add<1>(a); }\n");
  std::vector<std::size_t> aligned = {updates, r.inputs.size()};
  if (start >= 0) aligned.push_back(static_cast<std::size_t>(start));
  if (width == 1) g.launch("narrow", grid_for(elements));
  else g.body(fmt::format("KERNEL_AHEAD void wide(const Args a) {{ add<{}>(a); }}\n", width)).launch("wide", grid_for(elements / width), aligned, "narrow", grid_for(elements));
  if (n > kLong) g.body(kAddLong).launch("add_long", {std::min<std::int64_t>(s.windows * t.outer * up(t.inner, 8), 4096), 256});
  return g;
}

}  // namespace belfry
