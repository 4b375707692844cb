#include "random_graph.h"

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

namespace belfry::test {

namespace {

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : rng_(seed), b_("random-" + std::to_string(seed)) {}

  Graph make() {
    if (one_in(4)) b_.graph().row_symbol = "rows";
    for (int i = 0, n = pick(1, 3); i < n; ++i) values_.push_back(source());
    for (int i = 0, n = pick(5, 50); i < n; ++i) {
      std::optional<CursorGuard> scope, device;
      if (one_in(3)) scope.emplace(b_.scope("s" + std::to_string(pick(0, 3))));
      if (one_in(5)) device.emplace(b_.device(one_in(2) ? "cpu:0" : "/host:1/gpu:2/1"));
      grow();
    }
    decorate();
    return std::move(b_).build();
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }
  bool one_in(int n) { return pick(1, n) == 1; }
  Value any() { return values_[static_cast<std::size_t>(pick(0, static_cast<int>(values_.size()) - 1))]; }
  Value any_float() {
    for (int i = 0; i < 20; ++i)
      if (Value v = any(); is_float(v.dtype())) return v;
    return values_[0];
  }
  Dim rows() { return {pick(1, 2), b_.graph().row_symbol}; }
  std::string fresh(const char* stem) { return stem + std::to_string(count_++); }
  double odd_real() {
    switch (pick(0, 5)) {
      case 0: return INFINITY;
      case 1: return -0.0;
      case 2: return std::ldexp(static_cast<double>(rng_()), pick(-1100, 900));
      case 3: return static_cast<double>(static_cast<float>(rng_()) * 1e-19f);
      case 4: return NAN;
      default: return pick(-9, 9) / 8.0;
    }
  }

  Value source() {
    DType t = one_in(2) ? f32 : f64;
    if (one_in(2)) return b_.input(fresh("x"), t, {rows(), pick(1, 5), pick(1, 4)});
    const bool drawn = one_in(2), zero = one_in(2);
    return b_.variable(fresh("w"), {pick(1, 5), pick(1, 4)}, {.dtype = t, .init = drawn ? "normal" : "zeros", .init_value = !zero ? pick(1, 99) / 7.0 : drawn ? 0.5 : 0, .trainable = !one_in(3)});
  }

  Value tensor() {
    DType t = kAllDTypes[pick(0, 5)];
    Extents shape;
    for (int i = 0, n = pick(0, 2); i < n; ++i) shape.push_back(one_in(12) ? 0 : pick(1, 9));
    HostTensor out(t, shape);
    visit_dtype(t, [&]<class T>() {
      for (T& x : out.data<T>()) {
        if constexpr (std::is_same_v<T, bool>) x = one_in(2);
        else if constexpr (std::is_floating_point_v<T>) x = static_cast<T>(odd_real());
        else x = one_in(4) ? std::numeric_limits<T>::min() : static_cast<T>(rng_());
      }
    });
    return constant(b_.graph(), out);
  }

  void grow() {
    static const std::vector<Value (*)(Maker&)> kRules = {
        [](Maker& m) { return m.source(); },
        [](Maker& m) { return m.tensor(); },
        [](Maker& m) { Value x = m.any_float(); return x + x; },
        [](Maker& m) { return m.any_float() * (m.pick(1, 9) / 4.0); },
        [](Maker& m) { Value x = m.any_float(); return maximum(x, square(x)); },
        [](Maker& m) { return relu(m.any_float()); },
        [](Maker& m) { return tanh(m.any_float()); },
        [](Maker& m) { Value x = m.any(); return x.rank() ? reduce_max(cast(x, f32), {.axes = {m.pick(-x.rank(), x.rank() - 1)}, .keep = m.one_in(2)}) : identity(x); },
        [](Maker& m) { return reduce_sum(m.any_float(), {.keep = m.one_in(2)}); },
        [](Maker& m) { return cast(m.any(), kAllDTypes[m.pick(0, 5)]); },
        [](Maker& m) { return identity(m.any(), m.fresh("named-")); },
        [](Maker& m) { Value x = m.any_float(); return x.rank() ? softmax(x, m.pick(0, x.rank() - 1)) : x - 1.0; },
        [](Maker& m) { Value x = m.any_float(); return x.rank() ? argmax(x, -1) : one_hot(cast(x, i32), 4, f64); },
        [](Maker& m) {
          Value x = m.any_float();
          return x.rank() && !x.shape().back().symbolic() ? matmul(x, m.b_.variable(m.fresh("k"), {x.shape().back(), m.pick(1, 6)}, {.dtype = x.dtype()})) : exp(x);
        },
        [](Maker& m) {
          Value x = m.any();
          Integers order;
          for (int i = x.rank(); i-- > 0;) order.push_back(i);
          return transpose(x, order);
        },
        [](Maker& m) { Value x = m.any_float(); return add_n({x, x, x}); },
        [](Maker& m) { Value x = m.any(); return reshape(x, x.shape()); },
        [](Maker& m) { return dropout(m.any_float(), seed_of(m.b_.graph()), step_of(m.b_.graph()), m.pick(0, 9) / 10.0); },
        [](Maker& m) { return random_normal(seed_of(m.b_.graph()), step_of(m.b_.graph()), {m.rows(), 3}, {.low = m.pick(0, 9) / 3.0, .dtype = m.one_in(2) ? f32 : f64}); },
        [](Maker& m) { Value x = m.any_float(); return where(greater_equal(x, x), x, neg(x)); },
        [](Maker& m) { return row_count(m.b_.graph(), {m.rows(), 3}, f64); },
        [](Maker& m) { Value x = m.any_float(); return x.rank() && !x.shape().back().symbolic() ? gather(x, cast(m.any_float(), i32)) : sigmoid(x); },
        [](Maker& m) { Value x = m.any_float(); return x.rank() ? softmax_cross_entropy(x, x).output(m.pick(0, 1)) : mean(x); },
    };
    try {
      values_.push_back(kRules[static_cast<std::size_t>(pick(0, static_cast<int>(kRules.size()) - 1))](*this));
    } catch (const UserError&) {
      // What does not fit is not added.
    }
  }

  void decorate() {
    Graph& g = b_.graph();
    for (int i = 0, n = pick(0, 3); i < n; ++i) b_.output(any());
    for (int i = 0, n = pick(0, 3); i < n; ++i) b_.metric("a metric \"" + std::to_string(i) + "\"\t\xC3\xA9", any());
    for (NodeId w : g.variables())
      if (one_in(3)) g.updates[w] = (one_in(2) ? g.value({w, 0}) : identity(g.value({w, 0}), fresh("next"))).id;
    for (NodeId id = 0; id < g.size(); ++id) {
      if (one_in(4)) g.edit(id).of = pick(0, g.size() - 1);
      if (one_in(4)) g.edit(id).role = one_in(2) ? Role::backward : Role::update;
    }
    if (one_in(4)) g.aliases["an_old_name"] = any().id;
    Value loss = reduce_sum(any_float());
    if (one_in(3)) g.losses = {loss.id};
    else if (one_in(2)) b_.minimize(loss, Adam{.learning_rate = one_in(2) ? Rate(constant(g, HostTensor::scalar(0.5))) : Rate(pick(1, 9) / 1000.0)});
    else b_.minimize(loss, Momentum{.nesterov = one_in(2)});
  }

  std::mt19937_64 rng_;
  Builder b_;
  std::vector<Value> values_;
  int count_ = 0;
};

}  // namespace

Graph random_graph(std::uint64_t seed) { return Maker(seed).make(); }

}  // namespace belfry::test
