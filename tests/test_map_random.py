"""Random map programs (tests/maps): operands broadcast in every pattern, sizes around the strip, all types. Every ISA level is
compared with NumPy, the reference and the others; plain, under sanitizers of both compilers, and as ARM code."""
# Dear: random programs run under sanitizers.

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.builder.mapping import pointwise
from linnet.facade import Graph
from tests.maps.graphs import write
from tests.native import ARM_CPUS, SANITIZED, SANITIZERS, build, need

BATCH = 50


def _batches(folder: Path, first: int, count: int) -> list[Path]:
    """Files with BATCH programs each."""
    paths = []
    for seed in range(first, first + count, BATCH):
        paths.append(folder / f"{seed}.lnt")
        write(paths[-1], range(seed, seed + BATCH))
    return paths


def _run(command: list[str], paths: list[Path]) -> None:
    command, env = [*command, *map(str, paths)], {**os.environ, **SANITIZED}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, errors="replace")
    if done.returncode or f"{len(paths)} batches" not in done.stdout:
        text = (done.stdout + done.stderr)[-4000:]
        pytest.fail(f"{text}\ncaseN_M: python -m tests.maps N 1 shows the program", pytrace=False)


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """2,000 programs."""
    return _batches(tmp_path_factory.mktemp("maps"), 0, 2000)


@pytest.mark.parametrize("kind", ["release", *SANITIZERS])
def test_random_programs(kind: str, batches: list[Path]) -> None:
    driver = str(build(kind, "fuzz_map") / "fuzz_map")
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda part: _run([driver], part), (batches[::2], batches[1::2])))


@pytest.mark.parametrize("cpu", ARM_CPUS)
def test_random_programs_on_arm(cpu: str, batches: list[Path]) -> None:
    need("qemu-aarch64")
    driver = str(build("aarch64", "fuzz_map") / "fuzz_map")
    _run(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", cpu, driver], batches[:3])


@pytest.mark.soak
@pytest.mark.parametrize("part", range(40))
def test_random_programs_at_length(part: int, tmp_path: Path) -> None:
    """200,000 programs; every fifth batch also runs under a sanitizer."""
    paths = _batches(tmp_path, 10_000 + 5000 * part, 5000)
    _run([str(build("release", "fuzz_map") / "fuzz_map")], paths)
    _run([str(build("address", "fuzz_map") / "fuzz_map")], paths[::10])
    _run([str(build("address-clang", "fuzz_map") / "fuzz_map")], paths[5::10])


def test_lines_of_different_lengths() -> None:
    """The strip used to be a multiple of only the last operand's line: off by 56, where rounding errors are 4e-6."""
    rng, graph = np.random.default_rng(0), Graph()
    arrays = {"x": (3, 100, 2), "a": (100, 2), "b": (2,)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in arrays.items()}
    tensors = [graph.main.placeholder(name, "f32", shape) for name, shape in arrays.items()]
    graph.main.outputs = [pointwise(tensors, lambda x, a, b: (x + a) * b)]
    graph.signature("infer", graph.main, outputs=["y"])
    np.testing.assert_array_equal(linnet.Session(graph).run(feeds)["y"], (feeds["x"] + feeds["a"]) * feeds["b"])
