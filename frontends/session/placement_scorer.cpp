#include <belfry/frontends/session/placement_scorer.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/json/strict_json.h>

namespace belfry {

PlacementScorer::PlacementScorer(Scorer scorer, Placement fixed, std::vector<PlacementRule> last, const std::vector<std::string>& nodes, const SaidOfPlacements& said)
    : scorer_(std::move(scorer)), fixed_(std::move(fixed)), said_(said), last_(std::move(last)), listed_(fixed_) {
  const std::vector<ClusterDevice>& devices = scorer_.cluster().devices;
  for (const ClusterDevice& d : devices) devices_.push_back(json_text(to_string(d.id)));
  for (const std::string& name : nodes) listed_.rules.push_back({name, {devices.at(0).id}, "listed"});
  listed_.rules.insert(listed_.rules.end(), last_.begin(), last_.end());
  listed_.rules.push_back({"**", {devices.at(0).id}, "the rest"});
  if (!listed_.threads) listed_.threads = default_threads(scorer_.cluster(), listed_.towers);
  nodes_ = nodes.size();
}

Score PlacementScorer::asked(const Placement& p, std::size_t must_decide) { return said_.time_only ? Score{scorer_.seconds(p, must_decide), {}, {}} : scorer_(p, must_decide); }

Score PlacementScorer::score_list(const JsonDocument& d) {
  const std::vector<JsonValue>& list = d.root().items;
  const std::vector<ClusterDevice>& devices = scorer_.cluster().devices;
  if (list.size() != nodes_) d.fail(d.root(), fmt::format("has {} numbers, but the problem has {} nodes", list.size(), nodes_));
  const std::size_t before = fixed_.rules.size();
  for (std::size_t k = 0; k < nodes_; ++k)
    listed_.rules[before + k].devices[0] = devices[static_cast<std::size_t>(d.integer(list[k], 0, static_cast<std::int64_t>(devices.size()) - 1))].id;
  return asked(listed_, before);
}

Score PlacementScorer::score(std::string_view text, const std::string& where) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin != text.npos && text[begin] == '[') return score_list(JsonDocument(text, where));
  PlacementFile file = read_placement(std::string(text), where);
  Placement p = fixed_;
  p.towers = said_.towers ? said_.towers : file.towers.value_or(1);
  p.batch = said_.batch ? said_.batch : file.batch.value_or(p.batch);
  p.combine = file.combine.value_or(Combine::global_mean);
  p.order = file.order.value_or(PhaseOrder::by_tower);
  if (!file.recompute.empty()) p.recompute = file.recompute;
  p.collectives = file.collectives.value_or(Collectives::tree);
  p.threads = said_.threads ? said_.threads : file.threads.value_or(0);
  if (!p.threads) p.threads = default_threads(scorer_.cluster(), p.towers);
  std::move(file.rules.begin(), file.rules.end(), std::back_inserter(p.rules));
  const std::size_t must_decide = p.rules.size();
  p.rules.insert(p.rules.end(), last_.begin(), last_.end());
  return asked(p, must_decide);
}

std::string PlacementScorer::line(std::string_view text, std::int64_t number) {
  try {
    const Score s = score(text, fmt::format("placement {}", number));
    if (!s.over.empty()) throw UserError(fmt::format("the plan does not fit: {}", fmt::join(s.over, "; ")));
    std::string out = "{\"step_seconds\": " + json_real(s.step_seconds);
    if (said_.time_only) return out + "}";
    out += ", \"peak\": {";
    for (std::size_t d = 0; d < devices_.size(); ++d) out += fmt::format("{}{}: {}", d ? ", " : "", devices_[d], s.peak[d]);
    return out + "}}";
  } catch (const UserError& e) {
    return "{\"error\": " + json_text(e.what()) + "}";
  }
}

}  // namespace belfry
