"""The command line from outside: help, version, devices, wrong use. Argument: the program."""

import json
import pathlib
import re
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

print("\n".join(objections))
sys.exit(1 if objections else 0)
