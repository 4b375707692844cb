// What the texts of attention in f32 that may be rounded to TF32 share, forward and gradient: products of a warp on tensor cores, and where a head lies.
#pragma once

#include <algorithm>
#include <string>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/scaled_dot_product_attention/formulas.h>

namespace belfry::tf32_attention {

/// The host has functions in the place of the instructions.
inline constexpr const char* kProducts = R"(
// Two blocks a multiprocessor.
#ifdef __CUDACC_RTC__
#if __CUDA_ARCH__ < 800
#error TF32 needs compute capability 8.0: take --precision f32
#endif
#undef KERNEL
#define KERNEL extern "C" __global__ __launch_bounds__(256, 2)
/// To the nearest that TF32 has.
inline float to_tf32(float x) {
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}
/// c (16, 8) += a (16, 8)·b (8, 8), of which each lane of the warp has a part.
inline void multiply_in_warp(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}
/// Four matrices of 8 rows of 4: lane l says where row l % 8 of matrix l / 8 lies, and gets of each matrix element l % 4 of row l / 4.
inline void load_matrices(float (&to)[4], const float* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}
/// Into shared memory, zeros where not `there`; done once `await_copies` is.
inline void copy_four(float* to, const float* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
inline void copy_one(float* to, const float* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}
inline void await_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }
/// 2^x to 22 bits; 0 below the smallest normal number.
inline float power_of_two(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}
/// What is computed of it is computed where it is asked for, and no register keeps it meanwhile.
inline u32 thread_now() {
  u32 t = threadIdx.x;
  asm volatile("" : "+r"(t));
  return t;
}
#endif
#define SIDE 64
#define NOTHING __uint_as_float(0xFF800000u)
typedef Pack<float, 4> Four;
#define UNROLL _Pragma("unroll")
inline int tiles(i64 n) { return (int)((n + SIDE - 1) / SIDE); }
)";

inline AttentionLayout layout_of(const KernelRequest& r) { return {*r.attributes, r.inputs[0].shape, r.inputs[1].shape, r.inputs[2].shape}; }

/// The text's sizes, and what stands before it.
inline Generated begun(const KernelRequest& r, const AttentionLayout& p, int shared_bytes) {
  Generated g(r);
  g.head(p.causal ? "#define CAUSAL 1" : "#define CAUSAL 0").head("#define SHARED " + std::to_string(shared_bytes));
  g.number("heads", p.heads).number("queries", p.queries).number("keys", p.keys).number("width", p.width).number("value_width", p.value_width).real("scale", p.scale);
  if (heads_behind(*r.attributes)) g.number("beside", p.beside).head(std::string("#define BESIDE a.beside\n#define APART ") + (p.apart > p.beside ? "(3 * a.beside)" : "a.beside"));
  else g.head("#define BESIDE 1\n#define APART 1");
  g.body(kProducts);
  return g;
}

/// `mask`: which input.
inline Support supports(const KernelRequest& r, std::size_t mask) {
  Support s = takes_on_gpu(r, {f32});
  if (!s.ok) return s;
  const AttentionLayout p = layout_of(r);
  if (mask < r.inputs.size() && r.inputs[mask].shape != Extents{0}) return refuse("it has a mask, and what a query does not see is multiplied by 0 here");
  if (p.causal && p.keys > p.queries) return refuse("no query sees the last keys, and what they hold is multiplied by 0 here");
  if (std::max({r.inputs[0].elements(), r.inputs[1].elements(), r.inputs[2].elements(), p.heads * p.queries * std::max<std::int64_t>(p.value_width, 1)}) * (p.apart / std::max<std::int64_t>(p.beside, 1)) >= std::int64_t{1} << 31) return refuse("a tensor has more elements than it counts");
  s.in_place = false;
  return s;
}

}  // namespace belfry::tf32_attention
