"""Named JSON blocks and sh blocks of the guides: every line runs, in their order. Arguments: the program, the guides."""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

program, guides = str(pathlib.Path(sys.argv[1]).resolve()), [pathlib.Path(g) for g in sys.argv[2:]]
objections, lines = [], 0
for guide in guides:
    with tempfile.TemporaryDirectory() as folder:
        for name, text, commands in re.findall(r"`([\w.]+\.json)`:\n\n```json\n(.*?)^```|^```sh\n(.*?)^```", guide.read_text(encoding="utf-8"), re.M | re.S):
            if name:
                pathlib.Path(folder, name).write_text(text, encoding="utf-8")
            for line in commands.splitlines():
                words = shlex.split(line)
                done = subprocess.run([program] + words[1:], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
                lines += 1
                if words[0] != "belfry" or done.returncode:
                    objections.append(f"{guide.name}: {line}: {done.stderr[-400:]}")
if lines < 9:
    objections.append(f"only {lines} lines were found")

print("\n".join(objections))
sys.exit(1 if objections else 0)
