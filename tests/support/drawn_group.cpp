#include "drawn_group.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include <belfry/graph/structural.h>
#include <belfry/ops/fusions.h>

#include "op_case.h"

namespace belfry::test {

std::vector<std::vector<std::string>> groups_with_elementwise(const Graph& g) {
  std::vector<std::vector<std::string>> out;
  for (const FusionGroup& group : find_gpu_groups(g)) {
    if (group.kind != kWithElementwise) continue;
    out.emplace_back();
    for (NodeId id : group.members) out.back().push_back(g.node(id).op->name);
  }
  return out;
}

DrawnGroup::DrawnGroup(const Graph& graph, const FusionGroup& of, std::int64_t rows) : g(graph), group(of), share{0, rows, rows, 1} {
  std::mt19937_64 rng(7);
  request.op = group.kind;
  static const Attributes none;
  request.attributes = &none;
  request.share = share;
  for (auto m = group.members.begin(); m != group.members.end(); ++m)
    for (std::size_t i = 0; i < g.node(*m).inputs.size(); ++i) {
      const ValueId v = g.node(*m).inputs[i];
      if (std::find(group.members.begin(), m, v.node) != m) continue;
      const bool given = v.valid() && !reads_shape_only(g.node(*m), i);
      inputs.push_back(given ? draw({g.type(v), v.output == 2 ? 0.5 : -2, 2}, rows, false, rng) : HostTensor(f32, {0}));
      request.inputs.push_back(inputs.back().type());
    }
  for (ValueId v : values_of(g, group)) {
    request.outputs.push_back(local_type(g.type(v), rows));
    request.output_types.push_back(g.type(v));
    request.wanted.push_back(true);
  }
  describe_members(g, group, request);
}

std::vector<HostTensor> DrawnGroup::run(Prepared& kernel, std::int64_t scratch_bytes, std::size_t past, int over, std::size_t which) const {
  std::vector<HostTensor> out;
  std::vector<std::vector<std::byte, AlignedAllocator<std::byte>>> memory;
  auto at = [&](const HostTensor& t) { return memory.emplace_back(t.bytes().size() + 32).data() + past * size_of(t.dtype()); };
  Arguments a;
  for (const HostTensor& t : inputs) {
    std::byte* to = at(t);
    std::copy(t.bytes().begin(), t.bytes().end(), to);
    a.inputs.push_back(t.elements() ? to : nullptr);
  }
  for (std::size_t k = 0; k < request.outputs.size(); ++k) {
    out.emplace_back(request.outputs[k].dtype, request.outputs[k].shape);
    a.outputs.push_back(request.wanted[k] ? at(out.back()) : nullptr);
  }
  HostTensor scratch(u8, {scratch_bytes});
  a.scratch = scratch.raw();
  if (over >= 0) a.outputs[which] = const_cast<std::byte*>(a.inputs[static_cast<std::size_t>(over)]);
  kernel.launch(a);
  for (std::size_t k = 0; k < out.size(); ++k)
    if (request.wanted[k]) std::copy_n(a.outputs[k], out[k].bytes().size(), out[k].raw());
  return out;
}

std::vector<DrawnGroup::Alone> DrawnGroup::own_kernels(const KernelTable& table) const {
  std::vector<Alone> out;
  std::map<ValueId, LocalType> made;
  std::size_t next = 0;
  for (NodeId id : group.members) {
    const Node& n = g.node(id);
    KernelRequest r;
    r.op = n.op->name;
    r.def = n.op;
    r.attributes = &n.attributes;
    r.share = share;
    for (ValueId v : n.inputs) r.inputs.push_back(made.contains(v) ? made.at(v) : inputs.at(next++).type());
    for (std::size_t k = 0; k < n.types.size(); ++k) {
      r.outputs.push_back(local_type(n.types[k], share.rows));
      r.wanted.push_back(true);
      made.emplace(ValueId{id, static_cast<std::int32_t>(k)}, r.outputs.back());
    }
    r.output_types = n.types;
    const auto choice = table.choose(r);
    auto kernel = table.prepare(choice.name, r, {choice.support.scratch_bytes, false});
    out.push_back({std::move(r), std::move(kernel), choice.support.scratch_bytes});
  }
  return out;
}

std::vector<HostTensor> DrawnGroup::on_host(const Alone& k, std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> out;
  Arguments a;
  for (HostTensor& t : inputs) a.inputs.push_back(t.elements() ? t.raw() : nullptr);
  for (const LocalType& t : k.request.outputs) out.emplace_back(t.dtype, t.shape);
  for (HostTensor& t : out) a.outputs.push_back(t.raw());
  HostTensor scratch(u8, {k.scratch_bytes});
  a.scratch = scratch.raw();
  k.kernel->launch(a);
  return out;
}

std::vector<HostTensor> DrawnGroup::one_by_one(const std::vector<Alone>& kernels, const Launched& launched) const {
  std::map<ValueId, HostTensor> made;
  std::size_t next = 0;
  for (std::size_t m = 0; m < group.members.size(); ++m) {
    const Node& n = g.node(group.members[m]);
    std::vector<HostTensor> in;
    for (ValueId v : n.inputs) in.push_back(made.contains(v) ? made.at(v) : inputs.at(next++));
    std::vector<HostTensor> out = launched(kernels[m], in);
    for (std::size_t k = 0; k < out.size(); ++k) made.emplace(ValueId{group.members[m], static_cast<std::int32_t>(k)}, std::move(out[k]));
  }
  std::vector<HostTensor> out;
  for (ValueId v : values_of(g, group)) out.push_back(made.at(v));
  return out;
}

std::vector<HostTensor> DrawnGroup::one_by_one(const KernelTable& table, const std::function<void()>& build) const {
  const std::vector<Alone> kernels = own_kernels(table);
  if (build) build();
  return one_by_one(kernels);
}

}  // namespace belfry::test
