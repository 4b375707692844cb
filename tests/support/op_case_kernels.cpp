#include "op_case.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <belfry/graph/halves.h>
#include <belfry/ops/all_ops.h>

namespace belfry::test {

OpCase in_halves(const OpDef& def, const OpCase& c, DType half) {
  OpCase out = c;
  auto narrow = [&](TensorType& t, bool wide) {
    if (t.dtype == f32 && !wide) t.dtype = half;
  };
  for (std::size_t i = 0; i < out.inputs.size(); ++i) narrow(out.inputs[i].type, !may_be_half(def, i));
  for (std::size_t k = 0; k < out.outputs.size(); ++k) narrow(out.outputs[k], def.outputs[k].wide);
  // Two results that differ before they are rounded may come out one place apart: what epsilon is of a half.
  out.tolerance = std::max(c.tolerance, half == bf16 ? 0x1p-7 : 0x1p-10);
  out.name += std::string(" in ") + std::string(name_of(half));
  return out;
}

namespace {

/// One kernel on one request; output `k` on the bytes of input `i` where they are given.
std::vector<HostTensor> launch(const KernelTable& table, const std::string& name, const KernelRequest& request, std::int64_t scratch_bytes, const OpCase& c,
                               std::vector<HostTensor> inputs, std::pair<int, int> alias = {-1, -1}) {
  HostTensor scratch(u8, {scratch_bytes});
  std::vector<HostTensor> out;
  for (const LocalType& t : request.outputs) out.emplace_back(t.dtype, t.shape);
  // Memory of a plan is reused: what lies in outputs and scratch before a launch is anything.
  std::fill_n(scratch.raw(), scratch.bytes().size(), std::byte{0xA5});
  for (HostTensor& t : out) std::fill_n(t.raw(), t.bytes().size(), std::byte{0xA5});
  Arguments a;
  for (std::size_t i = 0; i < inputs.size(); ++i) a.inputs.push_back(c.inputs[i].given ? inputs[i].raw() : nullptr);
  for (std::size_t o = 0; o < out.size(); ++o) a.outputs.push_back(request.wanted[o] ? out[o].raw() : nullptr);
  a.scratch = scratch.raw();
  auto [k, i] = alias;
  if (k >= 0) a.outputs[static_cast<std::size_t>(k)] = inputs[static_cast<std::size_t>(i)].raw();
  table.prepare(name, request, {scratch_bytes, k >= 0})->launch(a);
  if (k >= 0) out[static_cast<std::size_t>(k)] = inputs[static_cast<std::size_t>(i)];
  return out;
}

/// Every kernel that accepts the case, against what is wanted; an empty tensor is any.
int compare_kernels(const KernelTable& kernels, const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& wanted, std::int64_t batch) {
  int runs = 0;
  Attributes attributes = checked(def.attributes, c.attributes, def.name);
  bool optional = std::any_of(def.outputs.begin(), def.outputs.end(), [](const OutputDef& o) { return o.optional; });
  for (auto [threads, all_read] : {std::pair{1, true}, {2, true}, {optional ? 2 : 0, false}}) {
    if (threads == 0) continue;
    KernelRequest r;
    r.op = def.name;
    r.def = &def;
    r.attributes = &attributes;
    r.output_types = c.outputs;
    for (const OutputDef& o : def.outputs) r.wanted.push_back(all_read || !o.optional);
    r.threads = threads;
    r.share = Share{0, batch, batch, 1, Combine::global_mean};
    for (std::size_t i = 0; i < inputs.size(); ++i) r.inputs.push_back(c.inputs[i].given ? inputs[i].type() : LocalType{f32, {0}});
    for (const TensorType& t : c.outputs) r.outputs.push_back({t.dtype, extents_of(t.shape, batch)});
    for (const Kernel& k : kernels.all()) {
      if (k.op != def.name) continue;
      Support s = k.supports(r);
      if (!s.ok) {
        EXPECT_FALSE(s.reason.empty()) << k.name << " refuses without a reason";
        continue;
      }
      SCOPED_TRACE(def.name + ": " + c.name + ", kernel " + k.name + ", " + std::to_string(threads) + " threads, batch " + std::to_string(batch));
      std::vector<std::pair<int, int>> aliases = {{-1, -1}};
      if (s.in_place)
        for (auto [o, i] : def.in_place)
          if (inputs[static_cast<std::size_t>(i)].type() == r.outputs[static_cast<std::size_t>(o)]) aliases.emplace_back(o, i);
      for (auto alias : aliases) {
        auto got = launch(kernels, k.name, r, s.scratch_bytes, c, inputs, alias);
        for (std::size_t o = 0; o < got.size(); ++o) {
          if (!r.wanted[o] || (wanted[o].bytes().empty() && !got[o].bytes().empty())) continue;
          if (def.exact || !(is_float(got[o].dtype()) || is_half(got[o].dtype()))) EXPECT_EQ(got[o], wanted[o]) << "output " << o << ", aliased " << alias.first << " on " << alias.second;
          else EXPECT_LE(distance(got[o], wanted[o]), c.tolerance) << "output " << o << ", aliased " << alias.first << " on " << alias.second;
        }
        ++runs;
      }
    }
  }
  return runs;
}

}  // namespace

int check_halves(const KernelTable& kernels, const OpDef& def, const std::vector<OpCase>& cases) {
  int runs = 0, left = 3;
  if (def.stores || def.precision == Precision::full) return 0;
  auto ops = std::make_shared<const OpSet>(standard_ops());
  for (const OpCase& given : cases) {
    const bool real = std::any_of(given.inputs.begin(), given.inputs.end(), [](const CaseInput& i) { return i.given && i.type.dtype == f32; });
    if (!given.no_reference.empty() || given.keep_dtypes || !real || left == 0) continue;
    --left;
    for (DType half : {bf16, f16}) {
      const OpCase c = in_halves(def, given, half);
      SCOPED_TRACE(def.name + ": " + c.name);
      Graph g(ops);
      std::vector<Value> values;
      for (const CaseInput& i : c.inputs) values.push_back(i.given ? g.add("input", {}, {{"dtype", i.type.dtype}, {"shape", i.type.shape}}) : Value{});
      EXPECT_EQ(g.node(g.add(def.name, values, c.attributes).id.node).types, c.outputs);
      std::vector<HostTensor> inputs = draw_all(c, 3, false, 29), wide;
      for (const HostTensor& x : inputs) wide.push_back(is_half(x.dtype()) ? converted(x, f32) : x);
      // What halves mean: the op of f32 on what they hold, rounded once.
      std::vector<HostTensor> wanted = run_op(def, given, wide, 3);
      for (std::size_t k = 0; k < wanted.size(); ++k) wanted[k] = converted(wanted[k], c.outputs[k].dtype);
      EXPECT_EQ(run_op(def, c, inputs, 3), wanted);
      const int here = compare_kernels(kernels, def, c, inputs, wanted, 3), full = compare_kernels(kernels, def, given, wide, run_op(def, given, wide, 3), 3);
      EXPECT_EQ(here > 0, full > 0) << "a kernel of f32 is left out, and the reference would run";
      runs += here;
    }
  }
  return runs;
}

int check_kernels(const KernelTable& kernels, const OpDef& def, const std::vector<OpCase>& cases) {
  int runs = 0;
  for (const OpCase& given : cases) {
    if (!given.no_reference.empty()) continue;
    for (const OpCase& c : {given, in_f64(def, given)}) {
      for (std::int64_t batch : {1, 3, 8}) {
        std::vector<HostTensor> inputs = draw_all(c, batch, false, 23);
        runs += compare_kernels(kernels, def, c, inputs, run_op(def, c, inputs, batch), batch);
      }
    }
  }
  return runs;
}

int check_given(const KernelTable& kernels, const OpDef& def, const OpCase& given, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& wanted) {
  int runs = 0;
  for (const OpCase& c : {given, in_f64(def, given)}) {
    SCOPED_TRACE(def.name + ": " + c.name);
    std::vector<HostTensor> in, out;
    for (std::size_t i = 0; i < inputs.size(); ++i) in.push_back(converted(inputs[i], c.inputs[i].type.dtype));
    for (std::size_t k = 0; k < wanted.size(); ++k) out.push_back(converted(wanted[k], c.outputs[k].dtype));
    auto got = run_op(def, c, in, 1);
    for (std::size_t k = 0; k < got.size(); ++k) {
      if (wanted[k].bytes().empty()) continue;
      EXPECT_LE(distance(got[k], out[k]), c.tolerance) << "output " << k << " of the reference";
    }
    runs += compare_kernels(kernels, def, c, in, out, 1);
  }
  return runs;
}

}  // namespace belfry::test
