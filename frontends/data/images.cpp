#include <belfry/frontends/data/images.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <png.h>
#include <turbojpeg.h>

namespace belfry {

namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

/// What one output position reads along an axis, and with which weights; they add up to 1.
struct Taps {
  std::int64_t first = 0;
  std::vector<double> weights;
};

std::vector<Taps> taps(std::int64_t from, std::int64_t to, bool antialias) {
  const double step = static_cast<double>(from) / static_cast<double>(to), reach = antialias ? std::max(1.0, step) : 1.0;
  std::vector<Taps> out(static_cast<std::size_t>(to));
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step - 0.5;
    Taps& t = out[static_cast<std::size_t>(i)];
    t.first = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(centre - reach)));
    const auto last = std::min<std::int64_t>(from - 1, static_cast<std::int64_t>(std::floor(centre + reach)));
    double sum = 0;
    for (std::int64_t k = t.first; k <= last; ++k) {
      t.weights.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(k) - centre) / reach));
      sum += t.weights.back();
    }
    for (double& w : t.weights) w /= sum;
  }
  return out;
}

/// Along the middle axis of x (outer, from, inner).
std::vector<float> resampled(std::span<const float> x, std::size_t outer, std::int64_t from, std::size_t inner, std::int64_t to, bool antialias) {
  const std::vector<Taps> all = taps(from, to, antialias);
  std::vector<float> out(outer * all.size() * inner);
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t c = 0; c < inner; ++c) {
        double sum = 0;
        for (std::size_t k = 0; k < all[i].weights.size(); ++k) sum += all[i].weights[k] * static_cast<double>(x[(o * static_cast<std::size_t>(from) + static_cast<std::size_t>(all[i].first) + k) * inner + c]);
        out[(o * all.size() + i) * inner + c] = static_cast<float>(sum);
      }
  return out;
}

/// The part of a PNG that is read next.
struct PngSource {
  std::span<const std::byte> left;
  std::string error;
};

void read_png(png_structp png, png_bytep out, std::size_t n) {
  auto& source = *static_cast<PngSource*>(png_get_io_ptr(png));
  if (n > source.left.size()) png_error(png, "it is cut short");
  std::memcpy(out, source.left.data(), n);
  source.left = source.left.subspan(n);
}
[[noreturn]] void fail_png(png_structp png, png_const_charp text) {
  static_cast<PngSource*>(png_get_error_ptr(png))->error = text;
  png_longjmp(png, 1);
}
void no_warning(png_structp, png_const_charp) {}

/// libpng leaves by longjmp: what is destroyed by C++ lives in the caller.
bool decode_rows(png_structp png, png_infop info, HostTensor& out, std::vector<png_bytep>& rows) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_user_limits(png, 1 << 20, 1 << 20);
  png_read_info(png, info);
  const std::int64_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  if (width * height > kMostPixels) png_error(png, "it has more than 2^26 pixels");
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != static_cast<std::size_t>(3 * width)) png_error(png, "its rows are no pixels of three bytes");
  out = HostTensor(u8, {height, width, 3});
  rows.resize(static_cast<std::size_t>(height));
  for (std::int64_t y = 0; y < height; ++y) rows[static_cast<std::size_t>(y)] = reinterpret_cast<png_bytep>(out.raw()) + 3 * width * y;
  png_read_image(png, rows.data());
  png_read_end(png, nullptr);
  return true;
}

/// Of libjpeg's warnings those after which all of the picture is there.
bool is_harmless(std::string_view warning) { return warning.find("extraneous bytes before marker") != warning.npos || warning.find("unknown JFIF revision") != warning.npos; }

/// Red, green and blue of what is printed with four inks, which JPEG files hold inverted.
HostTensor without_inks(const HostTensor& printed) {
  HostTensor out(u8, {printed.shape()[0], printed.shape()[1], 3});
  const std::uint8_t* p = printed.data<std::uint8_t>().data();
  std::uint8_t* rgb = out.data<std::uint8_t>().data();
  for (std::int64_t i = 0; i < printed.elements() / 4; ++i, p += 4)
    for (int c = 0; c < 3; ++c) *rgb++ = static_cast<std::uint8_t>((p[c] * p[3] + 127) / 255);
  return out;
}

}  // namespace

