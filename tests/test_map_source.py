"""Map programs as source text (linnet_step_map_source, docs/devices.md): a device that compiles the text gives the bits of the
CPU's interpreters, for random programs and for edge values of every opcode; OpenCL's and CUDA's compilers accept the text."""
# Dear: compilers of C, OpenCL and CUDA compile every opcode.

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet._generated.op_table import OPCODES
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.function import emit
from linnet.ir.program import Instruction, Program, Store
from linnet.session.device import Device
from tests.capi import Failure, check, ffi, lib, new_struct, text
from tests.maps.graphs import Batch
from tests.maps.numbers import KINDS, ROUGH, stored
from tests.maps.programs import ALL, case_of
from tests.native import ROOT, build, compile_c, need, run
from tests.opencl import OpenCL, need_opencl
from tests.py_device import PyDevice, op_of, tensor_of

EXT = ROOT / "tests" / "ext"
# Random programs compute what they do not use, and compare registers with themselves.
STRICT = "-O1 -Wall -Wextra -Werror -Wno-unused-variable -Wno-tautological-compare"
UNDEFINED = f"{STRICT} -fsanitize=undefined,float-cast-overflow"
LANGUAGES = {"c": 0, "opencl": 1, "cuda": 2}
TYPES = ("", "float", "ln_u16", "ln_u16", "double", "ln_i8", "ln_i16", "ln_i32", "ln_i64", "ln_u8", "ln_u16", "ln_u32",
         "ln_u64", "ln_u8")  # fmt: skip


class Compiling:
    """The device of tests/ext/source_device.c."""

    def __init__(self, folder: Path) -> None:
        library = build("release", "linnet")
        path = compile_c(
            [EXT / "source_device.c"], folder / "libsource.so", "-O1", "-shared", "-fPIC",
            f"-I{ROOT / 'runtime_c' / 'include'}", f"-L{library}", "-llinnet", f"-Wl,-rpath,{library}", "-ldl",
        )  # fmt: skip
        self.device, self.folder = Device(path), folder
        self.library = ctypes.CDLL(str(path))
        self.settings(STRICT)

    def settings(self, options: str) -> None:
        """Sets the options of the compiler."""
        self.library.source_settings(str(self.folder).encode(), options.encode())

    @property
    def epilogues(self) -> int:
        return int(self.library.source_count(1))


@pytest.fixture(scope="module")
def compiling(tmp_path_factory: pytest.TempPathFactory) -> Compiling:
    return Compiling(tmp_path_factory.mktemp("source"))


@pytest.fixture
def checked(compiling: Compiling, capfd: pytest.CaptureFixture[str]) -> Iterator[Compiling]:
    """The device, with a compiler that reports undefined behaviour."""
    compiling.settings(UNDEFINED)
    yield compiling
    compiling.settings(STRICT)
    found = capfd.readouterr().err
    assert "runtime error" not in found, found[-3000:]


def same(got: np.ndarray, want: np.ndarray, name: str) -> None:
    """The same bits, or NaN on both sides."""
    assert got.dtype == want.dtype and got.shape == want.shape
    different = got != want
    if got.dtype.kind in "fV":  # V: bf16, of ml_dtypes
        bits = f"u{got.dtype.itemsize}"
        different = (got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want))
    assert not different.any(), f"{name}: got {got[different][:5]}, expected {want[different][:5]}"


def agree(graph: linnet.Graph, feeds: dict[str, np.ndarray], device: Device) -> None:
    """All maps run on the device, and the results are the CPU's."""
    session = linnet.Session(graph, devices=[device])
    got = session.run(feeds)
    assert {step.device for step in session.steps if step.op in ("map", "conv", "matmul")} == {"source"}
    for name, want in linnet.Session(graph).run(feeds).items():
        same(got[name], want, name)


def random_batch(seeds: range) -> Batch:
    made = Batch()
    for seed in seeds:
        made.add(seed)
    return made


def finished(made: Batch) -> tuple[linnet.Graph, dict[str, np.ndarray]]:
    """The graph, and feeds."""
    made.graph.signature("infer", made.main)
    return made.graph, {f"x{i}": array for i, array in enumerate(made.feeds, 1)}


