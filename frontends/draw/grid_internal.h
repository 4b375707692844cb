// Where boxes stand before they have coordinates: rows that all lanes share, with a channel for wires above each.
#pragma once

#include <cstddef>
#include <vector>

#include <belfry/frontends/draw/diagram_internal.h>

namespace belfry::picture {

struct Grid {
  std::vector<Band> rows;                            ///< of each row its band
  std::vector<std::vector<std::vector<int>>> boxes;  ///< per lane and row, from left to right
};

inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Gives every box its row and, inside its lane, its x and width; lanes get their widths.
Grid make_grid(Diagram& diagram);

/// Bundles edges into wires, gives lanes, columns and rows their places, and draws the wires.
void route(Diagram& diagram, const Grid& grid);

}  // namespace belfry::picture
