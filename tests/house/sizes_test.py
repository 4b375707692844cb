"""Sizes: headers over 120 lines and sources over 400 are listed; twice as long is too long."""

import source_tree

LIMITS = {".h": 120, ".cpp": 400, ".cu": 400}

if __name__ == "__main__":
    objections = []
    for suffix, limit in LIMITS.items():
        for path in source_tree.files(suffix, folders=source_tree.LAYERS + ("tests",)):
            lines = len(source_tree.text(path).splitlines())
            if lines > limit:
                print(f"warning: {path} has {lines} lines; about {limit} is long")
            if lines > 2 * limit:
                objections.append(f"{path}: {lines} lines are more than twice {limit}: cut it")
    source_tree.finish(objections, "no file is more than twice as long as it should be")
