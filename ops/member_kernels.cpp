#include <belfry/ops/member_kernels_internal.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/fusion_group.h>
#include <belfry/ops/fusions.h>

namespace belfry {

namespace {

/// What a member reads: an input of the group, or what another member has made.
struct Source {
  std::ptrdiff_t input = -1, member = -1;
};

struct MemberKernel {
  KernelRequest request;
  KernelTable::Choice choice;
  std::vector<Source> inputs;
  std::vector<std::ptrdiff_t> outputs;  ///< which of the group's they are; -1: what stays inside
  std::int64_t at = -1;  ///< of what stays inside, in the scratch; -1: in the group's first output
};

struct Members {
  std::vector<MemberKernel> all;
  bool chain = true;       ///< each but the first works in place on what the one before has made
  std::int64_t bytes = 0;  ///< of the scratch that values take; the kernels' own is behind
};

/// Inputs from outside are the group's, in order.
Members members_of(const KernelRequest& r, const KernelTable& table, bool tree) {
  constexpr std::int64_t kAligned = 256;  // what GPUs' libraries like
  Members out;
  out.chain = !tree;  // a plan may write a tree over what any of its members reads: only the last writes there
  std::map<std::string, std::ptrdiff_t> made;
  std::ptrdiff_t next = 0;
  for (std::size_t m = 0; m < r.members.size(); ++m) {
    const Node& node = *r.members[m];
    MemberKernel& k = out.all.emplace_back();
    k.request.op = node.op->name;
    k.request.def = node.op;
    k.request.attributes = &node.attributes;
    std::size_t inner_inputs = 0;
    for (const std::string& inner : r.inner[m]) {
      const Source source = inner.empty() ? Source{next++, -1} : Source{-1, made.at(inner)};
      k.inputs.push_back(source);
      k.request.inputs.push_back(inner.empty() ? r.inputs.at(static_cast<std::size_t>(source.input)) : out.all[static_cast<std::size_t>(source.member)].request.outputs[0]);
      inner_inputs += !inner.empty();
      out.chain = out.chain && (inner.empty() || source.member + 1 == static_cast<std::ptrdiff_t>(m));
    }
    const bool last = m + 1 == r.members.size();
    for (std::size_t o = 0; o < node.types.size(); ++o) {
      std::ptrdiff_t at = r.places[m][o];
      if (o == 0 && !last && at >= 0 && !r.wanted.at(static_cast<std::size_t>(at))) at = -1;  // members read it all the same
      k.outputs.push_back(at);
      k.request.outputs.push_back(at < 0 ? inner_type(r, node.types[o]) : r.outputs.at(static_cast<std::size_t>(at)));
      k.request.wanted.push_back(at < 0 || r.wanted.at(static_cast<std::size_t>(at)));
    }
    k.request.output_types = node.types;
    k.request.threads = r.threads;
    k.request.share = r.share;
    k.choice = table.choose(k.request);
    const LocalType& first = k.request.outputs[0];
    out.chain = out.chain && inner_inputs == (m > 0) && (last || k.outputs[0] < 0) && first.dtype == r.outputs[0].dtype && first.shape == r.outputs[0].shape && (m == 0 || k.choice.support.in_place);
    made.emplace(node.name, static_cast<std::ptrdiff_t>(m));
  }
  for (MemberKernel& k : out.all)
    if (!out.chain && k.outputs[0] < 0) k.at = std::exchange(out.bytes, out.bytes + (k.request.outputs[0].bytes() + kAligned - 1) / kAligned * kAligned);
  return out;
}

Support supports(const KernelRequest& r, const KernelTable& table, bool references, bool tree, bool sum) {
  if (tree && r.op == kElementwise && !of_one_shape(r)) return refuse("its members are not all elementwise, of the shape of the last");
  if (sum && !product_sum_of(r)) return refuse("its members are not products and their sum, of one type");
  const Members members = members_of(r, table, tree);
  Support out{.in_place = !members.chain};
  for (const MemberKernel& m : members.all) {
    if (m.outputs[0] >= 0 && m.request.op != kReduceSum) out.in_place = out.in_place && m.choice.support.in_place;
    if (m.choice.name == kReferenceKernel && !references) return refuse(fmt::format("there is no kernel for its {}", m.request.op));
    out.scratch_bytes = std::max(out.scratch_bytes, members.bytes + m.choice.support.scratch_bytes);
  }
  return out;
}

class InTurn : public Prepared {
 public:
  InTurn(const KernelRequest& r, const KernelTable& table, bool tree) {
    Members members = members_of(r, table, tree);
    bytes_ = members.bytes;
    for (MemberKernel& m : members.all) {
      const Granted granted{m.choice.support.scratch_bytes, members.chain && !launches_.empty()};
      launches_.push_back({table.prepare(m.choice.name, m.request, granted), std::move(m.inputs), std::move(m.outputs), m.at, {}});
    }
  }
  void launch(const Arguments& a) override {
    auto of = [&](const Launch& l) { return l.outputs[0] >= 0 ? a.outputs[static_cast<std::size_t>(l.outputs[0])] : l.at < 0 ? a.outputs[0] : a.scratch + l.at; };
    for (Launch& l : launches_) {
      l.arguments.inputs.resize(l.inputs.size());
      for (std::size_t i = 0; i < l.inputs.size(); ++i) l.arguments.inputs[i] = l.inputs[i].member < 0 ? a.inputs[static_cast<std::size_t>(l.inputs[i].input)] : of(launches_[static_cast<std::size_t>(l.inputs[i].member)]);
      l.arguments.outputs.resize(l.outputs.size());
      for (std::size_t k = 0; k < l.outputs.size(); ++k) l.arguments.outputs[k] = l.outputs[k] < 0 ? of(l) : a.outputs[static_cast<std::size_t>(l.outputs[k])];
      l.arguments.scratch = a.scratch + bytes_;
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
    std::vector<Source> inputs;
    std::vector<std::ptrdiff_t> outputs;
    std::int64_t at;
    Arguments arguments;  // as long each time: nothing is allocated
  };
  std::vector<Launch> launches_;
  std::int64_t bytes_ = 0;
};

}  // namespace

bool of_one_shape(const KernelRequest& r) {
  return !r.members.empty() && r.inner.size() == r.members.size() &&
         std::all_of(r.members.begin(), r.members.end(), [&](const Node* m) { return fits_trees(*m->op) && m->types.size() == 1 && m->types[0].shape == r.members.back()->types[0].shape; });
}

std::optional<ProductSum> product_sum_of(const KernelRequest& r) {
  if (r.members.size() < 2 || r.inner.size() != r.members.size()) return {};
  ProductSum out;
  std::map<std::string, std::size_t> open;  // what is made and not added yet: which product it is
  std::size_t next = 0;
  for (std::size_t m = 0; m < r.members.size(); ++m) {
    const Node& node = *r.members[m];
    const std::vector<std::string>& inner = r.inner[m];
    const auto outside = static_cast<std::size_t>(std::count(inner.begin(), inner.end(), ""));
    if (node.types.size() != 1 || node.types[0] != r.members.back()->types[0]) return {};
    if (m + 1 == r.members.size()) {
      if ((node.op->name != "add" && !node.op->sum_of_inputs) || outside > 1 || inner.size() != open.size() + outside) return {};
      for (const std::string& made : inner)
        if (!made.empty() && !open.erase(made)) return {};
      if (outside && (next >= r.inputs.size() || r.inputs[next].dtype != r.outputs[0].dtype || r.inputs[next].shape != r.outputs[0].shape)) return {};
      if (outside) out.other = static_cast<std::ptrdiff_t>(next++);
    } else if (node.op->name == "matmul" && outside == 2) {
      open.emplace(node.name, out.products.size());
      out.products.push_back({&node, next});
      next += 2;
    } else {
      const auto of = std::find_if(inner.begin(), inner.end(), [](const std::string& made) { return !made.empty(); });
      if (node.op->name != "add" || outside != 1 || !open.contains(*of) || out.products[open.at(*of)].bias >= 0) return {};
      out.products[open.at(*of)].bias = static_cast<std::ptrdiff_t>(next++);
      open.emplace(node.name, open.at(*of));
      open.erase(*of);
    }
  }
  return open.empty() && next == r.inputs.size() ? std::optional(out) : std::nullopt;
}

Kernel in_turn(std::string kind, std::vector<std::string> members, const std::shared_ptr<const KernelTable>& table, bool references) {
  const bool tree = kind == kElementwise || kind == kWithElementwise, sum = kind == kMatmulAdd;
  return {.name = "members_in_turn", .op = std::move(kind), .supports = [=](const KernelRequest& r) { return supports(r, *table, references, tree, sum); },
          .prepare = [table, tree](const KernelRequest& r) { return std::make_unique<InTurn>(r, *table, tree); }, .members = std::move(members), .halves = true, .keeps = true};
}

}  // namespace belfry
