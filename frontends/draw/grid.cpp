#include <belfry/frontends/draw/grid_internal.h>
#include <belfry/frontends/draw/texts_internal.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace belfry::picture {

namespace {

constexpr double kGap = 12;       // between boxes of a row
constexpr int kMostInRow = 4;     // of a lane

class GridMaker {
 public:
  explicit GridMaker(Diagram& d) : d_(d) {
    for (std::size_t i = 0; i < d.boxes.size(); ++i) by_order_.push_back(static_cast<int>(i));
    std::sort(by_order_.begin(), by_order_.end(), [&](int a, int b) { return std::tuple(box(a).band, box(a).order, a) < std::tuple(box(b).band, box(b).order, b); });
    before_.resize(d.boxes.size());
    after_.resize(d.boxes.size());
    std::vector<int> place(d.boxes.size());
    for (std::size_t i = 0; i < by_order_.size(); ++i) place[at(by_order_[i])] = static_cast<int>(i);
    for (const Edge& e : d.edges)  // those that go forward in the order; layers with their gradients have both ways
      if (place[at(e.from)] < place[at(e.to)]) before_[at(e.to)].push_back(e.from), after_[at(e.from)].push_back(e.to);
  }

  Grid run() {
    for (Box& b : d_.boxes) {
      const double slant = b.outline == Outline::plain || b.outline == Outline::fused || b.outline == Outline::group ? 16 : 26;
      b.width = std::clamp(std::max(text_width(b.label, 11), text_width(b.detail, 9)) + slant, 48.0, 240.0);
      b.height = b.detail.empty() ? 23 : 37;
    }
    grid_.boxes.resize(d_.lanes.size());
    rank_.resize(d_.boxes.size());
    for (int band = 0; band < kBands; ++band) {
      std::vector<int> boxes;
      for (int b : by_order_)
        if (box(b).band == static_cast<Band>(band)) boxes.push_back(b);
      if (boxes.empty()) continue;
      if (static_cast<Band>(band) >= Band::aggregate) pack(boxes, static_cast<Band>(band));
      else rank(boxes, static_cast<Band>(band));
    }
    place();
    return std::move(grid_);
  }

 private:
  Box& box(int b) { return d_.boxes[at(b)]; }

  int add_row(Band band) {
    grid_.rows.push_back(band);
    for (auto& lane : grid_.boxes) lane.emplace_back();
    return static_cast<int>(grid_.rows.size()) - 1;
  }
  void put(int b, int row) {
    box(b).row = row;
    grid_.boxes[at(box(b).lane)][at(row)].push_back(b);
  }

  /// The longest way from the band's start; what reads nothing of the band stands just above its first reader.
  void rank(const std::vector<int>& boxes, Band band) {
    int ranks = 0;
    for (int b : boxes) {
      rank_[at(b)] = 0;
      for (int p : before_[at(b)])
        if (box(p).band == band) rank_[at(b)] = std::max(rank_[at(b)], rank_[at(p)] + 1);
      ranks = std::max(ranks, rank_[at(b)] + 1);
    }
    for (auto b = boxes.rbegin(); b != boxes.rend(); ++b) {
      auto inside = [&](int o) { return box(o).band == band; };
      if (std::any_of(before_[at(*b)].begin(), before_[at(*b)].end(), inside)) continue;
      int first = ranks;
      for (int r : after_[at(*b)])
        if (inside(r)) first = std::min(first, rank_[at(r)]);
      if (first < ranks) rank_[at(*b)] = std::max(0, first - 1);
    }
    std::vector<std::vector<int>> of_rank(at(ranks));
    for (int b : boxes) of_rank[at(rank_[at(b)])].push_back(b);
    for (const std::vector<int>& all : of_rank) {
      std::vector<int> count(d_.lanes.size()), full(d_.lanes.size());
      for (int b : all) ++full[at(box(b).lane)];
      const int first = static_cast<int>(grid_.rows.size());
      for (int b : all) {
        const int lane = box(b).lane, most = std::max(kMostInRow, (full[at(lane)] + 7) / 8);  // eight rows are the most of a rank
        const int row = first + count[at(lane)]++ / most;
        while (row >= static_cast<int>(grid_.rows.size())) add_row(band);
        put(b, row);
      }
    }
  }

  /// Parts that hang together side by side on shelves: sums over towers, and each update with what it reads.
  void pack(const std::vector<int>& boxes, Band band) {
    const int base = static_cast<int>(grid_.rows.size());
    for (int lane = 0; lane < static_cast<int>(d_.lanes.size()); ++lane) {
      std::vector<int> mine;
      for (int b : boxes)
        if (box(b).lane == lane) mine.push_back(b);
      std::vector<std::vector<int>> parts = parts_of(mine, band);
      int shelf = base, width = 0, height = 0, most = 4;
      while (static_cast<int>(mine.size()) > 10 * most) ++most;
      for (const std::vector<int>& part : parts) {
        std::vector<std::vector<int>> rows;
        for (int b : part) {
          rank_[at(b)] = 0;
          for (int p : before_[at(b)])
            if (std::find(part.begin(), part.end(), p) != part.end()) rank_[at(b)] = std::max(rank_[at(b)], rank_[at(p)] + 1);
        }
        for (int b : part) {  // just above the first reader
          int first = 1 << 30;
          for (int r : after_[at(b)])
            if (std::find(part.begin(), part.end(), r) != part.end()) first = std::min(first, rank_[at(r)]);
          if (first < 1 << 30) rank_[at(b)] = std::max(rank_[at(b)], first - 1);
          if (rows.size() <= at(rank_[at(b)])) rows.resize(at(rank_[at(b)]) + 1);
          rows[at(rank_[at(b)])].push_back(b);
        }
        int wide = 0;
        for (const auto& row : rows) wide = std::max(wide, static_cast<int>(row.size()));
        const bool hub = is_hub(part);
        if (width && (width + wide > most || hub)) shelf += height, width = height = 0;
        for (std::size_t r = 0; r < rows.size(); ++r)
          for (int b : rows[r]) {
            while (shelf + static_cast<int>(r) >= static_cast<int>(grid_.rows.size())) add_row(band);
            put(b, shelf + static_cast<int>(r));
          }
        width += wide;
        height = std::max(height, static_cast<int>(rows.size()));
        if (hub) shelf += height, width = height = 0;
      }
    }
  }

