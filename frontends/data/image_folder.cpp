#include <belfry/frontends/data/image_folder.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include <belfry/frontends/data/pictures.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/graph/float_environment.h>

namespace belfry {
namespace {

std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& dir, bool folders) {
  std::vector<std::filesystem::path> out;
  refuse_closed(dir);
  std::error_code error;
  for (const auto& e : std::filesystem::directory_iterator(dir, error)) {
    if (e.path().filename().string().starts_with('.')) continue;
    std::error_code unread;
    const std::filesystem::file_type kind = e.status(unread).type();
    if (kind == std::filesystem::file_type::none) throw UserError(fmt::format("{}: cannot be looked at: {}; remove it, or move it elsewhere", printable(e.path().string()), unread.message()));
    if (folders ? kind == std::filesystem::file_type::directory : is_picture(e.path())) out.push_back(e.path());
  }
  if (error) throw UserError(fmt::format("{}: cannot be listed: {}", dir.string(), error.message()));
  std::sort(out.begin(), out.end());
  return out;
}

/// Photos of one size: kept, or read from their files when they are asked for.
class Photos {
 public:
  Photos(const std::filesystem::path& root, const std::vector<std::string>& files, PictureSize size, bool antialias, std::int64_t most_bytes) : size_(size), antialias_(antialias) {
    for (const std::string& f : files) files_.push_back(root / f);
    if (static_cast<std::int64_t>(files.size() * size.elements() * sizeof(float)) > most_bytes) return;
    kept_.resize(files.size() * size.elements());
    for (std::size_t i = 0; i < files.size(); ++i) {
      const HostTensor photo = read(i);
      std::copy_n(photo.data<float>().data(), size.elements(), kept_.data() + i * size.elements());
    }
  }

  const PictureSize& size() const { return size_; }
  bool kept() const { return !kept_.empty(); }
  /// `use` sees the pixels of photo i, as f32 of 0 to 255.
  template <class Use>
  void with(std::int64_t i, const Use& use) const {
    const auto at = static_cast<std::size_t>(i);
    if (kept()) return use(std::span(kept_).subspan(at * size_.elements(), size_.elements()));
    const HostTensor photo = read(at);
    use(photo.data<float>());
  }

 private:
  HostTensor read(std::size_t i) const { return read_photo(files_[i], size_, antialias_); }

  std::vector<std::filesystem::path> files_;
  PictureSize size_;
  bool antialias_;
  std::vector<float> kept_;
};

std::string words_of(const ImageFolderOptions& o) {
  const std::string pixels = to_string(o.rescale) + (o.antialias ? ", antialias" : "");
  return o.distortions ? fmt::format("{}, {}", pixels, to_string(*o.distortions)) : pixels;
}

}  // namespace

bool is_held_out(std::string_view name, double fraction) { return static_cast<double>(XXH3_64bits(name.data(), name.size())) * 0x1p-64 < fraction; }

