// What `belfry train --data PATH` finds in a folder or file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/data/arrays.h>
#include <belfry/frontends/data/data_set.h>
#include <belfry/frontends/data/distort.h>
#include <belfry/frontends/data/image_folder.h>
#include <belfry/frontends/data/pictures.h>

namespace belfry {

/// What a graph's inputs ask of the data, and a user.
struct DataWanted {
  std::int64_t height = 0, width = 0;      ///< of photos; 0: 224. CIFAR-10's images are as high and wide; 0: 24
  std::int64_t channels = 0;               ///< of photos; 1: grey, else 3
  std::int64_t length = 0;                 ///< of windows of text; 0: no text
  bool antialias = false;                  ///< how photos are made smaller: see resize_bilinear
  std::optional<Rescale> rescale = {};     ///< of the pixels of photos, else to [-1, 1], and of "image" in arrays, else as they are
  std::optional<Rescale> bytes = {};       ///< of "image" in arrays where it is u8 and `rescale` says nothing
  std::optional<Distortions> distortions = {};  ///< of rows to train on that are pictures of bytes
  Shard shard = {};                        ///< of the rows to train on; those held out are whole
  double hold_out = 0;                     ///< the part that is held out, of photos, arrays and tables that come in one part; 0: they have rows to test on
  bool all_to_test = false;                ///< what comes in one part, of which nothing is held out, is to test on, and nothing to train on
  std::vector<std::string> classes = {};   ///< of photos and of words for labels, in the order of these: a net knows them. Empty: the folders' or the words, sorted
  std::vector<std::string> features = {};  ///< of tables, in the order of these: a net knows them. Empty: that of the columns to train on
  InputRows inputs = {};                   ///< columns of arrays and tables are brought to these
};

enum class DataKind { mnist, cifar10, photos, array_folders, array_files, packed_arrays, tables, text };
const char* name_of(DataKind kind);

/// By the names of what lies there. UserError saying what is read where it is none of it.
DataKind data_kind(const std::filesystem::path& path);

/// Arrays and tables as they lie there; `test` has no columns where they come in one part. Of words for labels the wanted classes are known, if there are any, else those of the part to train on;
/// features of tables come in the wanted order, else in that of the part to train on. UserError for another kind, for a label that is no class and a feature that is lacking.
Splits read_parts(const std::filesystem::path& path, DataKind kind, const DataWanted& wanted = {});

/// The photos that are held out, beside train: the folder val or else test. UserError where there is neither.
std::filesystem::path held_out(const std::filesystem::path& dir);

/// MNIST's four IDX files, CIFAR-10's binary batches, photos in class folders under train/ and val/ or test/, arrays (train.npz and test.npz, a .npz
/// of x_train, y_train, x_test, y_test, or .npy under train/ and test/), tables (train.csv and test.csv), or *.txt. Photos, arrays and tables may come
/// in one part, of which some rows are held out by a hash of their names or numbers. Columns "image" and "label", "tokens" and "targets", or the arrays'
/// and tables' own. Classes are the class folders of photos, the words of a table's labels, or the lines of CIFAR-10's batches.meta.txt.
/// UserError where there are none of these, or no held-out rows.
Splits data_folder(const std::filesystem::path& path, const DataWanted& wanted = {});

/// What becomes of the pixels of such data, so that pictures which come later are treated alike; nothing of arrays that nobody rescales.
std::optional<Pixels> pixels_of(const std::filesystem::path& path, const DataWanted& wanted);
/// The classes of photos, before one is read; of other data nothing.
std::vector<std::string> photo_classes(const std::filesystem::path& path, const DataWanted& wanted);

}  // namespace belfry
