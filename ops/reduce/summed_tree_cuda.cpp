#include <algorithm>
#include <string>

#include <fmt/format.h>

#include <belfry/graph/fusion_group.h>
#include <belfry/ops/cpu/column_sums_internal.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda/staged_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/member_kernels_internal.h>
#include <belfry/ops/row_sums.h>

namespace belfry {
namespace {

/// In the order of reduce_sum: a thread makes W columns of a block of rows, and adds them row by row; then the blocks are joined.
const char* const kSummed = R"(
template <int W> void summed(const Args& a) {
  const i64 across = a.columns / W;
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.blocks * across; u += (i64)gridDim.x * blockDim.x) {
    const i64 first = u / across * a.block, past = first + a.block < a.rows ? first + a.block : a.rows, column = u % across;
    Pack<double, W> sum = {};
    for (i64 row = first; row < past; row += AHEAD) {
      Operands<W> x[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; ++j) x[j].read(a, (row + j < past ? row + j : row) * across + column);
#pragma unroll
      for (int j = 0; j < AHEAD; ++j) {
        if (row + j >= past) continue;
        Pack<T, W> y;
#pragma unroll
        for (int e = 0; e < W; ++e) {
          y.e[e] = x[j].made(a, e);
          sum.e[e] += (double)convert<Read>(y.e[e]);
        }
        if (MADE) ((Pack<T, W>*)MADE)[(row + j) * across + column] = y;
      }
    }
    ((Pack<double, W>*)a.scratch)[u] = sum;
  }
}
KERNEL_AHEAD void narrow(const Args a) { summed<1>(a); }
KERNEL_AHEAD void join(const Args a) {
  for (i64 first = (i64)blockIdx.x * 4; first < a.columns; first += (i64)gridDim.x * 4) join_blocks<Read>((const double*)a.scratch, a.blocks, a.columns, first, (Y*)SUM);
}
)";

/// The group without the sum at its end.
KernelRequest tree_before(const KernelRequest& r) {
  KernelRequest out = r;
  out.members.pop_back(), out.inner.pop_back(), out.places.pop_back();
  return out;
}

struct Summed {
  explicit Summed(const KernelRequest& r) : type(r.members[r.members.size() - 2]->types[0].dtype), shape(inner_type(r, r.members.front()->types[0]).shape), sums(elements(shape) / std::max<std::int64_t>(1, shape.back()), shape.back()) {}
  DType type;
  Extents shape;
  ColumnSums sums;
};

Generated summed(const KernelRequest& r) {
  const KernelRequest tree = tree_before(r);
  const Summed s(r);
  std::size_t widest = size_of(s.type), bytes = 0;
  std::string data, reads, elements;
  for (std::size_t i = 0; i < r.inputs.size(); ++i) {
    const std::string type = type_text(r.inputs[i].dtype);
    widest = std::max(widest, size_of(r.inputs[i].dtype));
    bytes += size_of(r.inputs[i].dtype);
    data += fmt::format("  Pack<{}, W> x{};\n", type, i);
    reads += fmt::format(" x{0} = ((const Pack<{1}, W>*)a.in[{0}])[at];", i, type);
    elements += fmt::format("x{}.e[e], ", i);
  }
  const std::int64_t width = 16 / static_cast<std::int64_t>(widest), items = s.sums.blocks * s.sums.columns;
  const std::ptrdiff_t made = tree.places.back()[0];
  const bool kept = made >= 0 && r.wanted[static_cast<std::size_t>(made)];
  Generated g(r);
  g.type("T", s.type).type("Read", is_half(s.type) ? f32 : s.type).type("Y", r.outputs[0].dtype);
  g.head(kept ? fmt::format("#define MADE a.out[{}]", made) : "#define MADE ((void*)0)").head("#define SUM a.out[0]");
  g.head(fmt::format("constexpr int AHEAD = {};  // 128 bytes lie in registers", std::clamp<std::int64_t>(128 / (width * static_cast<std::int64_t>(bytes)), 1, 8)));
  g.number("rows", s.sums.rows).number("columns", s.sums.columns).number("block", s.sums.block).number("blocks", s.sums.blocks).head(kStaged);
  g.body(element_text(tree_of_members(tree), g));
  g.body(fmt::format("template <int W> struct Operands {{\n{}  void read(const Args& a, i64 at) {{{} }}\n  T made(const Args& a, int e) const {{ return apply({}a); }}\n}};\n", data, reads, elements)).body(kSummed);
  if (width == 1 || s.sums.columns % width != 0) {
    g.launch("narrow", grid_for(items, 128));
  } else {
    std::vector<std::size_t> packed;
    for (std::size_t i = 0; i < r.inputs.size(); ++i) packed.push_back(i);
    if (kept) packed.push_back(r.inputs.size() + static_cast<std::size_t>(made));
    g.entries(fmt::format("KERNEL_AHEAD void wide(const Args a) {{ summed<{}>(a); }}\n", width)).launch("wide", grid_for(items / width, 128), packed, "narrow", grid_for(items, 128));
  }
  return g.launch("join", {up(s.sums.columns, 4), 256});
}

/// A tree of which all lies as what it makes does, and the sum of that over all axes but the last.
Support takes(const KernelRequest& r, const KernelTable& table) {
  if (r.members.size() < 2 || r.inner.size() != r.members.size() || !is_sum_aside(*r.members.back()->op)) return refuse("its last member is no sum");
  const KernelRequest tree = tree_before(r);
  const Node& root = *tree.members.back();
  if (!of_one_shape(tree)) return refuse("its members before the sum are not all elementwise, of one shape");
  if (r.inner.back() != std::vector<std::string>{root.name} || !is_sum_of_rows(*r.members.back(), root.types[0]) || !adds_beside_trees(root.types[0])) return refuse("its sum is not of what the members before make over all axes but a wide last");
  for (const auto& places : tree.places)
    if (&places != &tree.places.back() && places[0] >= 0) return refuse("it keeps more than what is summed");
  const Summed s(r);
  for (const LocalType& t : r.inputs)
    if (t.shape != s.shape || !(is_float(t.dtype) || is_half(t.dtype))) return refuse("what it reads has another shape than what it makes, or is no float");
  Support out = has_expressions(tree, table);
  out.scratch_bytes = s.sums.scratch_bytes();
  return out;
}

}  // namespace

Kernel elementwise_with_sum(const GpuCodeRef& code, const std::shared_ptr<const KernelTable>& table) {
  return {.name = "nvrtc_elementwise", .op = kWithElementwise, .supports = [table](const KernelRequest& r) { return takes(r, *table); },
          .prepare = [code](const KernelRequest& r) { return summed(r).prepare(*code); }, .halves = true, .keeps = true};
}

}  // namespace belfry
