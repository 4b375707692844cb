"""Commands in README.md and docs/*.md, in blocks, lines and prose: verbs, options, values, nets and clusters are known, quick ones run, and C++ names are public ones.
Arguments: the program, the source tree."""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

program, root = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
scratch = tempfile.TemporaryDirectory()  # training by loops has two plans, which lie beside the name that is given
objections, counts, answers = [], {"commands": 0, "tools": 0, "ran": 0, "names": 0}, {}
OPTION = r"(?<![\w-])--?[A-Za-z][\w-]*"
NETS_FIRST = ("place", "show", "train", "forecast", "bench", "convert")
STANDARD = {"main", "move", "size_t", "make_shared", "printf", "if", "for", "while", "return", "string", "belfry", "fork"}  # "belfry" is CMake's target too
OTHERS = r"belfry |python3|tf\.|torch\.|omp_|find_package|target_link"
GUIDES = [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def expect(condition, text):
    if not condition:
        objections.append(text)


def belfry(*arguments, folder=root):
    if (key := (arguments, folder)) not in answers:
        answers[key] = subprocess.run([program, *arguments], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    return answers[key]


def help_of(*verb):
    text = belfry(*verb, "--help").stdout
    return text, {name for both in re.findall(r"^  (-[^\s\[{]+)", text, re.M) for name in both.split(",")}


def words_of(command):
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return command.split()


verbs = [line.split()[0] for line in belfry("--help").stdout.split("Subcommands:")[1].splitlines() if re.match(r"  \w", line)]
known = {verb: help_of(verb) for verb in verbs}
tools = "".join(p.read_text(encoding="utf-8") for part in ("tools", "bench", "examples", "ops/cuda") for p in (root / part).rglob("*") if p.is_file() and p.suffix in ("", ".py", ".sh", ".cpp"))
parts = ("fetch", "inspect", "digits")
known["data"] = (known["data"][0], set().union(*(help_of("data", part)[1] for part in parts)))
clusters = {p.stem for p in (root / "clusters").glob("*.json")}
strategies = set(re.findall(r"[a-z_]+", re.search(r"--strategy NAME +(.*?);", known["train"][0])[1])) - {"or"}
distortions = re.findall(r"(\w+)=", re.search(r"--distort TEXT +.*?: (.*?);", known["train"][0])[1])


def check_command(where, verb, rest):
    """`rest` may be a usage line: only what it says in full is looked at."""
    counts["commands"] += 1
    if verb not in known:
        return expect(verb.isupper(), f"{where}: there is no verb {verb}")
    for option in re.findall(OPTION, rest):
        expect(option in known[verb][1], f"{where}: {verb} has no {option}")
    words = [word.strip("[]…,") for word in words_of(rest)]
    first = words[0] if words else ""
    if verb == "data" and first and not first.startswith("-"):
        expect(first in parts, f"{where}: data has no {first}")
    nets = [word for word in words[:len(words) if verb == "bench" else 1] if re.fullmatch(r"[a-z][a-z0-9_]*(:[\w=.,]+)?", word)] if verb in NETS_FIRST else []
    for k, net in enumerate(nets):
        if net != "run" and words[:k + 1] == nets[:k + 1]:
            done = belfry("show", net)
            expect(done.returncode == 0, f"{where}: {done.stderr.strip()}")
    values = list(zip(words, words[1:]))
    strategy = next((value for option, value in values if option == "--strategy"), "towers")
    for option, value in values:
        if re.search(r"[A-Z]|^$", value) and option != "-O":
            continue
        if option == "--cluster":
            expect(value in clusters or (root / value).is_file() or value == "cluster.json", f"{where}: there is no cluster {value}")
        elif option == "--strategy":
            expect(value in strategies or "06_own_strategy" in where, f"{where}: there is no strategy {value}")
        elif option == "--precision":
            expect(value in ("f32", "tf32", "bf16", "f16"), f"{where}: there is no precision {value}")
        elif option == "--distort":
            expect(all(kind.split("=")[0] in distortions for kind in value.split(",")), f"{where}: --distort {value}: there are {distortions}")
        elif option == "-O" and strategy in strategies:
            devices = ["--devices", "cpu:0,cpu:1"] if strategy != "single" else []
            done = belfry("place", "mlp", "--batch", "32", "--strategy", strategy, *devices, "-O", value, "-o", f"{scratch.name}/plan.json")
            expect(done.returncode == 0, f"{where}: -O {value}: {done.stderr.strip()[:300]}")


def check_tool(where, words):
    """A command of the source tree: its file is there and names its options."""
    at = 1 if words[0] in ("python3", "ninja", "meson") else 0
    if words[0] == "meson":
        tests = "".join(p.read_text(encoding="utf-8") for p in (root / "tests").rglob("meson.build")) + " ".join(f"{p.name}_test" for p in (root / "tests").iterdir())
        return expect(words[1] in ("setup", "install") or all(word in tests for word in words[4:]), f"{where}: there is no such test")
    name = words[3] if words[0] == "ninja" else words[at]
    name = re.sub(r"^build/(?=bench/|examples/|tests/)", "", name)
    near = [re.sub(r"bench_", "", name) + ".cpp", name + ".cpp", f"{name}/{name.split('/')[-1]}.cpp", name] + ([name.replace("_test", "")] if name.startswith("tests/") else [])
    file = next((root / path for path in near if (root / path).exists()), None)
    counts["tools"] += 1
    if not file:
        return objections.append(f"{where}: there is no {name}")
    if file.is_file():
        text = file.read_text(encoding="utf-8")
        for option in re.findall(OPTION, " ".join(words[at + 1:])) if words[0] != "ninja" else []:
            expect(option in text, f"{where}: {name} has no {option}")
    elif cases := [word.split("=")[1].rstrip(".*") for word in words if word.startswith("--gtest_filter=")]:
        tests = "".join(p.read_text(encoding="utf-8") for p in file.glob("*.cpp"))
        expect(all(re.search(rf"^TEST\w*\({case}\b", tests, re.M) for case in cases), f"{where}: no test is named {cases}")
    if name == "tools/build":
        for target in words[at + 1:]:
            expect(target.startswith("-") or any((root / path).is_file() for path in (target + ".cpp", f"{target}/{target.split('/')[-1]}.cpp")), f"{where}: there is no {target} to build")


def check_option(where, option):
    """An option without its command: of some verb, a tool, an example or Meson."""
    expect(any(option in options for _, options in known.values()) or option in ("--version", "--prefix") or f'"{option}' in tools or f"{option})" in tools or f"'{option}" in tools, f"{where}: neither a verb nor a tool has {option}")


def commands_of(text):
    """Inline spans of prose, lines of indented and sh blocks: what is behind three spaces is a word about the command, or another command."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()] + re.findall(r"^    (\S.*)$", prose, re.M)
    for line in lines + re.findall(r"`([^`\n]+)`", prose):
        for piece in re.split(r" {3,}(?=belfry \w)|   +#| && ", line):
            piece = re.sub(r"^(belfry \w+) +", r"\1 ", piece)
            yield re.split(r" {3,}", piece)[0].strip(), line in lines


def check_names(guide, text, public):
    """C++ of the guides that no file holds: names before ( and {, behind :: and a designator's point."""
    shown = set(re.findall(r"`[\w./]+\.(?:h|cpp|py)`:\n\n```cpp\n(.*?)^```", text, re.M | re.S))
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    if guide.name.startswith("from_"):  # the first column is of the other library
        prose = re.sub(r"^\|[^|\n]*\|", "|", prose, flags=re.M)
    blocks = [block for block in re.findall(r"^```cpp\n(.*?)^```", text, re.M | re.S) if block not in shown]
    spans = [span for span in re.findall(r"`([^`\n]+)`", prose) if re.search(r"\b[A-Z]\w+::\w|\bbelfry::|\w\{\.|\{…\}|\w\(.*\)", span) and not re.match(OTHERS, span)]
    for name in re.findall(r"\bbelfry::(\w+)", text):
        expect(name in public, f"{guide.name}: there is no belfry::{name}")
    others = "".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    for code in blocks + spans:
        code = re.sub(r'"[^"\n]*"|//.*|^\w+ \w+\(\) \{$', '""', code, flags=re.M)
        for name in re.findall(r"([A-Za-z_]\w+)\s*[({]", code) + re.findall(r"::([A-Za-z_]\w+)", code) + re.findall(r"[{,]\s*\.([a-z]\w*)", code):
            counts["names"] += 1
            expect(name in public or re.search(rf"\b{name}\b", others), f"{guide.name}: `{code.strip()[:80]}`: no public header has {name}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / "clusters").symlink_to(root / "clusters")
    graph, = re.findall(r"^```json\n(.*?)^```", GUIDES[0].read_text(encoding="utf-8"), re.M | re.S)
    (folder / "digits.json").write_text(graph, encoding="utf-8")
    headers = [p for part in ("graph", "ops", "placer", "executor", "frontends", "tests/support") for p in (root / part).rglob("*.h") if not p.name.endswith("_internal.h")]
    public = STANDARD | set(re.findall(r"\w+", "".join(p.read_text(encoding="utf-8") for p in headers)))
    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8")
        if guide.name != "first_hour.md":  # it also names what is refused
            check_names(guide, text, public)
        for command, block in commands_of(text):
            where = f"{guide.name}: `{command[:100]}`"
            if m := re.match(r"(?:\S*/)?(?:belfry|06_own_strategy) (\w+)(.*)", command):
                if m[1] == "and" or guide.name == "first_hour.md" and m[1] not in known:
                    continue
                check_command(where, m[1], m[2])
                rest = words_of(m[2])
                # What needs no data and no network, with nothing left open, runs; README's lines come first and leave their plans for the other guides.
                runs = command.startswith("belfry ") and rest and m[1] in ("place", "show", "diff", "forecast", "compare", "completion", "convert") and not re.search(r"[\[\]|…]|\b[A-Z][A-Z_]*\b(?!=)|--measure|--trace|--calibration", m[2].replace("-O", ""))
                files = [word for word in rest if re.search(r"\.(json|npz|safetensors)$", word) and rest[rest.index(word) - 1] not in ("-o", "--html", "--svg")]
                if runs and not rest[0].startswith("-") and rest[0] != "run" and all((folder / word).exists() for word in files):
                    counts["ran"] += 1
                    done = belfry(m[1], *rest, folder=folder)
                    expect(done.returncode == 0, f"{where}: {done.stderr.strip()[-300:]}")
            elif m := re.match(r"([a-z]+) --?[a-z]", command):
                if m[1] in known:
                    check_command(where, m[1], command[m.end(1):])
            elif re.match(r"(?:python3 )?(?:tools|bench|build/(?:bench|examples|tests)|tests/system)/\w|meson (?:test|setup|install)|ninja -C", command):
                check_tool(where, words_of(command))
            elif re.fullmatch(r"--[a-z][\w-]*(?:[ =].*)?", command):
                check_option(where, re.match(OPTION, command)[0])

expect(counts["commands"] > 120 and counts["tools"] > 15 and counts["ran"] > 12 and counts["names"] > 150, f"too few were found: {counts}")
print("\n".join(objections) or counts)
sys.exit(1 if objections else 0)
