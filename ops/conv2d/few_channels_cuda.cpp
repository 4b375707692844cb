// Convolutions of pictures with few channels on tensor cores: pixels of a few bytes have no aligned way there in cuDNN.
#include <belfry/ops/conv2d/few_channels_cuda_internal.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

/// Copies into shared memory are under way until they are awaited. Between lanes l and g of a warp lie the elements of a product as PTX has them for mma.m16n8.
const char* const kTile = R"(
#define UNROLL _Pragma("unroll")
#define LANE (int)(threadIdx.x % 4)
#define GROUP (int)(threadIdx.x % 32 / 4)
#define WARP (int)(threadIdx.x / 32)
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ < 800
/// c (16, 8) += a (16, 8 words)·b (8 words, 8), of what lanes have, where there is no instruction for it.
inline float element_of(u32 word, int k) { return PER == 2 ? convert<float>(E{(unsigned short)(word >> 16 * k)}) : __uint_as_float(word); }
inline void multiply_words(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  UNROLL for (int k = 0; k < 8; ++k) UNROLL for (int i = 0; i < 4; ++i) {
    const u32 left = __shfl_sync(0xFFFFFFFFu, a[i / 2 + k / 4 * 2], threadIdx.x % 32 / 4 * 4 + k % 4), right = __shfl_sync(0xFFFFFFFFu, b[k / 4], (threadIdx.x % 4 * 2 + i % 2) * 4 + k % 4);
    UNROLL for (int e = 0; e < PER; ++e) c[i] += element_of(left, e) * element_of(right, e);
  }
}
template <int BYTES> inline void copy_bytes(void* to, const void* from, bool there) {
  UNROLL for (int w = 0; w < BYTES / 4; ++w) ((u32*)to)[w] = there ? ((const u32*)from)[w] : 0;
}
inline void commit_copies() {}
template <int N> inline void await_copies_but() {}
inline float to_tf32(float x) { return x; }
#elif defined(__CUDACC_RTC__)
/// c (16, 8) += a (16, 8 words)·b (8 words, 8).
inline void multiply_words(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned." PRODUCT " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// Zeros where not `there`.
template <int BYTES> inline void copy_bytes(void* to, const void* from, bool there) {
  if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}
inline void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
/// All but those of the last `N` commits.
template <int N> inline void await_copies_but() { asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory"); }
inline float to_tf32(float x) {
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}
#else
inline void multiply_words(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  host_multiply<PER>(c, a, b, [](u32 word, int k) { return PER == 2 ? convert<float>(E{(unsigned short)(word >> 16 * k)}) : __uint_as_float(word); });
}
#endif
/// The k-th element of a word; f32 is rounded.
inline u32 placed(bf16 x, int k) { return (u32)x.bits << 16 * k; }
inline u32 placed(f16 x, int k) { return (u32)x.bits << 16 * k; }
inline u32 placed(float x, int) { return __float_as_uint(to_tf32(x)); }

struct Place { int picture, p, q; };
inline Place place_of(u32 tile) { return {(int)(tile / (PIECES * BANDS)), (int)(tile / PIECES % BANDS) * TH, (int)(tile % PIECES) * TW}; }
/// Rows of x that the tile's windows hold, zeros outside the picture.
inline void stage_x(u32* to, const Place& at, const Args& a) {
  const int first = (at.q * STRIDE_W - BEFORE_W) * CHANNELS - LEAD;
  const E* const x = (const E*)a.in[0] + (i64)at.picture * (HIGH * LINE);
  const bool words = LINE % PER == 0 && ((u64)a.in[0] & 3) == 0;
  for (int row = WARP; row < ROWS; row += 8) {
    const int from = at.p * STRIDE_H - BEFORE_H + row;
    const bool inside = from >= 0 && from < HIGH;
    const E* const l = x + (inside ? (i64)from * LINE : 0);
#pragma unroll 4
    for (int w = threadIdx.x % 32; w < PITCH; w += 32) {
      const int e = first + w * PER;
      if (words) {
        const bool there = inside && e >= 0 && e < LINE;
        copy_bytes<4>(to + row * PITCH + w, l + (there ? e : 0), there);
      } else {
        u32 word = 0;
        UNROLL for (int k = 0; k < PER; ++k) if (inside && e + k >= 0 && e + k < LINE) word |= placed(l[e + k], k);
        to[row * PITCH + w] = word;
      }
    }
  }
}
/// By all of the block, once its copies are there.
inline void finish_x(u32* x) {
  __syncthreads();
  if (PER == 1 || COPY > 0) {
    for (int i = threadIdx.x; i < ROWS * PITCH; i += 256)
      if (PER == 1) x[i] = __float_as_uint(to_tf32(__uint_as_float(x[i])));
      else x[COPY + i] = x[i] >> 16 | x[i + 1] << 16;
    __syncthreads();
  }
}
/// Where the window of a pixel of the tile begins.
inline int window_of(int pixel) {
  const int e = LEAD + pixel % TW * (STRIDE_W * CHANNELS);
  return pixel / TW * (STRIDE_H * PITCH) + e / PER + (e % PER ? COPY : 0);
}
)";

/// A warp keeps its filters in registers, and reads for 16 pixels at a time each word of their windows once. Filters are dealt to the columns of products so that a lane has neighbours of a pixel.
const char* const kForward = R"(
#define PACK (16 / (int)sizeof(Y) < 2 * NT ? 16 / (int)sizeof(Y) : 2 * NT)
/// What each lane keeps, in the scratch: of every group, eight words, two columns and lane words 8s + l and 8s + 4 + l of either column's filter; zeros behind windows and filters.
KERNEL void order(const Args a) {
  const int items = GROUPS * STEPS * (NT / 2) * 32;
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < items; k += gridDim.x * blockDim.x) {
    const int lane = k % 32, t = k / 32 % (NT / 2) * 2, s = k / 32 / (NT / 2) % STEPS, group = k / 32 / (NT / 2) / STEPS;
    Pack<u32, 4> out;
    UNROLL for (int i = 0; i < 4; ++i) {
      const int j = t + i / 2, p = 8 * s + 4 * (i % 2) + lane % 4, n = group * 8 * NT + j / (PACK / 2) * 4 * PACK + lane / 8 * PACK + j % (PACK / 2) * 2 + lane / 4 % 2;
      u32 word = 0;
      UNROLL for (int e = 0; e < PER; ++e)
        if (p < ALL && p % WORDS * PER + e < RUN && n < FILTERS) word |= placed(((const E*)a.in[1])[(p / WORDS * RUN + p % WORDS * PER + e) * FILTERS + n], e);
      out.e[i] = word;
    }
    ((Pack<u32, 4>*)a.scratch)[k] = out;
  }
}
inline void load_filters(u32 (&b)[STEPS][NT][2], int group, const Args& a) {
  const Pack<u32, 4>* const from = (const Pack<u32, 4>*)a.scratch + group * (STEPS * (NT / 2) * 32) + threadIdx.x % 32;
  UNROLL for (int s = 0; s < STEPS; ++s) UNROLL for (int j = 0; j < NT; j += 2) {
    const Pack<u32, 4> four = from[(s * NT + j) / 2 * 32];
    b[s][j][0] = four.e[0], b[s][j][1] = four.e[1], b[s][j + 1][0] = four.e[2], b[s][j + 1][1] = four.e[3];
  }
}
/// Word p + l of a window, whose lane's first word is x; what no window holds is 0, so that it is nobody's NaN.
inline u32 word_of(const u32* x, int p) {
  if (p >= ALL) return 0;
  const int l = LANE, c = p % WORDS, behind = (l >= WORDS - c) + (l >= 2 * WORDS - c) + (l >= 3 * WORDS - c);
  const bool past = p + l >= ALL;
  const u32 word = x[past ? -l : p / WORDS * PITCH + c + behind * (PITCH - WORDS)];
  const bool cut = PER == 2 && RUN % 2 && (l == WORDS - 1 - c || l == 2 * WORDS - 1 - c || l == 3 * WORDS - 1 - c || l == 4 * WORDS - 1 - c);
  return past ? 0 : cut ? word & 0xFFFFu : word;
}
template <bool WIDE> inline void forward(const Args& a) {
  __shared__ u32 x[SHARED_WORDS];
  const Place at = place_of(blockIdx.x);
  stage_x(x, at, a);
  commit_copies();
  const int rows = YH - at.p < TH ? YH - at.p : TH;
  for (int group = WARP % BESIDE; group < GROUPS; group += BESIDE) {
    u32 b[STEPS][NT][2];
    load_filters(b, group, a);
    if (group < BESIDE) {
      await_copies_but<0>();
      finish_x(x);
    }
    for (int m = WARP / BESIDE * 16; m < rows * TW; m += 8 / BESIDE * 16) {
      const int first = m + GROUP, second = first + 8;
      const u32* const windows[2] = {x + window_of(first < rows * TW ? first : 0) + LANE, x + window_of(second < rows * TW ? second : 0) + LANE};
      float sums[NT][4] = {};
      UNROLL for (int s = 0; s < STEPS; ++s) {
        const u32 w[4] = {word_of(windows[0], 8 * s), word_of(windows[1], 8 * s), word_of(windows[0], 8 * s + 4), word_of(windows[1], 8 * s + 4)};
        UNROLL for (int j = 0; j < NT; ++j) multiply_words(sums[j], w, b[s][j]);
      }
      UNROLL for (int h = 0; h < 2; ++h) {
        const int pixel = first + 8 * h, row = pixel / TW, column = at.q + pixel % TW;
        if (row >= rows || column >= YW) continue;
        UNROLL for (int q = 0; q < 2 * NT / PACK; ++q) {
          const int n = group * 8 * NT + q * 4 * PACK + LANE * PACK;
          if (n >= FILTERS) continue;
          Y* const to = (Y*)a.out[0] + ((i64)(at.picture * YH + at.p + row) * YW + column) * FILTERS + n;
          Pack<Y, PACK> y;
          if (BIASED) {
            const Y* const bias = (const Y*)a.in[BIASED * 2] + n;
            if (WIDE) y = *(const Pack<Y, PACK>*)bias;
            else UNROLL for (int e = 0; e < PACK; ++e) y.e[e] = bias[e];
          }
          UNROLL for (int e = 0; e < PACK; ++e) {
            const float sum = sums[q * PACK / 2 + e / 2][2 * h + e % 2];
            y.e[e] = convert<Y>(BIASED ? sum + convert<float>(y.e[e]) : sum);
          }
          if (WIDE) *(Pack<Y, PACK>*)to = y;
          else UNROLL for (int e = 0; e < PACK; ++e) to[e] = y.e[e];
        }
      }
    }
  }
}
KERNEL_AHEAD void wide(const Args a) { forward<true>(a); }
KERNEL_AHEAD void narrow(const Args a) { forward<false>(a); }
)";

