#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

std::string name_of(const PlacedGraph& plan, int device) { return to_string(plan.cluster.devices[static_cast<std::size_t>(device)].id); }

const PlanNode& node_of(const PlacedGraph& plan, const ForecastLaunch& l) { return plan.nodes[static_cast<std::size_t>(l.node)]; }

struct PathPart {
  double seconds = 0, most = 0;
  std::string of;                     ///< the node with the most
  void add(double s, const std::string& name, std::map<std::string, double>& by_name) {
    seconds += s;
    if (double& all = by_name[name]; (all += s) > most) most = all, of = name;
  }
};

}  // namespace

double waits_for_feeds(const Forecast& f) { return f.path.empty() ? 0 : std::max(0.0, f.landed - f.launches[static_cast<std::size_t>(f.path.back())].end); }

std::vector<PathShare> path_shares(const PlacedGraph& plan, const Forecast& f) {
  std::map<std::pair<int, int>, PathShare> shares;
  for (int k : f.path) {
    const ForecastLaunch& l = f.launches[static_cast<std::size_t>(k)];
    PathShare& s = shares[{l.node, l.device}];
    if (!s.launches++) s.node = node_of(plan, l).name, s.device = name_of(plan, l.device);
    s.seconds += l.end - l.begin, s.moving += l.moving;
  }
  std::vector<PathShare> out;
  for (auto& [key, s] : shares) out.push_back(std::move(s));
  std::stable_sort(out.begin(), out.end(), [](const PathShare& a, const PathShare& b) { return a.seconds > b.seconds; });
  return out;
}

std::string why_not_more(const PlacedGraph& plan, const Forecast& f) {
  if (f.seconds <= 0) return "";
  double halved = 0, launching = 0;
  PathPart moving;
  std::map<std::string, double> moved;
  std::map<int, std::pair<PathPart, std::map<std::string, double>>> shared;  // by device
  for (int k : f.path) {
    const ForecastLaunch& l = f.launches[static_cast<std::size_t>(k)];
    const PlanNode& n = node_of(plan, l);
    const double own = l.end - l.begin - l.moving - l.fixed;
    moving.add(l.moving, n.name, moved);
    launching += l.fixed;
    if (n.scope == Scope::tower) halved += own / 2;
    else shared[l.device].first.add(own, n.name, shared[l.device].second);
  }
  moving.add(waits_for_feeds(f), "the next feeds", moved);
  if (plan.present() == plan.batch && plan.batch > 0) return fmt::format("more devices will not help, because the batch of {} has no more rows to share: take a larger one", plan.batch);
  std::set<int> computing;
  for (const ForecastLaunch& l : f.launches)
    if (node_of(plan, l).scope == Scope::tower) computing.insert(l.device);
  const auto on_host = [&](int d) { return plan.cluster.devices[static_cast<std::size_t>(d)].id.kind != "gpu"; };
  if (std::all_of(computing.begin(), computing.end(), on_host) && static_cast<int>(computing.size()) >= plan.cluster.cores && computing.size() > 1)
    return fmt::format("more devices will not help, because {} of them share the {} cores of this machine: a cluster file with other \"cores\" describes another one (--cluster)", computing.size(), plan.cluster.cores);
  if (halved >= f.seconds / 10) return "";
  const PathPart* most = &moving;
  int at = -1;
  for (const auto& [device, part] : shared)
    if (part.first.seconds > most->seconds) most = &part.first, at = device;
  auto share = [&](double seconds) { return fmt::format("{:.0f} % of the step", 100 * seconds / f.seconds); };
  const std::string out = "more devices will not help, because ";
  if (launching > most->seconds) return out + fmt::format("{} is the launching of kernels, whose shares of {} row{} are too small: take a larger batch", share(launching), plan.share(0).rows, plan.share(0).rows == 1 ? "" : "s");
  if (most->seconds <= 0) return "";
  if (at >= 0) return out + fmt::format("{} is what {} does for all towers ('{}' above all): spread the variables, or mirror them", share(most->seconds), name_of(plan, at), most->of);
  std::string link;
  if (!f.links.empty()) link = fmt::format(" over {} -> {}{}", f.links[0].from, f.links[0].to, f.links[0].busy > 0 ? fmt::format(" (busy {:.0f} %)", 100 * f.links[0].busy / f.seconds) : "");
  return out + fmt::format("{} is bytes on their way{}, most for '{}': take a larger batch per device or faster links", share(most->seconds), link, most->of);
}

}  // namespace belfry
