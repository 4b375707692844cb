// What normalisations share: parameters per channel that may be left out, and an attribute that passes set.
#pragma once

#include <belfry/graph/contexts.h>

namespace belfry {

/// The half, by name, that a layer or group norm of f32 rounds y to; "": none.
inline constexpr const char* kRoundedTo = "rounded_to";

/// Whether kernels of a norm's gradient add the rows of what they make on the way, for a bias's gradient: rows so wide that blocks of sums are small beside them, and no wider than threads have room for.
inline bool adds_beside_norms(const TensorType& t) {
  if (t.shape.empty() || t.shape.back().symbolic() || !(is_float(t.dtype) || is_half(t.dtype))) return false;
  const std::int64_t width = t.shape.back().factor;
  return width >= 256 && width <= (t.dtype == DType::f64 ? 1024 : 2048);
}

/// Element k of scale or shift; `otherwise` where none is given.
template <class T>
double channel(const ConstView& parameter, std::size_t k, double otherwise) {
  return parameter.data ? static_cast<double>(parameter.as<T>()[k]) : otherwise;
}

}  // namespace belfry
