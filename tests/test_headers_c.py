"""One header per C file: a header declares the functions of at most one file, which has its name. Whoever reads an include then
knows which file is used. A header for a whole folder is named for what it holds, and holds types."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import headers

# Headers that list functions of many files on purpose, with the reason.
LISTS = {
    "runtime_c/generated/op_table.h": "the table of ops names the functions of every op",
    "runtime_c/plan/passes/passes.h": "the list of passes: each is one function of one file",
    "runtime_c/base/crc32.h": "one function per ISA, in a folder that base/ may not include from",
    "kernels_gpu/common/kernels.h": "the list of kernels gives the prototypes of the functions that write their texts",
}


def test_a_header_declares_the_functions_of_one_file() -> None:
    """A header of more than one file is in the table above, and whatever is in the table is such a header."""
    assert set(headers.mixed()) == set(LISTS)


def test_a_second_file_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The test sees functions of two files in one header, and neither static functions nor comments nor calls. It also sees
    declarations that macros make of a list, and those that name the type of a function."""
    monkeypatch.setattr(headers, "ROOT", tmp_path)
    folder = tmp_path / "runtime_c" / "run"
    folder.mkdir(parents=True)
    header = "/* b.c */\nint ln_a(int x);\nstatic inline int ln_c(void) { return ln_b(1); }\n"
    (folder / "a.h").write_text(header)
    (folder / "a.c").write_text('#include "a.h"\nint ln_a(int x) { return x; }\n')
    (folder / "b.c").write_text("LN_PLANNING\nint ln_b(int x) {\n    return x;\n}\nint ln_c(void);\n")
    assert headers.mixed() == {}
    (folder / "a.h").write_text(header + "const char *ln_b(const char *(*f)(void),\n                 int x);\n")
    a, b = "runtime_c/run/a.c", "runtime_c/run/b.c"
    assert headers.mixed() == {"runtime_c/run/a.h": {a: ["ln_a"], b: ["ln_b"]}}
    (folder / "a.h").write_text(f'{header}#define LN_B(name) int ln_##name(int x);\n#include "list.inc"\n')
    (folder / "list.inc").write_text("LN_B(b)\n")
    assert headers.mixed() == {"runtime_c/run/a.h": {a: ["ln_a"], b: ["ln_b"]}}
    (folder / "a.h").write_text(header + "typedef int ln_type(int x);\nln_type ln_b, ln_d;\n")
    assert headers.mixed() == {"runtime_c/run/a.h": {a: ["ln_a"], b: ["ln_b"]}}
