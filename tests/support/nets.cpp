#include "nets.h"

#include <belfry/frontends/nn/attention.h>
#include <belfry/frontends/nn/layers.h>
#include <belfry/frontends/nn/norms.h>

namespace belfry::test {

namespace {

Value variable_(Builder& b, DType t, const std::string& name, Shape shape, const char* init = "normal") {
  return b.variable(name, std::move(shape), {.dtype = t, .init = init, .init_value = 0.7});
}

/// Any leading axes: layers never flatten the batch.
Value dense(Builder& b, Value x, const std::string& name, std::int64_t out) {
  Value w = variable_(b, x.dtype(), name + "/w", {x.shape().back(), out});
  return matmul(x, w) + variable_(b, x.dtype(), name + "/b", {out});
}

Value classify(Value logits, Value label) { return reduce_mean(sparse_softmax_cross_entropy(logits, label)); }
Value label_(Builder& b) { return b.input("label", i32, {kBatch}); }
void fetch(Builder& b, const std::string& name, Value v) { b.metric(name, v); }
void minimize(Builder& b, Value loss, double clip = 0) { b.minimize(loss, Momentum{.learning_rate = 0.1}, {.clip_norm = clip}); }

void decay(Builder& b, DType t) {
  Value x = b.input("image", t, {kBatch, 6, 6, 2}), label = label_(b);
  Value w = variable_(b, t, "conv/w", {2, 4});
  Value h = relu(contract("bhwi,io->bhwo", x, w) + variable_(b, t, "conv/b", {4}));
  Value loss = classify(dense(b, reshape(h, {kBatch, 144}), "fc", 5), label);
  fetch(b, "h", h);
  fetch(b, "loss", loss);
  minimize(b, loss);
  minimize(b, reduce_sum(square(w)) * 0.01);
}

Value normalised(Builder& b, Value x, bool sync) {
  Dim c = x.shape().back();
  DType t = x.dtype();
  auto running = [&](const char* name) { return b.variable(name, {c}, {.dtype = t, .init = "ones", .trainable = false}); };
  Value mean = running("bn/running_mean"), variance = running("bn/running_variance");
  Value y = batch_norm(x, variable_(b, t, "bn/gamma", {c}, "ones"), variable_(b, t, "bn/beta", {c}), mean, variance, {.sync = sync});
  b.update(mean, mean * 0.9 + tower_mean(y.output(1)) * 0.1);
  b.update(variance, variance * 0.9 + tower_mean(y.output(2)) * 0.1);
  return y;
}

auto batch_norm_net(bool sync) {
  return [sync](Builder& b, DType t) {
    Value y = normalised(b, dense(b, b.input("x", t, {kBatch, 4, 3}), "in", 6), sync);
    Value loss = classify(dense(b, reduce_mean(relu(y), {.axes = {1}}), "out", 5), label_(b));
    fetch(b, "normalised", y);
    fetch(b, "loss", loss);
    minimize(b, loss);
  };
}

void embedding(Builder& b, DType t) {
  Value table = variable_(b, t, "table", {11, 6});
  Value e = gather(table, b.input("ids", i32, {kBatch, 3}));
  Value loss = classify(dense(b, reduce_mean(e, {.axes = {1}}), "out", 5), label_(b));
  fetch(b, "rows", e);
  fetch(b, "loss", loss);
  minimize(b, loss, 0.1);
  minimize(b, reduce_sum(square(table)) * 0.01, 0.1);
}

void attention(Builder& b, DType t) {
  const int s = 4, h = 2, d = 3;
  Value x = b.input("x", t, {kBatch, s, h * d});
  auto heads = [&](const char* name, Integers order, Shape shape) {
    return reshape(transpose(reshape(dense(b, x, name, h * d), {kBatch, s, h, d}), std::move(order)), std::move(shape));
  };
  Value q = heads("q", {0, 2, 1, 3}, {2 * kBatch, s, d}), k = heads("k", {0, 2, 3, 1}, {2 * kBatch, d, s}), v = heads("v", {0, 2, 1, 3}, {2 * kBatch, s, d});
  Value p = softmax(matmul(q, k) * (1 / std::sqrt(3.0)));
  p = dropout(p, b.seed(), b.step(), 0.2, "attention_drop");
  Value o = transpose(reshape(matmul(p, v), {kBatch, h, s, d}), {0, 2, 1, 3});
  Value loss = classify(dense(b, reshape(o, {kBatch, s * h * d}), "out", 5), label_(b));
  fetch(b, "scores", p);
  fetch(b, "loss", loss);
  minimize(b, loss);
}

void contrastive(Builder& b, DType t) {
  Value one = dense(b, b.input("x", t, {kBatch, 4}), "a", 3), two = dense(b, b.input("y", t, {kBatch, 5}), "b", 3);
  Value logits = contract("id,jd->ij", one, two) * variable_(b, t, "temperature", {});
  Value loss = classify(logits, b.input("row", i32, {kBatch}));
  fetch(b, "logits", logits);
  fetch(b, "loss", loss);
  minimize(b, loss);
}

void weighted_mean(Builder& b, DType t) {
  Value w = b.input("weight", t, {kBatch});
  Value ce = sparse_softmax_cross_entropy(dense(b, b.input("x", t, {kBatch, 4}), "out", 5), label_(b));
  Value num = reduce_sum(ce * w), den = reduce_sum(w), loss = num / den;
  fetch(b, "numerator", num);
  fetch(b, "denominator", den);
  fetch(b, "loss", loss);
  minimize(b, loss);
}

void accuracy(Builder& b, DType t) {
  Value label = label_(b);
  Value logits = dense(b, relu(dense(b, b.input("x", t, {kBatch, 4}), "in", 6)), "out", 5);
  Value loss = classify(logits, label);
  fetch(b, "logits", logits);
  fetch(b, "loss", loss);
  fetch(b, "perplexity", exp(loss));
  fetch(b, "thrice", loss * 3);
  fetch(b, "accuracy", reduce_mean(cast(equal(argmax(logits), label), t)));
  minimize(b, loss);
}

void tied(Builder& b, DType t) {
  Value table = variable_(b, t, "table", {11, 6});
  Value h = reduce_mean(gather(table, b.input("ids", i32, {kBatch, 3})), {.axes = {1}});
  Value first = classify(contract("bd,vd->bv", h, table), b.input("word", i32, {kBatch}));
  Value e = dense(b, h, "head", 2) - b.input("target", t, {kBatch, 2});
  Value second = reduce_mean(e * e);
  Value total = add_n({first, reduce_sum(table * table) * 0.01, second * 0.5});
  fetch(b, "hidden", h);
  fetch(b, "first", first);
  fetch(b, "second", second);
  fetch(b, "loss", total);
  minimize(b, total);
}

void dropout_net(Builder& b, DType t) {
  Value h = dropout(relu(dense(b, b.input("x", t, {kBatch, 4}), "in", 8)), b.seed(), b.step(), 0.5, "drop");
  Value loss = classify(dense(b, h, "out", 5), label_(b));
  fetch(b, "dropped", h);
  fetch(b, "loss", loss);
  minimize(b, loss);
}

void two_heads(Builder& b, DType t) {
  Value h = relu(dense(b, b.input("x", t, {kBatch, 4}), "in", 8));
  Value one, two;
  {
    auto on = b.device("cpu:0");
    one = classify(dense(b, h, "first", 5), label_(b));
  }
  {
    auto on = b.device("cpu:1");
    two = classify(dense(b, h, "second", 3), b.input("label3", i32, {kBatch}));
  }
  fetch(b, "first", one);
  fetch(b, "second", two);
  minimize(b, one);
  minimize(b, two);
}

/// The convolution's output is fetched too: an inner value of a group.
void conv(Builder& b, DType t) {
  Value x = b.input("image", t, {kBatch, 6, 6, 2}), label = label_(b);
  Value y = conv2d(x, variable_(b, t, "conv/w", {3, 3, 2, 4}), {.padding = "same"});
  Value p = max_pool2d(relu(y + variable_(b, t, "conv/b", {4})));
  Value loss = classify(dense(b, reshape(p, {kBatch, 36}), "fc", 5), label);
  fetch(b, "inner", y);
  fetch(b, "pooled", p);
  fetch(b, "loss", loss);
  minimize(b, loss);
}

// ---------------------------------------------------------------- probes

void max_over_rows(Builder& b, DType t) {
  Value top = reduce_max(dense(b, b.input("x", t, {kBatch, 4}), "in", 3), {.axes = {0}});
  fetch(b, "top", top);
  minimize(b, reduce_sum(top * top));
}

void pairwise(Builder& b, DType t) {
  Value h = dense(b, b.input("x", t, {kBatch, 4}), "in", 3);
  Value d = reshape(h, {kBatch, 1, 3}) - reshape(h, {1, kBatch, 3});
  fetch(b, "distances", d);
  minimize(b, reduce_mean(exp(reduce_sum(d * d, {.axes = {2}}) * -0.1)));
}

void symmetric_contrastive(Builder& b, DType t) {
  Value one = dense(b, b.input("x", t, {kBatch, 4}), "a", 3), two = dense(b, b.input("y", t, {kBatch, 5}), "b", 3);
  Value logits = contract("id,jd->ij", one, two), turned = transpose(logits, {1, 0}), label = b.input("row", i32, {kBatch});
  fetch(b, "logits", logits);
  minimize(b, classify(logits, label));
  minimize(b, classify(turned, label));
}

void neighbours(Builder& b, DType t) {
  Value h = contract("ij,jd->id", b.input("adjacency", t, {kBatch, kBatch}), dense(b, b.input("x", t, {kBatch, 4}), "in", 3));
  fetch(b, "hidden", h);
  minimize(b, classify(h, b.input("label3", i32, {kBatch})));
}

void lookup_in_batch(Builder& b, DType t) {
  Value h = dense(b, b.input("x", t, {kBatch, 4}), "in", 5);
  minimize(b, classify(h + gather(h, b.input("row", i32, {kBatch})) * 0.3, label_(b)));
}

void time_major(Builder& b, DType t) {
  Value h = dropout(dense(b, b.input("x", t, {3, kBatch, 4}), "in", 6), b.seed(), b.step(), 0.5, "drop");
  fetch(b, "dropped", h);
  minimize(b, classify(dense(b, reduce_sum(h, {.axes = {0}}), "out", 5), label_(b)));
}

void loss_times_penalty(Builder& b, DType t) {
  Value w = variable_(b, t, "w", {4, 5});
  minimize(b, classify(matmul(b.input("x", t, {kBatch, 4}), w), label_(b)) * reduce_sum(w * w));
}

void flattened_late(Builder& b, DType t) {
  Value h = reshape(dense(b, b.input("x", t, {3, kBatch, 4}), "in", 5), {3 * kBatch, 5});
  fetch(b, "flat", h);
  minimize(b, reduce_mean(h * h));
}

void own_batch_norm(Builder& b, DType t) {
  Value x = dense(b, b.input("x", t, {kBatch, 4}), "in", 5);
  Value c = x - reduce_mean(x, {.axes = {0}});
  minimize(b, classify(c / sqrt(reduce_mean(c * c, {.axes = {0}}) + 0.1), label_(b)));
}

/// Units of nets whose variables are long enough for ranges over four devices.
constexpr std::int64_t kWide = 80;

/// A node with two outputs that are updates.
void adam_net(Builder& b, DType t) {
  Value loss = reduce_mean(square(dense(b, b.input("x", t, {kBatch, 4}), "in", kWide)));
  fetch(b, "loss", loss);
  b.minimize(loss, Adam{.learning_rate = 0.01});
}

/// Norms of variables, a schedule, decay of some, moving averages.
void lamb_net(Builder& b, DType t) {
  Value loss = reduce_mean(square(dense(b, b.input("x", t, {kBatch, 4}), "in", kWide)));
  fetch(b, "loss", loss);
  Value rate = cosine_decay(b.step(), {.rate = 0.1, .steps = 40, .warm_up = {.steps = 5}});
  fetch(b, "rate", rate);
  b.minimize(loss, Lamb{.learning_rate = rate, .weight_decay = 0.01}, {.clip_each_norm = 0.5, .no_decay = "**/b", .average_decay = 0.9, .average_by_step = true});
}

/// Slots of other shapes than their variables, an update of several ops.
void adafactor_net(Builder& b, DType t) {
  Value loss = reduce_mean(square(dense(b, b.input("x", t, {kBatch, 4}), "in", kWide)));
  fetch(b, "loss", loss);
  b.minimize(loss, Adafactor{.learning_rate = 0.1, .weight_decay = 0.01}, {.no_decay = "**/b"});
}

/// Three slots.
void rmsprop_net(Builder& b, DType t) {
  Value loss = reduce_mean(square(dense(b, b.input("x", t, {kBatch, 4}), "in", 3)));
  fetch(b, "loss", loss);
  b.minimize(loss, Rmsprop{.learning_rate = 0.01, .momentum = 0.5, .centered = true, .weight_decay = 0.1});
}

/// Backward reads towers' partial sums for their shape alone, and stretches operands that end there.
void mean_of_means(Builder& b, DType t) {
  Value h = tanh(dense(b, b.input("x", t, {kBatch, 4}), "in", 4));
  Value y = h * exp(reduce_sum(h, {.axes = {1}, .keep = true}));
  fetch(b, "stretched", y);
  minimize(b, reduce_mean(reduce_mean(y, {.axes = {0}})));
  minimize(b, reduce_sum(reduce_sum(h * h, {.axes = {0}})) * 0.1);
}

/// Inputs that are left out in the middle and at the end, optional outputs, a mask with rows, queries that see no key.
void normed_attention(Builder& b, DType t) {
  Value weight = b.input("weight", t, {kBatch, 4});
  Value h = nn::batch_norm(b.input("x", t, {kBatch, 4, 6}), {.scale = false, .unbiased = true});
  Value seen = reshape(greater(weight, constant_like(weight, 0.4)), {kBatch, 1, 1, 4});
  h = h + nn::multi_head_attention(nn::layer_norm(h), stop_gradient(h), seen, {.heads = 2, .key_size = 3, .causal = true});
  h = h + nn::multi_head_attention(nn::rms_norm(h), h, {}, {.heads = 2, .key_size = 2, .value_size = 3});
  const Value normed = nn::layer_norm(h);
  h = h + nn::multi_head_attention(normed, normed, seen, {.heads = 2, .key_size = 3, .packed = true});
  h = reduce_mean(nn::group_norm(h, {.groups = 2, .center = false}), {.axes = {1}});
  Value loss = weighted_mean(sparse_softmax_cross_entropy(dense(b, h, "out", 5), label_(b)), reduce_mean(weight, {.axes = {1}}));
  fetch(b, "hidden", h);
  fetch(b, "loss", loss);
  minimize(b, loss);
}

/// Norms with what follows them, and before and behind their gradients: rows so wide that these are summed on the way.
void bent_norms(Builder& b, DType t) {
  Value h = relu(nn::batch_norm(dense(b, b.input("x", t, {kBatch, 3, 4}), "in", 8)));
  h = relu6(nn::batch_norm(dense(b, h, "second", 8)) + h);
  h = dense(b, h, "wide", 256) * variable_(b, t, "gain", {256});
  for (const char* name : {"third", "fourth"}) h = h + dense(b, dense(b, nn::layer_norm(h), std::string(name) + "_in", 8) * 0.1, name, 256);
  Value loss = classify(dense(b, reduce_mean(h, {.axes = {1}}) * 0.1, "out", 5), label_(b));
  fetch(b, "loss", loss);
  minimize(b, loss);
}

/// Convolutions with a filter per channel between elementwise nodes of which no gradient reads what lies inside: of data, with what is frozen, and of a metric.
void bent_convolutions(Builder& b, DType t) {
  auto frozen = [&](const char* name, Shape shape) { return b.variable(name, std::move(shape), {.dtype = t, .init = "normal", .init_value = 0.7, .trainable = false}); };
  const Value scale = frozen("scale", {4}), shift = frozen("shift", {4}), filter = frozen("filter", {3, 3, 4, 1}), x = b.input("x", t, {kBatch, 5, 4, 4});
  auto between = [&](Value h, const DepthwiseConv2dOptions& options) { return depthwise_conv2d(h * scale + shift, filter, options); };
  Value h = dense(b, between(x, {.padding = "same"}) * scale + shift + x, "in", 4);
  fetch(b, "seen", relu(between(relu6(h), {.strides = {2, 2}})));
  h = reduce_mean(h, {.axes = {1, 2}}) + reduce_mean(between(abs(x), {.strides = {2, 2}, .padding = "same"}), {.axes = {1, 2}});
  Value loss = classify(dense(b, h, "out", 5), label_(b));
  fetch(b, "loss", loss);
  minimize(b, loss);
}

/// Rows cut, turned, put together and scattered: what keeps them, and what reads them whole.
void parts_of_rows(Builder& b, DType t) {
  Value h = dense(b, b.input("x", t, {kBatch, 4}), "in", 6);
  std::vector<Value> halves = split_even(h, 2, 1);
  Value turned = reverse(halves[0], {0}), sums = cumsum(halves[1], {.axis = 0}), grown = broadcast_to(variable_(b, t, "grown", {3}), {kBatch, 3});
  Value twice = concat({h, tanh(h)}, 0), every_second = slice(twice, {1, 0}, {kBatch, 6}, {2, 1}), first = slice(h, {0, 0}, {1, 6});
  Value y = concat({turned, sums, grown, every_second, h - first, top_k(h, 2).values}, 1);
  Value table = scatter_add(variable_(b, t, "table", {11, 3}), b.input("ids", i32, {kBatch, 3}), stack({turned, sums, grown}, 1));
  fetch(b, "parts", y);
  fetch(b, "table", table);
  minimize(b, classify(dense(b, y, "out", 5), label_(b)));
  minimize(b, reduce_sum(square(table)) * 0.01);
}

}  // namespace

const std::vector<Net>& nets() {
  static const std::vector<Net> all = {{"decay", decay, false},
                                       {"conv", conv, false},
                                       {"batch_norm", batch_norm_net(false), true},
                                       {"batch_norm_sync", batch_norm_net(true), false},
                                       {"embedding", embedding, false},
                                       {"attention", attention, false},
                                       {"contrastive", contrastive, false},
                                       {"weighted_mean", weighted_mean, false},
                                       {"accuracy", accuracy, false},
                                       {"tied", tied, false},
                                       {"dropout", dropout_net, false},
                                       {"two_heads", two_heads, false}};
  return all;
}

const std::vector<Net>& probes() {
  static const std::vector<Net> all = {{"max_over_rows", max_over_rows, false},
                                       {"pairwise", pairwise, false},
                                       {"symmetric_contrastive", symmetric_contrastive, false},
                                       {"neighbours", neighbours, false},
                                       {"lookup_in_batch", lookup_in_batch, false},
                                       {"time_major", time_major, false},
                                       {"loss_times_penalty", loss_times_penalty, false},
                                       {"flattened_late", flattened_late, false},
                                       {"own_batch_norm", own_batch_norm, false},
                                       {"adam", adam_net, false},
                                       {"normed_attention", normed_attention, true},
                                       {"bent_norms", bent_norms, true},
                                       {"bent_convolutions", bent_convolutions, false},
                                       {"parts_of_rows", parts_of_rows, false},
                                       {"lamb", lamb_net, false},
                                       {"adafactor", adafactor_net, false},
                                       {"rmsprop", rmsprop_net, false},
                                       {"mean_of_means", mean_of_means, false}};
  return all;
}

const Net& net(const std::string& name) {
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list)
      if (n.name == name) return n;
  throw InternalError("no net " + name);
}

std::vector<std::string> names_of_nets() {
  std::vector<std::string> out;
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list)
      if (n.name != "two_heads") out.push_back(n.name);
  return out;
}

Graph training_graph(const Net& net, DType dtype) {
  Builder b(net.name);
  net.build(b, dtype);
  return run_passes(training_passes(), std::move(b).build());
}

}  // namespace belfry::test
