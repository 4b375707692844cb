#include <belfry/executor/kernel.h>

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include <belfry/graph/fusion_group.h>

namespace belfry {

namespace {

std::unique_ptr<Prepared> prepare_reference(const KernelRequest& r) {
  struct Reference : Prepared {
    explicit Reference(const KernelRequest& r) : def(r.def), attributes(*r.attributes), types(r.output_types), share(r.share) {
      for (const LocalType& t : r.inputs) inputs.push_back({t, nullptr});
      for (const LocalType& t : r.outputs) outputs.push_back({t, nullptr});
    }
    void launch(const Arguments& a) override {
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].data = a.inputs[i];
      for (std::size_t k = 0; k < outputs.size(); ++k) outputs[k].data = a.outputs[k];
      def->reference(Call{attributes, inputs, outputs, types, share});
    }
    const OpDef* def;
    Attributes attributes;
    std::vector<ConstView> inputs;
    std::vector<View> outputs;
    std::vector<TensorType> types;
    Share share;
  };
  return std::make_unique<Reference>(r);
}

/// The members' references one after the other, on buffers of their own. Inputs from outside are in the members' order.
std::unique_ptr<Prepared> prepare_fused_reference(const KernelRequest& r) {
  struct Fused : Prepared {
    explicit Fused(const KernelRequest& r) : members(r.members), inner(r.inner), places(r.places), share(r.share), inputs(r.inputs), outputs(r.outputs) {
      for (const Node* m : members) made.push_back(inner_type(r, m->types[0]));
    }
    void launch(const Arguments& a) override {
      std::map<std::string, ConstView> firsts;  // what members have made that stays inside, or is kept besides
      std::vector<HostTensor> kept(members.size());
      std::size_t next = 0;
      for (std::size_t m = 0; m < members.size(); ++m) {
        const Node& n = *members[m];
        std::vector<ConstView> in;
        for (const std::string& name : inner[m]) {
          if (name.empty()) in.push_back({inputs[next], a.inputs[next]}), ++next;
          else in.push_back(firsts.at(name));
        }
        std::vector<View> out;
        for (std::size_t k = 0; k < n.types.size(); ++k) {
          const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, places[m][k]));
          const bool inside = places[m][k] < 0 || (k == 0 && m + 1 < members.size() && !a.outputs[at]);
          if (inside) kept[m] = HostTensor(made[m].dtype, made[m].shape);
          out.push_back(inside ? View{made[m], kept[m].raw()} : View{outputs[at], a.outputs[at]});
        }
        n.op->reference(Call{n.attributes, in, out, n.types, share});
        firsts.insert_or_assign(n.name, ConstView{out[0].type, out[0].data});
      }
    }
    std::vector<const Node*> members;
    std::vector<std::vector<std::string>> inner;
    std::vector<std::vector<std::ptrdiff_t>> places;
    std::vector<LocalType> made;
    Share share;
    std::vector<LocalType> inputs, outputs;
  };
  return std::make_unique<Fused>(r);
}

}  // namespace

void describe_members(const Graph& graph, const FusionGroup& group, KernelRequest& request) {
  const std::vector<ValueId> made = values_of(graph, group);
  for (NodeId id : group.members) {
    const Node& n = graph.node(id);
    request.members.push_back(&n);
    std::vector<std::string>& inner = request.inner.emplace_back();
    for (ValueId v : n.inputs) {
      const bool outside = std::find(group.members.begin(), group.members.end(), v.node) == group.members.end();
      inner.push_back(outside ? "" : graph.node(v.node).name);
      if (outside) request.input_types.push_back(v.valid() ? graph.type(v) : TensorType{});
    }
    std::vector<std::ptrdiff_t>& places = request.places.emplace_back();
    for (std::size_t k = 0; k < n.types.size(); ++k) {
      const auto at = std::find(made.begin(), made.end(), ValueId{id, static_cast<std::int32_t>(k)});
      places.push_back(at == made.end() ? -1 : at - made.begin());
    }
  }
}

LocalType inner_type(const KernelRequest& r, const TensorType& type) {
  for (std::size_t k = 0; k < r.output_types.size(); ++k)  // in ranges these are as long as the range
    if (r.output_types[k].shape == type.shape) return {type.dtype, r.outputs[k].shape};
  auto rows = [&](const Dim& of, std::size_t axis) {
    std::int64_t any = r.share.rows;
    auto look = [&](const std::vector<TensorType>& types, const std::vector<LocalType>& lie) -> std::optional<std::int64_t> {
      for (std::size_t k = 0; k < types.size() && k < lie.size(); ++k)
        for (std::size_t i = 0; i < types[k].shape.size() && i < lie[k].shape.size(); ++i) {
          const Dim& d = types[k].shape[i];
          if (d.symbol != of.symbol || d.factor == 0) continue;
          any = lie[k].shape[i] / d.factor;
          if (i == axis) return any;
        }
      return {};
    };
    auto found = look(r.output_types, r.outputs);
    if (!found) found = look(r.input_types, r.inputs);
    return found.value_or(any);
  };
  LocalType out{type.dtype, {}};
  for (std::size_t i = 0; i < type.shape.size(); ++i) out.shape.push_back(type.shape[i].symbolic() ? type.shape[i].factor * rows(type.shape[i], i) : type.shape[i].factor);
  return out;
}

