"""linnet.pack and `linnet pack`: packed weights in the file give the same bits, take less time and memory, and are never trusted:
what does not match, or is damaged, is packed as usual."""

from __future__ import annotations

import json
import re
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet._generated.fb import Model as FbModel
from linnet.clib.ffi import ffi
from linnet.clib.library import library, new_struct
from linnet.file.layout import HEADER
from linnet.session.planner import Planner
from tests.native import ROOT

KNOWN = ROOT / "tests" / "packed.json"
Array = np.ndarray[Any, Any]


def net(dtype: str = "f32") -> linnet.Graph:
    """Layers of every family that packs: products, convolutions (also 3 x 3, depthwise, transposed), an LSTM."""
    random = np.random.default_rng(5)
    graph, ops = linnet.Graph(), linnet.ops

    def weights(*shape: int) -> linnet.Tensor:
        value = random.integers(-40, 40, shape) / np.float32(256)
        return graph.constant(value.astype(np.float16 if dtype == "f16" else np.float32))

    x = graph.placeholder("x", (1, 16, 24, 24), dtype)
    y = ops.relu(ops.conv(x, weights(40, 16, 3, 3), weights(40), pads=[1, 1, 1, 1]))
    y = ops.relu(ops.conv(y, weights(40, 1, 5, 5), weights(40), group=40, pads=[2, 2, 2, 2]))
    y = ops.conv(y, weights(20, 40, 1, 1), weights(20))
    y = ops.conv_transpose(y, weights(20, 12, 2, 2), weights(12), strides=[2, 2])
    y = ops.reshape(ops.mean(y, axis=[2]), (1, -1))
    y = ops.matmul(y, weights(12 * 48, 64))
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def quantized() -> linnet.Graph:
    feeds = {"x": np.linspace(-1, 1, 16 * 24 * 24, dtype=np.float32).reshape(1, 16, 24, 24)}
    return linnet.quantize(net(), dtype="i8", calibration=[feeds])


GRAPHS: dict[str, Callable[[], linnet.Graph]] = {"f32": net, "f16": lambda: net("f16"), "i8": quantized}


def results(model: Any, **options: Any) -> tuple[Array, dict[str, Any], dict[str, int]]:
    session = linnet.Session(model, **options)
    spec = session.inputs[0]
    shape = [d or 1 for d in spec.shape or ()]
    x = np.random.default_rng(9).standard_normal(shape).astype(np.float16 if spec.dtype == "f16" else np.float32)
    return session.run({spec.name: x})["y"], session.plan_info, session.memory


class _Borrowed(linnet.Model):
    """A model in memory of the caller."""

    def __init__(self, content: Array) -> None:
        lib, out, error = library(), ffi.new("linnet_model **"), ffi.new("linnet_error *")
        super().__init__(content.tobytes())
        self.memory = content  # kept alive
        data = ffi.from_buffer(content)
        assert not lib.linnet_model_open_memory(data, len(content), lib.LINNET_BORROW, ffi.NULL, out, error)
        self.pointer = ffi.gc(out[0], lib.linnet_model_free)


def at_offset(content: bytes, offset: int) -> linnet.Model:
    """The model in memory that begins `offset` bytes after a multiple of 64."""
    memory = np.empty(len(content) + 128, np.uint8)
    first = -memory.ctypes.data % 64 + offset
    memory[first : first + len(content)] = np.frombuffer(content, np.uint8)
    return _Borrowed(memory[first : first + len(content)])


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("isa", linnet.isa_names()[1:])
def test_same_bits_and_no_packing(kind: str, isa: str, tmp_path: Path) -> None:
    graph = GRAPHS[kind]()
    graph.save(tmp_path / "plain.lnt")
    found = linnet.pack(tmp_path / "plain.lnt", tmp_path / "packed.lnt", isa)
    assert found.isas == (isa,) and found.constants > 3
    plain, before, memory = results(tmp_path / "plain.lnt", isa_max=isa, threads=1)
    assert before["stored_weights"] == 0 < memory["packed_weights"]
    packed, after, memory = results(tmp_path / "packed.lnt", isa_max=isa, threads=1)
    assert np.array_equal(packed, plain)
    assert memory["packed_weights"] == 0 < after["stored_weights"]
    for place in (0, 16, 64):  # borrowed: kernels need memory that is aligned to 64 bytes
        packed, info, memory = results(at_offset((tmp_path / "packed.lnt").read_bytes(), place), isa_max=isa, threads=1)
        assert np.array_equal(packed, plain)
        assert (info["stored_weights"] > 0) == (memory["packed_weights"] == 0) == (place % 64 == 0)
    for other in linnet.isa_names():  # packs what differs
        expected, _, _ = results(tmp_path / "plain.lnt", isa_max=other)
        assert np.array_equal(results(tmp_path / "packed.lnt", isa_max=other)[0], expected), other
    assert linnet.Model(tmp_path / "packed.lnt").verify().problems == 0
    assert linnet.Graph.load(tmp_path / "packed.lnt").to_bytes() == graph.to_bytes()


