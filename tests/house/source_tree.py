"""Files of the repository and their includes: what the tests of the house read."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = ("graph", "ops", "placer", "executor", "frontends")


def files(*suffixes, folders=LAYERS):
    """Paths relative to the root, sorted, of all files in the folders with one of the suffixes."""
    found = []
    for folder in folders:
        found += [p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*") if p.is_file() and p.suffix in suffixes]
    return sorted(found)


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def includes(path):
    """(line number, what stands between the brackets or quotes, quoted?) per #include."""
    for number, line in enumerate(text(path).splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if m:
            yield number, m.group(2), m.group(1) == '"'


def finish(objections, passed):
    """Prints and exits as a test."""
    for o in objections:
        print(o)
    print(f"{len(objections)} objections" if objections else passed)
    sys.exit(1 if objections else 0)
