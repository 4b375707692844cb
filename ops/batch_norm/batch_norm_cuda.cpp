#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/structural.h>
#include <belfry/ops/batch_norm/slope_internal.h>
#include <belfry/ops/batch_norm/texts_cuda_internal.h>
#include <belfry/ops/cpu/column_sums_internal.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda/grouped_norm_internal.h>
#include <belfry/ops/cuda/mixed_dtypes_internal.h>
#include <belfry/ops/cuda/staged_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/row_sums.h>

namespace belfry {
namespace {

/// Rows of channels as tiles of a block of 256 threads each: `columns` packs of channels side by side, `lanes` threads for each, which take its rows in
/// turn. A pack is 16 bytes where channels are a multiple of that. All of it depends on the shape and the dtype alone, and so does the order of sums.
/// Few rows are summed by few blocks, of so few channels that blocks of the last launch can join their sums themselves: launches are what such norms cost. On an H100 that is faster up to 6,272 rows; of 25,088 rows so few blocks cost a fifth more
/// than the launch that is spared, of 6.4 Mi elements a twentieth.
struct Tiles {
  explicit Tiles(const KernelRequest& r)
      : channels(r.inputs[0].shape.back()), rows(r.inputs[0].elements() / channels), pack(16 / static_cast<std::int64_t>(size_of(r.inputs[0].dtype))), few(rows <= kFewRows && rows * channels <= kFewElements), added(rows, channels) {
    if (channels % pack != 0) pack = 1;
    packs = channels / pack;
    across = up(packs, few ? kJoinedChannels / pack : 32);
    columns = up(packs, across);
    lanes = 256 / columns;
    block = few ? rows_of_about(std::min<std::int64_t>(512, kMostJoined * across)) : rows_of_about(1024);
    blocks = up(rows, block);
  }
  /// Rows of a tile, where there shall be about so many tiles: a thread reads four at a time, and of many rows fewer than eight are not worth a block.
  std::int64_t rows_of_about(std::int64_t tiles) const {
    const std::int64_t of_thread = up(up(rows, std::max<std::int64_t>(1, tiles / across)), lanes);
    return lanes * std::max<std::int64_t>(few ? 4 : 8, 4 * up(of_thread, 4));
  }
  /// Two sums of every block and channel, and behind them what the last launch wants of each channel.
  std::int64_t scratch_bytes() const { return 8 * channels * (2 * blocks + 4); }

