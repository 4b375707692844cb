#include <belfry/frontends/state/files.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view doing, int error) {
  throw UserError(fmt::format("{}: cannot {}: {}", path.string(), doing, std::strerror(error)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { if (fd_ >= 0) ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  /// The errno of close, or 0.
  int close() { return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno; }

 private:
  int fd_;
};

/// 0 or an errno.
int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

int write_parts(int fd, const std::vector<std::span<const std::byte>>& parts) {
  for (std::span<const std::byte> part : parts)
    if (int error = write_all(fd, part)) return error;
  return 0;
}

std::filesystem::path link_target(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_symlink(path, ignored)) return path;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, ignored);
  return target.empty() ? path : target;
}

/// Removes the unfinished file unless it was renamed.
struct Neighbour {
  std::filesystem::path path;
  bool renamed = false;
  ~Neighbour() { if (!renamed) ::unlink(path.c_str()); }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail(path, "open for reading", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, "open for reading", errno);
  if (!S_ISREG(status.st_mode)) throw UserError(fmt::format("{}: is no regular file", path.string()));
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (at == MAP_FAILED) fail(path, "map", errno);
  data_ = static_cast<const std::byte*>(at);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void write_whole_file(const std::filesystem::path& named, const std::vector<std::span<const std::byte>>& parts) {
  static std::atomic<unsigned> serial = 0;
  const std::filesystem::path path = link_target(named);
  std::error_code ignored;
  std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) throw UserError(fmt::format("{}: is a folder; name a file", path.string()));
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) fail(path, "open for writing", errno);
    if (int error = write_parts(file.get(), parts)) fail(path, "write", error);
    return;
  }

  Neighbour neighbour{.path = fmt::format("{}{}{}-{}", path.string(), kPartialSuffix, ::getpid(), serial++)};
  Descriptor file(::open(neighbour.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) {
    neighbour.renamed = true;
    fail(path, "write (its folder must exist and be writable)", errno);
  }
  if (int error = write_parts(file.get(), parts)) fail(path, "write", error);
  if (::fsync(file.get()) != 0) fail(path, "sync", errno);
  if (int error = file.close()) fail(path, "close", error);
  if (::rename(neighbour.path.c_str(), path.c_str()) != 0) fail(path, "rename the finished file to it", errno);
  neighbour.renamed = true;

  Descriptor folder(::open(path.has_parent_path() ? path.parent_path().c_str() : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder; the file itself is whole by then.
  if (folder.get() >= 0) ::fsync(folder.get());
}

}  // namespace belfry
