#include <belfry/ops/scaled_dot_product_attention/packed_attention.h>

#include <cstring>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/scaled_dot_product_attention/formulas.h>
#include <belfry/ops/scaled_dot_product_attention/scaled_dot_product_attention.h>

namespace belfry {

namespace {

/// A value of its own of each of q, k and v, and back.
struct Parts {
  explicit Parts(const LocalType& qkv) : type(qkv) {
    row = static_cast<std::size_t>(type.shape[type.shape.size() - 2] * type.shape.back()) * size_of(type.dtype);
    type.shape.erase(type.shape.end() - 3);
    for (std::vector<std::byte>& of : bytes) of.resize(static_cast<std::size_t>(type.elements()) * size_of(type.dtype));
  }
  template <class F>
  void each_row(F f) {
    for (std::size_t at = 0; at < bytes[0].size(); at += row)
      for (std::size_t k = 0; k < 3; ++k) f(bytes[k].data() + at, at * 3 + k * row);
  }
  void take(const std::byte* qkv) {
    each_row([&](std::byte* own, std::size_t at) { std::memcpy(own, qkv + at, row); });
  }
  void give(std::byte* qkv) {
    each_row([&](const std::byte* own, std::size_t at) { std::memcpy(qkv + at, own, row); });
  }

  LocalType type;
  std::size_t row = 0;  ///< bytes of a place
  std::vector<std::byte> bytes[3];
};

/// By that of q, k and v apart.
void reference(const Call& c, bool backward) {
  static const std::vector<OpDef> of_three = scaled_dot_product_attention_defs();
  const Attributes attributes = {{"causal", c.attributes.flag("causal")}, {"scale", c.attributes.real("scale")}, {"layout", "bthk"}};
  Parts parts(c.inputs[0].type), made(parts);
  parts.take(c.inputs[0].data);
  std::vector<ConstView> inputs;
  for (const auto& of : parts.bytes) inputs.push_back({parts.type, of.data()});
  inputs.insert(inputs.end(), c.inputs.begin() + 1, c.inputs.end());
  std::vector<View> outputs(c.outputs.begin(), c.outputs.end());
  if (backward) {
    outputs.erase(outputs.begin());
    for (int k = 2; k >= 0; --k) outputs.insert(outputs.begin(), {made.type, made.bytes[k].data()});
  }
  of_three[backward].reference({attributes, inputs, outputs, c.output_types, c.share});
  if (backward) made.give(c.outputs[0].data);
}

/// (…, heads, places, places), of q, k or v apart (…, places, heads, features).
Shape scores_of(const Shape& one) {
  Shape out(one.begin(), one.end() - 3);
  out.insert(out.end(), {one[one.size() - 2], one[one.size() - 3], one[one.size() - 3]});
  return out;
}

Shape one_of(InferContext& c) {
  Shape out = c.shape(0);
  out.erase(out.end() - 3);
  return out;
}

/// Types of y and of the logarithms; `mask` is the input that may be left out.
std::vector<TensorType> types_of(InferContext& c, int mask) {
  c.need_float(0);
  const int rank = c.rank(0);
  if (rank < 4 || c.shape(0)[static_cast<std::size_t>(rank) - 3] != Dim(3)) c.fail(fmt::format("qkv is (…, places, 3, heads, features), not {}", to_string(std::span<const Dim>(c.shape(0)))));
  const Shape one = one_of(c), scores = scores_of(one);
  if (one.back().symbolic()) c.fail("the features have a fixed size");
  if (c.has(mask)) {
    if (c.dtype(mask) != boolean && c.dtype(mask) != c.dtype(0)) c.fail("the mask must be bool, or of qkv's dtype");
    Shape both;
    if (!broadcast({c.shape(mask), scores}, both) || both != scores) c.fail("the mask must broadcast to " + to_string(std::span<const Dim>(scores)));
  }
  return {{c.dtype(0), one}, {c.dtype(0), Shape(scores.begin(), scores.end() - 1)}};
}

std::vector<TensorType> infer_gradient(InferContext& c) {
  auto forward = types_of(c, 4);
  if (c.type(1) != forward[0] || c.type(3) != forward[0]) c.fail("y and dy must be " + to_string(forward[0]));
  if (c.type(2) != forward[1]) c.fail("log_sum must be " + to_string(forward[1]));
  return {c.type(0), {c.dtype(0), scores_of(one_of(c))}};
}

enum class Lies { qkv, y, scores };

/// Rows of a leading axis, or of heads, stay, and the mask follows them; rows of places or features are read whole. Axes are those of the scores in between.
Split split(const SplitContext& c, const std::vector<Lies>& inputs, const std::vector<Lies>& outputs) {
  const int heads = static_cast<int>(c.inputs[0].shape.size()) - 4, rank = heads + 3;
  auto to = [&](Lies how, int axis) { return rows(axis < heads || how == Lies::scores ? axis : how == Lies::y ? heads + 1 : heads + 2); };
  auto from = [&](Lies how, int axis) { return axis < heads || how == Lies::scores ? axis : axis == (how == Lies::y ? heads + 1 : heads + 2) ? heads : rank; };
  auto is_mask = [&](std::size_t i) { return i == inputs.size(); };
  SplitState s = kReplicated;
  bool any = false, per_tower = false;
  for (std::size_t i = 0; i < c.states.size(); ++i) {
    any |= c.states[i].is_rows();
    if (!c.states[i].is_rows() || is_mask(i) || s.is_rows()) continue;
    if (const int axis = from(inputs[i], c.states[i].axis); axis <= heads) s = rows(axis);
  }
  if (any && !s.is_rows())
    for (int axis : symbolic_axes(c.inputs[0].shape))
      if (const int own = from(Lies::qkv, axis); own <= heads && !s.is_rows()) s = rows(own);
  Split out;
  for (std::size_t i = 0; i < c.states.size(); ++i) {
    out.reads.push_back(c.states[i].is_per_tower() ? kPerTower : !s.is_rows() ? kReplicated : is_mask(i) ? aligned(c.inputs[i].shape, s.axis, rank) : to(inputs[i], s.axis));
    per_tower |= out.reads.back().is_per_tower();
  }
  for (Lies how : outputs) out.gives.push_back(s.is_rows() ? to(how, s.axis) : per_tower ? kPerTower : kReplicated);
  return out;
}

double flops(std::span<const LocalType> in, std::span<const LocalType>, const Attributes& a) {
  Extents one = in[0].shape;
  one.erase(one.end() - 3);
  const AttentionLayout l(a, one, one, one);
  return 4 * static_cast<double>(l.heads * l.queries) * static_cast<double>(l.keys) * static_cast<double>(l.width) * (l.causal ? 0.5 : 1);
}

}  // namespace

std::vector<OpDef> packed_attention_defs() {
  std::vector<AttributeDef> attributes = {{"causal", false}, AttributeDef("scale", 0.0).between(0, 1e6), AttributeDef("layout", kPacked).one_of({kPacked}), wide_result()};
  std::vector<OpDef> out;
  out.push_back({.name = "packed_attention",
                 .attributes = attributes,
                 .inputs = {"qkv", wide_input(optional_input("mask"))},
                 .outputs = {"y", wide_output(optional_output("log_sum"))},
                 .infer = [](InferContext& c) { return types_of(c, 1); },
                 .reference = [](const Call& c) { reference(c, false); },
                 .gradient = [](GradientContext& g) {
                   Value mask = g.count() > 1 ? g.input(1) : Value{};
                   Value d = emit("packed_attention_gradient", {g.input(0), g.output(0), g.output(1), g.output_gradient(), mask}, g.attributes, {});
                   std::vector<Value> out = {d};
                   if (g.count() > 1) out.push_back(mask && mask.dtype() != boolean ? sum_to(d.output(1), mask.shape()) : Value{});
                   return out;
                 },
                 .split = [](const SplitContext& c) { return split(c, {Lies::qkv}, {Lies::y, Lies::scores}); },
                 .flops = flops,
                 .precision = Precision::low});
  out.push_back({.name = "packed_attention_gradient",
                 .attributes = attributes,
                 .inputs = {"qkv", "y", wide_input("log_sum"), "dy", wide_input(optional_input("mask"))},
                 .outputs = {"dqkv", wide_output(optional_output("dscores"))},
                 .infer = infer_gradient,
                 .reference = [](const Call& c) { reference(c, true); },
                 .gradient = no_gradient("second derivatives of attention are in no net here"),
                 .split = [](const SplitContext& c) { return split(c, {Lies::qkv, Lies::y, Lies::scores, Lies::y}, {Lies::qkv, Lies::scores}); },
                 .flops = [](auto in, auto out, const Attributes& a) { return 2.5 * flops(in, out, a); },
                 .precision = Precision::low});
  return out;
}

Value packed_attention(Value qkv, Value mask, const PackedAttentionOptions& o, SourceLine at) { return emit("packed_attention", {qkv, mask}, {{"causal", o.causal}, {"scale", o.scale}}, at); }

}  // namespace belfry