def test_several_targets_in_one_file(tmp_path: Path) -> None:
    names = linnet.isa_names()[1:]
    found = linnet.pack(net(), tmp_path / "m.lnt", names)
    assert found.isas == tuple(names)
    assert [results(tmp_path / "m.lnt", isa_max=name)[2]["packed_weights"] for name in names] == [0] * len(names)
    assert results(tmp_path / "m.lnt", isa_max=names[0])[1]["stored_weights"] < found.bytes
    linnet.pack(tmp_path / "m.lnt", tmp_path / "m.lnt", names[0])  # again, in place: the other targets are gone
    assert results(tmp_path / "m.lnt", isa_max=names[0])[2]["packed_weights"] == 0
    assert len(names) == 1 or results(tmp_path / "m.lnt", isa_max=names[-1])[2]["packed_weights"] > 0


def test_variables_and_loops(tmp_path: Path) -> None:
    """Variables are packed by the session, since they may change; constants in the body of a loop are stored."""
    graph, ops = linnet.Graph(seed=1), linnet.ops
    x = graph.placeholder("x", (4, 32))
    matrix = graph.constant(np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32) / 8)
    start = (graph.constant(np.int64(0)), x)
    _, y = linnet.while_loop(lambda state: state[0] < 3, lambda state: (state[0] + 1, state[1] @ matrix), start)
    w = graph.variable("w", linnet.init.glorot((32, 8)))
    graph.signature("infer", {"x": x}, {"y": ops.matmul(y, w)})
    graph.save(tmp_path / "plain.lnt")
    linnet.pack(graph, tmp_path / "packed.lnt")
    plain, _, before = results(tmp_path / "plain.lnt")
    packed, info, after = results(tmp_path / "packed.lnt")
    assert np.array_equal(plain, packed) and info["stored_weights"] > 0
    assert 0 < after["packed_weights"] < before["packed_weights"]
    session = linnet.Session(tmp_path / "packed.lnt")
    session.variables["w"] = np.zeros((32, 8), np.float32)
    assert not session.run({"x": np.ones((4, 32), np.float32)})["y"].any()


def test_a_session_begins_sooner_and_holds_less(tmp_path: Path) -> None:
    graph, ops = linnet.Graph(), linnet.ops
    x = graph.placeholder("x", (1, 256, 8, 8))
    w = np.random.default_rng(2).standard_normal((512, 256, 3, 3)).astype(np.float32)
    graph.signature("infer", {"x": x}, {"y": ops.conv(x, graph.constant(w), pads=[1, 1, 1, 1])})
    graph.save(tmp_path / "plain.lnt")
    found = linnet.pack(graph, tmp_path / "packed.lnt", threads=1)
    times: dict[str, list[float]] = {"plain.lnt": [], "packed.lnt": []}
    held = {}
    for _ in range(5):
        for name, taken in times.items():
            begin = time.perf_counter()
            session = linnet.Session(tmp_path / name, threads=1)
            session.run({"x": np.zeros((1, 256, 8, 8), np.float32)})
            taken.append(time.perf_counter() - begin)
            held[name] = session.memory["total"]
    assert min(times["packed.lnt"]) < min(times["plain.lnt"])
    assert held["plain.lnt"] - held["packed.lnt"] > found.bytes * 0.9


# ---- damage --------------------------------------------------------------------------------------------------------


def parts(content: bytes) -> tuple[Any, set[int]]:
    """The structure, and the numbers of the segments with packed weights."""
    start, size = HEADER.unpack_from(content)[3:5]
    model = FbModel.Model.GetRootAs(content[start : start + size])
    return model, {model.Extras(i).Segment() for i in range(model.ExtrasLength())}


