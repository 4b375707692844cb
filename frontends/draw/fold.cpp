#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/describe_forecast.h>
#include <belfry/frontends/draw/plan_boxes_internal.h>
#include <belfry/frontends/draw/reads_internal.h>
#include <belfry/frontends/draw/texts_internal.h>
#include <belfry/graph/structural.h>

namespace belfry::picture {

namespace {

/// Where a name may be cut: "conv2|_block1|_1|_conv", "block_0|/attention|/query". A number belongs to the word before it.
std::vector<std::size_t> cuts_of(const std::string& name) {
  auto letter = [&](std::size_t i) { return i < name.size() && (std::isalpha(static_cast<unsigned char>(name[i])) || (name[i] & 0x80)); };
  auto digit = [&](std::size_t i) { return i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])); };
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < name.size();) {
    while (i < name.size() && !letter(i) && !digit(i)) ++i;
    const bool word = letter(i);
    while (letter(i)) ++i;
    bool counted = false;
    while (digit(i)) ++i, counted = true;
    while (counted && letter(i)) ++i;  // pool2d
    if (word && !counted && i < name.size() && name[i] == '_' && digit(i + 1))
      for (++i; digit(i);) ++i;
    if (i > (out.empty() ? 0 : out.back())) out.push_back(i);
    else break;
  }
  if (out.empty() || out.back() < name.size()) out.push_back(name.size());
  return out;
}

std::string prefix_of(const std::string& name, std::size_t depth) {
  const std::vector<std::size_t> cuts = cuts_of(name);
  return name.substr(0, cuts[std::min(depth, cuts.size()) - 1]);
}

/// Nodes that become one box.
struct Part {
  int lane = 0;
  Band band = Band::forward;
  std::string key;                 ///< of layers: its name; of others what they are, after a blank
  bool operator<(const Part& o) const { return std::tie(lane, band, key) < std::tie(o.lane, o.band, o.key); }
};

/// Layers at the finest depth at which there are not too many of them; where there are too many at any, neighbours
/// stand together.
class Layers {
 public:
  /// Per lane, the layers' names by where they stand in the order.
  Layers(const std::vector<std::map<std::int64_t, std::string>>& lanes, std::size_t most) {
    for (depth_ = 8; depth_ > 1; --depth_)
      if (count(lanes) <= most) break;
    const std::size_t all = count(lanes);
    if (all <= most) return;
    for (const auto& lane : lanes) {
      std::vector<std::string> keys;
      std::set<std::string> seen;
      for (const auto& [order, name] : lane)
        if (std::string k = prefix_of(name, depth_); !merged_.count(k) && seen.insert(k).second) keys.push_back(k);
      const std::size_t each = (all + most - 1) / most;
      for (std::size_t i = 0; i < keys.size(); i += each)
        for (std::size_t end = std::min(i + each, keys.size()), k = i; k < end; ++k) merged_[keys[k]] = end == i + 1 ? keys[i] : keys[i] + " … " + keys[end - 1];
    }
  }
  std::string operator()(const std::string& name) const {
    const std::string key = prefix_of(name, depth_);
    auto at = merged_.find(key);
    return at == merged_.end() ? key : at->second;
  }

 private:
  /// Layers of all lanes: those of one name stand side by side.
  std::size_t count(const std::vector<std::map<std::int64_t, std::string>>& lanes) const {
    std::set<std::string> keys;
    for (const auto& lane : lanes)
      for (const auto& [order, name] : lane) keys.insert(prefix_of(name, depth_));
    return keys.size();
  }
  std::size_t depth_ = 8;
  std::map<std::string, std::string> merged_;
};

/// A box per part, with what is said of it.
class Parts {
 public:
  explicit Parts(Diagram& d) : d_(d) {}

