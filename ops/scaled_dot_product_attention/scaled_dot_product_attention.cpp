#include <belfry/ops/scaled_dot_product_attention/scaled_dot_product_attention.h>

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/scaled_dot_product_attention/formulas.h>

namespace belfry {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const ConstView* given(const Call& c, std::size_t i) { return i < c.inputs.size() && c.inputs[i].data ? &c.inputs[i] : nullptr; }

template <class T>
double dot(const T* a, const T* b, std::int64_t n) {
  double out = 0;
  for (std::int64_t i = 0; i < n; ++i) out += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return out;
}

/// The heads of a call, one by one.
template <class T>
struct Heads {
  Heads(const Call& c, std::size_t mask_input)
      : l(c.attributes, c.inputs[0].type.shape, c.inputs[1].type.shape, c.inputs[2].type.shape), q(c.inputs[0].as<T>().data()), k(c.inputs[1].as<T>().data()), v(c.inputs[2].as<T>().data()),
        mask(given(c, mask_input)), steps(mask ? MaskSteps(l, mask->type.shape) : MaskSteps()) {}

  /// What the mask adds to the score of query i and key j, −∞ where the key is not seen.
  double added(std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (j >= l.seen(i)) return -kInfinity;
    if (!mask) return 0;
    auto at = static_cast<std::size_t>(steps.of_head[static_cast<std::size_t>(head)] + i * steps.query + j * steps.key);
    if (mask->type.dtype == boolean) return mask->as<bool>()[at] ? 0 : -kInfinity;
    return static_cast<double>(mask->as<T>()[at]);
  }
  bool sees(std::int64_t head, std::int64_t i, std::int64_t j) const { return added(head, i, j) != -kInfinity; }
  double score(std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (!sees(head, i, j)) return -kInfinity;
    return dot(q + query(head, i, l.width), k + key(head, j, l.width), l.width) * l.scale + added(head, i, j);
  }
  /// Where the features of a query, or of a key, begin.
  std::int64_t query(std::int64_t head, std::int64_t i, std::int64_t features) const { return l.begin(head, l.queries, features) + i * l.step(features); }
  std::int64_t key(std::int64_t head, std::int64_t j, std::int64_t features) const { return l.begin(head, l.keys, features) + j * l.step(features); }

  AttentionLayout l;
  const T *q, *k, *v;
  const ConstView* mask;
  MaskSteps steps;
};

void forward_reference(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    Heads<T> h(c, 3);
    auto y = c.outputs[0].as<T>();
    std::vector<double> scores(static_cast<std::size_t>(h.l.keys)), sum(static_cast<std::size_t>(h.l.value_width));
    for (std::int64_t row = 0; row < h.l.heads * h.l.queries; ++row) {
      std::int64_t head = row / h.l.queries, i = row % h.l.queries;
      double top = -kInfinity, total = 0;
      for (std::int64_t j = 0; j < h.l.keys; ++j) {
        scores[static_cast<std::size_t>(j)] = h.score(head, i, j);
        top = std::max(top, scores[static_cast<std::size_t>(j)]);
      }
      if (top == -kInfinity) top = 0;
      std::ranges::fill(sum, 0.0);
      for (std::int64_t j = 0; j < h.l.keys; ++j) {
        double p = std::exp(scores[static_cast<std::size_t>(j)] - top);
        total += p;
        if (h.sees(head, i, j))
          for (std::int64_t x = 0; x < h.l.value_width; ++x) sum[static_cast<std::size_t>(x)] += p * static_cast<double>(h.v[h.key(head, j, h.l.value_width) + x]);
      }
      for (std::int64_t x = 0; x < h.l.value_width; ++x) y[static_cast<std::size_t>(h.query(head, i, h.l.value_width) + x)] = static_cast<T>(total == 0 ? 0 : sum[static_cast<std::size_t>(x)] / total);
      if (c.outputs[1].data) c.outputs[1].as<T>()[static_cast<std::size_t>(row)] = static_cast<T>(top + std::log(total));
    }
  });
}