constexpr std::int64_t kMostRegisters = 80, kStep = 8, kWarps = 8;
constexpr std::int64_t kMostPixels = 896, kWidest = 112, kManyTiles = 512, kTileBytes = 40 * 1024;

Sliding sliding(const Attributes& a, const LocalType& x, const LocalType& filter) {
  return {x.shape, filter.shape[0], filter.shape[1], a.integers("strides"), a};
}

/// Of the forward pass: words to a product, products of eight filters in a warp, warps' shares of filters, and warps that share pixels.
struct Warps {
  explicit Warps(const FewChannels& f) : steps(up(f.all, kStep)), products(8 * steps <= kMostRegisters ? 4 : 2), groups(up(f.filters, 8 * products)), beside(std::gcd(groups, kWarps)) {}
  std::int64_t scratch_bytes() const { return groups * steps * products * 32 * 8; }
  std::int64_t steps, products, groups, beside;
};

/// The node's, or of a group those of its convolution.
const Attributes& attributes_of(const KernelRequest& r) { return r.members.empty() ? *r.attributes : r.members[0]->attributes; }
FewChannels few_channels(const KernelRequest& r) { return {attributes_of(r), r.inputs[0], r.inputs[1], r.outputs[0]}; }

Generated forward(const KernelRequest& r) {
  const LocalType &x = r.inputs[0], &filter = r.inputs[1], &y = r.outputs[0];
  const FewChannels f = few_channels(r);
  const Warps w(f);
  const bool biased = r.inputs.size() > 2;
  Generated g(r);
  g.type("Y", y.dtype).head(fmt::format("#define STEPS {}\n#define NT {}\n#define GROUPS {}\n#define BESIDE {}\n#define BIASED {:d}", w.steps, w.products, w.groups, w.beside, biased));
  f.describe(g, attributes_of(r), x, filter, y);
  return g.body(kForward).launch("order", grid_for(w.scratch_bytes() / 16)).launch("wide", {f.tiles, 256}, biased ? std::vector<std::size_t>{2, 3} : std::vector<std::size_t>{2}, "narrow", {f.tiles, 256});
}

}  // namespace

