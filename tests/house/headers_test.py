"""Each header includes what it names, and compiles.

Arguments: the include folder of the build tree, the folder of CUDA's headers or nothing, then the compiler with its arguments. Without
that folder, headers that need them are not compiled."""

import concurrent.futures
import functools
import os
import pathlib
import re
import subprocess
import sys

import source_tree

# Where a name of a library is declared. `std::int64_t` and its like come with any header in practice; all others are asked for.
DECLARED = {
    "algorithm": "all_of any_of clamp copy copy_n count_if equal fill fill_n find find_if lower_bound max max_element min min_element reverse rotate sort stable_sort transform upper_bound",
    "array": "array to_array",
    "atomic": "atomic memory_order_acquire memory_order_relaxed memory_order_release memory_order_seq_cst",
    "bit": "bit_cast bit_ceil countr_zero endian popcount",
    "cfenv": "fenv_t",
    "chrono": "chrono",
    "cmath": "ceil cos erf erfc exp expm1 floor fma isfinite isinf isnan log log1p log2 pow rint round sin sqrt tanh trunc",
    "compare": "partial_ordering strong_ordering",
    "concepts": "convertible_to derived_from floating_point integral invocable same_as",
    "condition_variable": "condition_variable",
    "cstdint": "",
    "cstdlib": "aligned_alloc free getenv",
    "cstring": "memchr memcmp memcpy memset strcmp strlen",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr rethrow_exception",
    "filesystem": "filesystem",
    "fstream": "fstream ifstream ofstream",
    "functional": "function hash less",
    "future": "async future future_status packaged_task promise shared_future",
    "initializer_list": "initializer_list",
    "ios": "ios streamsize",
    "iosfwd": "istream ostream",
    "iterator": "back_inserter distance forward_iterator_tag istreambuf_iterator next prev",
    "limits": "numeric_limits",
    "map": "map multimap",
    "memory": "enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "lock_guard mutex once_flag scoped_lock unique_lock",
    "new": "align_val_t bad_alloc",
    "numbers": "numbers",
    "numeric": "accumulate iota reduce",
    "optional": "nullopt optional",
    "random": "mt19937 mt19937_64",
    "ranges": "ranges views",
    "set": "multiset set",
    "span": "as_bytes as_writable_bytes span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string": "getline stod stoi string to_string",
    "string_view": "string_view",
    "thread": "jthread this_thread thread",
    "tuple": "tie tuple",
    "type_traits": "conditional_t decay_t is_floating_point_v is_integral_v is_same_v is_signed_v is_unsigned_v make_unsigned_t remove_cvref_t",
    "typeinfo": "type_info",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "as_const declval exchange forward move pair swap",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
}
# Declared by more than one header, or by whatever brings their type.
ANYWHERE = "abs byte get int8_t int16_t int32_t int64_t ptrdiff_t size_t uint8_t uint16_t uint32_t uint64_t uintptr_t".split()
# Headers that bring others by the standard or by their contract.
BRINGS = {"filesystem": ["chrono"], "map": ["utility"], "unordered_map": ["utility"], "memory": ["utility"], "optional": ["utility"], "vector": ["initializer_list"], "string": ["initializer_list", "string_view"],
          "fstream": ["ios", "iosfwd"], "variant": ["utility"], "tuple": ["utility"], "functional": ["utility"], "algorithm": ["utility"], "concepts": ["type_traits"], "stdexcept": ["exception"]}
HOME = {name: header for header, names in DECLARED.items() for name in names.split()}
LIBRARIES = {"fmt": "fmt/format.h", "nlohmann": "nlohmann/json.hpp", "dnnl": "dnnl.hpp", "boost": None}


