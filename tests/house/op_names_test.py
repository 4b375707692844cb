"""Names of ops stand in their rooms alone: no quoted one outside ops/. Argument: the program that lists the names."""

import re
import subprocess
import sys

import source_tree

# File (a trailing * is any ending), names, and the reason why they stand there.
ALLOWED = [
    ("graph/structural.h", "input variable constant add_n cast reduce_sum copy split aggregate fused fetch", "the ops that the compiler itself speaks of"),
    ("graph/split_state.cpp", "tower_mean", "a way of combining, named as -O combine= has it"),
    ("frontends/cli/common.cpp", "tower_mean", "the same, in the help"),
    ("placer/strategies/all_strategies.cpp", "tower_mean", "the same, where it is read"),
    ("frontends/cli/run_writer.cpp", "log", "a key of run.json"),
    ("frontends/cli/verb_runs.cpp", "log", "the same"),
    ("placer/expand.cpp", "gather", "what an inserted aggregate is called after"),
    ("frontends/nn/*", "add batch_norm concat constant conv2d dropout group_norm layer_norm matmul relu", "layers name the nodes that they add: Graph::add takes op and name; a kind of initial value"),
    ("placer/diff.cpp", "input variable", "words of a message"),
    ("frontends/builder/builder.cpp", "sgd momentum adam", "kinds of optimisers in the short form"),
    ("frontends/builder/optimizers.cpp", "sgd momentum adam amsgrad adamax rmsprop adagrad adadelta ftrl lion lamb", "kinds of optimisers in the short form, and an option called momentum"),
    ("frontends/onnx/*", "*", "the map from ONNX's names"),
]


def allowed(path, name):
    for where, names, _ in ALLOWED:
        if path == where or where.endswith("*") and path.startswith(where[:-1]):
            if names == "*" or name in names.split():
                return True
    return False


def quoted(line):
    """String literals of a line that is no comment and no #include."""
    code = re.sub(r"//.*", "", line) if '"' not in line.split("//")[0] else line
    return [] if code.lstrip().startswith("#include") else re.findall(r'"([a-z][a-z0-9_]*)"', code)


if __name__ == "__main__":
    names = set(subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout.split())
    objections = []
    for path in source_tree.files(".h", ".cpp", ".cu", folders=("graph", "placer", "executor", "frontends")):
        for number, line in enumerate(source_tree.text(path).splitlines(), 1):
            for name in quoted(line):
                if name in names and not allowed(path, name):
                    objections.append(f'{path}:{number}: "{name}" is the name of an op: ask its OpDef, build it by its function, or list it here with a reason')
    source_tree.finish(objections, f"{len(names)} names of ops stand in their rooms")
