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

/// Why there is nothing of this name; empty where there is.
std::string absent(const std::string& path, const char* kind) {
  std::error_code error, unread;
  if (std::filesystem::exists(path, error)) return "";
  try {
    refuse_closed(path);
  } catch (const UserError& e) {
    return e.what();
  }
  if (!std::filesystem::is_symlink(path, unread)) return fmt::format("{} does not exist: {}", kind, path);
  return fmt::format("{} is a link that leads nowhere{}: mend it, or name the folder or file that is meant", path, error ? fmt::format(" ({})", error.message()) : "");
}

}  // namespace

CLI::Validator is_data() {
  return CLI::Validator([](std::string& path) { return absent(path, "Path"); }, "PATH(existing)");
}

CLI::Validator is_file() {
  return CLI::Validator([](std::string& path) {
    std::error_code error;
    return std::filesystem::is_directory(path, error) ? fmt::format("{} is a folder; name a file", path) : absent(path, "File");
  }, "FILE");
}

CLI::Validator is_folder() {
  return CLI::Validator([](std::string& path) {
    std::error_code error;
    const std::string why = absent(path, "Directory");
    return why.empty() && !std::filesystem::is_directory(path, error) ? fmt::format("{} is a file; name a folder", path) : why;
  }, "DIR");
}

CLI::Validator is_checkpoint() {
  return CLI::Validator([](std::string& path) {
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error)) return std::string();
    if (!std::filesystem::is_directory(path, error)) {
      const std::string why = absent(path, "File");
      return why.empty() || why.starts_with("File does not exist") ? fmt::format("there is no file {}", path) : why;
    }
    try {
      refuse_closed(path);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    const auto latest = latest_checkpoint(path);
    return latest ? fmt::format("{} is a folder: name a checkpoint, of which {} is the latest; or the folder by --checkpoints {}, which goes on from that by itself", path, latest->string(), path)
                  : fmt::format("{} is a folder without checkpoints: name one, as belfry train --checkpoints writes them", path);
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
