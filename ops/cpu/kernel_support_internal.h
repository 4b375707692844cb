// What the kernels of the rooms share: refusals, and launches that work range by range.
#pragma once

#include <fmt/format.h>

#include <belfry/executor/kernel.h>
#include <belfry/ops/cpu/parallel_internal.h>

/// One copy of a loop per instruction set, chosen when the program is loaded; all give the same bits. The sanitizers watch one; clang makes none of templates.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define BELFRY_CLONES
#else
#define BELFRY_CLONES [[gnu::target_clones("avx512f", "avx2", "default")]]
#endif
/// Before a loop whose steps do not meet in memory; clang checks at run time.
#ifdef __clang__
#define BELFRY_IVDEP
#else
#define BELFRY_IVDEP _Pragma("GCC ivdep")
#endif

namespace belfry {

inline Support accept(std::int64_t scratch_bytes = 0) { return {true, {}, scratch_bytes, true}; }

/// Accepts where input `i` has one of the dtypes.
inline Support takes(const KernelRequest& r, std::initializer_list<DType> dtypes, std::size_t i = 0) {
  for (DType d : dtypes)
    if (r.inputs[i].dtype == d) return accept();
  return refuse(fmt::format("input {} is {}", i, name_of(r.inputs[i].dtype)));
}

inline std::function<Support(const KernelRequest&)> takes_any() {
  return [](const KernelRequest&) { return accept(); };
}
inline std::function<Support(const KernelRequest&)> takes_floats(std::size_t i = 0) {
  return [i](const KernelRequest& r) { return takes(r, {f32, f64}, i); };
}
inline std::function<Support(const KernelRequest&)> takes_numbers(std::size_t i = 0) {
  return [i](const KernelRequest& r) { return takes(r, {f32, f64, i32, i64}, i); };
}

/// visit_dtype over f32, f64, i32 and i64; supports() has refused the others.
template <class F>
decltype(auto) visit_number(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f.template operator()<double>();
    case DType::i32: return f.template operator()<std::int32_t>();
    case DType::i64: return f.template operator()<std::int64_t>();
    case DType::f32: return f.template operator()<float>();
    default: break;
  }
  wrong_dtype(dtype, "a number");
}

inline Support takes_indices(const KernelRequest& r, std::size_t i) { return takes(r, {i32, i64, u8}, i); }
/// visit_dtype over u8, i32 and i64, the dtypes of indices.
template <class F>
decltype(auto) visit_index(DType dtype, F&& f) {
  if (dtype == DType::u8) return f.template operator()<std::uint8_t>();
  if (dtype == DType::i64) return f.template operator()<std::int64_t>();
  if (dtype == DType::i32) return f.template operator()<std::int32_t>();
  wrong_dtype(dtype, "an index");
}
/// UserError for the first index that is none of a table's rows.
template <class I>
void check_rows(const char* op, const I* indices, std::int64_t n, std::int64_t rows) {
  for (std::int64_t i = 0; i < n; ++i)
    if (static_cast<std::int64_t>(indices[i]) < 0 || static_cast<std::int64_t>(indices[i]) >= rows)
      throw UserError(fmt::format("[{}] index {} at position {} is outside the table of {} rows", op, indices[i], i, rows));
}

}  // namespace belfry
