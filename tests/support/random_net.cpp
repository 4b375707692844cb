#include "random_net.h"

#include <functional>
#include <optional>
#include <random>

#include <fmt/format.h>

#include <belfry/frontends/nn/layers.h>

namespace belfry::test {

namespace {

constexpr std::int64_t kMostElements = 200;  // of one row

/// The values so far, and choices among them.
class Garden {
 public:
  Garden(Builder& b, DType dtype) : b(b), dtype(dtype) {
    add(b.input("x", dtype, {kBatch, 6}));
    add(b.input("image", dtype, {kBatch, 6, 6, 2}));
    add(b.input("word", i32, {kBatch}));
    add(b.input("label", i32, {kBatch}));
  }

  void reseed(std::uint64_t seed) { rng_.seed(seed); }
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }
  bool one_in(int n) { return pick(1, n) == 1; }
  bool add(Value v) {
    if (factor_of(v.shape()) > kMostElements) return false;
    values.push_back(v);
    return true;
  }

  /// A float value that the predicate takes; the newest are taken most often.
  Value any(const std::function<bool(Value)>& fits = [](Value) { return true; }) {
    std::vector<Value> out;
    for (Value v : values)
      if (v.dtype() == dtype && fits(v)) out.push_back(v);
    if (out.empty()) throw UserError("no value fits");
    auto last = static_cast<int>(out.size()) - 1;
    return out[static_cast<std::size_t>(std::max(pick(0, last), pick(0, last)))];
  }
  Value rows(int rank) {
    return any([&](Value v) { return v.rank() == rank && v.shape()[0] == Dim(kBatch); });
  }
  Value with_rows() {
    return any([&](Value v) { return v.rank() >= 2 && v.shape()[0] == Dim(kBatch); });
  }
  Value like(Value x) {
    return any([&](Value v) { return v.shape() == x.shape(); });
  }
  /// An axis that does not hold the rows.
  int axis(Value x) { return pick(1, x.rank() - 1); }
  std::int64_t size(Value x, int axis) const { return x.shape()[static_cast<std::size_t>(axis)].factor; }

  Builder& b;
  const DType dtype;
  std::vector<Value> values;

 private:
  std::mt19937_64 rng_;
};

Value small(Value x) { return tanh(x); }

struct Rule {
  const char* name;
  Value (*grow)(Garden&);
};

Value any_unary(Garden& g) {
  Value x = g.any();
  switch (g.pick(0, 17)) {
    case 0: return relu(x);
    case 1: return sigmoid(x);
    case 2: return exp(small(x));
    case 3: return sqrt(1.0 + square(small(x)));
    case 4: return abs(x);
    case 5: return softplus(x);
    case 6: return gelu(x);
    case 7: return elu(x);
    case 8: return leaky_relu(x);
    case 9: return sin(x);
    case 10: return log(1.5 + small(x));
    case 11: return silu(x);
    case 12: return relu6(3.0 * x);
    case 13: return -x;
    case 14: return 0.5 * x + 0.25;
    case 15: return clip(x, -0.75, 0.5);
    case 16: return erf(x);
    default: return tanh(x);
  }
}

Value any_binary(Garden& g) {
  Value x = g.any(), y = g.like(x);
  switch (g.pick(0, 8)) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return small(x) * small(y);
    case 3: return x / (1.0 + square(small(y)));
    case 4: return maximum(x, y);
    case 5: return minimum(x, y);
    case 6: return squared_difference(small(x), small(y));
    case 7: return where(greater(x, y), x, 0.5 * y);
    default: return add_n({x, y, x});
  }
}

Value any_reduction(Garden& g) {
  Value x = g.with_rows();
  const ReduceOptions o{.axes = {g.axis(x)}, .keep = g.one_in(2)};
  switch (g.pick(0, 4)) {
    case 0: return reduce_sum(small(x), o);
    case 1: return reduce_max(x, o);
    case 2: return reduce_min(x, o);
    case 3: return reduce_logsumexp(x, o);
    default: return reduce_mean(x, o);
  }
}

