"""The command line from outside: help, version, devices, wrong use. Argument: the program."""

import json
import subprocess
import sys

objections = []


def belfry(*arguments):
    return subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


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

print("\n".join(objections))
sys.exit(1 if objections else 0)