FewChannels::FewChannels(const Attributes& a, const LocalType& x, const LocalType& filter, const LocalType& y)
    : per(is_half(x.dtype) ? 2 : 1), filters(filter.shape[3]), run(filter.shape[1] * filter.shape[2]), words(up(run, per)), all(words * filter.shape[0]) {
  const Sliding s = sliding(a, x, filter);
  const std::int64_t step = s.stride_w * x.shape[3];
  lead = s.w.before * x.shape[3] % per;
  auto cut = [&](std::int64_t wide, std::int64_t high) {
    tw = wide, th = high, rows = (th - 1) * s.stride_h + s.window_h, pitch = (lead + (tw - 1) * step + run) / per + 1;
    // Neighbours whose windows begin at odd elements read other banks than the others.
    copy = per == 2 && (lead || step % 2) ? (rows * pitch + 32) / 32 * 32 + 16 : 0;
    shared_words = copy + rows * pitch;
    return 4 * shared_words <= kTileBytes;
  };
  for (pieces = up(y.shape[2], kWidest); pieces <= y.shape[2]; pieces *= 2)
    if (cut(pieces == 1 ? y.shape[2] : up(up(y.shape[2], pieces), 2) * 2, 1)) break;
  if (pieces > y.shape[2] || 4 * shared_words > kTileBytes) {
    refusal = "its windows reach too far";
    return;
  }
  pieces = up(y.shape[2], tw);
  auto count = [&] { return y.shape[0] * pieces * up(y.shape[1], th); };
  std::int64_t high = std::max<std::int64_t>(1, std::min(y.shape[1], kMostPixels / tw));
  while (!cut(tw, high) || (high > 1 && count() < kManyTiles)) high = up(high, 2);
  bands = up(y.shape[1], high);
  cut(tw, up(y.shape[1], bands));
  tiles = count();
  if (std::max(tiles, y.shape[0] * y.shape[1]) >= std::int64_t{1} << 31) refusal = "there are more rows of pixels than it counts";
}