/// What all rows have in common goes back to each of them.
Value across_rows(Garden& g) {
  Value x = g.with_rows();
  const ReduceOptions rows{.axes = {0}, .keep = g.one_in(2)};
  switch (g.pick(0, 2)) {
    case 0: return x - reduce_mean(x, rows);
    case 1: return x / (1.0 + square(reduce_mean(small(x), rows)));
    default: return small(x) * reduce_max(small(x), rows);
  }
}

Value pairs_of_rows(Garden& g) {
  Value x = g.rows(2), y = g.one_in(2) ? x : g.like(x);
  Value scores = matmul(small(x), transpose(small(y), {1, 0}));  // (batch, batch)
  return g.one_in(2) ? reduce_mean(scores, {.axes = {1}, .keep = true}) : matmul(softmax(scores), x);
}

Value along_the_rows(Garden& g) {
  Value x = g.rows(2);
  switch (g.pick(0, 3)) {
    case 0: return reverse(small(x), {0});
    case 1: return cumsum(small(x), {.axis = 0, .exclusive = g.one_in(2), .reverse = g.one_in(2)});
    case 2: return slice(concat({x, g.like(x)}, 0), {g.pick(0, 1), 0}, x.shape(), {2, 1});
    default: return x - slice(small(x), {0, 0}, {1, x.shape()[1]});
  }
}

Value by_index(Garden& g) {
  Value x = g.rows(2), label = g.values[3];
  switch (g.pick(0, 2)) {
    case 0: return take_along_axis(x, cast(0.0 * x + static_cast<double>(g.pick(0, static_cast<int>(g.size(x, 1)) - 1)), i32), 1);
    case 1: return x + gather(unsorted_segment_sum(small(x), label, 5), label);
    default: {
      Value table = g.b.variable(fmt::format("table_{}", g.values.size()), {5, x.shape()[1]}, {.dtype = g.dtype, .init = "normal", .init_value = 0.4});
      return gather(scatter_add(table, label, small(x)), label);
    }
  }
}

Value heads(Garden& g) {
  Value x = reshape(nn::dense(g.rows(2), {.units = 12}), {kBatch, 2, 3, 2});
  return einsum("bqhk,bkhd->bqhd", {softmax(einsum("bqhd,bkhd->bqhk", {x, x})), x});
}

Value convolved(Garden& g) {
  Value x = g.rows(4);
  const std::int64_t kernel = g.pick(1, static_cast<int>(std::min<std::int64_t>(3, std::min(g.size(x, 1), g.size(x, 2)))));
  const Activation activation = g.one_in(2) ? Activation::relu : Activation::none;
  return nn::conv2d(x, {.filters = g.pick(1, 4), .kernel = kernel, .stride = g.pick(1, 2), .padding = g.one_in(2) ? "same" : "valid", .activation = activation, .bias = g.one_in(2)});
}

Value depthwise(Garden& g) {
  return nn::depthwise_conv2d(g.any([&](Value v) { return v.rank() == 4 && g.size(v, 1) > 2 && g.size(v, 2) > 2; }), {.kernel = g.pick(1, 3), .stride = g.pick(1, 2), .padding = g.one_in(2) ? "same" : "valid", .multiplier = g.pick(1, 2)});
}

Value pooled(Garden& g) {
  Value x = g.any([&](Value v) { return v.rank() == 4 && g.size(v, 1) > 1 && g.size(v, 2) > 1; });
  const std::string padding = g.one_in(2) ? "same" : "valid";
  return g.one_in(2) ? avg_pool2d(x, {.window = {2, 2}, .strides = {1, 1}, .padding = padding}) : max_pool2d(x, {.window = {2, 2}, .strides = {2, 2}, .padding = padding});
}

/// Values that agree but for one axis, side by side; or a part of one.
Value cut_or_joined(Garden& g) {
  Value x = g.with_rows();
  const int axis = g.axis(x);
  const auto a = static_cast<std::size_t>(axis);
  switch (g.pick(0, 4)) {
    case 0: return concat({x, g.like(x), x}, axis);
    case 1: return stack({x, g.like(x)}, g.pick(1, x.rank()));
    case 2: {
      const std::int64_t size = g.size(x, axis), begin = g.pick(0, static_cast<int>(size) - 1);
      Shape from(x.shape().size(), 0), count = x.shape();
      from[a] = begin;
      count[a] = g.pick(1, static_cast<int>(size - begin));
      return slice(x, from, count);
    }
    case 3: return reverse(x, {axis});
    default: {
      Integers before(x.shape().size(), 0), after(x.shape().size(), 0);
      before[a] = g.pick(0, 2);
      after[a] = g.pick(0, 1);
      return pad(x, {.before = before, .after = after, .mode = g.size(x, axis) > 2 && g.one_in(2) ? "reflect" : "constant"});
    }
  }
}

