#include <belfry/frontends/session/known_kernels.h>

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <belfry/graph/plan/verify.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/gpu_kernel_names.h>

namespace belfry {

namespace {

bool has(const KernelTable& table, const std::string& op, std::string_view name) {
  const std::string_view kernel = name.substr(0, name.find('@'));
  return std::any_of(table.all().begin(), table.all().end(), [&](const Kernel& k) { return k.op == op && k.name == kernel && (kernel == name || (k.engines && name.size() > kernel.size() + 1)); });
}

class Names {
 public:
  Names(const PlacedGraph& plan, const KernelTables& tables) : plan_(plan), tables_(tables) {}

  std::vector<std::string> unknown() {
    for (const PlanNode& n : plan_.nodes) {
      if (n.scope == Scope::state || n.op == kInput || (!n.def && n.op != kFused)) continue;
      for (std::size_t c = 0; n.scope == Scope::tower && c < plan_.classes.size(); ++c)
        if (n.phases[c] >= 0) look(n, n.by_class[c].kernel, plan_.device_of(n, plan_.classes[c].towers[0]));
      for (std::size_t g = 0; n.scope != Scope::tower && g < plan_.groups.size(); ++g)
        for (int d : plan_.groups[g].devices)
          if (std::find(n.holders.begin(), n.holders.end(), d) != n.holders.end()) {
            look(n, n.by_group[g].kernel, d);
            break;
          }
    }
    return found_;
  }

 private:
  void look(const PlanNode& n, const std::string& kernel, int device) {
    const ClusterDevice& at = plan_.cluster.devices[static_cast<std::size_t>(device)];
    const std::string op = n.op == kFused ? n.attributes.text("kind") : n.op;
    if (!good_.insert({at.kernels(), op, kernel}).second) return;
    std::string why;
    if (kernel == kReferenceKernel) {
      if (at.id.kind == "gpu") why = fmt::format("'{}' is computed by a reference, which runs on a host, but stands on {}", n.name, to_string(at.id));
    } else if (const auto table = tables_.find(at.kernels()); table != tables_.end() ? !has(table->second, op, kernel) : at.id.kind == "gpu" && !is_gpu_kernel(kernel, op)) {
      why = fmt::format("'{}' names '{}' on {}, but {} has none of that name there", n.name, kernel, to_string(at.id), op);
    }
    if (why.empty()) return;
    good_.erase({at.kernels(), op, kernel});  // every node of it is named
    if (found_.size() < 64) found_.push_back("no kernel: " + why);
  }

  const PlacedGraph& plan_;
  const KernelTables& tables_;
  std::set<std::tuple<std::string, std::string, std::string>> good_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> unknown_kernels(const PlacedGraph& plan, const KernelTables& tables) { return Names(plan, tables).unknown(); }

std::vector<std::string> verify(const PlacedGraph& plan, const KernelTables& tables) {
  std::vector<std::string> found = verify(plan);
  return found.empty() ? unknown_kernels(plan, tables) : found;
}

}  // namespace belfry
