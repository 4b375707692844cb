#include <belfry/graph/plan/tower_graph.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/fusion_group.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

template <class Enum, std::size_t N>
Enum parse_enum(std::string_view text, const std::array<const char*, N>& names, const char* what) {
  for (std::size_t i = 0; i < N; ++i)
    if (text == names[i]) return static_cast<Enum>(i);
  throw UserError(fmt::format("{} is '{}'; it can be {}", what, text, fmt::join(names, ", ")));
}

constexpr std::array kScopes{"state", "shared", "device", "tower"};
constexpr std::array kRelations{"own", "shared", "local", "towers", "every", "readers"};
constexpr std::array kRegions{"none", "state", "region", "kept", "transient", "feed"};

}  // namespace

std::string to_string(Scope scope) { return kScopes[static_cast<std::size_t>(scope)]; }
Scope parse_scope(std::string_view text) { return parse_enum<Scope>(text, kScopes, "scope"); }
std::string to_string(Wait::Relation r) { return kRelations[static_cast<std::size_t>(r)]; }
Wait::Relation parse_relation(std::string_view text) { return parse_enum<Wait::Relation>(text, kRelations, "the relation of a wait"); }
std::string to_string(Slot::Region r) { return kRegions[static_cast<std::size_t>(r)]; }
Slot::Region parse_region(std::string_view text) { return parse_enum<Slot::Region>(text, kRegions, "a region"); }

Share TowerGraph::share(int t) const {
  if (t < 0) return {0, batch, batch, present(), combine};
  Range r = share_of(batch, towers, t);
  return {r.first, r.count(), batch, present(), combine};
}

bool is_nondeterministic(const PlanNode& n) {
  auto differs = [](const Variant& v) { return v.kernel.find(kNondeterministic) != v.kernel.npos; };
  return std::any_of(n.by_class.begin(), n.by_class.end(), differs) || std::any_of(n.by_group.begin(), n.by_group.end(), differs);
}

std::optional<FusionGroup> group_of(const TowerGraph& graph, const PlanNode& n) {
  const AttributeValue* kind = n.op == kFused ? n.attributes.find("kind") : nullptr;
  if (!kind || kind->kind() != AttributeKind::text || n.members.empty()) return {};
  FusionGroup out{n.attributes.text("kind"), {}, {}};
  for (const Member& m : n.members) {
    if (m.node < 0 || m.node >= graph.graph->size()) return {};
    out.members.push_back(m.node);
    if (m.kept) out.kept.push_back(m.node);
  }
  return out;
}

bool is_tree(const TowerGraph& graph, const PlanNode& n) {
  const std::optional<FusionGroup> group = group_of(graph, n);
  return group && is_tree(*graph.graph, *group);
}

bool has_bits_of_members(const TowerGraph& graph, const PlanNode& n) {
  const std::optional<FusionGroup> group = group_of(graph, n);
  return group && has_bits_of_members(*graph.graph, *group);
}

std::vector<ValueId> values_of(const TowerGraph& graph, const PlanNode& n) {
  if (const std::optional<FusionGroup> group = group_of(graph, n)) return values_of(*graph.graph, *group);
  std::vector<ValueId> out;
  for (std::size_t k = 0; k < graph.graph->node(n.user).types.size(); ++k) out.push_back({n.user, static_cast<std::int32_t>(k)});
  return out;
}

bool is_optional(const TowerGraph& graph, const PlanNode& n, std::size_t output) {
  const OpDef* def = n.def;
  if (const std::optional<FusionGroup> group = def ? std::nullopt : group_of(graph, n)) {
    const std::vector<ValueId> values = values_of(*graph.graph, *group);
    if (output >= values.size()) return false;
    def = graph.graph->node(values[output].node).op;
    output = static_cast<std::size_t>(values[output].output);
  }
  return def && !def->outputs.empty() && def->outputs[std::min(output, def->outputs.size() - 1)].optional;
}

