// Photos in folders of one class each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/data/data_set.h>
#include <belfry/frontends/data/distort.h>

namespace belfry {

/// Machine `index` of `count` has every count-th row or file, from `index` on.
struct Shard {
  std::int64_t index = 0, count = 1;
};

/// Of photos that lie in one folder those that are held out, or the others: by a hash of "CLASS/NAME", so that each stays where it is when others come.
struct HeldOut {
  double fraction = 0;  ///< 0: all photos
  bool taken = false;   ///< the part that is held out
};

/// Whether what has this name falls to the part that is held out: a hash decides.
bool is_held_out(std::string_view name, double fraction);

struct ImageFolderOptions {
  std::int64_t height = 224, width = 224;
  std::int64_t channels = 3;                ///< or 1: grey
  Rescale rescale = {};
  bool antialias = false;
  std::optional<Distortions> distortions = {};  ///< of each epoch anew. Photos are made `crop` larger than asked for, along each axis
  Shard shard = {};
  HeldOut hold_out = {};
  std::vector<std::string> classes = {};    ///< of the labels; empty: the folders, each of which has a photo
  std::int64_t most_bytes = std::int64_t{1} << 31;  ///< of resized photos that are kept; more than that are read from their files each time
};

/// The path as text; of one that is no UTF-8 the bytes beyond ASCII in hex, each behind a backslash and an x.
std::string utf8_name(const std::filesystem::path& path);

struct ImageFolder {
  DataSet data;                      ///< "image" f32 (n, height, width, channels), made where photos are distorted or too many; "label" i32 (n): the number of the class
  std::vector<std::string> classes;  ///< names of the folders, sorted
  std::vector<std::string> files;    ///< relative paths, sorted, in the order of the rows
};

/// The classes and files of `ROOT/CLASS/NAME.jpg`, .jpeg or .png, and their labels: nothing is read yet. UserError where there is no class, a class has no photo, has a name that is no UTF-8, or is none of
/// `classes`; where these are given, some may have no photo.
ImageFolder list_image_folder(const std::filesystem::path& root, const Shard& shard = {}, const std::vector<std::string>& classes = {}, const HeldOut& hold_out = {});
/// The same, read. UserError also where a photo cannot be.
ImageFolder image_folder(const std::filesystem::path& root, const ImageFolderOptions& options = {});

}  // namespace belfry
