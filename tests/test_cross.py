"""64-bit ARM, cross-compiled and run under qemu as a Cortex-A53 (ARMv8.0) and as `max` (dot product, i8mm).
C tests pass; integer results of real models equal this machine's bit for bit, float ones are close. Not a speed test."""
# Dear: an emulated processor takes ten times as long.

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from tests import nets, zoo
from tests.graphs import in_integers
from tests.native import ARM_CPUS, ROOT, build, c_test, c_tests, need, run

SYSROOT = "/usr/aarch64-linux-gnu"
MODELS = ("ppocr_cls", "mobilenet_v2")
DTYPES = ("f32", "i16", "i8")


def emulated(cpu: str) -> list[str]:
    need("qemu-aarch64")
    return ["qemu-aarch64", "-L", SYSROOT, "-cpu", cpu]


def run_emulated(graph: linnet.Graph, x: np.ndarray, cpu: str, precision: str, folder: Path) -> np.ndarray:
    """The output "y" for the input "x" on an emulated processor, whose plan permits this precision."""
    graph.save(folder / "m.lnt")
    np.save(folder / "x.npy", x)
    run([*emulated(cpu), str(build("aarch64") / "linnet-run"), str(folder / "m.lnt"), "--input", f"x={folder}/x.npy",
         "--output-dir", str(folder), "--precision", precision])  # fmt: skip
    return np.asarray(np.load(folder / "y.npy"))


# libssl is loaded at run time, and there is none for ARM here: its test runs only on this machine.
EMULATED = [name for name in c_tests() if name != "test_sync_tls"]
SLOW = ("test_map", "test_sync_journal", "test_gradient")  # the longest wait for `make test-more`
NEWER = (
    "test_gemm",
    "test_conv",
    "test_depthwise",
    "test_kernel_lines",
    "test_map",
)  # the dot product and i8mm are used


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.more) if n in SLOW else n for n in EMULATED])
def test_c_tests(name: str) -> None:
    run([*emulated("cortex-a53"), *c_test(build("aarch64"), name, 2)], cwd=ROOT, timeout=300)


@pytest.mark.more
@pytest.mark.parametrize("name", NEWER)
def test_c_tests_of_newer_instructions(name: str) -> None:
    run([*emulated("max"), *c_test(build("aarch64"), name, 2)], cwd=ROOT, timeout=300)