std::vector<std::pair<int, int>> in_place_pairs(const TowerGraph& graph, const PlanNode& n) {
  if (n.def) return n.def->in_place;
  std::vector<std::pair<int, int>> out;
  if (!has_bits_of_members(graph, n)) return out;
  const bool tree = is_tree(graph, n) && n.outputs.size() == 1;  // which reads an element before it writes it, whoever runs it
  const std::vector<ValueId> made = values_of(graph, n);
  // Who runs it in turn writes what the first member behind an input gives that is no sum; what is read by others, too, is read behind that.
  auto written = [&](std::vector<Member>::const_iterator m) {
    while (m != n.members.end() && (is_sum_aside(*graph.graph->node(m->node).op) || std::find(made.begin(), made.end(), ValueId{m->node, 0}) == made.end())) ++m;
    return m == n.members.end() ? made.size() : static_cast<std::size_t>(std::find(made.begin(), made.end(), ValueId{m->node, 0}) - made.begin());
  };
  // A product, or a convolution, has yet to read for others what goes into it by one tree.
  const auto product = std::find_if(n.members.begin(), n.members.end(), [&](const Member& m) { return graph.graph->node(m.node).op->precision == Precision::low; });
  int next = 0;
  for (auto m = n.members.begin(); m != n.members.end(); ++m) {
    const Node& member = graph.graph->node(m->node);
    const bool before = product != n.members.end() && m < product;
    for (std::size_t i = 0; i < member.inputs.size(); ++i) {
      if (std::any_of(n.members.begin(), m, [&](const Member& earlier) { return earlier.node == member.inputs[i].node; })) continue;
      const bool may = !before && std::find(member.op->in_place.begin(), member.op->in_place.end(), std::pair(0, static_cast<int>(i))) != member.op->in_place.end();
      const bool twice = next < static_cast<int>(n.inputs.size()) && std::count(n.inputs.begin(), n.inputs.end(), n.inputs[static_cast<std::size_t>(next)]) > 1;
      const std::size_t to = may && member.inputs[i].valid() && (tree || !twice) ? written(m) : made.size();
      if (to < made.size() && to < n.outputs.size() && graph.graph->type(member.inputs[i]) == graph.value(n.outputs[to]).type) out.emplace_back(static_cast<int>(to), next);
      ++next;
    }
  }
  return out;
}

std::int64_t local_bytes(const PlanValue& value, const Share& share) {
  auto out = static_cast<std::int64_t>(size_of(value.type.dtype));
  for (std::size_t i = 0; i < value.type.shape.size(); ++i)
    if (__builtin_mul_overflow(out, value.type.shape[i].at(value.state == rows(static_cast<int>(i)) ? share.rows : share.batch), &out))
      return local_type(value, share).bytes();  // says what does not fit
  return out;
}

LocalType local_type(const PlanValue& value, const Share& share) {
  LocalType out{value.type.dtype, {}};
  out.shape.reserve(value.type.shape.size());
  for (std::size_t i = 0; i < value.type.shape.size(); ++i)
    out.shape.push_back(value.type.shape[i].at(value.state == rows(static_cast<int>(i)) ? share.rows : share.batch));
  return out;
}

NumberLists readers_of(const TowerGraph& plan) {
  return {plan.values.size(), [&](auto add) {
            std::vector<int> last(plan.values.size(), -1);
            for (std::size_t i = 0; i < plan.nodes.size(); ++i)
              for_values_read(plan.nodes[i], [&](ValueIndex v) {
                if (std::exchange(last[static_cast<std::size_t>(v)], static_cast<int>(i)) != static_cast<int>(i)) add(static_cast<std::size_t>(v), static_cast<int>(i));
              });
          }};
}

ValueIndex copied_by(const TowerGraph& graph, const PlanNode& copy) {
  const PlanNode& from = graph.maker(copy.inputs[0]);
  return is_op(from, kCopy) && !from.inputs.empty() && from.inputs[0] >= 0 ? from.inputs[0] : copy.inputs[0];
}

void reindex(TowerGraph& graph) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (std::size_t k = 0; k < graph.nodes[i].outputs.size(); ++k) {
      PlanValue& v = graph.values[static_cast<std::size_t>(graph.nodes[i].outputs[k])];
      v.maker = static_cast<int>(i);
      v.output = static_cast<int>(k);
    }
}

void mark_unread(TowerGraph& graph) {
  std::vector<bool> read(graph.values.size());
  for (const PlanNode& n : graph.nodes)
    for (ValueIndex v : n.inputs)
      if (v >= 0) read[static_cast<std::size_t>(v)] = true;
  for (auto [variable, v] : graph.updates) read[static_cast<std::size_t>(v)] = true;
  for (const PlanNode& n : graph.nodes)
    if (n.def || n.outputs.size() > 1)
      for (std::size_t k = 0; k < n.outputs.size(); ++k)
        if (auto v = static_cast<std::size_t>(n.outputs[k]); is_optional(graph, n, k)) graph.values[v].read = read[v];
}

std::string fetch_node(std::string result) {
  std::replace_if(result.begin(), result.end(), [](char c) { return c == ':' || c == '@' || c == ' '; }, '.');
  return "fetch/" + result;
}

std::optional<ValueId> named_result(const Graph& graph, std::string name) {
  if (name.ends_with(kTowersSuffix)) name.resize(name.size() - std::string_view(kTowersSuffix).size());
  auto metric = graph.metrics.find(name);
  return metric == graph.metrics.end() ? graph.find(name) : metric->second;
}

std::vector<ValueIndex> values_read(const PlanNode& n) {
  std::vector<ValueIndex> out;
  out.reserve(n.inputs.size());
  for_values_read(n, [&](ValueIndex v) { out.push_back(v); });
  return out;
}

}  // namespace belfry
