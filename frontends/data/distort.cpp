#include <belfry/frontends/data/distort.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include <belfry/graph/float_environment.h>

namespace belfry {
namespace {

/// What a draw is for. Numbers stay: a distortion more leaves the others' draws as they are.
enum class Draw : std::uint64_t { shear, zoom_rows, zoom_columns, crop_rows, crop_columns, flip, brightness, contrast };

/// U[0, 1)
double uniform(const Distortions& d, const RowKey& key, Draw draw) {
  const std::uint64_t words[3] = {static_cast<std::uint64_t>(key.epoch), static_cast<std::uint64_t>(key.row), static_cast<std::uint64_t>(draw)};
  return static_cast<double>(XXH3_64bits_withSeed(words, sizeof words, d.seed) >> 11) * 0x1p-53;
}
/// U[centre - reach, centre + reach)
double uniform(const Distortions& d, const RowKey& key, Draw draw, double centre, double reach) { return centre + reach * (2 * uniform(d, key, draw) - 1); }

std::int64_t below(const Distortions& d, const RowKey& key, Draw draw, std::int64_t n) { return static_cast<std::int64_t>(uniform(d, key, draw) * static_cast<double>(n)); }

void copy_window(const float* from, const PictureSize& size, const Changes& w, const PictureSize& window, float* out) {
  for (std::int64_t r = 0; r < window.height; ++r) {
    const float* row = from + ((w.top + r) * size.width + w.left) * size.channels;
    if (!w.flipped) out = std::copy_n(row, window.width * size.channels, out);
    else
      for (std::int64_t c = window.width - 1; c >= 0; --c) out = std::copy_n(row + c * size.channels, size.channels, out);
  }
}

void sample_window(const float* from, const PictureSize& size, const Changes& w, const PictureSize& window, float* out) {
  const double s = w.shear * std::numbers::pi / 180, across = -std::sin(s) * w.zoom_columns, along = std::cos(s) * w.zoom_columns;
  const double middle_row = static_cast<double>(size.height - 1) / 2, middle_column = static_cast<double>(size.width - 1) / 2;
  for (std::int64_t r = 0; r < window.height; ++r)
    for (std::int64_t c = 0; c < window.width; ++c) {
      const double y = static_cast<double>(w.top + r) - middle_row, x = static_cast<double>(w.left + (w.flipped ? window.width - 1 - c : c)) - middle_column;
      const double row = std::clamp(w.zoom_rows * y + across * x + middle_row, 0.0, 2 * middle_row), column = std::clamp(along * x + middle_column, 0.0, 2 * middle_column);
      const auto top = static_cast<std::int64_t>(row), left = static_cast<std::int64_t>(column);
      const double down = row - static_cast<double>(top), right = column - static_cast<double>(left);
      const float* a = from + (top * size.width + left) * size.channels;
      const float* b = top + 1 < size.height ? a + size.width * size.channels : a;
      const std::int64_t next = left + 1 < size.width ? size.channels : 0;
      for (std::int64_t k = 0; k < size.channels; ++k) {
        const double above = a[k] + right * (static_cast<double>(a[k + next]) - a[k]), under = b[k] + right * (static_cast<double>(b[k + next]) - b[k]);
        *out++ = static_cast<float>(above + down * (under - above));
      }
    }
}

void change_contrast(std::span<float> picture, std::size_t channels, double factor) {
  for (std::size_t k = 0; k < channels; ++k) {
    double sum = 0;
    for (std::size_t i = k; i < picture.size(); i += channels) sum += picture[i];
    const auto mean = static_cast<float>(sum * static_cast<double>(channels) / static_cast<double>(picture.size())), f = static_cast<float>(factor);
    for (std::size_t i = k; i < picture.size(); i += channels) picture[i] = (picture[i] - mean) * f + mean;
  }
}

}  // namespace

Distortions cifar10_distortions(std::uint64_t seed) { return {.crop = 8, .flip = true, .brightness = 63, .contrast = 0.8, .seed = seed}; }

Distortions parse_distortions(const std::string& text, std::uint64_t seed) {
  const DefaultFloats floats;
  Distortions out{.seed = seed};
  std::set<std::string> seen;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, comma - at), name = item.substr(0, item.find('='));
    at = comma + 1;
    const char *first = item.data() + std::min(name.size() + 1, item.size()), *last = item.data() + item.size();
    double x = 0;
    const std::from_chars_result read = std::from_chars(first, last, x);
    auto take = [&](double most, bool whole) {
      if (first == last || read.ptr != last || read.ec != std::errc() || !(x >= 0 && x <= most) || (whole && x != std::floor(x)))
        throw UserError(fmt::format("distortion '{}': {} is {} of 0 to {}", item, name, whole ? "a whole number" : "a number", most));
      return x;
    };
    if (!seen.insert(name).second) throw UserError(fmt::format("distortion '{}' stands there twice", name));
    if (name == "shear") out.shear = take(90, false);
    else if (name == "zoom") out.zoom = take(1, false);
    else if (name == "crop") out.crop = static_cast<std::int64_t>(take(1 << 12, true));
    else if (name == "flip") out.flip = take(1, true) != 0;
    else if (name == "brightness") out.brightness = take(255, false);
    else if (name == "contrast") out.contrast = take(1, false);
    else throw UserError(fmt::format("there is no distortion '{}'; there are shear, zoom, crop, flip, brightness and contrast, as in crop=8,flip=1", name));
  }
  return out;
}

