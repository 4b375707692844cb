#include <belfry/frontends/data/digits.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include <belfry/frontends/data/idx.h>
#include <belfry/frontends/files/files.h>
#include <belfry/graph/float_environment.h>

namespace belfry {
namespace {

constexpr int kDigitSide = 28;

/// A function of its counter alone, so that digit i needs no digit before it. Only exactly rounded arithmetic follows from it: the same bytes everywhere.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) : seed_(seed), stream_(stream), index_(index) {}
  std::uint64_t word() {
    const std::uint64_t counter[3] = {stream_, index_, draw_++};
    return XXH3_64bits_withSeed(counter, sizeof counter, seed_);
  }
  double uniform(double low, double high) { return low + (high - low) * (static_cast<double>(word() >> 11) * 0x1p-53); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>((word() >> 32) * n >> 32); }
  bool chance(double p) { return uniform(0, 1) < p; }
  /// Bell-shaped, of this standard deviation, at most 3.5 of them away.
  double bell(double deviation) {
    const std::uint64_t w = word();
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(w >> (16 * i) & 0xffff) / 65535.0;
    return (sum - 2) * 1.7320508 * deviation;
  }

 private:
  std::uint64_t seed_, stream_, index_, draw_ = 0;
};

struct Point {
  double x, y;
  bool operator==(const Point&) const = default;
};
Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
Point operator*(double s, Point a) { return {s * a.x, s * a.y}; }

using Stroke = std::vector<Point>;
using Style = std::vector<Stroke>;

/// Ways to write each digit in a box of 1 x 1, y down. A stroke is a smooth curve through its points; a point written twice is a corner.
const std::array<std::vector<Style>, 10>& styles() {
  static const std::array<std::vector<Style>, 10> all = {{
      {{{{.55, .03}, {.25, .15}, {.12, .5}, {.25, .87}, {.5, .97}, {.78, .84}, {.88, .5}, {.76, .14}, {.5, .03}}},
       {{{.5, .02}, {.3, .2}, {.24, .55}, {.34, .9}, {.52, .97}, {.7, .8}, {.75, .42}, {.66, .1}, {.44, .04}}},
       {{{.7, .1}, {.4, .05}, {.12, .3}, {.08, .62}, {.3, .93}, {.62, .92}, {.9, .62}, {.88, .28}, {.66, .08}, {.5, .12}}}},
      {{{{.5, .02}, {.5, .5}, {.5, .98}}},
       {{{.32, .24}, {.52, .04}, {.52, .04}, {.51, .5}, {.5, .98}}},
       {{{.34, .2}, {.52, .03}, {.52, .03}, {.51, .5}, {.5, .96}}, {{.28, .97}, {.5, .96}, {.74, .97}}},
       {{{.56, .02}, {.49, .4}, {.46, .97}}}},
      {{{{.16, .25}, {.32, .06}, {.62, .06}, {.78, .28}, {.6, .58}, {.15, .95}, {.15, .95}, {.5, .94}, {.88, .93}}},
       {{{.15, .3}, {.3, .08}, {.6, .05}, {.74, .27}, {.62, .55}, {.38, .86}, {.16, .92}, {.16, .78}, {.36, .78}, {.6, .93}, {.9, .9}}},
       {{{.2, .14}, {.5, .03}, {.76, .2}, {.66, .48}, {.4, .72}, {.18, .96}, {.18, .96}, {.5, .9}, {.84, .98}}}},
      {{{{.18, .16}, {.42, .03}, {.72, .14}, {.68, .37}, {.42, .47}, {.42, .47}, {.74, .57}, {.8, .8}, {.52, .97}, {.16, .88}}},
       {{{.18, .06}, {.5, .05}, {.78, .05}, {.78, .05}, {.6, .22}, {.44, .4}, {.44, .4}, {.76, .5}, {.8, .78}, {.52, .96}, {.18, .86}}},
       {{{.2, .1}, {.5, .02}, {.74, .2}, {.56, .42}, {.36, .46}, {.62, .48}, {.82, .7}, {.62, .94}, {.3, .97}, {.14, .86}}}},
      {{{{.28, .04}, {.2, .3}, {.14, .58}, {.14, .58}, {.5, .58}, {.88, .55}}, {{.68, .1}, {.66, .5}, {.64, .98}}},
       {{{.66, .03}, {.42, .32}, {.1, .66}, {.1, .66}, {.5, .66}, {.92, .66}}, {{.68, .04}, {.67, .5}, {.66, .98}}},
       {{{.16, .06}, {.14, .3}, {.24, .5}, {.5, .52}, {.78, .42}}, {{.8, .04}, {.76, .5}, {.7, .98}}},
       {{{.68, .98}, {.68, .5}, {.68, .03}, {.68, .03}, {.4, .35}, {.12, .64}, {.12, .64}, {.5, .64}, {.88, .62}}}},
      {{{{.26, .06}, {.22, .26}, {.2, .46}, {.2, .46}, {.48, .38}, {.78, .52}, {.78, .8}, {.48, .97}, {.16, .88}}, {{.26, .06}, {.52, .06}, {.82, .05}}},
       {{{.84, .04}, {.55, .06}, {.3, .07}, {.3, .07}, {.25, .25}, {.22, .45}, {.22, .45}, {.55, .42}, {.8, .62}, {.68, .9}, {.4, .97}, {.16, .86}}},
       {{{.8, .05}, {.5, .05}, {.32, .12}, {.28, .36}, {.52, .46}, {.74, .64}, {.62, .92}, {.36, .97}, {.18, .86}}}},
      {{{{.66, .04}, {.38, .24}, {.2, .6}, {.3, .92}, {.58, .97}, {.78, .78}, {.66, .56}, {.4, .54}, {.22, .72}}},
       {{{.5, .02}, {.3, .35}, {.22, .7}, {.38, .96}, {.64, .92}, {.72, .7}, {.54, .56}, {.3, .68}, {.24, .78}}},
       {{{.8, .1}, {.54, .06}, {.28, .32}, {.16, .66}, {.34, .95}, {.66, .95}, {.84, .74}, {.66, .52}, {.36, .54}, {.2, .7}}}},
      {{{{.12, .08}, {.5, .07}, {.86, .06}, {.86, .06}, {.62, .45}, {.42, .98}}},
       {{{.12, .08}, {.5, .07}, {.84, .06}, {.84, .06}, {.62, .45}, {.42, .98}}, {{.34, .5}, {.58, .49}, {.8, .48}}},
       {{{.14, .24}, {.16, .06}, {.16, .06}, {.5, .1}, {.86, .04}, {.86, .04}, {.68, .34}, {.56, .66}, {.54, .98}}},
       {{{.12, .16}, {.36, .04}, {.62, .12}, {.84, .06}, {.84, .06}, {.66, .48}, {.4, .96}}}},
      {{{{.74, .16}, {.5, .03}, {.24, .16}, {.32, .36}, {.54, .48}, {.78, .68}, {.68, .92}, {.42, .97}, {.2, .82}, {.32, .6}, {.58, .42}, {.76, .24}, {.7, .12}}},
       {{{.5, .04}, {.26, .14}, {.28, .36}, {.5, .46}, {.72, .34}, {.72, .14}, {.5, .04}}, {{.5, .46}, {.22, .6}, {.22, .86}, {.5, .97}, {.78, .84}, {.76, .6}, {.5, .46}}},
       {{{.8, .1}, {.52, .04}, {.28, .2}, {.46, .44}, {.66, .7}, {.54, .95}, {.3, .9}, {.3, .68}, {.58, .4}, {.84, .08}}}},
      {{{{.76, .2}, {.52, .04}, {.24, .18}, {.24, .42}, {.48, .5}, {.74, .32}, {.78, .16}, {.78, .16}, {.76, .55}, {.72, .98}}},
       {{{.76, .24}, {.56, .04}, {.26, .16}, {.22, .4}, {.46, .5}, {.72, .36}, {.78, .16}, {.8, .5}, {.66, .86}, {.36, .97}}},
       {{{.7, .14}, {.44, .05}, {.2, .24}, {.34, .44}, {.6, .38}, {.76, .14}, {.76, .14}, {.64, .52}, {.44, .98}}}},
  }};
  return all;
}

/// The curve through the points (Catmull-Rom), as short straight pieces.
void append_curve(const Stroke& p, std::vector<std::pair<Point, Point>>& out) {
  constexpr int kPieces = 6;
  for (std::size_t i = 0; i + 1 < p.size(); ++i) {
    if (p[i] == p[i + 1]) continue;
    Point a = p[i == 0 ? 0 : i - 1], b = p[i], c = p[i + 1], d = p[std::min(i + 2, p.size() - 1)], from = b;
    for (int k = 1; k <= kPieces; ++k) {
      double t = static_cast<double>(k) / kPieces;
      Point to = 0.5 * (2 * b + t * (c - a) + t * t * (2 * a - 5 * b + 4 * c - d) + t * t * t * (3 * b - a - 3 * c + d));
      out.emplace_back(from, to);
      from = to;
    }
  }
}

/// The style's strokes, wobbled and bent, in pixels.
std::vector<std::pair<Point, Point>> written(const Style& style, Random& random) {
  const double wobble = random.uniform(.012, .034), slant = random.bell(.18), tilt = random.bell(.06);
  const double width = 20 * random.uniform(.58, .98), height = 20 * random.uniform(.8, 1.04), bend = random.bell(.1), swell = random.bell(.22);
  const Point shift = {kDigitSide / 2.0 + random.bell(1), kDigitSide / 2.0 + random.bell(1)};
  std::vector<std::pair<Point, Point>> out;
  for (const Stroke& stroke : style) {
    Stroke moved;
    Point jitter{0, 0};
    for (std::size_t i = 0; i < stroke.size(); ++i) {
      // Both halves of a corner move together.
      if (i == 0 || stroke[i] != stroke[i - 1]) jitter = {random.bell(wobble), random.bell(wobble)};
      Point p = stroke[i] + jitter - Point{.5, .5};
      p.x *= 1 + swell * p.y;
      p.x += bend * (4 * p.y * p.y - .5);
      moved.push_back(shift + Point{width * p.x - slant * height * p.y, height * p.y + tilt * width * p.x});
    }
    append_curve(moved, out);
  }
  return out;
}

double distance_squared(Point p, const std::pair<Point, Point>& piece) {
  Point along = piece.second - piece.first, to = p - piece.first;
  double length = along.x * along.x + along.y * along.y;
  double t = length > 0 ? std::clamp((to.x * along.x + to.y * along.y) / length, 0.0, 1.0) : 0.0;
  Point off = to - t * along;
  return off.x * off.x + off.y * off.y;
}

void draw(int digit, Random& random, std::uint8_t* pixels) {
  const auto& choices = styles()[static_cast<std::size_t>(digit)];
  const auto pieces = written(choices[random.below(choices.size())], random);
  const double radius = random.uniform(.75, 1.75), edge = random.uniform(.7, 1.5), ink = random.uniform(.82, 1.05), grain = random.uniform(0, .12);
  const double dust = random.chance(.25) ? random.uniform(0, .004) : 0;
  for (int y = 0; y < kDigitSide; ++y) {
    for (int x = 0; x < kDigitSide; ++x) {
      double nearest = 1e9;
      for (const auto& piece : pieces) nearest = std::min(nearest, distance_squared({x + .5, y + .5}, piece));
      double value = std::clamp((radius - std::sqrt(nearest)) / edge + .5, 0.0, 1.0) * ink;
      if (value > 0) value += random.bell(grain) * value;
      else if (random.chance(dust)) value = random.uniform(.1, .6);
      pixels[y * kDigitSide + x] = static_cast<std::uint8_t>(std::clamp(value, 0.0, 1.0) * 255 + .5);  // NOLINT(bugprone-incorrect-roundings): the digits are what they are, bit by bit
    }
  }
}

/// Each ten digits in a row hold every class once, in their own order.
int label_of(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  Random random(seed, stream, ~(i / 10));
  std::array<int, 10> order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random.below(k)]);
  return order[i % 10];
}

}  // namespace

