#!/usr/bin/env python3
"""Writes the whole runtime as two files, linnet.c and linnet.h, with the portable kernels: `make amalgamate`.
Static names that collide between source files are renamed. Headers are pasted once, .inc files in place."""

from __future__ import annotations

import argparse
import re
import shutil
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "runtime_c"
NOT_COMPILED = ("simd", "sync", "tools", "include")  # headers, and what is built apart
HEAD = """/* linnet.c - the linnet runtime in one file, made by `make amalgamate`; do not edit. Apache-2.0.
 * Build: cc -std=c11 -O2 -ffp-contract=off -fno-math-errno -fno-trapping-math -c linnet.c   (link with -lm -lpthread)
 * It contains the portable kernels. For the kernels with AVX or NEON, build the library with CMake. */
#ifndef LINNET_STATIC
#define LINNET_STATIC
#endif
#define LN_SIMD_SCALAR
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function" /* not all functions from headers are used */
#endif
"""
_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|([A-Z_]+)\b)')
_FEATURE = re.compile(r"#define (_\w+_SOURCE\b.*)$")
_TEXT_MACRO = re.compile(r'[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+"([^"]+)"$')
_OTHER_VECTORS = re.compile(r"simd_(?!scalar)\w+\.h$")  # one file can have only one kind of vector: scalar
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

    def __init__(self) -> None:
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
            elif line.startswith("#define LN_KERNEL_LIST "):
                pass  # the amalgamation has no fast kernels, so it omits their lists
            elif defined := _TEXT_MACRO.match(line):
                self.texts[defined.group(1)] = defined.group(2)
                out.append(line)
            elif include := _INCLUDE.match(line):
                name = include.group(1) or self.texts.get(include.group(2))
                if name is None:
                    out.append(line)
                elif _OTHER_VECTORS.search(name):
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
    text = _COMMENT_OR_TEXT.sub(" ", text)
    names = set(re.findall(r"^static\b[^;={(]*?\b(\w+)\s*(?:\(|=|\[|;)", text, re.MULTILINE))
    names |= set(re.findall(r"^(?:typedef\s+)?(?:struct|union|enum)\s+(\w+)\s*\{", text, re.MULTILINE))
    names |= set(re.findall(r"^\}\s*(\w+)\s*;", text, re.MULTILINE))
    names |= set(re.findall(r"^typedef\b[^;{]*?\b(\w+)\s*;", text, re.MULTILINE))
    names |= set(re.findall(r"^typedef\b[^;{]*?\(\s*\*\s*(\w+)\s*\)", text, re.MULTILINE))
    for body in re.findall(r"^(?:typedef\s+)?enum\b[^{;()]*\{([^}]*)\}", text, re.MULTILINE):
        names |= set(re.findall(r"(?:^|,)\s*(\w+)", body))
    names |= set(re.findall(r"\bTYPED\((\w+)\)", text))  # kernel/common/typed.h appends _f32, ... to the name
    return names - {"static", "const", "struct", "inline"}


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


def amalgamate() -> str:
    """The text of linnet.c."""
    made = Amalgamation()
    sources = [
        path
        for path in sorted(RUNTIME.rglob("*.c"))
        if not path.name.endswith(".inc.c") and path.relative_to(RUNTIME).parts[0] not in NOT_COMPILED
    ]
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
    out = [HEAD]
    out += [f"#ifndef {line.split()[0]}\n#define {line}\n#endif\n" for line in made.features]
    out += ['#include "linnet.h"\n', *made.headers]
    for path, text in texts.items():
        clashing = {name for name in locals_of[path] if count[name] > 1 or name in shared} - opaque
        body = rename(text, clashing, path.stem)
        ends = "".join(f"#undef {name}\n" for name in macros(text))
        out.append(f"/* ---- {path.relative_to(ROOT)} ---- */\n{body}\n{ends}")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "amalgamation", help="folder for the two files")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    text = amalgamate()
    (out / "linnet.c").write_text(text)
    shutil.copy(RUNTIME / "include" / "linnet.h", out / "linnet.h")
    print(f"{out / 'linnet.c'}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