HostTensor decode_jpeg(std::span<const std::byte> file, const std::string& name) {
  std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
  auto data = reinterpret_cast<const unsigned char*>(file.data());
  int width = 0, height = 0, sampling = 0, colours = -1;
  auto fail = [&] { throw UserError(fmt::format("{}: cannot be read as a JPEG photo: {}; a program that shows it can save it anew", name, tjGetErrorStr2(decoder.get()))); };
  const bool whole_head = tjDecompressHeader3(decoder.get(), data, file.size(), &width, &height, &sampling, &colours) == 0;
  if (!whole_head && (width < 1 || height < 1)) fail();
  if (std::int64_t{width} * height > kMostPixels) throw UserError(fmt::format("{}: {} x {} pixels are over the limit of {}", name, width, height, kMostPixels));
  const bool inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
  HostTensor out(u8, {height, width, inks ? 4 : 3});
  auto decoded = [&](int more) { return tjDecompress2(decoder.get(), data, file.size(), out.data<std::uint8_t>().data(), width, 0, height, inks ? TJPF_CMYK : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS | more) == 0; };
  // Most warnings are of data that had to be made up. After one that is not the picture is read to its end, and the last must be such a one too.
  auto harmless = [&] { return tjGetErrorCode(decoder.get()) == TJERR_WARNING && is_harmless(tjGetErrorStr2(decoder.get())); };
  if (!decoded(TJFLAG_STOPONWARNING) && (!harmless() || (!decoded(0) && !harmless()))) fail();
  return inks ? without_inks(out) : out;
}

HostTensor decode_png(std::span<const std::byte> file, const std::string& name) {
  PngSource source{file, {}};
  HostTensor out;
  std::vector<png_bytep> rows;
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, fail_png, no_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  if (!info) throw InternalError("libpng does not start");
  png_set_read_fn(png, &source, read_png);
  bool whole = false;
  try {
    whole = decode_rows(png, info, out, rows);
  } catch (...) {  // no memory
    png_destroy_read_struct(&png, &info, nullptr);
    throw;
  }
  png_destroy_read_struct(&png, &info, nullptr);
  if (!whole) throw UserError(fmt::format("{}: cannot be read as a PNG photo: {}", name, source.error));
  return out;
}

HostTensor decode_photo(std::span<const std::byte> file, const std::string& name) {
  constexpr unsigned char kPng[] = {0x89, 'P', 'N', 'G'}, kJpeg[] = {0xff, 0xd8};
  auto begins = [&](const auto& head) { return file.size() >= sizeof head && std::memcmp(file.data(), head, sizeof head) == 0; };
  if (begins(kPng)) return decode_png(file, name);
  if (!begins(kJpeg)) throw UserError(fmt::format("{}: cannot be read as a photo: it is neither a JPEG nor a PNG file; a program that shows it can save it as one", name));
  return decode_jpeg(file, name);
}

HostTensor grey(const HostTensor& photo) {
  if (photo.dtype() != u8 || photo.shape().size() != 3 || photo.shape()[2] != 3) throw UserError(fmt::format("a photo is u8 (height, width, 3), not {}", to_string(photo.type())));
  HostTensor out(u8, {photo.shape()[0], photo.shape()[1], 1});
  const std::uint8_t* p = photo.data<std::uint8_t>().data();
  for (std::uint8_t& g : out.data<std::uint8_t>()) {
    g = static_cast<std::uint8_t>((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + (1u << 15)) >> 16);
    p += 3;
  }
  return out;
}

HostTensor resize_bilinear(const HostTensor& x, std::int64_t height, std::int64_t width, bool antialias) {
  if (x.dtype() != f32 || x.shape().size() != 3 || x.elements() == 0 || height < 1 || width < 1)
    throw UserError(fmt::format("an image is f32 (height, width, channels), not {}, and is resized to at least 1 x 1, not {} x {}", to_string(x.type()), height, width));
  const auto from_height = x.shape()[0], from_width = x.shape()[1], channels = x.shape()[2];
  std::vector<float> wide = resampled(x.data<float>(), static_cast<std::size_t>(from_height), from_width, static_cast<std::size_t>(channels), width, antialias);
  std::vector<float> both = resampled(wide, 1, from_height, static_cast<std::size_t>(width * channels), height, antialias);
  return HostTensor::of<float>({height, width, channels}, both);
}

}  // namespace belfry