# ---- random programs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, pytest.param(40, marks=pytest.mark.more)])
def test_random_programs(first: int, checked: Compiling) -> None:
    agree(*finished(random_batch(range(first, first + 40))), checked.device)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 6000, 50))
def test_random_programs_at_length(first: int, compiling: Compiling) -> None:
    agree(*finished(random_batch(range(first, first + 50))), compiling.device)


# ---- edge values -----------------------------------------------------------------------------------------------------

REAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 1e-40, -1e-45, 6e-8, 65519.99, 65520.0, 300.0, -129.0, 1e10, -1e19, 3e38, 9e18, 1e6,
        2147483647.0, 4294967296.0, -2147483648.5, 88.8, -104.0, np.inf, -np.inf, np.nan]  # fmt: skip
WHOLE = [0, 1, -1, 2, -2, 7, 31, 32, 33, 63, 64, 65, 127, -128, 255, 256, -40, 65535, 2**24 + 1, 2**31 - 1, -(2**31), 2**53 + 1,
         2**62, 2**63 - 1, -(2**63), 2**40 + 2**15 + 1]  # fmt: skip
APART = ("load", "load_dequantized", "store", "store_quantized", "const", "iota", "cast", "table", "fixed_multiply",
         "fixed_multiply_single")  # fmt: skip


def edges(kind: str) -> np.ndarray:
    """Values of a register type."""
    if kind in ("f32", "f64"):
        return np.array(REAL, np.float64).astype(KINDS[kind])
    return np.unique(np.array(WHOLE, np.int64).astype(KINDS[kind]))


def elements(dtype: str) -> np.ndarray:
    """Values of an element type."""
    if dtype in ("f32", "f64", "f16", "bf16"):
        return stored(np.array(REAL, np.float64), "f64", dtype)
    if dtype == "bool":
        return np.array([False, True])
    return np.unique(np.array(WHOLE, np.int64).astype(numpy_dtype(dtype)))


def add(made: Batch, operands: list[tuple[np.ndarray, str]], program: Program, dtype: str) -> None:
    """Appends a map with one output."""
    tensors = [made.feed(array, kind) for array, kind in operands]
    output = made.node(tensors, program.attributes([dtype]), [(dtype, operands[0][0].shape, None)])[0]
    output.name = f"y{len(made.main.outputs)}"
    made.main.outputs.append(output)


def program_of(loads: list[str], *rest: Instruction) -> Program:
    """Loads its inputs into registers of these types, computes, and stores the last register."""
    program = Program()
    for i, kind in enumerate(loads):
        program.add(Instruction("load", kind, operand=i))
    for instruction in rest:
        program.add(instruction)
    program.stores.append(Store(len(program.code) - 1, False))
    return program


def every_opcode() -> Batch:
    """One map per opcode and register type, for all pairs of edge values."""
    made = Batch()
    with np.errstate(all="ignore"):
        for opcode, (_, arity, types) in OPCODES.items():
            if opcode in APART:
                continue
            for kind in ("f32", "f64", "i32", "i64"):
                if types not in ("*", kind[0]):
                    continue
                values = edges(kind)
                pairs = np.array(list(itertools.product(values, repeat=2)), KINDS[kind])
                registers = [pairs[:, 0], pairs[:, 1]][:arity]
                loads = [kind] * len(registers)
                if opcode == "select":
                    registers, loads = [np.arange(len(pairs), dtype=np.int32) % 3, *registers], ["i32", *loads]
                step = Instruction(opcode, kind, tuple(range(len(loads))))
                operands = [(np.ascontiguousarray(r), k) for r, k in zip(registers, loads, strict=True)]
                add(made, operands, program_of(loads, step), step.result)
    return made


def every_conversion() -> Batch:
    """Loads of each element type into each register type, stores of each, and casts."""
    made = Batch()
    with np.errstate(all="ignore"):
        for dtype, kind in itertools.product(ALL, KINDS):
            if (dtype, kind) != ("u32", "i32"):
                add(made, [(elements(dtype), dtype)], program_of([kind]), kind)
            add(made, [(edges(kind), kind)], program_of([kind]), dtype)
        for source, kind in itertools.permutations(KINDS, 2):
            add(made, [(edges(source), source)], program_of([source], Instruction("cast", kind, (0,))), kind)
    return made


@pytest.mark.parametrize("made", [every_opcode, every_conversion])
def test_edge_values(made: Callable[[], Batch], checked: Compiling) -> None:
    agree(*finished(made()), checked.device)


