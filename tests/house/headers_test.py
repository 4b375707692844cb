"""Each header compiles alone: its own source file includes it first, or it is compiled here.

Arguments: the include folder of the build tree, then the compiler with its arguments."""

import concurrent.futures
import os
import subprocess
import sys

import source_tree


def proven_by_the_build(header):
    source = source_tree.ROOT / header.removesuffix(".h")
    source = source.with_name(source.name + ".cpp")
    if not source.exists() or "#pragma once" not in source_tree.text(header):
        return False
    first = next((name for _, name, _ in source_tree.includes(source.relative_to(source_tree.ROOT).as_posix())), "")
    return first in (f"belfry/{header}", source.stem + ".h")


def compile_alone(header):
    name = "belfry.h" if header == "frontends/belfry.h" else header
    command = sys.argv[2:] + ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-I" + sys.argv[1], "-x", "c++", "-"]
    # Twice: what lacks `#pragma once` shows.
    source = f"#include <belfry/{name}>\n#include <belfry/{name}>\n"
    done = subprocess.run(command, input=source, text=True, capture_output=True)
    return f"{header} does not compile alone:\n{done.stderr}" if done.returncode else None


if __name__ == "__main__":
    headers = source_tree.files(".h")
    to_compile = [h for h in headers if not proven_by_the_build(h)]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objections = [o for o in pool.map(compile_alone, to_compile) if o]
    source_tree.finish(objections, f"{len(headers)} headers compile alone, {len(to_compile)} tried here")
