#include <belfry/ops/member_kernels_internal.h>

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace belfry {

namespace {

struct MemberKernel {
  KernelRequest request;
  KernelTable::Choice choice;
  std::vector<std::ptrdiff_t> inputs;  ///< of the group's; -1: what the members before have made
};

/// Inputs from outside are the group's, in order.
std::vector<MemberKernel> members_of(const KernelRequest& r, const KernelTable& table) {
  std::vector<MemberKernel> out;
  std::ptrdiff_t next = 0;
  for (std::size_t m = 0; m < r.members.size(); ++m) {
    const Node& node = *r.members[m];
    MemberKernel& k = out.emplace_back();
    k.request.op = node.op->name;
    k.request.def = node.op;
    k.request.attributes = &node.attributes;
    for (const std::string& inner : r.inner[m]) {
      k.inputs.push_back(inner.empty() ? next++ : -1);
      k.request.inputs.push_back(inner.empty() ? r.inputs.at(static_cast<std::size_t>(k.inputs.back())) : r.outputs[0]);
    }
    k.request.outputs = r.outputs;
    k.request.output_types = r.output_types;
    k.request.wanted = {true};
    k.request.threads = r.threads;
    k.request.share = r.share;
    k.choice = table.choose(k.request);
  }
  return out;
}

Support supports(const KernelRequest& r, const KernelTable& table, bool references) {
  Support out{.in_place = false};
  const std::vector<MemberKernel> members = members_of(r, table);
  for (const MemberKernel& m : members) {
    if (m.choice.name == kReferenceKernel && !references) return refuse(fmt::format("there is no kernel for its {}", m.request.op));
    if (&m != &members.front() && !m.choice.support.in_place) return refuse(fmt::format("{} cannot write over what it reads", m.choice.name));
    out.scratch_bytes = std::max(out.scratch_bytes, m.choice.support.scratch_bytes);
  }
  return out;
}

class InTurn : public Prepared {
 public:
  InTurn(const KernelRequest& r, const KernelTable& table) {
    for (MemberKernel& m : members_of(r, table)) {
      const Granted granted{m.choice.support.scratch_bytes, !launches_.empty()};
      launches_.push_back({table.prepare(m.choice.name, m.request, granted), std::move(m.inputs), {}});
    }
  }
  void launch(const Arguments& a) override {
    for (Launch& l : launches_) {
      l.arguments.inputs.resize(l.inputs.size());
      for (std::size_t i = 0; i < l.inputs.size(); ++i) l.arguments.inputs[i] = l.inputs[i] < 0 ? a.outputs[0] : a.inputs[static_cast<std::size_t>(l.inputs[i])];
      l.arguments.outputs.assign(1, a.outputs[0]);
      l.arguments.scratch = a.scratch;
      l.arguments.stream = a.stream;
      l.arguments.queue = a.queue;
      l.kernel->launch(l.arguments);
    }
  }
  bool capturable() const override {
    return std::all_of(launches_.begin(), launches_.end(), [](const Launch& l) { return l.kernel->capturable(); });
  }

 private:
  struct Launch {
    std::unique_ptr<Prepared> kernel;
    std::vector<std::ptrdiff_t> inputs;
    Arguments arguments;  // as long each time: nothing is allocated
  };
  std::vector<Launch> launches_;
};

}  // namespace

Kernel in_turn(std::string kind, std::vector<std::string> members, const std::shared_ptr<const KernelTable>& table, bool references) {
  return {.name = "members_in_turn", .op = std::move(kind), .supports = [table, references](const KernelRequest& r) { return supports(r, *table, references); },
          .prepare = [table](const KernelRequest& r) { return std::make_unique<InTurn>(r, *table); }, .members = std::move(members), .halves = true};
}

}  // namespace belfry
