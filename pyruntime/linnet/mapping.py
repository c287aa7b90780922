"""Map programs: pointwise expressions with Python operators, compiled to the register program of a `map` node.
`pointwise` builds a node, `Program` takes programs apart, and `join` makes one of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from linnet._generated.op_table import OPCODES
from linnet.errors import GraphError
from linnet.graph import DTYPE_IDS, DTYPE_NAMES, Dim, Function, Node, Quantization, Tensor, emit
from linnet.operators import Operators

FLOATS = frozenset({"f32", "f64"})  # the float register types
REGISTER = {
    "f32": "f32", "f16": "f32", "bf16": "f32", "f64": "f64", "i8": "i32", "i16": "i32", "i32": "i32", "u8": "i32",
    "u16": "i32", "bool": "i32", "i64": "i64", "u32": "i64", "u64": "i64",
}  # fmt: skip
"""The register type in which an element type is computed."""
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_nan", "is_inf"})  # their result is i32
ORDERED = frozenset({"lt", "le", "gt", "ge"})
_SIGN_BIT = -(1 << 63)
_RANK = {"i32": 0, "i64": 1, "f32": 2, "f64": 3}
_NAMES = {number: name for name, (number, _, _) in OPCODES.items()}
WORDS = 5  # of an instruction in the file
MAX_INPUTS = 24
MAX_INSTRUCTIONS = 200


class Instruction(NamedTuple):
    """One value. kind: the register type that stands in the file (of the operands, for comparisons). args: registers;
    number: immediate of const; operand: input of load, load_dequantized, table, or axis of iota; extra: multiplier and shift
    of fixed_multiply."""

    opcode: str
    kind: str
    args: tuple[int, ...] = ()
    number: float = 0
    operand: int = 0
    extra: tuple[int, ...] = ()

    @property
    def result(self) -> str:
        """Register type of the value."""
        return "i32" if self.opcode in COMPARISONS else self.kind


class Store(NamedTuple):
    """Register to output; quantized: by the output's quantization."""

    register: int
    quantized: bool


def _key(instruction: Instruction) -> Any:
    """Equal for equal instructions. NaN is not equal to itself, and -0.0 is equal to 0.0."""
    number = instruction.number
    if number and number == number:
        return instruction
    return (*instruction[:3], *instruction[4:], "nan" if number else math.copysign(1.0, number))