  static constexpr std::int64_t kFewRows = 8192, kFewElements = std::int64_t{4} << 20;
  static constexpr std::int64_t kMostJoined = 32, kJoinedChannels = 32;  ///< blocks, and channels of each, as `join_own` has them
  std::int64_t channels, rows, pack, packs, across, columns, lanes;
  bool few;
  std::int64_t block, blocks;  ///< of the sums
  ColumnSums added;            ///< in which reduce_sum adds what is made
};

/// What a pass reads beside x, COUNT rows of each: dy, or the inputs of the tree, and what becomes of them.
std::string others_text(const GroupedNorm& n, bool backward) {
  const std::vector<std::size_t> inputs = n.tree || !backward ? n.others : std::vector<std::size_t>{5};
  std::string data, reads, elements;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    data += fmt::format("  Data e{}[COUNT];\n", k);
    reads += fmt::format(" read_rows<IN_PACKS>((const T*)a.in[{}] + at, step, e{});", inputs[k], k);
    elements += fmt::format("e{}[j].e[i], ", k);
  }
  const std::string made = n.tree ? fmt::format("apply({}{}a)", backward ? "" : "y, ", elements) : backward ? "e0[j].e[i]" : "y";
  return fmt::format("template <bool IN_PACKS, int COUNT> struct Others {{\n{}  Others(const Args& a, i64 at, i64 step) {{{} }}\n  T {} const {{ return {}; }}\n}};\n", data, reads,
                     backward ? "of(const Args& a, int j, int i)" : "with(const Args& a, T y, int j, int i)", made);
}

/// Rows of a thread whose values lie in registers at once, beside the sums of a pack, where a tree reads so many of each; with a slope y is made besides, and what is kept of halves is put together.
int rows_ahead(std::size_t others, DType t, Slope slope, bool keeps) {
  if (slope == Slope::one) return others <= (keeps && is_half(t) ? 2 : 3) ? 4 : 2;
  return is_half(t) && others > 1 ? 1 : 2;
}

/// The norm alone, with its own outputs.
KernelRequest own_of(const GradientOutputs& out, bool backward) {
  KernelRequest own = GroupedNorm(out.rest, backward).own;
  if (!backward || out.rest.members.empty()) return own;
  auto output = [&](std::ptrdiff_t at, const LocalType& inside) { return at < 0 ? inside : out.rest.outputs.at(static_cast<std::size_t>(at)); };
  own.outputs = {output(out.made, own.inputs[0]), output(out.dgamma, {}), output(out.dbeta, {})};
  own.wanted = {out.wanted(out.made), out.wanted(out.dgamma), out.wanted(out.dbeta)};
  return own;
}

Generated norm(const KernelRequest& request, bool backward) {
  const GradientOutputs out(request, backward);
  const GroupedNorm whole(out.rest, backward);
  const KernelRequest r = own_of(out, backward);
  const Tiles n(r);
  const DType t = r.inputs[0].dtype;
  const std::int64_t tile = n.rows_of_about(n.few ? 512 : 4096);
  const bool joins = n.few && r.wanted[0] && !out.sum;  // the last launch does
  const Slope slope = backward ? slope_of(*r.attributes) : Slope::one;
  const bool keeps = out.wanted(out.dy);  // of whom the last pass reads it
  Generated g(request);
  g.type("T", t).type("F", is_half(t) ? f32 : t).head(fmt::format("constexpr int N = {}, X = {};", n.pack, whole.first));
  g.number("rows", n.rows).number("channels", n.channels).number("packs", n.packs).number("across", n.across).number("columns", n.columns).number("lanes", n.lanes);
  g.number("block", n.block).number("blocks", n.blocks).number("tile", tile).number("joins", joins).real("epsilon", r.attributes->real("epsilon"));
  std::vector<std::size_t> written = {0};
  if (backward) {
    written = out.name(g, request);
    g.head(fmt::format("constexpr int AHEAD = {}, SLOPE = {};", rows_ahead(whole.others.size(), t, slope, keeps), static_cast<int>(slope)));
    g.head(keeps ? fmt::format("#define KEEPS_DY 1\n#define DY a.out[{}]", out.dy) : "#define KEEPS_DY 0");
  }
  g.head(keeps ? "#define FIRST_KERNEL KERNEL_AHEAD" : "#define FIRST_KERNEL KERNEL").head(out.sum || slope != Slope::one ? "#define LAST_KERNEL KERNEL_AHEAD" : "#define LAST_KERNEL KERNEL");
  if (out.sum) g.number("added", n.added.block).number("added_blocks", n.added.blocks).head(kStaged);
  if (whole.tree) g.body(element_text(tree_of_members(out.rest, whole.core), g));
  g.body(batch_norm_texts::kTiles).body(others_text(whole, backward)).body(backward ? batch_norm_texts::kBackward : batch_norm_texts::kForward).entries(batch_norm_texts::kEntries);
  std::vector<std::size_t> summed = {whole.first}, all = whole.others;
  if (backward) summed.insert(summed.end(), all.begin(), all.end());
  if (backward && !whole.tree) summed.push_back(5), all.push_back(5);
  if (keeps) {
    summed.push_back(request.inputs.size() + static_cast<std::size_t>(out.dy));
    all = {summed.back()};
  }
  all.push_back(whole.first);
  for (std::size_t k : written) all.push_back(request.inputs.size() + k);
  const Grid of_sums{n.blocks * n.across, 256}, of_all{(out.sum ? n.added.blocks : up(n.rows, tile)) * n.across, 256};
  g.launch("wide_sums", of_sums, summed, "narrow_sums", of_sums);
  if (!joins) g.launch("join", {up(n.channels, 4), 256});
  if (r.wanted[0] || out.sum) g.launch("wide_normalise", of_all, all, "narrow_normalise", of_all);
  if (out.sum) g.launch("join_added", {up(n.channels, 4), 256});
  return g;
}

Support takes(const KernelRequest& request, bool backward) {
  const GradientOutputs out(request, backward);
  const KernelRequest r = own_of(out, backward);
  Support s = takes_on_gpu(r, {f32, f64, f16, bf16});
  if (!s.ok) return s;
  if (r.inputs[0].elements() == 0) return refuse("there is nothing to normalise");
  const DType t = r.inputs[0].dtype;
  if (mixed_dtypes(r, backward ? 5 : 0, is_half(t) ? f32 : t)) return refuse("its data are of several dtypes, or its parameters are not of what it computes in");
  const Tiles n(r);
  if (request.members.empty()) s.in_place = false;  // where the last launch joins, its blocks read what others would write over
  s.scratch_bytes = n.scratch_bytes() + (out.sum ? n.added.scratch_bytes() : 0);
  return s;
}

Kernel generated(const GpuCodeRef& code, const char* op, bool backward) {
  return {.name = "nvrtc_batch_norm", .op = op,
          .supports = [=](const KernelRequest& r) { return takes(r, backward); },
          .prepare = [=](const KernelRequest& r) { return norm(r, backward).prepare(*code); },
          .halves = true};
}

}  // namespace

std::vector<Kernel> batch_norm_generated_cuda(const GpuCodeRef& code) {
  return {generated(code, "batch_norm", false), generated(code, "batch_norm_gradient", true)};
}

/// A norm with the tree behind it; or its gradient, with the tree before it, whose dy is kept or not, the sum of dx over all axes but the last and dx as halves, or with some of them.
Kernel batch_norm_with_elementwise(const GpuCodeRef& code, const std::shared_ptr<const KernelTable>& table) {
  auto backward = [](const KernelRequest& r) { return std::any_of(r.members.begin(), r.members.end(), [](const Node* m) { return m->op->name == "batch_norm_gradient"; }); };
  return {.name = "nvrtc_batch_norm", .op = kWithElementwise,
          .supports = [=](const KernelRequest& r) {
            const bool fed = backward(r);
            const GradientOutputs out(r, fed);
            if (out.rest.members.empty() || (out.rest.members.size() < 2 && !out.sum)) return refuse("nothing is beside its norm");
            if (out.sum && !fed) return refuse("what it adds is not what a norm's gradient makes");
            if (std::string why = out.objection(r, adds_beside_batch_norms); !why.empty()) return refuse(std::move(why));
            const Support s = takes_group_of(fed ? "batch_norm_gradient" : "batch_norm", fed, out.rest, *table);
            return s.ok ? takes(r, fed) : s;
          },
          .prepare = [=](const KernelRequest& r) { return norm(r, backward(r)).prepare(*code); },
          .halves = true,
          .keeps = true};
}

}  // namespace belfry
