#include <belfry/frontends/cli/paths_internal.h>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/train/checkpoints.h>

namespace belfry {
namespace {

/// UserError, which is no wrong use of the command line, where there is nothing of this name.
void refuse_no_path(const std::string& path, const char* kind, const std::string& besides = {}) {
  std::error_code error, unread;
  if (std::filesystem::exists(path, error)) return;
  refuse_closed(path);
  if (!std::filesystem::is_symlink(path, unread)) throw UserError(fmt::format("{}: there is no such {}; name one that is there{}", path.empty() ? "''" : path, kind, besides));
  throw UserError(fmt::format("{} is a link that leads nowhere{}: mend it, or name the folder or file that is meant{}", path, error ? fmt::format(" ({})", error.message()) : "", besides));
}

}  // namespace

void refuse_no_file(const std::string& path, const std::string& besides) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw UserError(fmt::format("{} is a folder; name a file{}", path, besides));
  refuse_no_path(path, "file", besides);
}

CLI::Validator is_data() {
  return CLI::Validator([](std::string& path) { return refuse_no_path(path, "folder or file"), std::string(); }, "PATH(existing)");
}

CLI::Validator is_file() {
  return CLI::Validator([](std::string& path) { return refuse_no_file(path), std::string(); }, "FILE");
}

CLI::Validator is_folder() {
  return CLI::Validator([](std::string& path) {
    std::error_code error;
    refuse_no_path(path, "folder");
    if (!std::filesystem::is_directory(path, error)) throw UserError(fmt::format("{} is a file; name a folder", path));
    return std::string();
  }, "DIR");
}

CLI::Validator is_checkpoint() {
  return CLI::Validator([](std::string& path) {
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error)) return std::string();
    refuse_no_path(path, "file");
    if (!std::filesystem::is_directory(path, error)) throw UserError(fmt::format("{}: is no file; name a checkpoint", path));
    refuse_closed(path);
    const auto latest = latest_checkpoint(path);
    throw UserError(latest ? fmt::format("{} is a folder: name a checkpoint, of which {} is the latest; or the folder by --checkpoints {}, which goes on from that by itself", path, latest->string(), path)
                           : fmt::format("{} is a folder without checkpoints: name one, as belfry train --checkpoints writes them", path));
  }, "");
}

void refuse_unwritable(const std::vector<std::string>& files) {
  namespace fs = std::filesystem;
  for (const std::string& file : files) {
    const fs::path folder = fs::path(file).parent_path();
    std::error_code error;
    const fs::file_status there = fs::status(file, error);
    if (error == std::errc::permission_denied) refuse_closed(file);
    if (fs::is_directory(there)) throw UserError(fmt::format("{}: is a folder; name a file", file));
    if (!folder.empty() && !fs::is_directory(folder, error)) throw UserError(fmt::format("{}: cannot be written: there is no folder '{}'; make it first, or name another file", file, folder.string()));
    if (!file.empty() && !fs::is_other(there) && !fs::is_symlink(file, error)) make_folder(folder.empty() ? "." : folder);  // there it is: whether anything can be written in it
  }
}

void refuse_over(const char* option, const std::string& file, const std::vector<std::string>& read) {
  std::error_code error;
  for (const std::string& r : read)
    if (!file.empty() && std::filesystem::is_regular_file(file, error) && std::filesystem::equivalent(file, r, error))
      throw UserError(fmt::format("{} {}: is a file that is read here, and would be lost; name another", option, file));
}

}  // namespace belfry