def test_the_programs_above_have_every_opcode() -> None:
    used = {i.opcode for seed in range(80) for i in case_of(seed).program.code}
    assert used >= {*APART} - {"store", "store_quantized"}
    assert any(store.quantized for seed in range(80) for store in case_of(seed).program.stores)


# ---- epilogues -------------------------------------------------------------------------------------------------------


def test_epilogues(compiling: Compiling) -> None:
    """Maps behind a convolution and a product, with operands that are one number, one per column, and one per element."""
    rng = np.random.default_rng(0)
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 3, 6, 5))
    shift, other = graph.placeholder("shift", (7,)), graph.placeholder("other", (2, 4, 4, 3), "f16")
    y = ops.conv(x, graph.constant(rng.integers(-3, 4, (4, 3, 3, 3)).astype(np.float32)))
    y = linnet.pointwise([other, y], lambda a, b: ((b + 1.5).max(0.0) * a).tanh())
    w = graph.constant(rng.integers(-3, 4, (12, 7)).astype(np.float32))
    z = linnet.pointwise([ops.reshape(x, (15, 12)) @ w, shift], lambda a, b: (a * b).sigmoid(), dtypes="f16")
    graph.signature("infer", {"x": x, "shift": shift, "other": other}, {"y": y, "z": z})
    feeds = {
        "x": rng.integers(-4, 5, (2, 3, 6, 5)).astype(np.float32),
        "shift": rng.standard_normal(7).astype(np.float32),
        "other": rng.standard_normal((2, 4, 4, 3)).astype(np.float16),
    }
    before = compiling.epilogues
    agree(graph, feeds, compiling.device)
    assert compiling.epilogues == before + 2


# ---- the texts -------------------------------------------------------------------------------------------------------


def text_of(function: Any, *arguments: Any) -> str:
    """Asks for the length, then for the text."""
    length = ffi.new("size_t *")
    check(function(*arguments, ffi.NULL, 0, length), ffi.new("linnet_error *"))
    out = ffi.new("char[]", length[0] + 1)
    check(function(*arguments, out, length[0] + 1, length), ffi.new("linnet_error *"))
    made = bytes(ffi.string(out))
    assert len(made) == length[0]
    return made.decode()


def options(language: str, native: bool = False, prefix: str | None = None) -> Any:
    made = new_struct("linnet_source_options")
    made.language, made.native = LANGUAGES[language], native
    if prefix is not None:
        kept = ffi.new("char[]", prefix.encode())
        made.prefix = kept
        return made, kept
    return made, None


class Reading(PyDevice):
    """Takes no step, but calls `look` with each map while the plan is made."""

    def __init__(self, look: Callable[[Any], None]) -> None:
        super().__init__()
        self.look = look

    def _cost(self, step: Any) -> float:
        if op_of(step) == "map":
            self.look(step)
        return -1.0


def planned(made: Batch, look: Callable[[Any], None]) -> None:
    graph, feeds = finished(made)
    linnet.Session(graph, devices=[Reading(look)]).run(feeds)


def kernel(step: Any, number: int, language: str, native: bool) -> str:
    """A map as a kernel with one element per thread, whose operands have the shape of the result."""
    block = text_of(lib().linnet_step_map_source, step, options(language, native)[0])
    space, head = ("__global ", "__kernel") if language == "opencl" else ("", 'extern "C" __global__')
    thread = "get_global_id(0)" if language == "opencl" else "blockIdx.x * blockDim.x + threadIdx.x"
    operands, before, after = [], [f"long at = {thread};"], []
    for i in range(lib().linnet_step_input_count(step)):
        kind = TYPES[tensor_of(step, i).dtype]
        operands += [
            f"{space}const {kind} *x{i}_table",
            f"{space}const float *x{i}_scale",
            f"{space}const ln_i32 *x{i}_zero",
        ]
        before.append(f"{kind} x{i} = x{i}_table[at];")
    for i in range(lib().linnet_step_output_count(step)):
        kind = TYPES[tensor_of(step, i, output=True).dtype]
        operands += [f"{space}{kind} *r{i}", f"{space}const float *y{i}_scale", f"{space}const ln_i32 *y{i}_zero"]
        before.append(f"{kind} y{i};")
        after.append(f"r{i}[at] = y{i};")
    before += [f"long i{d} = at;" for d in range(8)]
    return f"{head} void k{number}({', '.join(operands)}) {{\n{' '.join(before)}\n{block}{' '.join(after)}\n}}\n"


