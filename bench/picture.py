"""Sizes of pictures and pages, how long they take to draw, and how long a browser takes to show a page: bench/picture.py BELFRY [FOLDER]

Needs `chromium` for the last; with a FOLDER the files stay there, with a PNG of every picture and page, in light and dark."""

import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

program = str(pathlib.Path(sys.argv[1]).resolve())
PLANS = [
    ("small", ["mnist_cnn", "--devices", "cpu:0,cpu:1", "--batch", "64", "-O", "variables=cpu:0"], []),
    ("middle", ["mobilenet_v2", "--devices", "sim:0-3", "--batch", "64", "-O", "variables=cpu:0"], []),
    ("stages", ["transformer:blocks=4", "--devices", "sim:0-3", "--batch", "64", "--strategy", "layers"], []),
    ("large", ["transformer:blocks=300", "--devices", "sim:0-3", "--batch", "64", "-O", "variables=spread"], []),
    ("moved", ["small.json", "--move", "tower_1/dense/**=cpu:0"], ["--beside", "small.json"]),
]
# Pages are shot at a place that shows what they do.
PLACES = {"middle": "open=8&find=block_4_expand/conv", "large": "find=block_150_attention/scaled_dot_product_attention"}


def chromium(*arguments):
    return subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments], capture_output=True, text=True, timeout=120).stdout


def shoot(page, out, size, dark=False):
    chromium("--virtual-time-budget=4000", f"--screenshot={out}", f"--window-size={size}", *(["--blink-settings=preferredColorScheme=0"] if dark else []), page)


def measure(folder, stays):
    for name, place, show in PLANS:
        subprocess.run([program, "place", *place, "-o", f"{name}.json"], cwd=folder, check=True, capture_output=True)
        start = time.perf_counter()
        subprocess.run([program, "show", f"{name}.json", "--svg", f"{name}.svg", "--html", f"{name}.html", *show], cwd=folder, check=True, capture_output=True)
        seconds = time.perf_counter() - start
        svg, page = folder / f"{name}.svg", folder / f"{name}.html"
        width, height = re.search(r'width="(\d+)" height="(\d+)"', svg.read_text(encoding="utf-8")).groups()
        nodes = page.read_text(encoding="utf-8").count("\n[")
        line = f"{name:7} {nodes:6} lines of nodes and streams, svg {svg.stat().st_size / 1024:6.0f} KiB of {width} x {height}, page {page.stat().st_size / 1024:6.0f} KiB, read and drawn in {seconds:5.2f} s"
        try:
            loads = []
            for _ in range(5):
                # The page notes when it is laid out, and when the first frame was painted, in milliseconds since it was asked for.
                loads += [int(ms) for ms in re.findall(r'^<html[^>]*data-painted="(\d+)"', chromium("--timeout=20000", "--dump-dom", page.as_uri()), re.M)]
            line += f", shown after {statistics.median(loads):.0f} ms ({min(loads)} to {max(loads)})" if loads else "; the browser did not say when it had painted"
            if stays:
                for dark in (False, True):
                    shade = "_dark" if dark else ""
                    shoot(svg.as_uri(), folder / f"{name}{shade}.png", f"{width},{height}", dark)
                    shoot(f"{page.as_uri()}#{PLACES.get(name, '')}", folder / f"{name}_page{shade}.png", "1500,950", dark)
        except FileNotFoundError:
            line += "; no chromium is here to show it"
        print(line, flush=True)


if len(sys.argv) > 2:
    pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    measure(pathlib.Path(sys.argv[2]).resolve(), True)
else:
    with tempfile.TemporaryDirectory() as scratch:
        measure(pathlib.Path(scratch), False)
