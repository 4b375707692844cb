#include <belfry/frontends/session/library.h>

#include <fmt/format.h>

#include <belfry/ops/all_ops.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

const StrategyDef& Library::strategy(const std::string& name) const {
  std::vector<std::string> names;
  for (const StrategyDef& s : strategies) {
    if (s.name == name) return s;
    names.push_back(s.name);
  }
  throw UserError(fmt::format("there is no strategy '{}'; there are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
}

std::shared_ptr<const Library> standard_library() {
  auto library = std::make_shared<Library>();
  library->ops = std::make_shared<const OpSet>(standard_ops());
  library->kernels["cpu"] = cpu_kernels();
  library->strategies = standard_strategies();
  library->groups = find_cpu_groups;
  library->gpu_groups = find_gpu_groups;
  return library;
}

}  // namespace belfry
