#include "op_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <belfry/graph/contexts.h>
#include <belfry/graph/evaluate.h>
#include <belfry/graph/gradients.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/build.h>

#include "interpreter.h"

namespace belfry::test {

namespace {

constexpr std::int64_t kRows = 3;

TensorType in_f64(TensorType t) {
  if (t.dtype == f32) t.dtype = f64;
  return t;
}

/// The standard ops, and the op under test where it is not one of them.
std::shared_ptr<const OpSet> ops_with(const OpDef& def) {
  OpSet ops = standard_ops();
  if (!ops.find(def.name)) ops.add(def);
  return std::make_shared<const OpSet>(std::move(ops));
}

std::vector<Value> add_inputs(Graph& g, const std::vector<TensorType>& types) {
  std::vector<Value> out;
  for (const TensorType& t : types) out.push_back(g.add("input", {}, {{"dtype", t.dtype}, {"shape", t.shape}}));
  return out;
}

Value add_op(Graph& g, const OpDef& def, const OpCase& c) {
  std::vector<Value> inputs;
  for (const CaseInput& i : c.inputs) inputs.push_back(i.given ? add_inputs(g, {i.type})[0] : Value{});
  return g.add(def, inputs, c.attributes, "under_test");
}

/// Σ y·w in double, over the outputs that have weights.
double weighted(const std::vector<HostTensor>& y, const std::vector<HostTensor>& w) {
  double out = 0;
  for (std::size_t k = 0; k < w.size(); ++k)
    for (std::size_t i = 0; i < w[k].data<double>().size(); ++i) out += y[k].data<double>()[i] * w[k].data<double>()[i];
  return out;
}

/// The op with a loss over the outputs that its gradient follows, each with weights of its own.
struct WeighedOp {
  WeighedOp(std::shared_ptr<const OpSet> ops, const OpDef& def, const OpCase& c, const std::vector<bool>& followed) : g(std::move(ops)), y(add_op(g, *g.ops().find(def.name), c)) {
    std::vector<Value> terms;
    for (std::size_t k = 0; k < c.outputs.size(); ++k) {
      if (!followed[k]) continue;
      Value w = g.add("input", {}, {{"dtype", f64}, {"shape", c.outputs[k].shape}}, "weights" + std::to_string(k));
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
std::vector<bool> followed_outputs(const std::shared_ptr<const OpSet>& ops, const OpDef& def, const OpCase& c) {
  std::vector<bool> out(c.outputs.size());
  out[0] = true;
  for (std::size_t k = 1; k < out.size(); ++k) {
    if (c.outputs[k].dtype != f64) continue;
    out[k] = true;
    try {
      WeighedOp(ops, def, c, out);
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()), "[" + def.name + "] output '" + def.outputs[k].name + "' of 'under_test' has no gradient, but a loss reads it");
      out[k] = false;
    }
  }
  return out;
}

}  // namespace

std::vector<HostTensor> draw_all(const OpCase& c, std::int64_t batch, bool dyadic, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<HostTensor> out;
  for (const CaseInput& i : c.inputs) out.push_back(draw(i, batch, dyadic, rng));
  return out;
}

OpCase in_f64(const OpDef& def, const OpCase& c) {
  if (c.keep_dtypes) return c;
  OpCase out = c;
  for (CaseInput& i : out.inputs) i.type = in_f64(i.type);
  for (TensorType& t : out.outputs) t = in_f64(t);
  for (const AttributeDef& a : def.attributes) {
    const AttributeValue* value = c.attributes.find(a.name);
    if (value ? *value == AttributeValue(f32) : a.fallback == AttributeValue(f32)) out.attributes.set(a.name, f64);
  }
  return out;
}

HostTensor draw(const CaseInput& input, std::int64_t batch, bool dyadic, std::mt19937_64& rng) {
  HostTensor out(input.type.dtype, extents_of(input.type.shape, batch));
  std::uniform_real_distribution<double> real(input.low, input.high);
  auto one = [&]() -> double {
    if (input.below != Dim(0)) return static_cast<double>(rng() % static_cast<std::uint64_t>(input.below.at(batch)));
    if (input.type.dtype == boolean) return static_cast<double>(rng() % 2);
    if (!is_float(input.type.dtype) && !is_half(input.type.dtype)) return std::round(real(rng));
    if (!dyadic) return real(rng);
    if (input.power_of_two) return std::ldexp(1.0, static_cast<int>(rng() % 3) - 1);
    return std::ceil(input.low * 4 + static_cast<double>(rng() % static_cast<std::uint64_t>((input.high - input.low) * 4))) / 4;
  };
  visit_stored(out.dtype(), [&]<class T>() {
    for (T& x : out.data<T>()) x = static_cast<T>(one());
  });
  return out;
}

std::vector<const HostTensor*> pointers(const OpCase& c, const std::vector<HostTensor>& tensors) {
  std::vector<const HostTensor*> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) out.push_back(c.inputs[i].given ? &tensors[i] : nullptr);
  return out;
}

std::vector<HostTensor> run_op(const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, std::int64_t batch) {
  std::vector<LocalType> local;
  for (const TensorType& t : c.outputs) local.push_back({t.dtype, extents_of(t.shape, batch)});
  return evaluate(def, checked(def.attributes, c.attributes, def.name), pointers(c, inputs), c.outputs, local, Share{0, batch, batch, 1, Combine::global_mean});
}

double distance(const HostTensor& a, const HostTensor& b) {
  auto real = [](const HostTensor& t) { return is_float(t.dtype()) || is_half(t.dtype()); };
  if (a.shape() != b.shape() || real(a) != real(b)) return std::numeric_limits<double>::infinity();
  HostTensor x = converted(a, f64), y = converted(b, f64);
  double worst = 0;
  for (std::size_t i = 0; i < x.data<double>().size(); ++i) {
    double p = x.data<double>()[i], q = y.data<double>()[i], d = std::abs(p - q) / (1 + std::abs(q));
    if (!(p == q) && !(d <= worst)) worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return worst;
}

void check_inference(const OpDef& def, const std::vector<OpCase>& cases) {
  auto ops = ops_with(def);
  for (const OpCase& given : cases) {
    for (const OpCase& c : {given, in_f64(def, given)}) {
      SCOPED_TRACE(def.name + ": " + c.name);
      Graph g(ops);
      try {
        Value y = add_op(g, *ops->find(def.name), c);
        EXPECT_EQ(g.node(y.id.node).types, c.outputs) << to_string(y.type());
      } catch (const UserError& e) {
        ADD_FAILURE() << e.what();
      }
    }
    for (const Refusal& r : given.refused) {
      SCOPED_TRACE(def.name + ": " + given.name + ", refusal with '" + (r.words.empty() ? "" : r.words[0]) + "'");
      Graph g(ops);
      Attributes attributes = given.attributes;
      for (const auto& [name, value] : r.attributes.entries()) attributes.set(name, value);
      try {
        g.add(*ops->find(def.name), add_inputs(g, r.inputs), attributes, "under_test");
        ADD_FAILURE() << "was accepted";
      } catch (const UserError& e) {
        std::string text = e.what();
        EXPECT_NE(text.find("[" + def.name + "]"), text.npos) << text;
        EXPECT_NE(text.find("under_test"), text.npos) << text;
        for (const std::string& word : r.words) EXPECT_NE(text.find(word), text.npos) << text;
      }
    }
  }
}

void check_precision(const OpDef& def, const std::vector<OpCase>& cases) {
  for (const OpCase& c : cases) {
    if (!c.no_reference.empty() || c.keep_dtypes) continue;
    SCOPED_TRACE(def.name + ": " + c.name);
    OpCase wide = in_f64(def, c);
    for (std::int64_t batch : {std::int64_t{1}, kRows}) {
      std::vector<HostTensor> narrow = draw_all(c, batch, false, 7), same;
      for (std::size_t i = 0; i < narrow.size(); ++i) same.push_back(converted(narrow[i], wide.inputs[i].type.dtype));
      auto small = run_op(def, c, narrow, batch), exact = run_op(def, wide, same, batch);
      for (std::size_t k = 0; k < small.size(); ++k) {
        if (is_float(small[k].dtype())) EXPECT_LE(distance(small[k], exact[k]), c.tolerance) << "output " << k;
        else EXPECT_EQ(distance(small[k], exact[k]), 0) << "output " << k;
      }
    }
  }
}

void check_gradient(const OpDef& def, const std::vector<OpCase>& cases) {
  if (!def.differentiable()) {
    EXPECT_FALSE(def.gradient.no_gradient_reason.empty()) << def.name << " has no gradient and does not say why";
    return;
  }
  auto ops = ops_with(def);
  int compared = 0;
  for (const OpCase& given : cases) {
    OpCase c = in_f64(def, given);
    if (!c.no_reference.empty() || !c.no_gradient_check.empty() || c.outputs[0].dtype != f64) continue;
    SCOPED_TRACE(def.name + ": " + c.name);
    const std::vector<bool> followed = followed_outputs(ops, def, c);
    WeighedOp op(ops, def, c, followed);
    if (op.wanted.empty()) continue;
    std::vector<HostTensor> inputs = draw_all(c, kRows, false, 11), weights(c.outputs.size(), HostTensor(f64, {0}));
    std::mt19937_64 rng(13);
    Tensors feeds;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      if (!followed[k]) continue;
      weights[k] = draw({c.outputs[k]}, kRows, false, rng);
      feeds.emplace("weights" + std::to_string(k), weights[k]);
    }
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      if (c.inputs[i].given) feeds.emplace(op.g.node(op.g.node(op.y.id.node).inputs[i].node).name, inputs[i]);
    std::vector<std::pair<std::string, ValueId>> fetches;
    for (std::size_t i = 0; i < op.found.size(); ++i)
      if (op.found[i]) fetches.emplace_back(std::to_string(i), op.found[i].id);
    Result r = run_whole(op.g, feeds, {}, kRows, fetches);
    for (std::size_t i = 0; i < op.found.size(); ++i) {
      HostTensor& x = inputs[op.which[i]];
      HostTensor slopes(f64, x.shape());  // no gradient stands for zero
      for (std::size_t e = 0; e < x.data<double>().size(); ++e) {
        double before = x.data<double>()[e], h = 1e-5;
        x.data<double>()[e] = before + h;
        double above = weighted(run_op(def, c, inputs, kRows), weights);
        x.data<double>()[e] = before - h;
        double under = weighted(run_op(def, c, inputs, kRows), weights);
        x.data<double>()[e] = before;
        slopes.data<double>()[e] = (above - under) / (2 * h);
      }
      HostTensor built = op.found[i] ? r.fetched.at(std::to_string(i)) : HostTensor(f64, x.shape());
      EXPECT_LE(distance(built, slopes), c.gradient_tolerance) << "input " << op.which[i];
      ++compared;
    }
  }
  for (const OpCase& c : cases)
    if (!c.no_gradient_check.empty()) return;
  EXPECT_GT(compared, 0) << def.name << " has a gradient, but no case checks it";
}

void check_in_place(const OpDef& def, const std::vector<OpCase>& cases) {
  for (const OpCase& c : cases) {
    if (!c.no_reference.empty()) continue;
    SCOPED_TRACE(def.name + ": " + c.name);
    std::vector<HostTensor> inputs = draw_all(c, kRows, false, 17);
    auto apart = run_op(def, c, inputs, kRows);
    Attributes attributes = checked(def.attributes, c.attributes, def.name);
    for (auto [k, i] : def.in_place) {
      auto at = static_cast<std::size_t>(i);
      std::vector<HostTensor> mine = inputs, out = apart;
      if (at >= mine.size() || mine[at].type() != out[static_cast<std::size_t>(k)].type()) continue;
      std::vector<ConstView> in;
      for (std::size_t j = 0; j < mine.size(); ++j) in.push_back(c.inputs[j].given ? ConstView{mine[j].type(), mine[j].raw()} : ConstView{{f32, {0}}, nullptr});
      std::vector<View> views;
      for (HostTensor& t : out) views.push_back({t.type(), t.raw()});
      views[static_cast<std::size_t>(k)].data = mine[at].raw();
      def.reference(Call{attributes, in, views, c.outputs, Share{0, kRows, kRows, 1, Combine::global_mean}});
      out[static_cast<std::size_t>(k)] = mine[at];
      for (std::size_t j = 0; j < out.size(); ++j) EXPECT_EQ(out[j], apart[j]) << "output " << k << " on the bytes of input " << i;
    }
  }
}

void check_op(const OpDef& def, const std::vector<OpCase>& cases) {
  check_inference(def, cases);
  check_precision(def, cases);
  check_gradient(def, cases);
  check_in_place(def, cases);
  check_split(def, cases);
  check_expanded(def, cases);
}

}  // namespace belfry::test
