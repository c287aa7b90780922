#!/usr/bin/env python3
"""Writes the whole runtime as linnet.c and linnet.h, and its fast kernels as one file per instruction set: `make amalgamate`.
Static names that collide between source files are renamed. Headers are pasted once, .inc files in place."""

from __future__ import annotations

import argparse
import re
import shutil
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "runtime_c"
KERNELS = (ROOT / "kernels_x86", ROOT / "kernels_arm")
NOT_COMPILED = ("simd", "net", "sync", "remote", "tools", "include")  # headers, and what is built apart
HEAD = """/* linnet.c - the linnet runtime in one file, made by `make amalgamate`; do not edit. Apache-2.0.
 * Build: cc -std=c11 -O2 -ffp-contract=off -fno-math-errno -fno-trapping-math -c linnet.c   (link with -lm -lpthread)
 * Alone it has the portable kernels. For the fast ones, add -DLINNET_SIMD, compile the linnet_*.c beside it in the same
 * way, and link them too. Each is empty on other processors; a program takes the best kernels that the processor has. */
#ifndef LINNET_STATIC
#define LINNET_STATIC
#endif
#ifndef LINNET_SIMD
#define LN_PORTABLE
#endif
#define LN_SIMD_SCALAR
"""
KERNELS_HEAD = """/* linnet_{isa}.c - linnet's kernels for {isa}, made by `make amalgamate`; do not edit. Apache-2.0.
 * linnet.c says how to build. The target is in the file, so the compiler needs no flag for it. */
#if {condition}
#include <string.h>
#ifndef LINNET_STATIC
#define LINNET_STATIC
#endif
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("{clang}"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC target("{gcc}")
#endif
"""
KERNELS_END = """#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int linnet_{isa}_is_empty; /* C11 wants a declaration in every file */
#endif
"""
WARNINGS = """#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function" /* not all that headers have is used */
#pragma GCC diagnostic ignored "-Wunused-const-variable"
#endif
"""
X86, ARM = "defined(__x86_64__) || defined(_M_X64)", "defined(__aarch64__)"
ARM32 = "defined(__arm__) && defined(__ARM_NEON)"
# Per instruction set: where it is, its vectors in simd.h, and its target as GCC and clang spell it (flags.cmake has the flags).
ISAS = {
    "sse2": (X86, "SSE2", "sse2", "sse2"),
    "sse42": (X86, None, "sse4.2,pclmul", "sse4.2,pclmul"),
    "avx2": (X86, "AVX2", "avx2,fma,f16c", "avx2,fma,f16c"),
    "avx512": (X86, "AVX512", "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c", None),
    "avx512vnni": (X86, "AVX512", "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c", None),
    "neon": (ARM, "NEON", "+simd", None),
    "neon32": (ARM32, "NEON", "fpu=neon", "neon"),
    "crc": (ARM, None, "+crc", "crc"),
    "fp16": (ARM, None, "arch=armv8.2-a+fp16", "fullfp16"),
    "dotprod": (ARM, None, "arch=armv8.2-a+dotprod", "dotprod"),
    "i8mm": (ARM, None, "arch=armv8.2-a+dotprod+i8mm", "dotprod,i8mm"),
    "bf16": (ARM, None, "arch=armv8.2-a+bf16", "bf16"),
}
_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|([A-Z_]+)\b)')
_FEATURE = re.compile(r"#define (_\w+_SOURCE\b.*)$")
_TEXT_MACRO = re.compile(r'[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+"([^"]+)"$')
_VECTORS = re.compile(r"simd_(\w+)\.h$")  # one file can have only one kind of vector
_ATTRIBUTE = re.compile(r"\b__attribute__\s*\(\(.*?\)\)(?=[\s;])")
_COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def find(name: str, beside: Path) -> Path:
    """Finds the file of an #include "name" along the include path of the build."""
    for folder in (beside.parent, RUNTIME, RUNTIME / "include", ROOT):
        if (folder / name).is_file():
            return folder / name
    raise SystemExit(f'{beside}: no file for #include "{name}"')


def is_guarded(text: str) -> bool:
    """Whether a header has an include guard (begins with #ifndef NAME_H), so that pasting it once is enough."""
    first = re.search(r"^[ \t]*#.*$", text, re.MULTILINE)
    return bool(first and re.match(r"#ifndef \w+_H\b", first.group()))


class Amalgamation:
    """Headers pasted so far, and the text of each source file with its unguarded includes pasted in place."""

    def __init__(self, vectors: str) -> None:
        self.vectors = vectors
        self.headers: list[str] = []
        self.pasted: set[Path] = set()
        self.features: list[str] = []
        self.texts: dict[str, str] = {}  # macros with a string value, for #include NAME

    def expand(self, path: Path) -> str:
        """The file's text; guarded headers go to `headers` (dependencies first), others are pasted in place."""
        out = []
        for line in path.read_text().splitlines():
            if feature := _FEATURE.match(line):
                self.features += [feature.group(1)] if feature.group(1) not in self.features else []
            elif defined := _TEXT_MACRO.match(line):
                self.texts[defined.group(1)] = defined.group(2)
                out.append(line)
            elif include := _INCLUDE.match(line):
                name = include.group(1) or self.texts.get(include.group(2))
                if name is None:
                    out.append(line)
                elif (vectors := _VECTORS.search(name)) and vectors.group(1) != self.vectors:
                    pass
                elif name != "linnet.h":
                    out.append(self._include(find(name, path)))
            else:
                out.append(line)
        return "\n".join(out)

    def _include(self, included: Path) -> str:
        if not is_guarded(included.read_text()):
            return self.expand(included)
        if included not in self.pasted:
            self.pasted.add(included)
            text = self.expand(included)
            self.headers.append(f"/* ---- {included.relative_to(ROOT)} ---- */\n{text}\n")
        return ""


