"""Finite differences of every case of gradient_cases.py, first and second order, with fixed and open sizes. Also checks that the
cases cover the whole op table."""

from __future__ import annotations

import pytest

from linnet._generated.op_table import DERIVATIVES, OPS
from linnet.autodiff.rules import RULES
from linnet.facade import Graph
from linnet.ir.function import Node
from linnet.ir.program import Program
from tests.gradient_cases import CASES, Case
from tests.test_autodiff import check

WITHOUT: dict[str, str] = {
    "*.requant": "integers only",
    "*.output_dtype": "integers only",
    "conv_gradient.kernel=default": "must be given",
    "pool.kernel=default": "must be given",
    "pool_gradient.kernel=default": "must be given",
    "map.program=default": "must be given",
    "reduce.kind=argmax": "an index has no gradient",
    "reduce.kind=argmin": "an index has no gradient",
    "reduce.select_last_index": "of argmax and argmin",
    "pool.storage_order": "of the indices, which have no gradient",
    "pool -> indices": "an index has no gradient",
    "map.shape": "of programs without inputs",
    "map.dtypes": "covered by what casts",
    "map.integers": "of integer registers",
    "copy.kind=bitcast": "bits are no numbers",
    "copy.dtype": "of bitcast",
    "cast.dtype": "finite differences are taken in f64: test_autodiff.py has casts of other floats",
    "while: trips absent": "a gradient needs a bound",
    "quantize": "a rounded value has no slope to compare with: test_autodiff_quantized.py",
    "dequantize": "as quantize",
    "gather.dtype": "of quantized integers, which have no gradient",
    "user": "its gradient is the user's: test_user_ops.py compares one with finite differences",
}
"""Exceptions without a case, and why."""


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_first_derivatives(case: Case) -> None:
    check(case.build, *case.arrays, probes=3)


@pytest.mark.parametrize("case", [c for c in CASES if c.second], ids=lambda c: c.name)
def test_second_derivatives(case: Case) -> None:
    check(case.build, *case.arrays, order=2, probes=2)


@pytest.mark.parametrize("case", [c for c in CASES if c.open], ids=lambda c: c.name)
def test_open_sizes(case: Case) -> None:
    check(case.build, *case.arrays, dynamic=True, probes=2)


def test_there_is_a_case_for_all_that_the_op_table_allows() -> None:
    found: set[str] = set()
    opcodes: set[str] = set()
    for case in CASES:
        main = Graph().function()
        case.build(*(main.placeholder(f"x{i}", "f64", a.shape) for i, a in enumerate(case.arrays)))
        for node in main.nodes:
            found |= set(seen(node))
            if node.op == "map":
                table = {name: node.attribute(name) for name in ("program", "floats", "integers")}
                opcodes |= {i.opcode for i in Program.decode(table).code}
    wanted = {what for op in RULES for what in required(op)}
    missing = {w for w in wanted - found if not any(matches(w, known) for known in WITHOUT)}
    assert not missing, f"no case in tests/gradient_cases.py has: {', '.join(sorted(missing))}"
    assert not set(DERIVATIVES) - opcodes - {"cast"}


def matches(what: str, known: str) -> bool:
    op, _, rest = known.partition(".")
    return (
        what == known
        or what.startswith((f"{known}=", f"{known}.", f"{known}:", f"{known} ->"))
        or (op == "*" and f".{rest}=" in what)
    )


def seen(node: Node) -> list[str]:
    """The entries of the op table that a node covers."""
    row = OPS[node.op]
    found = [node.op]
    for name, (_, kind, default, _) in row["attributes"].items():
        value = node.attribute(name)
        if kind in ("enum", "bool"):
            found.append(f"{node.op}.{name}={value}")
        else:
            found.append(f"{node.op}.{name}={'default' if value == default or value == () else 'other'}")
    for i, spec in enumerate(row["inputs"]):
        given = i < len(node.inputs) and node.inputs[i] is not None
        found.append(f"{node.op}: {spec['name']} {'given' if given else 'absent'}")
    found += [f"{node.op} -> {spec['name']}" for spec in row["outputs"][: len(node.outputs)]]
    return found


def required(op: str) -> list[str]:
    """The entries of the op table for an op."""
    row = OPS[op]
    found = [op]
    for name, (_, kind, _, values) in row["attributes"].items():
        if kind == "function":
            continue
        options = values if kind == "enum" else (True, False) if kind == "bool" else ("default", "other")
        found += [f"{op}.{name}={value}" for value in options]
    for spec in row["inputs"]:
        found += [f"{op}: {spec['name']} given"]
        if spec.get("optional") and not spec.get("variadic"):
            found += [f"{op}: {spec['name']} absent"]
    found += [f"{op} -> {spec['name']}" for spec in row["outputs"]]
    return found
