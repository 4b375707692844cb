"""The README's program builds against an installed tree and runs, by the commands and files of docs/install.md: by pkg-config, by
CMake and by Meson; a project can also have Belfry as a subproject.

Arguments: build folder, prefix, libdir, compiler with its arguments. The tree is installed to a temporary folder, far from its prefix,
and nothing names it to the loader: a wrong path in the package files, or in the program, shows."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run(command, fails=False, **more):
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **more)
    if bool(done.returncode) != fails:
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


def guide_files():
    """Files that docs/install.md shows, by name."""
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^`(CMakeLists\.txt|meson\.build)`:\n\n```\w+\n(.*?)^```", text, re.M | re.S))


def build_line():
    """The command that builds a program, as README.md and docs/install.md have it."""
    lines = {line for guide in ("README.md", "docs/install.md") for line in re.findall(r"^    (c\+\+ program\.cpp .*)$", (ROOT / guide).read_text(encoding="utf-8"), re.M)}
    if len(lines) != 1:
        sys.exit(f"the guides build a program by {len(lines)} lines, not 1: {lines}")
    return lines.pop()


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


def check_installed(tree, lib, env, folder):
    """What users look for lies where they look."""
    belfry = tree / "bin" / "belfry"
    version = re.match(r"belfry (\d+\.\d+)\.\d+\n", run([belfry, "--version"], env=env))
    if not version:
        sys.exit("the installed program's --version opens with no version")
    series = version.group(1)
    listed = run(["readelf", "-d", lib / "libbelfry.so"])
    if f"[libbelfry.so.{series}]" not in listed:
        sys.exit(f"the library's soname is not libbelfry.so.{series}:\n{listed}")
    data = pathlib.Path(run(["pkg-config", "--variable=datadir", "belfry"], env=env).strip())
    run([belfry, "forecast", "mlp", "--cluster", data / "clusters" / "a100x8.json", "--batch", "512"], env=env)
    share = data.parent
    for file, words in {data / "belfry.schema.json": "$schema", share / "bash-completion/completions/belfry": "--devices", share / "zsh/site-functions/_belfry": "#compdef belfry",
                        share / "fish/vendor_completions.d/belfry.fish": "complete -c belfry", share / "man/man1/belfry.1": "belfry forecast resnet50"}.items():
        if words not in file.read_text(encoding="utf-8"):
            sys.exit(f"{file.relative_to(tree)} lacks {words!r}")
    run(["bash", "-n", share / "bash-completion/completions/belfry"])
    # Another series of versions is refused, whatever the case of the name.
    refused = folder / "refused"
    refused.mkdir()
    (refused / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.20)\nproject(p CXX)\nfind_package(Belfry {series} REQUIRED)\nfind_package(belfry 99.0 REQUIRED)\n", encoding="utf-8")
    said = run(["cmake", "-S", refused, "-B", refused / "build", "-GNinja", f"-DCMAKE_PREFIX_PATH={tree}"], fails=True, env=env)
    if 'requested version "99.0"' not in said:
        sys.exit(f"a Belfry 99.0 is refused with other words:\n{said}")
    # Ranges of versions, and components, of which there are none.
    minor = int(series.split(".")[1])
    asked = {f"0.0...{series}.99": True, f"{series}...<0.{minor + 1}": True, f"0.0...<{series}": False, f"0.{minor + 1}...1.0": False, f"{series} COMPONENTS nosuch": False, f"{series} OPTIONAL_COMPONENTS nosuch": True}
    for what, found in asked.items():
        (refused / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.20)\nproject(p NONE)\nfind_package(belfry {what})\nmessage(\"found: ${{belfry_FOUND}}\")\n", encoding="utf-8")
        shutil.rmtree(refused / "build")
        said = run(["cmake", "-S", refused, "-B", refused / "build", "-GNinja", f"-Dbelfry_DIR={lib}/cmake/belfry"], env=env)
        if f"found: {int(found)}" not in said:
            sys.exit(f"find_package(belfry {what}): not found {int(found)}:\n{said}")


def check_libtorch(tree, folder, env):
    """The guide's lines for a program beside libtorch, of which nothing is there but its name."""
    project = folder / "torch"
    project.mkdir()
    block, = re.findall(r"^```cmake\n(find_package\(Torch.*?)^```", (ROOT / "docs/install.md").read_text(encoding="utf-8"), re.M | re.S)
    (project / "TorchConfig.cmake").write_text('set(TORCH_LIBRARIES "")\n', encoding="utf-8")
    (project / "program.cpp").touch()
    (project / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.20)\nproject(p CXX)\nadd_executable(program program.cpp)\n{block}", encoding="utf-8")
    run(["cmake", "-S", project, "-B", project / "build", "-GNinja", f"-DCMAKE_PREFIX_PATH={tree}", f"-DTorch_DIR={project}"], env=env)


