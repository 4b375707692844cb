#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <set>
#include <sstream>

#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/diagram_internal.h>
#include <belfry/frontends/draw/picture.h>
#include <belfry/frontends/draw/reads_internal.h>
#include <belfry/frontends/draw/timeline.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/session.h>
#include <belfry/placer/diff.h>

#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

using namespace picture;

PlacedGraph plan_of(const std::string& net, const Strategy& s, std::int64_t batch = 16, std::vector<PlacementRule> rules = {}, const std::string& name = {}) {
  SessionOptions options;
  options.cores = 2;
  options.library = standard_library();
  options.rules = std::move(rules);
  Graph graph = net_named(net).build(options.library->ops);
  if (!name.empty()) graph.name = name;
  return Session(std::move(graph), s, options).plan(batch);
}

const Strategy two_towers = to_strategy(Towers{.devices = parse_devices("cpu:0,cpu:1"), .variables = cpu(0)});

/// Plans whose pictures differ in kind: all nodes, a tower beside another's, layers with equal towers once, stages.
std::vector<std::pair<std::string, PlacedGraph>> plans() {
  return {{"two towers", plan_of("mnist_cnn", two_towers)},
          {"towers side by side", plan_of("mnist_cnn", to_strategy(Towers{.devices = parse_devices("sim:0"), .variables = cpu(0), .towers = 2}))},
          {"four equal towers", plan_of("cifar10", to_strategy(Towers{.devices = sims(4), .variables = cpu(0)}))},
          {"mirrored", plan_of("mlp", to_strategy(Mirrored{.devices = sims(3)}))},
          {"stages", plan_of("transformer", to_strategy(Layers{.devices = sims(2), .towers = 4, .order = PhaseOrder::gpipe}))}};
}

Diagram diagram_of(const PlacedGraph& plan, bool fold, const PictureOptions& options = {}) {
  Diagram d = fold ? folded_diagram(plan, options, 32) : whole_diagram(plan, options);
  arrange(d);
  return d;
}

struct Rectangle {
  std::string name;
  double left, top, right, bottom;
};

std::vector<Rectangle> rectangles(const Diagram& d) {
  std::vector<Rectangle> out;
  for (const Box& b : d.boxes) out.push_back({b.label, b.x, b.y, b.x + b.width, b.y + b.height});
  for (const Wire& w : d.wires)
    if (w.across) out.push_back({w.label, w.label_x, w.label_y, w.label_x + w.label_width, w.label_y + 14});
  return out;
}

TEST(Picture, no_box_or_label_lies_over_another_and_no_line_crosses_a_box) {
  for (const auto& [name, plan] : plans())
    for (bool fold : {false, true}) {
      SCOPED_TRACE(name + (fold ? ", folded" : ""));
      const Diagram d = diagram_of(plan, fold);
      const std::vector<Rectangle> all = rectangles(d);
      for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
          EXPECT_FALSE(all[i].left < all[j].right && all[j].left < all[i].right && all[i].top < all[j].bottom && all[j].top < all[i].bottom) << all[i].name << " over " << all[j].name;
      for (const Box& b : d.boxes) {
        const Column& c = d.columns[static_cast<std::size_t>(d.lanes[static_cast<std::size_t>(b.lane)].column)];
        EXPECT_TRUE(b.x >= c.x && b.x + b.width <= c.x + c.width && b.y >= 0 && b.y + b.height <= d.height) << b.label << " leaves its column";
      }
      static const std::regex point("([ML])(-?[0-9.]+) (-?[0-9.]+)");
      for (const Wire& w : d.wires) {
        if (w.path.find('C') != std::string::npos) continue;  // between neighbouring rows
        double x = 0, y = 0;
        for (std::sregex_iterator at(w.path.begin(), w.path.end(), point), end; at != end; ++at) {
          const double to_x = std::stod((*at)[2]), to_y = std::stod((*at)[3]);
          if ((*at)[1] == "L") {
            for (const Box& b : d.boxes)
              EXPECT_FALSE(std::min(x, to_x) < b.x + b.width - 0.2 && std::max(x, to_x) > b.x + 0.2 && std::min(y, to_y) < b.y + b.height - 0.2 && std::max(y, to_y) > b.y + 0.2)
                  << "a line from " << d.boxes[static_cast<std::size_t>(w.from[0])].label << " crosses " << b.label;
          }
          x = to_x, y = to_y;
        }
      }
    }
}

