#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/structural.h>
#include <belfry/graph/fusion_group.h>
#include <belfry/ops/cpu/column_sums_internal.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda/grouped_norm_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/layer_norm/lines_cuda_internal.h>
#include <belfry/ops/row_sums.h>

namespace belfry {
namespace {

/// Of the gradient, which adds over examples too, in pieces of rows that depend on the shape alone: a row goes through a block of threads where those of a warp would have no room for two sums of each column.
struct Sums : KeptLines {
  Sums(const NormLines& n, DType type, DType other)
      : KeptLines(n, type, other, 2048 / static_cast<std::int64_t>(size_of(computed_in(type)))), once(whole && bytes(type) <= 64), added(n.rows, n.channels()),
        rows(!once ? std::clamp<std::int64_t>(up(n.rows, 512), 16, 4096) : n.width > of_warp ? std::clamp<std::int64_t>(up(n.rows, 256), 4, 32) : std::clamp<std::int64_t>(up(n.rows, 512), 16, 128)) {
    if (once && rows < added.block) {
      pieces = added.block / rows;
      rows = up(added.block, pieces);
    } else if (once) {
      rows = up(rows, added.block) * added.block;
    }
    stretch = pieces > 1 ? added.block : rows;
    blocks = std::max<std::int64_t>(1, up(n.rows, stretch)) * pieces;
  }
  bool once;  ///< x and dy are read once for all, and few rows of a block added before the sum is in f64
  ColumnSums added;  ///< in which reduce_sum adds what is made: whole pieces, or pieces are of one
  std::int64_t rows, blocks, pieces = 1, stretch = 0;  ///< of a piece; of all; of a stretch of so many rows
};

/// What the tree behind dx reads, N elements of each, and what becomes of dx.
std::string others_text(const GroupedNorm& n) {
  std::string data, reads, elements;
  for (std::size_t k = 0; k < n.others.size(); ++k) {
    data += fmt::format("  Pack<T, N> e{};\n", k);
    reads += fmt::format(" e{} = got<Pack<T, N>, Wide>((const T*)a.in[{}] + at);", k, n.others[k]);
    elements += fmt::format("e{}.e[e], ", k);
  }
  const std::string made = n.tree ? fmt::format("convert<Real>(apply(convert<T>(dx), {}a))", elements) : "dx";
  return fmt::format("template <bool Wide, int N> struct Others {{\n{}  void read(const Args& a, i64 at) {{{} }}\n  Real with(const Args& a, Real dx, int e) const {{ return {}; }}\n}};\n", data, reads, made);
}

/// dx may lie on dy: whoever writes an element has read it, and sums of their own read dy before. What a tree makes of it may lie on what that reads too.
Generated gradient(const KernelRequest& request) {
  const GradientOutputs out(request, false);
  const GroupedNorm whole(out.rest, false);
  const KernelRequest& r = whole.own;
  NormLines n(r);
  const DType dy = r.inputs[3].dtype;
  const Sums kept(n, r.inputs[0].dtype, dy);
  Generated g(request);
  const Grid grid = begin_norm(g, r, n, kept, dy, 4);
  if (whole.tree) g.body(element_text(tree_of_members(out.rest, whole.core), g));
  const std::int64_t of_pack = static_cast<std::int64_t>(whole.others.size()) * kept.pack * static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
  const std::int64_t room = r.inputs[0].dtype == f64 ? 32 : 64;  // bytes of what the tree reads; of f64 the row takes the other registers
  g.head(fmt::format("constexpr int AHEAD = {};", of_pack ? std::max<std::int64_t>(1, room / of_pack) : std::max<std::int64_t>(1, kept.packs)));
  const bool sums = out.wanted(out.dgamma) || out.wanted(out.dbeta);
  const std::vector<std::size_t> written = out.name(g, request);
  g.number("added", kept.added.block).number("added_blocks", kept.added.blocks);
  if (out.sum) g.body("inline double* added_blocks(const Args& a) { return (double*)a.scratch + 2 * a.blocks * a.channels; }\n");
  g.body(others_text(whole));
  g.number("rows", n.rows).number("block", kept.rows).number("blocks", kept.blocks).number("pieces", kept.pieces).number("stretch", kept.stretch).head(sums && kept.once ? "#define SUMS 1" : "#define SUMS 0");
  if (sums && !kept.once) {
    const std::int64_t items = kept.blocks * n.channels();
    g.body(norm_gradient_texts::kColumns).entries("KERNEL_AHEAD void columns_narrow(const Args a) { columns<1, 8>(a); }\n");
    if (kept.pack == 1) g.launch("columns_narrow", grid_for(items, 128));
    else g.entries("KERNEL_AHEAD void columns_wide(const Args a) { columns<PACK < 4 ? PACK : 4, PACK < 8 ? 4 : 8>(a); }\n").launch("columns_wide", grid_for(items / std::min<std::int64_t>(kept.pack, 4), 128), {0, 3}, "columns_narrow", grid_for(items, 128));
  }
  std::vector<std::size_t> packs = whole.others;
  packs.insert(packs.end(), {0, 3, 4});
  if (kept.whole) launch_rows(g, request, norm_gradient_texts::kGradientRows, kept, out.sum ? Grid{kept.blocks / kept.pieces, 256} : sums && kept.once ? Grid{kept.blocks, 256} : grid, std::move(packs), written);
  else g.body(norm_gradient_texts::kGradient).launch("norm_gradient", grid);
  Grid join = sums ? grid_for(2 * n.channels() * 8) : Grid{0, 256};
  g.number("joins", join.blocks);
  if (out.sum) join.blocks += up(n.channels(), 4);
  if (join.blocks > 0) g.body(norm_gradient_texts::kJoin).launch("join", join);
  return g;
}

Support takes(const KernelRequest& request) {
  const GradientOutputs out(request, false);
  const KernelRequest r = GroupedNorm(out.rest, false).own;
  Support s = takes_on_gpu(r, {f32, f64, f16, bf16});
  if (!s.ok) return s;
  const DType made = out.made < 0 ? out.rest.members.back()->types[0].dtype : r.outputs[static_cast<std::size_t>(out.made)].dtype;
  if (made != r.inputs[0].dtype) return refuse("it gives dx in the type of x");
  const NormLines n(r);
  const Sums sums(n, r.inputs[0].dtype, r.inputs[3].dtype);
  if (out.sum && r.inputs[0].elements() == 0) return refuse("there is nothing to add");
  if (out.sum && n.channels() != r.inputs[0].shape.back()) return refuse("its rows are of several axes, of which the sum keeps the last alone");
  if (out.sum && !sums.once) return refuse("rows of what it makes are added where threads have room for a row's sums");
  s.scratch_bytes = 2 * sums.blocks * n.channels() * 8 + (out.sum ? sums.added.scratch_bytes() : 0);
  return s;
}

Kernel kernel(const GpuCodeRef& code, const char* op) {
  return {.name = "nvrtc_norm", .op = op, .supports = takes, .prepare = [=](const KernelRequest& r) { return gradient(r).prepare(*code); }, .halves = true};
}

}  // namespace

std::vector<Kernel> norm_gradients_cuda(const GpuCodeRef& code) { return {kernel(code, "layer_norm_gradient"), kernel(code, "group_norm_gradient")}; }

/// A norm's gradient, the tree behind it, and where there is one the sum of what they make over all axes but the last, then that as halves.
Kernel norm_gradient_with_elementwise(const GpuCodeRef& code, const std::shared_ptr<const KernelTable>& table) {
  return {.name = "nvrtc_norm", .op = kWithElementwise,
          .supports = [=](const KernelRequest& r) {
            const GradientOutputs out(r, false);
            if (out.rest.members.empty() || (out.rest.members.size() < 2 && !out.sum)) return refuse("its first member is no norm's gradient, or nothing is behind it");
            const bool in_groups = out.rest.members.front()->op->name == "group_norm_gradient";
            if (std::string why = out.objection(r, adds_beside_norms); !why.empty()) return refuse(std::move(why));
            const Support s = takes_group_of(in_groups ? "group_norm_gradient" : "layer_norm_gradient", false, out.rest, *table);
            return s.ok ? takes(r) : s;
          },
          .prepare = [=](const KernelRequest& r) { return gradient(r).prepare(*code); },
          .halves = true,
          .keeps = true};
}

}  // namespace belfry
