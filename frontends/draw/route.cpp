#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/grid_internal.h>
#include <belfry/frontends/draw/texts_internal.h>
#include <belfry/frontends/draw/wires_internal.h>

namespace belfry::picture {

namespace {

constexpr double kMargin = 24, kBandLabels = 78, kPad = 12, kPanelGap = 10;
constexpr double kThin = 4, kBold = 8, kPill = 16;

/// How a wire goes from its sources to its readers.
struct Way {
  enum Kind { direct, straight, beside, corridor } kind = direct;
  int place = 0;           ///< of `beside`: 2 × lane, + 1 on its right; of `corridor`: between lanes place - 1 and place
  int low = 0, high = 0;   ///< channels
  int track = 0;           ///< of its trunk
  double x = 0;            ///< of its trunk; in its lane for `straight`
  std::map<int, std::pair<bool, int>> channel_track;  ///< per channel: with a label?, number
  bool has_trunk() const { return low < high; }
};

class Router {
 public:
  Router(Diagram& d, const Grid& grid) : d_(d), grid_(grid), rows_(static_cast<int>(grid.rows.size())) {}

  void run() {
    d_.wires = wires_of(d_);
    ways_.resize(d_.wires.size());
    for (std::size_t w = 0; w < d_.wires.size(); ++w) choose(static_cast<int>(w));
    set_trunk_tracks();
    place_lanes();
    set_ports();
    set_channel_tracks();
    place_rows();
    for (std::size_t w = 0; w < d_.wires.size(); ++w) draw(static_cast<int>(w));
  }

 private:
  Box& box(int b) { return d_.boxes[at(b)]; }
  Lane& lane(int l) { return d_.lanes[at(l)]; }
  bool pilled(int w) const { return d_.wires[at(w)].across; }

  void choose(int w) {
    const Wire& wire = d_.wires[at(w)];
    Way& way = ways_[at(w)];
    way.low = rows_, way.high = 0;
    for (int b : wire.from) way.low = std::min(way.low, box(b).row + 1), way.high = std::max(way.high, box(b).row + 1);
    for (int b : wire.to) way.low = std::min(way.low, box(b).row), way.high = std::max(way.high, box(b).row);
    const int from = box(wire.from[0]).lane, to = box(wire.to[0]).lane;
    if (wire.across || from != to) {
      way.kind = Way::corridor;
      way.place = to > from ? to : to + 1;
    } else if (way.low == way.high) {
      way.kind = Way::direct;
    } else if (wire.from.size() + wire.to.size() == 2 && find_straight(wire, way)) {
      way.kind = Way::straight;
    } else {
      way.kind = Way::beside;
      double left = 0, right = 0;
      for (const auto* ends : {&wire.from, &wire.to})
        for (int b : *ends) left += box(b).x + box(b).width / 2, right += lane(from).width - box(b).x - box(b).width / 2;
      way.place = 2 * from + (right < left);
    }
  }

  /// An x at which a straight line from one box down to the other meets no box between.
  bool find_straight(const Wire& wire, Way& way) {
    const Box &from = box(wire.from[0]), &to = box(wire.to[0]);
    if (to.row <= from.row) return false;
    const double low = std::max(from.x, to.x) + 8, high = std::min(from.x + from.width, to.x + to.width) - 8;
    for (double x = low; x <= high; x += 6) {
      bool free = !straight_.count({from.lane, static_cast<int>(x / 5)});
      for (int row = from.row + 1; row < to.row && free; ++row)
        for (int b : grid_.boxes[at(from.lane)][at(row)]) free = free && (x < box(b).x - 5 || x > box(b).x + box(b).width + 5);
      if (!free) continue;
      straight_.insert({from.lane, static_cast<int>(x / 5)});
      way.x = x;
      return true;
    }
    return false;
  }

  void set_trunk_tracks() {
    std::vector<int> order;
    for (std::size_t w = 0; w < ways_.size(); ++w)
      if (ways_[w].kind >= Way::beside && ways_[w].has_trunk()) order.push_back(static_cast<int>(w));
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return std::pair(ways_[at(a)].low, -ways_[at(a)].high) < std::pair(ways_[at(b)].low, -ways_[at(b)].high); });
    for (int w : order) {
      Way& way = ways_[at(w)];
      way.track = (way.kind == Way::beside ? beside_ : corridors_)[way.place].add(way.low, way.high);
    }
  }

  int beside_tracks(int lane, bool right) { return beside_.count(2 * lane + right) ? beside_[2 * lane + right].size() : 0; }