/// With p = exp(score − log_sum): dv = pᵀ·dy, dscore = p·(dy·vᵀ − Σ dy·y), dq = scale·dscore·k, dk = scale·dscoreᵀ·q.
void gradient_reference(const Call& c) {
  visit_float(c.dtype(), [&]<class T>() {
    Heads<T> h(c, 6);
    const AttentionLayout& l = h.l;
    auto y = c.inputs[3].as<T>(), log_sum = c.inputs[4].as<T>(), dy = c.inputs[5].as<T>();
    std::vector<double> dq(c.outputs[0].as<T>().size()), dk(c.outputs[1].as<T>().size()), dv(c.outputs[2].as<T>().size());
    for (std::int64_t row = 0; row < l.heads * l.queries; ++row) {
      std::int64_t head = row / l.queries, i = row % l.queries;
      const std::int64_t of_q = h.query(head, i, l.width), of_y = h.query(head, i, l.value_width);
      const T* dy_row = dy.data() + of_y;
      double own = dot(dy_row, y.data() + of_y, l.value_width), top = static_cast<double>(log_sum[static_cast<std::size_t>(row)]);
      if (top == -kInfinity) top = 0;
      for (std::int64_t j = 0; j < l.keys; ++j) {
        const std::int64_t of_k = h.key(head, j, l.width), of_v = h.key(head, j, l.value_width);
        if (c.outputs[3].data) c.outputs[3].as<T>()[static_cast<std::size_t>(row * l.keys + j)] = 0;
        if (!h.sees(head, i, j)) continue;
        double p = std::exp(h.score(head, i, j) - top), slope = p == 0 ? 0 : p * (dot(dy_row, h.v + of_v, l.value_width) - own);
        for (std::int64_t x = 0; x < l.value_width; ++x) dv[static_cast<std::size_t>(of_v + x)] += p * static_cast<double>(dy_row[x]);
        for (std::int64_t x = 0; x < l.width; ++x) {
          dq[static_cast<std::size_t>(of_q + x)] += slope * l.scale * static_cast<double>(h.k[of_k + x]);
          dk[static_cast<std::size_t>(of_k + x)] += slope * l.scale * static_cast<double>(h.q[of_q + x]);
        }
        if (c.outputs[3].data) c.outputs[3].as<T>()[static_cast<std::size_t>(row * l.keys + j)] = static_cast<T>(slope);
      }
    }
    std::size_t k = 0;
    for (const auto* sums : {&dq, &dk, &dv}) {
      std::ranges::transform(*sums, c.outputs[k].as<T>().begin(), [](double s) { return static_cast<T>(s); });
      ++k;
    }
  });
}

/// An axis of q, as the scores count it, and back.
int turned(int axis, int rank, const Attributes& a) { return !heads_behind(a) || axis < rank - 3 || axis == rank - 1 ? axis : 2 * rank - 5 - axis; }

/// (…, heads, places, features), however it lies, and back.
Shape heads_first(Shape s, const Attributes& a) {
  if (heads_behind(a)) std::swap(s[s.size() - 3], s[s.size() - 2]);
  return s;
}

/// (…, queries, keys).
Shape scores_of(InferContext& c) {
  Shape out = heads_first(c.shape(0), c.attributes);
  out.back() = heads_first(c.shape(1), c.attributes)[out.size() - 2];
  return out;
}

/// Types of y and of the logarithms; `mask` is the input that may be left out.
std::vector<TensorType> types_of(InferContext& c, int mask) {
  c.need_float(0);
  int rank = c.rank(0);
  for (int i : {1, 2})
    if (c.dtype(i) != c.dtype(0) || c.rank(i) != rank) c.fail("q, k and v need one dtype and as many axes");
  const bool behind = heads_behind(c.attributes);
  if (rank < (behind ? 3 : 2)) c.fail(behind ? "q, k and v need axes of places, of heads and of features where the layout is bthk" : "q, k and v need an axis of places and one of features");
  const Shape q = heads_first(c.shape(0), c.attributes), k = heads_first(c.shape(1), c.attributes), v = heads_first(c.shape(2), c.attributes);
  auto last = static_cast<std::size_t>(rank) - 1;
  if (!std::equal(q.begin(), q.end() - 2, k.begin()) || !std::equal(q.begin(), q.end() - 2, v.begin())) c.fail(behind ? "q, k and v need the same leading axes and heads" : "q, k and v need the same leading axes");
  if (q[last] != k[last]) c.fail(fmt::format("q has {} features and k {}", to_string(q[last]), to_string(k[last])));
  if (k[last - 1] != v[last - 1]) c.fail(fmt::format("k has {} places and v {}", to_string(k[last - 1]), to_string(v[last - 1])));
  if (q[last].symbolic() || v[last].symbolic()) c.fail("the features of q, k and v have a fixed size");
  if (c.has(mask)) {
    if (c.dtype(mask) != boolean && c.dtype(mask) != c.dtype(0)) c.fail("the mask must be bool, or of q's dtype");
    Shape scores = scores_of(c), both;
    if (!broadcast({c.shape(mask), scores}, both) || both != scores) c.fail("the mask must broadcast to " + to_string(std::span<const Dim>(scores)));
  }
  Shape y = q, log_sum(q.begin(), q.end() - 1);
  y.back() = v.back();
  return {{c.dtype(0), heads_first(y, c.attributes)}, {c.dtype(0), log_sum}};
}

