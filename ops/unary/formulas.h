// The formulas of the unary ops, one element at a time: references and kernels share them.
#pragma once

#include <cmath>

namespace belfry::unary_formulas {

struct Neg { template <class T> T operator()(T x) const { return static_cast<T>(-x); } };
struct Exp { template <class T> auto operator()(T x) const { return std::exp(x); } };
struct Log { template <class T> auto operator()(T x) const { return std::log(x); } };
struct Sqrt { template <class T> auto operator()(T x) const { return std::sqrt(x); } };
struct Square { template <class T> T operator()(T x) const { return static_cast<T>(x * x); } };
struct Relu { template <class T> T operator()(T x) const { return x > 0 ? x : x != x ? x : T{0}; } };
struct Tanh { template <class T> auto operator()(T x) const { return std::tanh(x); } };
struct Sigmoid {
  template <class T>
  auto operator()(T x) const { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
};

}  // namespace belfry::unary_formulas
