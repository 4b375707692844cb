"""Nothing lies beside the build: every source and every test is in a meson.build, every layer's library is in libbelfry."""

import re

import source_tree

PROGRAMS = {"frontends/cli/main.cpp": "meson.build"}


def meson_of(path):
    """The nearest meson.build above the file, with its text."""
    folder = source_tree.ROOT / path
    while not (folder.parent / "meson.build").exists():
        folder = folder.parent
    return folder.parent, (folder.parent / "meson.build").read_text()


def objections():
    for path in source_tree.files(".cpp", ".cu", folders=source_tree.LAYERS + ("tests",)):
        if path in PROGRAMS or path.startswith("tests/system/consumer/"):
            continue
        folder, build = meson_of(path)
        parts = (source_tree.ROOT / path).relative_to(folder).with_suffix("").as_posix().split("/")
        if not all(re.search(r"\b" + re.escape(p) + r"\b", build) for p in parts):
            yield f"{path}: {folder.relative_to(source_tree.ROOT)}/meson.build does not build it"
    for build in source_tree.files(".build"):
        lines = source_tree.text(build)
        for library in re.findall(r"^(\w+) = static_library\(", lines, re.M):
            if not re.search(r"^layers \+= .*\b" + library + r"\b", lines, re.M):
                yield f"{build}: {library} is not in libbelfry; it is added to `layers`"


if __name__ == "__main__":
    source_tree.finish(list(objections()), "all sources are built, all layers are in the library")