  int add(const Part& part, int node, const std::string& name, std::int64_t order, std::int64_t bytes, double seconds) {
    auto [at, fresh] = boxes_.try_emplace(part, static_cast<int>(d_.boxes.size()));
    if (fresh) {
      Box b;
      b.lane = part.lane, b.band = part.band, b.order = order;
      d_.boxes.push_back(std::move(b));
      facts_.push_back({0, name});
    }
    std::string& shared = facts_[static_cast<std::size_t>(at->second)].name;
    shared.resize(static_cast<std::size_t>(std::mismatch(shared.begin(), shared.end(), name.begin(), name.end()).first - shared.begin()));
    Box& b = d_.boxes[static_cast<std::size_t>(at->second)];
    b.nodes.push_back(node);
    b.order = std::min(b.order, order);
    b.share += seconds;
    facts_[static_cast<std::size_t>(at->second)].bytes += bytes;
    return at->second;
  }

  /// Texts of the boxes; `label` names a single node and its outline.
  void finish(const std::function<void(int, Box&)>& single) {
    double longest = 0;
    for (const Box& b : d_.boxes) longest = std::max(longest, b.share);
    for (const auto& [part, number] : boxes_) {
      Box& b = d_.boxes[static_cast<std::size_t>(number)];
      const std::int64_t bytes = facts_[static_cast<std::size_t>(number)].bytes;
      const std::string time = b.share > 0 ? " · " + human_seconds(b.share) : "";
      const bool layer = part.key[0] != ' ';
      const bool sized = bytes > 0 && !layer;
      b.detail = sized ? human_bytes(bytes) + time : !layer && time.empty() ? "" : fmt::format("{} node{}{}", b.nodes.size(), b.nodes.size() == 1 ? "" : "s", time);
      const std::string& shared = facts_[static_cast<std::size_t>(number)].name;
      const std::string name = shared.starts_with(part.key) ? shared.substr(0, shared.find_last_not_of("/_.-") + 1) : part.key;
      b.label = layer ? label_of(name, 26) : fmt::format("{}{}", b.nodes.size(), part.key);
      if (layer) b.outline = Outline::group;
      single(b.nodes[0], b);
      b.note = fmt::format("{}\n{}", layer ? name : b.label, b.detail);
      if (longest > 0) b.share /= longest;
    }
  }

 private:
  struct Facts {
    std::int64_t bytes = 0;
    std::string name;              // what all its nodes' names begin with
  };
  Diagram& d_;
  std::map<Part, int> boxes_;
  std::vector<Facts> facts_;
};

/// What a node that is no layer's is called, many of them together; empty for those of layers.
std::string kind_of(const std::string& op, Band band, bool source_copied) {
  if (op == kInput) return " inputs";
  if (op == kVariable) return band == Band::update ? " slots" : " variables";
  if (op == kSplit && band == Band::input) return " splits";
  if (op == kCopy) return source_copied ? " copies" : " moved values";
  if (op == kAggregate) return " aggregates";
  if (op == kPreAggregate) return " sums on their device";
  if (op == kFetch) return " fetches";
  if (op == kStore) return " stores";
  return band == Band::update ? " updates" : "";
}

std::int64_t order_of(const PlanNode& n) { return (static_cast<std::int64_t>(n.epoch) + 1) * (std::int64_t{1} << 32) + n.order; }

std::int64_t bytes_of(const PlacedGraph& plan, const PlanNode& n) { return local_type(plan.value(n.outputs[0]), plan.share(n.scope == Scope::tower ? 0 : -1)).bytes(); }

/// Layers that read each other hang together by one line.
void add_edge(Diagram& d, std::map<std::tuple<int, int, Fill>, std::size_t>& known, Edge e) {
  const Box &from = d.boxes[static_cast<std::size_t>(e.from)], &to = d.boxes[static_cast<std::size_t>(e.to)];
  if (e.from == e.to && !e.across) return;
  if (!e.across && from.lane == to.lane && from.band == to.band && std::tuple(from.order, e.from) > std::tuple(to.order, e.to)) std::swap(e.from, e.to);
  auto [at, fresh] = known.try_emplace({e.from * 2 + e.across, e.to, e.across ? e.fill : Fill::forward}, d.edges.size());
  if (fresh) d.edges.push_back(e);
  else d.edges[at->second].bytes += e.bytes;
}

class PlanFolder {
 public:
  PlanFolder(const PlacedGraph& plan, const PictureOptions& options, int most)
      : plan_(plan), options_(options), most_(static_cast<std::size_t>(most)), lanes_(lanes_of(plan, true)), bands_(bands_of(plan)), times_(options, lanes_), moved_(plan, options.beside) {}

