#include <belfry/frontends/data/data_folder.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/frontends/data/cifar10.h>
#include <belfry/frontends/data/images.h>
#include <belfry/frontends/data/mnist.h>
#include <belfry/frontends/data/text.h>

namespace belfry {

Splits data_folder(const std::filesystem::path& dir, const DataWanted& wanted) {
  if (wanted.length) return text_windows(dir, wanted.length);
  std::error_code error;
  if (std::filesystem::is_directory(dir / "train", error)) {
    ImageFolderOptions options{.antialias = wanted.antialias};
    if (wanted.height && wanted.width) options.height = wanted.height, options.width = wanted.width;
    const char* held_out = std::filesystem::is_directory(dir / "val", error) ? "val" : "test";
    ImageFolder train = image_folder(dir / "train", options), test = image_folder(dir / held_out, options);
    if (train.classes != test.classes) throw UserError(fmt::format("{}: train has the classes {}, {} has {}", dir.string(), fmt::join(train.classes, ", "), held_out, fmt::join(test.classes, ", ")));
    return {std::move(train.data), std::move(test.data)};
  }
  for (const auto& e : std::filesystem::directory_iterator(dir, error))
    if (e.path().filename().string().starts_with("data_batch")) {
      Splits data = cifar10(dir);
      if (data.test.rows() == 0) throw UserError(fmt::format("{}: no test_batch*.bin to test on", dir.string()));
      return data;
    }
  return mnist(dir);
}

}  // namespace belfry
