// The formulas of the binary ops, one element at a time: references and kernels share them.
#pragma once

#include <cmath>
#include <type_traits>

#include <belfry/graph/error.h>
#include <belfry/ops/extremes.h>

namespace belfry::binary_formulas {

struct Add { template <class T> T operator()(T a, T b) const { return a + b; } };
struct Sub { template <class T> T operator()(T a, T b) const { return a - b; } };
struct Mul { template <class T> T operator()(T a, T b) const { return a * b; } };
using extremes::Max;
using extremes::Min;
struct SquaredDifference { template <class T> T operator()(T a, T b) const { return (a - b) * (a - b); } };
struct Pow { template <class T> T operator()(T a, T b) const { return static_cast<T>(std::pow(a, b)); } };
/// From logits a and labels b; exp is taken of what is not positive.
struct SigmoidCrossEntropy {
  template <class T>
  T operator()(T a, T b) const { return static_cast<T>((a > 0 ? a : T{0}) - a * b + std::log1p(std::exp(a > 0 ? -a : a))); }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) throw UserError("[div] integer division by zero");
      if (b == -1) return Sub{}(T{0}, a);
    }
    return a / b;
  }
};

}  // namespace belfry::binary_formulas
