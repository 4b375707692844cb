#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <regex>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/files/files.h>

#include "cluster_files.h"

namespace belfry {

std::vector<std::string> cluster_names() {
  std::vector<std::string> out;
  for (const auto& [name, text] : kClusters) out.emplace_back(name);
  return out;
}

namespace {

/// Null where none that comes with the program has the name. "8xh100" is h100x8.
const std::string_view* shipped(const std::string& name) {
  const std::string other = std::regex_replace(name, std::regex("([0-9]+)x([a-z][a-z0-9]*)"), "$2x$1");
  for (const auto& [known, text] : kClusters)
    if (known == name || known == other) return &text;
  return nullptr;
}

bool is_there(const std::string& name) {
  std::error_code error;
  return std::filesystem::exists(name, error) && !std::filesystem::is_directory(name, error);
}

}  // namespace

std::string cluster_text(const std::string& name) { return is_there(name) || !shipped(name) ? read_file(name) : std::string(*shipped(name)); }

CLI::Validator is_cluster() {
  auto check = [](std::string& text) {
    if (is_there(text) || shipped(text)) return std::string();
    const std::string known = fmt::format("one of the clusters {}", fmt::join(cluster_names(), ", "));
    std::error_code error;
    const bool path = text.find('/') != text.npos || text.ends_with(".json") || std::filesystem::is_directory(text, error) || std::filesystem::is_symlink(text, error);
    if (path) refuse_no_file(text, ", or " + known);
    refuse_closed(text);
    return fmt::format("'{}' is neither a file nor {}{}", text, known, did_you_mean(text, cluster_names()));
  };
  return CLI::Validator(check, "FILE");
}

}  // namespace belfry
