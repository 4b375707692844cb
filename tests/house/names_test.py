"""Each type of a namespace is defined once: two of one name in unlike files of one program are one to the linker, and undefined behaviour."""

import re
import sys

import source_tree


def definitions(path, text):
    """(qualified name, line number) of the types that stand at the margin; those of unnamed namespaces are the file's own."""
    inside = []
    for number, line in enumerate(text.splitlines(), 1):
        if m := re.match(r"(?:inline )?namespace\s*([\w:]*)\s*\{", line):
            inside.append(m[1] or f"({path})")
        elif re.match(r"\}\s*//\s*namespace", line):
            inside.pop()
        elif m := re.match(r"(?:struct|class|enum class|enum)\s+(\w+)(?:\s+final)?\s*(?::[^:;{][^;{]*)?\{", line):
            yield "::".join(inside + [m[1]]), number


def objections(texts):
    first = {}
    for path, text in texts:
        for name, number in definitions(path, text):
            if (known := first.setdefault(name, f"{path}:{number}")) != f"{path}:{number}":
                yield f"{path}:{number}: {name} is defined in {known} too"


def try_itself():
    """The reader sees what it is for."""
    a, b = "namespace n {\nstruct A {\n};\n}  // namespace n\n", "namespace n {\nnamespace {\nstruct A {\n};\n}  // namespace\n}  // namespace n\n"
    if len(list(objections([("x.h", a), ("y.h", a), ("z.cpp", b)]))) != 1:
        sys.exit("definitions are not seen")


if __name__ == "__main__":
    try_itself()
    source_tree.finish(list(objections((p, source_tree.text(p)) for p in source_tree.files(".h", ".cpp", ".cu"))), "every type has one definition")
