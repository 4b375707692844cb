"""A graph written by Python, placed, drawn and trained by belfry. Arguments: the program, and a folder to work in."""
import json
import subprocess
import sys

if len(sys.argv) != 3:
    sys.exit(f"usage: python3 {sys.argv[0]} BELFRY FOLDER, the program (build/belfry) and a folder to work in")
belfry, folder = sys.argv[1:]


def dense(name, x, units, inputs):
    variables = [{"name": f"{name}/kernel", "dtype": "f32", "shape": [inputs, units], "init": {"kind": "glorot_uniform"}}, {"name": f"{name}/bias", "dtype": "f32", "shape": [units], "init": {"kind": "zeros"}}]
    return variables, [{"name": f"{name}/product", "op": "matmul", "inputs": [x, f"{name}/kernel"]}, {"name": name, "op": "add", "inputs": [f"{name}/product", f"{name}/bias"]}]


graph = {"belfry": 1, "name": "from_python", "variables": [], "nodes": [{"name": "layer_0", "op": "reshape", "inputs": ["image"], "attributes": {"shape": ["batch", 784]}}],
         "inputs": [{"name": "image", "dtype": "f32", "shape": ["batch", 28, 28, 1]}, {"name": "label", "dtype": "i32", "shape": ["batch"]}]}
for k, (inputs, units) in enumerate([(784, 64), (64, 32), (32, 10)], 1):
    variables, nodes = dense(f"layer_{k}", f"layer_{k - 1}" if k == 1 else f"relu_{k - 1}", units, inputs)
    graph["variables"] += variables
    graph["nodes"] += nodes + ([{"name": f"relu_{k}", "op": "relu", "inputs": [f"layer_{k}"]}] if k < 3 else [])
graph["nodes"] += [{"name": "of_row", "op": "sparse_softmax_cross_entropy", "inputs": ["layer_3", "label"]}, {"name": "loss", "op": "reduce_mean", "inputs": ["of_row"]}]
graph |= {"outputs": ["layer_3"], "train": {"loss": "loss", "optimizer": {"kind": "adam", "learning_rate": 0.002}}}
with open(f"{folder}/from_python.json", "w", encoding="utf-8") as out:
    json.dump(graph, out)
for line in ("data digits --out digits --train 2000 --test 500", "place from_python.json -o two.json --devices cpu:0,cpu:1 --batch 32", "show two.json --svg two.svg",
             "train two.json --data digits --epochs 3", "forecast from_python.json --devices cpu:0 --batch 32"):
    done = subprocess.run([belfry, *line.split()], cwd=folder, text=True, capture_output=True, check=True)
    print(f"belfry {line}")
    if line.startswith("train"):
        print(done.stdout.strip())
