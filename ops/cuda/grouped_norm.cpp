#include <belfry/ops/cuda/grouped_norm_internal.h>

#include <fmt/format.h>

#include <belfry/graph/fusion_group.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/row_sums.h>

namespace belfry {

GroupedNorm::GroupedNorm(const KernelRequest& r, bool fed) : own(r) {
  if (r.members.empty()) return;
  tree = r.members.size() > 1;
  fed = fed && tree;
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
  fed = fed && r.members.size() > 1;
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

GradientOutputs::GradientOutputs(const KernelRequest& r, bool fed) : rest(r) {
  if (r.members.empty()) return;
  rest.members.clear(), rest.inner.clear(), rest.places.clear();
  for (std::size_t m = 0; m < r.members.size() && m < r.places.size() && m < r.inner.size(); ++m) {
    if (is_sum_aside(*r.members[m]->op)) sum = m;
    else if (sum) halves = m;
    else rest.members.push_back(r.members[m]), rest.inner.push_back(r.inner[m]), rest.places.push_back(r.places[m]);
  }
  if (rest.places.empty()) return;
  const std::vector<std::ptrdiff_t>& core = fed ? rest.places.back() : rest.places.front();
  if (core.size() == 3) made = rest.places.back()[0], dgamma = core[1], dbeta = core[2];
  if (fed && rest.places.size() > 1) dy = rest.places[rest.places.size() - 2][0];
}

std::string GradientOutputs::objection(const KernelRequest& r, bool (*adds)(const TensorType&)) const {
  for (std::size_t m = 0; m + 1 < rest.places.size(); ++m)
    if (rest.places[m][0] >= 0 && rest.places[m][0] != dy) return "it keeps what its tree reads, or makes on the way";
  if (!sum) return made < 0 ? "nobody has what it makes" : "";
  for (const std::optional<std::size_t>& beside : {sum, halves})
    if (beside && r.places[*beside][0] < 0) return "what stands beside stays inside";
  const std::string& of = rest.members.back()->name;
  const TensorType& type = rest.members.back()->types[0];
  if (r.members.size() != rest.members.size() + 1 + (halves ? 1 : 0) || r.inner[*sum] != std::vector<std::string>{of}) return "its sum does not read what the members before make alone";
  if (!adds(type) || !is_sum_of_rows(*r.members[*sum], type)) return "its sum is not over all axes but a last as wide as threads have room for";
  if (!halves) return "";
  const Node& cast = *r.members[*halves];
  return cast.op->name == kCast && r.inner[*halves] == std::vector<std::string>{of} && type.dtype == DType::f32 && is_half(cast.types[0].dtype) ? "" : "what stands behind its sum is no cast of what they make to halves";
}

std::vector<std::size_t> GradientOutputs::name(Generated& g, const KernelRequest& r) const {
  std::vector<std::size_t> out;
  auto place = [&](const char* name, std::ptrdiff_t at) { g.head(fmt::format("#define {} {}", name, wanted(at) ? fmt::format("a.out[{}]", at) : "((void*)0)")); };
  g.head(fmt::format("#define HAS_MADE {}", wanted(made) ? 1 : 0));
  place("MADE", made), place("DGAMMA", dgamma), place("DBETA", dbeta);
  if (wanted(made)) out.push_back(static_cast<std::size_t>(made));
  auto beside = [&](const char* name, const std::optional<std::size_t>& member, const char* type, const char* to) {
    g.head(fmt::format("#define {} {}", name, member ? 1 : 0));
    if (!member) return;
    const auto at = static_cast<std::size_t>(r.places[*member][0]);
    g.type(type, r.outputs[at].dtype).head(fmt::format("#define {} a.out[{}]", to, at));
    if (member == halves) out.push_back(at);
  };
  beside("ADDED", sum, "Y", "ADDED_TO"), beside("AS_HALVES", halves, "H", "HALVES");
  return out;
}

}  // namespace belfry
