#include <belfry/ops/cuda/generated_internal.h>

#include <algorithm>
#include <bit>
#include <limits>

#include <belfry/executor/device/faults.h>
#include <belfry/executor/joint_launch.h>

namespace belfry {
namespace {

/// For CUDA and, with a few definitions before it, for the host's compiler. The conversions are those of the CPU's cast, bit for bit.
const char* const kPrelude = R"(#ifndef KERNEL
#define KERNEL extern "C" __global__ __launch_bounds__(256)
/// One whose threads may have as many registers as what they read ahead needs, up to 128.
#define KERNEL_AHEAD extern "C" __global__ __launch_bounds__(256, 2)
/// One of which three blocks run beside each other: 80 registers a thread.
#define KERNEL_THREE extern "C" __global__ __launch_bounds__(256, 3)
#endif
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct alignas(16) Sixteen { u64 low, high; };
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T e[N]; };
template <class From> struct IsReal { enum { is = 0 }; };
template <> struct IsReal<float> { enum { is = 1 }; };
template <> struct IsReal<double> { enum { is = 1 }; };
template <class To> struct WholeNumbers { enum { is = 0 }; };
template <> struct WholeNumbers<int> { enum { is = 1 }; static constexpr int least = -0x7FFFFFFF - 1, most = 0x7FFFFFFF; static constexpr double past = 2147483648.0; };
template <> struct WholeNumbers<i64> { enum { is = 1 }; static constexpr i64 least = -0x7FFFFFFFFFFFFFFFLL - 1, most = 0x7FFFFFFFFFFFFFFFLL; static constexpr double past = 9223372036854775808.0; };
template <> struct WholeNumbers<unsigned char> { enum { is = 1 }; static constexpr unsigned char least = 0, most = 255; static constexpr double past = 256; };
template <class To, class From> struct Convert {
  static To of(From v) {
    if constexpr (IsReal<From>::is && WholeNumbers<To>::is) return v != v ? To(0) : v <= (From)WholeNumbers<To>::least ? WholeNumbers<To>::least : v >= (From)WholeNumbers<To>::past ? WholeNumbers<To>::most : (To)v;
    else return (To)v;
  }
};
template <class T> struct Convert<T, T> { static T of(T v) { return v; } };
template <> struct Convert<float, bf16> { static float of(bf16 x) { return __uint_as_float((u32)x.bits << 16); } };
template <> struct Convert<bf16, float> {
  static bf16 number(float x) {  // no NaN, of which a GPU keeps no sign
#if __CUDA_ARCH__ >= 800
    u32 rounded;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(rounded) : "f"(0.0f), "f"(x));  // a pair is a word already
#else
    const u32 bits = __float_as_uint(x), rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
#endif
    return bf16{(unsigned short)rounded};
  }
  static bf16 nan(float x) { return bf16{(unsigned short)((__float_as_uint(x) >> 16 & 0x8000u) | 0x7FC0u)}; }
  static bf16 of(float x) {
    const u32 rounded = number(x).bits, otherwise = nan(x).bits;
    return bf16{(unsigned short)(x == x ? rounded : otherwise)};
  }
};
template <> struct Convert<float, f16> {
  static float of(f16 x) {
    u32 magnitude = (u32)(x.bits & 0x7FFFu) << 13;
    float scaled = __uint_as_float(magnitude) * 5.192296858534827628530496329220096e33f;
    u32 bits = (x.bits & 0x7C00u) == 0x7C00u ? magnitude | 0x7F800000u : __float_as_uint(scaled);
    return __uint_as_float(bits | (u32)(x.bits & 0x8000u) << 16);
  }
};
template <> struct Convert<f16, float> {
  static f16 number(float x) {
#if __CUDA_ARCH__ >= 800
    unsigned short rounded;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
#else
    u32 bits = __float_as_uint(x), magnitude = bits & 0x7FFFFFFFu;
    u32 subnormal = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3F000000u;
    u32 normal = (magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
    u32 rounded = magnitude < (113u << 23) ? subnormal : normal < 0x7C00u ? normal : 0x7C00u;
    if (magnitude >= (143u << 23)) rounded = 0x7C00u;
    rounded |= bits >> 16 & 0x8000u;
#endif
    return f16{(unsigned short)rounded};
  }
  static f16 nan(float x) { return f16{(unsigned short)((__float_as_uint(x) >> 16 & 0x8000u) | 0x7E00u)}; }
  static f16 of(float x) {
    const u32 rounded = number(x).bits, otherwise = nan(x).bits;
    return f16{(unsigned short)(x == x ? rounded : otherwise)};
  }
};
template <class To, class From> To convert(From v) { return Convert<To, From>::of(v); }
/// In one store, to memory of the device: of halves that were just made compilers keep several.
template <class P> void put(P* at, const P& v) {
#if __CUDA_ARCH__
  if constexpr (sizeof(P) == 16) {
    u64 low, high;
    memcpy(&low, &v, 8);
    memcpy(&high, (const char*)&v + 8, 8);
    asm volatile("st.global.v2.b64 [%0], {%1, %2};" :: "l"(__cvta_generic_to_global(at)), "l"(low), "l"(high) : "memory");
    return;
  }
#endif
  *at = v;
}
/// What a sum or product is once it was rounded to H. A GPU's NaN of these has no sign, so that none is lost.
template <class H> struct Round { template <class C> static C of(C v) { return v; } };
template <> struct Round<bf16> {
  static float of(float x) {
#if __CUDA_ARCH__ >= 800
    u32 above;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(above) : "f"(x), "f"(0.0f));
    return __uint_as_float(above);
#else
    return convert<float>(convert<bf16>(x));
#endif
  }
};
template <> struct Round<f16> {
  static float of(float x) {
#if __CUDA_ARCH__ >= 800
    float y;
    asm("{ .reg .b16 half; cvt.rn.f16.f32 half, %1; cvt.f32.f16 %0, half; }" : "=f"(y) : "f"(x));
    return y;
#else
    return convert<float>(convert<f16>(x));
#endif
  }
};
template <class H, class C> C rounded(C v) { return Round<H>::of(v); }
)";

