"""What the guides state is what the program has: defaults and limits beside --help and the sources, keys beside what --json prints, both ways.
Arguments: the program, the source tree."""

import hashlib
import json
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import zlib

program, root = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
objections = []
GUIDES = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]}


def expect(condition, text):
    if not condition:
        objections.append(text)


def belfry(*words, folder=None):
    return subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


# ---------------------------------------------------------------- defaults and limits

VERBS = [line.split()[0] for line in belfry("--help").stdout.split("Subcommands:")[1].splitlines() if re.match(r"  \w", line)]
HELP = {verb: belfry(*verb.split(), "--help").stdout for verb in [*VERBS, "data digits", "data fetch", "data inspect"]}


def options_of(text):
    """What --help says of each option."""
    out = {}
    for entry in re.split(r"\n  (?=-)", text.split("\nOptions:")[1].split("\n\n")[0])[1:]:
        names, _, said = entry.partition(" ")
        out |= {name: " ".join(said.split()) for name in re.sub(r"[\[{].*", "", names).split(",")}
    return out


OPTIONS = {verb: options_of(text) for verb, text in HELP.items()}
NUMBERS = {word: number for number, word in enumerate("none one two three four five six seven eight nine ten eleven twelve".split())} | {"once": 1, "half": 0.5, "tenth": 0.1, "twentieth": 0.05, "hundredth": 0.01}


def value(text):
    """The number of "three", "1,000", "1 << 31"; of other words these, in whatever order a list has them."""
    if re.search(r'[`"] *,|[a-z]\w*,? [a-z]', text):
        return sorted(set(re.findall(r"\w[\w.-]*", text)) - {"and", "or"})
    text = text.replace(",", "").replace("'", "").replace("std::int64_t{1}", "1").replace("std::size_t{1}", "1")
    left, shifted, right = text.partition("<<")
    try:
        return float(int(left) << int(right)) if shifted else float(NUMBERS.get(text, text))
    except ValueError:
        return text


