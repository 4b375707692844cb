#include <belfry/ops/cuda/elementwise_internal.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <belfry/ops/member_kernels_internal.h>

namespace belfry {
namespace {

/// Axes of the output that all operands walk alike are one; those of size 1 are none.
struct Axes {
  Extents sizes;
  std::vector<Extents> strides;  // per operand; the output's last
};

Axes merged(const ScalarTree& t, const std::vector<Lying>& operands) {
  Axes out;
  out.strides.resize(operands.size());
  for (std::size_t a = 0; a < t.shape.size(); ++a) {
    if (t.shape[a] == 1) continue;
    bool together = !out.sizes.empty();
    for (std::size_t k = 0; together && k < operands.size(); ++k) together = out.strides[k].back() == operands[k].strides[a] * t.shape[a];
    if (together) out.sizes.back() *= t.shape[a];
    else out.sizes.push_back(t.shape[a]);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (together) out.strides[k].back() = operands[k].strides[a];
      else out.strides[k].push_back(operands[k].strides[a]);
    }
  }
  if (out.sizes.empty()) {
    out.sizes = {1};
    for (Extents& s : out.strides) s = {1};
  }
  return out;
}

/// Halves keep 8 or 11 bits: 2^x and 1/x are one instruction each, the normal distribution's tail over its bell is a polynomial: gelu is right to 4e-6 (of x below -8 to 1e-5), by tanh to 5e-6 down to -10, and its slope to 6e-7 of 1.
const char* const kForHalves = R"(
#ifdef __CUDA_ARCH__
inline float power_of_2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
inline float inverse(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#else
inline float power_of_2(float x) { return exp2f(x); }
inline float inverse(float x) { return 1.0f / x; }
#endif
/// exp(-a²/2), and what lies beyond a >= 0 of a normal distribution, over that.
inline float bell(float a) { return power_of_2(a * -0.72134752f * a); }
inline float tail(float a) {
  const float r = inverse(fmaf(a, 0.36f, 1.0f));
  float p = fmaf(0.0473445952f, r, -0.180751741f);
  p = fmaf(p, r, 0.182297722f);
  p = fmaf(p, r, 0.0256237295f);
  p = fmaf(p, r, 0.140057459f);
  p = fmaf(p, r, 0.141710669f);
  return fmaf(p, r, 0.143717438f) * r;
}
/// A factor of no more than 16, where the bell is 0, makes no NaN of an infinity.
inline float gelu_of(float x) {
  const float a = fabsf(x);
  return fmaf(-fminf(a, 16.0f), bell(a) * tail(a), fmaxf(x, 0.0f));
}
inline float gelu_slope(float x) {
  const float a = fabsf(x), below = bell(a) * fmaf(-0.39894228f, fminf(a, 16.0f), tail(a));
  return x > 0 ? 1.0f - below : below;
}
inline float gelu_tanh_of(float x) { return fmaxf(x, -64.0f) * inverse(1.0f + power_of_2(fmaf(x * x, -0.102943240f, -2.30220820f) * x)); }
)";

/// What halves are computed by where the op's own expression costs more than they hold.
std::string text_for(const OpDef& def, DType type) {
  if (is_half(type) && def.name == "gelu") return "gelu_of(x)";
  if (is_half(type) && def.name == "gelu_gradient") return "dy * gelu_slope(x)";
  if (is_half(type) && def.name == "gelu_tanh") return "gelu_tanh_of(x)";
  return def.scalar;
}

/// What a step computes in.
std::string computed_text(DType dtype) { return type_text(is_half(dtype) ? f32 : dtype); }

}  // namespace

