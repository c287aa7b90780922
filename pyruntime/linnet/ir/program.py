"""Register programs of `map` nodes: instructions, and their encoding in the file. linnet.ir.expr builds them with
Python's operators, and linnet.builder.mapping turns them into nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from linnet._generated.op_table import OPCODES
from linnet.clib.errors import GraphError
from linnet.ir.dtypes import DTYPE_IDS, DTYPE_NAMES

FLOATS = frozenset({"f32", "f64"})  # the float register types
REGISTER = {
    "f32": "f32", "f16": "f32", "bf16": "f32", "f64": "f64", "i8": "i32", "i16": "i32", "i32": "i32", "u8": "i32",
    "u16": "i32", "bool": "i32", "i64": "i64", "u32": "i64", "u64": "i64",
}  # fmt: skip
"""The register type in which a dtype is computed."""
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_nan", "is_inf"})  # their result is i32
_NAMES = {number: name for name, (number, _, _) in OPCODES.items()}
WORDS = 5  # words of an instruction in the file
MAX_INPUTS = 24
MAX_INSTRUCTIONS = 200


class Instruction(NamedTuple):
    """An instruction, which computes one value. kind: the register type in the file (for comparisons, the type of the
    operands). args: registers. number: the immediate of const. operand: the input of load, load_dequantized or table,
    or the axis of iota. extra: the multiplier and shift of fixed_multiply."""

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
    """Stores a register in an output. quantized: whether the output's quantization is applied."""

    register: int
    quantized: bool


def _key(instruction: Instruction) -> Any:
    """Returns a key that is equal for equal instructions. Plain comparison of instructions is not enough, because NaN
    does not equal itself and -0.0 equals 0.0."""
    number = instruction.number
    if number and number == number:
        return instruction
    return (*instruction[:3], *instruction[4:], "nan" if number else math.copysign(1.0, number))


class Program:
    """A register program with immediates. Equal instructions exist only once."""

    def __init__(self) -> None:
        self.code: list[Instruction] = []
        self.stores: list[Store] = []  # one per output, in order
        self._known: dict[Any, int] = {}

    def add(self, instruction: Instruction) -> int:
        """Returns the register of this instruction. The instruction is added if it is new."""
        register = self._known.setdefault(_key(instruction), len(self.code))
        if register == len(self.code):
            self.code.append(instruction)
        return register

    def cut(self, length: int) -> None:
        """Removes all but the first `length` instructions."""
        for instruction in self.code[length:]:
            del self._known[_key(instruction)]
        del self.code[length:]

    @staticmethod
    def decode(attributes: dict[str, Any]) -> Program:
        """The program in a map node's attributes. Raises GraphError if it is malformed."""
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
        """The attributes of a map node. Instructions that no store needs are omitted, except loads, because loaded
        inputs take part in broadcasting."""
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
        """Whether a register is certain to hold 0 or 1."""
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
        """The inputs that are loaded and therefore take part in broadcasting (lookup tables do not)."""
        return {i.operand for i in self.code if i.opcode in ("load", "load_dequantized")}