Value along_an_axis(Garden& g) {
  Value x = g.with_rows();
  const int axis = g.axis(x);
  switch (g.pick(0, 3)) {
    case 0: return cumsum(small(x), {.axis = axis, .exclusive = g.one_in(2), .reverse = g.one_in(2)});
    case 1: return top_k(x, g.pick(1, static_cast<int>(g.size(x, axis))), {.axis = axis, .largest = g.one_in(2)}).values;
    case 2: return gather(x, constant(g.b.graph(), HostTensor::of<std::int32_t>({2}, {0, static_cast<std::int32_t>(g.size(x, axis) - 1)})), axis);
    default: return layer_norm(x, {}, {}, {.axis = -1, .epsilon = 1e-2});
  }
}

Value attended(Garden& g) {
  Value x = g.rows(4);  // (batch, heads, places, size), or with the heads behind the places
  if (g.one_in(3)) return packed_attention(stack({small(x), small(g.like(x)), x}, 2), {}, {.causal = g.one_in(2)});
  return scaled_dot_product_attention(small(x), small(g.like(x)), x, {}, {.causal = g.one_in(2), .layout = g.one_in(2) ? "bthk" : "bhtk"});
}

Value any_penalty(Garden& g) {
  Value x = g.rows(2);
  switch (g.pick(0, 2)) {
    case 0: return mean(huber(x, stop_gradient(square(small(g.like(x)))), 0.5));
    case 1: return mean(mean_squared_error(small(x), stop_gradient(small(g.like(x)))));
    default: return mean(binary_cross_entropy(x, sigmoid(stop_gradient(g.like(x))), {.from_logits = true}));
  }
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"unary", any_unary},
      {"binary", any_binary},
      {"reduce", any_reduction},
      {"across rows", across_rows},
      {"pairs of rows", pairs_of_rows},
      {"dense", [](Garden& g) { return nn::dense(g.with_rows(), {.units = g.pick(1, 6), .activation = g.one_in(2) ? Activation::tanh : Activation::none, .bias = g.one_in(2)}); }},
      {"conv2d", convolved},
      {"depthwise_conv2d", depthwise},
      {"pool", pooled},
      {"cut or joined", cut_or_joined},
      {"along an axis", along_an_axis},
      {"attention", attended},
      {"local_response_norm", [](Garden& g) { return local_response_norm(small(g.rows(4)), {.depth_radius = g.pick(0, 2), .alpha = 0.3, .beta = 0.75}); }},
      {"resize", [](Garden& g) { return resize(g.rows(4), {g.pick(1, 5), g.pick(1, 5)}, {.method = g.one_in(2) ? "bilinear" : "nearest"}); }},
      {"highest class", [](Garden& g) { Value x = g.rows(2); return small(x) * stop_gradient(one_hot(argmax(x), g.size(x, 1), x.dtype())); }},
      {"softmax", [](Garden& g) { Value x = g.with_rows(); return softmax(x, g.axis(x)); }},
      {"flatten", [](Garden& g) { return flatten(g.with_rows()); }},
      {"transpose", [](Garden& g) { return transpose(g.rows(4), {0, 2, 1, 3}); }},
      {"move the rows", [](Garden& g) { return transpose(square(small(transpose(g.rows(2), {1, 0}))), {1, 0}); }},
      {"batch_norm", [](Garden& g) { return nn::batch_norm(g.with_rows(), {.sync = true}); }},
      {"embedding", [](Garden& g) { return nn::embedding(g.values[2], {.rows = 11, .size = g.pick(1, 6)}); }},
      {"dropout", [](Garden& g) { return nn::dropout(g.with_rows(), {.rate = g.pick(0, 8) / 10.0}); }},
      {"one_hot", [](Garden& g) { Value x = nn::dense(g.rows(2), {.units = 5}); return small(x) * one_hot(g.values[3], 5, x.dtype()) + x; }},
      {"along the rows", along_the_rows},
      {"by index", by_index},
      {"heads", heads},
      {"tile", [](Garden& g) { return tile(g.rows(2), {1, g.pick(1, 3)}); }},
      {"l2_normalize", [](Garden& g) { Value x = g.rows(2); return l2_normalize(x, {1}, 1e-3); }},
      {"tied", [](Garden& g) {
         Value w = g.b.variable(fmt::format("tied_{}", g.values.size()), {6, 6}, {.dtype = g.dtype, .init = "normal", .init_value = 0.4});
         return matmul(small(matmul(g.values[0], w)), transpose(w, {1, 0}));
       }},
      {"bias", [](Garden& g) {
         Value x = g.any([](Value v) { return v.rank() > 0; });
         return x.shape().back().symbolic() ? 2.0 * small(x) : x * g.b.variable(fmt::format("scale_{}", g.values.size()), {x.shape().back()}, {.dtype = g.dtype, .init = "uniform", .init_value = 1});
       }},
  };
  return all;
}

