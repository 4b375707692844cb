// Scores placements of what a session would place, a line of JSON each: what `belfry forecast --jsonl` does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <belfry/frontends/json/strict_json.h>
#include <belfry/placer/scorer.h>

namespace belfry {

/// What goes before what a placement file says of it; 0: nothing does.
struct SaidOfPlacements {
  int towers = 0, threads = 0;
  std::int64_t batch = 0;
  bool time_only = false;  ///< step_seconds alone, whether it fits or not
};

class PlacementScorer {
 public:
  /// `fixed`: towers, batch, combine, threads (0: by the cluster's cores) and order of lists of numbers, and rules that go before
  /// all others; `last`: rules behind all others; `nodes`: the rules that a list stands for. A placement file has one tower, the
  /// global mean and no order of phases where neither it nor `said` has others, as for `belfry place --placement`; its devices stay.
  PlacementScorer(Scorer scorer, Placement fixed, std::vector<PlacementRule> last, const std::vector<std::string>& nodes, const SaidOfPlacements& said = {});

  /// Of a placement file on one line, or a list with the number of a device for each node, both in the order of the problem
  /// file: {"step_seconds": …, "peak": {"cpu:0": bytes, …}} (the time alone: no "peak") or {"error": …}. `number` of the line, for errors.
  std::string line(std::string_view text, std::int64_t number);

 private:
  Score score(std::string_view text, const std::string& where);
  Score score_list(const JsonDocument& list);
  Score asked(const Placement& placement, std::size_t must_decide);

  Scorer scorer_;
  Placement fixed_;
  SaidOfPlacements said_;
  std::vector<PlacementRule> last_;
  Placement listed_;                  // of the last list: its rules stand between the fixed ones and the last
  std::size_t nodes_ = 0;
  std::vector<std::string> devices_;  // of the cluster, as JSON
};

}  // namespace belfry
