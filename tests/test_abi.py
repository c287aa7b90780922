"""The public headers are frozen but for additions: they are compared with the listings in tests/abi, and follow the rules
that bindings in other languages need."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pycparser import c_ast, c_parser

from tests.abi import __main__ as command
from tests.abi.listing import HEADERS, INCLUDE, Header, Reader, Struct, breaks, is_rest, parse, spell
from tests.native import need, run

LISTINGS = Path(command.__file__).parent


def read(include: Path = INCLUDE) -> Reader:
    reader = Reader(include)
    reader.read()
    return reader


READER = read()


@pytest.mark.parametrize("name", READER.headers)
def test_the_headers_are_as_listed(name: str) -> None:
    listed = (LISTINGS / f"{name}.txt").read_text()
    assert breaks(parse(listed), READER.headers[name]) == [], "programs that are compiled already would break"
    assert READER.headers[name].text() == listed, "run python -m tests.abi --write, which records additions"
    assert parse(listed).text() == listed


def test_every_header_is_listed() -> None:
    assert {path.name for path in INCLUDE.glob("*.h")} == set(HEADERS)
    assert {path.stem for path in LISTINGS.glob("*.txt")} == set(HEADERS)


@pytest.mark.parametrize("compiler", ["cc", "aarch64-linux-gnu-gcc"])
def test_compilers_agree_with_the_listed_layouts(compiler: str, tmp_path: Path) -> None:
    need(compiler)
    for name, header in READER.headers.items():
        lines = [f'#include "{name}"', "#include <stddef.h>"]
        for tag, struct in header.structs.items():
            same = f"sizeof({tag}) == {struct.size} && _Alignof({tag}) == {struct.align}"
            lines.append(f'_Static_assert({same}, "{tag}");')
            for f in struct.fields:
                same = f"offsetof({tag}, {f.name}) == {f.offset} && sizeof((({tag} *)0)->{f.name}) == {f.size}"
                lines.append(f'_Static_assert({same}, "{tag}.{f.name}");')
        for values in header.enums.values():
            lines += [f'_Static_assert((int){key} == {value}, "{key}");' for key, value in values.items()]
        source = tmp_path / "layout.c"
        source.write_text("\n".join(lines) + "\n")
        run([compiler, "-std=c11", "-fsyntax-only", f"-I{INCLUDE}", str(source)])


# ---- which changes are found: each edits a copy of the headers ----------------------------------------------------


def edited(tmp_path: Path, name: str, old: str, new: str) -> Header:
    for header in HEADERS:
        shutil.copy(INCLUDE / header, tmp_path)
    text = (tmp_path / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new, 1))
    return read(tmp_path).headers[name]


INCOMPATIBLE = {
    "a function goes": ("LINNET_API const char *linnet_version(void);", "", "function linnet_version is gone"),
    "a parameter changes": ("linnet_dtype_name(int dtype)", "linnet_dtype_name(int64_t dtype)", "function linnet_dtype_name"),
    "a field goes": ("    void *log_context;\n", "", "field log_context"),
    "a field is inserted": ("    linnet_log log; ", "    int64_t new_field;\n    linnet_log log; ", "field log"),
    "fields change places": ("    uint64_t scratch;", "    uint64_t other;", "field scratch"),
    "a type of the same size": ("    uint64_t timeout_ns;", "    int64_t timeout_ns;", "field timeout_ns"),
    "a value changes": ("LINNET_WRONG_DTYPE = 103", "LINNET_WRONG_DTYPE = 113", "LINNET_WRONG_DTYPE of enum"),
    "a callback changes": ("(void *context, int32_t level,", "(int32_t level,", "type linnet_log"),
    "a struct without a size grows": ("    char hint[160];\n", "    char hint[160];\n    int32_t line;\n", "has no struct_size"),
    "an array grows": ("#define LINNET_MAX_RANK 8", "#define LINNET_MAX_RANK 9", "constant LINNET_MAX_RANK"),
    "an inline function goes": ("static inline void linnet_run_config_init", "static inline void linnet_run_config_x", "inline"),
}  # fmt: skip


@pytest.mark.parametrize("change", INCOMPATIBLE)
def test_a_change_that_breaks_programs_is_found(change: str, tmp_path: Path) -> None:
    old, new, problem = INCOMPATIBLE[change]
    found = breaks(READER.headers["linnet.h"], edited(tmp_path, "linnet.h", old, new))
    assert len(found) >= 1 and problem in found[0]


def test_a_field_in_the_padding_is_found(tmp_path: Path) -> None:
    """A program may have left anything there."""
    old, first, both = (
        more + "} linnet_run_config;" for more in ("", "    int32_t a;\n", "    int32_t a;\n    int32_t b;\n")
    )
    small = edited(tmp_path, "linnet.h", old, first)
    (found,) = breaks(small, edited(tmp_path, "linnet.h", old, both))
    assert "in what was padding" in found
    assert breaks(small, edited(tmp_path, "linnet.h", old, both.replace("int32_t b", "uint64_t b"))) == []
    after = both.replace("int32_t b;\n", "int32_t reserved;\n    int32_t b;\n")
    assert breaks(small, edited(tmp_path, "linnet.h", old, after)) == []  # nobody reads the reserved field


VERSION = "LINNET_API const char *linnet_version(void);"
COMPATIBLE = {
    "a field at the end": ("} linnet_run_config;", "    uint64_t later;\n} linnet_run_config;"),
    "a value": ("LINNET_WRONG_DTYPE = 103,", "LINNET_WRONG_DTYPE = 103, LINNET_WRONG_MOOD = 199,"),
    "a function": (VERSION, f"{VERSION}\nLINNET_API int linnet_new(void);"),
    "the name of a parameter": ("linnet_dtype_name(int dtype)", "linnet_dtype_name(int element_type)"),
}


@pytest.mark.parametrize("change", COMPATIBLE)
def test_additions_break_nothing(change: str, tmp_path: Path) -> None:
    old, new = COMPATIBLE[change]
    assert breaks(READER.headers["linnet.h"], edited(tmp_path, "linnet.h", old, new)) == []


# ---- rules for bindings ---------------------------------------------------------------------------------------------


def structs() -> Iterator[Struct]:
    for header in READER.headers.values():
        yield from header.structs.values()


class Rules(c_ast.NodeVisitor):  # type: ignore[misc]
    """What bindings cannot express, by node."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def visit_Union(self, node: Any) -> None:
        self.broken.append(f"{node.coord}: a union")

    def visit_FuncDecl(self, node: Any) -> None:
        parameters = node.args.params if node.args else []
        if any(map(is_rest, parameters)):
            self.broken.append(f"{node.coord}: a variadic function")
        for each in [node, *(p for p in parameters if not is_rest(p))]:
            if isinstance(each.type, c_ast.TypeDecl) and isinstance(each.type.type, c_ast.IdentifierType):
                name = " ".join(each.type.type.names)
                if name in READER.structs:
                    self.broken.append(f"{node.coord}: {name} is passed by value")
                if name in ("long", "long long", "unsigned long", "short", "long double"):
                    self.broken.append(f"{node.coord}: {name} has no fixed size")
        self.generic_visit(node)

    def visit_Decl(self, node: Any) -> None:
        if node.bitsize is not None:
            self.broken.append(f"{node.coord}: bit field {node.name}")
        self.generic_visit(node)


