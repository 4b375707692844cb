#include <belfry/placer/cut/cut.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/error.h>
#include <belfry/placer/cut/items_internal.h>

namespace belfry {

namespace {

using cutting::at;

/// Nodes with the devices besides their own that read their output; ascending.
std::vector<std::pair<int, int>> moves_of(const CutProblem& p, const std::vector<int>& device) {
  std::vector<std::pair<int, int>> out;
  for (auto [a, b] : p.edges)
    if (device[at(a)] != device[at(b)]) out.emplace_back(a, device[at(b)]);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool pays(const CutProblem& p, int device) { return p.kinds[at(p.kind_of(device))].pays; }

/// Longest ways from a graph's starts, its edges between numbers; infinite where there is a cycle.
double longest_way(const std::vector<double>& seconds, const std::set<std::pair<int, int>>& edges) {
  std::vector<int> missing(seconds.size()), ready;
  std::vector<double> start(seconds.size());
  for (auto [a, b] : edges) ++missing[at(b)];
  for (std::size_t i = 0; i < seconds.size(); ++i)
    if (!missing[i]) ready.push_back(static_cast<int>(i));
  double out = 0;
  for (std::size_t k = 0; k < ready.size(); ++k) {
    const int a = ready[k];
    const double end = start[at(a)] + seconds[at(a)];
    out = std::max(out, end);
    for (auto e = edges.lower_bound({a, -1}); e != edges.end() && e->first == a; ++e) {
      start[at(e->second)] = std::max(start[at(e->second)], end);
      if (--missing[at(e->second)] == 0) ready.push_back(e->second);
    }
  }
  return ready.size() == seconds.size() ? out : std::numeric_limits<double>::infinity();
}

}  // namespace

std::string to_string(CutObjective objective) { return objective == CutObjective::latency ? "latency" : "max-load"; }

CutObjective parse_cut_objective(const std::string& text) {
  for (CutObjective o : {CutObjective::max_load, CutObjective::latency})
    if (to_string(o) == text) return o;
  throw UserError(fmt::format("the objective '{}' is neither max-load nor latency", text));
}

int CutProblem::devices() const {
  int out = 0;
  for (const CutKind& k : kinds) out += k.count;
  return out;
}

int CutProblem::kind_of(int device) const {
  for (std::size_t k = 0; k < kinds.size(); ++k)
    if ((device -= kinds[k].count) < 0) return static_cast<int>(k);
  throw InternalError("a cut names a device that its problem lacks");
}

std::vector<double> loads_of(const CutProblem& p, const std::vector<int>& device) {
  std::vector<double> out(at(p.devices()));
  for (std::size_t i = 0; i < p.nodes.size(); ++i) out[at(device[i])] += p.nodes[i].seconds.at(at(p.kind_of(device[i])));
  int last = -1;
  for (auto [i, to] : moves_of(p, device)) {
    if (i != std::exchange(last, i) && pays(p, device[at(i)])) out[at(device[at(i)])] += p.nodes[at(i)].transfer;
    if (pays(p, to)) out[at(to)] += p.nodes[at(i)].transfer;
  }
  return out;
}

double latency_of(const CutProblem& p, const std::vector<int>& device) {
  auto pass = [&](int node) { return 2 * device[at(node)] + p.nodes[at(node)].backward; };
  std::vector<double> seconds(2 * at(p.devices()));
  std::set<std::pair<int, int>> edges;
  std::map<std::pair<int, int>, int> read;  // maker and device → the first pass there that reads
  for (int d = 0; d < p.devices(); ++d) edges.emplace(2 * d, 2 * d + 1);
  for (auto [a, b] : p.edges) {
    if (pass(a) != pass(b)) edges.emplace(pass(a), pass(b));
    if (device[at(a)] == device[at(b)]) continue;
    auto [first, fresh] = read.try_emplace({a, device[at(b)]}, pass(b));
    first->second = std::min(first->second, pass(b));
  }
  std::set<int> leaves;
  for (const auto& [from, to] : read) {
    if (pays(p, from.second)) seconds[at(to)] += p.nodes[at(from.first)].transfer;
    leaves.insert(from.first);
  }
  for (int i : leaves)
    if (pays(p, device[at(i)])) seconds[at(pass(i))] += p.nodes[at(i)].transfer;
  for (int i = 0; i < static_cast<int>(p.nodes.size()); ++i) seconds[at(pass(i))] += p.nodes[at(i)].seconds.at(at(p.kind_of(device[at(i)])));
  return longest_way(seconds, edges);
}

double value_of(const CutProblem& p, const std::vector<int>& device) {
  if (p.objective == CutObjective::latency) return latency_of(p, device);
  const std::vector<double> loads = loads_of(p, device);
  return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
}

std::vector<std::string> objections_to(const CutProblem& p, const std::vector<int>& device) {
  std::vector<std::string> out;
  if (device.size() != p.nodes.size()) return {fmt::format("{} nodes, but devices of {}", p.nodes.size(), device.size())};
  const std::vector<int> classes = cutting::classes_of(p);
  std::vector<int> first(p.nodes.size(), -1);  // node of each class
  std::vector<double> bytes(at(p.devices()));
  for (int i = 0; i < static_cast<int>(p.nodes.size()); ++i) {
    const CutNode& n = p.nodes[at(i)];
    const int d = device[at(i)];
    if (d < 0 || d >= p.devices()) return {fmt::format("'{}' is on device {} of {}", n.name, d, p.devices())};
    bytes[at(d)] += n.bytes;
    if (!std::isfinite(n.seconds.at(at(p.kind_of(d))))) out.push_back(fmt::format("'{}' cannot be on {}", n.name, p.kinds[at(p.kind_of(d))].name));
    int& other = first[at(classes[at(i)])];
    if (other < 0) other = i;
    if (device[at(other)] != d) out.push_back(fmt::format("'{}' and '{}' must be together", p.nodes[at(other)].name, n.name));
  }
  for (int d = 0; d < p.devices(); ++d)
    if (const CutKind& k = p.kinds[at(p.kind_of(d))]; bytes[at(d)] > k.memory * (1 + 1e-8)) out.push_back(fmt::format("device {} has {:.0f} bytes of {:.0f}", d, bytes[at(d)], k.memory));
  std::set<std::pair<int, int>> order;
  for (auto [a, b] : cutting::order_edges(p))
    if (device[at(a)] != device[at(b)]) order.emplace(device[at(a)], device[at(b)]);
  if (!std::isfinite(longest_way(std::vector<double>(at(p.devices())), order))) out.push_back("parts need each other: they cannot be ordered");
  return out;
}

}  // namespace belfry