class Program:
    """A register program with immediates in place. Equal instructions exist once."""

    def __init__(self) -> None:
        self.code: list[Instruction] = []
        self.stores: list[Store] = []  # one per output, in order
        self._known: dict[Any, int] = {}

    def add(self, instruction: Instruction) -> int:
        """The register of this instruction, new or known."""
        register = self._known.setdefault(_key(instruction), len(self.code))
        if register == len(self.code):
            self.code.append(instruction)
        return register

    def cut(self, length: int) -> None:
        """Only the first instructions stay."""
        for instruction in self.code[length:]:
            del self._known[_key(instruction)]
        del self.code[length:]

    @staticmethod
    def decode(attributes: dict[str, Any]) -> Program:
        """The program of a map node's attributes. GraphError when it makes no sense."""
        program = Program()
        registers: list[int] = []
        words = attributes["program"]
        stores: dict[int, Store] = {}
        try:
            for at in range(0, len(words), WORDS):
                number, kind_number, a, b, c = words[at : at + WORDS]
                opcode, kind = _NAMES[number], DTYPE_NAMES[kind_number]
                if opcode in ("store", "store_quantized"):
                    stores[b] = Store(registers[a], opcode == "store_quantized")
                    registers.append(-1)
                    continue
                if opcode == "const":
                    table = attributes["floats"] if kind in FLOATS else attributes["integers"]
                    made = Instruction(opcode, kind, number=table[a])
                elif opcode in ("load", "load_dequantized", "iota"):
                    made = Instruction(opcode, kind, operand=a)
                elif opcode == "table":
                    made = Instruction(opcode, kind, (registers[a],), operand=b)
                elif opcode in ("fixed_multiply", "fixed_multiply_single"):
                    integers = attributes["integers"]
                    made = Instruction(opcode, kind, (registers[a],), extra=(integers[b], integers[c]))
                else:
                    made = Instruction(opcode, kind, tuple(registers[r] for r in (a, b, c)[: OPCODES[opcode][1]]))
                registers.append(program.add(made))
            program.stores = [stores[i] for i in range(len(stores))]
        except (KeyError, IndexError, ValueError) as error:
            raise GraphError(f"a map program is malformed at instruction {len(registers)}: {error}", code=302) from None
        return program

    def attributes(self, dtypes: Sequence[str], shape: Sequence[int] = ()) -> dict[str, Any]:
        """The attributes of a map node. Instructions that no store needs are left out, but not loads: what is loaded
        takes part in broadcasting."""
        loads = [i for i, instruction in enumerate(self.code) if instruction.opcode in ("load", "load_dequantized")]
        needed, pending = set(), [*loads, *(s.register for s in self.stores)]
        while pending:
            register = pending.pop()
            if register not in needed:
                needed.add(register)
                pending += self.code[register].args
        floats: list[float] = []
        integers: list[int] = []
        words: list[int] = []
        place: dict[int, int] = {}

        def immediate(table: list[Any], number: float) -> int:
            for i, known in enumerate(table):
                same_sign = math.copysign(1.0, known) == math.copysign(1.0, number)
                if (known == number and same_sign) or (math.isnan(known) and math.isnan(number)):
                    return i
            table.append(number)
            return len(table) - 1

        for register in sorted(needed):
            opcode, kind, args, number, operand, extra = self.code[register]
            operands = [place[r] for r in args]
            if opcode == "const":
                operands = [immediate(floats, float(number)) if kind in FLOATS else immediate(integers, int(number))]
            elif opcode in ("load", "load_dequantized", "iota", "table"):
                operands.append(operand)
            elif extra:
                operands += [immediate(integers, n) for n in extra]
            place[register] = len(words) // WORDS
            words += [OPCODES[opcode][0], DTYPE_IDS[kind], *operands, *[0] * (3 - len(operands))]
        for output, store in enumerate(self.stores):
            opcode, kind = "store_quantized" if store.quantized else "store", self.code[store.register].result
            words += [OPCODES[opcode][0], DTYPE_IDS[kind], place[store.register], output, 0]
        return {
            "program": tuple(words), "floats": tuple(floats), "integers": tuple(integers),
            "dtypes": tuple(DTYPE_IDS[d] for d in dtypes), "shape": tuple(shape),
        }  # fmt: skip

    def constant(self, number: float, kind: str) -> int:
        return self.add(Instruction("const", kind, number=float(number) if kind in FLOATS else int(number)))

    def boolean(self, register: int) -> bool:
        """Whether a register surely holds 0 or 1."""
        opcode, _, args, number, _, _ = self.code[register]
        if opcode == "const":
            return number in (0, 1)
        if opcode in ("and", "or", "xor", "min", "max", "mul"):
            return all(self.boolean(r) for r in args)
        if opcode == "select":
            return all(self.boolean(r) for r in args[1:])
        return opcode in COMPARISONS

    @property
    def loads(self) -> set[int]:
        """Inputs that are loaded, and so take part in broadcasting (look-up tables do not)."""
        return {i.operand for i in self.code if i.opcode in ("load", "load_dequantized")}


