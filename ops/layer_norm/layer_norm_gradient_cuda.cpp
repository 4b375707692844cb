#include <algorithm>
#include <string>

#include <fmt/format.h>

#include <belfry/graph/structural.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda/grouped_norm_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/layer_norm/lines_cuda_internal.h>

namespace belfry {
namespace {

/// Of the gradient, which adds over examples too, in blocks of rows that depend on the shape alone: a row goes through a block of threads where those of a warp would have no room for two sums of each column.
struct Sums : KeptLines {
  Sums(const NormLines& n, DType type, DType other)
      : KeptLines(n, type, other, 2048 / static_cast<std::int64_t>(size_of(computed_in(type)))), once(whole && bytes(type) <= 64),
        rows(!once ? std::clamp<std::int64_t>(up(n.rows, 512), 16, 4096) : n.width > of_warp ? std::clamp<std::int64_t>(up(n.rows, 256), 4, 32) : std::clamp<std::int64_t>(up(n.rows, 512), 16, 128)), blocks(std::max<std::int64_t>(1, up(n.rows, rows))) {}
  bool once;  ///< x and dy are read once for all, and few rows of a block added before the sum is in f64
  std::int64_t rows, blocks;
};

const char* const kColumns = R"(
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

/// Eight warps add every eighth block of 32 sums, then the first adds what the eight have.
const char* const kJoin = R"(
KERNEL_AHEAD void join(const Args a) {
  __shared__ double parts[8][32];
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  for (i64 first = (i64)blockIdx.x * 32; first < 2 * a.channels; first += (i64)gridDim.x * 32) {
    const i64 u = first + lane, which = u / a.channels, k = u % a.channels;
    const bool wanted = which < 2 && a.out[1 + which];
    double sum = 0;
    if (wanted && part < a.blocks) sum = in_order<16>(sum, (const double*)a.scratch + (which * a.blocks + part) * a.channels + k, 8 * a.channels, (a.blocks - part + 7) / 8, Add());
    parts[part][lane] = sum;
    __syncthreads();
    if (part == 0 && wanted) {
      for (int j = 1; j < 8; ++j) sum += parts[j][lane];
      ((Real*)a.out[1 + which])[k] = (Real)sum;
    }
    __syncthreads();
  }
}
)";

const char* const kGradientRows = R"(
#define COLUMNS (PACKS * PACK)
inline int lane_of(int k) { return k / PACK % WIDTH; }
inline int column_of(int k) { return k / (PACK * WIDTH) * PACK + k % PACK; }
/// What a block of rows adds to dgamma or dbeta, from what a thread has of its columns: the lines of a warp, then the warps.
void keep(const Args& a, i64 which, const Real (&sum)[COLUMNS]) {
  double* const out = (double*)a.scratch + (which * a.blocks + blockIdx.x) * a.channels;
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
/// With sums a block takes `a.block` rows, and x and dy are read once for dx and for what the rows add to dgamma and dbeta.
template <bool Wide> void rows(const Args& a) {
#if SUMS
  Real dgamma[COLUMNS] = {}, dbeta[COLUMNS] = {};
  const i64 top = blockIdx.x * a.block, past = top + a.block < a.lines ? top + a.block : a.lines;
  for (i64 line = top + threadIdx.x / WIDTH; line < past; line += 256 / WIDTH) {
#else
  EACH_LINE(line) {
#endif
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
        for (int e = 0; e < PACK; ++e) g[p].e[e] = others[j].with(a, inverse * (g[p].e[e] - sum - normal[p].e[e] * product), e);
        write<Wide>((T*)a.out[0] + line * a.n, first_of(p), g[p]);
      }
    }
  }
#if SUMS
  keep(a, 0, dgamma);
  keep(a, 1, dbeta);
#endif
}
)";

const char* const kGradient = R"(
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
      ((T*)a.out[0])[at] = convert<T>(others.with(a, dx, 0));
    }
  }
}
)";

/// What the tree behind dx reads, N elements of each, and what becomes of dx.
std::string others_text(const GroupedNorm& n) {
  std::string data, reads, elements;
  for (std::size_t k = 0; k < n.others.size(); ++k) {
    data += fmt::format("  Pack<T, N> e{};\n", k);
    reads += fmt::format(" e{} = got<Pack<T, N>, Wide>((const T*)a.in[{}] + at);", k, n.others[k]);
    elements += fmt::format("e{}.e[e], ", k);
  }
  const std::string made = n.core ? fmt::format("convert<Real>(apply(convert<T>(dx), {}a))", elements) : "dx";
  return fmt::format("template <bool Wide, int N> struct Others {{\n{}  void read(const Args& a, i64 at) {{{} }}\n  Real with(const Args& a, Real dx, int e) const {{ return {}; }}\n}};\n", data, reads, made);
}