def broken(declarations: list[Any]) -> list[str]:
    rules = Rules()
    for node in declarations:
        rules.visit(node)
    return rules.broken


def test_bindings_need_no_unions_bit_fields_variadics_or_structs_by_value() -> None:
    assert broken(READER.declarations) == []


@pytest.mark.parametrize(
    "bad",
    ["union linnet_u { int a; float b; };", "struct linnet_b { int a : 3; };", "int linnet_f(const char *, ...);",
     "linnet_error linnet_f(void);", "int linnet_f(linnet_error e);", "long linnet_f(void);"],
)  # fmt: skip
def test_the_rules_for_bindings_find_what_they_forbid(bad: str) -> None:
    assert len(broken(c_parser.CParser().parse(f"typedef struct linnet_error linnet_error; {bad}").ext)) == 1


def pointed_function(node: Any) -> Any:
    """The function type of a function pointer, also through a typedef; None for other types."""
    if isinstance(node, c_ast.PtrDecl) and isinstance(node.type, c_ast.FuncDecl):
        return node.type
    if isinstance(node, c_ast.TypeDecl) and isinstance(node.type, c_ast.IdentifierType):
        return pointed_function(READER.aliases.get(node.type.names[0]))
    return None


def has_context(function: Any) -> bool:
    """Whether the first parameter is `context`, or points to a struct that has one."""
    first = function.args.params[0]
    if first.name == "context":
        return spell(first.type) == "void *"
    struct = READER.structs.get(spell(first.type).removeprefix("const ").removesuffix(" *"))
    return struct is not None and any(f.name == "context" for f in struct.fields)


