#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/plan_boxes_internal.h>
#include <belfry/frontends/draw/reads_internal.h>
#include <belfry/frontends/draw/svg_internal.h>
#include <belfry/frontends/draw/texts_internal.h>
#include <belfry/graph/plan/moves.h>

namespace belfry::picture {

namespace {

constexpr std::int64_t kMostWhole = 150;    // instances that are all drawn
constexpr std::size_t kMostFolded = 6000;   // nodes that are folded into layers
constexpr int kMostLayers = 32;
constexpr std::size_t kMostColumns = 10, kMostBoxes = 200, kMostSquares = 24;

bool is_drawable(const Diagram& d) { return d.columns.size() <= kMostColumns && d.lanes.size() <= 2 * kMostColumns && d.boxes.size() <= kMostBoxes; }

/// Equal devices are one row and one column of the matrix.
struct Matrix {
  std::vector<std::vector<double>> bytes;  ///< from, to
  double most = 0;
};

Matrix matrix_of(const PlacedGraph& plan, const std::vector<Column>& columns) {
  std::vector<std::size_t> column_of(plan.cluster.devices.size());
  for (std::size_t c = 0; c < columns.size(); ++c)
    for (int d : columns[c].devices) column_of[static_cast<std::size_t>(d)] = c;
  Matrix out;
  out.bytes.assign(columns.size(), std::vector<double>(columns.size()));
  const Instances instances(plan);
  for (const PlanNode& n : plan.nodes)
    for (const Move& m : moves_of(instances, n))
      if (m.from != m.to) out.bytes[column_of[static_cast<std::size_t>(m.from)]][column_of[static_cast<std::size_t>(m.to)]] += static_cast<double>(m.bytes);
  for (const auto& row : out.bytes)
    for (double b : row) out.most = std::max(out.most, b);
  return out;
}

}  // namespace

Detail detail_of(const PlacedGraph& plan, Diagram& d, const PictureOptions& options) {
  if (count_instances(plan) <= kMostWhole) {
    d = whole_diagram(plan, options);
    arrange(d);
    return Detail::whole;
  }
  if (plan.nodes.size() <= kMostFolded) {
    d = folded_diagram(plan, options, kMostLayers);
    if (is_drawable(d)) {
      arrange(d);
      return Detail::folded;
    }
  }
  d = {};
  d.columns = lanes_of(plan, true).columns;
  describe_heads(plan, options, d);
  return Detail::overview;
}

Detail detail_of(const Graph& graph, Diagram& d) {
  if (static_cast<std::size_t>(graph.size()) > 20 * kMostFolded) {
    d.title = graph.name;
    d.subtitle = fmt::format("a graph of {} nodes, not placed", graph.size());
    return Detail::overview;
  }
  const bool whole = graph.size() <= kMostWhole;
  d = whole ? graph_diagram(graph) : folded_diagram(graph, kMostLayers);
  arrange(d);
  return whole ? Detail::whole : Detail::folded;
}

std::string svg_overview(const PlacedGraph& plan, const PictureOptions& options, bool timeline) {
  Diagram d;
  d.columns = lanes_of(plan, true).columns;
  describe_heads(plan, options, d);
  const Matrix matrix = matrix_of(plan, d.columns);
  const std::size_t shown = std::min(d.columns.size(), kMostSquares);
  const double side = shown <= 9 ? 64 : 34;
  double names = 90;
  for (std::size_t c = 0; c < shown; ++c) names = std::max(names, text_width(d.columns[c].name, 11) + 16);
  const double heads = 330, matrix_x = 16 + heads + 40 + names;
  d.width = std::max({900.0, matrix_x + side * static_cast<double>(shown) + 60, text_width(d.subtitle, 12.5) + 60});
  const double top = 92, squares = top + 46;
  std::string out = svg_title(d) + svg_text(16, top + 14, "b", "devices, equal ones once") + svg_text(matrix_x - names, top + 14, "b", "bytes a step, from the row's device to the column's");
  double y = top + 24;
  for (std::size_t c = 0; c < shown; ++c, y += 74) out += svg_head(d.columns[c], 16, y, heads) + "\n";
  for (std::size_t i = 0; i < shown; ++i) {
    const double row = squares + side * static_cast<double>(i);
    out += svg_text(matrix_x - 8, row + side / 2 + 4, "l", d.columns[i].name, "end");
    out += svg_text(matrix_x + side * (static_cast<double>(i) + 0.5), squares - 8, "l", shortened(d.columns[i].name, side > 40 ? 10 : 6), "middle");
    for (std::size_t j = 0; j < shown; ++j) {
      const double bytes = matrix.bytes[i][j], x = matrix_x + side * static_cast<double>(j);
      const double strength = bytes > 0 ? 0.15 + 0.85 * std::pow(bytes / matrix.most, 0.4) : 0;
      out += fmt::format("<g><title>{} → {}\n{}</title>{}{}</g>", escaped(d.columns[i].name), escaped(d.columns[j].name), human_bytes(static_cast<std::int64_t>(bytes)),
                         svg_rectangle(x, row, side - 2, side - 2, 3, "idle"), svg_rectangle(x, row, side - 2, side - 2, 3, "cell", fmt::format(" fill-opacity=\"{:.2f}\"", strength)));
      if (bytes > 0 && side > 40) out += svg_text(x + side / 2 - 1, row + side / 2 + 3, strength > 0.6 ? "on" : "d", human_bytes(static_cast<std::int64_t>(bytes)), "middle");
    }
    out += "\n";
  }
  double below = squares + side * static_cast<double>(shown) + 22;
  std::vector<std::tuple<double, std::size_t, std::size_t>> most;
  for (std::size_t i = 0; i < d.columns.size(); ++i)
    for (std::size_t j = 0; j < d.columns.size(); ++j)
      if (matrix.bytes[i][j] > 0) most.emplace_back(-matrix.bytes[i][j], i, j);
  std::sort(most.begin(), most.end());
  for (std::size_t k = 0; k < std::min<std::size_t>(most.size(), 6); ++k, below += 17) {
    const auto [bytes, i, j] = most[k];
    out += svg_text(matrix_x - names, below, "l", fmt::format("{} → {}: {}", d.columns[i].name, d.columns[j].name, human_bytes(static_cast<std::int64_t>(-bytes))));
  }
  if (most.empty()) out += svg_text(matrix_x - names, below, "l", "nothing crosses from device to device"), below += 17;
  if (shown < d.columns.size()) out += svg_text(16, y + 14, "f", fmt::format("and {} kinds of devices more", d.columns.size() - shown));
  y = std::max(y + 24, below + 10);
  if (timeline && options.forecast && options.forecast->seconds > 0) {
    double height = 0;
    out += svg_timeline(plan, *options.forecast, 16, y, d.width - 32, height);
    y += height;
  }
  out += svg_text(16, y + 16, "f", fmt::format("{} nodes, {} launches a step", plan.nodes.size(), count_instances(plan)));
  return svg_start(d.width, y + 30) + out + "</svg>\n";
}

std::string svg_overview(const Graph& graph) {
  Diagram d;
  detail_of(graph, d);
  d.width = 640;
  return svg_start(640, 90) + svg_title(d) + "</svg>\n";
}

}  // namespace belfry::picture

namespace belfry {

std::string draw_svg(const PlacedGraph& plan, const PictureOptions& options) {
  picture::Diagram d;
  return picture::detail_of(plan, d, options) == picture::Detail::overview ? picture::svg_overview(plan, options, true) : picture::svg_of(d, &plan, options);
}

std::string draw_svg(const Graph& graph) {
  picture::Diagram d;
  return picture::detail_of(graph, d) == picture::Detail::overview ? picture::svg_overview(graph) : picture::svg_of(d, nullptr, {});
}

}  // namespace belfry
