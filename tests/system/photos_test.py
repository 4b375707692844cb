"""MobileNetV2 with weights trained elsewhere, on photos of pets: what `belfry evaluate` finds, and that fine-tuning learns.
Arguments: belfry, finetune, pretrained, the folder of shared data."""

import pathlib
import re
import subprocess
import sys
import tempfile

belfry, finetune, pretrained = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:4])
weights, photos = (pathlib.Path(sys.argv[4], "data", name) for name in ("mobilenetv2", "pets-cats-dogs"))
if not weights.is_dir() or not photos.is_dir():
    print("skipped: the photos and weights are not beside the source tree")
    sys.exit(77)
objections = []


def expect(condition, text):
    if not condition:
        objections.append(text)


def output_of(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    expect(done.returncode == 0, f"{command}: {done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    # The figures of the data's README, measured with NumPy on Pillow's pixels, which are rounded to bytes between the two axes.
    wanted = {"cat_or_dog": {"accuracy": (358, 370)}, "breeds": {"accuracy": (192, 240), "top_5": (234, 240)}}
    for line in output_of(pretrained, weights, photos, folder).splitlines():
        found = dict(re.findall(r"^(\w+) ([\d.]+)$", output_of(belfry, *line.split()[1:], "--devices", "cpu:0,cpu:1"), re.M))
        name = pathlib.Path(line.split()[2]).stem
        for metric, (right, count) in wanted.pop(name).items():
            expect(abs(float(found[metric]) * count - right) < 1.01, f"{name}: {metric} {float(found[metric]) * count:.1f} of {count}, not {right}")
    expect(not wanted, f"not evaluated: {wanted}")

# Three epochs of the head alone: better than the 50 dogs of 74.
said = output_of(finetune, photos, weights / "mobilenet_v2_0.35_224_no_top.safetensors", "--frozen", "--towers", "2", "--batch", "4", "--epochs", "3", "--image", "96")
found = re.search(r"validation accuracy ([\d.]+) % of (\d+)", said)
expect(found and int(found.group(2)) == 74 and float(found.group(1)) > 75, f"fine-tuning of the head: {found and found.group(0)}")

print("\n".join(objections))
sys.exit(1 if objections else 0)
