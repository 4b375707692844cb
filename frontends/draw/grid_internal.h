// Where boxes stand before they have coordinates: rows that all lanes share, with a channel for wires above each.
#pragma once

#include <vector>

#include <belfry/frontends/draw/diagram_internal.h>

namespace belfry::picture {

struct Grid {
  std::vector<Band> rows;                            ///< of each row its band
  std::vector<std::vector<std::vector<int>>> boxes;  ///< per lane and row, from left to right
};

/// Gives every box its row and, inside its lane, its x and width; lanes get their widths.
Grid make_grid(Diagram& diagram);

/// Bundles edges into wires, gives lanes, columns and rows their places, and draws the wires.
void route(Diagram& diagram, const Grid& grid);

}  // namespace belfry::picture