N = r"([\w.,' ]+?)"
MANY = r"((?:std::\w+\{)?1\}? << \d+|[\d.']+)"
help_says = lambda verb, option, pattern: (f"{verb} --help, {option}", lambda: OPTIONS[verb][option], pattern)
same = lambda n: n
prints = lambda words, pattern: (words, lambda: belfry(*words.split()).stdout, pattern)
OF_EPOCHS = r"kOfEpochs\[\] = \{(.*?)\}"
OF_LOGS = lambda: ", ".join(re.findall(r'"(\w+)"', re.search(r"kOfEpochs\[\].*?kOfLogs\[\][^;]*;", (root / "frontends/train/log.cpp").read_text(encoding="utf-8"), re.S)[0]))
source = lambda path, pattern: (path, lambda: (root / path).read_text(encoding="utf-8"), pattern)
# A sentence of a guide, with its number; where else it stands; what the number is there.
FACTS = [
    ("docs/training.md", rf"The last {N} are kept \(`--keep`\)", help_says("train", "--keep", r"by default (\d+)"), same),
    ("docs/training.md", rf"Validation takes {N} rows at a time", source("frontends/train/fit.h", r"kRowsEvaluated = (\d+)"), same),
    ("docs/training.md", rf"takes less than a {N} of the time", source("frontends/train/input.cpp", r"kWorthAThread = ([\d.]+)"), same),
    ("docs/training.md", rf"makes them ahead: {N} at first", source("frontends/train/input.cpp", r"depth_ = (\d+);"), same),
    ("docs/training.md", rf"at most {N} or 256 MiB", source("frontends/train/input.cpp", r"kDeepest = (\d+)"), same),
    ("docs/training.md", rf"at most 64 or {N} MiB", source("frontends/train/input.cpp", rf"kMostBytes = {MANY}"), lambda n: n * (1 << 20)),
    ("docs/training.md", rf"more than a {N} of an epoch waited", source("frontends/train/fit.cpp", r"part > ([\d.]+)"), same),
    ("docs/training.md", rf"at most {N} times a second", source("frontends/cli/progress.cpp", r"milliseconds\((\d+)\) :"), lambda n: 1000 / n),
    ("docs/training.md", rf"one every {N} a minute", source("frontends/cli/progress.cpp", r": std::chrono::milliseconds\(([\d']+)\)"), lambda n: 60000 * n),
    ("docs/training.md", r"(\w+) a second busy cores", source("frontends/train/log.cpp", r"chrono::seconds\((\d+)\)"), same),
    ("docs/data.md", rf"Up to {N} GiB of them are kept", source("frontends/data/image_folder.h", rf"most_bytes = {MANY}"), lambda n: n * (1 << 30)),
    ("docs/data.md", rf"the middle s x s \({N}, or", source("frontends/data/data_folder.cpp", r"\.size = wanted\.height \? wanted\.height : (\d+)"), same),
    ("docs/data.md", rf"more than a {N} of the time", source("frontends/train/input.cpp", r"kWorthAThread = ([\d.]+)"), same),
    ("docs/data.md", r"whole numbers up to (\d+) and go in", source("frontends/cli/train_data.cpp", r"x <= (\d+)"), same),
    ("docs/formats.md", rf"Those of more than {N} elements stand in a safetensors file", source("frontends/json/graph_file.h", r"kInlineElements = (\d+)"), same),
    ("docs/formats.md", rf"cores / towers threads, a batch of {N}, the", help_says("place", "--batch", r"else (\d+)"), same),
    ("docs/formats.md", rf"where neither says anything there is {N} tower", help_says("place", "--placement", r"without any it has (\w+) tower"), same),
    ("docs/serving.md", rf"per row the {N} best classes", help_says("predict", "--top", r"by default (\d+)"), same),
    ("docs/serving.md", rf"A session keeps {N}, and up to", source("frontends/session/session.cpp", r"kFewPrograms = (\d+)"), same),
    ("docs/serving.md", rf"and up to {N} while they are small", source("frontends/session/session.cpp", r"kMostPrograms = (\d+)"), same),
    ("docs/picture.md", rf"Up to {N} nodes: names are cut", source("frontends/draw/overview.cpp", r"kMostFolded = (\d+)"), same),
    ("docs/picture.md", rf"leaves at most {N} layers", source("frontends/draw/overview.cpp", r"kMostLayers = (\d+)"), same),
    ("docs/pipelines.md", r"`-O order=(\w+)` \| the default", source("placer/strategies/all_strategies.cpp", r'Values orders\(\) \{ return \{"(\w+)"'), same),
    ("docs/pipelines.md", r"`-O objective=([\w-]+)` \| [^|]*\(the default;", source("placer/strategies/all_strategies.cpp", r'Values objectives\(\) \{ return \{"([\w-]+)"'), same),
    ("README.md", rf"`--timeline` in {N} columns of text", source("frontends/draw/timeline.cpp", r"kColumns = (\d+)"), same),
    ("docs/training.md", r"No loss or metric may be named ([^.]*?), nor as `rows_per_second/…`, nor", ("frontends/train/log.cpp", OF_LOGS, r"(.*)"), same),
    ("docs/training.md", r"it stands in `([\w.]+)`, and a run", source("frontends/train/checkpoints.cpp", r'dir / "(best[\w.]+)"'), same),
    ("docs/training.md", r"With `(\w+)`, `TERM=dumb`", source("frontends/cli/progress.cpp", r'plain = std::getenv\("(\w+)"\)'), same),
    ("docs/data.md", r"fetches (`[^(]*?) with the program curl", ("data fetch --help", lambda: " ".join(re.findall(r"^  (\w+) ", HELP["data fetch"].split("Data sets:")[1], re.M)), r"(.*)"), same),
    ("docs/data.md", r"and scaled to \[(-?\d), 1\];", help_says("train", "--rescale", r"by default photos 1/127\.5,(-?\d)"), same),
    ("docs/serving.md", r"CIFAR-10 with its `([\w.]+)`", source("frontends/data/data_folder.cpp", r'dir / "(batches[\w.]+)"'), same),
    ("docs/formats.md", r'opens with `"belfry": (\d)`', source("frontends/json/records.h", r"kGraphFormat = (\d)"), same),
    ("docs/formats.md", rf"the version of the format \(plans with {N}:", source("frontends/json/records.h", r"kPlanFormat = (\d)"), same),
    ("docs/formats.md", r"dtypes: ([^.]*)\.", source("graph/shape.cpp", r'kNames\[\] = \{("f32"[^}]*)\}'), same),
    ("docs/formats.md", r"of which none may be named ([^.]*), nor as", source("frontends/train/log.cpp", OF_EPOCHS), same),
    ("docs/design.md", r"; exit ([^(]*?) \(", prints("--help", r"Exit codes: ([^(]*?) \("), same),
    ("docs/design.md", r"cannot be written too\), (\d) wrong use", prints("--help", r", (\d) wrong use"), same),
    ("docs/install.md", rf"newer, Meson {N}, oneDNN", source("meson.build", r"meson_version: '>=([\d.]+)'"), same),
    ("docs/install.md", r"find_package\(belfry ([\d.]+) REQUIRED\)\nadd_", source("meson.build", r"project\([^)]*? version: '(\d+\.\d+)"), same),
    ("docs/install.md", r"for the loader ends in `\.([\d.]+)`", source("meson.build", r"project\([^)]*? version: '(\d+\.\d+)"), same),
    ("docs/install.md", r"headers of CUDA (\d+) are in", source("meson.build", r"and (\d+) is wanted"), same),
    ("docs/install.md", r"set `GOMP_SPINCOUNT=(\d+)` before", source("frontends/cli/main.cpp", r'"GOMP_SPINCOUNT", "(\d+)"'), same),
    ("docs/install.md", r"that running needs: on Debian 12 `([^`]*)`", source("tools/package/Dockerfile", r"--no-install-recommends ([^&]*?) &&"), same),
    ("docs/pipelines.md", rf"`laptop8` has {N} cores", source("clusters/laptop8.json", r'"cores": (\d+)'), same),
    ("docs/picture.md", rf"Up to {N} instances of nodes", source("frontends/draw/overview.cpp", r"kMostWhole = (\d+)"), same),
    ("docs/picture.md", rf"more than {N} kinds of devices", source("frontends/draw/overview.cpp", r"kMostColumns = (\d+)"), same),
    ("docs/picture.md", rf"{N} columns of text", source("frontends/draw/timeline.cpp", r"kColumns = (\d+)"), same),
    ("docs/forecast.md", rf"would save less than a\n{N} of the step", source("graph/plan/forecast_path.cpp", r"halved >= f\.seconds / (\d+)"), lambda n: 1 / n),
    ("docs/forecast.md", rf"has waited for more than {N} µs", source("graph/plan/cost.h", r"kSpinSeconds = (\d+)e-6"), same),
    ("docs/forecast.md", r"`overlap` of that time \(by default (\d)\)", source("graph/plan/cluster.h", r"double overlap = (\d);"), same),
    ("docs/memory.md", rf"two of the {N} largest change places", source("graph/plan/memory_joint.cpp", r"kMostSwapped = (\d+)"), same),
    ("docs/memory.md", rf"of fewer up to {N}, and the rest", source("graph/plan/memory_joint.cpp", r"kMostSwaps = (\d+)"), same),
    ("docs/memory.md", rf"is more than {N} % above", source("graph/plan/memory_joint.cpp", r"least_ \+ least_ / (\d+)"), lambda n: 100 / n),
    # What --help itself says.
    ("predict --help", r"--top K .*?by default (\d+)", source("frontends/cli/verb_predict.cpp", r"named\(t\) \|\| scores_pictures\(t\) \? (\d+) : 0"), same),
    ("train --help", r"else (\d+)", source("frontends/cli/verb_train.cpp", r"batch = said \? said : (\d+);"), same),
    ("place --help", r"else (\d+)", source("frontends/cli/verb_place.cpp", r"batch = said \? said : (\d+);"), same),
    ("forecast --help", r"else (\d+)", source("frontends/cli/verb_forecast.cpp", r"batch = said \? said : (\d+);"), same),
]
for guide, sentence, (place, text, pattern), there_is in FACTS:
    said = re.search(sentence, GUIDES.get(guide) or HELP[guide.removesuffix(" --help")], re.S)
    there = re.search(pattern, text())
    if not said or not there:
        objections.append(f"{guide if not said else place} has no '{sentence if not said else pattern}' any more: mend the list in facts_test.py")
        continue
    here, wanted = value(said[1]), value(there[1])
    number_both = isinstance(here, float) and isinstance(wanted, float)
    expect(abs(there_is(here) - wanted) <= 1e-9 * abs(wanted) if number_both else here == wanted, f"{guide} says '{' '.join(said[0].split())}', where {place} has {there[0]}")
