// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <belfry/graph/half.h>

namespace belfry {

/// f16 and bf16 are what ops of mixed precision read and give; arithmetic is in f32 and f64.
enum class DType : std::uint8_t { f32, f64, i32, i64, u8, boolean, f16, bf16 };

inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType u8 = DType::u8;
inline constexpr DType boolean = DType::boolean;
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;

inline constexpr DType kAllDTypes[] = {f32, f64, i32, i64, u8, boolean, f16, bf16};

/// "f32", "f64", "i32", "i64", "u8", "bool", "f16", "bf16".
std::string_view name_of(DType dtype);
/// The inverse of name_of; UserError for other texts.
DType parse_dtype(std::string_view text);
std::size_t size_of(DType dtype);
/// Whether a dtype has a number: floats have all, rounded; integers the whole ones of their range.
bool is_value_of(DType dtype, double value);

/// What ops compute in; f16 and bf16 are not: they are read as f32, and results are rounded to them.
constexpr bool is_float(DType dtype) { return dtype == f32 || dtype == f64; }
constexpr bool is_half(DType dtype) { return dtype == f16 || dtype == bf16; }

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return f32;
  else if constexpr (std::is_same_v<T, double>) return f64;
  else if constexpr (std::is_same_v<T, std::int32_t>) return i32;
  else if constexpr (std::is_same_v<T, std::int64_t>) return i64;
  else if constexpr (std::is_same_v<T, std::uint8_t>) return u8;
  else if constexpr (std::is_same_v<T, Float16>) return f16;
  else if constexpr (std::is_same_v<T, BFloat16>) return bf16;
  else {
    static_assert(std::is_same_v<T, bool>, "no DType for this C++ type");
    return boolean;
  }
}

/// InternalError: an op let a dtype through that its code does not know.
[[noreturn]] void wrong_dtype(DType dtype, const char* wanted);

/// Calls `f.template operator()<T>()` with the C++ type of `dtype`, which must be one to compute with: not f16 or bf16.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f.template operator()<float>();
    case DType::f64: return f.template operator()<double>();
    case DType::i32: return f.template operator()<std::int32_t>();
    case DType::i64: return f.template operator()<std::int64_t>();
    case DType::u8: return f.template operator()<std::uint8_t>();
    case DType::boolean: return f.template operator()<bool>();
    default: break;
  }
  wrong_dtype(dtype, "a dtype to compute with");
}

/// The same over all dtypes: for what stores, moves or converts.
template <class F>
decltype(auto) visit_stored(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: return f.template operator()<Float16>();
    case DType::bf16: return f.template operator()<BFloat16>();
    default: return visit_dtype(dtype, f);
  }
}

/// visit_dtype over f32 and f64 alone.
template <class F>
decltype(auto) visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f.template operator()<double>();
    case DType::f32: return f.template operator()<float>();
    default: break;
  }
  wrong_dtype(dtype, "a floating point number");
}

}  // namespace belfry
