"""What llvm-mca says of the innermost loops of a function: cycles per iteration on a core, and the share of the rate at
which the core could execute the multiply-accumulates alone."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

from tests.count.counts import need

# Names of instructions that multiply and accumulate, by class.
_PRODUCTS = ("fmla", "fmls", "smlal", "smlal2", "smull", "smull2", "umlal", "umlal2", "umull", "umull2", "mla", "mul", "sdot",
             "udot", "usdot", "smmla", "ummla", "usmmla")  # fmt: skip
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*?)(?:\s*//.*)?$")
_BRANCH = re.compile(r"^(b|b\.\w+|cbz|cbnz|tbz|tbnz)$")


@dataclasses.dataclass(frozen=True)
class Loop:
    """An innermost loop. cycles: of one iteration; rate: the share of the rate of its multiply-accumulates, 0 without any."""

    function: str
    address: int
    instructions: list[str]
    products: int
    cycles: float
    rate: float


def disassembled(program: Path) -> dict[str, list[tuple[int, str, str]]]:
    """Functions of a program: address, mnemonic and operands of each instruction."""
    need("aarch64-linux-gnu-objdump", "binutils-aarch64-linux-gnu")
    text = subprocess.run(
        ["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", str(program)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    functions: dict[str, list[tuple[int, str, str]]] = {}
    here: list[tuple[int, str, str]] = []
    for line in text.splitlines():
        if line.endswith(">:"):
            here = functions.setdefault(line.split("<")[1][:-2], [])
        elif found := _LINE.match(line):
            here.append((int(found[1], 16), found[2], found[3]))
    return functions


def innermost(code: list[tuple[int, str, str]]) -> list[list[tuple[int, str, str]]]:
    """The loops of a function without another loop in them: from the target of a branch back to the branch."""
    spans = []
    for at, (address, word, operands) in enumerate(code):
        if not _BRANCH.match(word):
            continue
        target = re.search(r"([0-9a-f]+) <[^>]*>$", operands)
        begin = int(target[1], 16) if target else address
        if target and code[0][0] <= begin <= address:
            spans.append((begin, address, at))
    inner = [s for s in spans if not any(o is not s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [[i for i in code[: at + 1] if i[0] >= begin] for begin, _, at in inner]


def cycles(lines: list[str], cpu: str) -> float:
    """Cycles of one iteration of a loop, as llvm-mca models the core."""
    need("llvm-mca", "llvm")
    words = [
        "llvm-mca",
        "-mtriple=aarch64",
        f"-mcpu={cpu}",
        "-mattr=+v8.6a,+dotprod,+i8mm,+fullfp16",
        "-iterations=200",
    ]
    done = subprocess.run(words, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if found is None:
        raise RuntimeError(f"llvm-mca: {done.stderr[-500:]}")
    return int(found[1]) / 200


def _text(loop: list[tuple[int, str, str]]) -> list[str]:
    """The loop as assembly. Branches go to one label, because only the order of instructions matters."""
    lines = [".begin:"]
    for _, word, operands in loop:
        operands = re.sub(r"[0-9a-f]+ <[^>]*>$", ".begin", operands)
        lines.append(f"{word} {operands}")
    return lines


def _rate_alone(word: str, operands: str, cpu: str) -> float:
    """Instructions of this kind per cycle if they depend on nothing."""
    first, rest = operands.split(",", 1)
    rest = re.sub(r"\bv\d+\.", "v0.", rest)
    return 16 / cycles([f"{word} v{i}.{first.split('.')[1]},{rest}" for i in range(16, 32)], cpu)


def loops(program: Path, pattern: str, cpu: str) -> list[Loop]:
    """The innermost loops of the functions whose names the regular expression finds, most multiply-accumulates first."""
    found = []
    for name, code in disassembled(program).items():
        if not re.search(pattern, name) or not code:
            continue
        for loop in innermost(code):
            products = [
                (word, operands) for _, word, operands in loop if word in _PRODUCTS and operands.startswith("v")
            ]
            took = cycles(_text(loop), cpu)
            rate = len(products) / took / _rate_alone(*products[0], cpu) if products else 0.0
            lines = [f"{word} {operands}" for _, word, operands in loop]
            found.append(Loop(name, loop[0][0], lines, len(products), took, rate))
    return sorted(found, key=lambda loop: -loop.products)