std::string to_string(const Distortions& d) {
  return fmt::format("shear={},zoom={},crop={},flip={},brightness={},contrast={}, seed {}", d.shear, d.zoom, d.crop, d.flip ? 1 : 0, d.brightness, d.contrast, d.seed);
}

Changes changes_of(const Distortions& d, const RowKey& key) {
  Changes out;
  out.shear = uniform(d, key, Draw::shear, 0, d.shear);
  out.zoom_rows = uniform(d, key, Draw::zoom_rows, 1, d.zoom);
  out.zoom_columns = uniform(d, key, Draw::zoom_columns, 1, d.zoom);
  out.top = below(d, key, Draw::crop_rows, d.crop + 1);
  out.left = below(d, key, Draw::crop_columns, d.crop + 1);
  out.flipped = d.flip && uniform(d, key, Draw::flip) < 0.5;
  out.brightness = uniform(d, key, Draw::brightness, 0, d.brightness);
  out.contrast = uniform(d, key, Draw::contrast, 1, d.contrast);
  return out;
}

void change(std::span<const float> from, const PictureSize& size, const Changes& w, const PictureSize& window, std::span<float> out) {
  if (w.top < 0 || w.left < 0 || window.height < 1 || window.width < 1 || w.top > size.height - window.height || w.left > size.width - window.width || window.channels != size.channels)
    throw UserError(fmt::format("[data] a window of {} x {} at ({}, {}) is not within a picture of {} x {}", window.height, window.width, w.top, w.left, size.height, size.width));
  if (from.size() != size.elements() || out.size() != window.elements()) throw InternalError("a picture's values are not as many as its size says");
  if (w.shear != 0 || w.zoom_rows != 1 || w.zoom_columns != 1) sample_window(from.data(), size, w, window, out.data());
  else copy_window(from.data(), size, w, window, out.data());
  if (w.brightness != 0)
    for (float& x : out) x += static_cast<float>(w.brightness);
  if (w.contrast != 1) change_contrast(out, static_cast<std::size_t>(size.channels), w.contrast);
}

void rescale(std::span<float> picture, const Rescale& how) {
  if (how.standardised) return standardise(picture);
  for (float& v : picture) v = static_cast<float>(static_cast<double>(v) * how.scale + how.offset);
}

std::string to_string(const Rescale& how) { return how.standardised ? "standardised" : fmt::format("x * {} + {}", how.scale, how.offset); }

MadeColumn distorted_column(const std::shared_ptr<const HostTensor>& bytes, const Distortions& d, const Rescale& how) {
  const PictureSize size{bytes->shape()[1], bytes->shape()[2], bytes->shape()[3]};
  if (size.height <= d.crop || size.width <= d.crop) throw UserError(fmt::format("[data] crop={} leaves nothing of pictures of {} x {}", d.crop, size.height, size.width));
  auto make = [bytes, size, d, how](const RowKey& key, std::span<std::byte> out) {
    thread_local std::vector<float> picture;
    const std::uint8_t* first = bytes->data<std::uint8_t>().data() + static_cast<std::size_t>(key.row) * size.elements();
    picture.assign(first, first + size.elements());
    const std::span<float> row(reinterpret_cast<float*>(out.data()), out.size() / sizeof(float));
    change(picture, size, changes_of(d, key), {size.height - d.crop, size.width - d.crop, size.channels}, row);
    rescale(row, how);
  };
  return {{f32, {size.height - d.crop, size.width - d.crop, size.channels}}, fmt::format("{}, {}", to_string(how), to_string(d)), std::move(make),
          computed_once([bytes] { return XXH3_64bits(bytes->raw(), bytes->bytes().size()); })};
}

HostTensor middles(const HostTensor& bytes, std::int64_t rows, std::int64_t columns) {
  const Extents& s = bytes.shape();
  HostTensor out(u8, {s[0], rows, columns, s[3]});
  const std::int64_t top = (s[1] - rows) / 2, left = (s[2] - columns) / 2, line = columns * s[3];
  std::uint8_t* to = out.data<std::uint8_t>().data();
  const std::uint8_t* from = bytes.data<std::uint8_t>().data();
  for (std::int64_t i = 0; i < s[0]; ++i)
    for (std::int64_t r = 0; r < rows; ++r, to += line) std::copy_n(from + ((i * s[1] + top + r) * s[2] + left) * s[3], line, to);
  return out;
}

void standardise(std::span<float> picture) {
  double sum = 0, squares = 0;
  const auto n = static_cast<double>(picture.size());
  for (float x : picture) sum += x;
  const double mean = sum / n;
  for (float x : picture) squares += (x - mean) * (x - mean);
  const double deviation = std::max(std::sqrt(squares / n), 1 / std::sqrt(n));
  for (float& x : picture) x = static_cast<float>((x - mean) / deviation);
}

}  // namespace belfry
