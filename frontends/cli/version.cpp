#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dnnl_version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/json/strict_json.h>

#include "build_commit.h"
#include "build_facts.h"

namespace belfry {

std::string version_text(bool json) {
  std::vector<std::pair<const char*, std::string>> facts = {{"belfry", BELFRY_VERSION}};
  if (*BELFRY_COMMIT) facts.emplace_back("commit", BELFRY_COMMIT);
  facts.emplace_back("compiler", BELFRY_COMPILER), facts.emplace_back("build", BELFRY_BUILD_TYPE);
  if (std::string_view(BELFRY_SANITIZERS) != "none") facts.emplace_back("sanitizers", BELFRY_SANITIZERS);
  facts.emplace_back("oneDNN", fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH));
  facts.emplace_back("fmt", BELFRY_FMT), facts.emplace_back("CUDA", BELFRY_CUDA);
  std::vector<std::string> lines;
  for (const auto& [name, value] : facts) lines.push_back(json ? fmt::format("{}: {}", json_text(name), json_text(value)) : fmt::format("{:<10} {}", name, value));
  if (!json) lines[0] = fmt::format("belfry {}", BELFRY_VERSION);
  return json ? fmt::format("{{{}}}", fmt::join(lines, ", ")) : fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace belfry
