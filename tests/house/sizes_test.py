"""Sizes: no header over 120 lines, no source over 400."""

import source_tree

LIMITS = {".h": 120, ".cpp": 400, ".cu": 400}

if __name__ == "__main__":
    objections = []
    for suffix, limit in LIMITS.items():
        for path in source_tree.files(suffix, folders=source_tree.LAYERS + ("tests", "examples", "bench")):
            lines = len(source_tree.text(path).splitlines())
            if lines > limit:
                objections.append(f"{path}: {lines} lines, and {limit} are enough: split it by meaning")
    source_tree.finish(objections, "files keep to their sizes")