def check_subproject(source, folder, env):
    """The project of the guide, where nothing is installed: its program compiles, and would be linked with the subproject's library."""
    parent = folder / "parent"
    shutil.copytree(source, parent)
    (parent / "subprojects").mkdir()
    (parent / "subprojects" / "belfry").symlink_to(ROOT)
    run(["meson", "setup", folder / "by_subproject", parent, "--force-fallback-for=belfry", "-Dbelfry:cuda=disabled"], env=env)
    run(["ninja", "-C", folder / "by_subproject", "program.p/program.cpp.o"], env=env)
    wanted = run(["ninja", "-C", folder / "by_subproject", "-t", "query", "program"], env=env)
    if "subprojects/belfry/libbelfry.so" not in wanted:
        sys.exit(f"the program is not linked with the subproject's library:\n{wanted}")


def main():
    build, prefix, libdir, compiler = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run(["meson", "install", "-C", build, "--no-rebuild", "--destdir", folder / "tree"])
        tree = folder / "tree" / prefix.lstrip("/")
        lib = tree / libdir
        bare = os.environ | {"CXX": " ".join(compiler)}
        for name in ("CPATH", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH"):
            bare.pop(name, None)
        env = bare | {"PKG_CONFIG_PATH": str(lib / "pkgconfig")}
        check_installed(tree, lib, env, folder)

        source = folder / "source"
        source.mkdir()
        for name, text in guide_files().items():
            (source / name).write_text(text, encoding="utf-8")
        program = readme_program()
        (source / "program.cpp").write_text(program, encoding="utf-8")

        flags = run(["pkg-config", "--cflags", "--libs", "belfry"], env=env).split()
        if not any(str(tree) in f for f in flags):
            sys.exit(f"pkg-config names another tree: {flags}")
        outputs = {}
        for i, (strategy, text) in enumerate(variants(program)):
            (folder / f"variant_{i}.cpp").write_text(shorter(text), encoding="utf-8")
            run(["sh", "-c", build_line().replace("c++ program.cpp", shlex.join([*compiler, str(folder / f"variant_{i}.cpp"), "-o", str(folder / f"variant_{i}")]))], env=env)
            outputs[strategy] = run([folder / f"variant_{i}"], env=env, cwd=folder)

        run(["cmake", "-S", source, "-B", folder / "by_cmake", "-GNinja", f"-DCMAKE_PREFIX_PATH={tree}"], env=env)
        run(["cmake", "--build", folder / "by_cmake"], env=env)
        outputs["by CMake"] = run([folder / "by_cmake" / "program"], env=env, cwd=folder)
        (source / "program.cpp").write_text(shorter(program), encoding="utf-8")
        run(["meson", "setup", folder / "by_meson", source], env=env)
        run(["ninja", "-C", folder / "by_meson"], env=env)
        outputs["by Meson"] = run([folder / "by_meson" / "program"], env=env, cwd=folder)
        check_libtorch(tree, folder, env)
        check_subproject(source, folder, bare)
    for name, text in outputs.items():
        print(f"{name}:\n{text}")
        if not text.strip():
            sys.exit(f"the program prints nothing: {name}")


main()
