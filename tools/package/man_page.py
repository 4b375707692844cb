"""Writes belfry.1 from what the program says of itself. Arguments: the program, the file."""

import pathlib
import re
import subprocess
import sys

program, target = sys.argv[1:]


def said(*words):
    return subprocess.run([program, *words], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(['.])", r"\\&\1", text)


def sections(text):
    """Of a help text: what it opens with, its lists of (term, meaning) by title, its example."""
    opening, _, rest = text.partition("\nUsage: ")
    usage, _, rest = rest.partition("\n")
    lists, title = {}, None
    for line in rest.splitlines():
        if m := re.fullmatch(r"(\w[\w ]*):", line):
            title = m.group(1)
            lists[title] = []
        elif title and re.match(r"  \S", line):
            term, meaning = re.match(r"  (\S.*?)(?:\s{2,}(\S.*))?$", line).groups()
            lists[title].append([term, meaning or ""])
        elif title and lists[title] and line.startswith("   "):
            lists[title][-1][1] += (" " if lists[title][-1][1] else "") + line.strip()
        elif not line.startswith("  "):
            title = None
    return opening.strip(), usage, lists, re.findall(r"^Example: (.*)", text, re.M)


def listed(items):
    for term, meaning in items:
        yield from (".TP", f"\\fB{roff(term)}\\fR", roff(meaning) or "\\&")


def page():
    text = said("--help")
    opening, usage, lists, _ = sections(text)
    codes, = re.findall(r"^Exit codes: (.*)", text, re.M)
    version = said("--version").split()[1]
    yield f'.TH BELFRY 1 "" "Belfry {version}" "User Commands"'
    yield from (".SH NAME", "belfry \\- " + roff(opening[0].lower() + opening[1:].rstrip(".")))
    yield from (".SH SYNOPSIS", ".B belfry", roff("VERB [ARGUMENTS]"))
    yield from (".SH OPTIONS", *listed(lists["Options"]))
    yield ".SH VERBS"
    for verb, _ in lists["Subcommands"]:
        opening, usage, inner, examples = sections(said(verb, "--help"))
        yield from (f".SS {roff(usage)}", roff(opening))
        for title in ("Positionals", "Subcommands", "Options"):
            yield from listed([i for i in inner.get(title, []) if not i[0].startswith("-h,")])
        for example in examples:
            yield from (".PP", "Example:", ".PP", ".nf", ".RS", roff(example), ".RE", ".fi")
    yield from (".SH EXIT STATUS", roff(codes))
    yield from (".SH ENVIRONMENT", *listed([("BELFRY_CACHE", "the folder of compiled kernels of GPUs"), ("BELFRY_CUDA_PATH", "the folder of NVIDIA's libraries"), ("BELFRY_CUDA_BACKEND", "the file of the GPU backend, if not libbelfry_cuda.so beside the library"), ("NO_COLOR", "no colours on a terminal")]))


pathlib.Path(target).write_text("\n".join(page()) + "\n", encoding="utf-8")