/// Every step in a scope of its own, where its operands have their names. Halves are read as f32, and each step's result is rounded.
std::string element_text(const ScalarTree& t, Generated& g, const std::string& of, bool widened) {
  if (std::any_of(t.steps.begin(), t.steps.end(), [](const ScalarStep& s) { return s.text.find("gelu_") != s.text.npos; })) g.head_once(kForHalves);
  std::string parameters, body;
  for (std::size_t i = 0; i < t.inputs.size(); ++i) {
    const bool half = is_half(t.inputs[i].dtype) && !widened;
    parameters += fmt::format("{} {}{}, ", half ? type_text(t.inputs[i].dtype) : computed_text(t.inputs[i].dtype), half ? "h" : "v", i);
    if (half) body += fmt::format("  const float v{0} = convert<float>(h{0});\n", i);
  }
  const DType result = t.steps.back().type;
  auto dtype_of = [&](std::size_t v) { return v < t.inputs.size() ? t.inputs[v].dtype : t.steps[v - t.inputs.size()].type; };
  auto type_of = [&](std::size_t v) { return computed_text(dtype_of(v)); };
  for (std::size_t s = 0; s < t.steps.size(); ++s) {
    const ScalarStep& step = t.steps[s];
    std::size_t me = t.inputs.size() + s;
    body += fmt::format("  {} v{};\n  {{ typedef {} T;", computed_text(step.type), me, step.type == boolean ? type_of(step.operands.at(0).second) : computed_text(step.type));
    for (auto& [name, v] : step.operands) body += fmt::format(" const {} {} = v{};", type_of(v), name, v);
    for (auto& [name, value] : step.constants) {
      std::string field = fmt::format("c{}_{}{}", s, name, of);
      g.real(field, value);
      body += fmt::format(" const T {} = (T)args.{};", name, field);
    }
    body += fmt::format("\n    v{} = {}; }}\n", me, step.text);
    if (!is_half(step.type) || (s + 1 == t.steps.size() && !widened)) continue;
    // A NaN that was selected is what the last conversion makes of it.
    const bool of_halves = std::all_of(step.operands.begin(), step.operands.end(), [&](const auto& operand) { return dtype_of(operand.second) == step.type; });
    if (!is_half(result) || step.result == ScalarResult::any || (step.result == ScalarResult::selected && !of_halves)) body += fmt::format("  v{0} = convert<float>(convert<{1}>(v{0}));\n", me, type_text(step.type));
    else if (step.result == ScalarResult::arithmetic) body += fmt::format("  v{0} = rounded<{1}>(v{0});\n", me, type_text(step.type));
  }
  const std::string last = fmt::format("v{}", t.inputs.size() + t.steps.size() - 1);
  const bool narrow = is_half(result) && !widened;
  return fmt::format("inline {} apply{}({}const Args& args) {{\n{}  return {};\n}}\n", narrow ? type_text(result) : computed_text(result), of, parameters, body, narrow ? fmt::format("convert<{}>({})", type_text(result), last) : last);
}

namespace {

/// An operand is read (or the output written) `width` at a time where it lies dense along the last axis.
std::string pass_text(const std::string& name, const Axes& axes, const std::vector<Lying>& operands, std::int64_t width) {
  std::size_t rank = axes.sizes.size(), output = operands.size() - 1;
  std::string out = fmt::format("inline void {}(const Args& a, u32 block, u32 blocks) {{\n#ifdef JOINT\n#pragma unroll 1\n#endif\n  for (I u = (I)block * blockDim.x + threadIdx.x; u < (I)a.n / {}; u += (I)blocks * blockDim.x) {{\n", name, width);
  if (rank > 1) out += "    I left = u;\n";
  for (std::size_t d = rank; d-- > 0;) {
    std::string size = d + 1 == rank ? fmt::format("((I)a.m{} / {})", d, width) : fmt::format("(I)a.m{}", d), scale = d + 1 == rank && width > 1 ? fmt::format(" * {}", width) : "";
    if (rank == 1) out += fmt::format("    const I i0 = u{};\n", scale);
    else if (d == 0) out += fmt::format("    const I i0 = left{};\n", scale);
    else out += fmt::format("    const I i{0} = left % {1}{2}; left /= {1};\n", d, size, scale);
  }
  auto offset = [&](std::size_t k) {
    std::string at = operands[k].first ? fmt::format("(I)a.b{}", k) : "0";
    for (std::size_t d = 0; d < rank; ++d)
      if (std::int64_t s = axes.strides[k][d]; s == 1) at += fmt::format(" + i{}", d);
      else if (s != 0) at += fmt::format(" + i{} * (I)a.s{}_{}", d, k, d);
    return at;
  };
  for (std::size_t k = 0; k < output; ++k) {
    std::string type = type_text(operands[k].dtype);
    bool packed = width > 1 && axes.strides[k].back() == 1;
    if (packed) type = fmt::format("Pack<{}, {}>", type, width);
    if (packed) out += fmt::format("    const {0} x{1} = *(const {0}*)((const {2}*)a.in[{1}] + ({3}));\n", type, k, type_text(operands[k].dtype), offset(k));
    else out += fmt::format("    const {0} x{1} = ((const {0}*)a.in[{1}])[{2}];\n", type, k, offset(k));
  }
  std::string y = type_text(operands[output].dtype);
  auto call = [&](bool packs) {
    std::string s = "apply(";
    for (std::size_t k = 0; k < output; ++k) s += fmt::format("x{}{}, ", k, packs && axes.strides[k].back() == 1 ? ".e[j]" : "");
    return s + "a)";
  };
  if (width > 1)
    out += fmt::format("    Pack<{0}, {1}> y;\n#pragma unroll\n    for (int j = 0; j < {1}; ++j) y.e[j] = {2};\n    *(Pack<{0}, {1}>*)(({0}*)a.out[0] + ({3})) = y;\n  }}\n", y, width, call(true), offset(output));
  else
    out += fmt::format("    (({0}*)a.out[0])[{1}] = {2};\n  }}\n", y, offset(output), call(false));
  if (width > 1 && rank == 1) {  // what is left of the last pack, by the first threads
    out += fmt::format("  const I i0 = (I)a.n / {0} * {0} + (I)block * blockDim.x + threadIdx.x;\n  if (i0 < (I)a.n) ((({1}*)a.out[0])[{2}]) = apply(", width, y, offset(output));
    for (std::size_t k = 0; k < output; ++k) out += fmt::format("((const {}*)a.in[{}])[{}], ", type_text(operands[k].dtype), k, offset(k));
    out += "a);\n";
  }
  return out + "}\n";
}

}  // namespace

