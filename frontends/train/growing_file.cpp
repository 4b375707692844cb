#include <sys/stat.h>

#include <cerrno>

#include <belfry/frontends/train/growing_file_internal.h>

namespace belfry {

bool GrowingFile::open(const std::filesystem::path& path) {
  path_ = path;
  file_.close();
  file_.clear();
  file_.open(path, std::ios::app | std::ios::binary);
  struct stat status {};
  if (!file_ || ::stat(path.c_str(), &status) != 0) return false;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return true;
}

bool GrowingFile::gone() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) return errno == ENOENT || errno == ENOTDIR;
  return status.st_dev != device_ || status.st_ino != inode_;
}

bool GrowingFile::write(std::string_view bytes) {
  file_ << bytes << std::flush;
  return static_cast<bool>(file_);
}

}  // namespace belfry
