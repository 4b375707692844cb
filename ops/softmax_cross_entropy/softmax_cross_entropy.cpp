#include <belfry/ops/softmax_cross_entropy/formulas.h>
#include <belfry/ops/softmax_cross_entropy/softmax_cross_entropy.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

Shape per_example(const Shape& logits) { return {logits.begin(), logits.end() - 1}; }

/// Per example: log-probabilities in double, then loss(row, log_p).
template <class T, class Loss>
void for_each_example(const Call& c, Loss loss) {
  auto x = c.inputs[0].as<T>();
  std::size_t classes = static_cast<std::size_t>(c.inputs[0].type.shape.back());
  std::vector<double> log_p(classes);
  for (std::size_t row = 0; row * classes < x.size(); ++row) {
    const T* z = x.data() + row * classes;
    double top = static_cast<double>(*std::max_element(z, z + classes)), sum = 0;
    for (std::size_t k = 0; k < classes; ++k) sum += std::exp(static_cast<double>(z[k]) - top);
    for (std::size_t k = 0; k < classes; ++k) log_p[k] = static_cast<double>(z[k]) - top - std::log(sum);
    c.outputs[0].as<T>()[row] = static_cast<T>(loss(row, log_p));
    if (c.outputs[1].data)
      for (std::size_t k = 0; k < classes; ++k) c.outputs[1].as<T>()[row * classes + k] = static_cast<T>(log_p[k]);
  }
}

void dense_reference(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    auto label = c.inputs[1].as<T>();
    for_each_example<T>(c, [&](std::size_t row, const std::vector<double>& log_p) {
      double loss = 0;
      for (std::size_t k = 0; k < log_p.size(); ++k)
        if (double p = static_cast<double>(label[row * log_p.size() + k]); p != 0) loss -= p * log_p[k];
      return loss;
    });
  });
}

void sparse_reference(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    visit_dtype(c.inputs[1].type.dtype, [&]<class I>() {
      auto label = c.inputs[1].as<I>();
      for_each_example<T>(c, [&](std::size_t row, const std::vector<double>& log_p) {
        auto k = static_cast<std::int64_t>(label[row]);
        if (k < 0 || k >= static_cast<std::int64_t>(log_p.size()))
          throw UserError(fmt::format("[sparse_softmax_cross_entropy] label {} of row {} is no class; classes are 0 to {}", k, global_example(static_cast<std::int64_t>(row), static_cast<std::int64_t>(label.size()), c.output_types[0], c.share), log_p.size() - 1));
        return -log_p[static_cast<std::size_t>(k)];
      });
    });
  });
}

/// Rows of the logits stay, unless they are the classes; the label follows by the same axis.
Split split(const SplitContext& c) {
  int last = static_cast<int>(c.inputs[0].shape.size()) - 1;
  SplitState s = c.states[0].is_partial() ? kReplicated : c.states[0];
  if (!s.is_rows() && c.states[1].is_rows() && c.states[1].axis < last && c.inputs[0].shape[static_cast<std::size_t>(c.states[1].axis)].symbolic()) s = rows(c.states[1].axis);
  if (s == rows(last)) {
    s = kReplicated;
    for (int other : symbolic_axes(c.inputs[0].shape))
      if (other != last && !s.is_rows()) s = rows(other);
  }
  SplitState label = s.is_rows() ? s : c.states[1].is_per_tower() ? kPerTower : kReplicated;
  SplitState out = label.is_per_tower() ? kPerTower : s;
  return {{s, label}, {out, out}};
}

/// x·v with v stretched over the classes.
Value times(Value x, Value v) {
  Shape wide = v.shape();
  wide.push_back(1);
  return x * reshape(v, wide);
}

OpDef def(const char* name, InferRule infer, ReferenceRule reference, GradientRule gradient) {
  return {.name = name,
          .inputs = {"logits", "label"},
          .outputs = {"loss", optional_output("log_probability")},
          .infer = std::move(infer),
          .reference = std::move(reference),
          .gradient = std::move(gradient),
          .split = split,
          .flops = [](auto in, auto, const Attributes&) { return 6.0 * static_cast<double>(in[0].elements()); }};
}

void check_logits(InferContext& c) {
  c.need_float(0);
  if (c.rank(0) < 1) c.fail("logits need an axis of classes");
  if (c.shape(0).back() == Dim(0)) c.fail("logits need a class at least");
}

}  // namespace

std::vector<OpDef> softmax_cross_entropy_defs() {
  std::vector<OpDef> out;
  out.push_back(def(
      "softmax_cross_entropy",
      [](InferContext& c) {
        check_logits(c);
        if (c.type(1) != c.type(0)) c.fail("logits and label must have one type; for class indices there is sparse_softmax_cross_entropy");
        return std::vector<TensorType>{{c.dtype(0), per_example(c.shape(0))}, c.type(0)};
      },
      dense_reference,
      [](GradientContext& g) {  // dlogits = (softmax·Σ label − label)·dloss
        Value label = g.input(1), log_p = g.output(1), dy = g.output_gradient();
        Value p = exp(log_p) * reduce_sum(label, {.axes = {-1}, .keep = true});
        return std::vector<Value>{times(p - label, dy), -times(log_p, dy)};
      }));
  out.push_back(def(
      "sparse_softmax_cross_entropy",
      [](InferContext& c) {
        check_logits(c);
        c.need_integer(1);
        if (c.shape(1) != per_example(c.shape(0))) c.fail("label must have the shape " + to_string(std::span<const Dim>(per_example(c.shape(0)))));
        return std::vector<TensorType>{{c.dtype(0), per_example(c.shape(0))}, c.type(0)};
      },
      sparse_reference,
      [](GradientContext& g) {  // dlogits = (softmax − one_hot)·dloss
        Value hot = one_hot(g.input(1), g.input(0).shape().back(), g.input(0).dtype());
        return std::vector<Value>{times(exp(g.output(1)) - hot, g.output_gradient()), {}};
      }));
  return out;
}

Value softmax_cross_entropy(Value logits, Value label, SourceLine at) { return emit("softmax_cross_entropy", {logits, label}, {}, at); }
Value sparse_softmax_cross_entropy(Value logits, Value label, SourceLine at) { return emit("sparse_softmax_cross_entropy", {logits, label}, {}, at); }

}  // namespace belfry