TEST(Picture, draws_every_node_and_every_edge_of_a_small_plan_once) {
  const PlacedGraph plan = plan_of("mnist_cnn", two_towers);
  const Diagram d = diagram_of(plan, false);
  std::multiset<std::string> drawn, there;
  for (const Box& b : d.boxes) drawn.insert(plan.nodes[static_cast<std::size_t>(b.nodes.at(0))].name);
  std::set<std::pair<int, int>> edges;
  std::size_t reads = 0;
  const Instances instances(plan);
  for (const PlanNode& n : plan.nodes)
    for (auto [tower, device] : instances_of(plan, n)) {
      there.insert(n.name);
      std::set<std::tuple<int, int, int>> from;
      for (const Read& r : reads_of(instances, n, tower, device)) from.insert({r.node, r.tower, r.device});
      reads += from.size();
    }
  EXPECT_EQ(drawn, there);
  std::size_t lines = 0;
  for (const Wire& w : d.wires) {
    ASSERT_TRUE(w.from.size() == 1 || w.to.size() == 1);
    for (int from : w.from)
      for (int to : w.to) edges.insert({from, to}), ++lines;
  }
  EXPECT_EQ(edges.size(), lines) << "an edge is drawn twice";
  EXPECT_EQ(lines, reads);
  // What crosses says how much, and where.
  auto split = std::find_if(d.wires.begin(), d.wires.end(), [&](const Wire& w) { return w.across && d.boxes[static_cast<std::size_t>(w.from[0])].label == "image"; });
  ASSERT_NE(split, d.wires.end());
  EXPECT_EQ(split->label, "24.5 KiB in host");  // 8 rows of 28 × 28 floats
}

TEST(Picture, draws_equal_towers_once_and_gradients_with_their_layer) {
  const PlacedGraph plan = plan_of("cifar10", to_strategy(Towers{.devices = sims(4), .variables = cpu(0)}));
  const Forecast f = forecast(plan);
  const Diagram d = diagram_of(plan, true, {.forecast = &f});
  ASSERT_EQ(d.columns.size(), 2u);
  EXPECT_EQ(d.columns[0].name, "cpu:0");
  EXPECT_THAT(d.columns[1].name, testing::HasSubstr("sim:0-3  ×4"));
  std::multiset<std::pair<int, int>> seen;  // lane, node
  for (const Box& b : d.boxes)
    for (int n : b.nodes) seen.insert({b.lane, n});
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
  std::set<int> nodes;
  for (auto [lane, n] : seen) nodes.insert(n);
  EXPECT_EQ(nodes.size(), plan.nodes.size());
  auto layer = std::find_if(d.boxes.begin(), d.boxes.end(), [](const Box& b) { return b.label.starts_with("conv1"); });
  ASSERT_NE(layer, d.boxes.end());
  std::set<Role> roles;
  for (int n : layer->nodes) roles.insert(plan.nodes[static_cast<std::size_t>(n)].role);
  EXPECT_EQ(roles, (std::set{Role::forward, Role::backward}));
  const std::string svg = draw_svg(plan, {.forecast = &f});
  EXPECT_THAT(svg, testing::HasSubstr("4× "));
  EXPECT_THAT(svg, testing::HasSubstr("host → sim:0-3"));
  EXPECT_THAT(svg, testing::HasSubstr("busy "));
}

