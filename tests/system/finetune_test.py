"""examples/finetune on drawn pictures and weights that belfry has just trained: its head alone, then all of it. Arguments: belfry, finetune."""

import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

belfry, finetune = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:3])
objections = []


def draw_pictures(folder):
    """Two classes that tell themselves apart by their ground: photos/train/dark/0.png and so on."""
    for part, count in (("train", 16), ("val", 8)):
        for name, low in (("dark", 20), ("light", 150)):
            (folder / "photos" / part / name).mkdir(parents=True)
            for k in range(count):
                rows = b"".join(b"\0" + bytes(low + (x * 3 + y * k) % 80 for x in range(32)) for y in range(32))
                parts = [(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
                data = b"".join(struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts)
                (folder / "photos" / part / name / f"{k}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + data)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    draw_pictures(folder)

    def output_of(*command):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            objections.append(f"{command}: {done.stderr[-600:]}")
        return done.stdout

    output_of(belfry, "train", "mobilenet_v2:alpha=0.35,image=32,classes=2", "--data", "photos", "--batch", "8", "--epochs", "1", "--quiet", "--out", "run")
    small = ["--towers", "2", "--batch", "4", "--epochs", "2", "--image", "32"]
    said = [output_of(finetune, "photos", "run/state.safetensors", "--frozen", *small, "--save", "head.safetensors"), output_of(finetune, "photos", "head.safetensors", *small)]
    for text in said:
        losses = [float(loss) for loss in re.findall(r"rate \S+  loss ([\d.]+)", text)]
        if len(losses) != 2 or max(losses) > 10 or not re.search(r"^validation accuracy [\d.]+ % of 16 photos$", text, re.M):
            objections.append(f"fine-tuning: {text}")

print("\n".join(objections))
sys.exit(1 if objections else 0)