  /// From left to right: labels of the bands; per lane the trunks beside it; between lanes the trunks that cross, and labels.
  void place_lanes() {
    std::map<int, std::pair<double, double>> pills;  // per corridor: beside the lane on its left, and on its right
    for (std::size_t w = 0; w < ways_.size(); ++w) {
      Wire& wire = d_.wires[w];
      if (!wire.across) continue;
      wire.label_width = text_width(wire.label, 9) + 12;
      auto& [left, right] = pills[ways_[w].place];
      double& side = box(wire.to[0]).lane == ways_[w].place ? right : left;
      side = std::max(side, wire.label_width + 14);
    }
    double x = kMargin + kBandLabels;
    const int lanes = static_cast<int>(d_.lanes.size());
    for (int l = 0; l <= lanes; ++l) {
      const bool first = l == 0 || l == lanes || lane(l).column != lane(l - 1).column;  // an edge of panels
      if (l > 0) {
        x += kThin * beside_tracks(l - 1, true) + kPad;
        Column& c = d_.columns[at(lane(l - 1).column)];
        if (first) {
          c.width = std::max(x - c.x, 236.0);
          x = c.x + c.width + kPanelGap;
        }
      }
      x += pills[l].first;
      corridor_x_[l] = x + kBold / 2;
      if (corridors_.count(l)) x += kBold * corridors_[l].size();
      x += pills[l].second;
      if (l == lanes) break;
      if (first) {
        x += l ? kPanelGap : 0;
        d_.columns[at(lane(l).column)].x = x;
      }
      x += kPad + kThin * beside_tracks(l, false);
      lane(l).x = x;
      x += lane(l).width;
    }
    center_lanes();
    d_.width = x + kMargin;
    for (Box& b : d_.boxes) b.x += lane(b.lane).x;
    for (std::size_t w = 0; w < ways_.size(); ++w) {
      Way& way = ways_[w];
      const int l = way.place / 2;
      if (way.kind == Way::corridor) way.x = corridor_x_[way.place] + kBold * way.track;
      else if (way.kind == Way::beside) way.x = way.place % 2 ? lane(l).x + lane(l).width + 6 + kThin * way.track : lane(l).x - 6 - kThin * way.track;
      else if (way.kind == Way::straight) way.x += lane(box(d_.wires[w].from[0]).lane).x;
    }
  }

  /// A column that its head makes wider has its one lane in the middle.
  void center_lanes() {
    for (std::size_t c = 0; c < d_.columns.size(); ++c) {
      std::vector<int> mine;
      for (std::size_t l = 0; l < d_.lanes.size(); ++l)
        if (d_.lanes[l].column == static_cast<int>(c)) mine.push_back(static_cast<int>(l));
      if (mine.empty()) continue;
      const double used = lane(mine.back()).x + lane(mine.back()).width + kThin * beside_tracks(mine.back(), true) + kPad - d_.columns[c].x;
      if (mine.size() == 1) lane(mine[0]).x += std::max(0.0, (d_.columns[c].width - used) / 2);
    }
  }

  /// Where wires leave and enter a box, in the order of where they go.
  void set_ports() {
    std::map<std::pair<int, bool>, std::vector<std::pair<double, int>>> ends;  // box and whether at its top
    for (std::size_t w = 0; w < ways_.size(); ++w) {
      const Wire& wire = d_.wires[w];
      const Way& way = ways_[w];
      for (bool top : {false, true})
        for (int b : top ? wire.to : wire.from) {
          const Box& other = box(top ? wire.from[0] : wire.to[0]);
          const double towards = way.kind == Way::direct || (way.kind == Way::corridor && !way.has_trunk()) ? other.x + other.width / 2 : way.x;
          if (way.kind == Way::straight) port_[{static_cast<int>(w), b, top}] = way.x;
          else ends[{b, top}].emplace_back(towards, static_cast<int>(w));
        }
    }
    for (auto& [key, all] : ends) {
      std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      const Box& b = box(key.first);
      for (std::size_t i = 0; i < all.size(); ++i)
        port_[{all[i].second, key.first, key.second}] =
            b.x + b.width / 2 + (static_cast<double>(i) - (static_cast<double>(all.size()) - 1) / 2) * std::min(14.0, b.width * 0.7 / static_cast<double>(all.size()));
    }
  }

