"""The rows of the op table: schema/ops/*.toml and schema/map_opcodes.toml, read and checked for schema/generate.py.
schema/README.md says what the traits of an op mean."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).resolve().parent
# Traits of an op: the facts that passes use. schema/README.md explains each of them.
FLAGS = (
    "in_place", "epilogue", "data_dependent", "can_fail", "computes_f32", "exact", "calls", "writes", "looks_up", "registered",
    "varies", "blocks",
)  # fmt: skip
FAMILIES = (
    "map", "copy", "product", "recurrent", "reduction", "norm", "window", "resampling", "indexing", "conversion", "control",
    "variable", "shape", "generator", "gradient", "other",
)  # fmt: skip
WORK = ("linear", "program", "product", "lines")
PARTS = ("", "training", "user_ops")  # a build may leave out the kernels of a part
LAYOUTS = ("free", "dense", "channels_last", "follow")
ROLES = ("", "table", "variable", "setting", "counter", "state")
INTEGERS = ("", "products", "maps", "moves", "averages", "sums", "converts", "kept", "floats")
BOUNDS = ("data", "grows", "values")
CARRIES = ("", "all", "batch")
OPERAND_BITS = 16  # in a mask over operands in C; the last bit is for all further operands
ATTRIBUTE_TYPES = {
    # toml type: (flatbuffer type, C type, C descriptor, Python annotation)
    "int": ("long", "int64_t", "LN_ATTRIBUTE_INT", "int"),
    "bool": ("bool", "int64_t", "LN_ATTRIBUTE_BOOL", "bool"),
    "float": ("double", "double", "LN_ATTRIBUTE_FLOAT", "float"),
    "enum": ("ubyte", "int64_t", "LN_ATTRIBUTE_ENUM", "str"),
    "dtype": ("ubyte", "int64_t", "LN_ATTRIBUTE_DTYPE", "DTypeLike"),
    "function": ("int", "int64_t", "LN_ATTRIBUTE_FUNCTION", "Function | None"),
    "ints": ("[long]", "ln_ints", "LN_ATTRIBUTE_INTS", "Sequence[int]"),
    "floats": ("[double]", "ln_floats", "LN_ATTRIBUTE_FLOATS", "Sequence[float]"),
    "bytes": ("[ubyte]", "ln_text", "LN_ATTRIBUTE_BYTES", "bytes"),
}


@dataclass
class Op:
    """One runtime op, from its .toml file."""

    id: int
    name: str
    doc: str
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    dtypes: list[str]
    layout: str
    gradient: str
    in_place: bool
    epilogue: bool
    data_dependent: bool
    blocks: bool
    can_fail: bool
    family: str
    computes_in: str
    work: str
    counts: bool  # runtime_c/ops has a function ln_count_NAME
    part: str
    layout_rule: bool
    exact: bool
    registered: bool
    varies: bool
    integers: str
    bound: str
    carries: str
    pointwise: bool
    decodes: bool
    encodes: bool
    tail: bool
    integer_gradient: bool
    attributes: list[dict[str, Any]]

    @property
    def computes_f32(self) -> bool:
        return self.computes_in == "f32"

    @property
    def calls(self) -> bool:
        """Whether it calls functions of the file. Plans replace it by their nodes, and no kernel runs it."""
        return any(a["type"] == "function" for a in self.attributes)

    @property
    def writes(self) -> bool:
        return any(operand.get("role") == "variable" for operand in self.inputs)

    @property
    def looks_up(self) -> bool:
        return any(operand.get("role") == "table" for operand in self.inputs)

    def operand(self, i: int) -> dict[str, Any]:
        """The entry of operand i in the file. All operands of a variadic entry share it."""
        return self.inputs[min(i, len(self.inputs) - 1)] if self.inputs else {}

    def mask(self, trait: str, default: Callable[[int, dict[str, Any]], bool]) -> int:
        """A mask with one bit for each operand that has the trait."""
        bits = 0
        for i in range(OPERAND_BITS):
            operand = self.operand(i)
            bits |= int(bool(operand.get(trait, default(i, operand)))) << i
        return bits

    @property
    def absent(self) -> int:
        return self.mask("absent", lambda _, o: bool(o.get("optional")) and not o.get("variadic"))

    @property
    def decides(self) -> int:
        return self.mask("decides", lambda i, _: i > 0)

    @property
    def layouts(self) -> list[str]:
        """The layouts of the first output, the first input, the second input, and all other inputs."""
        own = "follow" if self.layout == "any" else self.layout
        rest = own if self.inputs and self.inputs[-1].get("variadic") else "dense"
        inputs = [self.operand(i).get("layout", own if i == 0 else rest) for i in range(3)]
        return [self.outputs[0].get("layout", own), *inputs]

    @property
    def channel_axis(self) -> int:
        """1 + the number of the attribute that gives the axis of the channels; 0 if there is none."""
        return next((1 + a["id"] for a in self.attributes if a["name"] == "channel_axis"), 0)

    @property
    def camel(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("_"))

    def arity(self, which: list[dict[str, Any]]) -> tuple[int, int]:
        """Smallest and largest number of operands; -1: no limit."""
        least = sum(1 for operand in which if not operand.get("optional"))
        most = -1 if any(operand.get("variadic") for operand in which) else len(which)
        return least, most


def load_ops() -> list[Op]:
    """Loads all ops in order of id, and checks for typical mistakes."""
    ops = []
    for path in sorted((SCHEMA / "ops").glob("*.toml")):
        row = tomllib.loads(path.read_text())
        op = Op(
            id=row["id"],
            name=row["name"],
            doc=" ".join(row["doc"].split()),
            inputs=row["inputs"],
            outputs=row["outputs"],
            dtypes=row["dtypes"],
            layout=row["layout"],
            gradient=row["gradient"],
            in_place=row["in_place"],
            epilogue=row.get("epilogue", False),
            data_dependent=row.get("data_dependent", False),
            blocks=row.get("blocks", False),
            can_fail=row.get("can_fail", False),
            family=row.get("family", "other"),
            computes_in=row.get("computes_in", ""),
            work=row.get("work", "linear"),
            counts=row.get("counts", False),
            part=row.get("part", ""),
            layout_rule=row.get("layout_rule", False),
            exact=row.get("exact", False),
            registered=row.get("registered", False),
            varies=row.get("varies", False),
            integers=row.get("integers", ""),
            bound=row.get("bound", "data"),
            carries=row.get("carries", ""),
            pointwise=row.get("pointwise", False),
            decodes=row.get("decodes", False),
            encodes=row.get("encodes", False),
            tail=row.get("tail", False),
            integer_gradient=row.get("integer_gradient", False),
            attributes=sorted(row.get("attributes", []), key=lambda a: a["id"]),
        )
        if path.stem != op.name:
            raise SystemExit(f"{path}: the op is named {op.name}; the file must have the same name")
        if op.layout not in ("any", "dense", "channels_last"):
            raise SystemExit(f"{path}: layout must be any, dense or channels_last, got {op.layout!r}")
        check_traits(path, op)
        if not op.gradient:
            raise SystemExit(f"{path}: gradient must name a rule, or 'none: reason'")
        if [a["id"] for a in op.attributes] != list(range(len(op.attributes))):
            raise SystemExit(f"{path}: attribute ids must be 0, 1, 2, ...; keep the row of a retired attribute")
        for attribute in op.attributes:
            if attribute["type"] not in ATTRIBUTE_TYPES:
                raise SystemExit(f"{path}: attribute {attribute['name']} has the unknown type {attribute['type']}")
        ops.append(op)
    ops.sort(key=lambda op: op.id)
    ids = [op.id for op in ops]
    if len(set(ids)) != len(ids):
        raise SystemExit(f"schema/ops: an op id is used twice: {sorted(i for i in ids if ids.count(i) > 1)}")
    return ops


def check_traits(path: Path, op: Op) -> None:
    """Checks that traits have known values. C finds the attributes of an op by its family if the family has only one op."""
    said = [("family", op.family, FAMILIES), ("computes_in", op.computes_in, ("", "f32")), ("work", op.work, WORK)]
    said += [("integers", op.integers, INTEGERS), ("bound", op.bound, BOUNDS), ("carries", op.carries, CARRIES)]
    said.append(("part", op.part, PARTS))
    for operand in op.inputs + op.outputs:
        said.append((f"{operand['name']}: role", operand.get("role", ""), ROLES))
        said.append((f"{operand['name']}: layout", operand.get("layout", "dense"), LAYOUTS))
    for what, word, words in said:
        if word not in words:
            raise SystemExit(f"{path}: {what} must be one of {', '.join(map(repr, words))}, got {word!r}")
    if op.family in ("map", "copy", "shape") and op.name != op.family:
        raise SystemExit(f"{path}: only the op {op.family} may have the family {op.family}; choose another family")
    if op.calls != (op.family == "control"):
        raise SystemExit(f"{path}: an op must have family control exactly if it has an attribute of type function")
    if op.work == "program" and op.family != "map":
        raise SystemExit(f"{path}: work 'program' is only for family map")
    if op.inputs and op.inputs[0].get("role") != "variable" and op.writes:
        raise SystemExit(f"{path}: only the first operand may have role 'variable'")


def load_opcodes() -> dict[str, dict[str, Any]]:
    rows = tomllib.loads((SCHEMA / "map_opcodes.toml").read_text())
    ids = [row["id"] for row in rows.values()]
    if len(set(ids)) != len(ids):
        raise SystemExit("schema/map_opcodes.toml: an id is used twice")
    return dict(sorted(rows.items(), key=lambda item: item[1]["id"]))


def default_of(attribute: dict[str, Any]) -> Any:
    if "default" in attribute:
        return attribute["default"]
    kind = attribute["type"]
    if kind in ("ints", "floats"):
        return ()
    if kind == "bytes":
        return b""
    if kind == "enum":
        return next(name for name, value in attribute["values"].items() if value == 0)
    return {"int": 0, "bool": False, "float": 0.0, "dtype": "none", "function": None}[kind]


def load_versions(ops: list[Op]) -> dict[str, dict[str, int]]:
    """schema/versions.toml: the lowest version of a file that uses an element type, a quantization scheme or an attribute."""
    table = tomllib.loads((SCHEMA / "versions.toml").read_text())
    known = {f"{op.name}.{a['name']}" for op in ops for a in op.attributes}
    if unknown := set(table["attributes"]) - known:
        raise SystemExit(f"schema/versions.toml: no op has the attributes {', '.join(sorted(unknown))}")
    return table
