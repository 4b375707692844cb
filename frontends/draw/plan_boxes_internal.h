// What a plan's nodes look like as boxes: band, fill, outline, seconds, and whether they moved.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <belfry/frontends/draw/diagram_internal.h>

namespace belfry::picture {

/// Per node. What reads nothing stands where it is read first.
std::vector<Band> bands_of(const PlacedGraph& plan);
Fill fill_of(const PlacedGraph& plan, const PlanNode& node);
Outline outline_of(const std::string& op);
/// "∇ dense/matmul" for a gradient, "Σ dense/matmul" for its sum over towers.
std::string label_of(const std::string& name, std::size_t most);
/// "host → sim:1", or "in host" inside one memory.
std::string link_name(const PlacedGraph& plan, int from, int to);

/// Seconds of launches by node and lane, from the forecast; 0 where there is none.
class Times {
 public:
  Times(const PictureOptions& options, const Lanes& lanes);
  double seconds(int node, int lane) const;   ///< of one launch
  bool critical(int node, int lane) const;

 private:
  std::map<std::pair<int, int>, std::tuple<double, int, bool>> of_;
};

/// Streams that launch something, with their names; where there are more than `most`, of equal devices the one that ends last.
std::vector<std::pair<int, std::string>> timeline_streams(const PlacedGraph& plan, const Forecast& forecast, std::size_t most);

/// What sits elsewhere than in another plan.
class Moved {
 public:
  Moved(const PlacedGraph& plan, const PlacedGraph* before);
  std::string operator()(const PlanNode& node) const;      ///< in words; empty where nothing moved
  bool operator()(const PlanNode& node, int tower) const;  ///< this instance

 private:
  const PlacedGraph& plan_;
  const PlacedGraph* before_;
  std::map<std::string, const PlanNode*> old_;
};

}  // namespace belfry::picture
