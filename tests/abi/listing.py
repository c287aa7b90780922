"""Reads the public headers with pycparser, which cffi brings, and lists what a compiled program depends on.
Layouts are those of LP64 machines (x86-64, aarch64); tests/test_abi.py has compilers check them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pycparser import c_ast, c_parser

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDE = ROOT / "runtime_c" / "include"
HEADERS = ("linnet.h", "linnet_ext.h", "linnet_device.h", "linnet_sync.h", "linnet_sync_ext.h")
SIZES = {
    "char": 1, "bool": 1, "int": 4, "unsigned": 4,
    "unsigned int": 4, "float": 4, "double": 8, "size_t": 8, "int8_t": 1, "uint8_t": 1,
    "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8,
}  # fmt: skip
_PRELUDE = " ".join(f"typedef int {name};" for name in SIZES if name == "bool" or name.endswith("_t"))


@dataclass
class Field:
    """A field of a struct. `node` is its type as pycparser has it."""

    name: str
    type: str
    offset: int
    size: int
    node: Any = None


@dataclass
class Struct:
    """A struct; it can grow if its first field is struct_size."""

    name: str
    fields: list[Field]
    size: int = 0
    align: int = 1

    @property
    def grows(self) -> bool:
        return self.fields[0].name == "struct_size"


@dataclass
class Header:
    """What one header declares."""

    name: str
    functions: dict[str, str] = field(default_factory=dict)
    inlines: list[str] = field(default_factory=list)
    structs: dict[str, Struct] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)  # other typedefs: handles, callbacks
    constants: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The listing."""
        lines = [f"constant {name} = {value}" for name, value in self.constants.items()]
        lines += [f"type {name} = {spelled}" for name, spelled in self.types.items()]
        for name, values in self.enums.items():
            lines += [f"enum {name}", *(f"    {key} = {value}" for key, value in values.items())]
        for struct in self.structs.values():
            kind = "grows" if struct.grows else "fixed"
            lines.append(f"struct {struct.name} {kind} size={struct.size} align={struct.align}")
            lines += [f"    {f.offset} {f.size} {f.name}: {f.type}" for f in struct.fields]
        lines += [f"function {name}: {spelled}" for name, spelled in self.functions.items()]
        lines += [f"inline {name}" for name in self.inlines]
        return "\n".join(lines) + "\n"


def spell(node: Any, inner: str = "") -> str:
    """A type as C writes it, without the names of parameters."""
    if isinstance(node, c_ast.TypeDecl):
        base = node.type
        name = (
            " ".join(base.names) if isinstance(base, c_ast.IdentifierType) else f"{_KEYWORDS[type(base)]} {base.name}"
        )
        return " ".join(filter(None, [*node.quals, name, inner]))
    if isinstance(node, c_ast.PtrDecl):
        inner = "*" + " ".join([*node.quals, inner] if node.quals else [inner])
        return spell(node.type, f"({inner})" if isinstance(node.type, c_ast.FuncDecl | c_ast.ArrayDecl) else inner)
    if isinstance(node, c_ast.ArrayDecl):
        return spell(node.type, f"{inner}[{node.dim.value}]")
    if isinstance(node, c_ast.FuncDecl):
        parameters = node.args.params if node.args else []
        return spell(node.type, f"{inner}({', '.join('...' if is_rest(p) else spell(p.type) for p in parameters)})")
    raise TypeError(type(node))


_KEYWORDS = {c_ast.Struct: "struct", c_ast.Enum: "enum", c_ast.Union: "union"}


def is_rest(parameter: Any) -> bool:
    """Whether a parameter is the `...` of a variadic function."""
    return isinstance(parameter, c_ast.EllipsisParam)


