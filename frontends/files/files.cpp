#include <belfry/frontends/files/files.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

namespace {

[[noreturn]] void refuse(const char* verb, const std::string& path, int error) {
  std::string folder = std::filesystem::path(path).parent_path();
  std::string way;
  if (error == ENOENT && std::string(verb) == "write") way = fmt::format("; make the folder '{}' first", folder.empty() ? "." : folder);
  if (error == EACCES || error == EPERM || error == EROFS) way = "; choose a place where you have the rights";
  if (error == ENOSPC || error == EDQUOT) way = "; the file that was there is untouched";
  throw UserError(fmt::format("cannot {} '{}': {}{}", verb, path, std::strerror(error), way));
}

/// Closed, and removed unless it was renamed.
struct Descriptor {
  int fd = -1;
  std::string remove = {};
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
    if (!remove.empty()) ::unlink(remove.c_str());
  }
};

}  // namespace

std::string read_file(const std::string& path, std::size_t limit) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) refuse("read", path, errno);
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) refuse("read", path, errno);
  if (S_ISDIR(info.st_mode)) refuse("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) throw UserError(fmt::format("cannot read '{}': it is no regular file", path));
  if (static_cast<std::uintmax_t>(info.st_size) > limit) throw UserError(fmt::format("cannot read '{}': its {} bytes are more than the limit of {}", path, info.st_size, limit));
  std::string out(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t at = 0;
  while (at < out.size()) {
    ssize_t n = ::read(file.fd, out.data() + at, out.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse("read", path, errno);
    if (n == 0) break;
    at += static_cast<std::size_t>(n);
  }
  out.resize(at);
  return out;
}

void write_file_atomically(const std::string& path, std::string_view text) {
  std::string beside = fmt::format("{}.{}.part", path, ::getpid());
  Descriptor file{::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  if (file.fd < 0) refuse("write", path, errno);
  file.remove = beside;
  while (!text.empty()) {
    ssize_t n = ::write(file.fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse("write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fsync(file.fd) != 0) refuse("write", path, errno);
  if (::close(std::exchange(file.fd, -1)) != 0) refuse("write", path, errno);
  if (::rename(beside.c_str(), path.c_str()) != 0) refuse("write", path, errno);
  file.remove.clear();
}

}  // namespace belfry
