"""What the program needs of the loader: no NVIDIA library is linked, and the GPU backend is opened only when GPUs are asked for.

Arguments: the build folder, then "backend" if one was built."""

import os
import pathlib
import re
import subprocess
import sys

import source_tree

NVIDIA = re.compile(r"lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvidia|nvJitLink|cupti)\b")


def needed(file):
    listed = subprocess.run(["readelf", "-d", str(file)], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", listed)


def opened(program, *arguments):
    """Files that the loader opens while the program runs."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, env=dict(os.environ, LD_DEBUG="files"), check=True)
    return sorted(set(re.findall(r"calling init: (\S+)", done.stderr)))


def objections():
    build = pathlib.Path(sys.argv[1])
    has_backend = "backend" in sys.argv[2:]
    files = [build / "belfry", build / "libbelfry.so"] + [build / "libbelfry_cuda.so"] * has_backend
    for file in files:
        for library in needed(file):
            if NVIDIA.match(library) or library.startswith("libbelfry_cuda"):
                yield f"{file.name} is linked to {library}: it is opened at run time instead"
    for arguments in (["--help"], ["--version"], ["convert", "--help"]):
        for library in opened(build / "belfry", *arguments):
            if NVIDIA.match(pathlib.Path(library).name) or "libbelfry_cuda" in library:
                yield f"belfry {' '.join(arguments)} opens {library}"
    # The check above would see it.
    if has_backend and not any("libbelfry_cuda" in library for library in opened(build / "belfry", "devices")):
        yield "belfry devices does not open libbelfry_cuda.so"


if __name__ == "__main__":
    source_tree.finish(list(objections()), "no library of NVIDIA's is linked, none is opened before GPUs are asked for")