const char* const kAcross = R"(
#define LANES 0xFFFFFFFFu
/// A line is worked on by WIDTH threads: one, a warp, or a block of 256. Its element k lies at + k * a.inner.
#define EACH_LINE(line) for (i64 line = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / WIDTH; line < a.lines; line += (i64)gridDim.x * blockDim.x / WIDTH)
#define EACH_OF(k, n) for (i64 k = threadIdx.x % WIDTH; k < n; k += WIDTH)
/// Every thread of the line gets the fold of all their values, always in the same order.
template <class T, class F> T across(T v, F fold) {
  if (WIDTH == 1) return v;
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) v = fold(v, __shfl_xor_sync(LANES, v, apart));
  if (WIDTH == 32) return v;
  __shared__ T parts[8];
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = parts[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) v = fold(v, parts[i]);
  return v;
}
struct Add { template <class T> T operator()(T a, T b) const { return a + b; } };
struct Greater { template <class T> T operator()(T a, T b) const { return a >= b || a != a ? a : b; } };
)";

/// The first position that is wrong wins, whichever thread comes first; an index beyond 32 bits stands as the nearest that fits.
const char* const kFault = R"(
void fault(i64 word, i64 position, i64 index) {
  const i64 p = position < 0xFFFFFFFELL ? position : 0xFFFFFFFELL, low = index < -0x80000000LL ? -0x80000000LL : index, k = low > 0x7FFFFFFFLL ? 0x7FFFFFFFLL : low;
  if (word) atomicMin((u64*)word, (u64)p << 32 | (u64)(u32)(int)k);
}
)";

class GeneratedPrepared : public Prepared {
 public:
  struct Step {
    std::shared_ptr<GpuFunction> wide, narrow;
    Grid wide_grid, narrow_grid;
    std::vector<std::size_t> aligned;
  };

  void launch(const Arguments& a) override {
    if (unless_same && a.inputs[0] == a.outputs[0]) return;
    set_addresses(a);
    const std::size_t first = std::max<std::size_t>(inputs, 1);
    for (const Step& s : steps) {
      bool wide = std::all_of(s.aligned.begin(), s.aligned.end(), [&](std::size_t p) { return words[p < inputs ? p : first + p - inputs] % 16 == 0; });
      const Grid& grid = wide ? s.wide_grid : s.narrow_grid;
      if (grid.blocks > 0) (wide ? s.wide : s.narrow)->launch(grid, words, a.stream);
    }
  }

