"""The command line from outside: help, version, devices, wrong use. Argument: the program."""

import json
import os
import pathlib
import re
import resource
import shlex
import struct
import subprocess
import sys
import tempfile

program = str(pathlib.Path(sys.argv[1]).resolve())
objections = []


def belfry(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def expect(condition, text):
    if not condition:
        objections.append(text)


done = belfry("--help")
expect(done.returncode == 0 and "devices" in done.stdout and "Example" in done.stdout and not done.stderr, f"--help: {done}")
done = belfry("--version")
facts = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
expect(done.returncode == 0 and facts.keys() >= {"belfry", "compiler", "build", "oneDNN", "fmt", "CUDA"}, f"--version: {done}")
done = belfry("--version", "--json")
expect(done.returncode == 0 and done.stdout.startswith("{") and json.loads(done.stdout) == facts, f"--version --json: {done}")
expect(re.search(r"^Exit codes: 0 done, 1 failed .*compare.*forecast.*, 2 wrong use .*options.*$", belfry("--help").stdout, re.M), "--help lacks the exit codes")
# Threads of GNU's OpenMP that wait spin for as long as it reads at the start: less than its default, and what the user says stands.
for said, spins in (({}, "10000"), ({"GOMP_SPINCOUNT": "77"}, "77")):
    environment = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run([program, "--version"], capture_output=True, text=True, env={**environment, **said, "OMP_DISPLAY_ENV": "verbose"})
    found = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    expect(not found or found[-1] == spins, f"{said}: OpenMP spins {found}")
done = belfry("devices")
expect(done.returncode == 0 and done.stdout.startswith("cpu:0") and "oneDNN" in done.stdout, f"devices: {done}")
done = belfry("devices", "--json")
facts = json.loads(done.stdout)
expect(facts["devices"][0]["id"] == "cpu:0" and facts["host"]["cores"] == sum(d["id"].startswith("cpu:") for d in facts["devices"]) and facts["host"]["memory_bytes"] > 0, f"devices --json: {facts}")
for arguments in ([], ["devces"], ["devices", "--jsn"], ["--vers"], ["--version", "x"], ["help", "nosuch"], ["train", "--nosuch"], *(["train", "mlp", "--data", ".", option, ""] for option in ("--out", "--log", "--checkpoints"))):
    done = belfry(*arguments)
    expect(done.returncode == 2 and done.stderr and not done.stdout, f"wrong use {arguments}: {done}")
expect("did you mean devices" in belfry("devces").stderr, "a misspelt verb gets no suggestion")
expect("train has no option --nosuch" in belfry("train", "--nosuch").stderr, "an unknown option is hidden by what is lacking")
expect("--out: is empty" in belfry("train", "mlp", "--data", ".", "--out", "").stderr, "an empty --out is taken for none")
# Files decide whether one is there: no wrong use, in whatever place it is named.
MISSING = [["show"], ["run"], ["bench"], ["convert"], ["place"], ["forecast"], ["runs"], ["data", "inspect"], ["compare", "no/a.json"], ["diff", "no/a.json"], ["evaluate", "mlp", "--data"], ["train", "mlp", "--data"],
           ["predict", "mlp", "--feed"], ["run", "mlp", "--feed"], ["run", "mlp", "--state"], ["show", "mlp", "--beside"], ["train", "mlp", "--data", ".", "--resume"], ["train", "mlp", "--data", ".", "--state"],
           *([verb, "mlp", option] for verb in ("place", "forecast") for option in ("--cluster", "--placement", "--calibration"))]
for arguments in MISSING:
    done = belfry(*arguments, "no/x.json")
    expect(done.returncode == 1 and "no/" in done.stderr and not done.stdout, f"a file that is not there: {arguments}: {done}")
verbs = [line.split()[0] for line in belfry("--help").stdout.split("Subcommands:")[1].splitlines() if line.startswith("  ") and line[2] != " "]
for verb in verbs:
    done = belfry(verb, "--help")
    expect(done.returncode == 0 and "Example: belfry " + verb in done.stdout, f"{verb} --help shows no example")
    expect(re.search(r"^Exit codes: 0 done, 1 failed, 2 wrong use; belfry --help says more$", done.stdout, re.M), f"{verb} --help lacks the exit codes")

# The README's graph file and the lines that follow it.
readme = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
graph, = re.findall(r"^```json\n(.*?)^```", readme, re.M | re.S)
lines, = re.findall(r"^```sh\n(.*?)^```", readme, re.M | re.S)
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "digits.json").write_text(graph, encoding="utf-8")
    for line in lines.splitlines():
        done = subprocess.run([program] + shlex.split(line, comments=True)[1:], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
        expect(done.returncode == 0, f"README: {line}: {done.stderr}")
        shown = {"diff": "decision: 'product': tower 1", "compare": "same bits", "forecast": "critical path"}.get(shlex.split(line)[1], "")
        expect(shown in done.stdout, f"README: {line} says {done.stdout[:400]!r}, not {shown!r}")
    # An edit by hand: run says what does not hold and the command; place derives the rest.
    plan = pathlib.Path(folder, "two.json")
    text = plan.read_text(encoding="utf-8")
    edited = re.sub(r'("name": "product".*?"assigned": )(\{[^}]*\}|"[^"]*")', r'\1{"0": "cpu:0", "1": "cpu:0"}', text, count=1)
    expect(edited != text, "README: the node 'product' is not assigned in the plan")
    plan.write_text(edited, encoding="utf-8")
    done = subprocess.run([program, "run", "two.json"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    expect(done.returncode == 1 and "belfry place two.json" in done.stderr, f"an edited plan: {done}")
    done = subprocess.run([program, "place", "two.json", "-o", "two.json"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    expect(done.returncode == 0, f"an edited plan derived anew: {done.stderr}")
    done = subprocess.run([program, "diff", "two.json", "moved.json"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    expect("decision" not in done.stdout, f"the edited and the moved plan differ: {done.stdout}")
    # What is shown of a plan that does not hold goes as far as it can, then says the same.
    done = subprocess.run([program, "place", "mlp", "--devices", "sim:0-1", "--strategy", "towers", "--batch", "8", "-o", "whole.json"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    expect(done.returncode == 0, f"a plan on two devices: {done.stderr}")
    whole = pathlib.Path(folder, "whole.json").read_text(encoding="utf-8")
    broken = re.sub(r'("op": "copy".*?"assigned": )"sim:0-1"', r'\1"sim:0"', whole, count=1)
    expect(broken != whole, "no copy is on both devices")
    pathlib.Path(folder, "broken.json").write_text(broken, encoding="utf-8")
    for options in ((), ("--dot", "broken.dot")):
        done = subprocess.run([program, "show", "broken.json", *options], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
        expect(done.returncode == 0, f"show of a broken plan {options}: {done.stderr}")
    for options in (("--json",), ("--memory",), ("--timeline",), ("--html", "broken.html"), ("--svg", "broken.svg")):
        done = subprocess.run([program, "show", "broken.json", *options], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
        expect(done.returncode == 1 and "broken.json does not hold: unbound: no instance of " in done.stderr and "belfry place broken.json -o broken.json" in done.stderr, f"show of a broken plan {options}: {done}")
    done = subprocess.run([program, "show", "broken.json", "--dot", "nowhere/broken.dot"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    expect(done.returncode == 1 and "nowhere/broken.dot" in done.stderr and "does not hold" not in done.stderr, f"a broken plan is not blamed for a folder that is not there: {done}")
    # A hash is a record: another one is said, and the plan runs.
    edited = re.sub(r'("arithmetic_hash": ")[0-9a-f]{4}', r'\1zzzz', plan.read_text(encoding="utf-8"), count=1)
    pathlib.Path(folder, "hash.json").write_text(edited, encoding="utf-8")
    done = subprocess.run([program, "run", "hash.json"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    expect("zzzz" in edited and "hash.json: its arithmetic hash is " in done.stderr and "but the file says zzzz" in done.stderr and "does not hold" not in done.stderr, f"an edited hash: {done.stderr}")

    # A plan given is what runs, and where it is not that is said.
    def here(*arguments, **options):
        return subprocess.run([program, *arguments], cwd=folder, text=True, capture_output=True, **({"stdin": subprocess.DEVNULL} | options))

    small = {"belfry": 1, "name": "small", "inputs": [{"name": "x", "dtype": "f32", "shape": [2]}],
             "nodes": [{"name": "y", "op": "tanh", "inputs": ["x"], "device": "cpu:1"}, {"name": "z", "op": "exp", "inputs": ["y"]}], "outputs": ["z"]}
    pathlib.Path(folder, "small.json").write_text(json.dumps(small), encoding="utf-8")
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    pathlib.Path(folder, "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    done = here("place", "small.json", "-o", "small_plan.json", "--devices", "cpu:0,cpu:1", "--strategy", "layers")
    expect(done.returncode == 0, f"place small.json: {done}")
    plan = pathlib.Path(folder, "small_plan.json")
    text = plan.read_text(encoding="utf-8")
    done = here("run", "small_plan.json", "--feed", "x.safetensors")
    expect(done.returncode == 0 and "z = f32(2){1, 1}" in done.stdout and "not the plan" not in done.stderr, f"run of a plan without updates: {done}")
    done = here("run", "small_plan.json", "--feed", "x.safetensors", "--json")
    expect(done.returncode == 0 and json.loads(done.stdout) == {"steps": 0, "outputs": {"z": {"shape": [2], "values": [1, 1]}}}, f"run --json: {done}")
    done = here("run", "small_plan.json", "--feed", "x.safetensors", "--fetch", "y")
    expect(done.returncode == 0 and "not the plan that was given runs" in done.stderr and "fetching y besides" in done.stderr, f"run of a plan with another fetch: {done}")
    plan.write_text(text.replace('"kernel": "simd_unary"', '"kernel": "simd_nonsense"'), encoding="utf-8")
    expect(plan.read_text(encoding="utf-8") != text, "small_plan.json names no simd_unary")
    for arguments in (["--fetch", "y"], ["--steps", "1"], []):
        done = here("run", "small_plan.json", "--feed", "x.safetensors", *arguments)
        expect(done.returncode == 1 and "no kernel: 'y' names 'simd_nonsense' on cpu:1, but tanh has none of that name there" in done.stderr and "belfry place small_plan.json" in done.stderr, f"a kernel that is not here, {arguments}: {done}")
    # Rules: a placement file's go before what the graph requests, and one that decides nothing is refused.
    rules = {"belfry": 1, "placement": [{"match": "**", "device": "cpu:0"}]}
    pathlib.Path(folder, "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    done = here("place", "small.json", "--placement", "rules.json")
    expect(done.returncode == 0 and "cpu:1" not in done.stdout.split('"nodes"')[1].replace('"device": "cpu:1"', ""), f"a placement file loses to a request: {done}")
    expect("goes before what the graph asks for: 'y' is on cpu:0, not on cpu:1" in done.stderr, f"a request that a placement goes before: {done.stderr}")
    done = here("run", "small.json", "--feed", "x.safetensors", "--devices", "cpu:0,cpu:1", "--strategy", "layers", "--move", "zz=cpu:0")
    expect(done.returncode == 1 and 'the rule "zz" matches no node; did you mean z' in done.stderr, f"a move of nothing: {done}")
    done = here("place", "small.json", "--devices", "cpu:0,cpu:1", "--strategy", "layers", "--move", "x=cpu:0")
    expect(done.returncode == 1 and "feeds live on the host" in done.stderr, f"a move of an input: {done}")
    # Memory is planned: nothing is taken for a plan, and what does not fit is said.
    done = here("place", "mnist_cnn", "--batch", "60000", "-o", "large.json", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31)))
    expect("bad_alloc" not in done.stderr and (done.returncode == 0 or "does not fit" in done.stderr), f"place of a large batch: {done}")
    cluster = {"belfry": 1, "host_memory": [1000], "devices": [{"devices": "cpu:0", "space": "host"}]}
    pathlib.Path(folder, "cluster.json").write_text(json.dumps(cluster), encoding="utf-8")
    done = here("place", "mnist_cnn", "--cluster", "cluster.json")
    expect(done.returncode == 1 and "the plan does not fit: host 0 has 1000 bytes" in done.stderr and "of cpu:0" in done.stderr, f"a plan over the memory: {done}")
    for options in ([], ["--json"]):
        done = here("forecast", "mnist_cnn", "--cluster", "cluster.json", *options)
        expect(done.returncode == 1 and "does not fit: host 0 has 1000 bytes" in done.stdout + done.stderr and "cpu:0" in done.stdout, f"a forecast over the memory: {done}")

    # Options that would do nothing are wrong use.
    done = belfry("convert", "mobilenet_v2:alpha=0.35,image=96,classes=2")
    expect(done.returncode == 0 and '"shape": ["batch", 96, 96, 3]' in done.stdout and '"shape": [1280, 2]' in done.stdout, f"a net with settings: {done.stderr}")

    def refused(code, words, *arguments):
        done = here(*arguments)
        expect(done.returncode == code and all(w in done.stderr for w in words) and "bug in Belfry" not in done.stderr, f"{arguments} should say {words}: {done}")

    refused(2, ["has no setting 'alhpa'; it has alpha, classes, image, rate"], "convert", "mobilenet_v2:alhpa=1")
    refused(2, ["has no setting 'top'; it has alpha, classes, image, rate"], "convert", "mobilenet_v2:top=false")
    refused(2, ["NAME=NUMBER", "not 'alpha'"], "convert", "mobilenet_v2:alpha")
    refused(2, ["alpha=1e400", "no number that a double can be"], "convert", "mobilenet_v2:alpha=1e400")
    refused(2, ["'alpha' stands there twice"], "convert", "mobilenet_v2:alpha=1,alpha=0.5")
    refused(2, ["100000 blocks", "from 0 to 1000"], "convert", "transformer:blocks=100000")

    # --json: one value on standard output, with the figures of the text; words stay on standard error.
    def human(count):
        units = ["B", "KiB", "MiB", "GiB"]
        while count >= 1024:
            count, units = count / 1024, units[1:]
        return f"{count} B" if units[0] == "B" else f"{count:.1f} {units[0]}"

    done = here("place", "mlp", "--devices", "cpu:0,cpu:1", "--batch", "32", "-o", "facts.json", "--json")
    told = json.loads(done.stdout)
    said = re.search(r"^(\w+): strategy (\w+), (\d+) towers, global batch (\d+) .*, combine (\w+), (\d+) thread", done.stderr, re.M)
    expect(said and list(said.groups()) == [str(told[key]) for key in ("net", "strategy", "towers", "batch", "combine", "threads")], f"place --json: {done}")
    expect(told["plan"] == "facts.json" and told["precision"] == "f32" and f"arithmetic hash {told['arithmetic_hash']}\n" in done.stderr and "wrote facts.json" in done.stderr, f"place --json: {done}")
    planned = json.loads(here("show", "facts.json", "--memory", "--json").stdout)
    words = here("show", "facts.json", "--memory").stdout
    expect(planned == {"devices": told["devices"]} and [d["device"] for d in told["devices"]] == ["cpu:0", "cpu:1"], f"show --memory --json: {planned}")
    for d in told["devices"]:
        line = "{} planned = state {} + shared {} + kept frames {} + transient frames {}; values {} beside a live maximum of {}:".format(
            *(human(count) for count in (d["bytes"], d["state"], d["shared"], d["kept"], d["transient"], d["bytes"] - d["state"], d["live_values"])))
        expect(line in words and d["bytes"] == sum(d[part] for part in ("state", "shared", "kept", "transient")) > 0 and "memory" not in d, f"bytes of {d} in {words}")
    # Memory stands there where the cluster says it; nobody knows it of a cpu or sim device by itself.
    expect(all("memory" not in d for d in json.loads(here("forecast", "mlp", "--json").stdout)["devices"]), "forecast --json: memory that nobody knows")
    said = {"belfry": 1, "devices": [{"devices": "cpu:0", "space": "host", "memory": 64000000000}]}
    pathlib.Path(folder, "said.json").write_text(json.dumps(said), encoding="utf-8")
    for verb in (["place", "mlp", "--cluster", "said.json", "-o", "said_plan.json"], ["forecast", "mlp", "--cluster", "said.json"]):
        done = here(*verb, "--json")
        expect(done.returncode == 0 and [d["memory"] for d in json.loads(done.stdout)["devices"]] == [64000000000], f"memory that the cluster says: {done}")
    # Names of files that are no UTF-8 are shown by their bytes.
    odd = os.fsdecode(b"r\xe9")
    for key, verb in (("graph", ["convert", "mlp", "-o", odd]), ("plan", ["place", "mlp", "-o", odd]), ("data", ["data", "digits", "--train", "8", "--test", "8", "--out", odd + "d"])):
        done = here(*verb, "--json", errors="surrogateescape")
        expect(done.returncode == 0 and json.loads(done.stdout)[key].startswith("r\\xe9"), f"{verb[0]} --json with a name that is no UTF-8: {done}")
    shown = json.loads(here("show", "facts.json", "--json").stdout)
    words = here("show", "facts.json").stdout
    expect({key: shown[key] for key in told if key != "plan"} == {key: told[key] for key in told if key != "plan"}, f"show --json: {shown.keys()}")
    expect(len(shown["nodes"]) == len(re.findall(r"^  \S+ = ", words, re.M)) and all(f"  {n['name']} = {n['op']}" in words and n["devices"] and n["reason"] in words for n in shown["nodes"]), "nodes of show --json")
    step, whole = json.loads(here("show", "facts.json", "--timeline", "--json").stdout), json.loads(here("forecast", "facts.json", "--json", "--launches").stdout)
    expect(step["launches"] and all(step[key] == whole[key] for key in ("seconds", "path", "launches")), f"show --timeline --json: {step['seconds']} {whole['seconds']}")
    expect(here("show", "small.json", "--json").stdout == here("convert", "small.json").stdout, "show --json of a graph is not its file")
    written = json.loads(here("convert", "mlp", "-o", "written.json", "--json").stdout)
    there = json.loads(pathlib.Path(folder, "written.json").read_text(encoding="utf-8"))
    expect(written == {"graph": "written.json", "net": "mlp", **{key: [n["name"] for n in there[key]] for key in ("inputs", "variables")}, "outputs": there["outputs"]}, f"convert --json: {written}")
    refused(2, ["--json says what was made", "give -o PLAN.json too"], "place", "mlp", "--json")
    refused(2, ["--json says what was written", "give -o GRAPH.json too"], "convert", "mlp", "--json")
    refused(2, ["--json stands in the place of the text"], "show", "facts.json", "--json", "--svg", "facts.svg")

    # Mixed precision, by an option before what the file says; a plan has its own.
    done = here("place", "mlp", "--precision", "bf16", "-o", "half.json")
    expect(done.returncode == 0, f"place --precision: {done}")
    text_of_halves = pathlib.Path(folder, "half.json").read_text(encoding="utf-8")
    expect('"precision": "bf16"' in text_of_halves and '"op": "cast"' in text_of_halves and '"dtype": "bf16"' in text_of_halves, "half.json holds no halves")
    refused(2, ["--precision does nothing here", "a plan has its precision"], "place", "half.json", "--precision", "f32")
    refused(2, ["--precision"], "place", "mlp", "--precision", "f8")
    done = here("bench", "mlp", "--batch", "4", "--towers", "1", "--rounds", "1", "--precision", "f32,f16")
    expect(done.returncode == 0 and "mlp batch 4" in done.stdout and "mlp in f16 batch 4" in done.stdout, f"bench --precision: {done}")

    # Forecasts: calibrated here, on a machine that is not here, beside a trace; a problem for a placer of one's own, and its answer.
    root = pathlib.Path(__file__).resolve().parents[2]
    done = here("bench", "mlp", "--batch", "4,16", "--towers", "1,2", "--rounds", "3", "--calibrate", "-o", "costs.json")
    expect(done.returncode == 0 and done.stdout.count(" a step (") == 4, f"bench: {done}")
    done = here("forecast", "mlp", "--batch", "8", "--calibration", "costs.json", "--measure", "3")
    expect(done.returncode == 0 and "% between" in done.stdout and "measured " in done.stdout and "critical path" in done.stdout, f"forecast: {done}")
    done = here("forecast", "mlp", "--cluster", str(root / "clusters" / "a100x8.json"), "--batch", "512", "--json")
    expect(done.returncode == 0 and json.loads(done.stdout)["seconds"] > 0, f"forecast of a machine that is not here: {done}")
    chosen = json.loads(here("forecast", "mlp", "--cluster", "p100x8", "--devices", "gpu:0-1", "--strategy", "auto", "--json").stdout)
    first, *others = chosen["candidates"]
    expect((first["name"], first["options"], first["seconds"]) == (chosen["strategy"], chosen["options"], chosen["seconds"]) and first["peak"] > 0, f"what auto took: {first}, {chosen['strategy']} {chosen['options']} {chosen['seconds']}")
    expect(len(others) > 8 and all(c.get("seconds", c.get("at_least", first["seconds"])) >= first["seconds"] and ("seconds" in c) + ("at_least" in c) + ("refused" in c) == 1 for c in others), f"what auto looked at: {others}")
    expect("candidates" not in json.loads(here("forecast", "mlp", "--json").stdout), "candidates of what is no choice")
    done = here("run", "small.json", "--feed", "x.safetensors", "--devices", "cpu:0,cpu:1", "--strategy", "layers", "--trace", "trace.json")
    refused(1, ["trace.json:", "the trace is of another plan"], "forecast", "mlp", "--trace", "trace.json")
    refused(2, ["--launches adds to what --json writes"], "forecast", "mlp", "--launches")
    refused(2, ["--calibrate and -o belong together"], "bench", "mlp", "--calibrate")
    refused(2, ["--fast-nondeterministic does nothing here", "no device is a GPU"], "bench", "mlp", "--fast-nondeterministic")
    refused(2, ["--fast-nondeterministic does nothing here", "no device is a GPU"], "place", "mlp", "--fast-nondeterministic")
    here("data", "digits", "--out", "digits", "--train", "64", "--test", "32")
    done = here("place", "mlp", "-o", "of_costs.json", "--batch", "8")
    expect(done.returncode == 0, f"place: {done}")
    for verb in (["run", "of_costs.json", "--feed", "x.safetensors"], ["train", "of_costs.json", "--data", "digits"], ["evaluate", "of_costs.json", "--data", "digits"]):
        refused(2, ["--calibration does nothing here", "a plan has its"], *verb, "--calibration", "costs.json")
    refused(2, ["--calibration is of the times of plans, and mlp is none"], "show", "mlp", "--svg", "mlp.svg", "--calibration", "costs.json")
    refused(2, ["--recompute is of backward passes, and predict has none"], "predict", "mlp", "--feed", "x.safetensors", "--recompute", "3")
    refused(2, ["--recompute is of backward passes, and evaluate has none"], "evaluate", "mlp", "--data", "digits", "--recompute", "3")
    for verb in ("train", "evaluate"):
        refused(2, ["--antialias is of photos, and digits has MNIST"], verb, "mlp", "--data", "digits", "--antialias")
    refused(2, ["'1073741824' is no whole number from 1 to 1000000"], "data", "digits", "--out", "many", "--train", "1073741824")
    refused(2, ["--calibration does nothing here", "auto, mirrored, layers"], "place", "mlp", "--calibration", "costs.json")
    done = here("place", "mlp", "--strategy", "layers", "--devices", "cpu:0,cpu:1", "--calibration", "costs.json")
    expect(done.returncode == 0 and "cut by max-load" in done.stdout, f"layers by measured cost: {done.stderr}")
    done = here("place", "mlp", "--devices", "cpu:0,cpu:1", "--towers", "2", "-O", "variables=spread", "-o", "spread.json")
    made = json.loads(pathlib.Path(folder, "spread.json").read_text(encoding="utf-8"))["plan"]
    expect((made["strategy"], made["options"]) == ("towers", "-O towers=2 -O variables=spread"), f"a plan says what made it: {made['strategy']} {made.get('options')}")
    # The same problem in the format of dnn-partitioning, and its answer.
    done = here("place", "mlp", "--problem=dnn-partitioning", "--devices", "sim:0-1", "--strategy", "layers", "-o", "partitioning.json")
    expect(done.returncode == 0, f"place --problem=dnn-partitioning: {done}")
    done = here("place", "partitioning.json", "-o", "split.json", "--json")
    cut = json.loads(done.stdout)
    expect(cut["split"] == "split.json" and f"{cut['objective']} {cut['value']:.10g}, " in done.stderr and cut["optimal"] == (cut["value"] <= cut["bound"] * (1 + 1e-8)), f"a cutting problem's answer for machines: {done}")
    expect(len(cut["loads"]) > 2 and all(f"  {device}: {load:.6g}\n" in done.stderr for device, load in cut["loads"]), f"loads for machines: {done}")
    split = json.loads(pathlib.Path(folder, "split.json").read_text(encoding="utf-8"))
    nodes = json.loads(pathlib.Path(folder, "partitioning.json").read_text(encoding="utf-8"))["nodes"]
    placed = [i for part in split["accelerators"] + [split["cpu"]] for i in part]
    expect(done.returncode == 0 and "max-load" in done.stderr and sorted(placed) == sorted(n["id"] for n in nodes), f"the answer to a cutting problem: {done}")
    # Taken as a placement, here with both parts in each other's place; and answers to something else.
    named = {n["id"]: n["name"] for n in nodes}
    turned = {"accelerators": split["accelerators"][::-1], "cpu": split["cpu"]}
    asked = ["mlp", "--devices", "sim:0-1", "--strategy", "layers", "--placement", "turned.json"]
    pathlib.Path(folder, "turned.json").write_text(json.dumps(turned), encoding="utf-8")
    done = here("place", *asked)
    placed = {n["name"]: n for part in ("variables", "nodes") for n in json.loads(done.stdout or "{}").get(part, [])}
    there = [(named[i], placed[named[i]]["assigned"], k) for k, part in enumerate(turned["accelerators"]) for i in part if "number" in placed.get(named[i], {}).get("reason", "")]
    expect(done.returncode == 0 and len(there) > 12 and {k for _, _, k in there} == {0, 1} and all(f"sim:{k}" in json.dumps(where) and f"sim:{1 - k}" not in json.dumps(where) for _, where, k in there),
           f"an answer of dnn-partitioning as a placement: {done.stderr} {there}")
    done = here("forecast", *asked, "--json")
    expect(done.returncode == 0 and json.loads(done.stdout)["seconds"] > 0, f"its forecast: {done}")
    refused(1, ["turned.json", "which place and forecast take"], "train", *asked, "--data", ".")
    for wrong, wanted in (({**turned, "accelerators": turned["accelerators"] + [[]]}, "has 3 lists, but the problem has 2 accelerators"),
                          ({"accelerators": [[0, 0]]}, "stands there twice"), ({"accelerators": [[0, 777]]}, "is the id of no node"), ({"accelerators": [[0]]}, "lacks the node 1")):
        pathlib.Path(folder, "turned.json").write_text(json.dumps(wrong), encoding="utf-8")
        refused(1, ["turned.json:1: ", wanted], "place", *asked)
    refused(1, ["lacks the node"], "place", "mlp", "--devices", "cpu:0,cpu:1", "--placement", "turned.json")
    pathlib.Path(folder, "turned.json").write_text(json.dumps({"accelerators": [[0]], "cpu": [1]}), encoding="utf-8")
    refused(1, ["turned.json:1: /cpu", "no CPU beside its accelerators"], "place", "mlp", "--devices", "cpu:0,cpu:1", "--placement", "turned.json")
    refused(2, ["is a cutting problem", "objective"], "place", "partitioning.json", "--devices", "cpu:0")
    refused(2, ["-O objective=speed", "max-load or latency"], "place", "partitioning.json", "-O", "objective=speed")
    refused(2, ["objective is given twice"], "place", "partitioning.json", "-O", "objective=latency", "-O", "objective=max-load")
    refused(2, ["--problem=onnx", "belfry and dnn-partitioning"], "place", "mlp", "--problem=onnx")
    done = here("place", "mlp", "--problem", "--devices", "cpu:0,cpu:1", "--strategy", "layers", "-o", "problem.json", "--json")
    expect(done.returncode == 0 and [json.loads(done.stdout)[key] for key in ("problem", "strategy")] == ["problem.json", "layers"], f"place --problem: {done}")
    answer = subprocess.run([sys.executable, root / "examples" / "placer" / "by_time.py", "problem.json"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    pathlib.Path(folder, "cut.json").write_text(answer.stdout, encoding="utf-8")
    done = here("place", "mlp", "--placement", "cut.json")
    expect(done.returncode == 0 and done.stdout.count('"assigned": {"0": "cpu:1"}') > 3 and done.stdout.count('"assigned": {"0": "cpu:0"}') > 3, f"a placer's answer: {answer.stderr} {done.stderr} {done.stdout[-500:]}")

    # A problem has all devices of the cluster, of which the placer takes those that the strategy uses. What is of a node goes with it: each update lies
    # with its variable, and gradients on both devices, which takes less time than all of them on one where rows enough are to be computed: of 32 a step is launches alone.
    here("place", "mlp", "--problem", "--cluster", "p100x8", "--devices", "gpu:2-3", "--strategy", "layers", "--batch", "4096", "-o", "of_two.json")
    two = subprocess.run([sys.executable, root / "examples" / "placer" / "by_time.py", "of_two.json"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    pathlib.Path(folder, "cut_of_two.json").write_text(two.stdout, encoding="utf-8")
    cut, problem = json.loads(two.stdout), json.loads(pathlib.Path(folder, "of_two.json").read_text(encoding="utf-8"))
    at = {rule["match"]: rule["device"] for rule in cut["placement"]}
    of = {n["name"]: n["of"] for n in problem["nodes"] if "of" in n}
    expect(set(at.values()) == {"gpu:2", "gpu:3"}, f"the devices of a placer's answer: {at}")
    expect({at.get(name) for name in of if name.startswith("tower_*/gradient/")} == {"gpu:2", "gpu:3"}, f"gradients of a placer's answer: {at}")
    heads = {name: head for name in of for head in (of[name], "tower_*/" + of[name]) if head in at}  # others are computed inside a fused node
    expect(len(heads) > 5 and [name for name, head in heads.items() if at.get(name) != at[head]] == [], f"what follows in a placer's answer: {at}")
    pathlib.Path(folder, "alone.json").write_text(json.dumps({**cut, "placement": [rule for rule in cut["placement"] if rule["match"] not in of]}), encoding="utf-8")
    seconds = [json.loads(here("forecast", "mlp", "--cluster", "p100x8", "--placement", file, "--json").stdout)["seconds"] for file in ("cut_of_two.json", "alone.json")]
    expect(seconds[0] < seconds[1], f"a placer's answer takes {seconds[0]} s, with gradients and updates on one device {seconds[1]}")

    # Scores: of lists and placement files, in order, with the figures of the finished plan; a search that is driven by them.
    where = ["--devices", "cpu:0,cpu:1", "--strategy", "layers", "--batch", "32"]
    nodes = len(json.loads(pathlib.Path(folder, "problem.json").read_text(encoding="utf-8"))["nodes"])
    cut = json.loads(answer.stdout)
    lines = [json.dumps([0] * nodes), json.dumps(cut), "[0, 2]", json.dumps({**cut, "placement": [{"match": "zz", "device": "cpu:0"}, *cut["placement"]]}), json.dumps([1] * nodes), "",
             '{"accelerators": [[0]], "cpu": []}']
    done = subprocess.run([program, "forecast", "mlp", "--jsonl", *where], cwd=folder, text=True, capture_output=True, input="\n".join(lines) + "\n")
    scores = [json.loads(line) for line in done.stdout.splitlines()]
    expect(done.returncode == 0 and [list(s) for s in scores] == [["step_seconds", "peak"]] * 2 + [["error"]] * 2 + [["step_seconds", "peak"], ["error"], ["error"]], f"forecast --jsonl: {done}")
    expect("placement 7:1: /accelerators: is of an answer in dnn-partitioning's format" in scores[6].get("error", ""), f"forecast --jsonl of an answer in the other format: {scores[6]}")
    done = subprocess.run([program, "forecast", "mlp", "--jsonl", "--time-only", *where], cwd=folder, text=True, capture_output=True, input="\n".join(lines) + "\n")
    expect([json.loads(line) for line in done.stdout.splitlines()] == [{"step_seconds": s["step_seconds"]} if "peak" in s else s for s in scores], f"forecast --jsonl --time-only: {done}")
    refused(2, ["--time-only is of scores"], "forecast", "mlp", "--time-only")
    expect("placement 3:1: has 2 numbers" in scores[2].get("error", "") and 'the rule "zz" matches no node' in scores[3].get("error", ""), f"errors of scores: {scores}")
    done = here("forecast", "mlp", "--placement", "cut.json", "--json")
    figures = json.loads(done.stdout)
    expect(scores[1] == {"step_seconds": figures["seconds"], "peak": {d["device"]: d["bytes"] for d in figures["devices"]}}, f"a score and its plan's forecast: {scores[1]} {figures}")
    refused(2, ["--jsonl scores the placements on standard input alone"], "forecast", "mlp", "--jsonl", "--json")
    # --move goes before the numbers of a list, and leaves a file's rule for the same node nothing to decide.
    names = [n["name"] for n in json.loads(pathlib.Path(folder, "problem.json").read_text(encoding="utf-8"))["nodes"]]
    on_one = [0] * len(names)
    moved = [int(name == "dense/kernel") for name in names]
    rule = {"belfry": 1, "placement": [{"match": "dense/kernel", "device": "cpu:0"}, {"match": "**", "device": "cpu:0"}]}

    def score(lines, *more):
        done = subprocess.run([program, "forecast", "mlp", "--jsonl", *where, *more], cwd=folder, text=True, capture_output=True, input="".join(json.dumps(line) + "\n" for line in lines))
        return [json.loads(line) for line in done.stdout.splitlines()]

    apart, plain = score([moved, on_one])
    first, second, refusal = score([on_one, moved, rule], "--move", "dense/kernel=cpu:1")
    expect(first == apart and second == apart and apart != plain, f"--move beside lists of numbers: {first} {second} {apart} {plain}")
    expect("decided by a rule before it (moved by hand)" in refusal.get("error", ""), f"--move beside a file's rule: {refusal}")
    done = subprocess.run([sys.executable, root / "examples" / "placer" / "search.py", "problem.json", "30", program, "forecast", "mlp", "--jsonl", *where], cwd=folder, text=True, capture_output=True)
    found = json.loads(done.stdout)
    expect(float(found["placement"][0]["reason"].split()[3]) <= scores[0]["step_seconds"] and len(found["placement"]) == nodes + 1, f"a search: {done}")

    plan.write_text(text, encoding="utf-8")
    refused(2, ["--no-cuda-graph does nothing here", "no device is a GPU"], "run", "small.json", "--no-cuda-graph")
    refused(2, ["--no-cuda-graph is of runs", "--measure"], "forecast", "small.json", "--no-cuda-graph")
    refused(2, ["--no-cuda-graph"], "place", "small.json", "--no-cuda-graph")
    for option in (["--strategy", "single"], ["--towers", "2"], ["--threads-per-tower", "1"], ["-O", "towers=1"], ["--placement", "rules.json"], ["--cluster", "cluster.json"]):
        for verb in (["place"], ["run", "--feed", "x.safetensors"]):
            refused(2, [option[0] + " does nothing here", "--move"], *verb, "small_plan.json", *option)
    # Other devices in place of a plan's.
    for verb in (["place"], ["run", "--feed", "x.safetensors"]):
        refused(1, ["--devices cpu:0: the plan's nodes are on cpu:0-1; name 2 devices in place of these, in their order, as sim:0-1"], *verb, "small_plan.json", "--devices", "cpu:0")
    done, asitis = here("run", "small_plan.json", "--feed", "x.safetensors", "--devices", "cpu:1,sim:3"), here("run", "small_plan.json", "--feed", "x.safetensors")
    expect(done.returncode == 0 and done.stdout == asitis.stdout and "its decisions, with cpu:1,sim:3 in place of cpu:0-1" in done.stderr, f"run of a plan on other devices: {done}")
    for option in (["--strategy", "single"], ["-O", "towers=1"]):
        refused(2, [option[0] + " does nothing here", "rules.json"], "place", "small.json", "--placement", "rules.json", *option)
    # A placement file's batch and towers are those by default; what the command line says goes first.
    rules = {"belfry": 1, "towers": 2, "batch": 6, "placement": [{"match": "**", "device": "cpu:0"}]}
    pathlib.Path(folder, "batch.json").write_text(json.dumps(rules), encoding="utf-8")
    for options, towers, batch in (([], 2, 6), (["--towers", "3"], 3, 6), (["--batch", "8"], 2, 8)):
        done = here("place", "digits.json", "--placement", "batch.json", *options)
        expect(done.returncode == 0 and f'"towers": {towers},' in done.stdout and f'"batch": {batch},' in done.stdout, f"a placement file's batch {options}: {done.stderr}")
    # A placement has the same towers by every way, and so the same figures; a problem says all that an answer may leave out.
    rules.pop("towers")
    pathlib.Path(folder, "batch.json").write_text(json.dumps(rules), encoding="utf-8")
    here("place", "digits.json", "--problem", "--devices", "cpu:0,cpu:1", "--strategy", "pipeline", "-O", "order=1f1b", "-O", "combine=tower_mean", "-O", "towers=4", "-o", "pipeline_problem.json")
    problem = json.loads(pathlib.Path(folder, "pipeline_problem.json").read_text(encoding="utf-8"))
    expect((problem["towers"], problem["combine"], problem["order"]) == (4, "tower_mean", "1f1b"), f"a pipeline's problem: {[problem[k] for k in ('towers', 'combine', 'order')]}")
    scores = []
    for options in ([], ["--towers", "3"], ["--threads-per-tower", "1", "--batch", "8"]):
        scored = json.loads(here("forecast", "digits.json", "--jsonl", "--devices", "cpu:0", "--strategy", "towers", *options, stdin=None, input=json.dumps(rules) + "\n").stdout)
        whole = json.loads(here("forecast", "digits.json", "--placement", "batch.json", "--devices", "cpu:0", "--json", *options).stdout)
        expect(scored["step_seconds"] == whole["seconds"], f"a placement without towers {options}: {scored} {whole['seconds']}")
        scores.append(scored["step_seconds"])
    expect(len(set(scores)) == 3, f"the command line goes before a placement: {scores}")
    for towers in (1, 2):
        here("place", "digits.json", "--towers", str(towers), "-o", f"of_{towers}.json")
    done = here("compare", "of_1.json", "of_2.json")
    expect("of_1.json has 1 tower, of_2.json has 2: another arithmetic" in done.stderr, f"compare of unlike towers: {done}")
    for threads in (1, 2):
        here("place", "digits.json", "--threads-per-tower", str(threads), "-o", f"threads_{threads}.json")
    done = here("compare", "threads_1.json", "threads_2.json")
    expect("threads_1.json has 1 thread a tower, threads_2.json has 2: another arithmetic" in done.stderr, f"compare of unlike threads: {done}")
    done = here("compare", "threads_1.json", "threads_2.json", "--json")
    expect(json.loads(done.stdout)["threads"] == [1, 2], f"compare --json of unlike threads: {done}")
    for rows, said in ((128, "global batch 128 over 16 towers of 8, "), (130, "global batch 130 over 16 towers of 8 to 9, ")):
        done = here("place", "mlp", "--towers", "16", "--batch", str(rows), "-o", "sixteen.json")
        expect(said in done.stderr, f"the rows of many towers: {done.stderr}")
    # Numbers are whole, and inside what a plan can hold.
    for option, value in (("--batch", "0"), ("--batch", "-5"), ("--batch", "32x"), ("--batch", "9223372036854775808"), ("--batch", "0x10"), ("--seed", "-1"), ("--towers", "65537"), ("--threads-per-tower", "1000000")):
        refused(2, [option, f"'{value}' is no whole number from"], "place", "digits.json", f"{option}={value}")
    refused(1, ["with a batch of 1000000000000", "take a smaller batch: this graph has room for 1 to "], "place", "mnist_cnn", "--batch", "1000000000000")
    refused(2, ["-O towers=65537", "from 1 to 65536"], "place", "digits.json", "-O", "towers=65537")
    refused(2, ["-O threads=1000000", "from 1 to 4096"], "place", "digits.json", "-O", "threads=1000000")
    refused(2, ["only a GPU has parts"], "place", "digits.json", "--devices", "sim:0/1")
    refused(2, ["at most 65536"], "place", "digits.json", "--devices", "sim:0-100000")

    # Steps against rows.
    rows = {"belfry": 1, "name": "rows", "inputs": [{"name": "x", "dtype": "f32", "shape": ["batch"]}], "variables": [{"name": "w", "dtype": "f32", "shape": [2], "init": {"kind": "zeros"}}],
            "nodes": [{"name": "s", "op": "reduce_sum", "inputs": ["x"], "attributes": {"axes": [0]}}, {"name": "y", "op": "add", "inputs": ["w", "s"]}], "outputs": ["y"], "state": "states/w.safetensors"}

    def write_tensors(path, tensors):
        data, header = b"", {}
        for name, (shape, numbers) in tensors.items():
            packed = struct.pack(f"<{len(numbers)}f", *numbers)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
            data += packed
        text = json.dumps(header).encode()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)

    def write_tensor(path, name, numbers):
        write_tensors(path, {name: ([len(numbers)], numbers)})

    nested = pathlib.Path(folder, "nested")
    nested.mkdir()
    (nested / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    write_tensor(pathlib.Path(folder, "rows.safetensors"), "x", [1, 2, 3, 4])
    # The state that a graph's file names is loaded from beside it, or its absence said.
    refused(1, ["the state that the graph's file names", "w.safetensors"], "run", "nested/rows.json", "--feed", "rows.safetensors")
    write_tensor(nested / "states" / "w.safetensors", "w", [100, 200])
    done = here("run", "nested/rows.json", "--feed", "rows.safetensors")
    expect(done.returncode == 0 and "y = f32(2){110, 210}" in done.stdout, f"the state of a graph's file: {done}")
    done = here("convert", "nested/rows.json", "-o", "rows_here.json")
    expect(done.returncode == 0 and '"state": "nested/states/w.safetensors"' in pathlib.Path(folder, "rows_here.json").read_text(encoding="utf-8"), f"a state's name after convert: {done}")
    done = here("place", "nested/rows.json", "-o", "rows_plan.json", "--batch", "4")
    expect(done.returncode == 0 and "--state nested/states/w.safetensors" in done.stderr, f"a state beside place: {done}")
    refused(1, ["4611686018427387904 steps of 2 rows need more than the 4 rows"], "run", "rows_here.json", "--feed", "rows.safetensors", "--steps", str(1 << 62), "--batch", "2")
    refused(1, ["5 steps of 1 row need more than the 4 rows"], "run", "rows_here.json", "--feed", "rows.safetensors", "--steps", "5")
    # The steps of a plan have its own batch.
    here("place", "rows_here.json", "-o", "rows_of_two.json", "--batch", "2")
    done = here("run", "rows_of_two.json", "--feed", "rows.safetensors", "--steps", "1")
    expect(done.returncode == 0 and "y = f32(2){3, 3}" in done.stdout and "not the plan that was given" not in done.stderr, f"a step of a plan's own batch: {done}")
    refused(1, ["3 steps of 2 rows need more than the 4 rows", "at most 2 of --steps, or a --batch of at most 1"], "run", "rows_of_two.json", "--feed", "rows.safetensors", "--steps", "3")
    done = here("run", "rows_of_two.json", "--feed", "rows.safetensors", "--steps", "3", "--batch", "1")
    expect(done.returncode == 0, f"another batch than a plan's: {done}")
    for option in (["--batch", "2"], ["--no-update"]):
        refused(2, ["give --steps too"], "run", "rows_here.json", "--feed", "rows.safetensors", *option)
    refused(1, ["has the symbol of the batch", "2 towers", "take one tower"], "run", "small.json", "--feed", "x.safetensors", "--steps", "3", "--devices", "cpu:0-1")
    done = here("run", "small.json", "--feed", "x.safetensors", "--steps", "3", "--devices", "cpu:0-1", "--towers", "1")
    expect(done.returncode == 0 and "z = f32(2){1, 1}" in done.stdout, f"three steps of feeds without rows: {done}")
    # Steps take rows alone: what is along another symbol is the same in each, and one step's rows may lie along any axis.
    inputs = {"x": ["batch"], "word": ["time"], "pair": ["batch", "time"], "wide": [2, "batch"]}
    sums = [{"name": f"{name}_sum", "op": "reduce_sum", "inputs": [name]} for name in inputs]
    for file, names in (("symbols", ["x", "word", "pair"]), ("wide", ["x", "wide"])):
        of_symbols = {"belfry": 1, "name": file, "inputs": [{"name": n, "dtype": "f32", "shape": inputs[n]} for n in names], "nodes": [n for n in sums if n["inputs"][0] in names], "outputs": [f"{n}_sum" for n in names]}
        pathlib.Path(folder, f"{file}.json").write_text(json.dumps(of_symbols), encoding="utf-8")
    write_tensors(pathlib.Path(folder, "symbols.safetensors"), {"x": ([4], [1, 2, 3, 4]), "word": ([1], [5]), "pair": ([4, 1], [10, 20, 30, 40])})
    write_tensors(pathlib.Path(folder, "wide.safetensors"), {"x": ([2], [1, 2]), "wide": ([2, 2], [1, 2, 3, 4])})
    done = here("run", "symbols.json", "--feed", "symbols.safetensors", "--steps", "2")
    expect(done.returncode == 0 and all(text in done.stdout for text in ("x_sum = f32(){7}", "word_sum = f32(){5}", "pair_sum = f32(){70}")), f"steps beside another symbol: {done}")
    done = here("run", "wide.json", "--feed", "wide.safetensors", "--steps", "1")
    expect(done.returncode == 0 and "wide_sum = f32(){10}" in done.stdout, f"one step of rows along the last axis: {done}")
    here("place", "wide.json", "--batch", "2", "-o", "wide_plan.json")
    done = here("compare", "wide_plan.json", "wide_plan.json", "--feed", "wide.safetensors")
    expect(done.returncode == 0 and "same bits" in done.stdout, f"compare of rows along the last axis: {done}")
    refused(1, ["the feed 'wide' has its rows not along its first axis alone"], "run", "wide.json", "--feed", "wide.safetensors", "--steps", "2")
    done = here("run", "rows_here.json", "--feed", "rows.safetensors", "--fetch", "y", "--fetch", "y,s")
    expect(done.returncode == 0 and done.stdout.count("y = ") == 1, f"a fetch named twice: {done}")
    done = here("place", "rows_here.json", "--fetch", "y,y")
    expect(done.returncode == 0, f"place with a fetch named twice: {done.stderr}")

    # One step of all rows holds no more copies of its feed than a run, and an archive is written from where its tensors lie.
    head = json.dumps({"x": {"dtype": "F32", "shape": [1 << 20, 16], "data_offsets": [0, 64 << 20]}}).encode()
    with open(pathlib.Path(folder, "large.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(head)) + head)
        out.truncate(8 + len(head) + (64 << 20))
    pathlib.Path(folder, "relu.json").write_text(json.dumps({"belfry": 1, "name": "relu", "inputs": [{"name": "x", "dtype": "f32", "shape": ["batch", 16]}], "nodes": [{"name": "y", "op": "relu", "inputs": ["x"]}], "outputs": ["y"]}), encoding="utf-8")

    def peak(*arguments):
        process = subprocess.Popen([program, "run", "relu.json", "--feed", "large.safetensors", *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        expect(process.returncode == 0, f"run with a large feed {arguments}: {process.returncode}")
        return usage.ru_maxrss >> 10

    at_once = peak()
    for more in (["--steps", "1"], ["--out", "large.npz"]):
        there_too = peak(*more)
        expect(there_too < at_once + 32, f"run {more} of a feed of 64 MiB takes {there_too} MiB, and {at_once} without")

    # What a file lacks is said with its place.
    digits = json.loads(graph)
    digits["train"]["optimizer"]["kind"] = "magic"
    pathlib.Path(folder, "magic.json").write_text(json.dumps(digits), encoding="utf-8")
    refused(1, ["magic.json: /train/optimizer", "'magic'", "adam", "sgd"], "place", "magic.json")
    done = here("place", "mnist_cnn", "-o", "fused.json")
    text = pathlib.Path(folder, "fused.json").read_text(encoding="utf-8")
    edited = re.sub(r'("op": "fused".*?"attributes": )\{"kind": "[^"]*"\}', r'\1{}', text, count=1)
    expect(edited != text, "mnist_cnn's plan has no fused node")
    pathlib.Path(folder, "kindless.json").write_text(edited, encoding="utf-8")
    for arguments in (["run"], ["place"], ["show"]):
        refused(1, ["kindless.json", "needs the attribute 'kind'"], *arguments, "kindless.json")

    # A plan records the machine that it was made for; another one is said, and runs.
    isa, libraries = ((re.findall(f'"{key}": "([^"]+)"', text) or ["no record"])[0] for key in ("isa", "libraries"))
    expect(facts["host"]["isa"] in isa and all(f"{name} {version}" in libraries for name, version in facts["libraries"].items()), f"the records of a plan: {isa}, {libraries}")
    text = pathlib.Path(folder, "rows_plan.json").read_text(encoding="utf-8")
    done = here("run", "rows_plan.json", "--feed", "rows.safetensors", "--steps", "1")
    expect(done.returncode == 0 and "bits may differ" not in done.stderr, f"a plan of this machine: {done}")
    pathlib.Path(folder, "elsewhere.json").write_text(text.replace(isa, "sse41, default").replace(libraries, "oneDNN 0.1"), encoding="utf-8")
    for arguments in (["run", "elsewhere.json", "--steps", "1"], ["compare", "elsewhere.json", "rows_plan.json"]):
        done = here(*arguments, "--feed", "rows.safetensors")
        expect(done.returncode == 0 and f"instruction set 'sse41, default' where it was made, '{isa}' here" in done.stderr and "libraries 'oneDNN 0.1' where" in done.stderr, f"a plan of another machine: {done}")
    done = here("place", "elsewhere.json")
    expect(done.returncode == 0 and f'"isa": "{isa}"' in done.stdout, f"a plan derived anew keeps another machine's record: {done.stderr}")

    # Training makes its folders before it begins.
    done = here("data", "digits", "--out", "digits", "--train", "64", "--test", "32")
    expect(done.returncode == 0, f"data digits: {done}")
    pathlib.Path(folder, "in_the_way").write_text("", encoding="utf-8")
    for option in ("--checkpoints", "--out"):
        refused(1, ["in_the_way", "cannot be made"], "train", "mnist_cnn", "--data", "digits", "--epochs", "1", option, "in_the_way/folder")
    done = here("train", "mnist_cnn", "--data", "digits", "--epochs", "1", "--checkpoints", "new/ck")
    expect(done.returncode == 0 and len(list(pathlib.Path(folder, "new/ck").iterdir())) == 1, f"checkpoints into a new folder: {done}")

    # --epochs is of the whole run: a resumed one goes on to it, and says so where it has them all.
    checkpoint = str(next(pathlib.Path(folder, "new/ck").iterdir()))
    done = here("train", "mnist_cnn", "--data", "digits", "--epochs", "2", "--resume", checkpoint)
    expect(done.returncode == 0 and "Epoch  2/ 2" in done.stderr and "Epoch  1/" not in done.stderr and "asks for no more" not in done.stderr, f"resumed after one epoch of two: {done}")
    done = here("train", "mnist_cnn", "--data", "digits", "--epochs", "1", "--resume", checkpoint)
    expect(done.returncode == 0 and "the run has 1 epochs already" in done.stderr and "Epoch " not in done.stderr, f"resumed with nothing left to do: {done}")

    # A log of steps, and what is evaluated.
    done = here("train", "mlp", "--data", "digits", "--batch", "16", "--steps", "6", "--log", "log.jsonl")
    lines = [json.loads(line) for line in pathlib.Path(folder, "log.jsonl").read_text(encoding="utf-8").splitlines()]
    expect(done.returncode == 0 and [line.get("step") for line in lines] == [1, 2, 3, 4, None, 5, 6, None], f"six steps of 16 rows of 64: {done.stderr} {lines}")
    expect(all(abs(line["learning_rate"] - 0.01) < 1e-8 and line["rows"] == 16 for line in lines if "step" in line), f"a learning rate that is a number: {lines}")
    refused(2, ["leave one out"], "train", "mlp", "--data", "digits", "--steps", "6", "--epochs", "1")

    # A run of a plan says the options that made the plan.
    for line in ("place mlp -o summed.json --devices cpu:0,cpu:1 --batch 16 -O combine=tower_sum -O variables=spread", "train summed.json --data digits --steps 1 --out of_plan"):
        done = here(*line.split())
        expect(done.returncode == 0, f"{line}: {done}")
    config = json.loads(here("runs", "of_plan", "--json").stdout)[0]["config"]
    expect(config.get("options", "").split() == ["combine=tower_sum", "variables=spread"] and config["strategy"] == "towers", f"options of a run of a plan: {config}")

    # Loops: what they promise and what they did is said; both plans are files.
    loops = ["--strategy", "parameter_server", "--devices", "cpu:0,cpu:1", "-O", "staleness=2", "--batch", "16"]
    done = here("train", "mlp", "--data", "digits", "--epochs", "2", "--log", "loops.jsonl", *loops)
    expect(done.returncode == 0 and "not reproducible" in done.stderr and "16 updates; staleness" in done.stderr, f"training by loops: {done}")
    lines = [json.loads(line) for line in pathlib.Path(folder, "loops.jsonl").read_text(encoding="utf-8").splitlines()]
    expect(all(0 <= line["staleness"] <= 2 and line["rows"] == 8 for line in lines if "step" in line), f"staleness of each step: {lines}")
    done = here("place", "mlp", "-o", "loops.json", "--json", *loops)
    both = json.loads(done.stdout)
    expect([both[who]["plan"] for who in both] == ["loops.worker.json", "loops.server.json"] and all(f"arithmetic hash {one['arithmetic_hash']}\n" in done.stderr for one in both.values()), f"plans of both for machines: {done}")
    expect(done.returncode == 0 and all(here("show", f"loops.{who}.json").returncode == 0 for who in ("worker", "server")), f"plans of loops: {done}")
    expect("asynchronous, staleness at most 2; not reproducible" in done.stderr, f"place says what loops do not promise: {done.stderr}")
    done = here("place", "mlp", "-o", "backup.json", *loops[:4], "-O", "backup=1", "--batch", "16")
    expect(done.returncode == 0 and "the first 1 gradients" in done.stderr and "not reproducible" in done.stderr, f"place says what backup workers do not promise: {done.stderr}")
    refused(1, ["parameter_server", "no plan of a step"], "forecast", "mlp", *loops)
    values = {split: here("evaluate", "mlp", "--data", "digits", "--split", split) for split in ("train", "test", "all")}
    expect(all(f"of {rows} rows" in values[split].stderr for split, rows in (("train", 64), ("test", 32), ("all", 96))), f"rows of a split: {values}")
    unset = "the variables have their initial values: no --state was given"
    expect(all(unset in values[split].stderr and "initial" not in values[split].stdout for split in values), f"figures of initial values: {values}")
    train, test, both = (float(re.search(r"loss ([\d.]+)", values[split].stdout).group(1)) for split in ("train", "test", "all"))
    expect(abs(both - (64 * train + 32 * test) / 96) < 2e-6, f"the loss of both splits: {train} {test} {both}")

    # A schedule and moving averages in a file, and evaluation with them.
    done = here("convert", "mlp")
    optimizer = '"optimizer": {"kind": "sgd", "learning_rate": {"kind": "cosine_decay", "rate": 0.2, "steps": 8}, "average_decay": 0.9}'
    averaged = re.sub(r'"optimizer": \{[^}]*\}', optimizer, done.stdout)
    pathlib.Path(folder, "averaged.json").write_text(averaged, encoding="utf-8")
    done = here("train", "averaged.json", "--data", "digits", "--epochs", "2", "--batch", "16", "--averages", "--out", "averaged")
    expect(done.returncode == 0, f"training with averages: {done}")
    values = [here("evaluate", "averaged.json", "--data", "digits", "--state", "averaged/state.safetensors", *more).stdout for more in ([], ["--averages"])]
    expect(all("accuracy" in v and "loss" in v for v in values) and values[0] != values[1], f"evaluation without and with averages: {values}")
    values = {split: here("evaluate", "averaged.json", "--data", "digits", "--state", "averaged/state.safetensors", "--averages", "--split", split) for split in ("train", "test", "all")}
    expect(all(unset not in done.stderr for done in values.values()), f"evaluation of a state: {values}")
    train, test, both = (float(re.search(r"loss ([\d.]+)", values[split].stdout).group(1)) for split in ("train", "test", "all"))
    expect(abs(both - (64 * train + 32 * test) / 96) < 2e-6, f"the loss of both splits with averages: {train} {test} {both}")
    # A step fetches the learning rate where a log reads it, as that of the folder does.
    expect("fetch/learning_rate" in pathlib.Path(folder, "averaged/plan.json").read_text(encoding="utf-8"), "the learning rate is not fetched for the log of --out")
    lines = [json.loads(line) for line in pathlib.Path(folder, "averaged/log.jsonl").read_text(encoding="utf-8").splitlines()]
    rates = [line["learning_rate"] for line in lines if "rows" in line]
    expect(len(rates) == 8 and rates[0] > 0.19 and rates == sorted(rates, reverse=True), f"a schedule's rates in the log: {rates}")
    refused(1, ["keeps no moving averages", "average_decay"], "evaluate", "mlp", "--data", "digits", "--averages")
    done = here("train", "mlp", "--data", "digits", "--epochs", "1", "--averages")
    expect(done.returncode == 1 and "keeps no moving averages" in done.stderr and "Epoch" not in done.stderr, f"averages that are not kept, said before the training: {done}")
    pathlib.Path(folder, "averaged.json").write_text(averaged.replace("cosine_decay", "cosine_decoy"), encoding="utf-8")
    refused(1, ["averaged.json: /train/optimizer", "no schedule 'cosine_decoy'"], "place", "averaged.json")

    # A standard output that is full is a failure.
    for arguments in (["--help"], ["--version"], ["devices"], ["devices", "--json"], ["place", "digits.json"], ["show", "digits.json"], ["run", "rows_here.json", "--feed", "rows.safetensors"], ["diff", "rows_plan.json", "elsewhere.json"], ["convert", "digits.json"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([program, *arguments], cwd=folder, text=True, stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        expect(done.returncode == 1 and "standard output could not be written" in done.stderr, f"{arguments} into a full disk: {done}")

# What graphs are made of; the same graph for Graphviz; completion; predictions in parts and at once.
done = belfry("show", "--ops")
expect(done.returncode == 0 and "conv2d(x, filter) -> y" in done.stdout and done.stdout.rstrip().splitlines()[-1].split()[1] == "ops;", f"show --ops: {done.stdout[-300:]}")
done = belfry("show", "--ops", "conv2d")
expect(all(text in done.stdout for text in ("onednn_conv2d", "padding", "by default \"valid\"", "gradient")), f"show --ops conv2d: {done}")
done = belfry("show", "--ops", "--json")
ops, words = json.loads(done.stdout), belfry("show", "--ops").stdout
expect(len(ops) == int(words.splitlines()[-1].split()[0]) and all(f"\n{op['op']}(" in "\n" + words for op in ops), f"show --ops --json: {len(ops)} ops")
one = json.loads(belfry("show", "--ops", "conv2d", "--json").stdout)
expect(one in ops and one["inputs"] == ["x", "filter"] and one["attributes"]["padding"]["default"] == "valid" and "onednn_conv2d" in one["kernels"]["cpu"] and one["differentiable"], f"show --ops conv2d --json: {one}")
nets, words = json.loads(belfry("show", "--nets", "--json").stdout), belfry("show", "--nets").stdout
expect(len(nets) == int(words.splitlines()[-1].split()[0]) and all(f"\n{net['net']} " in "\n" + words and net["help"] in words for net in nets) and {"net": "mlp", "help": "784-512-512-10; momentum", "settings": {}} in nets, f"show --nets: {words} {nets}")
for alias, meant in ((["help", "place"], ["place", "--help"]), (["help"], ["--help"]), (["version"], ["--version"])):
    done = belfry(*alias)
    expect(done.returncode == 0 and done.stdout == belfry(*meant).stdout, f"{alias}: {done}")
done = belfry("-v")
expect(done.returncode == 2 and "there is no option '-v' before a verb" in done.stderr, f"-v: {done}")
expect("did you mean relu" in belfry("show", "--ops", "relv").stderr, "a misspelt op gets no suggestion")
for wrong in (["show"], ["show", "mnist_cnn", "--nets"], ["show", "mnist_cnn", "--ops", "relu"], ["show", "--ops", "--memory"], ["completion", "tcsh"]):
    expect(belfry(*wrong).returncode == 2, f"{wrong} is no wrong use")
for move, meant in (("tower_1/dense", "tower_1/dense/**"), ("dense", "dense/**"), ("tower_1/dens/**", "tower_1/dense/**")):
    done = belfry("place", "mlp", "--devices", "cpu:0,cpu:1", "--batch", "8", "--move", f"{move}=cpu:1")
    expect(done.returncode == 1 and f'the rule "{move}" matches no node; did you mean {meant}?' in done.stderr, f"--move {move}: {done}")
done = belfry("place", "mlp", "--devices", "cpu:0,cpu:1", "--batch", "8", "--move", "tower_1/dense/matmul=cpu:0")
expect(done.returncode == 0 and re.search(r"by forecast, of costs that were not measured, a step takes [\d.]+ [mu]?s with --move, and [\d.]+ [mu]?s without", done.stderr), f"what a move does to a step: {done.stderr}")
done = belfry("place", "mlp", "--devices", "cpu:0", "--threads-per-tower", "4096", "--batch", "8")
expect(done.returncode == 0 and "4096 threads a tower take turns on " in done.stderr, f"more threads than cores: {done.stderr}")
done = belfry("place", "cifar10", "--cluster", "h100x8", "--devices", "gpu:0", "--batch", "100000")
expect(done.returncode == 0 and ("no kernels" in done.stderr or re.search(r"the host computes what GPUs read.*GPUs have no kernel for it: .*more elements than cuDNN counts", done.stderr)), f"what the host computes for GPUs, and why: {done.stderr}")
with tempfile.TemporaryDirectory() as folder:
    # What does not follow from a plan's decisions is told where it is derived anew, and nothing of a plan that holds.
    def anew(text):
        pathlib.Path(folder, "edited.json").write_text(text, encoding="utf-8")
        return subprocess.run([program, "place", "edited.json", "-o", "anew.json"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL).stderr

    made = belfry("place", "mlp", "--devices", "cpu:0,cpu:1", "--batch", "8", "--recompute", "2").stdout
    again = next(line for line in made.splitlines() if '"again": true' in line)
    expect("no decisions" not in anew(made) and "computed again" not in anew(made), f"a plan that holds: {anew(made)}")
    said = anew(re.sub(r'"kernel": "onednn_\w*"', '"kernel": "reference"', made, count=1))
    expect(re.search(r"kernels are no decisions, and are chosen anew: '.*': reference → onednn_.*; belfry run takes edited.json as it stands", said), f"an edited kernel: {said}")
    said = anew(made.replace(again, again.replace('"0-1": "cpu:0-1"', '"0-1": "cpu:0"')))
    expect(re.search(r"what is computed again goes where its node is: '.*\.again' from cpu:0 to cpu:0-1", said), f"a place of what is computed again: {said}")
    done = subprocess.run([program, "place", "mlp", "--inference", "--lr", "1"], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    expect(done.returncode == 2 and "--learning-rate is of training, and --inference has none" in done.stderr, f"--lr beside --inference: {done}")
for given, meant in (("cuda:0", "gpu:0"), ("GPU:1", "gpu:1"), ("cpu", "cpu:0")):
    done = belfry("place", "mlp", "--devices", given)
    expect(done.returncode == 2 and f"did you mean {meant}?" in done.stderr, f"--devices {given}: {done.stderr}")
expect(belfry("place", "mlp", "--devices", "cpu:0, cpu:1", "--batch", "8").returncode == 0, "a space behind a comma")
script = "COMP_WORDS=(belfry place x --dev); COMP_CWORD=3; _belfry; echo ${COMPREPLY[@]}; COMP_WORDS=(belfry comp); COMP_CWORD=1; _belfry; echo ${COMPREPLY[@]}"
done = subprocess.run(["bash", "-c", belfry("completion", "bash").stdout + script], capture_output=True, text=True)
expect(done.stdout.split() == ["--devices", "compare", "completion"] and not done.stderr, f"completion: {done}")
with tempfile.TemporaryDirectory() as folder:
    def there(*arguments):
        return subprocess.run([program, *arguments], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)

    done = there("show", "mnist_cnn", "--dot", "graph.dot")
    expect(done.returncode == 0, f"show --dot: {done}")
    dot = pathlib.Path(folder, "graph.dot").read_text(encoding="utf-8")
    expect(dot.startswith('digraph "mnist_cnn"') and "n0 -> " in dot, f"show --dot: {dot[:200]}")
    rows = struct.pack("<3920f", *[(i * 37 % 101) / 101 for i in range(3920)])
    header = json.dumps({"image": {"dtype": "F32", "shape": [5, 28, 28, 1], "data_offsets": [0, len(rows)]}}).encode()
    pathlib.Path(folder, "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + rows)
    at_once = there("predict", "mnist_cnn", "--feed", "x.safetensors", "--out", "one.safetensors", "--top", "2")
    in_parts = there("predict", "mnist_cnn", "--feed", "x.safetensors", "--out", "two.safetensors", "--batch", "2")
    expect(at_once.returncode == 0 and at_once.stdout.count("class") == 10 and in_parts.returncode == 0, f"predict: {at_once} {in_parts}")
    one, two = (struct.unpack("<50f", pathlib.Path(folder, f + ".safetensors").read_bytes()[-200:]) for f in ("one", "two"))
    expect(max(abs(a - b) for a, b in zip(one, two)) < 1e-5 and len(set(one)) > 40, f"predict in parts: {one} {two}")
    done = there("predict", "mnist_cnn", "--feed", "x.safetensors", "--batch", "2", "--fetch", "dense/bias")
    expect(done.returncode == 2 and "no row for each row" in done.stderr, f"predict of what has no rows: {done}")

print("\n".join(objections))
sys.exit(1 if objections else 0)
