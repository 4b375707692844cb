#include <belfry/ops/cuda/grouped_norm_internal.h>

#include <fmt/format.h>

#include <belfry/graph/fusion_group.h>
#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {

GroupedNorm::GroupedNorm(const KernelRequest& r, bool fed) : own(r) {
  if (r.members.empty()) return;
  core = fed ? r.members.back() : r.members.front();
  const std::size_t read = core->inputs.size() - (fed ? 1 : 0);  // what the tree makes stays inside
  if (fed) first = r.inputs.size() - read;
  for (std::size_t i = 0; i < r.inputs.size(); ++i)
    if (i < first || i >= first + read) others.push_back(i);
  own.op = core->op->name;
  own.def = core->op;
  own.attributes = &core->attributes;
  own.inputs.assign(r.inputs.begin() + static_cast<std::ptrdiff_t>(first), r.inputs.begin() + static_cast<std::ptrdiff_t>(first + read));
  if (fed) own.inputs.push_back(own.inputs[0]);
}

Support takes_group_of(std::string_view op, bool fed, const KernelRequest& r, const KernelTable& table) {
  if (r.members.empty() || r.inner.size() != r.members.size() || (fed ? r.members.back() : r.members.front())->op->name != op) return refuse(fmt::format("its {} member is no {}", fed ? "last" : "first", op));
  const std::vector<std::string>& inner = fed ? r.inner.back() : r.inner.front();
  for (std::size_t i = 0; i < inner.size(); ++i)
    if (inner[i] != (fed && i + 1 == inner.size() ? r.members[r.members.size() - 2]->name : "")) return refuse("its norm reads other values than a dy that the rest makes");
  const GroupedNorm n(r, fed);
  for (const Node* m : r.members)
    if (m != n.core && (!fits_trees(*m->op) || m->types[0] != n.core->types[0])) return refuse("its members are not all elementwise, of the norm's type");
  for (std::size_t i : n.others)
    if (r.inputs[i].dtype != n.own.inputs[0].dtype || r.inputs[i].shape != n.own.inputs[0].shape) return refuse(fmt::format("input {} has not the type of x", i));
  return has_expressions(r, table, n.core);
}

}  // namespace belfry