@functools.cache
def _model(name: str) -> tuple[linnet.Graph, dict[str, np.ndarray]]:
    if name in nets.NETS:
        return linnet.from_onnx(nets.NETS[name]()), nets.inputs()
    path = zoo.at_hand(lambda: zoo.fetch(name))
    return linnet.from_onnx(path, input_shapes=zoo.input_shapes(name)), zoo.inputs(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cross")


def _file(name: str, dtype: str, folder: Path) -> Path:
    path = folder / f"{name}-{dtype}.lnt"
    if not path.exists():
        graph, feeds = _model(name)
        (graph if dtype == "f32" else in_integers(graph, [feeds], dtype)).save(path)
    return path


def _run_native(command: list[str], name: str, dtype: str, folder: Path) -> dict[str, np.ndarray]:
    """The outputs that linnet-run writes."""
    path, out = _file(name, dtype, folder), folder / f"out-{name}-{dtype}-{len(list(folder.glob('out-*')))}"
    words = []
    for key, value in _model(name)[1].items():
        np.save(folder / f"{name}.npy", value)
        words += ["--input", f"{key}={folder / name}.npy"]
    run([*command, str(path), *words, "--output-dir", str(out), "--threads", "2"], timeout=600)
    outputs = {file.stem: np.load(file) for file in sorted(out.glob("*.npy"))}
    assert outputs
    return outputs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cpu", ARM_CPUS)
def test_linnet_run_gives_the_results_of_this_machine(cpu: str, name: str, dtype: str, folder: Path) -> None:
    here = _run_native([str(build("release") / "linnet-run")], name, dtype, folder)
    program = str(build("aarch64") / "linnet-run")
    there = _run_native([*emulated(cpu), program], name, dtype, folder)
    assert set(there) == set(here)
    for key, value in here.items():
        assert np.ptp(value) > 0
        if dtype == "f32":
            np.testing.assert_allclose(there[key], value, rtol=1e-3, atol=1e-4 * np.ptp(value))
        else:
            np.testing.assert_array_equal(there[key].view(np.uint8), value.view(np.uint8))


# Instructions that an ARMv8.0 core (Cortex-A53, Raspberry Pi 3) lacks.
_NEWER = re.compile(r"\t(sdot|udot|usdot|sudot|[su]mmla|usmmla|bf\w+mla\w*|fmlal2?|cas\w*|ldadd\w*|sqrdmla[hs])\b|"
                    r"\tf(add|sub|mul|mla|mls|div|max|min|cvt\w+)\s+v\d+\.[48]h,")  # fmt: skip


def test_common_code_is_plain_armv8() -> None:
    need("aarch64-linux-gnu-objdump")
    objects = sorted((build("aarch64") / "CMakeFiles" / "linnet_objects.dir").rglob("*.o"))
    plain = [path for path in objects if not re.search(r"__(fp16|bf16|dotprod|i8mm)\.c\.o$", path.name)]
    assert len(plain) > 20
    for path in plain:
        for line in run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", str(path)]).splitlines():
            if "fcvtl" in line or "fcvtn" in line:
                continue  # conversions between half and single are in ARMv8.0
            assert not _NEWER.search(line), f"{path.name}: {line.strip()}"


@pytest.mark.more
@pytest.mark.parametrize("name", [*NEWER, "test_pool", "test_reduce", "test_norm", "test_resize", "test_winograd"])
def test_c_tests_pass_on_armv7(name: str) -> None:
    """With NEON of 32 bits, as a Cortex-A8."""
    need("qemu-arm")
    program, *rounds = c_test(build("armv7"), name, 4)
    only = ["--only", "neon32"] if name == "test_gemm" else []  # it wants kernels of all types from a whole run
    run(["qemu-arm", "-L", "/usr/arm-linux-gnueabihf", "-cpu", "cortex-a8", program, *only, *rounds], timeout=600)


@pytest.mark.more
@pytest.mark.parametrize(("rows", "k", "columns"), [(9, 513, 24), (7, 1100, 25), (4, 512, 12)])
def test_armv7_adds_a_residual_before_it_overwrites_it(rows: int, k: int, columns: int, tmp_path: Path) -> None:
    """A product over more than 512 k is computed in blocks, and its result takes the memory of the residual."""
    need("qemu-arm")
    rng = np.random.default_rng(k)
    x, *weights = (
        rng.standard_normal(size).astype(np.float32) / size[0] ** 0.5
        for size in ((rows, 40), (40, columns), (columns, k), (k, columns), (columns, 8))
    )
    graph = linnet.Graph()
    given = graph.placeholder("x", x.shape)
    first, wide, narrow, last = (graph.constant(w) for w in weights)
    residual = ops.matmul(given, first)
    y = ops.add(ops.matmul(ops.relu(ops.matmul(residual, wide)), narrow), residual)
    graph.signature("infer", {"x": given}, {"y": ops.matmul(y, last)})
    graph.save(tmp_path / "m.lnt")
    np.save(tmp_path / "x.npy", x)
    run(["qemu-arm", "-L", "/usr/arm-linux-gnueabihf", "-cpu", "cortex-a8", str(build("armv7") / "linnet-run"),
         str(tmp_path / "m.lnt"), "--input", f"x={tmp_path}/x.npy", "--output-dir", str(tmp_path)])  # fmt: skip
    added = x @ weights[0]
    expected = (np.maximum(added @ weights[1], 0) @ weights[2] + added) @ weights[3]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-5)
