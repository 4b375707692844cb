#include <belfry/ops/cuda_kernels.h>

#include <fmt/format.h>

#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {
namespace {

/// Axes of the output, neighbours that stay neighbours merged: size, and stride in the input.
struct Axis { std::int64_t size, stride; };

std::vector<Axis> axes_of(const KernelRequest& r) {
  const Extents& from = r.inputs[0].shape;
  Extents dense(from.size(), 1);
  for (std::size_t i = from.size(); i-- > 1;) dense[i - 1] = dense[i] * from[i];
  std::vector<Axis> out;
  for (std::int64_t axis : r.attributes->integers("order")) {
    auto i = static_cast<std::size_t>(from_front(axis, static_cast<int>(from.size())));
    if (from[i] == 1) continue;
    if (!out.empty() && out.back().stride == dense[i] * from[i]) out.back() = {out.back().size * from[i], dense[i]};
    else out.push_back({from[i], dense[i]});
  }
  return out;
}

/// The last axis of the output and that of the input (`c`) in tiles of 32 × 32: both sides touch memory in order.
Generated tiled(const KernelRequest& r, const std::vector<Axis>& axes, std::size_t c) {
  Generated g(1, 1);
  std::size_t last = axes.size() - 1;
  std::int64_t others = 1, step = 1, to_c = 0;
  std::string walk;
  for (std::size_t d = axes.size(); d-- > 0; step *= axes[d].size) {
    if (d == c) to_c = step;
    if (d == c || d == last) continue;
    others *= axes[d].size;
    g.number(fmt::format("m{}", d), axes[d].size).number(fmt::format("s{}", d), axes[d].stride).number(fmt::format("o{}", d), step);
    walk += fmt::format("    {{ const i64 i = left % a.m{0}; left /= a.m{0}; from += i * a.s{0}; to += i * a.o{0}; }}\n", d);
  }
  std::int64_t rows = axes[last].size, columns = axes[c].size, tiles = up(rows, 32) * up(columns, 32) * others;
  const DType from = r.inputs[0].dtype, made = r.outputs[0].dtype;
  const std::string word = word_text(static_cast<std::int64_t>(size_of(from)));
  g.type("T", from == made ? word : type_text(from)).type("U", from == made ? word : type_text(made)).number("rows", rows).number("columns", columns).number("row_step", axes[last].stride).number("column_step", to_c);
  g.number("tiles", tiles).body(R"(
KERNEL void transpose(const Args a) {
  __shared__ T tile[32][33];
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  for (i64 t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    i64 left = t, from = 0, to = 0;
    const i64 tiles_r = (a.rows + 31) / 32, tiles_c = (a.columns + 31) / 32;
    const i64 row = left % tiles_r * 32; left /= tiles_r;
    const i64 column = left % tiles_c * 32; left /= tiles_c;
)" + walk + R"(
#pragma unroll
    for (int j = part; j < 32; j += 8)
      if (row + j < a.rows && column + lane < a.columns) tile[j][lane] = ((const T*)a.in[0])[from + (row + j) * a.row_step + column + lane];
    __syncthreads();
    for (int j = part; j < 32; j += 8)
      if (row + lane < a.rows && column + j < a.columns) ((U*)a.out[0])[to + (column + j) * a.column_step + row + lane] = convert<U>(tile[lane][j]);
    __syncthreads();
  }
}
)");
  return g.launch("transpose", {std::min<std::int64_t>(tiles, 16384), 256});
}

}  // namespace

/// Where what is made is of another dtype, as a filter's gradient asks for, it is converted on the way.
std::vector<Kernel> transpose_cuda(const GpuCodeRef& code) {
  return {{.name = "nvrtc_transpose", .op = "transpose", .supports = [](const KernelRequest&) { return Support{.in_place = false}; }, .prepare = [code](const KernelRequest& r) {
             std::vector<Axis> axes = axes_of(r);
             for (std::size_t c = 0; c + 1 < axes.size(); ++c)
               if (axes[c].stride == 1 && axes[c].size >= 8 && axes.back().size >= 8) return tiled(r, axes, c).prepare(*code);
             const DType made = r.outputs[0].dtype;
             ScalarTree t{{{r.inputs[0].dtype, {}}}, {}, {}};
             if (made != r.inputs[0].dtype) t.steps = {{made, "convert<T>(x)", {{"x", 0}}}};
             for (const Axis& a : axes) t.shape.push_back(a.size), t.inputs[0].strides.push_back(a.stride);
             return elementwise(t).prepare(*code);
           }}};
}

}  // namespace belfry
