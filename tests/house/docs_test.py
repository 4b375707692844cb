"""What the guides show is what is built: blocks that follow a file's name are that file, programs elsewhere the README's; Python is Python; links and named files exist."""

import json
import re

import source_tree

GUIDES = ["README.md"] + [p.relative_to(source_tree.ROOT).as_posix() for p in sorted((source_tree.ROOT / "docs").glob("*.md"))]


def objections():
    program, = re.findall(r"^```cpp\n(.*?)^```", source_tree.text("README.md"), re.M | re.S)
    for guide in GUIDES:
        text = source_tree.text(guide)
        shown = re.findall(r"`([\w./]+\.(?:h|cpp))`:\n\n```cpp\n(.*?)^```", text, re.M | re.S)
        for path, block in shown:
            if not (source_tree.ROOT / path).is_file():
                yield f"{guide}: shows {path}, which does not exist"
            elif source_tree.text(path) != block:
                yield f"{guide}: the block is not what stands in {path}"
        for path, block in re.findall(r"`([\w./]+)\.cpp`:\n\n```cpp\n(?:(?!^```).)*?^```\n\nIt prints\n\n```\n(.*?)^```", text, re.M | re.S):
            if source_tree.text(path + ".txt") != block:
                yield f"{guide}: the block is not what {path} prints"
        # A block behind a link to a program is a part of it, and so is the one after that.
        for path, *blocks in re.findall(r"\]\(\.\./(examples/[\w./]+\.cpp)\)[^\n]*:\n\n```cpp\n(.*?)^```\n\n[^\n]*:\n\n```cpp\n(.*?)^```", text, re.M | re.S):
            for block in blocks:
                if block not in source_tree.text(path):
                    yield f"{guide}: a block is not a part of {path}"
        if guide == "docs/add_an_op.md" and len(shown) != 3:
            yield f"{guide}: shows {len(shown)} files, not 3"
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
            if language == "cpp" and "int main(" in block and block != program and block not in [b for _, b in shown]:
                yield f"{guide}: a program is neither a file of examples/ nor the README's, which run"
            if language == "python":
                try:
                    compile(block, guide, "exec")
                except SyntaxError as e:
                    yield f"{guide}: a block is no Python: {e}"
            if not language:  # a diagram, or what is printed
                room = re.match(r"\w+/\w+/", block)
                for path in re.findall(r"(?<!\S)(?:\w+/)*[a-z]\w*(?:/|\.(?:cpp|h))(?!\S)", block):
                    if not any((source_tree.ROOT / folder / path).exists() for folder in ["", room[0] if room else ""]):
                        yield f"{guide}: a diagram names {path}, which does not exist"
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for span in re.findall(r'`(\{"[^`…]*\})`', prose):
            try:
                json.loads(span)
            except ValueError as e:
                yield f"{guide}: {span} is no JSON: {e}"
        for path in re.findall(r"\]\(([^)#:]+)\)", prose):
            if not ((source_tree.ROOT / guide).parent / path).exists():
                yield f"{guide}: the link {path} leads nowhere"
        # The design also speaks of what it leaves room for.
        if guide != "docs/design.md":
            for path in re.findall(r"`((?:graph|ops|placer|executor|frontends|tests|tools|docs|examples)/[\w./-]*\w/?)`", prose):
                if not (source_tree.ROOT / path).exists():
                    yield f"{guide}: names {path}, which does not exist"


if __name__ == "__main__":
    source_tree.finish(list(objections()), f"{len(GUIDES)} guides show what is there")