COMPILERS = {
    "opencl": ["clang", "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-target", "spir64", "-S",
               "-emit-llvm", "-Wall", "-Werror", "-Wno-unused-variable", "-Wno-tautological-compare"],
    "cuda": ["nvcc", "-x", "cu", "-ptx", "-fmad=false", "-arch=compute_75", "-Werror", "all-warnings", "-diag-suppress", "177"],
}  # fmt: skip


@pytest.mark.parametrize("native", [False, True], ids=["linnet", "native"])
@pytest.mark.parametrize("language", COMPILERS)
def test_compilers_of_devices_accept_it(language: str, native: bool, tmp_path: Path) -> None:
    """Every opcode and conversion, and random programs."""
    need(COMPILERS[language][0])
    kernels: list[str] = []
    for made in (every_opcode(), every_conversion(), random_batch(range(30))):
        planned(made, lambda step: kernels.append(kernel(step, len(kernels), language, native)))
    assert len(kernels) > 200
    whole = "".join(kernels)
    prelude = text_of(lib().linnet_map_prelude, options(language, native)[0], whole.encode())
    assert ("ln_log_d(" in prelude) is not native
    source = tmp_path / "kernels.txt"
    source.write_text(prelude + whole)
    run([*COMPILERS[language], str(source), "-o", str(tmp_path / "out")])


@pytest.mark.more
@pytest.mark.parametrize("made", [every_opcode, every_conversion])
def test_opencl_computes_the_same_bits(made: Callable[[], Batch]) -> None:
    """Except for functions of f64, which are the device's own, and the payload of NaN."""
    need_opencl()
    kernels, calls = list[str](), list[tuple[list[str], str, bool]]()

    def look(step: Any) -> None:
        names = [text(tensor_of(step, i).name) for i in range(lib().linnet_step_input_count(step))]
        written = kernel(step, len(kernels), "opencl", native=False)
        calls.append(
            (
                names,
                text(tensor_of(step, 0, output=True).name),
                bool(re.search(rf"double ln_\d=({'|'.join(ROUGH)}|ln_sigmoid_d)\(", written)),
            )
        )
        kernels.append(written)

    batch = made()
    planned(batch, look)
    graph, feeds = finished(batch)
    prelude = text_of(lib().linnet_map_prelude, options("opencl")[0], "".join(kernels).encode())
    device, expected = OpenCL(prelude + "".join(kernels)), linnet.Session(graph).run(feeds)
    for number, (inputs, output, rough) in enumerate(calls):
        want = expected[output]
        got = np.zeros_like(want)
        arguments = [a for name in inputs for a in (feeds[name], None, None)] + [got, None, None]
        device.run(f"k{number}", arguments, [len(arguments) - 3], got.size)
        if rough:
            np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-300, err_msg=kernels[number])
        else:
            same(got, want, kernels[number])


def test_without_f64_on_the_target() -> None:
    """Programs of f32 and i32 do not mention double if the functions are the target's own."""
    made, texts = Batch(), list[str]()
    for opcode, (_, arity, types) in OPCODES.items():
        for kind in ("f32", "i32"):
            if opcode not in APART and types in ("*", kind[0]) and arity < 3:
                step = Instruction(opcode, kind, tuple(range(arity)))
                add(made, [(edges(kind), kind)] * arity, program_of([kind] * arity, step), step.result)
    for dtype in ("f16", "bf16", "i8", "u8", "u32", "i64", "bool"):
        add(made, [(edges("f32"), "f32")], program_of(["f32"]), dtype)
        add(made, [(edges("i32"), "i32")], program_of(["i32"]), dtype)
    planned(made, lambda step: texts.append(text_of(lib().linnet_step_map_source, step, ffi.NULL)))
    for native in (False, True):
        prelude = text_of(lib().linnet_map_prelude, options("opencl", native)[0], "".join(texts).encode())
        assert ("double" in re.sub(r"^#.*$", "", prelude, flags=re.MULTILINE)) is not native


