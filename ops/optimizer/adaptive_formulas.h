// Updates whose rate falls with the gradients that a weight has met.
#pragma once

#include <belfry/ops/optimizer/formula.h>

namespace belfry::optimizer_formulas {

/// √(x + epsilon) or √x + epsilon, without a choice per element.
template <class T>
struct Root {
  explicit Root(const Attributes& a) : inside(a.flag("epsilon_inside") ? real<T>(a, "epsilon") : 0), outside(a.flag("epsilon_inside") ? 0 : real<T>(a, "epsilon")) {}
  T operator()(T x) const { return std::sqrt(x + inside) + outside; }
  T inside, outside;
};

/// Slots: v, with `centered` the mean gradient, with `momentum` m.
template <class T, bool centered, bool momentum>
struct RmspropForm : Formula<T, 1 + centered + momentum> {
  explicit RmspropForm(const Attributes& a) : keep(real<T>(a, "rho")), fresh(rest<T>(a, "rho")), momentum_kept(momentum ? real<T>(a, "momentum") : 0), root(a) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    s[0] = keep * s[0] + fresh * (g * g);
    T spread = s[0];
    if constexpr (centered) {
      s[1] = keep * s[1] + fresh * g;
      spread = s[0] - s[1] * s[1];
      spread = spread < 0 ? T{0} : spread;  // by rounding alone
    }
    T step = *rate * g / root(spread);
    if constexpr (momentum) {
      constexpr int m = 1 + centered;
      s[m] = momentum_kept * s[m] + step;
      step = s[m];
    }
    return w - step;
  }
  T keep, fresh, momentum_kept;
  Root<T> root;
};
template <class T> using Rmsprop = RmspropForm<T, false, false>;
template <class T> using RmspropMomentum = RmspropForm<T, false, true>;
template <class T> using RmspropCentered = RmspropForm<T, true, false>;
template <class T> using RmspropCenteredMomentum = RmspropForm<T, true, true>;

template <class T>
struct Adagrad : Formula<T, 1> {
  explicit Adagrad(const Attributes& a) : root(a) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    s[0] = s[0] + g * g;
    return w - *rate * g / root(s[0]);
  }
  Root<T> root;
};

template <class T>
struct Adadelta : Formula<T, 2> {
  explicit Adadelta(const Attributes& a) : keep(real<T>(a, "rho")), fresh(rest<T>(a, "rho")), epsilon(real<T>(a, "epsilon")) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    s[0] = keep * s[0] + fresh * (g * g);
    T step = std::sqrt(s[1] + epsilon) * g / std::sqrt(s[0] + epsilon);
    s[1] = keep * s[1] + fresh * (step * step);
    return w - *rate * step;
  }
  T keep, fresh, epsilon;
};

/// `root`: the power of the rate is −1/2, whatever the attribute says.
template <class T, bool root>
struct FtrlForm : Formula<T, 2> {
  explicit FtrlForm(const Attributes& a)
      : exponent(-real<T>(a, "power")), l1(real<T>(a, "l1")), twice_l2(static_cast<T>(2 * a.real("l2"))), twice_shrinkage(static_cast<T>(2 * a.real("l2_shrinkage"))), beta(real<T>(a, "beta")) {}
  T power(T n) const {
    if constexpr (root) return std::sqrt(n);
    else return std::pow(n, exponent);
  }
  T operator()(T w, T g, const T* rate, T* s) const {
    T sum = s[0] + g * g, grown = power(sum), pull = g + twice_shrinkage * w;
    s[1] = s[1] + pull - (grown - power(s[0])) / *rate * w;
    s[0] = sum;
    T inner = s[1] < -l1 ? -l1 : s[1] > l1 ? l1 : s[1];
    return (inner - s[1]) / ((grown + beta) / *rate + twice_l2);
  }
  T exponent, l1, twice_l2, twice_shrinkage, beta;
};
template <class T> using FtrlRoot = FtrlForm<T, true>;
template <class T> using FtrlPower = FtrlForm<T, false>;

}  // namespace belfry::optimizer_formulas
