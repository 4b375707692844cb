"""Cluster files as a C++ table of names and texts: embed_clusters.py OUT FILE …"""

import pathlib
import sys

out = ["// Clusters that come with the program.", "#pragma once", "", "#include <string_view>", "#include <utility>", "", "namespace belfry {", "", "inline constexpr std::pair<std::string_view, std::string_view> kClusters[] = {"]
for file in sorted(map(pathlib.Path, sys.argv[2:])):
    out.append(f'    {{"{file.stem}", R"belfry({file.read_text(encoding="utf-8")})belfry"}},')
out += ["};", "", "}  // namespace belfry"]
pathlib.Path(sys.argv[1]).write_text("\n".join(out) + "\n", encoding="utf-8")