TEST(Picture, of_equal_plans_is_the_same_text_and_escapes_names) {
  const std::string bad = "a</script><b onload=\"x\">&'\x01";
  const PlacedGraph plan = plan_of("mlp", two_towers, 16, {}, bad), again = plan_of("mlp", two_towers, 16, {}, bad);
  const Forecast f = forecast(plan), g = forecast(again);
  const std::string svg = draw_svg(plan, {.forecast = &f}), html = draw_html(plan, {.forecast = &f});
  EXPECT_EQ(svg, draw_svg(again, {.forecast = &g}));
  EXPECT_EQ(html, draw_html(again, {.forecast = &g}));
  for (const std::string& text : {svg, html}) {
    EXPECT_EQ(text.find("<b onload"), std::string::npos);
    EXPECT_THAT(text, testing::HasSubstr("a&lt;/script&gt;&lt;b onload=&quot;x&quot;&gt;&amp;&#39;\xEF\xBF\xBD"));
  }
  EXPECT_EQ(std::count(html.begin(), html.end(), '\x01'), 0);
  EXPECT_EQ(html.find("http", html.find("<script")), html.find("http://www.w3.org/2000/svg", html.find("<script"))) << "the page asks for another file";
}

TEST(Picture, outlines_what_sits_elsewhere_than_in_another_plan) {
  const PlacedGraph before = plan_of("mnist_cnn", two_towers), after = plan_of("mnist_cnn", two_towers, 16, {{"tower_1/dense/**", {cpu(0)}, "by hand"}});
  std::set<std::string> moved;
  for (const Box& b : diagram_of(after, false, {.beside = &before}).boxes)
    if (b.moved) moved.insert(after.nodes[static_cast<std::size_t>(b.nodes[0])].name + " " + b.note.substr(b.note.rfind('\n') + 1));
  std::set<std::string> decided;
  for (const std::string& line : diff_plans(before, after).decisions)
    if (const std::size_t name = line.find("': "); name != line.npos) decided.insert(line.substr(1, name - 1) + " moved: " + line.substr(name + 3));
  EXPECT_FALSE(decided.empty());
  EXPECT_EQ(moved, decided);
  EXPECT_THAT(draw_svg(after, {.beside = &before}), testing::HasSubstr("class=\"halo\""));
  EXPECT_THAT(draw_svg(before, {.beside = &before}), testing::Not(testing::HasSubstr("class=\"halo\"")));
  EXPECT_THAT(draw_html(after, {.beside = &before}), testing::HasSubstr("moved: tower 1: cpu:1 → cpu:0"));
}

TEST(Picture, of_a_graph_is_one_column_and_of_what_cannot_be_drawn_a_matrix) {
  const Graph graph = net_named("mnist_cnn").build(standard_library()->ops);
  const Diagram d = graph_diagram(graph);
  EXPECT_EQ(d.boxes.size(), static_cast<std::size_t>(graph.size()));
  EXPECT_THAT(draw_svg(graph), testing::HasSubstr("not placed"));
  // 24 devices that all hold something else.
  const PlacedGraph wide = plan_of("transformer", to_strategy(Layers{.devices = sims(24)}));
  const Forecast f = forecast(wide);
  const std::string svg = draw_svg(wide, {.forecast = &f});
  EXPECT_THAT(svg, testing::HasSubstr("bytes a step, from the row"));
  EXPECT_THAT(svg, testing::HasSubstr("sim:0 → sim:1"));
}

TEST(Picture, of_a_plan_with_towers_and_slots_that_are_not_there_is_drawn_without_times) {
  const PlacedGraph plan = plan_of("mlp", two_towers);
  const std::vector<std::function<void(PlanStream&)>> damages = {[](PlanStream& s) { s.slots = 0; }, [](PlanStream& s) { s.slots = 3; }, [](PlanStream& s) { s.entries.at(0).slot = -1; },
                                                                 [](PlanStream& s) { s.entries.at(0).tower = 1 << 20; }};
  for (const auto& damage : damages) {
    PlacedGraph damaged = plan;
    damage(*std::find_if(damaged.streams.begin(), damaged.streams.end(), [](const PlanStream& s) { return s.name != "main"; }));
    EXPECT_TRUE(says([&] { (void)forecast(damaged); }, {"unbound: tower ", " has slot "}));
    EXPECT_THAT(draw_svg(damaged), testing::HasSubstr("<svg"));
  }
}