def test_only_what_is_used_and_each_name_once() -> None:
    prelude = text_of(lib().linnet_map_prelude, ffi.NULL, b"y = ln_tanh_f(x) + not_ln_log_f(x) + ln_exp_fine(x);")
    defined = re.findall(r"^LN_FN \w+ (\w+)\(", prelude, re.MULTILINE)
    assert set(defined) >= {"ln_tanh_f", "ln_exp_f", "ln_bits_f"} and "ln_log_f" not in defined
    assert len(defined) == len(set(defined))
    nothing = text_of(lib().linnet_map_prelude, ffi.NULL, b"")
    assert "LN_FN float" not in nothing and "typedef int64_t ln_i64;" in nothing


def test_contraction_is_off_only_in_what_linnet_writes() -> None:
    """OpenCL: kernels of the device may use fused multiply-adds."""
    made, texts = Batch(), list[str]()
    add(made, [(edges("f32"), "f32")], program_of(["f32"], Instruction("tanh", "f32", (0,))), "f32")
    planned(made, lambda step: texts.append(text_of(lib().linnet_step_map_source, step, options("opencl")[0])))
    pragma = "{\n#pragma OPENCL FP_CONTRACT OFF\n"
    assert texts[0].startswith(pragma) and texts[0].count("FP_CONTRACT") == 1
    prelude = text_of(lib().linnet_map_prelude, options("opencl")[0], texts[0].encode())
    functions = re.findall(r"^LN_FN .*?\{$", prelude, re.MULTILINE)
    assert len(functions) > 3 and prelude.count(pragma) == prelude.count("FP_CONTRACT") == len(functions)


def test_the_block_in_the_docs() -> None:
    graph, texts = linnet.Graph(), list[str]()
    x, half = graph.placeholder("x", (4,)), graph.placeholder("half", (4,), "f16")
    graph.signature(
        "infer", {"x": x, "half": half}, {"y": linnet.pointwise([x, half], lambda a, b: a.tanh() + b, dtypes="f16")}
    )
    look = Reading(lambda step: texts.append(text_of(lib().linnet_step_map_source, step, ffi.NULL)))
    linnet.Session(graph, devices=[look]).run({"x": np.ones(4, np.float32), "half": np.ones(4, np.float16)})
    assert f"```text\n{texts[0]}```" in (ROOT / "docs" / "devices.md").read_text()


def test_all_inputs_are_read_before_a_result_is_assigned() -> None:
    """A result may lie over an operand."""
    made, texts = Batch(), list[str]()
    feeds = [made.feed(edges("f32"), "f32") for _ in range(2)]
    words = (1, 1, 0, 0, 0, 3, 1, 0, 0, 0, 1, 1, 1, 0, 0, 3, 1, 2, 1, 0)  # load, store, load, store
    attributes = {"program": words, "dtypes": (1, 1)}
    made.main.outputs += made.node(feeds, attributes, [("f32", edges("f32").shape, None)] * 2)
    planned(made, lambda step: texts.append(text_of(lib().linnet_step_map_source, step, ffi.NULL)))
    assert re.findall(r"\b[xy]\d", texts[0]) == ["x0", "x1", "y0", "y1"]


def test_names_and_sizes() -> None:
    """A prefix for all names that the device defines; a short buffer gets the beginning; wrong arguments are refused."""
    made = Batch()
    add(made, [(edges("f32"), "f32"), (edges("f32"), "f32")],
        program_of(["f32", "f32"], Instruction("iota", "f32", operand=0), Instruction("add", "f32", (1, 2))), "f32")  # fmt: skip
    seen = []

    def look(step: Any) -> None:
        plain = text_of(lib().linnet_step_map_source, step, ffi.NULL)
        assert set(re.findall(r"\b(?!ln_|float)[a-z]\w*", plain)) == {"x0", "x1", "i0", "y0"}
        named, kept = options("c", prefix="my_")
        assert text_of(lib().linnet_step_map_source, step, named) == re.sub(r"\b([xyi]\d)\b", r"my_\1", plain)
        length, short = ffi.new("size_t *"), ffi.new("char[8]", b"1234567")
        assert lib().linnet_step_map_source(step, ffi.NULL, short, 6, length) == 0
        assert bytes(ffi.buffer(short)) == plain[:5].encode() + b"\x007\x00" and length[0] == len(plain)
        wrong, long = options("c"), options("c", prefix="p" * 33)
        wrong[0].language = 3
        for given, _ in (wrong, long):
            with pytest.raises(Failure):
                text_of(lib().linnet_step_map_source, step, given)
        assert lib().linnet_step_map_source(step, ffi.NULL, ffi.NULL, 9, length) != 0
        assert lib().linnet_map_prelude(ffi.NULL, ffi.NULL, ffi.NULL, 0, length) != 0
        del kept
        seen.append(plain)

    planned(made, look)
    assert seen


