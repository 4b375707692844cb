// The formulas of the unary ops and of gradients that need two operands, one element at a time: references and kernels share them.
#pragma once

#include <cmath>
#include <concepts>

#include <belfry/graph/attributes.h>

namespace belfry::unary_formulas {

struct Neg { template <class T> T operator()(T x) const { return static_cast<T>(-x); } };
struct Exp { template <class T> auto operator()(T x) const { return std::exp(x); } };
struct Log { template <class T> auto operator()(T x) const { return std::log(x); } };
struct Log1p { template <class T> auto operator()(T x) const { return std::log1p(x); } };
struct Sqrt { template <class T> auto operator()(T x) const { return std::sqrt(x); } };
struct Rsqrt { template <class T> auto operator()(T x) const { return 1 / std::sqrt(x); } };
struct Reciprocal { template <class T> T operator()(T x) const { return 1 / x; } };
struct Square { template <class T> T operator()(T x) const { return static_cast<T>(x * x); } };
struct Abs { template <class T> T operator()(T x) const { return std::abs(x); } };
struct Sign { template <class T> T operator()(T x) const { return x > 0 ? T{1} : x < 0 ? T{-1} : x; } };
struct Floor { template <class T> auto operator()(T x) const { return std::floor(x); } };
struct Ceil { template <class T> auto operator()(T x) const { return std::ceil(x); } };
struct Round { template <class T> auto operator()(T x) const { return std::rint(x); } };  // half to even: the rounding mode is never changed
struct Sin { template <class T> auto operator()(T x) const { return std::sin(x); } };
struct Cos { template <class T> auto operator()(T x) const { return std::cos(x); } };
struct Erf { template <class T> auto operator()(T x) const { return std::erf(x); } };
struct Tanh { template <class T> auto operator()(T x) const { return std::tanh(x); } };
struct Sigmoid {
  template <class T>
  auto operator()(T x) const { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
};
/// exp is taken of what is not positive: no overflow.
struct Softplus { template <class T> T operator()(T x) const { return (x > 0 ? x : T{0}) + std::log1p(std::exp(-std::abs(x))); } };
struct Silu { template <class T> T operator()(T x) const { return x * Sigmoid{}(x); } };
/// Past ±64 the tails of gelu are 0 in f64: a factor of no more makes no NaN of an infinity.
template <class T>
T in_reach(T x) { return x < T(-64) ? T(-64) : x > T(64) ? T(64) : x; }
/// By erfc: of a large negative x, 1 + erf would keep no digit.
struct Gelu { template <class T> T operator()(T x) const { return T(0.5) * (x < T(-64) ? T(-64) : x) * std::erfc(x * T(-0.70710678118654752440)); } };
/// (1 + tanh u) / 2 is sigmoid(2u), for the same reason.
struct GeluTanh { template <class T> T operator()(T x) const { return (x < T(-64) ? T(-64) : x) * Sigmoid{}(T(1.59576912160573071176) * (x + T(0.044715) * x * x * x)); } };
struct Relu { template <class T> T operator()(T x) const { return x > 0 ? x : x != x ? x : T{0}; } };
struct Relu6 { template <class T> T operator()(T x) const { return x < 0 ? T{0} : x > 6 ? T{6} : x; } };
struct LeakyRelu {
  double slope = 0;
  static LeakyRelu of(const Attributes& a) { return {a.real("slope")}; }
  template <class T>
  T operator()(T x) const { return x > 0 ? x : static_cast<T>(slope) * x; }
};
struct Elu {
  double alpha = 0;
  static Elu of(const Attributes& a) { return {a.real("alpha")}; }
  template <class T>
  T operator()(T x) const { return x < 0 ? static_cast<T>(alpha) * std::expm1(x) : x; }
};
struct Clip {
  double min = 0, max = 0;
  static Clip of(const Attributes& a) { return {a.real("min"), a.real("max")}; }
  template <class T>
  T operator()(T x) const { return x < static_cast<T>(min) ? static_cast<T>(min) : x > static_cast<T>(max) ? static_cast<T>(max) : x; }
};

/// dx from dy and v, which is x or y as the op says.
struct ReluGradient { template <class T> T operator()(T dy, T v) const { return v > 0 ? dy : T{0}; } };
struct Relu6Gradient { template <class T> T operator()(T dy, T v) const { return v > 0 && v < 6 ? dy : T{0}; } };
struct LeakyReluGradient {
  double slope = 0;
  static LeakyReluGradient of(const Attributes& a) { return {a.real("slope")}; }
  template <class T>
  T operator()(T dy, T v) const { return v > 0 ? dy : static_cast<T>(slope) * dy; }
};
struct EluGradient {
  double alpha = 0;
  static EluGradient of(const Attributes& a) { return {a.real("alpha")}; }
  template <class T>
  T operator()(T dy, T v) const { return v < 0 ? dy * (v + static_cast<T>(alpha)) : dy; }
};
/// Φ(x) + x·φ(x), of the normal distribution.
struct GeluGradient { template <class T> T operator()(T dy, T v) const { return dy * (T(0.5) * std::erfc(v * T(-0.70710678118654752440)) + in_reach(v) * std::exp(T(-0.5) * v * v) * T(0.39894228040143267794)); } };
struct ClipGradient {
  double min = 0, max = 0;
  static ClipGradient of(const Attributes& a) { return {a.real("min"), a.real("max")}; }
  template <class T>
  T operator()(T dy, T v) const { return v >= static_cast<T>(min) && v <= static_cast<T>(max) ? dy : T{0}; }
};

/// The formula with what the node's attributes say.
template <class Op>
Op formula_of(const Attributes& a) {
  if constexpr (requires { { Op::of(a) } -> std::same_as<Op>; }) return Op::of(a);
  else return Op{};
}

}  // namespace belfry::unary_formulas
