"""What --help says holds: its examples run, completion offers its options, and NO_COLOR is heeded.
Arguments: the program, the source tree."""

import json
import os
import pathlib
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

program, root = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
objections = []


def belfry(*arguments, **options):
    return subprocess.run([program, *arguments], text=True, capture_output=True, stdin=subprocess.DEVNULL, **options)


def expect(condition, text):
    if not condition:
        objections.append(text)


def help_of(*verb):
    """Options and examples."""
    text = belfry(*verb, "--help").stdout
    names = re.findall(r"^  (-[^\s\[{]+)", text, re.M)
    return {name for both in names for name in both.split(",")}, re.findall(r"^Example: (belfry .*)$", text, re.M)


verbs = [line.split()[0] for line in belfry("--help").stdout.split("Subcommands:")[1].splitlines() if re.match(r"  \w", line)]
known = {verb: help_of(verb) for verb in verbs}
parts = {part: help_of("data", part) for part in ("digits", "fetch", "inspect")}
known["data"] = (set().union(known["data"][0], *(part[0] for part in parts.values())), known["data"][1])
for part, (_, examples) in parts.items():
    expect(len(examples) == 1 and examples[0].startswith(f"belfry data {part} "), f"examples of data {part} --help: {examples}")
expect(len(verbs) == 15 and all("--help" in options and examples for options, examples in known.values()), f"--help: {known}")

expect({verb for verb in verbs if "--json" not in known[verb][0]} == {"completion"} and all("--json" in options for options, _ in parts.values()), "verbs without --json")

text = belfry("place", "--help").stdout
expect(all(word in text for word in ("objective=max-load, latency or variables", "reduction=tree, hierarchical, reduce-to-one or ring", "combine=global_mean, tower_mean or tower_sum", "order=1f1b, gpipe, interleaved or by_tower")), "--help lacks values of -O")

# Completion: what bash and fish offer for a verb is what its --help lists.
bash, fish = belfry("completion", "bash").stdout, belfry("completion", "fish").stdout
expect(belfry("completion", "zsh").stdout.endswith(bash) and bash, "completion of zsh is not that of bash")
for verb in verbs:
    offered = {word for words in re.findall(rf"^      {verb}\) words='(.*)' ;;$", bash, re.M) for word in words.split() if word.startswith("-")}
    lines = re.findall(rf"^complete -c belfry -n '__fish_seen_subcommand_from {verb}'(.*) -d ", fish, re.M)
    fishy = {("-" if kind == "s" else "--") + name for line in lines for kind, name in re.findall(r" -([sl]) ([\w-]+)", line)}
    wanted = help_of(verb)[0]
    expect(offered == wanted == fishy, f"{verb}: --help lists {sorted(wanted)}, bash offers {sorted(offered)}, fish {sorted(fishy)}")

# What data is followed by, and what that takes.
files = tempfile.TemporaryDirectory()
pathlib.Path(files.name, "a net.json").touch()
STUB = 'compopt() { [[ $* == "+o default" ]] && default=; }; default=files; '


def completed(*words):
    """What bash is told, and "files" where it is left to offer those. In a folder with the file "a net.json"."""
    line = " ".join(shlex.quote(word) for word in words)
    script = bash + STUB + f'COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _belfry; printf "%s\\n" "${{COMPREPLY[@]:-$default}}"'
    done = subprocess.run(["bash", "--norc", "-c", script], text=True, capture_output=True, cwd=files.name)
    return set(done.stdout.split("\n")) - {""}


expect(completed("belfry", "da") == {"data"} and completed("belfry", "data", "f") == {"fetch"}, f"bash completes data f by {completed('belfry', 'data', 'f')}")
expect(completed("belfry", "data", "inspect", "--j") == {"--json"} and completed("belfry", "data", "inspect", "f") == {"files"}, f"bash completes data inspect --j by {completed('belfry', 'data', 'inspect', '--j')}")
for part in ("digits", "fetch", "inspect"):
    wanted = help_of("data", part)[0]
    lines = re.findall(rf"^complete -c belfry -n '__fish_seen_subcommand_from data; and __fish_seen_subcommand_from {part}'(.*) -d ", fish, re.M)
    fishy = {("-" if kind == "s" else "--") + name for line in lines for kind, name in re.findall(r" -([sl]) ([\w-]+)", line)}
    expect(completed("belfry", "data", part, "-") == wanted == fishy, f"data {part}: --help lists {sorted(wanted)}, bash offers {sorted(completed('belfry', 'data', part, '-'))}, fish {sorted(fishy)}")
    expect(re.search(rf"from data; and not __fish_seen_subcommand_from (?:\w+ ?)+' -f -a {part} -d ", fish), f"fish does not offer data {part}")