std::vector<TensorType> infer_gradient(InferContext& c) {
  auto forward = types_of(c, 6);
  if (c.type(3) != forward[0] || c.type(5) != forward[0]) c.fail("y and dy must be " + to_string(forward[0]));
  if (c.type(4) != forward[1]) c.fail("log_sum must be " + to_string(forward[1]));
  return {c.type(0), c.type(1), c.type(2), {c.dtype(0), scores_of(c)}};
}

/// Rows of a leading axis, or of heads, stay, and the mask follows them; rows of queries, keys or features are read whole.
Split split(const SplitContext& c, std::size_t log_sum, std::size_t mask, std::size_t of_scores) {
  int rank = static_cast<int>(c.inputs[0].shape.size());
  SplitState s = kReplicated;  // along an axis of the scores
  auto turn = [&](SplitState state) { return state.is_rows() ? rows(turned(state.axis, rank, c.attributes)) : state; };
  bool any = std::any_of(c.states.begin(), c.states.end(), [](SplitState state) { return state.is_rows(); });
  for (std::size_t i = 0; i < c.states.size() && !s.is_rows(); ++i)
    if (SplitState own = i == log_sum ? c.states[i] : turn(c.states[i]); own.is_rows() && i != mask && own.axis < rank - 2) s = own;
  if (any && !s.is_rows())
    for (int axis : symbolic_axes(c.inputs[0].shape))
      if (SplitState own = turn(rows(axis)); own.axis < rank - 2 && !s.is_rows()) s = own;
  Split out;
  bool per_tower = false;
  for (std::size_t i = 0; i < c.states.size(); ++i) {
    out.reads.push_back(c.states[i].is_per_tower() ? kPerTower : !s.is_rows() ? kReplicated : i == mask ? aligned(c.inputs[i].shape, s.axis, rank) : i == log_sum ? s : turn(s));
    per_tower |= out.reads.back().is_per_tower();
  }
  out.gives.assign(c.outputs.size(), s.is_rows() || !per_tower ? turn(s) : kPerTower);
  if (s.is_rows()) out.gives[of_scores] = s;
  return out;
}

/// A score and a weighted value per pair of query and key.
double flops(std::span<const LocalType> in, std::span<const LocalType>, const Attributes& a) {
  AttentionLayout l(a, in[0].shape, in[1].shape, in[2].shape);
  return 2 * static_cast<double>(l.heads * l.queries) * static_cast<double>(l.keys) * static_cast<double>(l.width + l.value_width) * (l.causal ? 0.5 : 1);
}

}  // namespace

std::vector<OpDef> scaled_dot_product_attention_defs() {
  std::vector<AttributeDef> attributes = {{"causal", false}, AttributeDef("scale", 0.0).between(0, 1e6), AttributeDef("layout", "bhtk").one_of({"bhtk", "bthk"}), wide_result()};
  std::vector<OpDef> out;
  out.push_back({.name = "scaled_dot_product_attention",
                 .attributes = attributes,
                 .inputs = {"q", "k", "v", wide_input(optional_input("mask"))},
                 .outputs = {"y", wide_output(optional_output("log_sum"))},
                 .infer = [](InferContext& c) { return types_of(c, 3); },
                 .reference = forward_reference,
                 .gradient = [](GradientContext& g) {
                   Value mask = g.count() > 3 ? g.input(3) : Value{};
                   Value d = emit("scaled_dot_product_attention_gradient", {g.input(0), g.input(1), g.input(2), g.output(0), g.output(1), g.output_gradient(), mask}, g.attributes, {});
                   std::vector<Value> out = {d, d.output(1), d.output(2)};
                   if (g.count() > 3) out.push_back(mask && mask.dtype() != boolean ? sum_to(d.output(3), mask.shape()) : Value{});
                   return out;
                 },
                 .split = [](const SplitContext& c) { return split(c, c.inputs.size(), 3, 1); },
                 .flops = flops,
                 .precision = Precision::low});
  out.push_back({.name = "scaled_dot_product_attention_gradient",
                 .attributes = attributes,
                 .inputs = {"q", "k", "v", "y", wide_input("log_sum"), "dy", wide_input(optional_input("mask"))},
                 .outputs = {"dq", "dk", "dv", wide_output(optional_output("dscores"))},
                 .infer = infer_gradient,
                 .reference = gradient_reference,
                 .gradient = no_gradient("second derivatives of attention are in no net here"),
                 .split = [](const SplitContext& c) { return split(c, 4, 6, 3); },
                 .flops = [](auto in, auto out, const Attributes& a) { return 2.5 * flops(in, out, a); },
                 .precision = Precision::low});
  return out;
}

Value scaled_dot_product_attention(Value q, Value k, Value v, Value mask, const AttentionOptions& o, SourceLine at) {
  return emit("scaled_dot_product_attention", {q, k, v, mask}, {{"causal", o.causal}, {"scale", o.scale}, {"layout", o.layout}}, at);
}

}  // namespace belfry
