"""The loops for 64-bit ARM cores that execute in order (kernels_arm), read from their machine code: products do not wait for
their operands, and loads do not wait for each other."""

from __future__ import annotations

import re

import pytest

from tests.native import build, need, run

APART = 4  # instructions between a load and the first use of its result
LEAST = 32  # products in the loops that matter; shorter ones compute the last elements

_REGISTER = re.compile(r"\b[qvds](\d+)\b")


def _functions(name: str) -> dict[str, list[tuple[int, str]]]:
    """Address and text of the instructions of every function in an object file."""
    need("aarch64-linux-gnu-objdump")
    path = next((build("aarch64") / "CMakeFiles" / "linnet_objects.dir").rglob(f"{name}.c.o"))
    found: dict[str, list[tuple[int, str]]] = {}
    function: list[tuple[int, str]] = []
    for line in run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", str(path)]).splitlines():
        if start := re.match(r"[0-9a-f]+ <(\w+)[.>]", line):
            function = found.setdefault(start.group(1), [])
        elif instruction := re.match(r"\s*([0-9a-f]+):\t(.*)", line):
            function.append((int(instruction.group(1), 16), instruction.group(2).replace("\t", " ")))
    return found


def _loops(function: list[tuple[int, str]]) -> list[list[str]]:
    """The bodies of the innermost loops with at least LEAST products."""
    loops = []
    for address, text in function:
        branch = re.match(r"b\.\w+ ([0-9a-f]+) ", text)
        if branch is None or int(branch.group(1), 16) > address:
            continue
        body = [line for at, line in function if int(branch.group(1), 16) <= at <= address]
        if (
            not any(re.match(r"(b|cb|tb)[. nz]", line) for line in body[:-1])
            and sum("fmla" in x for x in body) >= LEAST
        ):
            loops.append(body)
    return loops


def _is_load(line: str) -> bool:
    return re.match(r"(ldr q|ld[1-4]r? |ldp q)", line) is not None


def _faults(body: list[str]) -> list[str]:
    found = []
    for at, line in enumerate(body):
        following = (body[at + 1 :] + body)[: APART + 1]  # also those of the next iteration
        if re.match(r"st|.*\[sp", line):
            found.append(f"a spill: {line}")
        if not _is_load(line):
            continue
        if _is_load(following[0]):
            found.append(f"a load right behind another: {line}; {following[0]}")
        registers = set(_REGISTER.findall(line.split("[")[0]))
        for user in following[:APART]:
            if registers & set(_REGISTER.findall(user)):
                found.append(f"used too early: {line}; {user}")
    return found


@pytest.mark.parametrize("width", [1, 2, 3])
def test_f32_in_order(width: int) -> None:
    loops = _loops(_functions("gemm_f32_packed__neon")[f"ordered_8x{width}"])
    assert len(loops) == 1
    assert sum("fmla" in line for line in loops[0]) == width * LEAST
    assert _faults(loops[0]) == []


def test_the_test_finds_faults() -> None:
    """Loops for cores that reorder instructions have loads of several registers directly before their uses."""
    (loop,) = _loops(_functions("gemm_f32_packed__neon")["tiles_8x3"])
    faults = _faults(loop)
    assert any("right behind" in fault for fault in faults) and any("too early" in fault for fault in faults)
    assert _faults(["str q0, [sp, #16]", "b.gt 0"]) == ["a spill: str q0, [sp, #16]"]