def resealed(content: bytearray) -> bytes:
    """The content with the right checksum of its structure."""
    start, size = HEADER.unpack_from(content)[3:5]
    struct.pack_into("<I", content, 32, zlib.crc32(content[start : start + size]))
    return bytes(content)


@pytest.fixture(scope="module")
def packed_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Array]:
    folder = tmp_path_factory.mktemp("packed")
    linnet.pack(net(), folder / "m.lnt", threads=1)
    return (folder / "m.lnt").read_bytes(), results(folder / "m.lnt", threads=1)[0]


def test_flipped_bits_are_packed_again(packed_file: tuple[bytes, Array], tmp_path: Path) -> None:
    content, expected = packed_file
    random, file = np.random.default_rng(3), tmp_path / "m.lnt"
    model, numbers = parts(content)
    file.write_bytes(content)
    weights = results(file, threads=1)[1]["stored_weights"]
    for number in numbers:
        segment = model.Segments(number)
        damaged = bytearray(content)
        damaged[segment.Offset() + int(random.integers(segment.Size()))] ^= 1 << int(random.integers(8))
        file.write_bytes(damaged)
        y, info, memory = results(file, threads=1)
        assert np.array_equal(y, expected)
        assert info["stored_weights"] < weights and memory["packed_weights"] > 0


def test_a_damaged_structure_gives_an_error_or_the_same_bits(packed_file: tuple[bytes, Array], tmp_path: Path) -> None:
    """The bytes of the extras and of the table of segments change, and the checksum is made right again."""
    content, expected = packed_file
    random, file = np.random.default_rng(4), tmp_path / "m.lnt"
    model, numbers = parts(content)
    size = HEADER.unpack_from(content)[4]
    places = [HEADER.size + model.Extras(i)._tab.Pos for i in range(model.ExtrasLength())]
    places += [HEADER.size + model.Segments(i)._tab.Pos for i in numbers]
    texts = [HEADER.size + content[HEADER.size : HEADER.size + size].find(model.Extras(i).Target()) for i in range(3)]
    ended = {"opened": 0, "refused": 0}
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(int(random.integers(1, 4))):
            place = int(random.choice(places + texts)) + int(random.integers(-8, 32))
            damaged[place] = int(random.integers(256))
        file.write_bytes(resealed(damaged))
        try:
            y = results(file, threads=1)[0]
        except linnet.Error:
            ended["refused"] += 1
        else:
            ended["opened"] += 1
            assert np.array_equal(y, expected)
    assert min(ended.values()) > 20, ended


def test_truncated_files_are_refused(packed_file: tuple[bytes, Array], tmp_path: Path) -> None:
    content, _ = packed_file
    for size in np.linspace(1, len(content) - 1, 40).astype(int):
        (tmp_path / "m.lnt").write_bytes(content[:size])
        with pytest.raises(linnet.FileError):
            linnet.Session(tmp_path / "m.lnt")


def test_other_weights_under_the_same_keys(packed_file: tuple[bytes, Array], tmp_path: Path) -> None:
    """A tool that changes weights, and keeps extras that it does not know, gives the results of the new weights."""
    content, expected = packed_file
    graph = linnet.Graph.load(_written(tmp_path / "a.lnt", content))
    constants = [t for f in graph.functions for t in f.tensors() if t.data is not None and t.data.size > 1000]
    constants[0].data = np.asarray(constants[0].data) * 2
    from linnet.file.writer import chunks

    y, info, _ = results(_written(tmp_path / "b.lnt", b"".join(chunks(graph, extras(content)))), threads=1)
    assert np.array_equal(y, results(graph, threads=1)[0]) and not np.array_equal(y, expected)
    assert info["stored_weights"] > 0  # the other layers


def extras(content: bytes) -> dict[str, Array]:
    """The packed weights of a file, by key."""
    model, _ = parts(content)
    segments = [(model.Extras(i).Target().decode(), model.Extras(i).Segment()) for i in range(model.ExtrasLength())]
    return {
        key: np.frombuffer(content, np.uint8, model.Segments(number).Size(), model.Segments(number).Offset())
        for key, number in segments
    }


def transposed_too(graph: linnet.Graph, x: linnet.Tensor, random: np.random.Generator) -> list[linnet.Tensor]:
    w = graph.constant(random.standard_normal((64, 64)).astype(np.float32))
    return [linnet.ops.matmul(x, w), linnet.ops.matmul(x, w, transpose_b=True)]


