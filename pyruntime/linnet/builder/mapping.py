"""Map nodes, which compute pointwise programs: `pointwise` builds one from an expression, `opened` decodes one, and
`join` merges two. linnet.ir.program and linnet.ir.expr handle the programs; this module creates the nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from linnet.ir.dtypes import Dim, DTypeLike, Quantization
from linnet.ir.expr import Expr, compiled
from linnet.ir.function import Function, Node, Operators, Tensor, emit
from linnet.ir.program import FLOATS, MAX_INPUTS, MAX_INSTRUCTIONS, REGISTER, Instruction, Program, Store


def pointwise(
    inputs: Sequence[Operators],
    body: Callable[..., Expr | Sequence[Expr]],
    dtypes: DTypeLike | Sequence[DTypeLike] | None = None,
    *,
    name: str = "",
    function: Function | None = None,
    quantization: Sequence[Quantization | None] = (),
    dequantize: bool = False,
) -> Any:
    """Creates one map node: pointwise([x, y], lambda a, b: a.max(0.0) * b).

    body: takes one Expr per input. Returns one Expr, or a tuple with one Expr per output.
    dtypes: dtypes of the outputs. Default: "bool" if the result is known to be 0 or 1, as for a comparison; "u64" for
        an unsigned 64-bit result. Otherwise, it is the dtype of the first input, bools aside, that is computed in the
        same type as the result (`linnet.ir.program.REGISTER`). If there is none, it is that type.
    dequantize: whether inputs with a quantization are loaded as real numbers.
    quantization: the quantization with which the outputs are stored; `dtypes` must then be given too. Returns a Tensor,
        or a list if body returns a tuple.
    Raises GraphError if the shapes cannot be broadcast.
    """
    operands, attributes, made, single = compiled(inputs, body, dtypes, quantization, dequantize)
    outputs = emit("map", operands, attributes, len(made), name, function, quantization, made)
    return outputs[0] if single else outputs


def look_up(x: Tensor, table: Tensor, index: Callable[[Expr], Expr] = lambda v: v, *, name: str = "") -> Tensor:
    """table[index(x)] for an integer tensor x. The table is a 1-D constant, which is not broadcast. The result has the
    table's dtype."""
    program = Program()
    loaded = Expr.load(program, x.dtype, 0)
    program.stores = [Store(index(loaded).table(1, REGISTER[table.dtype]).register, False)]
    return emit("map", [x, table], program.attributes([table.dtype]), name=name)[0]


def program_of(node: Node) -> Program | None:
    """The program of a map or cast node. None for other nodes."""
    if node.op == "map":
        return Program.decode({name: node.attribute(name) for name in ("program", "floats", "integers")})
    if node.op == "cast" and node.inputs[0] is not None:
        program, source, target = Program(), node.inputs[0].dtype, node.outputs[0].dtype
        register = REGISTER[target]
        # Loads and stores convert as the op does. Only they distinguish u64 from i64 and saturate to narrow types.
        kind = register if source == "u64" and register in FLOATS else REGISTER[source]
        value = Expr(program, program.add(Instruction("load", kind, operand=0)))
        if target == "bool" and not program.boolean(value.register):
            value = value.ne(0)
        elif target == register:
            value = value.cast(register)
        program.stores = [Store(value.register, False)]
        return program
    return None


def _through(program: Program, register: int, dtype: str, kind: str) -> int:
    """The value of a register after it is stored as `dtype` and loaded as `kind`. Only for dtypes in FUSABLE."""
    value = Expr(program, register)
    if dtype == "bool":
        value = value if program.boolean(register) else value.ne(0)
    else:
        value = value.cast(REGISTER[dtype])
    return value.cast(kind).register


# Dtypes that a register holds unchanged. For f16 and bf16, only the rounding of a store to memory is lost.
FUSABLE = frozenset({"f32", "f64", "i32", "i64", "bool", "f16", "bf16"})


class Opened(NamedTuple):
    """A map or cast in decoded form: a program, and the tensors that it loads, in the order of first use."""

    program: Program
    operands: list[Tensor]

    @property
    def loaded(self) -> set[Tensor]:
        """The operands that take part in broadcasting."""
        return {self.operands[i] for i in self.program.loads}


_READS = frozenset({"load", "load_dequantized", "table"})


def opened(node: Node) -> Opened | None:
    """The decoded node, or None if it is neither a map nor a cast."""
    program = program_of(node)
    if program is None:
        return None
    made = Opened(Program(), [])
    place = _append(made, program, node.inputs, lambda instruction, tensor: None)
    made.program.stores = [Store(place[s.register], s.quantized) for s in program.stores]
    return made


def _append(
    onto: Opened,
    program: Program,
    inputs: Sequence[Tensor | None],
    known: Callable[[Instruction, Tensor], int | None],
) -> list[int]:
    """Adds the program's instructions and returns their new registers. known: returns the register that replaces a
    read, or None."""
    place: list[int] = []
    for instruction in program.code:
        if instruction.opcode in _READS:
            tensor = inputs[instruction.operand]
            assert tensor is not None
            if (register := known(instruction, tensor)) is not None:
                place.append(register)
                continue
            if tensor not in onto.operands:
                onto.operands.append(tensor)
            instruction = instruction._replace(operand=onto.operands.index(tensor))
        place.append(onto.program.add(instruction._replace(args=tuple(place[r] for r in instruction.args))))
    return place


def join(consumer: Opened, producer: Opened, node: Node) -> Opened | None:
    """Merges two programs into one that computes the consumer's outputs from the producer's inputs. So a chain of maps
    needs only one pass over the data. Returns None without changes if they cannot be merged.

    node: the node of the producer. The caller has checked that nothing else needs its output and that the shapes match.
    """
    if len(node.outputs) != 1 or producer.program.stores[0].quantized:
        return None
    middle, program = node.outputs[0], producer.program
    if middle.dtype not in FUSABLE or middle.quantization is not None:
        return None
    if middle.dtype in ("f16", "bf16") and any(t is not None and t.dtype in ("f32", "f64") for t in node.inputs):
        return None  # this rounding was requested explicitly
    reads = (i for i in consumer.program.code if i.opcode in _READS and consumer.operands[i.operand] is middle)
    if any(i.opcode != "load" for i in reads):
        return None
    instructions, operands, produced = len(program.code), len(producer.operands), program.stores[0].register

    def through(instruction: Instruction, tensor: Tensor) -> int | None:
        return _through(program, produced, middle.dtype, instruction.kind) if tensor is middle else None

    place = _append(producer, consumer.program, consumer.operands, through)
    if len(producer.operands) > MAX_INPUTS or len(program.code) > MAX_INSTRUCTIONS:
        program.cut(instructions)
        del producer.operands[operands:]
        return None
    program.stores = [Store(place[s.register], s.quantized) for s in consumer.program.stores]
    return producer


def iteration_shape(tensors: Sequence[Tensor]) -> tuple[Dim, ...] | None:
    """The known part of the broadcast shape, or None if a rank is unknown. If one size is unknown and another is known
    and above 1, the result has the known size."""
    shapes: list[tuple[Dim, ...]] = []
    for t in tensors:
        if t.shape is None:
            return None
        shapes.append(t.shape)
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, rank - len(shape)):
            if result[i] == 1 or (isinstance(d, int) and d != 1):
                result[i] = d
            elif d != 1 and not isinstance(result[i], int) and d != result[i]:
                result[i] = None
    return tuple(result)