ImageFolder list_image_folder(const std::filesystem::path& root, const Shard& shard, const std::vector<std::string>& classes, const HeldOut& hold_out) {
  ImageFolder out;
  out.classes = classes;
  std::vector<std::int32_t> labels;
  for (const std::filesystem::path& folder : sorted_entries(root, true)) {
    const std::vector<std::filesystem::path> mine = sorted_entries(folder, false);
    const std::string name = folder.filename().string();
    if (!json_quoted(name)) throw UserError(fmt::format("{}: the name of this class is not UTF-8, as files of runs and answers are: rename the folder", printable(folder.string())));
    if (classes.empty() && mine.empty()) throw UserError(fmt::format("{}: no .jpg or .png in this class", folder.string()));
    if (classes.empty()) out.classes.push_back(name);
    const auto at = std::find(out.classes.begin(), out.classes.end(), name);
    if (at == out.classes.end()) throw UserError(fmt::format("{}: '{}' is no class that is trained on; those are {}: name the folder so, move it elsewhere, or train with photos of this class", folder.string(), name, listed(classes)));
    for (const auto& photo : mine) {
      if (hold_out.fraction > 0 && is_held_out(name + "/" + photo.filename().string(), hold_out.fraction) != hold_out.taken) continue;
      labels.push_back(static_cast<std::int32_t>(at - out.classes.begin()));
      out.files.push_back(name + "/" + photo.filename().string());
    }
  }
  if (labels.empty() && hold_out.fraction > 0) throw UserError(fmt::format("{}: of so few photos {} {}; take another fraction", root.string(), hold_out.fraction, hold_out.taken ? "holds none out" : "leaves none to train on"));
  if (labels.empty()) throw UserError(fmt::format("{}: no folder of photos; one for each class is expected", root.string()));
  out.data.columns.emplace("label", HostTensor::of<std::int32_t>({static_cast<std::int64_t>(labels.size())}, labels));
  out.data = out.data.shard(shard.index, shard.count);
  std::vector<std::string> mine;
  for (std::size_t i = static_cast<std::size_t>(shard.index); i < out.files.size(); i += static_cast<std::size_t>(shard.count)) mine.push_back(out.files[i]);
  out.files = std::move(mine);
  return out;
}

namespace {

/// Of names and sizes: to read all photos would take as long as an epoch.
std::uint64_t hash_of_photos(const std::filesystem::path& root, const std::vector<std::string>& files) {
  std::uint64_t hash = 0;
  for (const std::string& file : files) {
    std::error_code error;
    const std::string one = fmt::format("{} {}", file, std::filesystem::file_size(root / file, error));
    hash = XXH3_64bits_withSeed(one.data(), one.size(), hash);
  }
  return hash;
}

}  // namespace

ImageFolder image_folder(const std::filesystem::path& root, const ImageFolderOptions& o) {
  const DefaultFloats floats;
  if (o.height < 1 || o.width < 1 || (o.channels != 1 && o.channels != 3)) throw UserError(fmt::format("{}: photos are made into {} x {} x {}; they have 1 or 3 channels", root.string(), o.height, o.width, o.channels));
  ImageFolder out = list_image_folder(root, o.shard, o.classes, o.hold_out);
  const auto count = static_cast<std::int64_t>(out.files.size());
  const std::int64_t crop = o.distortions ? o.distortions->crop : 0;
  const PictureSize small{o.height, o.width, o.channels};
  const bool stored = !o.distortions && count * static_cast<std::int64_t>(small.elements() * sizeof(float)) <= o.most_bytes;
  auto photos = std::make_shared<const Photos>(root, out.files, PictureSize{o.height + crop, o.width + crop, o.channels}, o.antialias, stored ? 0 : o.most_bytes);
  if (stored) {
    HostTensor images(f32, {count, o.height, o.width, o.channels});
    for (std::int64_t i = 0; i < count; ++i)
      photos->with(i, [&](std::span<const float> photo) {
        const std::span<float> row = images.data<float>().subspan(static_cast<std::size_t>(i) * small.elements(), small.elements());
        std::copy(photo.begin(), photo.end(), row.begin());
        rescale(row, o.rescale);
      });
    out.data.columns.emplace("image", std::move(images));
    return out;
  }
  auto make = [photos, o, small](const RowKey& key, std::span<std::byte> bytes) {
    const std::span<float> row(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
    photos->with((key.row - o.shard.index) / o.shard.count, [&](std::span<const float> photo) {
      if (o.distortions) change(photo, photos->size(), changes_of(*o.distortions, key), small, row);
      else std::copy(photo.begin(), photo.end(), row.begin());
    });
    rescale(row, o.rescale);
  };
  out.data.made["image"] = {{f32, {o.height, o.width, o.channels}}, words_of(o), std::move(make), computed_once([root, files = out.files] { return hash_of_photos(root, files); })};
  return out;
}

}  // namespace belfry