class Expr:
    """A value of a program under construction. Python's operators and the methods below make new values; numbers become
    immediates of the other operand's type; of two register types the wider is taken (i32 < i64 < f32 < f64).
    unsigned: an i64 register that holds an u64; what depends on the sign is then made of several instructions."""

    __array_ufunc__ = None  # NumPy scalars leave the operators to us

    def __init__(self, program: Program, register: int, unsigned: bool = False) -> None:
        self.program, self.register, self.unsigned = program, register, unsigned

    @staticmethod
    def load(program: Program, dtype: str, operand: int) -> Expr:
        """An input of that element type, in its register type."""
        return Expr(program, program.add(Instruction("load", REGISTER[dtype], operand=operand)), dtype == "u64")

    @staticmethod
    def constant(program: Program, number: float, dtype: str) -> Expr:
        """An immediate of that element type, in its register type."""
        unsigned = dtype == "u64"
        if unsigned and number >= 1 << 63:
            number = int(number) - (1 << 64)
        return Expr(program, program.constant(number, REGISTER[dtype]), unsigned)

    @property
    def kind(self) -> str:
        """Register type: f32, f64, i32 or i64."""
        return self.program.code[self.register].result

    def _of(self, instruction: Instruction, unsigned: bool = False) -> Expr:
        made = Expr(self.program, self.program.add(instruction))
        made.unsigned = unsigned and made.kind == "i64"
        return made

    def _signed(self) -> Expr:
        """The same register, read as signed."""
        return Expr(self.program, self.register)

    def lift(self, value: Expr | float) -> Expr:
        """A number as a value of this one's type (f32 when an integer type cannot hold it)."""
        if isinstance(value, Expr):
            return value
        kind = self.kind
        if kind not in FLOATS and value != int(value):
            kind = "f32"
        return Expr.constant(self.program, value, "u64" if self.unsigned and kind == "i64" else kind)

    def unary(self, opcode: str) -> Expr:
        """The opcode of one operand (schema/map_opcodes.toml) of this value."""
        if self.unsigned and opcode == "abs":
            return self
        if self.unsigned and opcode == "sign":
            return Expr(self.program, self.ne(0).cast("i64").register, True)
        return self._of(Instruction(opcode, self.kind, (self.register,)), self.unsigned)

    def binary(self, opcode: str, other: Expr | float) -> Expr:
        """The opcode of this value and another."""
        right = self.lift(other)
        kind = max(self.kind, right.kind, key=_RANK.__getitem__)
        left, right = self.cast(kind), right.cast(kind)
        if left.unsigned or right.unsigned:
            return _unsigned(opcode, left, right)
        return left._of(Instruction(opcode, kind, (left.register, right.register)))

    def reverse(self, opcode: str, other: float) -> Expr:
        """The opcode of a number and this value."""
        return self.lift(other).binary(opcode, self)

    def cast(self, kind: str) -> Expr:
        """To another register type: f32, f64, i32, i64."""
        if kind == self.kind:
            return self
        if self.unsigned and kind in FLOATS:  # above 2^63: half of it, whose last bit stands for what was cut off
            signed = self._signed()
            half = (signed.binary("shift_right_logical", 1) | (signed & 1)).cast(kind)
            return (signed < 0).select(half + half, signed.cast(kind))
        return self._of(Instruction("cast", kind, (self.register,)))

    def for_store(self, dtype: str | None) -> Expr:
        """What a store to that element type takes: it converts as `cast` does, but would read u64 values as signed."""
        kind = REGISTER[dtype] if dtype is not None else self.kind
        return self.cast(kind) if self.unsigned and kind in FLOATS else self

    def select(self, yes: Expr | float, no: Expr | float) -> Expr:
        """`yes` where this value is not 0, else `no`."""
        if not isinstance(yes, Expr):
            yes = no.lift(yes) if isinstance(no, Expr) else Expr(self.program, self.program.constant(yes, "f32"))
        no = yes.lift(no)
        kind = max(yes.kind, no.kind, key=_RANK.__getitem__)
        condition = self if self.kind == "i32" else self.binary("ne", 0)
        registers = (condition.register, yes.cast(kind).register, no.cast(kind).register)
        return self._of(Instruction("select", kind, registers), yes.unsigned or no.unsigned)

    def iota(self, axis: int, kind: str = "i64") -> Expr:
        """The coordinate along an axis of the iteration shape."""
        return self._of(Instruction("iota", kind, operand=axis))

    def fixed_multiply(self, multiplier: int, shift: int, single: bool = False) -> Expr:
        """TFLite's MultiplyByQuantizedMultiplier on an i32 value: Q31 multiplier, then a right shift (negative: left)."""
        opcode = "fixed_multiply_single" if single else "fixed_multiply"
        return self._of(Instruction(opcode, "i32", (self.register,), extra=(multiplier, shift)))

    def table(self, values: int, kind: str = "f32") -> Expr:
        """Element (this value) of input number `values`, a 1-D tensor."""
        return self._of(Instruction("table", kind, (self.cast("i32").register,), operand=values))

    def __add__(self, other: Expr | float) -> Expr:
        return self.binary("add", other)

    def __radd__(self, other: float) -> Expr:
        return self.reverse("add", other)

    def __sub__(self, other: Expr | float) -> Expr:
        return self.binary("sub", other)

    def __rsub__(self, other: float) -> Expr:
        return self.reverse("sub", other)

    def __mul__(self, other: Expr | float) -> Expr:
        return self.binary("mul", other)

    def __rmul__(self, other: float) -> Expr:
        return self.reverse("mul", other)

    def __truediv__(self, other: Expr | float) -> Expr:
        return self.binary("div", other)

    def __rtruediv__(self, other: float) -> Expr:
        return self.reverse("div", other)

    def __pow__(self, other: Expr | float) -> Expr:
        return self.binary("pow", other)

    def __mod__(self, other: Expr | float) -> Expr:
        return self.binary("mod", other)

    def __and__(self, other: Expr | float) -> Expr:
        return self.binary("and", other)

    def __or__(self, other: Expr | float) -> Expr:
        return self.binary("or", other)

    def __xor__(self, other: Expr | float) -> Expr:
        return self.binary("xor", other)

    def __lt__(self, other: Expr | float) -> Expr:
        return self.binary("lt", other)

    def __le__(self, other: Expr | float) -> Expr:
        return self.binary("le", other)

    def __gt__(self, other: Expr | float) -> Expr:
        return self.binary("gt", other)

    def __ge__(self, other: Expr | float) -> Expr:
        return self.binary("ge", other)

    def eq(self, other: Expr | float) -> Expr:
        """Where both are equal."""
        return self.binary("eq", other)

    def ne(self, other: Expr | float) -> Expr:
        """Where they differ."""
        return self.binary("ne", other)

    def __neg__(self) -> Expr:
        return self.unary("neg")

    def __abs__(self) -> Expr:
        return self.unary("abs")

    def max(self, other: Expr | float) -> Expr:
        """The larger one."""
        return self.binary("max", other)

    def min(self, other: Expr | float) -> Expr:
        """The smaller one."""
        return self.binary("min", other)

    def __getattr__(self, name: str) -> Callable[[], Expr]:
        """The other unary opcodes as methods: exp, log, tanh, sigmoid, erf, sqrt, floor, is_nan, ..."""
        if name in OPCODES and OPCODES[name][1] == 1 and not name.startswith(("store", "load", "cast")):
            return lambda: self.unary(name)
        raise AttributeError(name)


