#include "interpreter.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <belfry/graph/evaluate.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/loops.h>

namespace belfry::test {

Result run_whole(const Graph& graph, const Tensors& feeds, const Tensors& state, std::int64_t batch, const std::vector<std::pair<std::string, ValueId>>& fetches, std::int64_t first_row) {
  const auto values = evaluate(graph, batch, [&](const Node& n) { return n.op->name == kInput ? feeds.at(n.name) : state.at(n.name); }, first_row);
  auto value = [&](ValueId v) { return values[static_cast<std::size_t>(v.node)][static_cast<std::size_t>(v.output)]; };
  Result out{{}, state};
  for (const auto& [name, v] : fetches) out.fetched.insert_or_assign(name, value(v));
  for (const auto& [variable, v] : graph.updates) out.state.insert_or_assign(graph.node(variable).name, value(v));
  return out;
}

namespace {

HostTensor combine(const HostTensor& a, const HostTensor& b, const std::string& how) {
  HostTensor out(a.dtype(), a.shape());
  visit_dtype(a.dtype(), [&]<class T>() {
    for (std::size_t i = 0; i < out.data<T>().size(); ++i) {
      T x = a.data<T>()[i], y = b.data<T>()[i];
      out.data<T>()[i] = how == "max" ? (x >= y ? x : y) : static_cast<T>(x + y);
    }
  });
  return out;
}

using Parts = std::vector<HostTensor>;

HostTensor tree(const Parts& parts, int low, int high, const std::string& how) {
  if (high - low == 1) return parts[static_cast<std::size_t>(low)];
  int middle = low + tree_cut(high - low);
  HostTensor left = tree(parts, low, middle, how);
  return middle >= static_cast<int>(parts.size()) ? left : combine(left, tree(parts, middle, high, how), how);
}

/// Every device adds its complete subtrees; the pieces are joined along the same tree.
HostTensor tree_by_devices(const Parts& parts, int towers, int devices, const std::string& how) {
  int here = static_cast<int>(parts.size());
  std::map<std::pair<int, int>, HostTensor> ready;
  for (int d = 0; d < devices; ++d)
    for (Range r : complete_subtrees(share_of(towers, devices, d), towers))
      if (r.first < here) ready.emplace(std::pair{static_cast<int>(r.first), static_cast<int>(r.past)}, tree(parts, static_cast<int>(r.first), static_cast<int>(r.past), how));
  std::function<HostTensor(int, int)> join = [&](int low, int high) {
    if (auto at = ready.find({low, high}); at != ready.end()) return at->second;
    int middle = low + tree_cut(high - low);
    HostTensor left = join(low, middle);
    return middle >= here ? left : combine(left, join(middle, high), how);
  };
  return join(0, towers);
}

}  // namespace

HostTensor joined(const std::vector<HostTensor>& parts, int axis) {
  Extents shape = parts[0].shape();
  shape[static_cast<std::size_t>(axis)] = 0;
  for (const HostTensor& p : parts) shape[static_cast<std::size_t>(axis)] += p.shape()[static_cast<std::size_t>(axis)];
  HostTensor out(parts[0].dtype(), shape);
  AlongAxis to(shape, axis);
  std::int64_t at = 0;
  for (const HostTensor& p : parts) {
    AlongAxis from(p.shape(), axis);
    std::size_t run = static_cast<std::size_t>(from.n * from.inner) * size_of(p.dtype());
    for (std::int64_t o = 0; o < from.outer; ++o)
      if (run) std::memcpy(out.raw() + to.at(o, at, 0) * size_of(p.dtype()), p.raw() + static_cast<std::size_t>(o) * run, run);
    at += from.n;
  }
  return out;
}

HostTensor stacked(const std::vector<HostTensor>& parts) {
  Parts wide;
  for (const HostTensor& p : parts) {
    Extents shape = p.shape();
    shape.insert(shape.begin(), 1);
    HostTensor w(p.dtype(), shape);
    if (p.elements()) std::memcpy(w.raw(), p.raw(), p.bytes().size());
    wide.push_back(std::move(w));
  }
  return joined(wide, 0);
}

namespace {

/// The members of a fused node in turn, by their references. Inner values are in the state of the group's.
std::vector<HostTensor> run_group(const TowerGraph& tg, const PlanNode& n, const std::vector<const HostTensor*>& inputs, const Share& share, const std::vector<LocalType>& types) {
  std::map<ValueId, HostTensor> made;
  const std::vector<ValueId> given = values_of(tg, n);
  std::size_t next = 0;
  for (const Member& m : n.members) {
    const Node& node = tg.graph->node(m.node);
    std::vector<const HostTensor*> in;
    for (ValueId v : node.inputs) in.push_back(made.contains(v) ? &made.at(v) : inputs[next++]);
    std::vector<LocalType> local;
    for (std::size_t k = 0; k < node.types.size(); ++k) {
      const auto at = std::find(given.begin(), given.end(), ValueId{m.node, static_cast<std::int32_t>(k)});
      local.push_back(at == given.end() ? local_type(PlanValue{"", node.types[k], tg.value(n.outputs[0]).state}, share) : types[static_cast<std::size_t>(at - given.begin())]);
    }
    std::vector<HostTensor> out = evaluate(*node.op, node.attributes, in, node.types, local, share);
    for (std::size_t k = 0; k < out.size(); ++k) made[{m.node, static_cast<std::int32_t>(k)}] = std::move(out[k]);
  }
  std::vector<HostTensor> out;
  for (ValueId v : given) out.push_back(made.at(v));
  return out;
}

}  // namespace

Result run_towers(const TowerGraph& tg, const Tensors& feeds, const Tensors& state, int devices) {
  int present = tg.present();
  std::vector<Parts> values(tg.values.size());
  auto join = [&](const Parts& parts, const std::string& how) {
    return devices > 1 ? tree_by_devices(parts, tg.towers, devices, how) : tree(parts, 0, tg.towers, how);
  };
  for (const PlanNode& n : tg.nodes) {
    std::vector<const Parts*> in;
    for (ValueIndex v : n.inputs) in.push_back(v < 0 ? nullptr : &values[static_cast<std::size_t>(v)]);
    auto set = [&](std::size_t k, Parts p) { values[static_cast<std::size_t>(n.outputs[k])] = std::move(p); };
    if (n.op == kInput) set(0, {feeds.at(n.name)});
    else if (n.op == kVariable) set(0, {state.at(n.name)});
    else if (n.op == kAggregate || n.op == kFetch) {
      const std::string& how = n.attributes.text("how");
      const Parts& parts = *in[0];
      if (how == "same") set(0, {parts[0]});
      else if (how == "concat_rows") set(0, {joined(parts, static_cast<int>(n.attributes.integer("axis")))});
      else if (how == "stack") set(0, {stacked(parts)});
      else if (how == "mean") {
        HostTensor sum = join(parts, "sum");
        visit_float(sum.dtype(), [&]<class T>() {
          for (T& x : sum.data<T>()) x /= static_cast<T>(present);
        });
        set(0, {sum});
      } else set(0, {join(parts, how)});
    } else if (n.op == kSplit) {
      const PlanValue& v = tg.value(n.outputs[0]);
      std::int64_t k = v.type.shape[static_cast<std::size_t>(v.state.axis)].factor;
      Parts parts;
      for (int t = 0; t < present; ++t) parts.push_back(part_along((*in[0])[0], v.state.axis, k * tg.share(t).first_row, k * tg.share(t).rows));
      set(0, std::move(parts));
    } else {
      std::vector<TensorType> types;
      for (ValueIndex v : n.outputs) types.push_back(tg.value(v).type);
      std::vector<Parts> out(n.outputs.size());
      int count = n.scope == Scope::tower ? present : 1;
      for (int t = 0; t < count; ++t) {
        Share share = tg.share(n.scope == Scope::tower ? t : -1);
        std::vector<const HostTensor*> inputs;
        for (const Parts* p : in) inputs.push_back(!p ? nullptr : &(*p)[p->size() > 1 ? static_cast<std::size_t>(t) : 0]);
        std::vector<LocalType> local;
        for (ValueIndex v : n.outputs) local.push_back(local_type(tg.value(v), share));
        std::vector<HostTensor> made = n.op == kFused ? run_group(tg, n, inputs, share, local) : evaluate(*n.def, n.attributes, inputs, types, local, share);
        for (std::size_t k = 0; k < made.size(); ++k) out[k].push_back(std::move(made[k]));
      }
      for (std::size_t k = 0; k < out.size(); ++k) set(k, std::move(out[k]));
    }
  }
  Result out{{}, state};
  for (const auto& [name, v] : tg.fetches) out.fetched.insert_or_assign(name, values[static_cast<std::size_t>(v)][0]);
  for (const auto& [variable, v] : tg.updates) out.state.insert_or_assign(tg.value(variable).name, values[static_cast<std::size_t>(v)][0]);
  return out;
}

double difference(const Tensors& a, const Tensors& b) {
  double worst = 0;
  for (const auto& entry : b) {  // no binding: clang 14 takes none into a lambda
    const auto& y = entry.second;
    auto at = a.find(entry.first);
    if (at == a.end()) continue;
    if (at->second.type() != y.type()) return 1e300;
    visit_dtype(y.dtype(), [&]<class T>() {
      for (std::size_t i = 0; i < y.data<T>().size(); ++i) {
        double p = static_cast<double>(at->second.data<T>()[i]), q = static_cast<double>(y.data<T>()[i]);
        double d = std::abs(p - q) / (1e-3 + std::abs(q));
        if (!(d <= worst)) worst = d;
      }
    });
  }
  return worst;
}

bool same_bits(const Tensors& a, const Tensors& b) {
  for (const auto& [name, y] : b)
    if (auto at = a.find(name); at != a.end() && !(at->second == y)) return false;
  return true;
}

}  // namespace belfry::test