/// dx may lie on dy: whoever writes an element has read it, and sums of their own read dy before. What a tree makes of it may lie on what that reads too.
Generated gradient(const KernelRequest& request) {
  const GroupedNorm whole(request, false);
  const KernelRequest& r = whole.own;
  NormLines n(r);
  const DType dy = r.inputs[3].dtype;
  const Sums kept(n, r.inputs[0].dtype, dy);
  Generated g(request);
  const Grid grid = begin_norm(g, r, n, kept, dy, 4);
  if (whole.core) g.body(element_text(tree_of_members(request, whole.core), g));
  const std::int64_t of_pack = static_cast<std::int64_t>(whole.others.size()) * kept.pack * static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
  g.head(fmt::format("constexpr int AHEAD = {};  // 64 bytes of what the tree reads lie in registers", of_pack ? std::max<std::int64_t>(1, 64 / of_pack) : std::max<std::int64_t>(1, kept.packs)));
  g.body(others_text(whole));
  const bool sums = (r.wanted.size() > 1 && r.wanted[1]) || (r.wanted.size() > 2 && r.wanted[2]);
  g.number("rows", n.rows).number("block", kept.rows).number("blocks", kept.blocks).head(sums && kept.once ? "#define SUMS 1" : "#define SUMS 0");
  if (sums && !kept.once) {
    const std::int64_t items = kept.blocks * n.channels();
    g.body(kColumns).entries("KERNEL_AHEAD void columns_narrow(const Args a) { columns<1, 8>(a); }\n");
    if (kept.pack == 1) g.launch("columns_narrow", grid_for(items, 128));
    else g.entries("KERNEL_AHEAD void columns_wide(const Args a) { columns<PACK < 4 ? PACK : 4, PACK < 8 ? 4 : 8>(a); }\n").launch("columns_wide", grid_for(items / std::min<std::int64_t>(kept.pack, 4), 128), {0, 3}, "columns_narrow", grid_for(items, 128));
  }
  std::vector<std::size_t> packs = whole.others;
  packs.insert(packs.end(), {0, 3, 4});
  if (kept.whole) launch_rows(g, request, kGradientRows, kept, sums && kept.once ? Grid{kept.blocks, 256} : grid, std::move(packs));
  else g.body(kGradient).launch("norm_gradient", grid);
  if (sums) g.body(kJoin).launch("join", grid_for(2 * n.channels() * 8));
  return g;
}

Support takes(const KernelRequest& r) {
  Support s = takes_on_gpu(r, {f32, f64, f16, bf16});
  if (!s.ok) return s;
  if (r.outputs[0].dtype != r.inputs[0].dtype) return refuse("it gives dx in the type of x");
  const NormLines n(r);
  s.scratch_bytes = 2 * Sums(n, r.inputs[0].dtype, r.inputs[3].dtype).blocks * n.channels() * 8;
  return s;
}

Kernel kernel(const GpuCodeRef& code, const char* op) {
  return {.name = "nvrtc_norm", .op = op, .supports = takes, .prepare = [=](const KernelRequest& r) { return gradient(r).prepare(*code); }, .halves = true};
}

}  // namespace

std::vector<Kernel> norm_gradients_cuda(const GpuCodeRef& code) { return {kernel(code, "layer_norm_gradient"), kernel(code, "group_norm_gradient")}; }

Kernel norm_gradient_with_elementwise(const GpuCodeRef& code, const std::shared_ptr<const KernelTable>& table) {
  return {.name = "nvrtc_norm", .op = kWithElementwise,
          .supports = [=](const KernelRequest& r) {
            const bool in_groups = !r.members.empty() && r.members.front()->op->name == "group_norm_gradient";
            const Support s = takes_group_of(in_groups ? "group_norm_gradient" : "layer_norm_gradient", false, r, *table);
            return s.ok ? takes(GroupedNorm(r, false).own) : s;
          },
          .prepare = [=](const KernelRequest& r) { return gradient(r).prepare(*code); },
          .halves = true};
}

}  // namespace belfry