TEST(Describe, says_that_towers_have_no_rows) {
  const Strategy many = to_strategy(Towers{.devices = sims(2), .towers = 8, .threads = 1});
  auto graph = plan_of("mlp", many).graph;
  EXPECT_THAT(describe(place(graph, many, sim_cluster(2), 4)), testing::HasSubstr("\n4 of 8 towers have no rows: devices for them alone are idle\n"));
  EXPECT_THAT(describe(place(graph, many, sim_cluster(2), 8)), testing::Not(testing::HasSubstr("idle")));
}

TEST(Describe, says_how_many_stages_there_are_where_layers_do_not_make_as_many) {
  const PlacedGraph plan = plan_of("mlp", to_strategy(Layers{.devices = sims(2), .towers = 4, .order = PhaseOrder::interleaved, .chunks = 40}));
  EXPECT_THAT(describe(plan), testing::ContainsRegex("\n[0-9]+ of 80 stages, since the layers are no more"));
}

TEST(Describe, says_of_buckets_what_their_reasons_say_of_them) {
  PlacedGraph plan = plan_of("mlp", to_strategy(Mirrored{.devices = sims(2), .bucket = std::int64_t{1} << 30}));
  EXPECT_THAT(describe(plan), testing::HasSubstr("\n1 bucket of 1024.0 MiB from "));
  for (const char* reason : {"", "put by hand", "put by hand; as ever"}) {
    for (PlanNode& n : plan.nodes)
      if (n.bucket) n.reason = reason;
    EXPECT_THAT(describe(plan, {.nodes = false}), testing::Not(testing::HasSubstr("by hand")));
  }
}

TEST(Timeline, has_80_columns_with_idle_time_and_the_critical_path) {
  for (const auto& [name, plan] : plans()) {
    SCOPED_TRACE(name);
    std::istringstream lines(describe_timeline(plan, forecast(plan)));
    std::size_t streams = 0, widest = 0;
    for (std::string line; std::getline(lines, line);) {
      const std::size_t width = static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
      EXPECT_LE(width, 80u) << line;
      widest = std::max(widest, width);
      streams += line.ends_with(" %");
    }
    EXPECT_GE(streams, 2u);
    EXPECT_GE(widest, 78u);
  }
  // Two launches of a made-up run, the second one waited for the first: both are critical, what was before and between is idle.
  const PlacedGraph plan = plan_of("mlp", two_towers);
  const BoundPlan bound(plan);
  const Forecast f = forecast(plan);
  std::vector<std::pair<double, double>> times(f.launches.size(), {0, 0});
  std::size_t last = 0;
  while (last < times.size() && plan.streams[static_cast<std::size_t>(f.launches[last].stream)].name == "main") ++last;
  while (f.launches[last + 1].stream == f.launches[last].stream) ++last;
  times[last - 1] = {1, 2};
  times[last] = {5, 1};
  const Forecast run = as_measured(bound, f, times);
  EXPECT_EQ(run.seconds, 6);
  EXPECT_EQ(run.path.back(), static_cast<int>(last));
  EXPECT_TRUE(std::find(run.path.begin(), run.path.end(), static_cast<int>(last) - 1) != run.path.end());
  EXPECT_THAT(describe_timeline(plan, run), testing::ContainsRegex("tower0 +\\.{9}[A-Z]{18}\\.{18}[A-Z]{9}  50 %"));
}

}  // namespace
}  // namespace belfry::test