Value any_loss(Garden& g) {
  switch (g.pick(0, 4)) {
    case 4: return any_penalty(g);
    case 0: {
      Value x = g.rows(2);
      return mean(sparse_softmax_cross_entropy(nn::dense(small(x), {.units = 5}), g.values[3]));
    }
    case 1: return mean(square(small(g.any())));
    case 2: return 0.1 * reduce_sum(square(small(g.any([](Value v) { return v.rank() && v.shape()[0] == Dim(kBatch); }))), {}) / row_count(g.b.graph(), {kBatch}, g.dtype);
    default: return mean(small(g.with_rows()));
  }
}

constexpr NodeId kMostNodes = 60;

}  // namespace

NetRecipe random_recipe(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  NetRecipe out{seed, {}};
  for (int i = 0, n = std::uniform_int_distribution<int>(0, 10)(rng); i < n; ++i) out.steps.push_back({static_cast<int>(rng() % rules().size()), rng()});
  while (!out.steps.empty() && grown(out, f32).size() > kMostNodes) out.steps.pop_back();
  return out;
}

Graph grown(const NetRecipe& recipe, DType dtype) {
  Builder b(fmt::format("random_net_{}", recipe.seed));
  Garden g(b, dtype);
  auto grow = [&](const NetStep& step) {
    g.reseed(step.seed);
    try {
      g.add(rules()[static_cast<std::size_t>(step.rule)].grow(g));
    } catch (const UserError&) {
      // What does not fit is not added.
    }
  };
  for (const NetStep& s : recipe.steps) grow(s);
  // The end has choices of its own, which the steps before do not move.
  g.reseed(recipe.seed + 1);
  g.add(nn::dense(g.values[0], {.units = 3, .name = "last"}));
  Value newest = g.values.back();
  for (int i = 0, n = g.pick(0, 2); i < n; ++i) g.b.metric(fmt::format("metric_{}", i), g.any());
  Value loss = any_loss(g) + mean(square(small(newest)));
  if (g.one_in(2))
    for (Value v : {g.any(), g.any()}) loss = loss + 0.5 * mean(small(v));
  loss = identity(loss, "loss");
  switch (g.pick(0, 4)) {
    case 3: b.minimize(loss, Rmsprop{.learning_rate = 0.01}, {.clip_each_norm = 1}); break;
    case 4: b.minimize(loss, Adagrad{.learning_rate = 0.1}, {.average_decay = 0.9}); break;
    case 0: b.minimize(loss, Sgd{.learning_rate = 0.1}, {.clip_norm = g.one_in(3) ? 0.5 : 0}); break;
    case 1: b.minimize(loss, Momentum{.learning_rate = 0.1, .nesterov = g.one_in(2)}); break;
    default: b.minimize(loss, Adam{.learning_rate = 0.01});
  }
  return std::move(b).build();
}

std::string to_string(const NetRecipe& recipe) {
  std::string out;
  for (const NetStep& s : recipe.steps) out += (out.empty() ? "" : ", ") + std::string(rules()[static_cast<std::size_t>(s.rule)].name);
  return fmt::format("seed {}: {}", recipe.seed, out);
}

}  // namespace belfry::test