  bool is_hub(const std::vector<int>& part) {
    return std::any_of(part.begin(), part.end(), [&](int b) {
      return std::count_if(after_[at(b)].begin(), after_[at(b)].end(), [&](int r) { return box(r).band == box(b).band; }) > 2;
    });
  }

  /// Connected parts, where what many read joins none of them.
  std::vector<std::vector<int>> parts_of(const std::vector<int>& boxes, Band band) {
    std::vector<int> root(d_.boxes.size());
    std::iota(root.begin(), root.end(), 0);
    auto find = [&](int b) {
      while (root[at(b)] != b) b = root[at(b)];
      return b;
    };
    for (int b : boxes) {
      auto inside = [&](int r) { return box(r).band == band && box(r).lane == box(b).lane; };
      if (std::count_if(after_[at(b)].begin(), after_[at(b)].end(), inside) > 2) continue;
      for (int r : after_[at(b)])
        if (inside(r)) root[at(std::max(find(b), find(r)))] = std::min(find(b), find(r));
    }
    std::vector<std::vector<int>> out;
    std::vector<int> number(d_.boxes.size(), -1);
    for (int b : boxes) {
      int& part = number[at(find(b))];
      if (part < 0) part = static_cast<int>(out.size()), out.emplace_back();
      out[at(part)].push_back(b);
    }
    std::stable_sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return is_hub(a) > is_hub(b); });
    return out;
  }

  /// x inside each lane: boxes near the middle of what they read, or of what reads them, none over another.
  void place() {
    for (std::size_t l = 0; l < d_.lanes.size(); ++l) {
      double& wide = d_.lanes[l].width;
      wide = std::max(wide, text_width(d_.lanes[l].name, 10) + 10);
      for (const auto& row : grid_.boxes[l]) wide = std::max(wide, row_width(row));
    }
    for (int pass = 0; pass < 4; ++pass)
      for (std::size_t l = 0; l < d_.lanes.size(); ++l)
        for (std::size_t r = 0; r < grid_.rows.size(); ++r) place_row(static_cast<int>(l), grid_.boxes[l][pass % 2 ? grid_.rows.size() - 1 - r : r], pass);
  }

  double row_width(const std::vector<int>& row) {
    double out = row.empty() ? 0 : -kGap;
    for (int b : row) out += box(b).width + kGap;
    return out;
  }

  void place_row(int lane, std::vector<int>& row, int pass) {
    const double wide = d_.lanes[at(lane)].width;
    std::vector<std::pair<double, int>> wish;
    for (int b : row) {
      double sum = 0, count = 0;
      auto pull = [&](const std::vector<int>& others) {
        for (int o : others) {
          const double weight = std::abs(box(o).row - box(b).row) == 1 ? 6 : 1;  // short edges are to be straight
          if (box(o).lane == lane) sum += weight * (box(o).x + box(o).width / 2), count += weight;
        }
      };
      if (pass % 2 == 0) pull(before_[at(b)]);
      else pull(after_[at(b)]);
      if (pass == 3) pull(before_[at(b)]);
      const double stay = pass ? box(b).x + box(b).width / 2 : wide / 2;
      wish.emplace_back(count > 0 ? sum / count : stay, b);
    }
    std::stable_sort(wish.begin(), wish.end(), [](const auto& a, const auto& b) { return a.first < b.first - 1e-9; });
    // Runs of boxes that touch lie around the mean of their wishes.
    struct Run {
      std::size_t first;
      double left, width, sum;
      int count;
    };
    std::vector<Run> runs;
    for (std::size_t i = 0; i < wish.size(); ++i) {
      const double w = box(wish[i].second).width + kGap;
      runs.push_back({i, 0, w, wish[i].first + kGap / 2 - w / 2, 1});
      auto settle = [&](Run& run) { run.left = std::clamp(run.sum / run.count, 0.0, std::max(0.0, wide + kGap - run.width)); };
      settle(runs.back());
      while (runs.size() > 1 && runs[runs.size() - 2].left + runs[runs.size() - 2].width > runs.back().left + 1e-9) {
        const Run last = runs.back();
        runs.pop_back();
        Run& run = runs.back();
        run.sum += last.sum - last.count * run.width;
        run.count += last.count;
        run.width += last.width;
        settle(run);
      }
    }
    for (std::size_t r = 0; r < runs.size(); ++r) {
      double x = runs[r].left;
      for (std::size_t i = runs[r].first; i < (r + 1 < runs.size() ? runs[r + 1].first : wish.size()); ++i) {
        box(wish[i].second).x = x;
        x += box(wish[i].second).width + kGap;
      }
    }
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = wish[i].second;
  }

  Diagram& d_;
  Grid grid_;
  std::vector<int> by_order_, rank_;
  std::vector<std::vector<int>> before_, after_;
};

}  // namespace

Grid make_grid(Diagram& d) { return GridMaker(d).run(); }

void arrange(Diagram& d) { route(d, make_grid(d)); }

}  // namespace belfry::picture