def _unsigned(opcode: str, a: Expr, b: Expr) -> Expr:
    """The opcode of two i64 registers of which one at least holds u64 values."""
    x, y = a._signed(), b._signed()
    if opcode in ORDERED:  # with the highest bits flipped, the signed order is the unsigned one
        made = (x ^ _SIGN_BIT).binary(opcode, y ^ _SIGN_BIT)
    elif opcode in ("min", "max"):
        made = _unsigned("lt" if opcode == "min" else "gt", a, b).select(x, y)
    elif opcode == "div":
        made = _divide_unsigned(x, y)
    elif opcode in ("mod", "fmod"):
        made = y.eq(0).select(0, x - _divide_unsigned(x, y) * y)
    else:
        if opcode == "shift_right" and a.unsigned:
            opcode = "shift_right_logical"
        if (
            opcode == "pow" and b.unsigned
        ):  # modulo 2^64 powers repeat after 2^62, but for factors of 2, which are gone then
            y = (y < 0).select((y & ((1 << 62) - 1)) | (1 << 62), y)
        made = x._of(Instruction(opcode, "i64", (x.register, y.register)))
        if opcode == "pow" or opcode.startswith("shift"):
            made.unsigned = a.unsigned
            return made
    made.unsigned = made.kind == "i64"
    return made


def _divide_unsigned(a: Expr, b: Expr) -> Expr:
    """u64 quotient in i64 registers, 0 by zero: by halves, then corrected by at most one (Hacker's Delight, 9-3)."""

    def reaches(x: Expr, y: Expr) -> Expr:
        return (x ^ _SIGN_BIT).binary("ge", y ^ _SIGN_BIT).cast("i64")

    half = a.binary("shift_right_logical", 1) / b
    quotient = half.binary("shift_left", 1)
    quotient = b.eq(0).select(0, quotient + reaches(a - quotient * b, b))
    return (b < 0).select(reaches(a, b), quotient)  # b >= 2^63: the quotient is 0 or 1


