// Files: mapped or read whole with a limit; written beside and renamed, so that a file is never half there.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

/// A regular file mapped for reading; UserError naming the path where it cannot be opened.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// UserError for a file that is absent, unreadable, no regular file, or longer than `limit` bytes.
std::string read_file(const std::filesystem::path& path, std::size_t limit = std::size_t{1} << 28);

/// The folder, the reason and the way out where this is one whose names may not be read, or lies in one that may not be entered. Nothing where all
/// is open, or it is not there.
std::optional<std::string> why_closed(const std::filesystem::path& path);
/// UserError with this.
void refuse_closed(const std::filesystem::path& path);
/// The way to these rights, in words: chmod is the owner's alone.
std::string who_opens(const std::filesystem::path& path, const char* rights = "rx");

/// With its parents, unless it is there. UserError with path and reason, also where nothing can be written in it.
void make_folder(const std::filesystem::path& path);

/// The unfinished files of processes that are no more in the folder itself, and folders that are named so.
std::vector<std::filesystem::path> unfinished_in(const std::filesystem::path& folder);
/// Removes these, but for what was set aside.
void remove_unfinished(const std::filesystem::path& folder);

/// Folders in which no other process that asks writes as long as this lives.
class FolderLocks {
 public:
  FolderLocks() = default;
  ~FolderLocks();
  FolderLocks(const FolderLocks&) = delete;
  /// One more, where it is there and is not held yet. UserError where another process has it; a file system without locks has none.
  void add(const std::filesystem::path& folder);

 private:
  std::vector<int> held_;
};

/// What stands between a file's name and numbers in the name of its unfinished neighbour.
inline constexpr const char* kPartialSuffix = ".partial-";
/// Before it in the name of a folder in which files were set aside, to be put back or removed by who did so.
inline constexpr const char* kSetAside = "replaced";
/// With the numbers of this process: its own, and one that a later process of the same number has not.
std::string partial_suffix();

/// Writes the parts one after the other into a neighbour, syncs it, renames it to `path` and syncs the folder: a reader sees
/// the old file, the new one or none. A symbolic link keeps its target's name; a device or pipe is written in place.
/// UserError with path, reason and way out; the neighbour is then gone.
void write_file(const std::filesystem::path& path, const std::vector<std::span<const std::byte>>& parts);
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace belfry