def test_every_callback_has_a_context() -> None:
    callbacks = 0
    for name, alias in READER.aliases.items():
        function = pointed_function(alias)
        if function is not None:
            callbacks += 1
            assert has_context(function), name
    for struct in structs():
        if struct.name == "linnet_host":  # functions of the library, which have no context
            continue
        functions = [f for f in struct.fields if pointed_function(f.node.type) is not None]
        callbacks += len(functions)
        for f in functions:
            assert has_context(pointed_function(f.node.type)), f"{struct.name}.{f.name}"
        if functions:
            assert any(f.name.endswith("context") and f.type == "void *" for f in struct.fields), struct.name
    assert callbacks >= 10


def enums_of(struct: Struct) -> list[str]:
    return [
        f"{struct.name}.{f.name}" for f in struct.fields if f.type.removeprefix("enum ").split(" [")[0] in READER.enums
    ]


def growing_of(struct: Struct) -> list[str]:
    growing = {struct.name for struct in structs() if struct.grows}
    return [f"{struct.name}.{f.name}" for f in struct.fields if f.type.split(" [")[0] in growing]


def test_enums_are_stored_as_int32() -> None:
    """The size of an enum is the compiler's choice (-fshort-enums)."""
    assert [place for struct in structs() for place in enums_of(struct)] == []


def test_structs_that_grow_are_never_inside_others() -> None:
    """Neither as a field nor as an array whose elements the library steps over by its own size."""
    assert [place for struct in structs() for place in growing_of(struct)] == []


def test_the_rules_for_fields_find_what_they_forbid(tmp_path: Path) -> None:
    end = "} linnet_run_config;"
    fields = (
        "linnet_dtype a; enum linnet_dtype b; linnet_model_config c; linnet_model_config d[3]; linnet_model_config *e;"
    )
    struct = edited(tmp_path, "linnet.h", end, fields + end).structs["linnet_run_config"]
    assert enums_of(struct) == ["linnet_run_config.a", "linnet_run_config.b"]
    assert growing_of(struct) == ["linnet_run_config.c", "linnet_run_config.d"]


# A callback gets the first and hands it on; the others are tables of functions: liblinnet's own, and those of a device.
MADE_BY_THE_LIBRARY = {"linnet_user_call", "linnet_host", "linnet_device"}


def test_structs_that_grow_have_an_init() -> None:
    """Those that a function of the library takes; other structs the library makes itself."""
    functions = [signature for header in READER.headers.values() for signature in header.functions.values()]
    taken = " ".join(signature.partition("(")[2] for signature in functions)
    for header in READER.headers.values():
        for struct in header.structs.values():
            if struct.grows and f"{struct.name} *" in taken and struct.name not in MADE_BY_THE_LIBRARY:
                assert f"{struct.name}_init" in header.inlines, struct.name
