#include <algorithm>
#include <optional>
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

/// A request by what stands where among its outputs: dx or what a tree makes of it, dgamma and dbeta, the sum of what is made over rows, and that as halves.
struct Outputs {
  explicit Outputs(const KernelRequest& r) : rest(r) {
    if (r.members.empty()) return;
    rest.members.clear(), rest.inner.clear(), rest.places.clear();
    for (std::size_t m = 0; m < r.members.size() && m < r.places.size() && m < r.inner.size(); ++m) {
      if (is_sum_aside(*r.members[m]->op)) sum = m;
      else if (sum) halves = m;
      else rest.members.push_back(r.members[m]), rest.inner.push_back(r.inner[m]), rest.places.push_back(r.places[m]);
    }
    if (rest.places.empty() || rest.places[0].size() != 3) return;
    made = rest.places.back()[0], dgamma = rest.places[0][1], dbeta = rest.places[0][2];
  }
  bool wanted(std::ptrdiff_t at) const { return at >= 0 && static_cast<std::size_t>(at) < rest.wanted.size() && rest.wanted[static_cast<std::size_t>(at)]; }

  KernelRequest rest;  ///< without what stands beside
  std::ptrdiff_t made = 0, dgamma = 1, dbeta = 2;
  std::optional<std::size_t> sum, halves;  ///< members
};

/// What the tree behind dx reads, N elements of each, and what becomes of dx.
std::string others_text(const GroupedNorm& n, bool tree) {
  std::string data, reads, elements;
  for (std::size_t k = 0; k < n.others.size(); ++k) {
    data += fmt::format("  Pack<T, N> e{};\n", k);
    reads += fmt::format(" e{} = got<Pack<T, N>, Wide>((const T*)a.in[{}] + at);", k, n.others[k]);
    elements += fmt::format("e{}.e[e], ", k);
  }
  const std::string made = tree ? fmt::format("convert<Real>(apply(convert<T>(dx), {}a))", elements) : "dx";
  return fmt::format("template <bool Wide, int N> struct Others {{\n{}  void read(const Args& a, i64 at) {{{} }}\n  Real with(const Args& a, Real dx, int e) const {{ return {}; }}\n}};\n", data, reads, made);
}

/// dx may lie on dy: whoever writes an element has read it, and sums of their own read dy before. What a tree makes of it may lie on what that reads too.
Generated gradient(const KernelRequest& request) {
  const Outputs out(request);
  const GroupedNorm whole(out.rest, false);
  const KernelRequest& r = whole.own;
  NormLines n(r);
  const DType dy = r.inputs[3].dtype;
  const Sums kept(n, r.inputs[0].dtype, dy);
  Generated g(request);
  const Grid grid = begin_norm(g, r, n, kept, dy, 4);
  const bool tree = out.rest.members.size() > 1;
  if (tree) g.body(element_text(tree_of_members(out.rest, whole.core), g));
  const std::int64_t of_pack = static_cast<std::int64_t>(whole.others.size()) * kept.pack * static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
  g.head(fmt::format("constexpr int AHEAD = {};  // 64 bytes of what the tree reads lie in registers", of_pack ? std::max<std::int64_t>(1, 64 / of_pack) : std::max<std::int64_t>(1, kept.packs)));
  const bool sums = out.wanted(out.dgamma) || out.wanted(out.dbeta);
  std::vector<std::size_t> written;
  auto place = [&](const char* name, std::ptrdiff_t at) { g.head(fmt::format("#define {} {}", name, out.wanted(at) ? fmt::format("a.out[{}]", at) : "((void*)0)")); };
  place("MADE", out.made), place("DGAMMA", out.dgamma), place("DBETA", out.dbeta);
  if (out.wanted(out.made)) written.push_back(static_cast<std::size_t>(out.made));
  g.head(out.sum ? "#define ADDED 1" : "#define ADDED 0").head(out.halves ? "#define AS_HALVES 1" : "#define AS_HALVES 0").number("added", kept.added.block).number("added_blocks", kept.added.blocks);
  if (out.sum) {
    const auto to = static_cast<std::size_t>(request.places[*out.sum][0]);
    g.type("Y", request.outputs[to].dtype).head(fmt::format("#define ADDED_TO a.out[{}]", to));
    g.body("inline double* added_blocks(const Args& a) { return (double*)a.scratch + 2 * a.blocks * a.channels; }\n");
  }
  if (out.halves) {
    written.push_back(static_cast<std::size_t>(request.places[*out.halves][0]));
    g.type("H", request.outputs[written.back()].dtype).head(fmt::format("#define HALVES a.out[{}]", written.back()));
  }
  g.body(others_text(whole, tree));
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
  if (out.sum) join.blocks += up(n.channels(), 8);
  if (join.blocks > 0) g.body(norm_gradient_texts::kJoin).launch("join", join);
  return g;
}

