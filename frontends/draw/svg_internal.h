// Pieces of SVG text.
#pragma once

#include <string>
#include <string_view>

#include <belfry/frontends/draw/diagram_internal.h>

namespace belfry::picture {

/// For text and attributes alike; what no XML may hold becomes U+FFFD.
std::string escaped(std::string_view text);
/// The colours, on light and dark grounds.
std::string_view svg_style();
/// A text; `anchor` is start, middle or end.
std::string svg_text(double x, double y, std::string_view css_class, std::string_view text, std::string_view anchor = "start");
/// A box with its outline, texts, bar of seconds and mark.
std::string svg_box(const Box& box, int number = -1);
/// Title, what goes with it, and the step's time on the right.
std::string svg_title(const Diagram& diagram);
/// A bar with its share filled.
std::string svg_bar(double x, double y, double width, double share, std::string_view css_class);
/// What opens a picture of this size: its colours and its ground.
std::string svg_start(double width, double height);
/// A rectangle with round corners.
std::string svg_rectangle(double x, double y, double width, double height, double round, std::string_view css_class, std::string_view more = "");
/// A column's name, memory and busy share.
std::string svg_head(const Column& column, double x, double y, double width);

/// The step on a scale: a row per stream, equal devices once; what waits stays empty. Sets the height that it takes.
std::string svg_timeline(const PlacedGraph& plan, const Forecast& forecast, double x, double y, double width, double& height);

/// The whole of a diagram that has places; with the timeline where a plan is given.
std::string svg_of(const Diagram& diagram, const PlacedGraph* plan, const PictureOptions& options);
/// Bytes from device to device, memory and timeline: of plans that no drawing of nodes can show.
std::string svg_overview(const PlacedGraph& plan, const PictureOptions& options, bool timeline);
std::string svg_overview(const Graph& graph);

/// What is drawn of a plan, if its nodes can be.
enum class Detail { whole, folded, overview };
Detail detail_of(const PlacedGraph& plan, Diagram& diagram, const PictureOptions& options);
Detail detail_of(const Graph& graph, Diagram& diagram);

}  // namespace belfry::picture
