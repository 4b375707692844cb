// What a picture shows before it has places: columns of devices, their lanes, boxes, and wires between boxes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <belfry/frontends/draw/picture.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry::picture {

enum class Band : std::uint8_t { input, forward, backward, aggregate, update };
inline constexpr int kBands = 5;
/// What fills a box: its role in the step.
enum class Fill : std::uint8_t { input, state, forward, backward, aggregate, update };
std::string_view to_string(Fill fill);
/// What was inserted has another outline than the user's nodes.
enum class Outline : std::uint8_t { plain, fused, state, input, copy, split, aggregate, fetch, store, group };

struct Box {
  std::string label, detail;     ///< one line, or two
  std::string note;              ///< of several lines, on hover
  Fill fill = Fill::forward;
  Outline outline = Outline::plain;
  Band band = Band::forward;
  int lane = 0;
  std::int64_t order = 0;        ///< boxes of a band stand in it from top to bottom
  double share = 0;              ///< of the longest box's seconds
  bool critical = false, moved = false;
  std::vector<int> nodes;        ///< of the plan or graph
  int row = -1;
  double x = 0, y = 0, width = 0, height = 0;  ///< x, y: the upper left corner
};

struct Edge {
  int from = 0, to = 0;          ///< boxes
  std::int64_t bytes = 0;
  bool across = false;           ///< between devices
  std::string link;              ///< of an edge across: "host → sim:1"
  Fill fill = Fill::forward;     ///< what it carries
  bool operator==(const Edge&) const = default;
};

/// Edges that are drawn as one line with branches: from one box to several, or from several to one.
struct Wire {
  std::vector<int> from, to;
  bool across = false;
  std::string label, note;       ///< of one across
  Fill fill = Fill::forward;     ///< what it carries
  std::string path, heads;       ///< of SVG: its lines, and an arrow's head per reader across
  double label_x = 0, label_y = 0, label_width = 0;
};

/// A vertical strip of a column: what its device holds for all towers, or one tower.
struct Lane {
  std::string name;
  int column = 0;
  int times = 1;                 ///< equal ones that it stands for
  bool shared = false;           ///< it has no tower
  double x = 0, width = 0;       ///< of its boxes
};

struct Column {
  std::string name, memory, busy;
  double memory_share = 0, busy_share = -1;  ///< -1: no forecast
  bool over = false;             ///< more is planned than there is
  std::vector<int> devices;      ///< that it stands for
  double x = 0, width = 0;
};

struct Diagram {
  std::string title, subtitle, summary;
  std::vector<Column> columns;
  std::vector<Lane> lanes;       ///< of one column side by side
  std::vector<Box> boxes;
  std::vector<Edge> edges;
  std::vector<Wire> wires;       ///< made from the edges
  bool folded = false;
  std::map<Band, std::pair<double, double>> band_places;  ///< top and bottom
  double head = 0;               ///< y of the columns' heads
  double width = 0, height = 0;
};

/// Towers and devices that do the same are drawn once: which lane an instance belongs to, and which ones stand for it.
struct Lanes {
  std::vector<Column> columns;
  std::vector<Lane> lanes;
  std::map<std::pair<int, int>, int> lane_of;          ///< device and tower (-1: what it does for all)
  std::vector<std::pair<int, int>> shown;              ///< per lane, the device and a tower that are drawn
  /// The lane in which an instance is drawn; -1: an equal one stands for it.
  int drawn(int tower, int device) const;
};
Lanes lanes_of(const PlacedGraph& plan, bool fold);

/// Instances of nodes that a picture of everything would draw.
std::int64_t count_instances(const PlacedGraph& plan);
/// Every instance a box.
Diagram whole_diagram(const PlacedGraph& plan, const PictureOptions& options);
Diagram graph_diagram(const Graph& graph);
/// Layers as boxes, with their gradients; equal towers once. `most` boxes of layers at most.
Diagram folded_diagram(const PlacedGraph& plan, const PictureOptions& options, int most);
Diagram folded_diagram(const Graph& graph, int most);
/// Title, subtitle, and the columns' heads.
void describe_heads(const PlacedGraph& plan, const PictureOptions& options, Diagram& diagram);

/// Places everything: rows of boxes over all lanes, wires in the channels between them, so that no line crosses a box.
void arrange(Diagram& diagram);

}  // namespace belfry::picture
