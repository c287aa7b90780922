"""The gradient of map programs: the derivative table of schema/map_opcodes.toml, applied backwards through the program.
The backward of a map is one map per input, which computes again what it needs of the forward program."""

from __future__ import annotations

import math
from typing import Any

from linnet._generated.op_table import DERIVATIVES
from linnet.autodiff._tools import FLOAT_DTYPES, Gradients, unbroadcast
from linnet.errors import GraphError
from linnet.graph import Node, Tensor, emit
from linnet.mapping import FLOATS, REGISTER, Expr, Instruction, Program, Store

_CODE = {
    opcode: [compile(text, opcode, "eval") for text in row]
    for opcode, row in DERIVATIVES.items()
    if opcode not in ("cast", "select")
}


class _Value(Expr):
    """An Expr for the formulas of the table, which write == and != as Python does."""

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
    """The sum over the outputs of gradient * d output / d input `index`, of the iteration shape."""
    if any(i.opcode == "table" and i.operand == index for i in program.code):
        raise GraphError("its look-up table has no gradient", code=301, hint="use gather")
    made = Program()
    values = [_Value(made, made.add(i)) for i in program.code]  # registers keep their numbers
    follows = [False] * len(values)  # float registers that depend on the input
    for register, i in enumerate(program.code):
        own = i.opcode == "load" and i.operand == index
        follows[register] = i.result in FLOATS and (own or any(follows[r] for r in i.args))
    operands: list[Tensor | None] = list(node.inputs)
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
        elif i.opcode in _PASSES and program.code[i.args[1]].opcode == "const":
            value, bound = values[_bounded(program, register)], program.code[i.args[1]].number
            give(i.args[0], (value > bound if i.opcode == "max" else value < bound).select(here, 0.0))
        else:
            for position, argument in enumerate(i.args):
                if follows[argument]:
                    _chain(i.opcode, position, here, [values[r] for r in i.args], values[register], argument, give)
    if total is None:
        return None
    stored = {s.register: t for s, t in zip(program.stores, node.outputs, strict=True) if not s.quantized}
    return _pruned(made, total.register, operands, x, stored)


_PASSES = {"max": "min", "min": "max"}


def _bounded(program: Program, register: int) -> int:
    """A register behind this max or min with a constant that tells as well whether the bound was met: of clip, its result.
    The input of relu and clip is then not needed for their gradient."""
    own = program.code[register]
    bound, other = program.code[own.args[1]].number, _PASSES[own.opcode]
    for at, i in enumerate(program.code):
        if i.opcode == other and i.args[0] == register and program.code[i.args[1]].opcode == "const":
            limit = program.code[i.args[1]].number
            if limit > bound if own.opcode == "max" else limit < bound:
                return at
    return register


def _chain(opcode: str, position: int, g: Expr, args: list[_Value], y: _Value, argument: int, give: Any) -> None:
    if opcode not in _CODE:
        raise GraphError(f"its opcode {opcode} has no derivative", code=301)
    names = dict(zip("abc", args, strict=False))
    derivative = eval(_CODE[opcode][position], _NAMES, {**names, "y": y})
    if isinstance(derivative, int | float):
        if derivative:
            give(argument, g if derivative == 1 else -g if derivative == -1 else g * derivative)
    elif derivative.kind == "i32":  # a comparison: 0 where it does not hold, even when g is not finite
        give(argument, derivative.select(g, 0.0))
    else:
        give(argument, g * derivative)


def _pruned(
    program: Program, register: int, operands: list[Tensor | None], x: Tensor, stored: dict[int, Tensor]
) -> Tensor:
    """A map of the instructions that one register needs, and of the operands that these load. stored: registers that the
    forward map stored; they are loaded again where that does not take more operands than computing them again."""

    def needed(known: dict[int, Tensor]) -> tuple[set[int], list[Tensor]]:
        found, pending = set(), [register]
        while pending:
            at = pending.pop()
            if at not in found:
                found.add(at)
                pending += () if at in known else program.code[at].args
        loads: dict[Tensor, None] = {}
        for at in sorted(found):
            if at in known:
                loads[known[at]] = None
            elif program.code[at].opcode in _LOADS:
                tensor = operands[program.code[at].operand]
                assert tensor is not None
                loads[tensor] = None
        return found, list(loads)

    exact = {
        at: t for at, t in stored.items() if t.dtype == program.code[at].kind and program.code[at].opcode != "load"
    }
    registers, used = needed(exact)
    if (plain := needed({})) and len(plain[1]) < len(used):
        exact, (registers, used) = {}, plain
    clean = Program()
    place: dict[int, int] = {}
    for at in sorted(registers):
        i = program.code[at]
        if at in exact:
            i = Instruction("load", i.kind, operand=used.index(exact[at]))
        elif i.opcode in _LOADS:
            tensor = operands[i.operand]
            assert tensor is not None
            i = i._replace(operand=used.index(tensor))
        place[at] = clean.add(i._replace(args=tuple(place[r] for r in i.args)))
    clean.stores = [Store(place[register], False)]
    return emit("map", used, clean.attributes([x.dtype]), dtypes=[x.dtype])[0]


_LOADS = ("load", "load_dequantized", "table")
