#include <belfry/frontends/data/images.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <turbojpeg.h>

#include <belfry/frontends/files/files.h>

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

std::vector<std::filesystem::path> sorted(const std::filesystem::path& dir, bool folders) {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (const auto& e : std::filesystem::directory_iterator(dir, error)) {
    std::string suffix = e.path().extension().string();
    std::transform(suffix.begin(), suffix.end(), suffix.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (folders ? e.is_directory() : suffix == ".jpg" || suffix == ".jpeg") out.push_back(e.path());
  }
  if (error) throw UserError(fmt::format("{}: cannot be listed: {}", dir.string(), error.message()));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

HostTensor decode_jpeg(std::span<const std::byte> file, const std::string& name) {
  std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
  auto data = reinterpret_cast<const unsigned char*>(file.data());
  int width = 0, height = 0, sampling = 0, colours = 0;
  auto fail = [&] { throw UserError(fmt::format("{}: cannot be read as a JPEG photo: {}", name, tjGetErrorStr2(decoder.get()))); };
  if (tjDecompressHeader3(decoder.get(), data, file.size(), &width, &height, &sampling, &colours)) fail();
  if (std::int64_t{width} * height > kMostPixels) throw UserError(fmt::format("{}: {} x {} pixels are over the limit of {}", name, width, height, kMostPixels));
  HostTensor out(u8, {height, width, 3});
  // A warning (TJERR_WARNING) is data that had to be made up: the file is damaged.
  if (tjDecompress2(decoder.get(), data, file.size(), out.data<std::uint8_t>().data(), width, 0, height, TJPF_RGB, TJFLAG_ACCURATEDCT)) fail();
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

ImageFolder image_folder(const std::filesystem::path& root, const ImageFolderOptions& o) {
  ImageFolder out;
  std::vector<std::filesystem::path> photos;
  std::vector<std::int32_t> labels;
  for (const std::filesystem::path& folder : sorted(root, true)) {
    const std::vector<std::filesystem::path> mine = sorted(folder, false);
    if (mine.empty()) throw UserError(fmt::format("{}: no .jpg in this class", folder.string()));
    labels.insert(labels.end(), mine.size(), static_cast<std::int32_t>(out.classes.size()));
    photos.insert(photos.end(), mine.begin(), mine.end());
    out.classes.push_back(folder.filename().string());
  }
  if (photos.empty()) throw UserError(fmt::format("{}: no folder of photos; one for each class is expected", root.string()));
  const auto count = static_cast<std::int64_t>(photos.size());
  HostTensor images(f32, {count, o.height, o.width, 3});
  const auto size = static_cast<std::size_t>(o.height * o.width * 3);
  for (std::size_t i = 0; i < photos.size(); ++i) {
    MappedFile file(photos[i]);
    HostTensor resized = resize_bilinear(converted(decode_jpeg(file.bytes(), photos[i].string()), f32), o.height, o.width, o.antialias);
    std::transform(resized.data<float>().begin(), resized.data<float>().end(), images.data<float>().begin() + static_cast<std::ptrdiff_t>(i * size),
                   [&](float v) { return static_cast<float>(static_cast<double>(v) * o.scale + o.offset); });
    out.files.push_back(std::filesystem::relative(photos[i], root).string());
  }
  out.data.columns.emplace("image", std::move(images));
  out.data.columns.emplace("label", HostTensor::of<std::int32_t>({count}, labels));
  return out;
}

}  // namespace belfry