Lying stretched(const LocalType& operand, const Extents& to) {
  Lying out{operand.dtype, Extents(to.size(), 0)};
  std::int64_t step = 1;
  for (std::size_t i = operand.shape.size(); i-- > 0;) {
    if (operand.shape[i] != 1) out.strides[to.size() - operand.shape.size() + i] = step;
    step *= operand.shape[i];
  }
  return out;
}

Generated elementwise(const ScalarTree& given) {
  ScalarTree t = given;
  const bool copies = t.steps.empty();
  if (copies) t.steps.push_back({t.inputs.at(0).dtype, "x", {{"x", 0}}});
  if (t.output.strides.empty()) t.output = stretched({t.steps.back().type, t.shape}, t.shape);
  t.output.dtype = t.steps.back().type;
  std::vector<Lying> operands = t.inputs;
  operands.push_back(t.output);
  Axes axes = merged(t, operands);
  std::int64_t n = belfry::elements(t.shape), widest = 1, reach = n;
  bool can_pack = axes.strides.back().back() == 1;
  std::vector<std::size_t> packed;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    std::int64_t inner = axes.strides[k].back(), span = operands[k].first;
    can_pack = can_pack && (inner == 0 || inner == 1);
    if (inner == 1) packed.push_back(k), widest = std::max(widest, static_cast<std::int64_t>(size_of(operands[k].dtype)));
    for (std::size_t d = 0; d < axes.sizes.size(); ++d) span += std::max<std::int64_t>(0, axes.sizes[d] - 1) * std::abs(axes.strides[k][d]);
    reach = std::max(reach, span);
  }
  std::int64_t width = 16 / widest;
  for (std::size_t k : packed) {
    can_pack = can_pack && operands[k].first % width == 0;
    for (std::size_t d = 0; d + 1 < axes.sizes.size(); ++d) can_pack = can_pack && axes.strides[k][d] % width == 0;
  }
  if (!can_pack || (axes.sizes.size() > 1 && axes.sizes.back() % width != 0)) width = 1;

  Generated g(t.inputs.size(), 1);
  g.type("I", reach < (std::int64_t{1} << 30) ? "int" : "i64").number("n", n);
  for (std::size_t d = 0; d < axes.sizes.size(); ++d) g.number(fmt::format("m{}", d), axes.sizes[d]);
  for (std::size_t k = 0; k < operands.size(); ++k) {
    if (operands[k].first) g.number(fmt::format("b{}", k), operands[k].first);
    for (std::size_t d = 0; d < axes.sizes.size(); ++d)
      if (axes.strides[k][d] != 0 && axes.strides[k][d] != 1) g.number(fmt::format("s{}_{}", k, d), axes.strides[k][d]);
  }
  const std::string type = type_text(t.steps.back().type);
  g.body(copies ? fmt::format("inline {0} apply({0} x, const Args&) {{ return x; }}\n", type) : element_text(t, g));
  auto entry = [](const char* name, const char* pass) { return fmt::format("KERNEL void {}(const Args a) {{ {}(a, blockIdx.x, gridDim.x); }}\n", name, pass); };
  g.body(pass_text("one_by_one", axes, operands, 1)).entries(entry("narrow", "one_by_one"));
  if (width == 1) return g.joint("one_by_one", grid_for(n).blocks).launch("narrow", grid_for(n));
  const Grid wide = grid_for(std::max(n / width, std::min<std::int64_t>(n, width)));
  std::string bytes;
  for (std::size_t k : packed) bytes += fmt::format("{}(u64)a.{}", bytes.empty() ? "" : " | ", k < t.inputs.size() ? fmt::format("in[{}]", k) : "out[0]");
  g.body(pass_text("in_packs", axes, operands, width)).entries(entry("wide", "in_packs"));
  g.body(fmt::format("#ifdef JOINT\ninline void as_it_lies(const Args& a, u32 block, u32 blocks) {{ if (({}) % 16 == 0) in_packs(a, block, blocks); else one_by_one(a, block, blocks); }}\n#endif\n", bytes)).joint("as_it_lies", wide.blocks);
  return g.launch("wide", wide, packed, "narrow", grid_for(n));
}

