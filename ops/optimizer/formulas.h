// The formulas of the updates, one element at a time: references and kernels share them.
#pragma once

#include <cmath>

#include <belfry/graph/attributes.h>

namespace belfry::optimizer_formulas {

/// Each gives w' of w, its gradient g and the scalars (the rate first), and changes the slots s in place.
template <class T, int slots, int scalars = 1>
struct Formula {
  using Real = T;
  static constexpr int kSlots = slots, kScalars = scalars;
};

template <class T>
T real(const Attributes& a, const char* name) { return static_cast<T>(a.real(name)); }
/// 1 − x, rounded once.
template <class T>
T rest(const Attributes& a, const char* name) { return static_cast<T>(1 - a.real(name)); }

/// √(x + epsilon) or √x + epsilon, without a choice per element.
template <class T>
struct Root {
  explicit Root(const Attributes& a) : inside(a.flag("epsilon_inside") ? real<T>(a, "epsilon") : 0), outside(a.flag("epsilon_inside") ? 0 : real<T>(a, "epsilon")) {}
  T operator()(T x) const { return std::sqrt(x + inside) + outside; }
  T inside, outside;
};

template <class T>
struct Sgd : Formula<T, 0> {
  explicit Sgd(const Attributes&) {}
  T operator()(T w, T g, const T* rate, T*) const { return w - *rate * g; }
};

template <class T>
struct Momentum : Formula<T, 1> {
  explicit Momentum(const Attributes& a) : keep(real<T>(a, "momentum")), nesterov(a.flag("nesterov")) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    s[0] = keep * s[0] + g;
    return w - *rate * (nesterov ? g + keep * s[0] : s[0]);
  }
  T keep;
  bool nesterov;
};

/// m and v, and what is divided by the root of v.
template <class T>
struct Moments {
  explicit Moments(const Attributes& a) : new1(rest<T>(a, "beta1")), new2(rest<T>(a, "beta2")), epsilon(real<T>(a, "epsilon")) {}
  void move(T g, T* s) const {
    s[0] = s[0] + (g - s[0]) * new1;
    s[1] = s[1] + (g * g - s[1]) * new2;
  }
  T new1, new2, epsilon;
};

template <class T>
struct Adam : Formula<T, 2>, Moments<T> {
  explicit Adam(const Attributes& a) : Moments<T>(a) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    this->move(g, s);
    return w - *rate * s[0] / (std::sqrt(s[1]) + this->epsilon);
  }
};

template <class T>
struct Amsgrad : Formula<T, 3>, Moments<T> {
  explicit Amsgrad(const Attributes& a) : Moments<T>(a) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    this->move(g, s);
    s[2] = s[2] > s[1] ? s[2] : s[1];
    return w - *rate * s[0] / (std::sqrt(s[2]) + this->epsilon);
  }
};

template <class T>
struct Adamax : Formula<T, 2> {
  explicit Adamax(const Attributes& a) : new1(rest<T>(a, "beta1")), keep2(real<T>(a, "beta2")), epsilon(real<T>(a, "epsilon")) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    T size = std::abs(g), kept = keep2 * s[1];
    s[0] = s[0] + (g - s[0]) * new1;
    s[1] = kept > size ? kept : size;
    return w - *rate * s[0] / (s[1] + epsilon);
  }
  T new1, keep2, epsilon;
};

/// The direction instead of w'. Scalars: the correction of m by that of √v, and the latter.
template <class T>
struct Lamb : Formula<T, 2, 2>, Moments<T> {
  explicit Lamb(const Attributes& a) : Moments<T>(a), decay(real<T>(a, "weight_decay")) {}
  T operator()(T w, T g, const T* scalars, T* s) const {
    this->move(g, s);
    return scalars[0] * s[0] / (std::sqrt(s[1]) + this->epsilon * scalars[1]) + decay * w;
  }
  T decay;
};

template <class T>
struct Lion : Formula<T, 1> {
  explicit Lion(const Attributes& a) : keep1(real<T>(a, "beta1")), new1(rest<T>(a, "beta1")), keep2(real<T>(a, "beta2")), new2(rest<T>(a, "beta2")) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    T mixed = s[0] * keep1 + g * new1, sign = mixed > 0 ? T{1} : mixed < 0 ? T{-1} : mixed;
    s[0] = s[0] * keep2 + g * new2;
    return w - *rate * sign;
  }
  T keep1, new1, keep2, new2;
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

/// w is the average, g the new value.
template <class T>
struct MovingAverage : Formula<T, 0> {
  explicit MovingAverage(const Attributes&) {}
  T operator()(T w, T g, const T* weight, T*) const { return w - *weight * (w - g); }
};

}  // namespace belfry::optimizer_formulas