  Diagram run() {
    d_.folded = true;
    d_.columns = lanes_.columns;
    d_.lanes = lanes_.lanes;
    describe_heads(plan_, options_, d_);
    for (std::size_t i = 0; i < bands_.size(); ++i)
      if (bands_[i] == Band::backward) bands_[i] = Band::forward;
    make_boxes();
    make_edges();
    return std::move(d_);
  }

 private:
  void make_boxes() {
    const std::vector<std::string> all_layers = layers_of(*plan_.graph);
    std::vector<std::string> kinds, names;
    std::vector<std::map<std::int64_t, std::string>> layers(d_.lanes.size());
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      kinds.push_back(kind_of(n.op, bands_[i], n.op == kCopy && plan_.maker(copied_by(plan_, n)).inputs.empty()));
      names.push_back(n.user >= 0 ? all_layers[static_cast<std::size_t>(n.user)] : n.name);
      if (kinds[i].empty())
        for (auto [tower, device] : instances_of(plan_, n))
          if (int lane = lanes_.drawn(tower, device); lane >= 0 && !d_.lanes[static_cast<std::size_t>(lane)].shared)
            layers[static_cast<std::size_t>(lane)].try_emplace(order_of(n) * (1 << 20) + static_cast<std::int64_t>(i), names[i]);
    }
    const Layers layer(layers, most_);
    Parts parts(d_);
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      for (auto [tower, device] : instances_of(plan_, n)) {
        const int lane = lanes_.drawn(tower, device);
        if (lane < 0) continue;
        // A layer stands where it is first computed, which is forward.
        const std::int64_t order = order_of(n) + (n.inputs.empty() && kinds[i].empty() ? std::int64_t{1} << 61 : n.role == Role::forward ? 0 : std::int64_t{1} << 60);
        const std::string key = !kinds[i].empty() ? kinds[i] : d_.lanes[static_cast<std::size_t>(lane)].shared ? " nodes for all towers" : layer(names[i]);
        const int box = parts.add({lane, bands_[i], key}, static_cast<int>(i), names[i], order, bytes_of(plan_, n), times_.seconds(static_cast<int>(i), lane));
        box_of_[{static_cast<int>(i), lane}] = box;
        Box& b = d_.boxes[static_cast<std::size_t>(box)];
        if (b.nodes.size() == 1 || n.role == Role::forward) b.fill = kinds[i].empty() ? Fill::forward : fill_of(plan_, n);
        b.critical = b.critical || times_.critical(static_cast<int>(i), lane);
        b.moved = b.moved || moved_(n, tower);
      }
    }
    parts.finish([&](int node, Box& b) {
      const PlanNode& n = plan_.nodes[static_cast<std::size_t>(node)];
      if (b.outline != Outline::group) b.outline = outline_of(n.op);
      if (b.outline == Outline::plain && b.nodes.size() > 1 && b.fill == Fill::update) {
        const std::size_t time = b.detail.find("·");
        b.detail = fmt::format("{} nodes{}", b.nodes.size(), time == b.detail.npos ? "" : " " + b.detail.substr(time));
        b.label = "updates";
      }
      if (b.nodes.size() > 1) return;
      if (b.outline != Outline::group) b.label = label_of(n.name, 24);
      b.outline = outline_of(n.op);
    });
    for (Box& b : d_.boxes) {
      int count = 0;
      for (int n : b.nodes)
        if (const PlanNode& of = plan_.nodes[static_cast<std::size_t>(n)]; b.moved && !moved_(of).empty() && count++ < 3) b.note += "\n" + of.name + " " + moved_(of);
      if (count > 3) b.note += fmt::format("\nand {} more that moved", count - 3);
    }
  }

  void make_edges() {
    const Instances instances(plan_);
    std::map<std::tuple<int, int, Fill>, std::size_t> known;
    std::set<std::tuple<int, int, int, int, int>> counted;  // what several nodes of a lane read in place
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
      for (auto [tower, device] : instances_of(plan_, plan_.nodes[i])) {
        const int lane = lanes_.drawn(tower, device);
        if (lane < 0) continue;
        for (const Read& r : reads_of(instances, plan_.nodes[i], tower, device)) {
          const int from_lane = lanes_.lane_of.at({r.device, r.tower});
          auto from = box_of_.find({r.node, from_lane});
          if (from == box_of_.end()) continue;
          Edge e{from->second, box_of_.at({static_cast<int>(i), lane}), 0, r.device != device, "", fill_of(plan_, plan_.nodes[static_cast<std::size_t>(r.node)])};
          if (e.across) e.link = link_of(from_lane, lane, r.device, device);
          if (moves_values(plan_.nodes[i]) || counted.emplace(r.node, r.tower, r.device, lane, device).second) e.bytes = r.bytes;
          add_edge(d_, known, e);
        }
      }
  }

  std::string link_of(int from, int to, int a, int b) const {
    if (plan_.cluster.space(a) == plan_.cluster.space(b)) return link_name(plan_, a, b);
    auto side = [&](int lane, int device) {
      const Column& c = d_.columns[static_cast<std::size_t>(d_.lanes[static_cast<std::size_t>(lane)].column)];
      const std::string names = to_string(plan_.cluster.ids(c.devices));
      return c.devices.size() > 1 && names.size() <= 14 ? names : plan_.cluster.space(device) + (c.devices.size() > 1 ? " …" : "");
    };
    return side(from, a) + " → " + side(to, b);
  }

  const PlacedGraph& plan_;
  const PictureOptions& options_;
  std::size_t most_;
  Lanes lanes_;
  std::vector<Band> bands_;
  Times times_;
  Moved moved_;
  Diagram d_;
  std::map<std::pair<int, int>, int> box_of_;  // node and lane
};

}  // namespace