Support takes(const KernelRequest& request) {
  const Outputs out(request);
  const KernelRequest r = GroupedNorm(out.rest, false).own;
  Support s = takes_on_gpu(r, {f32, f64, f16, bf16});
  if (!s.ok) return s;
  const DType made = out.made < 0 ? out.rest.members.back()->types[0].dtype : r.outputs[static_cast<std::size_t>(out.made)].dtype;
  if (made != r.inputs[0].dtype) return refuse("it gives dx in the type of x");
  const NormLines n(r);
  const Sums sums(n, r.inputs[0].dtype, r.inputs[3].dtype);
  if (out.sum && r.inputs[0].elements() == 0) return refuse("there is nothing to add");
  if (out.sum && !sums.once) return refuse("rows of what it makes are added where threads have room for a row's sums");
  s.scratch_bytes = 2 * sums.blocks * n.channels() * 8 + (out.sum ? sums.added.scratch_bytes() : 0);
  return s;
}

/// "" where the members beside read what is made alone, and are the sum of its rows and a cast to halves.
std::string objection_to_asides(const KernelRequest& r, const Outputs& out) {
  for (std::size_t m = 0; m + 1 < out.rest.places.size(); ++m)
    if (out.rest.places[m][0] >= 0) return "it keeps what its tree reads";
  if (!out.sum) return out.made < 0 ? "nobody has what it makes" : "";
  for (const std::optional<std::size_t>& beside : {out.sum, out.halves})
    if (beside && r.places[*beside][0] < 0) return "what stands beside stays inside";
  const std::string& made = out.rest.members.back()->name;
  const TensorType& type = out.rest.members.back()->types[0];
  if (r.members.size() != out.rest.members.size() + 1 + (out.halves ? 1 : 0) || r.inner[*out.sum] != std::vector<std::string>{made}) return "its sum does not read what the members before make alone";
  if (!adds_beside_norms(type) || !is_sum_of_rows(*r.members[*out.sum], type)) return "its sum is not over all axes but a last of 256 to 2048";
  if (!out.halves) return "";
  const Node& cast = *r.members[*out.halves];
  return cast.op->name == kCast && r.inner[*out.halves] == std::vector<std::string>{made} && type.dtype == DType::f32 && is_half(cast.types[0].dtype) ? "" : "what stands behind its sum is no cast of what they make to halves";
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
            const Outputs out(r);
            if (out.rest.members.empty() || (out.rest.members.size() < 2 && !out.sum)) return refuse("its first member is no norm's gradient, or nothing is behind it");
            const bool in_groups = out.rest.members.front()->op->name == "group_norm_gradient";
            if (std::string why = objection_to_asides(r, out); !why.empty()) return refuse(std::move(why));
            const Support s = takes_group_of(in_groups ? "group_norm_gradient" : "layer_norm_gradient", false, out.rest, *table);
            return s.ok ? takes(r) : s;
          },
          .prepare = [=](const KernelRequest& r) { return gradient(r).prepare(*code); },
          .halves = true,
          .keeps = true};
}

}  // namespace belfry