def local_names(text: str) -> set[str]:
    """Names that a source file defines at file scope: statics, types, tags, enumerators."""
    text = _ATTRIBUTE.sub(" ", _COMMENT_OR_TEXT.sub(" ", text))
    names = set(re.findall(r"^(?:static|LN_SIMD_APART)\b[^;={(]*?\b(\w+)\s*(?:\(|=|\[|;)", text, re.MULTILINE))
    names |= set(re.findall(r"^(?:typedef\s+)?(?:struct|union|enum)\s+(\w+)\s*\{", text, re.MULTILINE))
    names |= set(re.findall(r"^\}\s*(\w+)\s*;", text, re.MULTILINE))
    names |= set(re.findall(r"^typedef\b[^;{]*?\b(\w+)\s*;", text, re.MULTILINE))
    names |= set(re.findall(r"^typedef\b[^;{]*?\(\s*\*\s*(\w+)\s*\)", text, re.MULTILINE))
    for body in re.findall(r"^(?:typedef\s+)?enum\b[^{;()]*\{([^}]*)\}", text, re.MULTILINE):
        names |= set(re.findall(r"(?:^|,)\s*(\w+)", body))
    names |= set(re.findall(r"^\s+static\b[^;={(]*?\b(\w+_)##", text, re.MULTILINE))  # macros that define functions
    names |= set(re.findall(r"\bTYPED\((\w+)\)", text))  # kernel/common/typed.h appends _f32, ... to the name
    # Names that begin with ln_ belong to the whole library; in a list of passes or kernels they look like enumerators.
    names = {name for name in names if not name.startswith("ln_")}
    return names - {"static", "const", "struct", "inline", "LN_SIMD_NAME"}


def macros(text: str) -> list[str]:
    """Macros still defined at the end of a source file."""
    names: dict[str, None] = {}
    for word, name in re.findall(r"^[ \t]*#[ \t]*(define|undef)[ \t]+(\w+)", text, re.MULTILINE):
        if word == "define":
            names[name] = None
        else:
            names.pop(name, None)
    return list(names)


def rename(text: str, names: set[str], suffix: str) -> str:
    """Appends the suffix to `names`, except after . and -> (fields) and in comments and strings."""
    if not names:
        return text
    word = re.compile(r"(?<![\w.])(?<!->)(" + "|".join(sorted(names)) + r")\b")
    out, at = [], 0
    for match in _COMMENT_OR_TEXT.finditer(text):
        out += [word.sub(rf"\1__{suffix}", text[at : match.start()]), match.group()]
        at = match.end()
    return "".join([*out, word.sub(rf"\1__{suffix}", text[at:])])


def paste(sources: list[Path], vectors: str) -> str:
    """The sources in one text, after the headers that they include."""
    made = Amalgamation(vectors)
    texts = {path: made.expand(path) for path in sources}
    locals_of = {path: local_names(text) for path, text in texts.items()}
    count = Counter(name for names in locals_of.values() for name in names)
    headers = "\n".join(made.headers)
    # A type that a header declares and a source file completes is the same type, not a clash.
    opaque = set(re.findall(r"^typedef struct (\w+) \1;", headers, re.MULTILINE))
    opaque |= set(
        re.findall(r"^typedef struct (\w+) \1;", (RUNTIME / "include" / "linnet.h").read_text(), re.MULTILINE)
    )
    shared = local_names(headers) - opaque
    out = [f"#ifndef {line.split()[0]}\n#define {line}\n#endif\n" for line in made.features]
    out += ['#include "linnet.h"\n', *made.headers]
    for path, text in texts.items():
        clashing = {name for name in locals_of[path] if count[name] > 1 or name in shared} - opaque
        body = rename(text, clashing, path.stem)
        ends = "".join(f"#undef {name}\n" for name in macros(text))
        out.append(f"/* ---- {path.relative_to(ROOT)} ---- */\n{body}\n{ends}")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out))


def runtime() -> str:
    """The text of linnet.c."""
    sources = [
        path
        for path in sorted(RUNTIME.rglob("*.c"))
        if not path.name.endswith(".inc.c") and path.relative_to(RUNTIME).parts[0] not in NOT_COMPILED
    ]
    return HEAD + WARNINGS + paste(sources, "scalar")


def kernels(isa: str) -> str:
    """The text of linnet_ISA.c."""
    condition, vectors, gcc, clang = ISAS[isa]
    sources = sorted(path for folder in KERNELS for path in folder.rglob(f"*__{isa}.c"))
    head = KERNELS_HEAD.format(isa=isa, condition=condition, gcc=gcc, clang=clang or gcc.removeprefix("+"))
    select = f"#define LN_SIMD_{vectors}\n" if vectors else ""
    body = paste(sources, (vectors or "").lower())
    return head + select + WARNINGS + body + KERNELS_END.format(isa=isa)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "amalgamation", help="folder for the files")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    missing = {path.stem.split("__")[1] for folder in KERNELS for path in folder.rglob("*__*.c")} - set(ISAS)
    if missing:
        raise SystemExit(f"amalgamate.py: ISAS has no target for {', '.join(sorted(missing))}")
    for name, text in {"linnet.c": runtime(), **{f"linnet_{isa}.c": kernels(isa) for isa in ISAS}}.items():
        (out / name).write_text(text)
        print(f"{out / name}: {len(text.splitlines())} lines")
    for header in ("linnet.h", "linnet_ext.h"):
        shutil.copy(RUNTIME / "include" / header, out / header)


if __name__ == "__main__":
    main()
