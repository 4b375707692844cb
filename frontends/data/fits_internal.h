// Whether a number is a value of an input's type, and what to say where it is none.
#pragma once

#include <cmath>
#include <string>
#include <type_traits>

#include <belfry/graph/dtype.h>

namespace belfry {

/// What rounds fits too, unless it becomes infinite.
template <class T>
bool can_hold(double x) {
  if constexpr (std::is_integral_v<T>) return is_value_of(dtype_of<T>(), x);
  else return !std::isfinite(x) || std::isfinite(static_cast<double>(static_cast<T>(x)));
}

/// Behind the place of a value that does not fit.
std::string why_no_value(double x, DType dtype);

}  // namespace belfry