namespace {

/// The kernel's word on a request; of a fused kind also on the members, whose ops it takes for granted.
Support asked(const Kernel& k, const KernelRequest& r) {
  for (std::size_t m = 0; !k.keeps && m + 1 < r.places.size(); ++m)
    if (!r.places[m].empty() && r.places[m][0] >= 0) return refuse(fmt::format("it gives nothing of '{}', which is kept", r.members[m]->name));
  if (k.members.empty()) return k.supports(r);
  bool chain = r.members.size() == k.members.size() && r.inner.size() == r.members.size();
  for (std::size_t m = 0; chain && m < r.members.size(); ++m) {
    auto from_before = std::count_if(r.inner[m].begin(), r.inner[m].end(), [](const std::string& name) { return !name.empty(); });
    bool reads_last = m > 0 && std::count(r.inner[m].begin(), r.inner[m].end(), r.members[m - 1]->name) == 1;
    chain = r.members[m]->op->name == k.members[m] && from_before == (m > 0) && reads_last == (m > 0);
  }
  return chain ? k.supports(r) : refuse(fmt::format("its members are {}, each reading the one before", fmt::join(k.members, ", ")));
}

}  // namespace

KernelTable::Choice KernelTable::choose(const KernelRequest& request, std::vector<std::string>* reasons, const Leeway& leeway) const {
  for (const Kernel& k : kernels_) {
    if (k.op != request.op || !leeway.covers(k.leeway)) continue;
    if (k.leeway.nondeterministic && k.name.find(kNondeterministic) == k.name.npos)  // by which plans keep it from what several devices compute
      throw UserError(fmt::format("[{}] the kernel '{}' does not repeat its bits, and its name does not say so; name it '{}{}'", k.op, k.name, k.name, kNondeterministic));
    Support s = asked(k, request);
    if (s.ok) return {k.name, s};
    if (reasons) reasons->push_back(fmt::format("{}: {}", k.name, s.reason));
  }
  return {kReferenceKernel, {}};
}

const Kernel& KernelTable::named(const std::string& name, const std::string& op) const {
  const std::string_view kernel = std::string_view(name).substr(0, name.find('@'));
  for (const Kernel& k : kernels_)
    if (k.op == op && k.name == kernel) {
      if (kernel != name && !k.engines) throw UserError(fmt::format("[{}] the plan names '{}', but that kernel has no engines to choose among; derive the plan anew with belfry place", op, name));
      return k;
    }
  throw UserError(fmt::format("[{}] the plan names the kernel '{}', which is not here; derive the plan anew with belfry place", op, name));
}

namespace {

/// The request with the engine that a plan names behind the kernel.
KernelRequest with_engine(const Kernel& k, const std::string& name, KernelRequest r) {
  r.engine = k.name == name ? "" : name.substr(k.name.size() + 1);
  return r;
}

}  // namespace

Support KernelTable::support(const std::string& name, const KernelRequest& request) const {
  if (name == kReferenceKernel) return {};
  const Kernel& k = named(name, request.op);
  return asked(k, with_engine(k, name, request));
}

std::unique_ptr<Prepared> KernelTable::prepare(const std::string& name, const KernelRequest& request, const Granted& granted) const {
  if (name == kReferenceKernel) return request.def ? prepare_reference(request) : prepare_fused_reference(request);
  const Kernel& k = named(name, request.op);
  auto refused = [&](const std::string& why) { return UserError(fmt::format("[{}] the plan names the kernel '{}', which {}; derive the plan anew with belfry place", request.op, name, why)); };
  const KernelRequest asks = with_engine(k, name, request);
  Support s = asked(k, asks);
  if (!s.ok) throw refused("refuses: " + s.reason);
  if (s.scratch_bytes > granted.scratch_bytes) throw refused(fmt::format("needs {} bytes of scratch, but has {}", s.scratch_bytes, granted.scratch_bytes));
  if (granted.in_place && !s.in_place) throw refused("cannot write over its inputs, as the plan has it");
  return k.prepare(asks);
}

std::vector<std::string> KernelTable::engines(const std::string& name, const KernelRequest& request) const {
  if (name == kReferenceKernel) return {};
  const Kernel& k = named(name, request.op);
  return k.engines ? k.engines(request) : std::vector<std::string>{};
}

}  // namespace belfry
