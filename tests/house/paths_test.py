"""No file names a folder of one machine."""

import os
import re
import subprocess

import source_tree

FOLDERS = ("work", "root", "home")
PATTERN = re.compile(r"(?<![\w.~$})/-])/(" + "|".join(FOLDERS) + r")(?=[/\s'\"`,;:)]|$)")
SKIP = ("build", ".git", "data")


def repository_files():
    listed = subprocess.run(["git", "-C", str(source_tree.ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return [f for f in listed.stdout.split("\0") if f]
    found = []
    for folder, inner, names in os.walk(source_tree.ROOT):
        inner[:] = [i for i in inner if not i.startswith(SKIP)]
        found += [os.path.relpath(os.path.join(folder, n), source_tree.ROOT) for n in names]
    return found


if __name__ == "__main__":
    objections = []
    files = [f for f in repository_files() if (source_tree.ROOT / f).is_file()]
    for path in files:
        data = (source_tree.ROOT / path).read_bytes()
        if b"\0" in data:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if m := PATTERN.search(line):
                objections.append(f"{path}:{number}: names /{m.group(1)} of a machine: {line.strip()[:120]}")
    source_tree.finish(objections, f"{len(files)} files name no folder of a machine")