def two_parts(graph: linnet.Graph, x: linnet.Tensor, random: np.random.Generator) -> list[linnet.Tensor]:
    """Parts of one constant that is too large to be cut when the file is written."""
    w = graph.constant(random.standard_normal((4, 128, 128)).astype(np.float32))
    x = linnet.ops.concat([x, x], 1)
    return [linnet.ops.matmul(x, w[i]) for i in (1, 3)]


@pytest.mark.parametrize("made", [transposed_too, two_parts])
def test_steps_that_pack_other_bytes_have_other_keys(made: Callable[..., list[linnet.Tensor]], tmp_path: Path) -> None:
    """Two steps of equal shapes, which differ in one thing only."""
    graph, random = linnet.Graph(), np.random.default_rng(6)
    x = graph.placeholder("x", (16, 64))
    results_of = made(graph, x, random)
    graph.signature("infer", {"x": x}, {"y": linnet.ops.concat(results_of, 0)})
    graph.save(tmp_path / "plain.lnt")
    assert linnet.pack(graph, tmp_path / "packed.lnt", threads=1).constants == 2
    packed, info, _ = results(tmp_path / "packed.lnt", threads=1)
    assert np.array_equal(packed, results(tmp_path / "plain.lnt", threads=1)[0]) and info["stored_weights"] > 0


def test_integer_steps_with_other_zero_points_have_other_keys(tmp_path: Path) -> None:
    """Packed bytes contain the products of the weights and the zero point."""
    graph, random = linnet.Graph(), np.random.default_rng(8)
    x = graph.placeholder("x", (1, 16, 6, 6))
    w = graph.constant(random.standard_normal((16, 16, 1, 1)).astype(np.float32))
    both = [linnet.ops.conv(x, w), linnet.ops.conv(x + 1.0, w)]  # from -1 to 3, and from 0 to 4: one scale
    graph.signature("infer", {"x": x}, {"y": linnet.ops.concat(both, 0)})
    data = [{"x": np.clip(random.standard_normal((1, 16, 6, 6)), -1, 3).astype(np.float32)} for _ in range(2)]
    made = linnet.quantize(graph, data, "i8", effort="fast")
    assert linnet.pack(made, tmp_path / "m.lnt", threads=1).constants == 2
    packed, info, _ = results(tmp_path / "m.lnt", threads=1)
    assert np.array_equal(packed, results(made, threads=1)[0]) and info["stored_weights"] > 0


def test_instruction_sets_with_equal_sizes_have_other_keys(tmp_path: Path) -> None:
    """With 32 channels, the packed weights of most instruction sets have one size, but not one order."""
    graph, random = linnet.Graph(), np.random.default_rng(7)
    x = graph.placeholder("x", (1, 32, 24, 24))
    w = [graph.constant(random.standard_normal(shape).astype(np.float32)) for shape in ((32, 32, 3, 3), (32, 32, 1, 1))]
    y = linnet.ops.conv(linnet.ops.conv(x, w[0], pads=[1, 1, 1, 1]), w[1])
    graph.signature("infer", {"x": x}, {"y": y})
    names = linnet.isa_names()[1:]
    for isa in names:
        linnet.pack(graph, tmp_path / "m.lnt", isa, threads=1)
        for other in names:
            expected = results(graph, isa_max=other, threads=1)[0]
            assert np.array_equal(results(tmp_path / "m.lnt", isa_max=other, threads=1)[0], expected), (isa, other)


def test_sessions_of_one_model_share_only_what_is_packed_alike() -> None:
    graph, random = linnet.Graph(), np.random.default_rng(7)
    x = graph.placeholder("x", (1, 32, 24, 24))
    w = [graph.constant(random.standard_normal(shape).astype(np.float32)) for shape in ((32, 32, 3, 3), (32, 32, 1, 1))]
    y = linnet.ops.conv(linnet.ops.conv(x, w[0], pads=[1, 1, 1, 1]), w[1])
    graph.signature("infer", {"x": x}, {"y": y})
    names = linnet.isa_names()[1:]
    for one in names:
        for other in names:
            model = linnet.Model(graph)
            kept = linnet.Session(model, isa_max=one, threads=1)
            expected = results(graph, isa_max=other, threads=1)[0]
            assert np.array_equal(results(model, isa_max=other, threads=1)[0], expected), (one, other)
            assert kept.plan_info


