#include <belfry/placer/states.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/contexts.h>
#include <belfry/graph/halves.h>
#include <belfry/graph/split_rules.h>

namespace belfry {

namespace {

SplitContext context(const Graph& g, const Node& n, std::int64_t batch, const NodeStates& a) {
  SplitContext c{*n.op, n.attributes, {}, {}, n.types, batch};
  for (ValueId v : n.inputs) {
    c.inputs.push_back(v.valid() ? g.type(v) : TensorType{});
    c.states.push_back(v.valid() ? a.as_seen(v) : kReplicated);
  }
  return c;
}

/// A rule of a user's own may throw anything.
Split split_by_rule(const Node& n, const SplitContext& c) {
  try {
    return split_of(*n.op, c);
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}; node '{}'{}", e.what(), n.name, n.source.aside()));
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& e) {
    throw UserError(fmt::format("[{}] its split rule failed: {}; node '{}'{}", n.op->name, e.what(), n.name, n.source.aside()));
  }
}

/// States forward over `nodes`, with the demanded partials aggregated.
NodeStates forward(const Graph& g, std::int64_t batch, const std::vector<NodeId>& nodes, const std::set<ValueId>& demanded) {
  std::vector<std::vector<SplitState>> none(static_cast<std::size_t>(g.size()));
  NodeStates a{none, none, none};
  for (NodeId id : nodes) {
    const Node& n = g.node(id);
    SplitContext c = context(g, n, batch, a);
    Split s = split_by_rule(n, c);
    if (s.reads.size() != n.inputs.size() || s.gives.size() != n.types.size())
      throw UserError(fmt::format("[{}] the op's split rule speaks of {} inputs and {} outputs, but '{}' has {} and {}{}", n.op->name, s.reads.size(), s.gives.size(), n.name, n.inputs.size(), n.types.size(),
                                  n.source.text().empty() ? "" : "; " + n.source.text()));
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      if (reads_shape_only(n, i)) s.reads[i] = c.states[i];
    std::vector<SplitState> seen;
    for (std::size_t k = 0; k < s.gives.size(); ++k) {
      SplitState state = settled(n.types[k].shape, s.gives[k]);
      bool aggregated = state.is_partial() && demanded.contains({id, static_cast<std::int32_t>(k)});
      seen.push_back(aggregated ? kReplicated : state);
    }
    a.reads[static_cast<std::size_t>(id)] = std::move(s.reads);
    a.gives[static_cast<std::size_t>(id)] = std::move(s.gives);
    a.seen[static_cast<std::size_t>(id)] = std::move(seen);
  }
  return a;
}

void check(const Graph& g, const Node& n, const std::vector<SplitState>& reads, const NodeStates& a) {
  bool per_tower = false, part = false;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (!n.inputs[i].valid() || reads_shape_only(n, i)) continue;
    per_tower |= reads[i].is_per_tower();
    part |= reads[i].is_partial();
    if (a.as_seen(n.inputs[i]).is_per_tower() && !reads[i].is_per_tower())
      throw UserError(fmt::format("[{}] '{}' reads '{}', of which each tower has its own; take its tower_mean", n.op->name, n.name, g.name_of(n.inputs[i])));
  }
  if (per_tower && part) throw UserError(fmt::format("[{}] '{}' joins a value per tower with one that is summed over the towers; take a tower_mean first", n.op->name, n.name));
}

}  // namespace

NodeStates settled_states(const Graph& g, std::int64_t batch, const std::vector<NodeId>& order, const std::vector<bool>& core, const std::vector<bool>& live) {
  std::vector<NodeId> nodes;
  std::copy_if(order.begin(), order.end(), std::back_inserter(nodes), [&](NodeId id) { return live[static_cast<std::size_t>(id)] || core[static_cast<std::size_t>(id)]; });
  std::set<ValueId> demanded;
  while (true) {
    NodeStates a = forward(g, batch, nodes, demanded);
    std::size_t before = demanded.size();
    for (NodeId id : nodes) {
      if (!core[static_cast<std::size_t>(id)]) continue;
      const Node& n = g.node(id);
      for (std::size_t i = 0; i < n.inputs.size(); ++i) {
        ValueId v = n.inputs[i];
        if (v.valid() && a.as_seen(v).is_partial() && a.reads[static_cast<std::size_t>(id)][i] != a.as_seen(v)) demanded.insert(v);
      }
    }
    if (demanded.size() > before) continue;
    for (NodeId id : nodes) check(g, g.node(id), a.reads[static_cast<std::size_t>(id)], a);
    return a;
  }
}

}  // namespace belfry
