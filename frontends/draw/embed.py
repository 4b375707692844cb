"""Text files as a C++ header: embed.py OUT NAME=FILE …"""

import pathlib
import sys

out = ["// Files of the page, as text.", "#pragma once", "", "#include <string_view>", "", "namespace belfry::picture {", ""]
for pair in sys.argv[2:]:
    name, file = pair.split("=", 1)
    text = pathlib.Path(file).read_text()
    # A literal has a limit; neighbours are joined.
    parts = "\n".join(f'R"belfry({text[i:i + 8000]})belfry"' for i in range(0, len(text), 8000))
    out += [f"inline constexpr std::string_view {name} =", parts + ";", ""]
out.append("}  // namespace belfry::picture")
pathlib.Path(sys.argv[1]).write_text("\n".join(out) + "\n")
