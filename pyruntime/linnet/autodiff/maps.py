"""The gradient of map programs: the derivative table of schema/map_opcodes.toml, applied backwards through the program. The
gradient of a map is one map per input. The forward values that this map needs are taken from the results or recomputed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from linnet._generated.op_table import DERIVATIVES
from linnet.autodiff._tools import FLOAT_DTYPES, unbroadcast
from linnet.autodiff.sparse import Gradients
from linnet.clib.errors import GraphError
from linnet.ir.expr import Expr
from linnet.ir.function import Node, Tensor, emit
from linnet.ir.program import FLOATS, REGISTER, Instruction, Program, Store

_CODE = {
    opcode: [compile(text, opcode, "eval") for text in row]
    for opcode, row in DERIVATIVES.items()
    if opcode not in ("cast", "select")
}


class _Value(Expr):
    """An Expr for the table's formulas, in which == and != are ordinary Python operators."""

    def __eq__(self, other: Any) -> Any:
        return self.eq(other)

    def __ne__(self, other: Any) -> Any:
        return self.ne(other)

    __hash__ = None  # type: ignore[assignment]


def _unary(opcode: str) -> Any:
    return lambda v: v.unary(opcode) if isinstance(v, Expr) else getattr(math, opcode)(v)


_NAMES = {
    "__builtins__": {}, "pi": math.pi, "pow": lambda a, b: a**b, "where": lambda c, a, b: c.select(a, b),
    **{name: _unary(name) for name in ("sqrt", "exp", "log", "sin", "cos", "sinh", "cosh", "sign", "floor", "trunc")},
}  # fmt: skip


def map_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Gradients of a map's inputs."""
    program = Program.decode({name: node.attribute(name) for name in ("program", "floats", "integers")})
    result: list[Tensor | None] = []
    for index, tensor in enumerate(node.inputs):
        if tensor is None or not needs[index] or tensor.dtype not in FLOAT_DTYPES:
            result.append(None)
            continue
        gradient = _input_gradient(node, program, given, index, tensor)
        result.append(None if gradient is None else unbroadcast(gradient, tensor))
    return result


def _input_gradient(node: Node, program: Program, given: list[Tensor | None], index: int, x: Tensor) -> Tensor | None:
    """The sum over all outputs of gradient * d output / d input `index`, in the iteration shape."""
    if any(i.opcode == "table" and i.operand == index for i in program.code):
        raise GraphError("the lookup table has no gradient", code=301, hint="use gather instead")
    made = Program()
    values = [_Value(made, made.add(i)) for i in program.code]  # registers keep their numbers
    follows = [False] * len(values)  # float registers that depend on the input
    for register, i in enumerate(program.code):
        own = i.opcode == "load" and i.operand == index
        follows[register] = i.result in FLOATS and (own or any(follows[r] for r in i.args))
    operands: list[Tensor | None] = list(node.inputs)
    stands = _clipped(program)
    adjoint: dict[int, Expr] = {}

    def give(register: int, value: Expr) -> None:
        if follows[register]:
            value = value.cast(values[register].kind)
            adjoint[register] = adjoint[register] + value if register in adjoint else value

    for store, g in zip(program.stores, given, strict=True):
        if g is None or not follows[store.register]:
            continue
        if store.quantized:
            raise GraphError("a quantized store has no gradient", code=301)
        operands.append(g)
        give(store.register, Expr(made, made.add(Instruction("load", REGISTER[g.dtype], operand=len(operands) - 1))))
    total: Expr | None = None
    for register in range(len(values) - 1, -1, -1):
        i = program.code[register]
        if register not in adjoint:
            continue
        here = adjoint[register]
        if i.opcode == "load" and i.operand == index:
            total = here if total is None else total + here
        elif i.opcode == "cast":
            give(i.args[0], here)
        elif i.opcode == "select":
            condition, yes, no = i.args
            if follows[yes]:
                give(yes, values[condition].select(here, 0.0))
            if follows[no]:
                give(no, values[condition].select(here.lift(0.0), here))
        else:
            for position, argument in enumerate(i.args):
                if follows[argument]:
                    _chain(
                        i.opcode,
                        position,
                        here,
                        [values[r] for r in i.args],
                        values[stands.get(register, register)],
                        argument,
                        give,
                    )
    if total is None:
        return None
    stored = {
        store.register: output
        for store, output in zip(program.stores, node.outputs, strict=True)
        if output is not None and not store.quantized and output.dtype == values[store.register].kind
    }
    return _pruned(made, total.register, operands, x, stored)


