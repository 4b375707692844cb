#include <belfry/frontends/data/data_folder.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/data/cifar10.h>
#include <belfry/frontends/data/mnist.h>
#include <belfry/frontends/data/tables.h>
#include <belfry/frontends/data/text.h>
#include <belfry/frontends/files/files.h>
#include <belfry/graph/float_environment.h>

namespace belfry {
namespace {

namespace fs = std::filesystem;

bool holds(const fs::path& dir, const std::string& ending) {
  std::error_code error;
  fs::directory_iterator all(dir, error);
  return std::any_of(fs::begin(all), fs::end(all), [&](const auto& e) { return e.path().filename().string().ends_with(ending); });
}

/// Whether there are folders of pictures in it.
bool holds_classes(const fs::path& dir) {
  auto has_pictures = [](const fs::directory_entry& e) {
    std::error_code unread;
    fs::directory_iterator all(e.path(), unread);
    return e.is_directory(unread) && std::any_of(fs::begin(all), fs::end(all), [](const auto& f) { return is_picture(f.path()); });
  };
  std::error_code error;
  fs::directory_iterator all(dir, error);
  return std::any_of(fs::begin(all), fs::end(all), has_pictures);
}

/// Class folders to train on: those in train/, or of what comes in one part perhaps the folder's own.
fs::path photos_to_train_on(const fs::path& dir, const DataWanted& wanted) {
  std::error_code error;
  const bool has_train = fs::is_directory(dir / "train", error);
  if (wanted.all_to_test && wanted.hold_out <= 0 && !has_train) return dir;
  if (wanted.hold_out <= 0 && !has_train) throw UserError(fmt::format("{}: photos in class folders, none of which are to test on: hold a part out, as --hold-out 0.2 does, or put them into train/ and val/", dir.string()));
  if (wanted.hold_out > 0)
    for (const char* other : {"val", "test"})
      if (has_train && fs::exists(dir / other, error)) throw UserError(fmt::format("{}: {}/ is there to test on: holding out a part of train/ too does nothing", dir.string(), other));
  return wanted.hold_out > 0 && !has_train ? dir : dir / "train";
}

Splits photos(const fs::path& dir, const DataWanted& wanted) {
  ImageFolderOptions options{.channels = wanted.channels == 1 ? 1 : 3, .antialias = wanted.antialias};
  if (wanted.rescale) options.rescale = *wanted.rescale;
  if (wanted.height && wanted.width) options.height = wanted.height, options.width = wanted.width;
  ImageFolderOptions held = options;
  if (std::error_code error; wanted.all_to_test && wanted.hold_out <= 0 && !fs::is_directory(dir / "train", error)) {
    held.classes = wanted.classes;
    ImageFolder all = image_folder(dir, held);
    return {{}, std::move(all.data), std::move(all.classes)};
  }
  // A class may have none that are held out.
  const fs::path from = photos_to_train_on(dir, wanted);
  held.classes = wanted.classes.empty() ? list_image_folder(from).classes : wanted.classes;
  options.classes = wanted.classes;
  if (wanted.hold_out > 0) {
    options.classes = held.classes;
    options.hold_out = {wanted.hold_out, false};
    held.hold_out = {wanted.hold_out, true};
  }
  ImageFolder test = image_folder(wanted.hold_out > 0 ? from : held_out(dir), held);
  options.distortions = wanted.distortions;
  options.shard = wanted.shard;
  ImageFolder train = image_folder(from, options);
  return {std::move(train.data), std::move(test.data), std::move(held.classes)};
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

/// Whether pictures for an input of f32 are u8; they may still be called x.
bool holds_bytes_of_images(const DataSet& data, const InputRows& inputs) {
  const auto input = inputs.find("image");
  if (input == inputs.end() || input->second.dtype != f32) return false;
  auto image = data.columns.find("image");
  if (image == data.columns.end() && !inputs.contains("x")) image = data.columns.find("x");
  return image != data.columns.end() && image->second.dtype() == u8;
}

Splits fitted(Splits splits, const fs::path& path, const DataWanted& wanted) {
  const InputRows& inputs = wanted.inputs;
  auto fit = [&](DataSet& part, const InputRows& rows) {
    try {
      fit_columns(part, rows);
    } catch (const UserError& e) {
      throw UserError(fmt::format("{}, rows to {} on: {}", path.string(), &part == &splits.train ? "train" : "test", e.what()));
    }
  };
  // As bytes until they are distorted or rescaled.
  if (const auto image = inputs.find("image"); image != inputs.end() && image->second.dtype == f32 && (wanted.distortions || wanted.rescale)) {
    InputRows bytes = inputs;
    bytes["image"].dtype = u8;
    fit(splits.train, wanted.distortions ? bytes : inputs);
    if (wanted.distortions) distort_images(splits.train, *wanted.distortions, wanted.rescale.value_or(Rescale{1, 0}));
    else if (!splits.train.columns.empty()) rescale_images(splits.train, *wanted.rescale);
    fit(splits.test, inputs);
    if (wanted.rescale) rescale_images(splits.test, *wanted.rescale);
    return splits;
  }
  if (wanted.distortions || wanted.rescale) throw UserError("[data] distortions and rescaling are of an input 'image' of f32, and this graph has none");
  for (DataSet* part : {&splits.train, &splits.test}) {
    const bool bytes = wanted.bytes && holds_bytes_of_images(*part, inputs);
    fit(*part, inputs);
    if (bytes) rescale_images(*part, *wanted.bytes);
  }
  return splits;
}

HostTensor rows_of(const HostTensor& x, const std::vector<std::int64_t>& rows) {
  Extents shape = x.shape();
  const std::size_t row = x.bytes().size() / static_cast<std::size_t>(shape[0]);
  shape[0] = static_cast<std::int64_t>(rows.size());
  HostTensor out(x.dtype(), shape);
  for (std::size_t i = 0; row && i < rows.size(); ++i) std::memcpy(out.raw() + i * row, x.raw() + static_cast<std::size_t>(rows[i]) * row, row);
  return out;
}

/// By a hash of the rows' numbers, so that each stays where it is when others come behind.
Splits held_apart(const DataSet& all, double fraction, const fs::path& path) {
  std::vector<std::int64_t> others, held;
  for (std::int64_t r = 0; r < all.rows(); ++r) (is_held_out(std::to_string(r), fraction) ? held : others).push_back(r);
  if (held.empty() || others.empty()) throw UserError(fmt::format("{}: of so few rows {} {}; take another fraction", path.string(), fraction, held.empty() ? "holds none out" : "leaves none to train on"));
  Splits out;
  for (const auto& [name, x] : all.columns) out.train.columns.emplace(name, rows_of(x, others)), out.test.columns.emplace(name, rows_of(x, held));
  return out;
}

/// What has no rows to test on: those that are held out of it, or all.
Splits parted(Splits parts, const fs::path& path, const DataWanted& wanted) {
  const bool one = parts.test.columns.empty();
  if (!one && wanted.hold_out > 0) throw UserError(fmt::format("{}: has rows to test on: holding out a part of the others too does nothing", path.string()));
  if (!one) return parts;
  if (wanted.hold_out > 0) {
    Splits rows = held_apart(parts.train, wanted.hold_out, path);
    return {std::move(rows.train), std::move(rows.test), std::move(parts.classes), std::move(parts.features)};
  }
  if (wanted.all_to_test) return {{}, std::move(parts.train), std::move(parts.classes), std::move(parts.features)};
  throw UserError(fmt::format("{}: comes in one part, with no rows to test on: hold some out, as --hold-out 0.2 does, or give them in a second part, as train and test", path.string()));
}

/// What batches.meta.txt says, where it is there.
std::vector<std::string> cifar10_classes(const fs::path& dir) {
  std::vector<std::string> out;
  std::error_code error;
  const fs::path names = dir / "batches.meta.txt";
  if (!fs::exists(names, error)) return out;
  std::istringstream lines(read_file(names, 1 << 16));
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) out.push_back(line);
  return out;
}

Splits whole(const fs::path& path, DataKind kind, const DataWanted& wanted) {
  switch (kind) {
    case DataKind::mnist: {
      Splits out = mnist(path);
      if (wanted.distortions) {
        out.train = mnist_bytes(path).train;
        distort_images(out.train, *wanted.distortions, {1.0 / 255, 0});
      }
      for (DataSet* part : {&out.train, &out.test}) fit_columns(*part, wanted.inputs);
      return out;
    }
    case DataKind::cifar10: {
      Splits out = cifar10(path, {.size = wanted.height ? wanted.height : 24, .distortions = wanted.distortions});
      out.classes = cifar10_classes(path);
      return out;
    }
    case DataKind::text: return text_windows(path, wanted.length);
    case DataKind::photos: return photos(path, wanted);
    default: return fitted(parted(read_parts(path, kind, wanted), path, wanted), path, wanted);
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
  if (path.extension() == ".csv" && fs::is_regular_file(path, error)) return DataKind::tables;
  if (path.extension() == ".tsv" && fs::is_regular_file(path, error))
    throw UserError(fmt::format("{}: a .tsv is a table with tabs between the values, and tables are read with commas, as .csv: save it so, or name it .csv if it has commas", path.string()));
  if (fs::exists(path / "train.npz", error)) return DataKind::array_files;
  if (fs::exists(path / "train.csv", error)) return DataKind::tables;
  for (const fs::path& folder : {path, path / "train"}) refuse_closed(folder);
  if (fs::is_directory(path / "train", error)) return holds(path / "train", ".npy") ? DataKind::array_folders : DataKind::photos;
  if (holds(path, ".bin")) return DataKind::cifar10;
  if (holds(path, "-ubyte") || holds(path, "-ubyte.gz")) return DataKind::mnist;
  if (holds_classes(path)) return DataKind::photos;
  if (holds(path, ".txt")) return DataKind::text;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) refuse_closed(it->path());  // of a class perhaps
  throw UserError(fmt::format("{}: no data that are known. Read are MNIST's four IDX files, CIFAR-10's data_batch_*.bin, photos in train/CLASS and val/CLASS (or CLASS alone, with a part to hold out), train.npz and test.npz, .npy in train/ and test/, "
                              "train.csv and test.csv, *.txt, a .npz of x_train, y_train, x_test, y_test, and a .npz or .csv alone, with a part to hold out", path.string()));
}

namespace {

std::optional<fs::path> part_beside_train(const fs::path& dir, const std::string& ending) {
  std::error_code error;
  for (const char* name : {"val", "test"})
    if (fs::exists(dir / (name + ending), error)) return dir / (name + ending);
  return {};
}

}  // namespace

Splits read_parts(const fs::path& path, DataKind kind, const DataWanted& wanted) {
  const InputRows& inputs = wanted.inputs;
  auto both = [&](const std::string& ending, const auto& read) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) return Splits{read(path), {}};
    const auto other = part_beside_train(path, ending);
    return Splits{read(path / ("train" + ending)), other ? read(*other) : DataSet{}};
  };
  auto arrays = [&](const fs::path& file) { return read_arrays(file, inputs); };
  switch (kind) {
    case DataKind::array_folders: return both("", arrays);
    case DataKind::array_files: return both(".npz", arrays);
    case DataKind::packed_arrays: return read_packed_arrays(path, inputs);
    case DataKind::tables: {
      std::vector<std::string> known, words = wanted.classes, found, features = wanted.features;  // of the first part, which the other has too
      Splits out = both(".csv", [&](const fs::path& file) {
        Table table = read_table(file, words);
        for (const std::string& name : known)
          if (inputs.contains(name) && std::find(table.names.begin(), table.names.end(), name) == table.names.end())
            throw UserError(fmt::format("{}: lacks the column '{}', which train.csv has, so that nothing can be tested on it: --data {} --hold-out 0.2 takes a part of that",
                                        file.string(), name, (path / "train.csv").string()));
        const bool both_labelled = std::find(known.begin(), known.end(), "label") != known.end() && std::find(table.names.begin(), table.names.end(), "label") != table.names.end();
        if (both_labelled && wanted.classes.empty() && table.wrong_labels.empty() && table.classes.empty() != words.empty())
          throw UserError(fmt::format("{}: its column 'label' has {}: give the classes of both by words, or both by numbers", file.string(), words.empty() ? "words, and that of train.csv numbers" : "numbers, and that of train.csv words"));
        if (known.empty()) found = table.classes;
        if (!table.classes.empty()) words = table.classes;
        known = table.names;
        if (features.empty()) features = features_of(table, inputs);
        else order_features(table, inputs, features);
        return columns_of(table, inputs);
      });
      out.classes = std::move(found);
      out.features = std::move(features);
      return out;
    }
    default: throw UserError(fmt::format("{}: {} are neither arrays nor tables", path.string(), name_of(kind)));
  }
}

