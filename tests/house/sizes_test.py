"""Sizes: no header over 120 lines, no source over 400, but for those that are listed with a reason."""

import source_tree

LIMITS = {".h": 120, ".cpp": 400, ".cu": 400}
EXCEPTIONS = {
    "tests/ops/onnx_node_test.cpp": "one table: a row per case of ONNX's own tests",
    "tests/support/onnx_reader.h": "a reader of protobuf for that test alone",
    "tests/system/golden_nets_test.cpp": "one table of nets beside their results",
}

if __name__ == "__main__":
    objections = []
    long = {}
    for suffix, limit in LIMITS.items():
        for path in source_tree.files(suffix, folders=source_tree.LAYERS + ("tests", "examples", "bench")):
            lines = len(source_tree.text(path).splitlines())
            if lines > limit:
                long[str(path)] = f"{lines} lines, and {limit} are enough: split it by meaning"
    objections += [f"{path}: {what}" for path, what in sorted(long.items()) if path not in EXCEPTIONS]
    objections += [f"{path}: it keeps the limit: take it from the list of exceptions" for path in EXCEPTIONS if path not in long]
    source_tree.finish(objections, "files keep to their sizes")
