"""`make count`: the plugin counts a program of known length exactly, tells classes of instructions apart as the assembler
does, and counts cache misses; a model gets the same count twice, and its steps add up."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.count import __main__ as command
from tests.count import dtypes, loops
from tests.count.counts import CLASSES, CountError, Counts, count, driver, plugin
from tests.native import need, run

TOOLS = ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "qemu-aarch64")
MARK = "movz xzr, #0x51A3"


def counted(body: str, folder: Path, options: str = "") -> tuple[Counts, Path]:
    """What the plugin counts between two marks around the assembly, the first mark among them."""
    need(*TOOLS)
    source, program, out = folder / "p.S", folder / "p", folder / "counts"
    source.write_text(f""".arch armv8.6-a+fp16
        .globl _start
        _start: adr x1, area
        {MARK}
        {body}
        {MARK}
        mov x0, #0
        mov x8, #93
        svc #0
        .bss
        .balign 4096
        area: .space 1 << 20
    """)
    run(["aarch64-linux-gnu-gcc", "-nostdlib", "-static", str(source), "-o", str(program)])
    run(["qemu-aarch64", "-cpu", "max,sve=off", "-plugin", f"{plugin()},out={out}{options}", str(program)])
    first, second = [
        dict(zip(CLASSES, map(int, line.split()[1:]), strict=True)) for line in out.read_text().splitlines()[:2]
    ]
    found = {name: second[name] - first[name] for name in CLASSES}
    return found, program


LOOP = """mov x2, #10
    1: ldr q0, [x1]
    ldp q1, q2, [x1, #32]
    fmla v3.4s, v0.4s, v1.s[2]
    sdot v4.4s, v0.16b, v1.4b[1]
    smlal2 v5.4s, v0.8h, v1.h[3]
    add v6.4s, v6.4s, v5.4s
    str q6, [x1, #64]
    ldr w3, [x1]
    subs x2, x2, #1
    b.ne 1b"""


def test_a_loop_is_counted_exactly(tmp_path: Path) -> None:
    found, program = counted(LOOP, tmp_path)
    assert found["all"] == 102  # mov, ten rounds of ten, and a mark
    assert {n: found[n] for n in ("fma", "dot", "imac", "vother", "vload", "vstore", "load", "branch")} == {
        "fma": 10, "dot": 10, "imac": 10, "vother": 10, "vload": 20, "vstore": 10, "load": 10, "branch": 10,
    }  # fmt: skip
    assert (found["loaded"], found["stored"]) == (10 * (16 + 32 + 4), 10 * 16)
    inner = loops.innermost(loops.disassembled(program)["_start"])
    assert [len(loop) for loop in inner] == [10]


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ("fma", "fmla v0.4s, v1.4s, v2.4s; fmls v0.2d, v1.2d, v2.2d; fmla v0.4s, v1.4s, v2.s[3]; fmls v0.4s, v1.4s, v2.s[0]; "
                "fmadd s0, s1, s2, s3"),
        ("fp16", "fmla v0.8h, v1.8h, v2.8h; fmls v0.8h, v1.8h, v2.8h; fmla v0.8h, v1.8h, v2.h[7]"),
        ("dot", "sdot v0.4s, v1.16b, v2.16b; udot v0.4s, v1.16b, v2.16b; sdot v0.4s, v1.16b, v2.4b[3]; "
                "usdot v0.4s, v1.16b, v2.16b; sudot v0.4s, v1.16b, v2.4b[0]"),
        ("mmla", "smmla v0.4s, v1.16b, v2.16b; ummla v0.4s, v1.16b, v2.16b; usmmla v0.4s, v1.16b, v2.16b"),
        ("imac", "smlal v0.4s, v1.4h, v2.4h; smlal2 v0.8h, v1.16b, v2.16b; umlal v0.8h, v1.8b, v2.8b; mul v0.4s, v1.4s, v2.4s; "
                 "smull v0.8h, v1.8b, v2.8b; smlal v0.4s, v1.4h, v2.h[5]; mla v0.8h, v1.8h, v2.8h; smull2 v0.4s, v1.8h, v2.h[1]"),
        ("vother", "fadd v0.4s, v1.4s, v2.4s; sadalp v0.4s, v1.8h; sqrdmulh v0.4s, v1.4s, v2.4s; sxtl v0.8h, v1.8b; "
                   "zip1 v0.4s, v1.4s, v2.4s; movi v0.4s, #0; dup v0.4s, v1.s[1]; tbl v0.16b, {v1.16b}, v2.16b"),
        ("vload", "ld1 {v0.4s-v3.4s}, [x1]; ld1r {v0.4s}, [x1]; ldr d0, [x1, #8]; ldp d0, d1, [x1]; ld4 {v0.8b-v3.8b}, [x1]; "
                  "ld1 {v0.s}[1], [x1]; ldur q0, [x1, #3]"),
        ("vstore", "st1 {v0.16b}, [x1]; str s0, [x1]; stp q0, q1, [x1]; st1 {v0.b}[1], [x1]"),
        ("load", "ldr x3, [x1]; ldrb w3, [x1, #1]; ldp x3, x4, [x1]; ldrsw x3, [x1]; ldar w3, [x1]; ldxr w3, [x1]"),
        ("store", "str x3, [x1]; strh w3, [x1]; stp w3, w4, [x1]; stlr w3, [x1]"),
        ("branch", "b . + 4; cbz xzr, . + 4; tbnz x3, #1, . + 4"),
    ],
)  # fmt: skip
def test_classes_are_those_of_the_assembler(expected: str, words: str, tmp_path: Path) -> None:
    found, _ = counted(words, tmp_path)
    number = words.count(";") + 1
    assert found["all"] == number + 1
    kinds = [name for name in CLASSES[1:12] if found[name]]
    assert kinds == [expected] and found[expected] == number, found


SIZES = {"ld1 {v0.4s-v3.4s}, [x1]": 64, "ld1r {v0.4s}, [x1]": 4, "ldr d0, [x1, #8]": 8, "ldp d0, d1, [x1]": 16,
         "ld1 {v0.s}[1], [x1]": 4, "ld1 {v0.d}[1], [x1]": 8, "ldr b0, [x1]": 1, "ldp w3, w4, [x1]": 8, "ldrb w3, [x1]": 1,
         "ldr q0, [x1]": 16, "ldrsh w3, [x1]": 2, "ld2 {v0.8b, v1.8b}, [x1]": 16}  # fmt: skip


def test_bytes_loaded(tmp_path: Path) -> None:
    for word, size in SIZES.items():
        assert counted(word, tmp_path)[0]["loaded"] == size, word


def test_cache_misses(tmp_path: Path) -> None:
    """A pass over 16 KB misses each line once and the next pass none in 32 KB; a pass over 64 KB misses every line again."""

    def passes(size: int) -> str:
        return f"""mov x4, #2
            2: mov x2, #{size}
            1: subs x2, x2, #64
            ldr x3, [x1, x2]
            b.ne 1b
            subs x4, x4, #1
            b.ne 2b"""

    for size, misses in ((16 << 10, 256), (64 << 10, 2 * 1024)):
        found, _ = counted(passes(size), tmp_path, ",cache=32768:4")
        assert (found["accesses"], found["misses"]) == (2 * size // 64, misses)


def test_a_model_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need(*TOOLS)
    model = command._models(["kws.i8"], tmp_path)[0]
    found = count(model, "cortex-a72", driver(), functions=True)
    assert found.warm == count(model, "cortex-a72", driver()).warm
    assert 0.9 < sum(step.counts["all"] for step in found.steps) / found.warm["all"] < 1.1
    assert abs(sum(c["all"] for c in found.functions.values()) - found.warm["all"]) < 1000
    products = sum(step.macs for step in found.steps)
    assert found.isa == "neon" and found.warm["dot"] == 0 and products / 16 < found.warm["imac"] < products
    better = count(model, "cortex-a76", driver())
    assert better.isa == "dotprod" and better.warm["dot"] > products // 32 and better.warm["all"] < found.warm["all"]
    limited = count(model, "cortex-a76", driver(), isa="neon")
    assert limited.isa == "neon" and abs(limited.warm["all"] / found.warm["all"] - 1) < 0.01
    assert command.main([str(model), "--cpu", "cortex-a72", "--by", "step", "--json", str(tmp_path / "j")]) == 0
    text = capsys.readouterr().out
    assert "cortex-a72 (neon)" in text and all(step.kernel in text for step in found.steps)


@pytest.mark.more  # builds the library for 32-bit ARM too
@pytest.mark.parametrize(("cpu", "columns"), [("cortex-a76", list(dtypes._COLUMNS)), ("cortex-a7", ["f32", "i8"])])
def test_no_kernel_in_plain_c_shows(cpu: str, columns: list[str], tmp_path: Path) -> None:
    need(*TOOLS, *(["arm-linux-gnueabihf-gcc", "qemu-arm"] if cpu == "cortex-a7" else []))
    found = dtypes.row("kws", cpu, columns, "fast", tmp_path)
    assert set(found.counts) == set(columns)
    assert all(f"{c.warm['all'] / 1e6:.2f} (" in found.line() for c in found.counts.values())
    assert not [fault for fault in found.faults() if "_reference" in fault]


def test_faults_of_counts_are_named(tmp_path: Path) -> None:
    need(*TOOLS)
    f32 = count(command._models(["kws.f32"], tmp_path)[0], "cortex-a72", driver())
    dear = type(f32)(**{**vars(f32), "warm": f32.warm | {"all": f32.warm["all"] * 2}})
    plain = type(f32)(**{**vars(f32), "steps": [dataclasses.replace(f32.steps[0], kernel="conv_reference")]})
    assert not list(dtypes.Row("kws", "cortex-a72", {"f32": f32, "i16": f32, "i8": f32}).faults())
    assert [*dtypes.Row("kws", "cortex-a72", {"f32": f32, "i16": dear}).faults()] == [
        "kws on cortex-a72: i16 takes 2.000 of the instructions of f32, more than 1.0"
    ]
    assert "conv_reference take" in next(dtypes.Row("kws", "cortex-a72", {"f32": plain}).faults())


def test_the_base_stands_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need(*TOOLS)
    counts = count(command._models(["kws.f32"], tmp_path)[0], "cortex-a72", driver())
    less = counts.warm | {"all": counts.warm["all"] * 2}
    command._print(Path("kws"), "cortex-a72", [type(counts)(**{**vars(counts), "warm": less}), counts], "kernel", 5)
    text = capsys.readouterr().out
    assert "before" in text and "0.500" in text and "1.000" in text


def test_loops_of_a_function() -> None:
    need(*TOOLS, "llvm-mca")
    found = loops.loops(driver(), "^full_8$", "cortex-a72")
    assert found and found[0].products >= 32 and 0.5 < found[0].rate <= 1.05
    assert len(found[0].instructions) / found[0].cycles > 0.5


def test_what_cannot_be_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need(*TOOLS)
    assert command.main(["nothing.i8"]) == 1
    assert "nothing.i8 is neither a file" in capsys.readouterr().err
    (tmp_path / "bad.lnt").write_bytes(b"no model")
    with pytest.raises(CountError, match="cannot open the model"):
        count(tmp_path / "bad.lnt", "cortex-a72", driver())
