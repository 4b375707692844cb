#include <belfry/frontends/data/data_folder.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/data/cifar10.h>
#include <belfry/frontends/data/mnist.h>
#include <belfry/frontends/data/text.h>

namespace belfry {
namespace {

namespace fs = std::filesystem;

bool holds(const fs::path& dir, const std::string& ending) {
  std::error_code error;
  fs::directory_iterator all(dir, error);
  return std::any_of(fs::begin(all), fs::end(all), [&](const auto& e) { return e.path().filename().string().ends_with(ending); });
}

Splits photos(const fs::path& dir, const DataWanted& wanted) {
  ImageFolderOptions options{.channels = wanted.channels == 1 ? 1 : 3, .antialias = wanted.antialias};
  if (wanted.rescale) options.rescale = *wanted.rescale;
  if (wanted.height && wanted.width) options.height = wanted.height, options.width = wanted.width;
  // A class may have none that are held out.
  ImageFolderOptions held = options;
  held.classes = list_image_folder(dir / "train").classes;
  ImageFolder test = image_folder(held_out(dir), held);
  options.distortions = wanted.distortions;
  options.shard = wanted.shard;
  ImageFolder train = image_folder(dir / "train", options);
  return {std::move(train.data), std::move(test.data)};
}

/// The images to train on, where they are bytes, distorted in each epoch.
void distort_images(DataSet& train, const Distortions& d, const Rescale& how) {
  const auto image = train.columns.find("image");
  if (image == train.columns.end() || image->second.dtype() != u8 || image->second.shape().size() != 4)
    throw UserError("[data] distortions are of pictures: there is no column 'image' of u8 (n, height, width, channels) here");
  train.made["image"] = distorted_column(std::make_shared<const HostTensor>(std::move(image->second)), d, how);
  train.columns.erase(image);
}

void rescale_images(DataSet& data, const Rescale& how) {
  const auto image = data.columns.find("image");
  if (image == data.columns.end()) throw UserError("[data] there is no column 'image' to rescale");
  image->second = converted(image->second, f32);
  const auto rows = static_cast<std::size_t>(data.rows());
  const std::span<float> all = image->second.data<float>();
  for (std::size_t i = 0; i < rows; ++i) rescale(all.subspan(i * (all.size() / rows), all.size() / rows), how);
}

Splits fitted(Splits splits, const DataWanted& wanted) {
  InputRows inputs = wanted.inputs;
  // As bytes until they are distorted or rescaled.
  if (const auto image = inputs.find("image"); image != inputs.end() && image->second.dtype == f32 && (wanted.distortions || wanted.rescale)) {
    InputRows bytes = inputs;
    bytes["image"].dtype = u8;
    fit_columns(splits.train, wanted.distortions ? bytes : inputs);
    if (wanted.distortions) distort_images(splits.train, *wanted.distortions, wanted.rescale.value_or(Rescale{1, 0}));
    else rescale_images(splits.train, *wanted.rescale);
    fit_columns(splits.test, inputs);
    if (wanted.rescale) rescale_images(splits.test, *wanted.rescale);
    return splits;
  }
  if (wanted.distortions || wanted.rescale) throw UserError("[data] distortions and rescaling are of an input 'image' of f32, and this graph has none");
  fit_columns(splits.train, inputs);
  fit_columns(splits.test, inputs);
  return splits;
}

Splits whole(const fs::path& path, DataKind kind, const DataWanted& wanted) {
  switch (kind) {
    case DataKind::mnist: {
      Splits out = mnist(path);
      if (wanted.distortions) {
        out.train = mnist_bytes(path).train;
        distort_images(out.train, *wanted.distortions, {1.0 / 255, 0});
      }
      return out;
    }
    case DataKind::cifar10: return cifar10(path, {.size = wanted.height ? wanted.height : 24, .distortions = wanted.distortions});
    case DataKind::array_folders: return fitted({read_arrays(path / "train"), read_arrays(held_out(path))}, wanted);
    case DataKind::array_files: return fitted({read_arrays(path / "train.npz"), read_arrays(held_out(path, ".npz"))}, wanted);
    case DataKind::packed_arrays: return fitted(read_packed_arrays(path), wanted);
    case DataKind::tables: return fitted({columns_of(read_table(path / "train.csv"), wanted.inputs), columns_of(read_table(held_out(path, ".csv")), wanted.inputs)}, wanted);
    case DataKind::text: return text_windows(path, wanted.length);
    default: return photos(path, wanted);
  }
}

}  // namespace

const char* name_of(DataKind kind) {
  constexpr const char* kNames[] = {"MNIST", "CIFAR-10", "photos", "arrays", "arrays", "arrays", "tables", "text"};
  return kNames[static_cast<int>(kind)];
}

DataKind data_kind(const fs::path& path) {
  std::error_code error;
  if (path.extension() == ".npz" && fs::is_regular_file(path, error)) return DataKind::packed_arrays;
  if (fs::exists(path / "train.npz", error)) return DataKind::array_files;
  if (fs::exists(path / "train.csv", error)) return DataKind::tables;
  if (fs::is_directory(path / "train", error)) return holds(path / "train", ".npy") ? DataKind::array_folders : DataKind::photos;
  if (holds(path, ".bin")) return DataKind::cifar10;
  if (holds(path, "-ubyte") || holds(path, "-ubyte.gz")) return DataKind::mnist;
  if (holds(path, ".txt")) return DataKind::text;
  throw UserError(fmt::format("{}: no data that are known. Read are MNIST's four IDX files, CIFAR-10's data_batch_*.bin, photos in train/CLASS and val/CLASS, train.npz and test.npz, .npy in train/ and test/, "
                              "train.csv and test.csv, *.txt, and a .npz of x_train, y_train, x_test, y_test", path.string()));
}

fs::path held_out(const fs::path& dir, const std::string& ending) {
  std::error_code error;
  const fs::path val = dir / ("val" + ending), test = dir / ("test" + ending);
  if (fs::exists(val, error)) return val;
  if (fs::exists(test, error)) return test;
  throw UserError(fmt::format("{}: there is neither val{} nor test{} beside train{}: rows to test on", dir.string(), ending, ending, ending));
}

Splits data_folder(const fs::path& path, const DataWanted& wanted) {
  const DataKind kind = wanted.length ? DataKind::text : data_kind(path);
  if (kind == DataKind::text && !wanted.length) throw UserError(fmt::format("{}: text is for a graph with an input 'tokens'", path.string()));
  if (kind == DataKind::text && wanted.distortions) throw UserError("[data] distortions are of pictures, not of text");
  if (wanted.rescale && (kind == DataKind::mnist || kind == DataKind::cifar10 || kind == DataKind::text)) throw UserError(fmt::format("[data] {} is scaled as it always is: rescaling does nothing here", name_of(kind)));
  Splits out = whole(path, kind, wanted);
  if (out.test.rows() == 0) throw UserError(fmt::format("{}: no test_batch*.bin to test on", path.string()));
  if (kind != DataKind::photos && wanted.shard.count != 1) out.train = out.train.shard(wanted.shard.index, wanted.shard.count);
  return out;
}

}  // namespace belfry
