// Adding to the rows of a table by indices, without atomics: what the gradient of gather and scatter_add share.
#pragma once

#include <fmt/format.h>

#include <belfry/ops/cuda/generated_internal.h>

namespace belfry {

struct TableRows {
  std::int64_t outer = 1, rows = 1, inner = 1;
};

/// What an index says that is no row, as the CPU's kernels do.
inline auto outside_table(std::string op, std::int64_t rows) {
  return [op = std::move(op), rows](std::int64_t position, const std::string& index) { return fmt::format("[{}] index {} at position {} is outside the table of {} rows", op, index, position, rows); };
}

/// Scratch: for each row the first of its indices, for each index the next of its row.
inline std::int64_t listed_bytes(std::int64_t rows, std::int64_t indices) { return (rows + indices) * 4; }

/// Output 0 (outer, rows, inner) = input `start` (zeros: −1) + the updates (outer, indices, inner), those of a row in the order of the
/// indices. One that is no row is left out, and a fault of `op`.
inline Generated add_to_rows(const std::string& op, const KernelRequest& r, std::size_t indices, std::size_t updates, int start, TableRows t) {
  std::int64_t n = r.inputs[indices].elements(), elements = t.outer * t.rows * t.inner;
  Generated g(r);
  g.type("K", r.inputs[indices].dtype).type("T", r.outputs[0].dtype).number("n", n).number("rows", t.rows).number("inner", t.inner).number("elements", elements);
  g.head("#define INDICES a.in[" + std::to_string(indices) + "]\n#define UPDATES a.in[" + std::to_string(updates) + "]");
  g.head(start < 0 ? "#define START(u) T(0)" : "#define START(u) ((const T*)a.in[" + std::to_string(start) + "])[u]");
  g.faults(outside_table(op, t.rows)).body(R"(
/// A warp per row walks over all indices, so its list has their order. Four times 32 are read ahead of what is written.
KERNEL void list(const Args a) {
  int* first = (int*)a.scratch;
  int* next = first + a.rows;
  const i64 me = (i64)blockIdx.x * blockDim.x + threadIdx.x, all = (i64)gridDim.x * blockDim.x;
  for (i64 i = me; i < a.n; i += all) {
    const i64 k = (i64)((const K*)INDICES)[i];
    if (k < 0 || k >= a.rows) fault(a.fault, i, k);
  }
  const int lane = threadIdx.x % 32;
  for (i64 row = me / 32; row < a.rows; row += all / 32) {
    int* to = first + row;
    for (i64 start = 0; start < a.n; start += 128) {
      bool mine[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const i64 i = start + 32 * j + lane;
        mine[j] = (i64)((const K*)INDICES)[i < a.n ? i : 0] == row && i < a.n;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const u32 found = __ballot_sync(0xFFFFFFFFu, mine[j]), later = found >> lane >> 1;
        if (!found) continue;
        const int i = (int)start + 32 * j;
        if (mine[j] && later) next[i + lane] = i + lane + __ffs((int)later);
        if (lane == 0) *to = i + __ffs((int)found) - 1;
        to = next + i + 31 - __clz((int)found);
      }
    }
    if (lane == 0) *to = -1;
  }
}
KERNEL void add(const Args a) {
  const int* first = (const int*)a.scratch;
  const int* next = first + a.rows;
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.elements; u += (i64)gridDim.x * blockDim.x) {
    const i64 line = u / a.inner, outer = line / a.rows;
    const T* x = (const T*)UPDATES + outer * a.n * a.inner + u % a.inner;
    T sum = START(u);
    for (int i = first[line % a.rows]; i >= 0;) {  // eight at a time: their updates are read together
      int at[8];
      T v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        at[j] = i;
        if (i >= 0) i = next[i];
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = at[j] >= 0 ? x[at[j] * a.inner] : T(0);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (at[j] >= 0) sum += v[j];
    }
    ((T*)a.out[0])[u] = sum;
  }
}
)");
  return g.launch("list", elements > 0 ? grid_for(t.rows * 32, 128) : Grid{0, 128}).launch("add", grid_for(elements));
}

}  // namespace belfry
