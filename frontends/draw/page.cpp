#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/plan_boxes_internal.h>
#include <belfry/frontends/draw/svg_internal.h>
#include <belfry/frontends/draw/texts_internal.h>
#include <belfry/graph/structural.h>

#include "page_files.h"

namespace belfry::picture {

namespace {

constexpr std::size_t kMostLaunches = 250000, kMostInside = 150;

/// Of JSON, inside a script of HTML too.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == '<' || c == '&') out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else out += c;
  }
  return out + "\"";
}

/// Texts that many nodes share stand once.
class Texts {
 public:
  std::size_t operator()(const std::string& text) {
    auto [at, fresh] = number_.try_emplace(text, all_.size());
    if (fresh) all_.push_back(quoted(text));
    return at->second;
  }
  std::string json() const { return fmt::format("[{}]", fmt::join(all_, ",")); }

 private:
  std::map<std::string, std::size_t> number_;
  std::vector<std::string> all_;
};

/// A node per line; of its name what differs from the line before.
class Nodes {
 public:
  struct Facts {
    std::string name, op, kernel, where, reason, stream, cause, type;
    Fill fill = Fill::forward;
    int epoch = 0, order = 0;
    std::int64_t bytes = 0;
    double seconds = 0;
    bool critical = false;
    std::set<int> inputs;
  };
  void add(const Facts& f) {
    std::size_t same = 0;
    while (same < f.name.size() && same < last_.size() && f.name[same] == last_[same]) ++same;
    last_ = f.name;
    out_ += fmt::format("{}[{},{},{},{},{},", out_.empty() ? "" : ",\n", same, quoted(f.name.substr(same)), texts_(f.op), texts_(f.kernel), static_cast<int>(f.fill));
    out_ += fmt::format("{},{},{},{},{},{},{},", texts_(f.where), texts_(f.reason), texts_(f.stream), texts_(f.cause), texts_(f.type), f.epoch, f.order);
    out_ += fmt::format("{},{},{},[{}]]", f.bytes, std::llround(f.seconds * 1e9), static_cast<int>(f.critical), fmt::join(f.inputs, ","));
  }
  std::string json() const { return fmt::format("\"texts\":{},\n\"nodes\":[\n{}]", texts_.json(), out_); }

 private:
  Texts texts_;
  std::string last_, out_;
};

std::string plan_nodes(const PlacedGraph& plan, const PictureOptions& options) {
  const std::vector<std::string> streams = streams_by_vector(plan, ", ");
  std::map<int, std::pair<double, bool>> times;  // of a node's longest launch
  if (options.forecast) {
    for (const ForecastLaunch& l : options.forecast->launches) times[l.node].first = std::max(times[l.node].first, l.end - l.begin);
    for (int k : options.forecast->path) times[options.forecast->launches[static_cast<std::size_t>(k)].node].second = true;
  }
  Nodes nodes;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    const std::string stream = n.scope == Scope::tower ? streams[static_cast<std::size_t>(n.vector)] : n.scope == Scope::state ? "" : n.once ? "main, once" : "main";
    Nodes::Facts f{n.name, n.op, "", to_string(plan.cluster.ids(all_devices(plan, n))), n.reason, stream, "", "", fill_of(plan, n), n.epoch, n.order, 0, 0, false, {}};
    f.kernel = kernels_of(n, ", ");
    if (n.op == kFused) f.op += " " + n.attributes.text("kind");
    if (n.inserted) f.cause = plan.graph->node(n.user).name;
    f.type = to_string(plan.value(n.outputs[0]).type);
    for (ValueIndex v : n.outputs)
      if (plan.value(v).read) f.bytes += local_type(plan.value(v), plan.share(n.scope == Scope::tower ? 0 : -1)).bytes();
    if (auto at = times.find(static_cast<int>(i)); at != times.end()) f.seconds = at->second.first, f.critical = at->second.second;
    for (ValueIndex v : n.inputs)
      if (v >= 0) f.inputs.insert(plan.value(v).maker);
    nodes.add(f);
  }
  return nodes.json();
}