Diagram folded_diagram(const PlacedGraph& plan, const PictureOptions& options, int most) { return PlanFolder(plan, options, most).run(); }

Diagram folded_diagram(const Graph& graph, int most) {
  Diagram whole = graph_diagram(graph), d = whole;
  d.folded = true;
  d.boxes.clear(), d.edges.clear();
  const std::vector<std::string> all_layers = layers_of(graph);
  std::vector<std::string> kinds, names;
  std::vector<std::map<std::int64_t, std::string>> layers(1);
  for (NodeId id = 0; id < graph.size(); ++id) {
    Box& b = whole.boxes[static_cast<std::size_t>(id)];
    if (b.band == Band::backward) b.band = Band::forward;
    kinds.push_back(kind_of(graph.node(id).op->name, b.band, false));
    names.push_back(all_layers[static_cast<std::size_t>(id)]);
    if (kinds.back().empty()) layers[0].emplace(id, names.back());
  }
  const Layers layer(layers, static_cast<std::size_t>(most));
  Parts parts(d);
  std::vector<int> box_of;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const auto at = static_cast<std::size_t>(id);
    const std::int64_t order = id + (graph.node(id).inputs.empty() && kinds[at].empty() ? std::int64_t{1} << 61 : graph.node(id).role == Role::forward ? 0 : std::int64_t{1} << 60);
    box_of.push_back(parts.add({0, whole.boxes[at].band, kinds[at].empty() ? layer(names[at]) : kinds[at]}, id, names[at], order, 0, 0));
    Box& b = d.boxes[static_cast<std::size_t>(box_of.back())];
    if (b.nodes.size() == 1 || graph.node(id).role == Role::forward) b.fill = kinds[at].empty() ? Fill::forward : whole.boxes[at].fill;
  }
  parts.finish([&](int node, Box& b) {
    if (b.outline != Outline::group) b.outline = outline_of(graph.node(node).op->name);
    if (b.nodes.size() > 1) return;
    if (b.outline != Outline::group) b.label = label_of(graph.node(node).name, 24);
    b.outline = outline_of(graph.node(node).op->name);
  });
  std::map<std::tuple<int, int, Fill>, std::size_t> known;
  for (const Edge& e : whole.edges) add_edge(d, known, {box_of[static_cast<std::size_t>(e.from)], box_of[static_cast<std::size_t>(e.to)], 0, false, "", Fill::forward});
  return d;
}

}  // namespace belfry::picture
