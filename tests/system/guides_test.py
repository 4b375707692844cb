"""Named JSON blocks and sh blocks of the guides: every line runs, in their order, beside a folder of pictures, and prints what blocks without a language show behind them. Arguments: the program, an example's, the guides."""

import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import zlib

programs = {"belfry": str(pathlib.Path(sys.argv[1]).resolve()), "build/examples/serve": str(pathlib.Path(sys.argv[2]).resolve())}
guides = [pathlib.Path(g) for g in sys.argv[3:]]


def draw_pictures(folder):
    """Two classes of eight pictures: pictures/dark/0.png and so on."""
    for name, low in (("dark", 20), ("light", 150)):
        (folder / "pictures" / name).mkdir(parents=True)
        for k in range(8):
            rows = b"".join(b"\0" + bytes(low + (x * 3 + y * k) % 80 for x in range(30)) for y in range(30))
            parts = [(b"IHDR", struct.pack(">IIBBBBB", 30, 30, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
            data = b"".join(struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts)
            (folder / "pictures" / name / f"{k}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + data)


objections, lines, shown = [], 0, 0
for guide in guides:
    with tempfile.TemporaryDirectory() as folder:
        draw_pictures(pathlib.Path(folder))
        printed = ""
        for name, text, commands, words_before, output in re.findall(r"`([\w.]+\.json)`:\n\n```json\n(.*?)^```|^```sh\n(.*?)^```|^([^\n]*)\n\n```\n(.*?)^```", guide.read_text(encoding="utf-8"), re.M | re.S):
            if name:
                pathlib.Path(folder, name).write_text(text, encoding="utf-8")
            for line in commands.splitlines():
                words = shlex.split(line)
                done = subprocess.run([programs.get(words[0], programs["belfry"])] + words[1:], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
                lines, printed = lines + 1, printed + done.stdout
                if words[0] not in programs or done.returncode:
                    objections.append(f"{guide.name}: {line}: {done.stderr[-400:]}")
                if words[0] == "build/examples/serve":  # answers that go nowhere are a failure
                    with open("/dev/full", "w") as full:
                        done = subprocess.run([programs[words[0]]] + words[1:], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
                    if done.returncode != 1 or "standard output" not in done.stderr:
                        objections.append(f"{guide.name}: {line} on a full disk: {done}")
            # Diagrams stand before all commands.
            for line in output.splitlines() + re.findall(r"\d+ ms a step", words_before) if printed else []:
                shown += 1
                if line not in printed:
                    objections.append(f"{guide.name}: no command before it prints: {line}")
if lines < 25 or shown < 9:
    objections.append(f"only {lines} lines and {shown} of what they print were found")

print("\n".join(objections))
sys.exit(1 if objections else 0)
