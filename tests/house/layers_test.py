"""Who may include whom: every #include of every layer against one table. The first row whose files match counts."""

import re

import source_tree

GRAPH = r"graph/(?!plan/).*"
PLAN = r"graph/plan/.*"
OPS = r"ops/.*(?<!_cpu\.h)(?<!_cuda\.h)(?<!_cuda_internal\.h)"
LEAF = r"graph/(device_id|dtype|error|host_tensor|shape)\.h"
DEVICE = r"executor/device/.*"
BELOW_SESSION = [GRAPH, PLAN, r"ops/.*", r"placer/.*", r"executor/.*", r"frontends/(json|files|state|data|draw|onnx|builder|nn)/.*"]
OWN = "{own}/.*"  # the file's folder: ops/softmax, frontends/json

TABLE = [
    # files, and what they may include
    (r"graph/plan/.*",                                      [GRAPH, PLAN]),
    (r"graph/.*",                                           [GRAPH]),
    (r"ops/([^/]*kernels[^/]*|.*_(cpu|cuda)(_internal)?)\.(h|cpp|cu)",  [GRAPH, DEVICE, r"executor/(kernel|join_request|joint_launch|leeway)\.h", r"ops/[^/]*\.h", r"ops/(cpu|cuda)/.*", r"ops/.*/formulas\.h", OWN]),  # formulas: scalar functions that references and kernels share
    (r"ops/(cpu|cuda)/.*",                                  [GRAPH, DEVICE, r"executor/(kernel|join_request|joint_launch|leeway)\.h", r"ops/[^/]*\.h", OWN]),
    (r"ops/(all_ops\.cpp|build\.h)",                        [GRAPH, OPS]),                   # the explicit lists
    (r"ops/[^/]*",                                          [GRAPH, r"ops/[^/]*\.h"]),
    (r"ops/.*",                                             [GRAPH, r"ops/[^/]*\.h", OWN]),  # a room: others only through build.h
    (r"placer/.*",                                          [GRAPH, PLAN, r"placer/.*"]),
    (r"executor/device/.*",                                 [LEAF, DEVICE]),
    (r"executor/.*",                                        [GRAPH, PLAN, r"executor/.*"]),
    (r"frontends/data/.*",                                  [GRAPH, PLAN, r"frontends/(files|state)/.*", OWN]),  # arrays are data too
    (r"frontends/(json|state|draw|onnx)/.*",                [GRAPH, PLAN, r"frontends/files/.*", OWN]),
    (r"frontends/files/.*",                                 [LEAF, OWN]),
    (r"frontends/builder/.*",                               [GRAPH, OPS, OWN]),
    (r"frontends/nn/.*",                                    [GRAPH, OPS, r"frontends/builder/.*", OWN]),
    (r"frontends/session/.*",                               BELOW_SESSION + [OWN]),
    (r"frontends/train/.*",                                 BELOW_SESSION + [r"frontends/session/.*", OWN]),
    (r"frontends/belfry\.h",                                BELOW_SESSION + [r"frontends/(session|train)/.*"]),
    (r"frontends/cli/.*",                                   BELOW_SESSION + [r"frontends/(session|train)/.*", r"belfry\.h", OWN]),
]

# Public headers speak std and Belfry alone. A header here may name these besides.
FOREIGN = {
    "graph/boost_graph.h": r"boost/.*",  # the adaptor, which graph.h does not include
}
GENERATED = {"build_commit.h", "cluster_files.h", "build_facts.h", "page_files.h"}


def row_of(path):
    return next((allowed for files, allowed in TABLE if re.fullmatch(files, path)), None)


def objections():
    for path in source_tree.files(".h", ".cpp", ".cu"):
        allowed = row_of(path)
        if allowed is None:
            yield f"{path}: no row of the table says what this file may include"
            continue
        own = re.escape("/".join(path.split("/")[:2]))
        for number, name, quoted in source_tree.includes(path):
            if name in GENERATED:
                continue
            if quoted:
                yield f'{path}:{number}: "{name}" is written <belfry/…>'
            elif name.startswith("belfry/"):
                if not any(re.fullmatch(pattern.replace("{own}", own), name[len("belfry/"):]) for pattern in allowed):
                    yield f"{path}:{number}: {path.rsplit('/', 1)[0]} may not include {name}"
            elif path.endswith(".h") and not path.endswith("_internal.h") and re.search(r"[./]", name) and not re.fullmatch(FOREIGN.get(path, "(?!)"), name):
                yield f"{path}:{number}: a public header names <{name}>, which is neither std nor Belfry"


if __name__ == "__main__":
    source_tree.finish(list(objections()), "every include is in the table")
