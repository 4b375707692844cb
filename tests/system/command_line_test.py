"""The command line from outside: help, version, devices, wrong use. Argument: the program."""

import json
import pathlib
import re
import resource
import shlex
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
expect(done.returncode == 0 and done.stdout.startswith("belfry ") and "oneDNN" in done.stdout, f"--version: {done}")
done = belfry("devices")
expect(done.returncode == 0 and done.stdout.startswith("cpu:0") and "oneDNN" in done.stdout, f"devices: {done}")
done = belfry("devices", "--json")
facts = json.loads(done.stdout)
expect(facts["devices"][0]["id"] == "cpu:0" and facts["host"]["cores"] == len(facts["devices"]) and facts["host"]["memory_bytes"] > 0, f"devices --json: {facts}")
for arguments in ([], ["devces"], ["devices", "--jsn"], ["--vers"]):
    done = belfry(*arguments)
    expect(done.returncode == 2 and done.stderr and not done.stdout, f"wrong use {arguments}: {done}")
expect("did you mean devices" in belfry("devces").stderr, "a misspelt verb gets no suggestion")
verbs = [line.split()[0] for line in belfry("--help").stdout.split("Subcommands:")[1].splitlines() if line.startswith("  ") and line[2] != " "]
for verb in verbs:
    done = belfry(verb, "--help")
    expect(done.returncode == 0 and "Example: belfry " + verb in done.stdout, f"{verb} --help shows no example")

# The README's graph file and the lines that follow it.
readme = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
graph, = re.findall(r"^```json\n(.*?)^```", readme, re.M | re.S)
lines, = re.findall(r"^```sh\n(.*?)^```", readme, re.M | re.S)
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "digits.json").write_text(graph, encoding="utf-8")
    for line in lines.splitlines():
        done = subprocess.run([program] + shlex.split(line)[1:], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL)
        expect(done.returncode == 0, f"README: {line}: {done.stderr}")
    expect("product" in done.stdout and "decision" in done.stdout, f"README: the diff says {done.stdout!r}")
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

    # A plan given is what runs, and where it is not that is said.
    def here(*arguments, **options):
        return subprocess.run([program, *arguments], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL, **options)

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
    done = here("run", "small_plan.json", "--feed", "x.safetensors", "--fetch", "y")
    expect(done.returncode == 0 and "not the plan that was given runs" in done.stderr and "fetching y besides" in done.stderr, f"run of a plan with another fetch: {done}")
    plan.write_text(text.replace('"kernel": "simd_unary"', '"kernel": "simd_nonsense"'), encoding="utf-8")
    expect(plan.read_text(encoding="utf-8") != text, "small_plan.json names no simd_unary")
    for arguments in (["--fetch", "y"], ["--steps", "1"], []):
        done = here("run", "small_plan.json", "--feed", "x.safetensors", *arguments)
        expect(done.returncode == 1 and "'simd_nonsense', which is not here" in done.stderr and "but the file says" in done.stderr, f"a kernel that is not here, {arguments}: {done}")
    # Rules: a placement file's go before what the graph requests, and one that decides nothing is refused.
    rules = {"belfry": 1, "placement": [{"match": "**", "device": "cpu:0"}]}
    pathlib.Path(folder, "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    done = here("place", "small.json", "--placement", "rules.json")
    expect(done.returncode == 0 and "cpu:1" not in done.stdout.split('"nodes"')[1].replace('"device": "cpu:1"', ""), f"a placement file loses to a request: {done}")
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

print("\n".join(objections))
sys.exit(1 if objections else 0)
