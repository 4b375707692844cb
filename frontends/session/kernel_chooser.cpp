#include <belfry/frontends/session/kernel_chooser.h>

#include <belfry/graph/structural.h>

namespace belfry {

KernelChooser chooser(const KernelTables& tables) {
  return [&tables](const KernelQuery& q) -> KernelChoice {
    auto table = tables.find(q.device_kind);
    if (table == tables.end()) throw UserError("there are no kernels for devices of kind '" + q.device_kind + "'");
    KernelRequest r;
    r.op = q.node.op == kFused ? q.node.attributes.text("kind") : q.node.op;
    r.def = q.node.def;
    r.attributes = &q.node.attributes;
    r.inputs = q.inputs;
    r.outputs = q.outputs;
    for (ValueIndex v : q.node.outputs) {
      r.output_types.push_back(q.graph.value(v).type);
      r.wanted.push_back(q.graph.value(v).read);
    }
    std::vector<NodeId> members;
    for (const Member& m : q.node.members) members.push_back(m.node);
    if (q.node.op == kFused) describe_members(*q.graph.graph, members, r);
    r.threads = q.threads;
    KernelTable::Choice c = table->second.choose(r);
    return {c.name, c.support.scratch_bytes, c.support.in_place};
  };
}

}  // namespace belfry
