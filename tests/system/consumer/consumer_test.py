"""The README's program builds against an installed tree and runs: by pkg-config, by Meson and by CMake.

Arguments: build folder, prefix, libdir, compiler with its arguments. The tree is installed to a temporary folder and found
there, so a wrong path in the package files shows."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SOURCES = HERE


def run(command, **more):
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **more)
    if done.returncode:
        sys.exit(f"$ {' '.join(map(str, command))}\n{done.stdout}\nexit {done.returncode}")
    return done.stdout


def readme_program():
    blocks = re.findall(r"^```cpp\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    programs = [b for b in blocks if "int main()" in b]
    if len(programs) != 1:
        sys.exit(f"README.md has {len(programs)} programs with a main, not 1")
    lines = [line for line in programs[0].splitlines() if line.strip()]
    if len(lines) > 30:
        sys.exit(f"the README's program has {len(lines)} lines that are not blank, more than 30")
    return programs[0]


STRATEGIES = ['Single{}', 'Towers{.devices = parse_devices("cpu:0,cpu:1")}', 'Towers{.devices = parse_devices("sim:0-7")}']


def variants(program):
    """The program with each strategy on its one line."""
    lines = program.splitlines(keepends=True)
    at = [i for i, line in enumerate(lines) if re.search(r"Towers\{[^}]*\}", line)]
    if len(at) != 1:
        sys.exit(f"the README's program has {len(at)} lines with a strategy, not 1")
    for strategy in STRATEGIES:
        yield strategy, "".join(lines[:at[0]] + [re.sub(r"Towers\{[^}]*\}", strategy, lines[at[0]])] + lines[at[0] + 1:])


def shorter(program):
    """The same on fewer digits: what is shown is that it builds and runs."""
    return program.replace("8000, 1000", "800, 200").replace(".epochs = 3", ".epochs = 1")


def main():
    build, prefix, libdir, compiler = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run(["meson", "install", "-C", build, "--no-rebuild", "--destdir", folder / "tree"])
        tree = folder / "tree" / prefix.lstrip("/")
        lib = tree / libdir
        env = os.environ | {"PKG_CONFIG_PATH": str(lib / "pkgconfig"), "LD_LIBRARY_PATH": str(lib), "CXX": " ".join(compiler)}
        env.pop("CPATH", None)
        source = folder / "source"
        shutil.copytree(SOURCES, source, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        program = readme_program()
        (source / "program.cpp").write_text(program, encoding="utf-8")

        flags = run(["pkg-config", "--cflags", "--libs", "belfry"], env=env).split()
        if not any(str(tree) in f for f in flags):
            sys.exit(f"pkg-config names another tree: {flags}")
        outputs = {}
        for i, (strategy, text) in enumerate(variants(program)):
            (folder / f"variant_{i}.cpp").write_text(shorter(text), encoding="utf-8")
            run(compiler + [folder / f"variant_{i}.cpp", "-o", folder / f"variant_{i}"] + flags, env=env)
            outputs[strategy] = run([folder / f"variant_{i}"], env=env, cwd=folder)

        run(["cmake", "-S", source, "-B", folder / "by_cmake", "-GNinja", f"-DCMAKE_PREFIX_PATH={tree}"], env=env)
        run(["cmake", "--build", folder / "by_cmake"], env=env)
        outputs["by CMake"] = run([folder / "by_cmake" / "program"], env=env, cwd=folder)
        (source / "program.cpp").write_text(shorter(program), encoding="utf-8")
        run(["meson", "setup", folder / "by_meson", source], env=env)
        run(["ninja", "-C", folder / "by_meson"], env=env)
        outputs["by Meson"] = run([folder / "by_meson" / "program"], env=env, cwd=folder)

        version = run([tree / "bin" / "belfry", "--version"], env=env)
        if not re.match(r"belfry \d", version):
            sys.exit(f"the installed program says {version!r}")
    for name, text in outputs.items():
        print(f"{name}:\n{text}")
        if not text.strip():
            sys.exit(f"the program prints nothing: {name}")


main()
