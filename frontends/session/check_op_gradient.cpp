// Central differences in f64 of a random weighting of all outputs that the gradient follows, for every element of every float input.
#include <belfry/frontends/session/check_op_internal.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <belfry/graph/evaluate.h>
#include <belfry/graph/gradients.h>
#include <belfry/ops/build.h>

namespace belfry {

namespace {

constexpr std::int64_t kGradientRows = 3;
constexpr double kMove = 1e-5;

/// Σ y·w in double, over the outputs that have weights.
double weighted(const std::vector<HostTensor>& y, const std::vector<HostTensor>& w) {
  double out = 0;
  for (std::size_t k = 0; k < w.size(); ++k)
    for (std::size_t i = 0; i < w[k].data<double>().size(); ++i) out += y[k].data<double>()[i] * w[k].data<double>()[i];
  return out;
}

/// The op with a loss over the outputs that its gradient follows, each with weights of its own.
struct WeighedOp {
  WeighedOp(const OpUnderCheck& op, const OpCase& c, const std::vector<bool>& followed) : g(op.ops), y(add_case(g, *g.ops().find(op.def.name), c)) {
    std::vector<Value> terms;
    for (std::size_t k = 0; k < c.outputs.size(); ++k) {
      if (!followed[k]) continue;
      Value w = g.add(kInput, {}, {{"dtype", f64}, {"shape", c.outputs[k].shape}}, "weights" + std::to_string(k));
      terms.push_back(reduce_sum(y.output(static_cast<int>(k)) * w));
    }
    Value loss = terms.size() == 1 ? terms[0] : add_n(terms);
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      if (c.inputs[i].given && c.inputs[i].type.dtype == f64) wanted.push_back(g.node(y.id.node).inputs[i]), which.push_back(i);
    if (!wanted.empty()) found = gradients(g, {loss.id}, wanted);
  }
  Graph g;
  Value y;
  std::vector<ValueId> wanted;
  std::vector<std::size_t> which;
  std::vector<Value> found;
};

/// Output 0, and those of the others for which a gradient is built.
std::vector<bool> followed_outputs(const OpUnderCheck& op, const OpCase& c, Objections& objections) {
  std::vector<bool> out(c.outputs.size());
  out[0] = true;
  for (std::size_t k = 1; k < out.size(); ++k) {
    if (c.outputs[k].dtype != f64) continue;
    out[k] = true;
    try {
      WeighedOp(op, c, out);
    } catch (const UserError& e) {
      const std::string wanted = fmt::format("[{}] output '{}' of 'under_test' has no gradient, but a loss reads it", op.def.name, op.def.outputs[k].name);
      if (e.what() != wanted) objections.push_back(objection("gradient", op.def, c, fmt::format("of a loss that reads {} it is refused with '{}', not with '{}'", output_of(op.def, k), e.what(), wanted)));
      out[k] = false;
    }
  }
  return out;
}

/// What a small change of every element of input i makes of the weighted outputs.
HostTensor slopes_of(const OpUnderCheck& op, const OpCase& c, std::vector<HostTensor>& inputs, std::size_t i, const std::vector<HostTensor>& weights) {
  HostTensor out(f64, inputs[i].shape());
  auto x = inputs[i].data<double>();
  for (std::size_t e = 0; e < x.size(); ++e) {
    const double before = x[e];
    x[e] = before + kMove;
    const double above = weighted(run_op(op.def, c, inputs, kGradientRows), weights);
    x[e] = before - kMove;
    const double under = weighted(run_op(op.def, c, inputs, kGradientRows), weights);
    x[e] = before;
    out.data<double>()[e] = (above - under) / (2 * kMove);
  }
  return out;
}

}  // namespace

Objections objections_to_gradient(const OpUnderCheck& op, const OpCase& given, int& compared) {
  Objections out;
  if (!op.def.differentiable() || !given.no_reference.empty() || !given.no_gradient_check.empty()) return out;
  const OpCase c = versions(op, given).back();
  if (c.outputs[0].dtype != f64) return out;
  const std::vector<bool> followed = followed_outputs(op, c, out);
  WeighedOp built(op, c, followed);
  if (built.wanted.empty()) return out;
  std::vector<HostTensor> inputs = draw_all(c, kGradientRows, false, 11), weights(c.outputs.size(), HostTensor(f64, {0}));
  std::mt19937_64 rng(13);
  std::map<std::string, HostTensor> feeds;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    if (!followed[k]) continue;
    weights[k] = draw({c.outputs[k]}, kGradientRows, false, rng);
    feeds.emplace("weights" + std::to_string(k), weights[k]);
  }
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].given) feeds.emplace(built.g.node(built.g.node(built.y.id.node).inputs[i].node).name, inputs[i]);
  const auto values = evaluate(built.g, kGradientRows, [&](const Node& n) { return feeds.at(n.name); });
  for (std::size_t i = 0; i < built.found.size(); ++i) {
    const std::size_t which = built.which[i];
    const HostTensor slopes = slopes_of(op, c, inputs, which, weights);
    // No gradient stands for zero.
    const ValueId v = built.found[i].id;
    const HostTensor by_rule = built.found[i] ? values[static_cast<std::size_t>(v.node)][static_cast<std::size_t>(v.output)] : HostTensor(f64, slopes.shape());
    const Farthest f = farthest(by_rule, slopes);
    ++compared;
    if (f.distance <= given.gradient_tolerance) continue;
    if (by_rule.shape() != slopes.shape()) out.push_back(objection("gradient", op.def, given, fmt::format("that of {} is {}, not {}", input_of(op.def, which), to_string(by_rule.type()), to_string(slopes.type()))));
    else
      out.push_back(objection("gradient", op.def, given, fmt::format("at element {} of {}, which is {}, the rule gives {} where differences give {}; off by {:.2g}, and gradient_tolerance is {}. Mend the gradient; where the op bends or jumps, "
                                                                      "draw from another range",
                                                                      f.element, input_of(op.def, which), inputs[which].data<double>()[static_cast<std::size_t>(f.element)], f.got, f.wanted, f.distance, given.gradient_tolerance)));
  }
  return out;
}

std::string objection_to_cover(const OpDef& def, const std::vector<OpCase>& cases, int compared) {
  if (!def.differentiable()) return def.gradient.no_gradient_reason.empty() ? fmt::format("gradient: [{}] there is none, and the op does not say why; write no_gradient(\"why\")", def.name) : "";
  if (compared > 0 || std::any_of(cases.begin(), cases.end(), [](const OpCase& c) { return !c.no_gradient_check.empty(); })) return "";
  return fmt::format("gradient: [{}] the op has one, but no case checks it; give one with an input of f32, or say why not in no_gradient_check", def.name);
}

}  // namespace belfry