fs::path held_out(const fs::path& dir) {
  if (const auto part = part_beside_train(dir, "")) return *part;
  throw UserError(fmt::format("{}: there is neither val nor test beside train: rows to test on; a part can be held out, as --hold-out 0.2 does", dir.string()));
}

namespace {

DataKind kind_of(const fs::path& path, const DataWanted& wanted) { return wanted.length ? DataKind::text : data_kind(path); }

}  // namespace

Splits data_folder(const fs::path& path, const DataWanted& wanted) {
  const DefaultFloats floats;
  const DataKind kind = kind_of(path, wanted);
  if (wanted.hold_out > 0 && (kind == DataKind::mnist || kind == DataKind::cifar10 || kind == DataKind::text)) throw UserError(fmt::format("[data] {} has rows to test on: a part is held out of photos, arrays and tables", name_of(kind)));
  if (kind == DataKind::text && !wanted.length) throw UserError(fmt::format("{}: text is for a graph with an input 'tokens'", path.string()));
  if (kind == DataKind::text && wanted.distortions) throw UserError("[data] distortions are of pictures, not of text");
  if (wanted.rescale && (kind == DataKind::mnist || kind == DataKind::cifar10 || kind == DataKind::text)) throw UserError(fmt::format("[data] {} is scaled as it always is: rescaling does nothing here", name_of(kind)));
  Splits out;
  try {
    out = whole(path, kind, wanted);
  } catch (const UserError& e) {
    if (!std::string_view(e.what()).starts_with("[data]")) throw;
    throw UserError(fmt::format("{}: {}", path.string(), e.what()));
  }
  if (out.test.rows() == 0) throw UserError(fmt::format("{}: {}", path.string(), kind == DataKind::cifar10 ? "no test_batch*.bin to test on" : "holds no rows to test on"));
  if (kind != DataKind::photos && wanted.shard.count != 1) out.train = out.train.shard(wanted.shard.index, wanted.shard.count);
  return out;
}

std::optional<Pixels> pixels_of(const fs::path& path, const DataWanted& wanted) {
  switch (kind_of(path, wanted)) {
    case DataKind::mnist: return Pixels{.rescale = {1.0 / 255, 0}};
    case DataKind::cifar10: return Pixels{.rescale = {.standardised = true}, .resized = 32};
    case DataKind::photos: return Pixels{wanted.rescale.value_or(Rescale{}), wanted.antialias};
    default: return wanted.rescale ? std::optional(Pixels{.rescale = *wanted.rescale}) : std::nullopt;
  }
}

std::vector<std::string> photo_classes(const fs::path& path, const DataWanted& wanted) {
  if (kind_of(path, wanted) != DataKind::photos) return {};
  return wanted.classes.empty() ? list_image_folder(photos_to_train_on(path, wanted)).classes : wanted.classes;
}

}  // namespace belfry