namespace {

/// The node's own expression, over `operands`; a sum adds them in their order.
ScalarStep step_of(const OpDef& def, const Attributes& attributes, DType type, const std::vector<std::size_t>& operands) {
  ScalarStep out{type, text_for(def, type), {}};
  out.result = !def.sum_of_inputs ? def.scalar_result : operands.size() == 1 ? ScalarResult::selected : ScalarResult::arithmetic;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::string name = def.sum_of_inputs ? fmt::format("x{}", i) : def.inputs[i].name;
    out.operands.emplace_back(name, operands[i]);
    if (def.sum_of_inputs) out.text += (i ? " + " : "") + name;
  }
  for (const AttributeDef& a : def.attributes)
    if (const double* value = std::get_if<double>(attributes.find(a.name))) out.constants.emplace_back(a.name, *value);
  return out;
}

}  // namespace

ScalarTree tree_of_members(const KernelRequest& r, const Node* core) {
  ScalarTree t;
  t.shape = inner_type(r, r.members.front()->types[0]).shape;
  std::map<std::string, std::size_t> made;
  if (core && core != r.members.back()) {
    t.inputs.push_back(stretched({core->types[0].dtype, t.shape}, t.shape));
    made.emplace(core->name, 0);
  }
  std::size_t next = 0, operand = t.inputs.size();
  for (std::size_t m = 0; m < r.members.size(); ++m)
    for (const std::string& inner : r.inner[m]) {
      if (!inner.empty()) continue;
      if (r.members[m] != core) t.inputs.push_back(stretched(r.inputs.at(next), t.shape));
      ++next;
    }
  for (std::size_t m = 0; m < r.members.size(); ++m) {
    const Node& n = *r.members[m];
    if (&n == core) continue;
    std::vector<std::size_t> operands;
    for (const std::string& inner : r.inner[m]) operands.push_back(inner.empty() ? operand++ : made.at(inner));
    made.emplace(n.name, t.inputs.size() + t.steps.size());
    t.steps.push_back(step_of(*n.op, n.attributes, n.types[0].dtype, operands));
  }
  return t;
}

Support has_expressions(const KernelRequest& r, const KernelTable& table, const Node* core) {
  std::size_t next = 0;
  std::map<std::string, LocalType> made;
  for (std::size_t m = 0; m < r.members.size(); ++m) {
    const Node& n = *r.members[m];
    KernelRequest one;
    one.op = n.op->name;
    one.def = n.op;
    one.attributes = &n.attributes;
    for (const std::string& inner : r.inner[m]) one.inputs.push_back(inner.empty() ? r.inputs.at(next++) : made.at(inner));
    one.outputs = {inner_type(r, n.types[0])};
    one.output_types = n.types;
    one.wanted = {true};
    if (&n != core && table.choose(one).name != "nvrtc_elementwise") return refuse(fmt::format("its {} '{}' has no expression for these types", n.op->name, n.name));
    made.emplace(n.name, one.outputs[0]);
  }
  return {};
}

ScalarTree tree_of(const KernelRequest& r) {
  ScalarTree t;
  t.shape = r.outputs[0].shape;
  std::vector<std::size_t> operands;
  for (std::size_t i = 0; i < r.inputs.size(); ++i) {
    t.inputs.push_back(stretched(r.inputs[i], t.shape));
    operands.push_back(i);
  }
  t.steps.push_back(step_of(*r.def, *r.attributes, r.outputs[0].dtype, operands));
  return t;
}

Kernel elementwise_tree(const GpuCodeRef& code, const std::string& kind, const std::shared_ptr<const KernelTable>& table) {
  auto supports = [table](const KernelRequest& r) {
    return of_one_shape(r) ? has_expressions(r, *table) : refuse("its members are not all elementwise, of the shape of the last");
  };
  return {.name = "nvrtc_elementwise", .op = kind, .supports = supports, .prepare = [code](const KernelRequest& r) { return elementwise(tree_of_members(r)).prepare(*code); }, .halves = true};
}

Support takes_on_gpu(const KernelRequest& r, const std::vector<DType>& dtypes, std::size_t i) {
  if (std::find(dtypes.begin(), dtypes.end(), r.inputs[i].dtype) != dtypes.end()) return {};
  return refuse(fmt::format("input {} is {}", i, name_of(r.inputs[i].dtype)));
}

Kernel elementwise_kernel(const GpuCodeRef& code, const std::string& op, std::vector<DType> dtypes, std::size_t i) {
  return {.name = "nvrtc_elementwise", .op = op, .supports = [=](const KernelRequest& r) { return takes_on_gpu(r, dtypes, i); },
          .prepare = [code](const KernelRequest& r) { return elementwise(tree_of(r)).prepare(*code); },
          .halves = std::find(dtypes.begin(), dtypes.end(), f16) != dtypes.end()};
}

}  // namespace belfry