class Reader:
    """Reads headers in the order of their inclusion, and knows the layout of every struct so far."""

    def __init__(self, include: Path = INCLUDE) -> None:
        self.include = include
        self.headers: dict[str, Header] = {}
        self.structs: dict[str, Struct] = {}
        self.enums: set[str] = set()
        self.aliases: dict[str, Any] = {}
        self.declarations: list[Any] = []

    def read(self) -> dict[str, Header]:
        """All public headers that are there."""
        before = ""
        for name in HEADERS:
            if not (self.include / name).exists():
                continue
            header = self.headers[name] = Header(name)
            text = re.sub(r"/\*.*?\*/", " ", (self.include / name).read_text(), flags=re.S)
            for key, value in re.findall(r"^#define (LINNET_\w+) +(-?\d+)$", text, flags=re.M):
                if not key.startswith("LINNET_VERSION_"):
                    header.constants[key] = value
            header.inlines = re.findall(r"^static inline [^({]*?\b(\w+)\(", text, flags=re.M)
            body = self.plain(text)
            known = len(c_parser.CParser().parse(_PRELUDE + before).ext)
            before += body
            for node in c_parser.CParser().parse(_PRELUDE + before).ext[known:]:
                self.declarations.append(node)
                self.take(node, header)
        return self.headers

    @staticmethod
    def plain(text: str) -> str:
        """A header without directives, macros and inline functions."""
        text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.S | re.M)
        text = re.sub(r"^static inline [^{]*\{[^}]*\}\n", "", text, flags=re.M)
        text = re.sub(r"^#(.*\\\n)*.*\n", "", text, flags=re.M)
        return text.replace("LINNET_API ", "").replace("LINNET_MAX_RANK", "8") + "\n"

    def take(self, node: Any, header: Header) -> None:
        kind = node.type
        if isinstance(kind, c_ast.FuncDecl):
            header.functions[node.name] = spell(kind)
        elif isinstance(kind, c_ast.Struct | c_ast.Enum):  # struct x { ... }; without a typedef
            self.tagged(kind, kind.name, header)
        elif isinstance(kind, c_ast.TypeDecl) and isinstance(kind.type, c_ast.Struct | c_ast.Enum | c_ast.Union):
            if not self.tagged(kind.type, node.name, header):
                header.types[node.name] = spell(kind)
        else:
            self.aliases[node.name] = kind
            header.types[node.name] = spell(kind)

    def tagged(self, node: Any, name: str, header: Header) -> bool:
        if isinstance(node, c_ast.Enum) and node.values:
            values: dict[str, int] = {}
            for each in node.values.enumerators:
                value = each.value
                if value is None:
                    values[each.name] = max(values.values(), default=-1) + 1
                elif isinstance(value, c_ast.UnaryOp):
                    values[each.name] = -int(value.expr.value, 0)
                else:
                    values[each.name] = int(value.value, 0)
            header.enums[name] = values
            self.enums.add(name)
            return True
        if isinstance(node, c_ast.Struct) and node.decls:
            struct = Struct(name, [])
            end = 0
            for member in node.decls:
                size, align = self.measure(member.type)
                offset = -(-end // align) * align
                struct.fields.append(Field(member.name, spell(member.type), offset, size, member))
                end, struct.align = offset + size, max(struct.align, align)
            struct.size = -(-end // struct.align) * struct.align
            header.structs[name] = self.structs[name] = struct
            return True
        return False

    def measure(self, node: Any) -> tuple[int, int]:
        """Size and alignment of a type."""
        if isinstance(node, c_ast.PtrDecl):
            return 8, 8
        if isinstance(node, c_ast.ArrayDecl):
            size, align = self.measure(node.type)
            return size * int(node.dim.value), align
        base = node.type
        if isinstance(base, c_ast.Enum):
            return 4, 4
        name = " ".join(base.names) if isinstance(base, c_ast.IdentifierType) else base.name
        if name in SIZES:
            return SIZES[name], SIZES[name]
        if name in self.enums:
            return 4, 4
        if name in self.aliases:
            return self.measure(self.aliases[name])
        return self.structs[name].size, self.structs[name].align


def parse(text: str) -> Header:
    """A listing that was written before."""
    header, current = Header(""), ""
    for line in text.splitlines():
        if line.startswith("    ") and current in header.enums:
            key, value = line.strip().split(" = ")
            header.enums[current][key] = int(value)
        elif line.startswith("    "):
            place, spelled = line.strip().split(": ", 1)
            offset, size, name = place.split(" ")
            header.structs[current].fields.append(Field(name, spelled, int(offset), int(size)))
        else:
            kind, rest = line.split(" ", 1)
            if kind == "struct":
                current, _, size, align = rest.split(" ")
                header.structs[current] = Struct(current, [], int(size.split("=")[1]), int(align.split("=")[1]))
            elif kind == "enum":
                current = rest
                header.enums[current] = {}
            elif kind == "function":
                name, spelled = rest.split(": ", 1)
                header.functions[name] = spelled
            elif kind == "inline":
                header.inlines.append(rest)
            else:
                name, spelled = rest.split(" = ", 1)
                (header.types if kind == "type" else header.constants)[name] = spelled
    return header


def breaks(old: Header, new: Header) -> list[str]:
    """Every change from `old` to `new` that a program compiled against `old` would notice."""
    found = []
    pairs = (
        ("function", old.functions, new.functions), ("type", old.types, new.types),
        ("constant", old.constants, new.constants), ("inline function", dict.fromkeys(old.inlines), dict.fromkeys(new.inlines)),
    )  # fmt: skip
    for kind, before, after in pairs:
        for name, spelled in before.items():
            if name not in after:
                found.append(f"{kind} {name} is gone")
            elif after[name] != spelled:  # type: ignore[index]
                found.append(f"{kind} {name} was {spelled} and is {after[name]}")  # type: ignore[index]
    for name, values in old.enums.items():
        for key, value in values.items():
            is_now = new.enums.get(name, {}).get(key)
            if is_now != value:
                found.append(f"{key} of enum {name} was {value} and is {'gone' if is_now is None else is_now}")
    for name, was in old.structs.items():
        found += _struct_breaks(was, new.structs.get(name))
    return found


def _struct_breaks(was: Struct, now: Struct | None) -> list[str]:
    if now is None:
        return [f"struct {was.name} is gone"]
    found = []
    for i, old in enumerate(was.fields):
        new = now.fields[i] if i < len(now.fields) else None
        if new is None or (new.name, new.type, new.offset, new.size) != (old.name, old.type, old.offset, old.size):
            at = f"{new.name}: {new.type} at {new.offset}" if new else "gone"
            found.append(f"field {old.name}: {old.type} of struct {was.name}, at {old.offset}, is {at}")
    added = now.fields[len(was.fields) :]
    in_padding = next((f for f in added if f.offset < was.size and not f.name.startswith("reserved")), None)
    if added and not was.grows:
        found.append(f"struct {was.name} has no struct_size, so it cannot get the field {added[0].name}")
    elif in_padding and not found:
        found.append(
            f"field {in_padding.name} of struct {was.name} is in what was padding; put a reserved int32_t field before it"
        )
    if now.align != was.align:
        found.append(f"the alignment of struct {was.name} was {was.align} and is {now.align}")
    return found
