#include <belfry/frontends/draw/svg_internal.h>
#include <belfry/frontends/draw/texts_internal.h>
#include <belfry/graph/structural.h>

#include <algorithm>

#include <fmt/format.h>

#include "page_files.h"

namespace belfry::picture {

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F ? std::string("\xEF\xBF\xBD") : std::string(1, c);
    }
  }
  return out;
}

std::string_view svg_style() { return kPictureCss; }

std::string svg_text(double x, double y, std::string_view css_class, std::string_view text, std::string_view anchor) {
  const std::string at = anchor == "start" ? "" : fmt::format(" text-anchor=\"{}\"", anchor);
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\"{}>{}</text>", x, y, css_class, at, escaped(text));
}

std::string svg_rectangle(double x, double y, double w, double h, double round, std::string_view css_class, std::string_view more) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{:.1f}\" class=\"{}\"{}/>", x, y, w, h, round, css_class, more);
}

std::string svg_start(double width, double height) {
  return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<style>{2}</style>\n"
                     "<rect width=\"100%\" height=\"100%\" class=\"ground\"/>\n",
                     width, height, svg_style());
}

namespace {

/// The outline at 0, 0.
std::string outline(const Box& b, std::string_view css_class) {
  const double w = b.width, h = b.height;
  auto path = [&](const std::string& d) { return fmt::format("<path d=\"{}\" class=\"{}\"/>", d, css_class); };
  switch (b.outline) {
    case Outline::state: return svg_rectangle(0, 0, w, h, h / 2, css_class);
    case Outline::input: return path(fmt::format("M4 0H{:.1f}V{:.1f}L{:.1f} {:.1f}H0V4Z", w, h - 4, w - 4, h));
    case Outline::copy: return path(fmt::format("M8 0H{:.1f}L{:.1f} {:.1f}H0Z", w, w - 8, h));
    case Outline::split: return path(fmt::format("M9 0H{:.1f}L{:.1f} {:.1f}H0Z", w - 9, w, h));
    case Outline::aggregate: return path(fmt::format("M0 0H{:.1f}L{:.1f} {:.1f}H9Z", w, w - 9, h));
    case Outline::fetch: return path(fmt::format("M0 0H{:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}H0Z", w - 10, w, h / 2, w - 10, h));
    case Outline::store: return path(fmt::format("M8 0H{:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}H8L0 {:.1f}Z", w - 8, w, h / 2, w - 8, h, h / 2));
    case Outline::fused: return svg_rectangle(0, 0, w, h, 4, css_class) + fmt::format("<path d=\"M4.5 1V{:.1f}M{:.1f} 1V{:.1f}\" class=\"seam\"/>", h - 1, w - 4.5, h - 1);
    case Outline::group: return svg_rectangle(3, -3, w - 6, h, 6, "stack") + svg_rectangle(0, 0, w, h, 6, css_class);
    case Outline::plain: break;
  }
  return svg_rectangle(0, 0, w, h, 4, css_class);
}

std::string svg_wires(const Diagram& d, bool across) {
  std::string out;
  for (const Wire& w : d.wires) {
    if (w.across != across) continue;
    if (!across) {
      out += fmt::format("<path d=\"{}\" class=\"w\"/>\n", w.path);
      continue;
    }
    out += fmt::format("<g class=\"x {}\"><title>{}</title><path d=\"{}\" class=\"line\"/><path d=\"{}\" class=\"arrow\"/></g>\n", to_string(w.fill), escaped(w.note), w.path, w.heads);
  }
  return out;
}

std::string svg_labels(const Diagram& d) {
  std::string out;
  for (const Wire& w : d.wires)
    if (w.across)
      out += fmt::format("<g class=\"pill {}\" transform=\"translate({:.1f} {:.1f})\">{}{}</g>\n", to_string(w.fill), w.label_x, w.label_y, svg_rectangle(0, 0, w.label_width, 14, 7, ""),
                         svg_text(w.label_width / 2, 10.2, "p", w.label, "middle"));
  return out;
}

std::string svg_bands(const Diagram& d) {
  constexpr const char* names[] = {"input, split", "forward", "backward", kAggregate, "update"};
  std::string out;
  for (const auto& [band, place] : d.band_places) {
    const char* name = d.folded && band == Band::forward ? "layers" : names[static_cast<std::size_t>(band)];
    constexpr Fill fills[] = {Fill::input, Fill::forward, Fill::backward, Fill::aggregate, Fill::update};
    out += fmt::format("<g class=\"band {}\">{}{}</g>\n", to_string(fills[static_cast<std::size_t>(band)]), svg_rectangle(16, place.first + 5, 4, place.second - place.first - 10, 2, "mark"),
                       svg_text(28, place.first + 22, "b", name));
    if (d.folded && band == Band::forward) out += svg_text(28, place.first + 36, "f", "and gradients") + "\n";
    if (band != d.band_places.begin()->first) out += fmt::format("<path d=\"M16 {:.1f}H{:.1f}\" class=\"rule\"/>\n", place.first, d.width - 16);
  }
  return out;
}

std::string svg_legend(double x, double y, bool folded) {
  std::string out;
  std::vector<std::tuple<const char*, Fill, Outline>> kinds = {
      {kInput, Fill::input, Outline::input},       {kSplit, Fill::input, Outline::split},     {kVariable, Fill::state, Outline::state},          {kCopy, Fill::state, Outline::copy},
      {"forward", Fill::forward, Outline::plain},   {kFused, Fill::forward, Outline::fused},   {"gradient", Fill::backward, Outline::plain},       {kAggregate, Fill::aggregate, Outline::aggregate},
      {kFetch, Fill::aggregate, Outline::fetch},   {"update", Fill::update, Outline::plain},   {kStore, Fill::update, Outline::store}};
  if (folded) kinds.insert(kinds.begin() + 4, {"layer with gradient", Fill::forward, Outline::group});
  for (const auto& [name, fill, shape] : kinds) {
    Box b;
    b.label = name, b.fill = fill, b.outline = shape, b.x = x, b.y = y, b.height = 18, b.width = text_width(name, 11) + 24;
    out += svg_box(b);
    x += b.width + 10;
  }
  return out;
}

}  // namespace