  void set_channel_tracks() {
    struct Run {
      int channel, wire;
      double low, high;
    };
    std::vector<Run> runs;
    for (std::size_t w = 0; w < ways_.size(); ++w) {
      const Way& way = ways_[w];
      if (way.kind < Way::beside) continue;
      std::map<int, std::pair<double, double>> spans;
      for (bool top : {false, true})
        for (int b : top ? d_.wires[w].to : d_.wires[w].from) {
          const double x = port_[{static_cast<int>(w), b, top}];
          auto [at_span, fresh] = spans.try_emplace(box(b).row + !top, x, x);
          auto& [low, high] = at_span->second;
          low = std::min({low, x, way.has_trunk() || pilled(static_cast<int>(w)) ? way.x : x});
          high = std::max({high, x, way.has_trunk() || pilled(static_cast<int>(w)) ? way.x : x});
        }
      for (const auto& [channel, span] : spans) runs.push_back({channel, static_cast<int>(w), span.first - 4, span.second + 4});
    }
    std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.low < b.low; });
    for (const Run& r : runs) {
      const bool label = pilled(r.wire) && r.channel == label_channel(r.wire);
      Way& way = ways_[at(r.wire)];
      way.channel_track[r.channel] = {label, (label ? labelled_ : plain_)[r.channel].add(r.low, r.high)};
    }
  }

  /// A label stands where the first reader's line begins.
  int label_channel(int w) { return box(d_.wires[at(w)].to[0]).row; }

  int tracks(std::map<int, Tracks>& of, int channel) { return of.count(channel) ? of[channel].size() : 0; }

  void place_rows() {
    const bool lane_names = std::any_of(d_.lanes.begin(), d_.lanes.end(), [](const Lane& l) { return !l.name.empty(); });
    d_.head = 84;
    double y = d_.head + (d_.columns.size() == 1 && d_.columns[0].memory.empty() ? 34 : 70) + (lane_names ? 18 : 4);
    for (int r = 0; r <= rows_; ++r) {
      const bool begins = r == rows_ || r == 0 || grid_.rows[at(r)] != grid_.rows[at(r - 1)];
      if (begins && r > 0) d_.band_places[grid_.rows[at(r - 1)]].second = y;
      channel_y_[r] = y + (begins ? 10 : 5);
      if (begins && r < rows_) d_.band_places[grid_.rows[at(r)]].first = y;
      const double lines = kThin * tracks(plain_, r) + kPill * tracks(labelled_, r);
      y += std::max(d_.folded ? 22.0 : 14.0, lines + 10) + (begins ? 10 : 0);
      if (r == rows_) break;
      double high = 0;
      for (Box& b : d_.boxes)
        if (b.row == r) high = std::max(high, b.height);
      for (Box& b : d_.boxes)
        if (b.row == r) b.y = y + (high - b.height) / 2;
      y += high;
    }
    // The last band ends above its last channel where nothing runs in it.
    d_.band_places[grid_.rows.empty() ? Band::forward : grid_.rows.back()].second = y;
    d_.height = y;
  }

  double track_y(const Way& way, int channel) {
    const auto [label, track] = way.channel_track.at(channel);
    return channel_y_[channel] + (label ? kThin * tracks(plain_, channel) + kPill * track + kPill / 2 : kThin * track + 2);
  }

  void draw(int w) {
    Wire& wire = d_.wires[at(w)];
    const Way& way = ways_[at(w)];
    auto line = [&](int from, int to) {
      const double x1 = port_[{w, from, false}], x2 = port_[{w, to, true}], y1 = box(from).y + box(from).height, y2 = box(to).y - (wire.across ? 5 : 0);
      if (way.kind == Way::direct) {
        const double middle = (y1 + y2) / 2;
        wire.path += fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x1, y1, x1, middle, x2, middle, x2, y2);
      } else if (way.kind == Way::straight) {
        wire.path += fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", x1, y1, x2, y2);
      } else {
        const double down = track_y(way, box(from).row + 1), up = track_y(way, box(to).row);
        const double trunk = way.has_trunk() ? way.x : x2;
        wire.path += rounded({{x1, y1}, {x1, down}, {trunk, down}, {trunk, up}, {x2, up}, {x2, y2}});
      }
    };
    for (int b : wire.from) line(b, wire.to[0]);
    for (std::size_t i = 1; i < wire.to.size(); ++i) line(wire.from[0], wire.to[i]);
    if (!wire.across) return;
    for (int b : wire.to) wire.heads += fmt::format("M{:.1f} {:.1f}l-4.5 -7.5h9z", port_[{w, b, true}], box(b).y);
    const bool on_left = box(wire.to[0]).lane == way.place;  // of its lane
    double x = corridor_x_[way.place] - kBold / 2 + (on_left && corridors_.count(way.place) ? kBold * corridors_[way.place].size() : 0);
    wire.label_x = on_left ? x + 6 : x - 6 - wire.label_width;
    wire.label_y = track_y(way, label_channel(w)) - 7;
  }

  Diagram& d_;
  const Grid& grid_;
  int rows_;
  std::vector<Way> ways_;
  std::set<std::pair<int, int>> straight_;
  std::map<int, Tracks> beside_, corridors_, plain_, labelled_;
  std::map<int, double> corridor_x_, channel_y_;
  std::map<std::tuple<int, int, bool>, double> port_;  // wire, box, whether at its top
};

}  // namespace

void route(Diagram& d, const Grid& grid) { Router(d, grid).run(); }

}  // namespace belfry::picture