void FewChannels::describe(Generated& g, const Attributes& a, const LocalType& x, const LocalType& filter, const LocalType& y) const {
  const Sliding s = sliding(a, x, filter);
  g.type("E", x.dtype).head(fmt::format("#define PRODUCT \"{}\"", per == 1 ? "m16n8k8.row.col.f32.tf32.tf32.f32" : x.dtype == f16 ? "m16n8k16.row.col.f32.f16.f16.f32" : "m16n8k16.row.col.f32.bf16.bf16.f32"));
  for (auto [name, value] : {std::pair{"PER", per}, {"CHANNELS", x.shape[3]}, {"STRIDE_H", s.stride_h}, {"STRIDE_W", s.stride_w}, {"BEFORE_H", s.h.before}, {"BEFORE_W", s.w.before}, {"LEAD", lead}, {"RUN", run},
                             {"WORDS", words}, {"ALL", all}, {"TW", tw}, {"TH", th}, {"ROWS", rows}, {"PITCH", pitch}, {"COPY", copy}, {"SHARED_WORDS", shared_words}, {"HIGH", x.shape[1]}, {"LINE", x.shape[2] * x.shape[3]}, {"YH", y.shape[1]}, {"YW", y.shape[2]}, {"FILTERS", filters}, {"PIECES", pieces}, {"BANDS", bands}})
    g.head(fmt::format("#define {} {}", name, value));
  g.body(kTile);
}

