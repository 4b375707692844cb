#include <belfry/frontends/files/files.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

std::string who_opens(const std::filesystem::path& path, const char* rights) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid()) return fmt::format("chmod u+{} opens it", rights);
  return fmt::format("its owner may open it to you (chmod o+{0} or g+{0})", rights);
}

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view doing, int error) {
  std::string way;
  if (error == EACCES && doing == "read") refuse_closed(path);
  if (error == ENOENT && doing == "read") way = "; name a file that is there";
  if (error == ENOENT && doing != "read") way = fmt::format("; make the folder '{}' first", path.has_parent_path() ? path.parent_path().string() : ".");
  if (error == ELOOP) way = "; the link leads back to itself: mend or remove it, or name another file";
  if (error == EROFS) way = "; its file system takes no changes: choose a place on another";
  if (error == EACCES || error == EPERM) way = doing == "read" ? fmt::format("; {}, or name another file", who_opens(path, "r")) : "; choose a place where you have the rights";
  if (error == ENOSPC || error == EDQUOT) way = "; make room, or choose another place";
  if (error == EFBIG) way = "; files may not grow so large here: ulimit -f says how large, or choose another place";
  throw UserError(fmt::format("{}: cannot {}: {}{}", path.string(), doing, std::strerror(error), way));
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
  if (file.get() < 0) fail(path, "read", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, "read", errno);
  if (!S_ISREG(status.st_mode)) throw UserError(fmt::format("{}: cannot read: it is {}", path.string(), S_ISDIR(status.st_mode) ? "a folder; name a file in it" : "no regular file"));
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (at == MAP_FAILED) fail(path, "read", errno);
  data_ = static_cast<const std::byte*>(at);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const std::filesystem::path& path, std::size_t limit) {
  MappedFile file(path);
  if (file.bytes().size() > limit) throw UserError(fmt::format("{}: cannot read: its {} bytes are more than the limit of {}", path.string(), file.bytes().size(), limit));
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::optional<std::string> why_closed(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == EACCES && path.has_parent_path() && path.parent_path() != path) return why_closed(path.parent_path());
    return {};
  }
  if (!S_ISDIR(status.st_mode) || ::access(path.c_str(), R_OK | X_OK) == 0 || errno != EACCES) return {};
  return fmt::format("{}: cannot be listed: {}; {}, or name another", path.string(), std::strerror(EACCES), who_opens(path));
}

void refuse_closed(const std::filesystem::path& path) {
  if (const auto why = why_closed(path)) throw UserError(*why);
}

void make_folder(const std::filesystem::path& path) {
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) {
    if (::access(path.c_str(), W_OK | X_OK) != 0) fail(path, "write in this folder", errno);
    return;
  }
  if (std::filesystem::create_directories(path, status) || !status) return;
  refuse_closed(path);
  throw UserError(fmt::format("{}: the folder cannot be made: {}{}", path.string(), status.message(), status == std::errc::permission_denied ? "; choose a place where you have the rights" : status == std::errc::read_only_file_system ? "; its file system takes no changes: choose a place on another" : ""));
}

std::vector<std::filesystem::path> unfinished_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::size_t at = name.rfind(kPartialSuffix);
    if (at == std::string::npos) continue;
    const long process = std::strtol(name.c_str() + at + std::strlen(kPartialSuffix), nullptr, 10);
    // In a container every start may have the same number.
    const bool ours = std::string_view(name).substr(at).starts_with(partial_suffix());
    const bool over = process == ::getpid() ? !ours : ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
    if (process > 0 && over) out.push_back(it->path());
  }
  return out;
}

void remove_unfinished(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const std::filesystem::path& path : unfinished_in(folder))
    if (!path.filename().string().starts_with(kSetAside)) std::filesystem::remove_all(path, ignored);
}

FolderLocks::~FolderLocks() {
  for (int folder : held_) ::close(folder);
}

void FolderLocks::add(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat mine {}, other {};
  if (fd < 0) return;
  if (::fstat(fd, &mine) != 0) {
    ::close(fd);
    return;
  }
  const bool ours = std::any_of(held_.begin(), held_.end(), [&](int held) { return ::fstat(held, &other) == 0 && other.st_dev == mine.st_dev && other.st_ino == mine.st_ino; });
  const bool theirs = !ours && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (ours || theirs) ::close(fd);
  else held_.push_back(fd);
  if (theirs) throw UserError(fmt::format("{}: another process trains into this folder: wait until it ends, or name another folder", folder.string()));
}

std::string partial_suffix() {
  static const auto begin = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{}{}-{:x}", kPartialSuffix, ::getpid(), begin);
}

void write_file(const std::filesystem::path& path, std::string_view text) { write_file(path, {std::as_bytes(std::span(text))}); }

void write_file(const std::filesystem::path& named, const std::vector<std::span<const std::byte>>& parts) {
  static std::atomic<unsigned> serial = 0;
  const std::filesystem::path path = link_target(named);
  std::error_code ignored;
  std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) throw UserError(fmt::format("{}: is a folder; name a file", path.string()));
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) fail(path, "write", errno);
    if (int error = write_parts(file.get(), parts)) fail(path, "write", error);
    return;
  }

  int fd = -1;
  std::filesystem::path beside;
  do {  // a forked process of the same beginning may have left one
    beside = fmt::format("{}{}-{}", path.string(), partial_suffix(), serial++);
    fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EEXIST);
  if (fd < 0) fail(path, "write", errno);
  Neighbour neighbour{.path = beside};
  Descriptor file(fd);
  if (int error = write_parts(file.get(), parts)) fail(path, "write", error);
  if (::fsync(file.get()) != 0) fail(path, "write", errno);
  if (int error = file.close()) fail(path, "write", error);
  if (::rename(neighbour.path.c_str(), path.c_str()) != 0) fail(path, "write", errno);
  neighbour.renamed = true;

  Descriptor folder(::open(path.has_parent_path() ? path.parent_path().c_str() : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder; the file itself is whole by then.
  if (folder.get() >= 0) ::fsync(folder.get());
}

}  // namespace belfry
