"""Each header compiles alone. Arguments: the include folder of the build tree, then the compiler with its arguments."""

import concurrent.futures
import os
import subprocess
import sys

import source_tree


def compile_alone(header):
    name = "belfry.h" if header == "frontends/belfry.h" else header
    command = sys.argv[2:] + ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-I" + sys.argv[1], "-x", "c++", "-"]
    # Twice: what lacks `#pragma once` shows.
    source = f"#include <belfry/{name}>\n#include <belfry/{name}>\n"
    done = subprocess.run(command, input=source, text=True, capture_output=True)
    return f"{header} does not compile alone:\n{done.stderr}" if done.returncode else None


if __name__ == "__main__":
    headers = source_tree.files(".h")
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objections = [o for o in pool.map(compile_alone, headers) if o]
    source_tree.finish(objections, f"{len(headers)} headers compile alone")