Digits drawn_digits(std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  const DefaultFloats floats;
  Digits out{HostTensor(u8, {count, kDigitSide, kDigitSide}), HostTensor(u8, {count})};
  std::uint8_t* pixels = out.images.data<std::uint8_t>().data();
  auto labels = out.labels.data<std::uint8_t>();
  for (std::uint64_t i = 0; i < labels.size(); ++i) {
    Random random(seed, stream, i);
    labels[i] = static_cast<std::uint8_t>(label_of(seed, stream, i));
    draw(labels[i], random, pixels + i * kDigitSide * kDigitSide);
  }
  return out;
}

namespace {

/// Each ten in a row hold every class once.
bool look_drawn(const HostTensor& labels) {
  if (labels.dtype() != u8 || labels.shape().size() != 1) return false;
  const std::span<const std::uint8_t> all = labels.data<std::uint8_t>();
  unsigned seen = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 10 == 0) seen = 0;
    if (all[i] > 9 || (seen >> all[i] & 1)) return false;
    seen |= 1u << all[i];
  }
  return true;
}

/// Drawn digits would be read in the place of others that lie packed beside them, or take it.
void refuse_beside_others(const std::filesystem::path& dir) {
  std::error_code error;
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const std::filesystem::path plain = dir / name, packed = dir / (std::string(name) + ".gz");
    const bool is_packed = std::filesystem::exists(packed, error), labels = std::string(name).find("labels") != std::string::npos;
    if (is_packed || (labels && std::filesystem::exists(plain, error) && !look_drawn(read_idx(plain))))
      throw UserError(fmt::format("{}: has other images of this form, which drawn digits would stand in the place of; name another folder", (is_packed ? packed : plain).string()));
  }
}

}  // namespace

void draw_digits(const std::filesystem::path& dir, std::int64_t train_count, std::int64_t test_count, std::uint64_t seed) {
  if (train_count < 1 || test_count < 1) throw UserError(fmt::format("[digits] {} to train and {} to test; 1 is the least of either", train_count, test_count));
  make_folder(dir);
  refuse_beside_others(dir);
  for (std::uint64_t stream : {0, 1}) {
    Digits digits = drawn_digits(stream == 0 ? train_count : test_count, seed, stream);
    const char* name = stream == 0 ? "train" : "t10k";
    write_idx(dir / fmt::format("{}-images-idx3-ubyte", name), digits.images);
    write_idx(dir / fmt::format("{}-labels-idx1-ubyte", name), digits.labels);
  }
}

}  // namespace belfry