std::string objection_to_few_channels(const Attributes& a, const LocalType& x, const LocalType& filter, const LocalType& y, bool rounds) {
  if (rounds ? x.dtype != f32 : !is_half(x.dtype)) return rounds ? "it multiplies no f32" : "tensor cores multiply no f32 as it is";
  if (y.dtype != x.dtype && y.dtype != f32) return "its tensors are of several dtypes";
  if (!x.elements() || !filter.elements() || !y.elements()) return "there are no elements";
  if (std::string why = no_few_channels(a, x.shape[3], filter.shape[3], filter.shape[0], filter.shape[1], rounds ? 1 : 2); !why.empty()) return why;
  const std::int64_t most = std::int64_t{1} << 30;
  if (x.shape[1] * x.shape[2] > most / x.shape[3] || y.shape[1] * y.shape[2] > most / y.shape[3] || std::max(a.integers("strides")[0], a.integers("strides")[1]) > 1 << 20) return "a picture has more elements than it counts";
  return FewChannels(a, x, filter, y).refusal;
}

std::vector<Kernel> few_channels_cuda(const GpuCodeRef& code) {
  std::vector<Kernel> out;
  for (bool rounds : {true, false}) {
    const Leeway leeway{.tf32 = rounds};
    const std::string name = with_leeway("nvrtc_few_channels", leeway);
    const auto supports = [rounds](const KernelRequest& r) {
      const LocalType &x = r.inputs[0], &filter = r.inputs[1], &y = r.outputs[0];
      if (filter.dtype != x.dtype) return refuse("its tensors are of several dtypes");
      if (r.inputs.size() > 2 && (r.inputs[2].dtype != y.dtype || r.inputs[2].shape != Extents{y.shape[3]})) return refuse("its bias is of another dtype or shape than a pixel of its result");
      if (std::string why = objection_to_few_channels(attributes_of(r), x, filter, y, rounds); !why.empty()) return refuse(why);
      return Support{.scratch_bytes = Warps(few_channels(r)).scratch_bytes(), .in_place = false};
    };
    const auto prepare = [code](const KernelRequest& r) { return forward(r).prepare(*code); };
    out.push_back({.name = name, .op = "conv2d", .supports = supports, .prepare = prepare, .halves = true, .leeway = leeway});
    out.push_back({.name = name, .op = kConv2dBias, .supports = supports, .prepare = prepare, .members = {"conv2d", "add"}, .halves = true, .leeway = leeway});
    out.push_back({.name = name, .op = "conv2d_filter_gradient",
                   .supports = [rounds](const KernelRequest& r) {
                     const LocalType &x = r.inputs[0], &dy = r.inputs[1], &filter = r.outputs[0];
                     if (dy.dtype != x.dtype || (filter.dtype != x.dtype && filter.dtype != f32)) return refuse("its tensors are of several dtypes");
                     if (std::string why = objection_to_few_channels(*r.attributes, x, filter, dy, rounds); !why.empty()) return refuse(why);
                     if (std::string why = objection_to_few_channels_gradient(r); !why.empty()) return refuse(why);
                     return Support{.scratch_bytes = few_channels_filter_gradient_scratch(r), .in_place = false};
                   },
                   .prepare = [code](const KernelRequest& r) { return few_channels_filter_gradient(r).prepare(*code); }, .halves = true, .leeway = leeway});
  }
  return out;
}

}  // namespace belfry