examples = re.search(r"(\w+) short programs stand in \[examples\]", GUIDES["README.md"])
expect(examples and value(examples[1].lower()) == len(list((root / "examples").glob("0*.[cp]*"))), f"the README says of examples '{examples and examples[0]}'")
readme = re.search(r"\[clusters\]\(clusters\) has (\w+)", GUIDES["README.md"])
expect(readme and value(readme[1]) == len(list((root / "clusters").glob("*.json"))), f"the README says of clusters '{readme and readme[0]}'")

# Wherever a guide says what an option is by default, in one sentence, --help says the same of it.
found = 0
for guide, text in GUIDES.items():
    prose = re.sub(r"^```.*?^```", "", text if guide != "docs/first_hour.md" else "", flags=re.M | re.S)  # that one is about what was
    # A line of a table is about what its first cell has.
    prose = re.sub(r"^\|([^|]*)\|(.*)$", lambda row: "\n\n" + re.sub(r"[.;] |\|", f". {row[1]} ", f"{row[1]} {row[2]}"), prose, flags=re.M)
    for sentence in re.split(r"[.;](?=\s)|\n\n", prose):
        for default in re.finditer(r"[bB]y default ([^,;:()|]+)", sentence):
            named = re.findall(r"`(--[\w-]+)[^`]*`", sentence[:default.start()]) or re.findall(r"`(--[\w-]+)[^`]*`", sentence)
            known = [said[named[-1]] for said in OPTIONS.values() if named[-1:] and named[-1] in said]
            if known:
                found += 1
                wanted = " ".join(default[1].split()).rstrip(".")
                expect(any(f"by default {wanted}" in said for said in known), f"{guide} says of {named[-1]} 'by default {wanted}', and no --help does: {sorted(set(known))}")