@functools.cache
def code(path):
    """The text without comments and quoted text."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", source_tree.text(path), flags=re.S)


def path_of(name):
    return "frontends/belfry.h" if name == "belfry/belfry.h" else name.removeprefix("belfry/")


def included(path, seen):
    """All headers of libraries that come with one of ours."""
    if path in seen:
        return set()
    seen.add(path)
    found = set()
    for _, name, quoted in source_tree.includes(path):
        inner = (pathlib.PurePosixPath(path).parent / name).as_posix() if quoted else path_of(name)
        if (source_tree.ROOT / inner).is_file():
            found |= included(inner, seen)
        else:
            found |= {name, *BRINGS.get(name, [])}
    return found


def closure(path, seen):
    """All headers of ours that come with one of ours, itself among them."""
    if path not in seen:
        seen.add(path)
        for _, name, quoted in source_tree.includes(path):
            inner = (pathlib.PurePosixPath(path).parent / name).as_posix() if quoted else path_of(name)
            if (source_tree.ROOT / inner).is_file():
                closure(inner, seen)
    return seen


def declared_in(headers):
    """Types and functions of namespaces, with the one header that declares them."""
    homes = {}
    for path in headers:
        for m in re.finditer(r"^(?! )(?:template <[^\n]*>\n)?(?:(?:enum )?(?:class|struct) (\w+)[^;\n]*\{|using (\w+) =|(?:inline |constexpr |\[\[noreturn\]\] )*[\w:<>,&* ]+[ &*](\w+)\()", code(path), re.M):
            homes.setdefault(next(filter(None, m.groups())), set()).add(path)
    return {name: homes.pop() for name, homes in homes.items() if len(homes) == 1}


def names_without_include(path, declared):
    text, has = code(path), included(path, set())
    for name in sorted(set(re.findall(r"\bstd::(\w+)", text)) - set(ANYWHERE)):
        if name not in HOME:
            yield f"{path} names std::{name}, which the table of headers_test.py lacks"
        elif HOME[name] not in has:
            yield f"{path} names std::{name} without #include <{HOME[name]}>"
    for space, header in LIBRARIES.items():
        if header and re.search(rf"\b{space}::", text) and header not in has:
            yield f"{path} names {space}:: without #include <{header}>"
    ours = closure(path, set())
    # What is declared ahead, nested or a member as well.
    own = {n for h in ours for n in re.findall(r"\b(?:class|struct|enum|using|typename|class\.\.\.) (\w+)", code(h))}
    own |= {n for h in ours for n in re.findall(r"^ +(?!return|throw)[\w:<>,&* ]+[ &*](\w+)\(", code(h), re.M)}
    for name in sorted(set(re.findall(r"(?<![.>:\w])(\w+)\b", text)) - own):
        # Short words are parameters and members too; a function counts where it is called.
        home = declared.get(name)
        if home and home not in ours and (name[0].isupper() or re.search(rf"(?<![.>\w&*]){name}\(", text)):
            yield f"{path} names {name} without #include <belfry/{home}>"


def compiled(headers):
    """Objections of the compiler to some headers, each included twice: what lacks `#pragma once` shows."""
    names = ["belfry.h" if h == "frontends/belfry.h" else h for h in headers for _ in range(2)]
    cuda = ["-isystem" + sys.argv[2]] if sys.argv[2] else []
    command = sys.argv[3:] + ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fopenmp", "-I" + sys.argv[1], *cuda, "-x", "c++", "-"]
    done = subprocess.run(command, input="".join(f"#include <belfry/{n}>\n" for n in names), text=True, capture_output=True)
    return f"{', '.join(headers)}:\n{done.stderr}" if done.returncode else None


if __name__ == "__main__":
    headers = source_tree.files(".h")
    declared = declared_in(headers)
    objections = [o for h in headers for o in names_without_include(h, declared)]
    # What a header lacks is seen above, so the compiler may take many at a time, which share what they include.
    cores = len(os.sched_getaffinity(0))
    here = [h for h in headers if sys.argv[2] or "cuda.h" not in included(h, set())]
    few = [here[i::cores] for i in range(cores)]
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        objections += [o for o in pool.map(compiled, few) if o]
    left_out = f"; without CUDA {len(headers) - len(here)} of them are not compiled" if len(here) < len(headers) else ""
    source_tree.finish(objections, f"{len(headers)} headers include what they name and compile{left_out}")
