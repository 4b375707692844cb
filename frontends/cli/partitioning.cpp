#include <belfry/frontends/cli/partitioning_internal.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/cut_file.h>
#include <belfry/frontends/json/problem_file.h>
#include <belfry/frontends/json/strict_json.h>

namespace belfry {

TowerCut partitioning_of(const PlacedGraph& plan, const CostTable& costs) {
  StageOptions stages;
  stages.rounds = plan.present();
  stages.devices = plan.cluster.ids();
  auto cpus = std::stable_partition(stages.devices.begin(), stages.devices.end(), [](const DeviceId& d) { return d.kind != "cpu"; });
  const bool accelerated = cpus != stages.devices.begin();
  TowerCut out = cut_problem_of(plan, plan.cluster, costs, stages);
  CutProblem& p = out.problem;
  if (accelerated && p.kinds.size() == 2 && cpus != stages.devices.end()) p.kinds[1].pays = false;
  if (!accelerated && p.kinds.size() == 1) {
    p.kinds.push_back({"cpu", 0, p.kinds[0].memory, false});
    for (CutNode& n : p.nodes) n.seconds.push_back(n.seconds[0]);
  }
  return out;
}

bool is_split(const std::string& text, const std::string& file) { return text.find("\"accelerators\"") != text.npos && JsonDocument(text, file).root().find("accelerators"); }

void take_split(const Source& source, PlacementArguments& a, std::int64_t batch, const std::vector<std::string>& fetches, const std::shared_ptr<const Library>& library) {
  if (a.placement_file.empty()) return;
  const std::string file = a.placement_file, text = read_file(file);
  if (!is_split(text, file)) return;
  a.placement_file.clear();
  PlacementArguments asked = a;  // as when the problem was written
  asked.forecast = true;
  Session session = make_session(source, asked, library, true);
  if (session.strategy().loops) throw UserError(fmt::format("{}: what is trained by loops has two plans, and no split answers them", file));
  const PlacedGraph& plan = session.plan(batch ? batch : source.plan ? source.plan->batch : 32, Mode::step, fetches);
  const TowerCut problem = partitioning_of(plan, costs_of(session));
  const std::vector<int> device = read_cut(text, file, problem.problem);
  const std::vector<std::string> names = problem_nodes(plan);
  const std::set<std::string> free(names.begin(), names.end());
  for (std::size_t i = 0; i < device.size(); ++i)
    if (const std::string name = rule_name(plan.nodes[static_cast<std::size_t>(problem.nodes[i])]); free.contains(name))
      a.rules.push_back({name, {problem.devices[static_cast<std::size_t>(device[i])]}, fmt::format("number {} of {}", i, file)});
}

}  // namespace belfry