def pointwise(
    inputs: Sequence[Operators],
    body: Callable[..., Expr | Sequence[Expr]],
    dtypes: str | Sequence[str] | None = None,
    *,
    name: str = "",
    function: Function | None = None,
    quantization: Sequence[Quantization | None] = (),
    dequantize: bool = False,
) -> Any:
    """One map node: pointwise([x, y], lambda a, b: a.max(0.0) * b).

    body gets one Expr per input and returns one, or a tuple, one per output. dtypes: of the outputs; by default "bool" for
    a comparison, else that of the first input computed in the same register type. dequantize: inputs with a quantization
    are loaded as real numbers. quantization: of the outputs, which are then stored through it (give their dtypes too).
    Returns a Tensor, or a list when body gives a tuple. Raises GraphError when the shapes cannot be broadcast.
    """
    program, operands, values = Program(), list(dict.fromkeys(inputs)), []
    for tensor in inputs:
        if dequantize and tensor.quantization is not None:
            loaded = program.add(Instruction("load_dequantized", "f32", operand=operands.index(tensor)))
            values.append(Expr(program, loaded))
        else:
            values.append(Expr.load(program, tensor.dtype, operands.index(tensor)))
    result = body(*values)
    results = [result] if isinstance(result, Expr) else list(result)
    nothing: list[str | None] = [None] * len(results)
    wanted = [dtypes] if isinstance(dtypes, str) else list(dtypes or nothing)
    made: list[str] = []
    for i, (expression, dtype) in enumerate(zip(results, wanted, strict=True)):
        quantized = i < len(quantization) and quantization[i] is not None
        stored = expression.cast("f32") if quantized else expression.for_store(dtype)
        program.stores.append(Store(stored.register, quantized))
        made.append(dtype or _default_dtype(expression, inputs))
    outputs = emit("map", operands, program.attributes(made), len(results), name, function, quantization, made)
    return outputs[0] if isinstance(result, Expr) else outputs


def look_up(x: Tensor, table: Tensor, index: Callable[[Expr], Expr] = lambda v: v, *, name: str = "") -> Tensor:
    """table[index(x)] for an integer tensor x and a 1-D constant, which is not broadcast; the table's element type."""
    program = Program()
    loaded = Expr.load(program, x.dtype, 0)
    program.stores = [Store(index(loaded).table(1, REGISTER[table.dtype]).register, False)]
    return emit("map", [x, table], program.attributes([table.dtype]), name=name)[0]


def _default_dtype(expression: Expr, inputs: Sequence[Operators]) -> str:
    if expression.program.boolean(expression.register):
        return "bool"
    if expression.unsigned:
        return "u64"
    same = (t.dtype for t in inputs if REGISTER[t.dtype] == expression.kind and t.dtype != "bool")
    return next(same, expression.kind)


def program_of(node: Node) -> Program | None:
    """The node as a program: a map's own, or that of a cast. None for other nodes."""
    if node.op == "map":
        return Program.decode({name: node.attribute(name) for name in ("program", "floats", "integers")})
    if node.op == "cast" and node.inputs[0] is not None:
        program, source, target = Program(), node.inputs[0].dtype, node.outputs[0].dtype
        register = REGISTER[target]
        # Loads and stores convert as the op does; only they know an u64 from an i64, and saturate to narrow types.
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
    """The register as it would be after being stored as `dtype` and loaded as `kind`. For the dtypes of FUSABLE."""
    value = Expr(program, register)
    if dtype == "bool":
        value = value if program.boolean(register) else value.ne(0)
    else:
        value = value.cast(REGISTER[dtype])
    return value.cast(kind).register


# Element types that a register holds as they are; f16 and bf16 lose nothing but a rounding on the way to memory.
FUSABLE = frozenset({"f32", "f64", "i32", "i64", "bool", "f16", "bf16"})


class Opened(NamedTuple):
    """A map or a cast taken apart: a program, and the tensors that it loads, by first use."""

    program: Program
    operands: list[Tensor]

    @property
    def loaded(self) -> set[Tensor]:
        """The operands that take part in broadcasting."""
        return {self.operands[i] for i in self.program.loads}


_READS = frozenset({"load", "load_dequantized", "table"})


def opened(node: Node) -> Opened | None:
    """The node taken apart; None when it is neither map nor cast."""
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
    """Adds the program's instructions; where each of them is then. known: the register that stands for what one reads."""
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
    """One program that computes the consumer's outputs from the producer's inputs: the producer's, with the consumer's behind
    it, so that a chain is gone through once. None, and nothing has changed, when the two cannot be joined.

    node: the producer's. The caller has made sure that nothing else needs its output and that shapes agree.
    """
    if len(node.outputs) != 1 or producer.program.stores[0].quantized:
        return None
    middle, program = node.outputs[0], producer.program
    if middle.dtype not in FUSABLE or middle.quantization is not None:
        return None
    if middle.dtype in ("f16", "bf16") and any(t is not None and t.dtype in ("f32", "f64") for t in node.inputs):
        return None  # someone asked for this rounding
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
    """The broadcast shape as far as it is known; None when a rank is not. Unknown against 1 or more gives what is known."""
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
