#include <belfry/executor/kernel.h>

#include <algorithm>
#include <map>

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

/// The members' references one after the other, on buffers of their own.
std::unique_ptr<Prepared> prepare_fused_reference(const KernelRequest& r) {
  for (std::size_t m = 0; m < r.members.size(); ++m)
    if (!inner_type(r.members, m, r.outputs.at(0).shape))
      throw UserError(fmt::format("[{}] the member '{}' has not the rows of the group, and its reference does not say how many; place the plan anew without the group", r.op, r.members[m]->name));
  struct Fused : Prepared {
    explicit Fused(const KernelRequest& r) : members(r.members), share(r.share), inputs(r.inputs), outputs(r.outputs) {}
    void launch(const Arguments& a) override {
      // Inputs are those of the members that come from outside, in order; an inner value is the first output of a member before.
      std::map<std::string, HostTensor> inner;
      std::size_t next = 0;
      for (std::size_t m = 0; m < members.size(); ++m) {
        const Node& n = *members[m];
        std::vector<ConstView> in;
        for (const std::string& name : input_names[m]) {
          if (name.empty()) in.push_back({inputs[next], a.inputs[next]}), ++next;
          else in.push_back({inner.at(name).type(), inner.at(name).raw()});
        }
        const LocalType type = inner_type(members, m, outputs[0].shape).value();
        HostTensor made(type.dtype, type.shape);
        std::vector<View> out;
        for (std::size_t k = 0; k < n.types.size(); ++k) {
          const std::ptrdiff_t at = place_of(members, m, k);
          out.push_back(at < 0 ? View{type, made.raw()} : View{outputs[static_cast<std::size_t>(at)], a.outputs[static_cast<std::size_t>(at)]});
        }
        n.op->reference(Call{n.attributes, in, out, n.types, share});
        inner.insert_or_assign(n.name, std::move(made));
      }
    }
    std::vector<const Node*> members;
    Share share;
    std::vector<LocalType> inputs, outputs;
    std::vector<std::vector<std::string>> input_names;
  };
  auto out = std::make_unique<Fused>(r);
  // A member's input is inner where it is an earlier member's only output; ids say so.
  for (std::size_t m = 0; m < r.members.size(); ++m) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < r.members[m]->inputs.size(); ++i) names.push_back(r.inner.empty() ? "" : r.inner[m][i]);
    out->input_names.push_back(std::move(names));
  }
  return out;
}

}  // namespace

void describe_members(const Graph& graph, const std::vector<NodeId>& members, KernelRequest& request) {
  for (NodeId id : members) {
    const Node& n = graph.node(id);
    request.members.push_back(&n);
    std::vector<std::string> inner;
    for (ValueId v : n.inputs) inner.push_back(std::find(members.begin(), members.end(), v.node) == members.end() ? "" : graph.node(v.node).name);
    request.inner.push_back(std::move(inner));
  }
}

namespace {

/// The kernel's word on a request; of a fused kind also on the members, whose ops it takes for granted.
Support asked(const Kernel& k, const KernelRequest& r) {
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

Support KernelTable::support(const std::string& name, const KernelRequest& request) const { return name == kReferenceKernel ? Support{} : asked(named(name, request.op), request); }

std::unique_ptr<Prepared> KernelTable::prepare(const std::string& name, const KernelRequest& request, const Granted& granted) const {
  if (name == kReferenceKernel) return request.def ? prepare_reference(request) : prepare_fused_reference(request);
  const Kernel& k = named(name, request.op);
  auto refused = [&](const std::string& why) { return UserError(fmt::format("[{}] the plan names the kernel '{}', which {}; derive the plan anew with belfry place", request.op, name, why)); };
  Support s = asked(k, request);
  if (!s.ok) throw refused("refuses: " + s.reason);
  if (s.scratch_bytes > granted.scratch_bytes) throw refused(fmt::format("needs {} bytes of scratch, but has {}", s.scratch_bytes, granted.scratch_bytes));
  if (granted.in_place && !s.in_place) throw refused("cannot write over its inputs, as the plan has it");
  if (k.name == name) return k.prepare(request);
  KernelRequest with_engine = request;
  with_engine.engine = name.substr(k.name.size() + 1);
  return k.prepare(with_engine);
}

std::vector<std::string> KernelTable::engines(const std::string& name, const KernelRequest& request) const {
  if (name == kReferenceKernel) return {};
  const Kernel& k = named(name, request.op);
  return k.engines ? k.engines(request) : std::vector<std::string>{};
}

}  // namespace belfry