std::string graph_nodes(const Graph& graph) {
  Nodes nodes;
  for (const Node& n : graph.nodes()) {
    const Fill fill = n.op->name == kInput ? Fill::input : n.op->name == kVariable ? Fill::state : n.role == Role::forward ? Fill::forward : n.role == Role::backward ? Fill::backward : Fill::update;
    Nodes::Facts f{n.name, n.op->name, "", n.device ? to_string(*n.device) : "", "", "", "", n.types.empty() ? "" : to_string(n.types[0]), fill, 0, 0, 0, 0, false, {}};
    for (ValueId v : n.inputs)
      if (v.node >= 0) f.inputs.insert(v.node);
    nodes.add(f);
  }
  return nodes.json();
}

/// Per stream node, tower, and in nanoseconds the pause before and the time of every launch.
std::string streams_json(const PlacedGraph& plan, const PictureOptions& options) {
  if (!options.forecast) return "\"streams\":[]";
  const Forecast& f = *options.forecast;
  std::map<int, std::vector<int>> launches;
  for (std::size_t k = 0; k < f.launches.size(); ++k) launches[f.launches[k].stream].push_back(static_cast<int>(k));
  const std::set<int> path(f.path.begin(), f.path.end());
  std::string out;
  std::size_t count = 0;
  for (const auto& [stream, name] : timeline_streams(plan, f, 16)) {
    const std::vector<int>& all = launches[stream];
    if ((count += all.size()) > kMostLaunches) continue;
    std::string cells;
    std::int64_t at = 0;
    for (int k : all) {
      const ForecastLaunch& l = f.launches[static_cast<std::size_t>(k)];
      const std::int64_t begin = std::llround(l.begin * 1e9), end = std::llround(l.end * 1e9);
      cells += fmt::format("{}{},{},{},{},{}", cells.empty() ? "" : ",", l.node, l.tower, begin - at, end - begin, static_cast<int>(path.count(k)));
      at = end;
    }
    out += fmt::format("{}[{},[{}]]", out.empty() ? "" : ",\n", quoted(name), cells);
  }
  return fmt::format("\"seconds\":{:.9g},\"streams\":[{}]", f.seconds, out);
}

/// The nodes of a box that stands for several, as a picture of their own.
template <class Source, class Boxes>
std::string inside_of(const Source& of, const Box& group, const Boxes& make) {
  Diagram d;
  d.columns.emplace_back();
  d.lanes.emplace_back();
  make(of, group, d);
  if (d.boxes.size() < 2 || d.boxes.size() > kMostInside) return "";
  arrange(d);
  const double left = d.columns[0].x, top = d.band_places.begin()->second.first;
  std::string svg;
  for (const Wire& w : d.wires) svg += fmt::format("<path d=\"{}\" class=\"w\"/>", w.path);
  for (const Box& b : d.boxes) {
    std::string text = svg_box(b);
    svg += text.insert(2, fmt::format(" data-n=\"{}\"", b.nodes[0]));
  }
  return fmt::format("[{:.0f},{:.0f},{}]", d.columns[0].width, d.height - top, quoted(fmt::format("<g transform=\"translate({:.1f} {:.1f})\">{}</g>", -left, -top, svg)));
}

std::string boxes_json(const Diagram& d, const std::function<std::string(const Box&)>& inside) {
  std::string boxes, insides;
  for (std::size_t i = 0; i < d.boxes.size(); ++i) {
    boxes += fmt::format("{}[{}]", i ? "," : "", fmt::join(d.boxes[i].nodes, ","));
    if (d.boxes[i].nodes.size() < 2) continue;
    if (const std::string of = inside(d.boxes[i]); !of.empty()) insides += fmt::format("{}\"{}\":{}", insides.empty() ? "" : ",\n", i, of);
  }
  return fmt::format("\"boxes\":[{}],\n\"inside\":{{{}}}", boxes, insides);
}

