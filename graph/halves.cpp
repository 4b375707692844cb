#include <belfry/graph/halves.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include <belfry/graph/structural.h>

namespace belfry {

namespace {

const InputDef& input_def(const OpDef& op, std::size_t i) { return op.inputs[std::min(i, op.inputs.size() - 1)]; }

HostTensor copy_of(const LocalType& type, const std::byte* data) {
  HostTensor out(type.dtype, type.shape);
  if (!out.bytes().empty() && data) std::memcpy(out.raw(), data, out.bytes().size());
  return out;
}

DType widened(DType dtype) { return is_half(dtype) ? f32 : dtype; }

bool keeps_f32(const InferContext& c) { return c.attributes.find("wide") && c.attributes.flag("wide"); }

/// The one half that the inputs are of, f32 if there is none. Beside halves f32 is read as it is where a result that follows its inputs is said to stay f32.
DType half_of(const InferContext& c) {
  const bool mixes = c.op.precision == Precision::follow && keeps_f32(c);
  std::optional<DType> first;
  for (int i = 0; i < c.count(); ++i) {
    if (!c.has(i)) continue;
    const DType t = c.graph.type(c.inputs[static_cast<std::size_t>(i)]).dtype;
    const InputDef& def = input_def(c.op, static_cast<std::size_t>(i));
    if (def.shape_only) continue;
    if (is_half(t) && !c.op.takes_halves()) c.fail(fmt::format("computes in f32 and f64, and input {} is {}, which is for storage: cast it first", i, belfry::name_of(t)));
    if (is_half(t) && def.wide) c.fail(fmt::format("keeps input {} in f32, and it is {}: cast it first", i, belfry::name_of(t)));
    if (def.wide || !(is_float(t) || is_half(t))) continue;
    if (first && *first != t && (is_half(t) || is_half(*first)) && !(mixes && t != f64 && *first != f64)) c.fail(fmt::format("inputs have the dtypes {} and {}", belfry::name_of(*first), belfry::name_of(t)));
    first = t;
  }
  return first && is_half(*first) ? *first : f32;
}

/// A rule of a user's own may throw anything.
std::vector<TensorType> types_by_rule(InferContext& c) {
  try {
    return c.op.infer(c);
  } catch (const UserError&) {
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& e) {
    c.fail(fmt::format("its infer rule failed: {}", e.what()));
  }
}

}  // namespace

bool may_be_half(const OpDef& op, std::size_t i) { return op.takes_halves() && !input_def(op, i).wide; }

std::vector<TensorType> inferred_types(InferContext& c) {
  const OpDef& op = c.op;
  const DType half = op.stores ? f32 : half_of(c);
  std::vector<TensorType> out = types_by_rule(c);
  if (op.stores || op.inputs.empty()) return out;
  for (const TensorType& t : out)
    if (is_half(t.dtype) && !op.takes_halves()) c.fail(fmt::format("computes in f32 and f64, and would give {}, which is for storage: cast its result", to_string(t)));
  if (!is_half(half) || keeps_f32(c)) return out;
  for (std::size_t k = 0; k < out.size(); ++k)
    if (out[k].dtype == f32 && !op.outputs[k].wide) out[k].dtype = half;
  return out;
}

std::vector<Value> widened(const OpDef& op, std::vector<Value> values) {
  for (Value& v : values)
    if (v && is_half(v.dtype()) && !op.stores) v = in_dtype(v, f32);
  return values;
}

std::vector<Value> built_by(const std::function<std::vector<Value>(GradientContext&)>& rule, Graph& graph, const Node& n, const std::vector<Value>& inputs) {
  graph.cursor.scope = n.name;
  GradientContext context(graph, n.attributes, widened(*n.op, inputs));
  std::vector<Value> out = rule(context);
  for (std::size_t k = 0; k < out.size(); ++k)
    if (out[k]) out[k] = in_dtype(out[k], n.types[k].dtype);
  graph.cursor.scope = {};
  return out;
}

Value in_dtype(Value v, DType dtype) { return v.dtype() == dtype ? v : v.graph->add(kCast, {v}, {{"dtype", dtype}}); }

Split split_of(const OpDef& op, const SplitContext& c) {
  Split s = op.split(c);
  bool rounded = false;
  for (std::size_t k = 0; k < s.gives.size() && k < c.outputs.size(); ++k) rounded |= is_half(c.outputs[k].dtype) && s.gives[k] == partial(Reduction::sum);
  if (!rounded) return s;
  SplitContext whole = c;
  for (SplitState& state : whole.states)
    if (!state.is_per_tower()) state = kReplicated;
  return op.split(whole);
}

ReferenceRule taking_halves(ReferenceRule reference) {
  return [reference = std::move(reference)](const Call& c) {
    auto half = [](const auto& view) { return is_half(view.type.dtype); };
    if (std::none_of(c.inputs.begin(), c.inputs.end(), half) && std::none_of(c.outputs.begin(), c.outputs.end(), half)) return reference(c);
    std::vector<HostTensor> in, out;
    std::vector<ConstView> inputs;
    std::vector<View> outputs;
    std::vector<TensorType> types(c.output_types.begin(), c.output_types.end());
    for (const ConstView& x : c.inputs) in.push_back(x.data ? converted(copy_of(x.type, x.data), widened(x.type.dtype)) : HostTensor());
    for (std::size_t i = 0; i < in.size(); ++i) inputs.push_back({{widened(c.inputs[i].type.dtype), c.inputs[i].type.shape}, c.inputs[i].data ? in[i].raw() : nullptr});
    for (const View& y : c.outputs) out.emplace_back(widened(y.type.dtype), y.type.shape);
    for (std::size_t k = 0; k < out.size(); ++k) outputs.push_back({out[k].type(), c.outputs[k].data ? out[k].raw() : nullptr});
    for (TensorType& t : types) t.dtype = widened(t.dtype);
    reference(Call{c.attributes, inputs, outputs, types, c.share});
    for (std::size_t k = 0; k < out.size(); ++k) {
      const HostTensor rounded = converted(out[k], c.outputs[k].type.dtype);
      if (c.outputs[k].data && !rounded.bytes().empty()) std::memcpy(c.outputs[k].data, rounded.raw(), rounded.bytes().size());
    }
  };
}

}  // namespace belfry