# Values of options that have a list of them: those that --help lists, in bash and fish.
lists = {("place", "--precision"): "f32 tf32 bf16 f16", ("train", "--rescale"): "1/255 1/127.5,-1 standardise", ("evaluate", "--split"): "train test all", ("run", "--devices"): "cpu:0 gpu:0 sim:0-1",
         ("bench", "--precision"): "f32 tf32 bf16 f16", ("forecast", "--strategy"): "auto single towers mirrored sharded parameter_server layers pipeline hybrid",
         ("completion",): "bash zsh fish", ("data", "fetch"): " ".join(re.findall(r"^  (\w+) ", belfry("data", "fetch", "--help").stdout.split("Data sets:")[1], re.M))}
lists["place", "--cluster"] = " ".join(word.strip(",") for word in re.search(r"one that is known: ((?:\w+, )*\w+)", text).group(1).split())
takes_files = {"--cluster": {"a net.json"}}
for words, values in lists.items():
    expect(completed("belfry", *words, "") - takes_files.get(words[-1], set()) == set(values.split()), f"bash completes {words} by {completed('belfry', *words, '')}, not {values}")
    where = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words if not word.startswith("-"))
    option = "".join(f" -l {word[2:]} -r{'' if word in takes_files else ' -f'}" for word in words if word.startswith("--"))
    expect(f"complete -c belfry -n '{where}'{option} -a '{values}' -d " in fish, f"fish does not offer {values} behind {words}")
    wide = " ".join((belfry(*(word for word in words if not word.startswith("-")), "--help").stdout).split())
    expect(words[-1] == "--devices" or all(value in wide for value in values.split()), f"--help of {words} lacks one of {values}")
# As bash breaks a line into words: at = and at :.
nets = set(re.findall(r"[a-z]\w+", belfry("show", "no_such_net").stderr.partition("there are ")[2]))
ops = {op["op"] for op in json.loads(belfry("show", "--ops", "--json").stdout)}
ASKED = {
    "place --precision = b": "bf16", "place -O obj": "objective=", "place -O order = g": "gpipe", "place -O reduction =": "tree hierarchical reduce-to-one ring", "place -O variables =": "chosen cpu:0 spread", "place -O towers =": "",
    "place --devices sim :": "0-1", "place --devices cpu : 0": "0", "place --devices = cpu : 0": "0", "place --devices =": "cpu:0 gpu:0 sim:0-1",
    # Lists: each entry is completed, and what stands before it stays.
    "place --devices cpu : 0,": "0,cpu:0 0,gpu:0 0,sim:0-1", "place --devices cpu : 0,s": "0,sim:0-1", "place --devices cpu : 0,sim :": "0-1", "bench --devices = cpu : 0,g": "0,gpu:0",
    "bench --precision f32,b": "f32,bf16", "place --precision f32,b": "", "train --rescale 1/127.5,": "1/127.5,-1",
    "train --distort sh": "shear=", "place --problem = d": "dnn-partitioning", "place --problem =": "belfry dnn-partitioning",
    # Numbers and names are no files.
    "place --batch ''": "", "place --fetch ''": "", "train --monitor ''": "", "place --move 'a = c'": "", "devices ''": "", "zzz": "",
    "place --calibration ''": "files", "place -o ''": "files", "show --beside p": "files", "compare ''": "files", "train --data ''": "files", "runs ''": "files", "data inspect ''": "files",
}
for words, wanted in ASKED.items():
    words = [word for part in words.split() for word in ([""] if part == "''" else [part.strip("'")])]
    expect(completed("belfry", *words) == set(wanted.split()), f"bash completes {words} by {sorted(completed('belfry', *words))}, not {wanted}")
