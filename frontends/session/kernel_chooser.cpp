#include <belfry/frontends/session/kernel_chooser.h>

#include <fmt/format.h>

namespace belfry {

namespace {

/// What Program asks for when it prepares the node, the share aside: a choice depends on local types alone.
KernelRequest request_of(const KernelQuery& q) {
  const PlanNode& n = q.node;
  KernelRequest r;
  r.op = n.op == kFused ? n.attributes.text("kind") : n.op;
  r.def = n.def;
  r.attributes = &n.attributes;
  r.inputs = q.inputs;
  for (std::size_t i = 0; i < n.inputs.size(); ++i)
    if (n.inputs[i] < 0) r.inputs[i] = {f32, {0}};
  r.outputs = q.outputs;
  for (ValueIndex v : n.outputs) {
    r.output_types.push_back(q.graph.value(v).type);
    r.wanted.push_back(q.graph.value(v).read);
  }
  if (n.op == kFused) {
    std::vector<NodeId> members;
    for (const Member& m : n.members) members.push_back(m.node);
    describe_members(*q.graph.graph, members, r);
  }
  r.threads = q.threads;
  return r;
}

}  // namespace

KernelChooser chooser(const KernelTables& tables) {
  return [tables](const KernelQuery& q) -> KernelChoice {
    auto table = tables.find(q.device_kind);
    if (table == tables.end()) throw UserError(fmt::format("[{}] '{}' is placed on a device of kind '{}', for which there are no kernels; move it with --move", q.node.op, q.node.name, q.device_kind));
    KernelTable::Choice choice = table->second.choose(request_of(q));
    return {choice.name, choice.support.scratch_bytes, choice.support.in_place};
  };
}

}  // namespace belfry