# ---- casts and quantization ------------------------------------------------------------------------------------------


def every_conversion_op() -> Batch:
    """cast between all element types, and quantize and dequantize per tensor, per axis and with operands."""
    made = Batch()

    def node(op: str, inputs: list[Any], attributes: dict[str, Any], grid: Any = None) -> None:
        y = emit(op, inputs, attributes)[0]
        y.name, y.quantization = f"y{len(made.main.outputs)}", grid
        made.main.outputs.append(y)

    with np.errstate(all="ignore"):
        for source, to in itertools.permutations(ALL, 2):
            if not (source == "u64" and to in ("f32", "f64", "f16", "bf16")):
                node("cast", [made.feed(elements(source), source)], {"dtype": to})
        for dtype in ("i8", "u8", "i16", "u16"):
            for of in ("f32", "f16"):
                values = elements(of)
                n = len(values)
                scale = np.linspace(0.01, 40, n).astype(np.float32)
                zero = (np.arange(n) % 5).astype(np.int32)
                for grid in (Quantization(scale[:1], zero[3:4]), Quantization(scale, zero, 0)):
                    node("quantize", [made.feed(values, of)], {"dtype": dtype}, grid)
                    stored_values = np.resize(elements(dtype), n)
                    x = made.feed(stored_values, dtype)
                    x.quantization = grid
                    node("dequantize", [x], {"dtype": of})
                stored_zero = zero.astype(numpy_dtype(dtype))
                for zeros in ([], [stored_zero]):
                    more = [made.feed(scale, "f32"), *[made.feed(z, dtype) for z in zeros]]
                    node("quantize", [made.feed(values, of), *more], {"dtype": dtype, "axis": 0})
                    more = [made.feed(scale, "f32"), *[made.feed(z, dtype) for z in zeros]]
                    node("dequantize", [made.feed(stored_values, dtype), *more], {"dtype": of, "axis": 0})
    return made


class Converting(Reading):
    def _cost(self, step: Any) -> float:
        if op_of(step) in ("cast", "quantize", "dequantize"):
            self.look(step)
        return -1.0


def test_conversions_have_the_same_bits_in_opencl() -> None:
    need_opencl()
    batch, kernels, calls = every_conversion_op(), dict[str, str](), list[tuple[str, list[Any]]]()
    graph, feeds = finished(batch)

    def pointed(tensor: Any) -> list[np.ndarray | None]:
        n = tensor.quant_count
        scale = np.frombuffer(ffi.buffer(tensor.scales, 4 * n), np.float32).copy() if n else None
        zero = np.frombuffer(ffi.buffer(tensor.zeros, 4 * n), np.int32).copy() if n and tensor.zeros else None
        return [scale, zero]

    def look(step: Any) -> None:
        y = tensor_of(step, 0, output=True)
        if text(y.name) in kernels:
            return
        kernels[text(y.name)] = kernel(step, len(kernels), "opencl", native=False)
        inputs = [tensor_of(step, i) for i in range(lib().linnet_step_input_count(step))]
        calls.append(
            (text(y.name), [a for x in inputs for a in (feeds[text(x.name)], *pointed(x))] + [None, *pointed(y)])
        )

    device = Converting(look)
    expected = linnet.Session(graph, devices=[device]).run(feeds)
    assert not device.faults, device.faults
    ours = "".join(kernels.values())
    program = OpenCL(text_of(lib().linnet_map_prelude, options("opencl")[0], ours.encode()) + ours)
    assert len(calls) == len(expected)
    for number, (name, arguments) in enumerate(calls):
        want = expected[name]
        got = np.zeros_like(want)
        arguments[-3] = got
        program.run(f"k{number}", arguments, [len(arguments) - 3], got.size)
        same(got, want, kernels[name])