expect(found >= 2, f"only {found} defaults of options were found in the guides")

# ---------------------------------------------------------------- keys of --json


def png(width, height, value):
    """Grey, a byte per pixel."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(value(x, y) for x in range(width)) for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# Objects whose keys are names of the user's or of libraries, and entries of lists that stand elsewhere: files of a run.
BY_NAME = {"settings", "means", "outputs", "columns", "splits", "libraries", "kernels", "fused_in", "attributes"}
METRICS = {"loss", "accuracy", "val_loss", "val_accuracy"}


def keys(value, within=""):
    """Of all objects in it, but for names."""
    if isinstance(value, list):
        return set().union(*(keys(one, within) for one in value))
    if not isinstance(value, dict):
        return set()
    named = within in BY_NAME or within == "classes"
    return (set() if named else value.keys() - METRICS) | set().union(*(keys(one, "" if named else key) for key, one in value.items()))


def documented(guide, start):
    """The words in code of the second cell of the line that begins so."""
    rows = [line for line in GUIDES[guide].splitlines() if line.startswith(f"| {start} |")]
    expect(len(rows) == 1, f"{guide} has {len(rows)} lines of a table for {start}")
    return {word for row in rows for word in re.findall(r"`([A-Za-z]\w*)`", row.split("|", 2)[2])}


# For each line of the table what is run; keys that only other machines or builds have stand in a source.
RUNS = {
    "train": ["train mlp --data digits --epochs 1 --out run2 --json"],
    "evaluate": ["evaluate run --data digits --json"],
    "run": ["run one.json --feed x.safetensors --json"],
    "predict": ["predict seen --feed photos/dark --json", "predict run --feed table.csv --json"],
    "place": ["place mlp -o p.json --json", "place mlp -o q.json --problem --json", "place part.json -o split.json --json", "place mnist_cnn --cluster h100x8 --devices gpu:0-1 -o gpus.json --json",
              "place mlp -o s.json --strategy parameter_server -O staleness=2 --devices cpu:0,cpu:1 --json"],
    "show": ["show a.json --json", "show gpus.json --json", "show a.json --memory --json"],
    "show --timeline": ["show a.json --timeline --json", "show gpus.json --timeline --json"],
    "show --ops": ["show --ops --json", "show --ops conv2d --json"],
    "show --nets": ["show --nets --json"],
    "convert": ["convert mlp -o c.json --json"],
    "forecast": ["forecast mlp --launches --json", "forecast mlp --strategy auto --cluster h100x8 --batch 64 --json", "forecast mnist_cnn --cluster h100x8 --devices gpu:0-1 --json"],
    "runs": ["runs run --json"],
    "data fetch": ["data fetch small --list list.json --json"],
    "data digits": ["data digits --out more --train 10 --test 5 --json"],
    "data inspect": ["data inspect digits --json", "data inspect photos --json"],
    "compare": ["compare a.json b.json --json"],
    "diff": ["diff a.json b.json --json"],
    "bench": ["bench mlp --rounds 1 --towers 1 --json"],
    "devices": ["devices --json"],
    "--version": ["--version --json"],
}
# None: all that the source names.
ELSEWHERE = {"devices": ("frontends/cli/devices.cpp", None), "--version": ("frontends/cli/version.cpp", {"commit", "sanitizers"}), "forecast": ("frontends/cli/verb_forecast.cpp", {"at_least"})}

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for part, low in (("dark", 20), ("light", 150)):
        (folder / "photos" / part).mkdir(parents=True)
        for k in range(8):
            (folder / "photos" / part / f"{k}.png").write_bytes(png(28, 28, lambda x, y: low + (x * 3 + y * (k + 1)) % 80))
    (folder / "table.csv").write_text("label," + ",".join(f"p{k}" for k in range(784)) + "\n" + "\n".join(f"{r % 2}," + ",".join(str(r) for _ in range(784)) for r in range(4)) + "\n", encoding="utf-8")
    (folder / "one.json").write_text(json.dumps({"belfry": 1, "name": "one", "inputs": [{"name": "x", "dtype": "f32", "shape": [2]}], "nodes": [{"name": "y", "op": "relu", "inputs": ["x"]}], "outputs": ["y"]}), encoding="utf-8")
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", -1, 1))
    (folder / "small").mkdir()
    (folder / "small/a.bin").write_bytes(b"a" * 10)
    (folder / "list.json").write_text(json.dumps({"small": {"files": [{"name": "a.bin", "bytes": 10, "sha256": hashlib.sha256(b"a" * 10).hexdigest(), "urls": ["http://127.0.0.1:1/a.bin"]}]}}), encoding="utf-8")
    for line in ("data digits --out digits --train 300 --test 64", "train mlp --data digits --epochs 1 --out run", "train mlp --data digits --steps 1 --checkpoints ck", "train mlp --data digits --steps 2 --strategy parameter_server -O staleness=1 --devices cpu:0,cpu:1 --log loops.jsonl", "train mlp --data photos --hold-out 0.4 --epochs 1 --out seen", "place mlp -o a.json --towers 2 --devices cpu:0,cpu:1 --batch 32",
                 "place mlp -o b.json --batch 32", "place mlp --problem=dnn-partitioning -o part.json --devices sim:0-1 --strategy layers"):
        done = belfry(*shlex.split(line), folder=folder)
        expect(done.returncode == 0, f"{line}: {done.stderr[-300:]}")
    # Files of a run, and of its checkpoints.
    told = set(re.findall(r"`([\w.]+)/?`", " ".join(re.findall(r"^\| (`[^|]*) \|", GUIDES["docs/training.md"], re.M))))
    there = {path.name for path in (folder / "run").iterdir()}
    expect(told == there, f"a run's folder has {sorted(there - told)} more and {sorted(told - there)} less than docs/training.md says")
    said = re.search(r"writes `ck/step-(\d+)\.safetensors`", GUIDES["docs/training.md"])
    checkpoints = [path.name for path in (folder / "ck").iterdir()]
    expect(said and checkpoints == [f"step-{1:0{len(said[1])}}.safetensors"], f"checkpoints are {checkpoints}, and docs/training.md says '{said and said[0]}'")
    for start, lines in RUNS.items():
        printed = set()
        for line in lines:
            done = belfry(*shlex.split(line), folder=folder)
            try:
                value = json.loads(done.stdout.splitlines()[0] if start == "bench" else done.stdout)
            except (ValueError, IndexError):
                objections.append(f"{line}: {done.returncode} {done.stdout[:100]} {done.stderr[-300:]}")
                continue
            if start == "runs":  # of run.json, and of the log
                value = [{key: None for key in one} for one in value]
            printed |= keys(value)
        told = documented("docs/formats.md", f"`{start}`")
        expect(printed <= told, f"{start} --json prints {sorted(printed - told)}, which docs/formats.md does not list for it")
        place, may = ELSEWHERE.get(start, (None, set()))
        text = (root / place).read_text(encoding="utf-8") if place else ""
        if place and may is None:  # what a machine without GPUs does not print
            printed |= set(re.findall(r'[{\[]"(\w+)"[,\]]', text))
        beyond = {key for key in told - printed if not (may and key in may and f'"{key}"' in text)}
        expect(not beyond, f"docs/formats.md lists {sorted(beyond)} for {start} --json, which prints none of it")
    stated = re.findall(r"^\| `([^`]+)` \| ", GUIDES["docs/formats.md"].split("| verb | keys |")[1], re.M)
    expect(stated == list(RUNS), f"lines of the table of docs/formats.md: {stated}")
    expect({verb for verb in OPTIONS if "--json" in OPTIONS[verb]} <= set(RUNS) | {"data"}, "a verb with --json is not looked at")
    graph = [belfry(*words, folder=folder).stdout for words in (("show", "mlp", "--json"), ("convert", "mlp"))]
    expect(graph[0] and graph[0] == graph[1], "show --json of a graph is not its file")
    # Lines of the log, and their table.
    lines = [json.loads(line) for log in ("run/log.jsonl", "loops.jsonl") for line in (folder / log).read_text(encoding="utf-8").splitlines()]
    printed = {key for line in lines for key in line if "/" not in key} - METRICS
    told = documented("docs/training.md", "`log.jsonl`")
    expect(printed == told, f"the log has {sorted(printed - told)} more and {sorted(told - printed)} less than docs/training.md says")

print("\n".join(objections))
sys.exit(1 if objections else 0)