std::string svg_box(const Box& b, int number) {
  std::string names;
  if (number >= 0) {
    for (int n : b.nodes) names += (names.empty() ? "" : " ") + std::to_string(n);
    names = fmt::format(" data-b=\"{}\"", number);
  }
  std::string out = fmt::format("<g class=\"n {}{}\"{} transform=\"translate({:.1f} {:.1f})\">", to_string(b.fill), b.moved ? " moved" : "", names, b.x, b.y);
  if (!b.note.empty()) out += fmt::format("<title>{}</title>", escaped(b.note));
  if (b.moved) out += svg_rectangle(-4, -4, b.width + 8, b.height + 8, 8, "halo");
  out += outline(b, "o");
  const double middle = b.width / 2;
  out += svg_text(middle, b.detail.empty() ? b.height / 2 + 3 : 14.5, "l", b.label, "middle");
  if (!b.detail.empty()) out += svg_text(middle, 27, "d", b.detail, "middle");
  if (b.share > 0.01) out += svg_rectangle(8, b.height - 3.6, std::max(1.5, (b.width - 16) * b.share), 2.2, 1, b.critical ? "time late" : "time");
  return out + "</g>\n";
}

std::string svg_title(const Diagram& d) {
  std::string out = svg_text(16, 36, "t", d.title) + svg_text(16, 58, "s", d.subtitle);
  if (!d.summary.empty()) out += svg_text(d.width - 20, 38, "t", d.summary, "end");
  return out + "\n";
}

std::string svg_bar(double x, double y, double width, double share, std::string_view css_class) {
  return svg_rectangle(x, y, width, 7, 3.5, "bar") + (share > 0 ? svg_rectangle(x, y, std::max(2.0, width * share), 7, 3.5, css_class) : "");
}

std::string svg_head(const Column& c, double x, double y, double width) {
  std::string out = svg_text(x, y + 22, "h", c.name);
  if (c.memory.empty()) return out;
  const double half = (width - 14) / 2;
  const bool busy = c.busy_share >= 0;
  const double memory = busy ? half : width;
  out += svg_text(x, y + 43, "f", "memory " + c.memory) + svg_bar(x, y + 50, memory, c.memory_share, c.over ? "over" : "memory");
  if (busy) out += svg_text(x + half + 14, y + 43, "f", "busy " + c.busy) + svg_bar(x + half + 14, y + 50, half, c.busy_share, "busy");
  return out;
}

std::string svg_of(const Diagram& given, const PlacedGraph* plan, const PictureOptions& options) {
  Diagram d = given;
  d.width = std::max({d.width, text_width(d.subtitle, 12.5) + 60, text_width(d.title, 20) + text_width(d.summary, 20) + 90, 640.0});
  const double panel_end = d.height + 8;
  std::string inside = svg_bands(d);
  for (const Column& c : d.columns) inside += svg_rectangle(c.x, d.head, c.width, panel_end - d.head, 10, "panel") + svg_head(c, c.x + 14, d.head, c.width - 28) + "\n";
  double lane_y = d.head + (d.columns.size() == 1 && d.columns[0].memory.empty() ? 44 : 80);
  for (const Lane& l : d.lanes)
    if (!l.name.empty()) inside += svg_text(l.x + l.width / 2, lane_y, "f", l.name, "middle") + "\n";
  inside += svg_wires(d, false) + svg_wires(d, true);
  for (std::size_t i = 0; i < d.boxes.size(); ++i) inside += svg_box(d.boxes[i], static_cast<int>(i));
  inside += svg_labels(d);
  std::string below;
  double y = panel_end + 18;
  if (plan && options.forecast && options.forecast->seconds > 0) {
    double height = 0;
    below += svg_timeline(*plan, *options.forecast, 16, y, d.width - 32, height);
    y += height + 14;
  }
  if (d.width >= 900) below += svg_legend(16, y, d.folded), y += 30;
  return svg_start(d.width, y + 4) + svg_title(d) + "<g class=\"diagram\">\n" + inside + "</g>\n<g class=\"below\">\n" + below + "</g>\n</svg>\n";
}

}  // namespace belfry::picture
