"""Nothing lies beside the build: every source and test is compiled, every layer's library is in libbelfry. Arguments: the build folder, then whether
there is a "backend" for GPUs."""

import json
import pathlib
import re
import sys

import source_tree

BUILT_BY_TESTS = ("tests/system/consumer/",)
# Needs CUDA's headers; all but the part that says so.
BACKEND = re.compile(r"executor/device/cuda/(?!backend\.cpp)|tests/support/fake_cuda/|tests/executor/(cuda_gpus|fake_cuda|fake_cuda_graph)_test\.cpp")


def objections():
    build, backend = pathlib.Path(sys.argv[1]), sys.argv[2] == "backend"
    compiled = {(build / c["file"]).resolve() for c in json.loads((build / "compile_commands.json").read_text())}
    # Files that hold several sources.
    for file in [f for f in compiled if "-unity" in f.name]:
        compiled |= {(build / name).resolve() for name in re.findall(r'#include\s*[<"]([^>"]+)', file.read_text())}
    for path in source_tree.files(".cpp", ".cu", folders=source_tree.LAYERS + ("tests", "examples")):
        if not path.startswith(BUILT_BY_TESTS) and (backend or not BACKEND.match(path)) and source_tree.ROOT / path not in compiled:
            yield f"{path}: no meson.build names it"
    for path in source_tree.files(".build"):
        text = source_tree.text(path)
        for library in re.findall(r"^(\w+) = static_library\(", text, re.M):
            if not re.search(r"^layers \+= .*\b" + library + r"\b", text, re.M):
                yield f"{path}: {library} is not in libbelfry; it is added to `layers`"


if __name__ == "__main__":
    source_tree.finish(list(objections()), "all sources are built, all layers are in the library")
