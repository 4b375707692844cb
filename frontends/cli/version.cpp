#include <string>
#include <string_view>

#include <dnnl_version.h>
#include <fmt/format.h>

#include <belfry/frontends/cli/verbs_internal.h>

#include "build_commit.h"
#include "build_facts.h"

namespace belfry {

std::string version_text() {
  std::string out = fmt::format("belfry {}\n", BELFRY_VERSION);
  if (*BELFRY_COMMIT) out += fmt::format("commit     {}\n", BELFRY_COMMIT);
  out += fmt::format("compiler   {}\nbuild      {}\n", BELFRY_COMPILER, BELFRY_BUILD_TYPE);
  if (std::string_view(BELFRY_SANITIZERS) != "none") out += fmt::format("sanitizers {}\n", BELFRY_SANITIZERS);
  return out + fmt::format("oneDNN     {}.{}.{}\nfmt        {}\nCUDA       {}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH, BELFRY_FMT, BELFRY_CUDA);
}

}  // namespace belfry