  /// Fields of the text's Args: a missing optional input or output is null.
  void set_addresses(const Arguments& a) {
    auto address = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
    for (std::size_t i = 0; i < inputs; ++i) words[i] = i < a.inputs.size() ? address(a.inputs[i]) : 0;
    const std::size_t first = std::max<std::size_t>(inputs, 1);
    for (std::size_t k = 0; k < outputs; ++k) words[first + k] = address(a.outputs[k]);
    words[first + outputs] = address(a.scratch);
  }

  std::size_t inputs = 0, outputs = 0;
  bool unless_same = false;
  std::vector<std::uint64_t> words;
  std::vector<Step> steps;
};

constexpr std::size_t kMostWords = 4096 / 8;  // that every driver takes

/// How many nodes of so many words a table has: half a word more for each stands before them.
std::size_t rows_of_table(std::size_t words) { return 2 * kMostWords / (2 * words + 1); }
std::size_t words_before_rows(std::size_t words) { return (rows_of_table(words) + 1) / 2; }
std::size_t words_of_table(std::size_t words) { return words_before_rows(words) + rows_of_table(words) * words; }

class JointPrepared : public GeneratedPrepared, public LaunchesJointly {
 public:
  const void* kind() const override { return text; }
  int most() const override { return static_cast<int>(rows_of_table(words.size())); }
  void prepare_joint() override {
    if (!joint) joint = code->function(*text, "joint", words_of_table(words.size()));
  }
  void finish_joint() override { code->load(); }
  void launch_jointly(std::span<const One> all) override {
    std::vector<std::uint64_t> table(words_of_table(words.size()));
    const std::size_t before = words_before_rows(words.size());
    std::int64_t past = 0;  // of the blocks of those before
    for (std::size_t k = 0; k < 2 * before; ++k) {
      if (k < all.size()) {
        auto& one = dynamic_cast<JointPrepared&>(*all[k].kernel);
        one.set_addresses(*all[k].arguments);
        std::copy(one.words.begin(), one.words.end(), table.begin() + static_cast<std::ptrdiff_t>(before + k * words.size()));
        past += one.unless_same && all[k].arguments->inputs[0] == all[k].arguments->outputs[0] ? 0 : one.blocks;
      }
      table[k / 2] |= static_cast<std::uint64_t>(past) << (k % 2 * 32);
    }
    if (past > 0) joint->launch({past, 256}, table, all[0].arguments->stream);
  }

  const std::string* text = nullptr;  // of the joint launch
  std::int64_t blocks = 0;            // that this node needs
  std::shared_ptr<GpuCode> code;
  std::shared_ptr<GpuFunction> joint;
};

class WatchedPrepared : public GeneratedPrepared, public FindsFaults {
 public:
  void watch(std::uint64_t* word) override { words[fault_word] = reinterpret_cast<std::uint64_t>(word); }
  std::string fault(std::uint64_t word) const override {
    const auto index = static_cast<std::int32_t>(word & 0xFFFFFFFFu);
    using Limits = std::numeric_limits<std::int32_t>;
    std::string text = std::to_string(index);
    if (index == Limits::max()) text += " or more";
    if (index == Limits::min()) text += " or less";
    return says(static_cast<std::int64_t>(word >> 32), text);
  }

  std::size_t fault_word = 0;
  std::function<std::string(std::int64_t, const std::string&)> says;
};

}  // namespace

std::string type_text(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::i32: return "int";
    case DType::i64: return "long long";
    case DType::u8: return "unsigned char";
    case DType::boolean: return "bool";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
  }
  wrong_dtype(dtype, "a type of a kernel");
}

std::string word_text(std::int64_t bytes) { return bytes == 1 ? "unsigned char" : bytes == 2 ? "unsigned short" : bytes == 4 ? "u32" : bytes == 8 ? "u64" : "Sixteen"; }

Grid grid_for(std::int64_t items, int threads) { return {std::min<std::int64_t>(up(items, threads), 16384), threads}; }

Generated& Generated::number(const std::string& name, std::int64_t value) {
  fields_ += " i64 " + name + ";";
  values_.push_back(static_cast<std::uint64_t>(value));
  return *this;
}

Generated& Generated::real(const std::string& name, double value) {
  fields_ += " double " + name + ";";
  values_.push_back(std::bit_cast<std::uint64_t>(value));
  return *this;
}

Generated& Generated::faults(std::function<std::string(std::int64_t, const std::string&)> says) {
  says_ = std::move(says);
  fault_ = values_.size();
  return head(kFault).number("fault", 0);
}