def short_loop(weights: Array, computed: bool) -> linnet.Graph:
    """y = x @ weights[0] @ weights[1] ..., in a loop. computed: each iteration takes its weights out of all."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 16))

    def body(state: Any) -> Any:
        count, y, *held = state
        if computed:
            return (count + 1, y @ linnet.ops.reshape(linnet.ops.gather(held[0], count), (16, 16)), *held)
        return (count + 1, y @ held[0], *held[1:], held[0])

    start = [graph.constant(weights)] if computed else [graph.constant(w) for w in weights]
    always = lambda state: graph.constant(np.bool_(True))  # noqa: E731
    _, y, *_ = linnet.while_loop(always, body, (graph.constant(np.int64(0)), x, *start), maximum=len(weights))
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


@pytest.mark.parametrize("computed", [False, True], ids=["of the file", "computed by planning"])
def test_the_iterations_of_a_short_loop_have_their_own_weights(computed: bool) -> None:
    """Planning makes steps of them that differ in nothing else. In twelve graphs, some of these steps meet in the table."""
    random = np.random.default_rng(9)
    for _ in range(12):
        value = random.standard_normal((4, 16)).astype(np.float32)
        weights = random.standard_normal((8, 16, 16)).astype(np.float32) / 4
        session = linnet.Session(short_loop(weights, computed), threads=1)
        assert session.memory["packed_weights"] >= 8 * 16 * 16 * 4
        found = session.run({"x": value})["y"]
        for w in weights:
            value = value @ w
        np.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-4)


def test_packed_weights_that_are_too_short_are_not_used(packed_file: tuple[bytes, Array], tmp_path: Path) -> None:
    """Their digest is right, and only their size is not."""
    from linnet.file.writer import chunks

    content, expected = packed_file
    graph = linnet.Graph.load(_written(tmp_path / "a.lnt", content))
    kept = {key: block[: len(block) // 2] for key, block in extras(content).items()}
    y, info, _ = results(_written(tmp_path / "b.lnt", b"".join(chunks(graph, kept))), threads=1)
    assert np.array_equal(y, expected) and info["stored_weights"] == 0


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# ---- errors, the command, and crashes --------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["pentium", "", "AVX2"])
def test_unknown_targets(target: str, tmp_path: Path) -> None:
    with pytest.raises(linnet.UsageError, match=f"there is no target '{target}'") as raised:
        linnet.pack(net(), tmp_path / "m.lnt", target)
    assert raised.value.code == 102 and "native" in str(raised.value) and not list(tmp_path.iterdir())


def test_targets_of_other_machines(tmp_path: Path) -> None:
    elsewhere = next(name for name in ("i8mm", "avx512vnni", "avx2") if name not in linnet.isa_names())
    with pytest.raises(linnet.UsageError, match=f"this machine cannot pack for '{elsewhere}'") as raised:
        linnet.pack(net(), tmp_path / "m.lnt", ["native", elsewhere])
    assert "on a machine that has" in str(raised.value) and not list(tmp_path.iterdir())


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(linnet.UsageError, match="no target is given"):
        linnet.pack(net(), tmp_path / "m.lnt", [])
    with pytest.raises(linnet.UsageError, match="no signature"):
        linnet.pack(net(), tmp_path / "m.lnt", signature="train")
    with pytest.raises(linnet.FileError, match="does not exist"):
        linnet.pack(tmp_path / "none.lnt", tmp_path / "m.lnt")
    with pytest.raises(linnet.FileError, match="cannot write"):
        linnet.pack(net(), tmp_path / "no" / "m.lnt")


def test_the_plan_has_had_a_session() -> None:
    """The session has freed values that it packed, so the plan no longer packs."""
    planner = Planner(linnet.Model(net("f16")))
    planner.plan({})
    plan, info, out, error = (
        planner._current_plan(),
        new_struct("linnet_packed"),
        ffi.new("linnet_session **"),
        ffi.new("linnet_error *"),
    )
    assert library().linnet_plan_get_packed(plan, 0, ffi.NULL, info) == 0
    assert library().linnet_plan_get_packed(plan, -1, ffi.NULL, info) == 101
    assert library().linnet_session_create(plan, ffi.NULL, ffi.NULL, out, error) == 0
    assert library().linnet_plan_get_packed(plan, 0, ffi.NULL, info) == 101
    library().linnet_session_free(out[0])


def test_command(linnet_command: Callable[..., Any], tmp_path: Path) -> None:
    net().save(tmp_path / "m.lnt")
    done = linnet_command("pack", tmp_path / "m.lnt", "-o", tmp_path / "p.lnt")
    assert done.returncode == 0 and re.search(r"\d+ packed constants for \w+, ", done.stdout), done
    done = linnet_command("pack", tmp_path / "m.lnt", "-o", tmp_path / "p.lnt", "--target", "sse2", "--json")
    told = json.loads(done.stdout)
    assert told["isas"] == ["sse2"] and told["file_bytes"] == (tmp_path / "p.lnt").stat().st_size
    done = linnet_command("pack", tmp_path / "m.lnt", "-o", tmp_path / "q.lnt", "--target", "pentium")
    assert done.returncode == 1 and "no target 'pentium'" in done.stderr and not (tmp_path / "q.lnt").exists()
    assert linnet_command("pack", tmp_path / "m.lnt").returncode == 2


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    """The process writes again and again, and is killed at random moments."""
    old = tmp_path / "p.lnt"
    graph = linnet.Graph()
    x = graph.placeholder("x", (8, 1024))
    w = np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)
    graph.signature("infer", {"x": x}, {"y": x @ graph.constant(w)})
    graph.save(tmp_path / "m.lnt")
    linnet.pack(tmp_path / "m.lnt", old)
    content = old.read_bytes()
    code = (
        f"import linnet\nprint('ready', flush=True)\nwhile True: linnet.pack({str(tmp_path / 'm.lnt')!r}, {str(old)!r})"
    )
    cut = 0
    for delay in np.random.default_rng(2).uniform(0.1, 0.3, 5):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        cut += len(list(tmp_path.glob(".p.lnt*.part")))
        assert old.read_bytes() == content
    print(f"{cut} temporary files were left")


# ---- the version of packing ------------------------------------------------------------------------------------------


def packed_bytes() -> dict[str, int]:
    """{graph, ISA, number, kernel: CRC-32 of the packed bytes} for one thread."""
    found = {}
    lib, info = library(), new_struct("linnet_packed")
    for kind in ("f32", "f16"):
        for isa in linnet.isa_names()[1:]:
            planner = Planner(linnet.Model(GRAPHS[kind]()), threads=1, isa_max=isa)
            planner.plan({})
            number = 0
            while not lib.linnet_plan_get_packed(planner._current_plan(), number, ffi.NULL, info):
                block = np.empty(info.bytes, np.uint8)
                lib.linnet_plan_get_packed(planner._current_plan(), number, ffi.from_buffer(block), info)
                kernel = ffi.string(info.kernel).decode()
                found[f"{kind} {isa} {number} {kernel} {info.bytes}"] = zlib.crc32(block.tobytes())
                number += 1
    return found


def version() -> int:
    source = (ROOT / "runtime_c" / "plan" / "compile" / "stored.c").read_text()
    found = re.search(r"PACKING_VERSION = (\d+)", source)
    assert found
    return int(found[1])


def test_the_version_changes_when_kernels_pack_otherwise() -> None:
    """`python -m tests.test_pack --write` records what kernels pack, after PACKING_VERSION has been increased."""
    known, now = json.loads(KNOWN.read_text()), packed_bytes()
    assert known["version"] == version(), "record the packed bytes again: python -m tests.test_pack --write"
    changed = [name for name, crc in known["packed"].items() if now.get(name, crc) != crc]
    assert not changed, f"increase PACKING_VERSION in stored.c, then record again: {changed}"
    alike = set(known["packed"]) & set(now)
    assert len(alike) >= (3 if set(linnet.isa_names()) & {"sse2", "neon"} else 0), "another machine takes other kernels"


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    KNOWN.write_text(json.dumps({"version": version(), "packed": packed_bytes()}, indent=1) + "\n")


def test_the_input_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from linnet.cli.main import _main

    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 4))
    graph.signature("infer", {"x": x}, {"y": x @ graph.constant(np.ones((4, 4), np.float32))})
    graph.save(tmp_path / "m.lnt")
    before = (tmp_path / "m.lnt").read_bytes()
    (tmp_path / "same.lnt").symlink_to(tmp_path / "m.lnt")
    for output in ("m.lnt", "same.lnt"):
        assert _main(["pack", str(tmp_path / "m.lnt"), "-o", str(tmp_path / output)]) == 2
        assert "the output file is the same file as the input model" in capsys.readouterr().err
    assert (tmp_path / "m.lnt").read_bytes() == before
