// A file that is written line by line while others may remove it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <string_view>

namespace belfry {

class GrowingFile {
 public:
  /// Whether it could be opened, errno else. Appends to what is there.
  bool open(const std::filesystem::path& path);
  /// Whether there is no longer this file at its path: what is written would be lost.
  bool gone() const;
  /// Whether all is written, and can be read.
  bool write(std::string_view bytes);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace belfry
