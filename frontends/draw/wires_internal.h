// Edges bundled into wires, and the tracks that wires run on.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <belfry/frontends/draw/diagram_internal.h>

namespace belfry::picture {

/// Edges to the row below stay by themselves; of a whole plan, what one box sends into one lane is a wire; of a folded one, what
/// boxes of one fill send from lane to lane.
std::vector<Wire> wires_of(const Diagram& diagram);

/// A path of SVG through these points, its corners rounded.
std::string rounded(const std::vector<std::pair<double, double>>& corners);

/// Parallel tracks: intervals that would meet lie on different ones. Intervals are added by ascending `low`.
class Tracks {
 public:
  int add(double low, double high);
  int size() const { return static_cast<int>(ends_.size()); }

 private:
  std::vector<double> ends_;
};

}  // namespace belfry::picture