std::string html(const std::string& title, const std::string& svg, const std::string& data) {
  return fmt::format(R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<title>{}</title>
<style>{}</style></head>
<body>
<header><input id="find" type="search" placeholder="search nodes: press /" autocomplete="off" spellcheck="false">
<button id="fit">fit</button><button id="open">open all layers</button><button id="close">close all</button>
<span id="hint">drag to move, wheel to zoom, click a box</span></header>
<div id="view">{}</div>
<div id="hits" hidden></div><aside id="side" hidden></aside><div id="tip" hidden></div>
<section id="time" hidden><canvas></canvas></section>
<script type="application/json" id="data">{}</script>
<script>{}</script>
</body></html>
)",
                     escaped(title), kPageCss, svg, data, kPageJs);
}

std::string page_of(const PlacedGraph& plan, const PictureOptions& options) {
  Diagram d;
  const Detail detail = detail_of(plan, d, options);
  const std::string svg = detail == Detail::overview ? svg_overview(plan, options, false) : svg_of(d, nullptr, options);  // the page has a timeline of its own
  const std::vector<Band> bands = bands_of(plan);
  const Moved moved(plan, options.beside);
  auto inside = [&](const PlacedGraph& p, const Box& group, Diagram& out) {
    std::map<int, int> box_of;
    for (int i : group.nodes) {
      const PlanNode& n = p.nodes[static_cast<std::size_t>(i)];
      Box b;
      b.label = label_of(n.name, 24), b.fill = fill_of(p, n), b.outline = outline_of(n.op), b.band = bands[static_cast<std::size_t>(i)];
      b.order = (static_cast<std::int64_t>(n.epoch) + 1) * (std::int64_t{1} << 32) + n.order;
      b.moved = group.moved && !moved(n).empty();
      b.nodes = {i};
      box_of[i] = static_cast<int>(out.boxes.size());
      out.boxes.push_back(std::move(b));
    }
    for (int i : group.nodes)
      for (ValueIndex v : values_read(p.nodes[static_cast<std::size_t>(i)]))
        if (auto from = box_of.find(p.value(v).maker); from != box_of.end()) out.edges.push_back({from->second, box_of[i], 0, false, "", Fill::forward});
  };
  std::string where;
  if (options.beside)
    for (std::size_t i = 0; i < plan.nodes.size(); ++i)
      if (const std::string text = moved(plan.nodes[i]); !text.empty()) where += fmt::format("{}\"{}\":{}", where.empty() ? "" : ",", i, quoted(text));
  const std::string boxes = boxes_json(d, [&](const Box& b) { return inside_of(plan, b, inside); });
  return html(plan.graph->name, svg, fmt::format("{{{},\n{},\n{},\n\"moved\":{{{}}}}}", plan_nodes(plan, options), streams_json(plan, options), boxes, where));
}

std::string page_of(const Graph& graph) {
  Diagram d;
  const std::string svg = detail_of(graph, d) == Detail::overview ? svg_overview(graph) : svg_of(d, nullptr, {});
  const Diagram whole = graph.size() <= 20000 ? graph_diagram(graph) : Diagram();
  auto inside = [&](const Graph& g, const Box& group, Diagram& out) {
    std::map<int, int> box_of;
    for (int i : group.nodes) {
      box_of[i] = static_cast<int>(out.boxes.size());
      out.boxes.push_back(whole.boxes[static_cast<std::size_t>(i)]);
    }
    for (int i : group.nodes)
      for (ValueId v : g.node(i).inputs)
        if (auto from = box_of.find(v.node); from != box_of.end()) out.edges.push_back({from->second, box_of[i], 0, false, "", Fill::forward});
  };
  const std::string boxes = boxes_json(d, [&](const Box& b) { return inside_of(graph, b, inside); });
  return html(graph.name, svg, fmt::format("{{{},\n\"streams\":[],\n{},\n\"moved\":{{}}}}", graph_nodes(graph), boxes));
}

}  // namespace
}  // namespace belfry::picture

namespace belfry {

std::string draw_html(const PlacedGraph& plan, const PictureOptions& options) { return picture::page_of(plan, options); }
std::string draw_html(const Graph& graph) { return picture::page_of(graph); }

}  // namespace belfry