Grid Generated::lines(std::int64_t outer, std::int64_t n, std::int64_t inner, std::int64_t of_warp) {
  int width = inner > 1 ? 1 : n <= of_warp ? 32 : 256;
  head("#define WIDTH " + std::to_string(width)).head(kAcross).number("lines", outer * inner).number("n", n).number("inner", inner);
  return grid_for(outer * inner * width);
}

Generated& Generated::launch(const std::string& entry, Grid grid, std::vector<std::size_t> aligned, const std::string& narrow, Grid narrow_grid) {
  steps_.push_back({entry, narrow, grid, narrow_grid, std::move(aligned)});
  return *this;
}

Generated& Generated::joint(const std::string& pass, std::int64_t blocks) {
  pass_ = pass;
  joint_blocks_ = blocks;
  return *this;
}

std::string Generated::arguments() const {
  return "struct Args { const void* in[" + std::to_string(std::max<std::size_t>(inputs_, 1)) + "]; void* out[" + std::to_string(outputs_) + "]; void* scratch;" + fields_ + " };\n";
}

std::size_t Generated::words() const { return std::max<std::size_t>(inputs_, 1) + outputs_ + 1 + values_.size(); }

std::string Generated::source() const { return kPrelude + head_ + arguments() + body_ + entries_; }

std::string Generated::joint_source() const {
  const std::size_t rows = rows_of_table(words());
  return kPrelude + std::string("#define JOINT\n") + head_ + arguments() + body_ + "struct Table { u32 past[" + std::to_string(2 * words_before_rows(words())) + "]; Args of[" + std::to_string(rows) + "]; };\n" +
         "KERNEL void joint(const __grid_constant__ Table t) {\n  u32 k = 0;  // the node that the block works for: so many are past before it\n  for (u32 more = " + std::to_string(std::bit_floor(rows)) +
         "; more > 0; more /= 2)\n    if (k + more < " + std::to_string(rows) + " && t.past[k + more - 1] <= blockIdx.x) k += more;\n  const u32 first = k > 0 ? t.past[k - 1] : 0;\n  " + pass_ + "(t.of[k], blockIdx.x - first, t.past[k] - first);\n}\n";
}

std::unique_ptr<Prepared> Generated::prepare(GpuCode& code) const {
  std::unique_ptr<GeneratedPrepared> out;
  if (says_) {
    auto watched = std::make_unique<WatchedPrepared>();
    watched->fault_word = std::max<std::size_t>(inputs_, 1) + outputs_ + 1 + fault_;
    watched->says = says_;
    out = std::move(watched);
  } else if (joint_blocks_ > 0) {
    auto joint = std::make_unique<JointPrepared>();
    joint->text = &code.kept(joint_source());
    joint->blocks = joint_blocks_;
    joint->code = code.shared_from_this();
    out = std::move(joint);
  } else {
    out = std::make_unique<GeneratedPrepared>();
  }
  out->inputs = inputs_;
  out->outputs = outputs_;
  out->unless_same = unless_same_;
  out->words.resize(words() - values_.size());
  out->words.insert(out->words.end(), values_.begin(), values_.end());
  std::string text = source();
  for (const Step& s : steps_) {
    if (s.wide_grid.blocks <= 0 && s.narrow_grid.blocks <= 0) continue;
    auto wide = code.function(text, s.wide, out->words.size());
    out->steps.push_back({wide, s.narrow == s.wide ? wide : code.function(text, s.narrow, out->words.size()), s.wide_grid, s.narrow_grid, s.aligned});
  }
  return out;
}

std::unique_ptr<Prepared> in_sequence(std::vector<std::unique_ptr<Prepared>> parts) {
  auto all = std::make_shared<std::vector<std::unique_ptr<Prepared>>>(std::move(parts));
  return prepared([all](const Arguments& a) {
    for (auto& p : *all) p->launch(a);
  });
}

std::unique_ptr<Prepared> of_input(std::unique_ptr<Prepared> part, std::size_t i) {
  struct OfInput : Prepared {
    void launch(const Arguments& a) override {
      one.inputs.assign(1, a.inputs[i]);
      one.outputs = a.outputs;
      one.scratch = a.scratch;
      one.stream = a.stream;
      part->launch(one);
    }
    std::unique_ptr<Prepared> part;
    std::size_t i = 0;
    Arguments one;
  };
  auto out = std::make_unique<OfInput>();
  out->part = std::move(part);
  out->i = i;
  return out;
}

}  // namespace belfry