def _clipped(program: Program) -> dict[int, int]:
    """A clip between two numbers consists of two instructions. Maps the register of the inner instruction to the
    register of the whole clip, which shows just as well where the inner one clipped."""
    found = {}
    for register, i in enumerate(program.code):
        inner = program.code[i.args[0]] if i.opcode in ("min", "max") else None
        if inner is None or {inner.opcode, i.opcode} != {"min", "max"}:
            continue
        bounds = [program.code[part.args[1]] for part in (inner, i)]
        if all(b.opcode == "const" for b in bounds) and sum(i.args[0] in c.args for c in program.code) == 1:
            low, high = (b.number for b in (bounds if inner.opcode == "max" else bounds[::-1]))
            if low < high:
                found[i.args[0]] = register
    return found


def _chain(opcode: str, position: int, g: Expr, args: list[_Value], y: _Value, argument: int, give: Any) -> None:
    if opcode not in _CODE:
        raise GraphError(f"the map opcode {opcode} has no derivative", code=301)
    names = dict(zip("abc", args, strict=False))
    derivative = eval(_CODE[opcode][position], _NAMES, {**names, "y": y})
    if isinstance(derivative, int | float):
        if derivative:
            give(argument, g if derivative == 1 else -g if derivative == -1 else g * derivative)
    elif derivative.kind == "i32":  # comparison: 0 where it is false, even if g is not finite
        give(argument, derivative.select(g, 0.0))
    else:
        give(argument, g * derivative)


def _needed(program: Program, register: int, given: Collection[int]) -> set[int]:
    """The registers on which this register depends. The search stops at the given registers."""
    needed: set[int] = set()
    pending = [register]
    while pending:
        at = pending.pop()
        if at not in needed:
            needed.add(at)
            pending += () if at in given else program.code[at].args
    return needed


def _pruned(
    program: Program, register: int, operands: list[Tensor | None], x: Tensor, stored: Mapping[int, Tensor]
) -> Tensor:
    """A map with only the instructions that one register needs, and only the operands that these load. stored:
    registers that are results of the forward map. A result is loaded instead of recomputed if this saves reading an
    operand of the forward map. So a relu or tanh keeps its result, which the next layer keeps anyway, and not its
    input. This allows it to be fused as an epilogue of the op before it."""

    def loads(needed: set[int]) -> set[int]:
        return {program.code[at].operand for at in needed if program.code[at].opcode in ("load", "table")}

    needed, short = _needed(program, register, ()), _needed(program, register, stored)
    if loads(short) < loads(needed):
        needed = short
        for at in needed & stored.keys():
            operands = [*operands, stored[at]]
            program.code[at] = Instruction("load", program.code[at].result, operand=len(operands) - 1)
    clean = Program()
    used: list[Tensor | None] = []
    place: dict[int, int] = {}
    for at in sorted(needed):
        i = program.code[at]
        if i.opcode in ("load", "load_dequantized", "table"):
            tensor = operands[i.operand]
            assert tensor is not None
            if tensor not in used:
                used.append(tensor)
            i = i._replace(operand=used.index(tensor))
        place[at] = clean.add(i._replace(args=tuple(place[r] for r in i.args)))
    clean.stores = [Store(place[register], False)]
    return emit("map", used, clean.attributes([x.dtype]), dtypes=[x.dtype])[0]
