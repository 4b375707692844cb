"""C++ of README.md and docs/*.md compiles: blocks, and what stands whole in the prose, in one translation unit. An error names the guide and its line.

Blocks of programs in examples/ are left to these, which docs_test.py compares them with. What else a fragment stands in is below. Arguments: the include
folder of the build tree, the compiler with its arguments."""

import re
import subprocess
import sys

import source_tree

HEADERS = """algorithm cstdio memory span string vector belfry/belfry.h belfry/frontends/cli/cli.h belfry/frontends/data/cifar10.h belfry/frontends/data/distort.h belfry/frontends/data/image_folder.h
belfry/frontends/data/images.h belfry/frontends/files/files.h belfry/frontends/json/plan_file.h belfry/frontends/nn/nets/nets.h belfry/frontends/nn/sequential.h belfry/frontends/session/compare.h
belfry/graph/plan/forecast.h belfry/graph/split_rules.h belfry/ops/build.h belfry/placer/cut/launches.h""".split()
# Names that the guides take as known.
AROUND = """
struct Both : DataSet { DataSet train, test; };  // `data` is a set, or parts of one
extern Both data;
extern Builder b;
extern Session session;
extern Value x, y, condition, image, label, loss, q, k, v, qkv, mask, next, numerator, denominator;
extern Graph graph;
extern Cluster cluster;
extern CostTable costs;
extern PlacedGraph plan;
extern std::shared_ptr<const OpSet> ops;
extern std::shared_ptr<const Library> library;
extern std::vector<OpCase> cases;
extern Batch feeds;
extern Results results;
extern std::vector<float> numbers;
extern std::string file, text, name, dir;
extern std::int64_t batch, height, width, B;
extern std::uint64_t seed;
extern double low, high;
extern FitOptions options;
extern int argc;
extern char** argv;
"""
AROUND_IN = {
    "docs/add_a_strategy.md": "extern TowerGraph graph; extern Launches launches; extern int node; extern DeviceId device;",
    "docs/design.md": "void softmax_reference(const Call&); extern Strategy strategy;",
    "docs/serving.md": "extern std::vector<std::byte> bytes; extern HostTensor photo, pixels; extern RunFolder run;",
}
# Other libraries' names, macros of tests, and notation.
NO_FRAGMENT = r"belfry |python3|tf\.|torch\.|omp_|find_package|target_link|set\(|\.|fork\(|ImageDataGenerator|EXPECT_|\w+<T>|(?:data|divide|output|partial|place|plan|prepare|rows|run|split|state|step|weights)\("
FRAGMENT = r"[A-Z]\w+::\w+|nn::\w+|(?:\[\[nodiscard\]\] )?(?:auto \w+ = |\w+ (?=\w+\())?[\w:.]+(?:<\w+>)?[({].*[)}](?:\.\w+|\[[^\]]*\])*;?(?: [*+/-] .*)?"


def lines_of(text, start):
    return text.count("\n", 0, start) + 1


def blocks(text, programs):
    """(line, code) of each block that no program has."""
    for m in re.finditer(r"^```cpp\n(.*?)^```", text, re.M | re.S):
        if not any(m[1] in program for program in programs):
            yield lines_of(text, m.start(1)), m[1]


def spans(guide, text):
    """(line, code) of what stands whole in the prose; … stands for options that are left out."""
    blank = lambda m: re.sub(r"[^\n]", " ", m[0])
    prose = re.sub(r"^```.*?^```", blank, text, flags=re.M | re.S)
    if guide.startswith("docs/from_"):  # the first column is of the other library
        prose = re.sub(r"^\|[^|\n]*\|", blank, prose, flags=re.M)
    for m in re.finditer(r"`([^`\n]+)`", prose):
        code = re.sub(r"(?<=[,=] )…", "{}", m[1].replace("{…}", "{}"))
        if re.fullmatch(FRAGMENT, code) and "…" not in code and not re.match(NO_FRAGMENT, code):
            yield lines_of(text, m.start()), code


def as_statement(code, enums):
    if m := re.fullmatch(r"([A-Z]\w+)::(\w+)", code):
        return f"static_cast<void>({code});" if m[1] in enums else f"struct Has : {m[1]} {{ using {code}; }};"
    if re.fullmatch(r"nn::\w+", code):
        return f"using {code};"
    if re.match(r"\[\[|auto |\w+ \w+\(", code):
        return code.rstrip(";") + ";"
    return f"static_cast<void>({code});"


def unit(guides, programs, enums):
    """The translation unit, and how many fragments it has."""
    own = [h for text in guides.values() for _, code in blocks(text, programs) for h in re.findall(r"^#include <(.*)>", code, re.M)]
    count, out = 0, [f"#include <{h}>" for h in sorted({*HEADERS, *own})] + ["using namespace belfry;", AROUND]
    for k, (guide, text) in enumerate(guides.items()):
        out.append(f"namespace guide_{k} {{\n{AROUND_IN.get(guide, '')}")
        for line, code in blocks(text, programs):
            code = re.sub(r"^#include.*", "", code, flags=re.M)
            whole = re.search(r"^(?:struct|class|enum|template|namespace)\b|^[\w:<>&* ]+\([^()]*\)(?: const)? \{$", code, re.M)
            out += [f"namespace block_{line} {{" if whole else f"void block_{line}() {{", f'#line {line} "{guide}"', code + "}"]
            count += 1
        for line, code in spans(guide, text):
            out += [f"void span_{count}() {{", f'#line {line} "{guide}"', as_statement(code, enums), "}"]
            count += 1
        out.append("}")
    return "\n".join(out) + "\n", count


if __name__ == "__main__":
    guides = {g: source_tree.text(g) for g in ["README.md"] + [p.relative_to(source_tree.ROOT).as_posix() for p in sorted((source_tree.ROOT / "docs").glob("*.md"))]}
    programs = [source_tree.text(p) for p in source_tree.files(".h", ".cpp", folders=("examples",))]
    enums = {name for h in source_tree.files(".h") for name in re.findall(r"\benum class (\w+)", source_tree.text(h))}
    text, count = unit(guides, programs, enums)
    done = subprocess.run(sys.argv[2:] + ["-std=c++20", "-fsyntax-only", "-w", "-fno-diagnostics-show-caret", "-I" + sys.argv[1], "-x", "c++", "-"], input=text, text=True, capture_output=True)
    objections = [done.stderr] if done.returncode else []
    if count < 90:
        objections.append(f"only {count} fragments were found")
    source_tree.finish(objections, f"{count} fragments of C++ in the guides compile")