for verb in ("place", "show", "run", "train", "evaluate", "predict", "forecast", "bench", "convert"):
    expect(len(nets) > 9 and completed("belfry", verb, "") == nets | {"a net.json"}, f"bash completes {verb} by {sorted(completed('belfry', verb, ''))}, not {sorted(nets)} and files")
    expect(completed("belfry", verb, "--json", "mnist_t") == {"mnist_two_heads"}, f"bash completes {verb} --json mnist_t by {completed('belfry', verb, '--json', 'mnist_t')}")
expect(completed("belfry", "show", "--ops", "") == ops and "conv2d" in ops, f"bash completes show --ops by {sorted(completed('belfry', 'show', '--ops', ''))}")
expect(re.search(r" -l ops -r -f -a '(?:\S+ )*conv2d[ ']", fish) and re.search(r"from place' -a '(?:\S+ )*mlp ", fish), "fish offers no ops or nets")
files.cleanup()

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    rows = 96
    pixels, labels = struct.pack(f"<{rows * 784}f", *[(i * 37 % 101) / 101 for i in range(rows * 784)]), struct.pack(f"<{rows}i", *[i % 10 for i in range(rows)])
    header = ('{"image": {"dtype": "F32", "shape": [%d, 28, 28, 1], "data_offsets": [0, %d]}, "label": {"dtype": "I32", "shape": [%d], "data_offsets": [%d, %d]}}'
              % (rows, len(pixels), rows, len(pixels), len(pixels) + len(labels))).encode()
    (folder / "batch.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + pixels + labels)
    shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 28, 28, 1), }}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(folder / "images.npz", "w") as images:
        images.writestr("image.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(shape)) + shape + pixels)
    (folder / "clusters").symlink_to(root / "clusters")
    for arguments in (["data", "digits", "--out", "mnist", "--train", "64", "--test", "32"], ["place", "mnist_cnn", "-o", "one.json", "--towers", "2", "--batch", "32"]):
        done = belfry(*arguments, cwd=folder)
        expect(done.returncode == 0, f"{arguments}: {done.stderr[-400:]}")
    # Every example runs as it stands, but for how much is drawn and how often is timed.
    shorter = {"data": ["--train", "64", "--test", "32"], "bench": ["--rounds", "1"], "train": ["--overwrite"]}  # it runs twice
    for verb in verbs:
        if verb == "runs":
            for copy in ("run1", "run2"):
                shutil.copytree(folder / "run", folder / copy)
        for example in known[verb][1] + parts["inspect"][1] * (verb == "data"):  # fetch wants a network
            words = shlex.split(example.split(" > ")[0])[1:]
            done = belfry(*words, *(shorter.get(verb, []) if words[1:2] != ["inspect"] else []), cwd=folder)
            expect(done.returncode == 0, f"{example}: {done.returncode} {done.stderr[-400:]}")
        if "--json" in help_of(verb)[0]:
            words = shlex.split(known[verb][1][0])[1:]
            done = belfry(*words, *["--json"] * ("--json" not in words), *shorter.get(verb, []), cwd=folder)
            try:
                read = [json.loads(text) for text in (done.stdout.splitlines() if verb == "bench" else [done.stdout])]
            except ValueError as error:
                read = error
            expect(done.returncode == 0 and read and isinstance(read, list), f"{verb} --json: {read} {done.stdout[:200]} {done.stderr[-200:]}")

    # On a terminal the line of progress is written over, unless NO_COLOR is set; --quiet says nothing.
    for more, quiet, escapes in (({}, False, True), ({"NO_COLOR": "1"}, False, False), ({}, True, False)):
        here, there = pty.openpty()
        environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | more
        done = subprocess.run([program, "train", "mlp", "--data", "mnist", "--steps", "2"] + ["--quiet"] * quiet, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=there)
        os.write(there, b"END")
        said = b""
        while not said.endswith(b"END"):
            said += os.read(here, 65536)
        os.close(here), os.close(there)
        expect(done.returncode == 0 and b"accuracy" in done.stdout, f"training on a terminal: {done}")
        expect((b"\x1b" in said) == escapes and (said == b"END") == quiet, f"on a terminal with {more} and --quiet {quiet}: {said[-300:]}")

print("\n".join(objections))
sys.exit(1 if objections else 0)
