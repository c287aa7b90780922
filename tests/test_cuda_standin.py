"""The stand-ins for CUDA's driver and for NVRTC (tests/cuda/): kernels of kernels_gpu/common give NumPy's results, and each
wrong use of the driver that they have to find is found in a small program with this fault."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cuda_rig import (
    ILLEGAL_ADDRESS,
    INVALID_HANDLE,
    INVALID_VALUE,
    LAUNCH_FAILED,
    NOT_READY,
    CompileError,
    CudaError,
    Node,
    Program,
    Rig,
    common,
    defines,
    environment,
    parameters,
    standin,
    whole_text,
)

RNG = np.random.default_rng(7)
I32, F32 = np.int32, np.float32
STORE = "#define LG_STORE(v,at,c) Y_PUT(y,at,v)\n#define LG_EXTRAS\n"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def rig() -> Iterator[Rig]:
    standin().forget()
    with Rig() as held:
        yield held
    assert not standin().violations()


@pytest.fixture
def faulty() -> Iterator[Rig]:
    """A rig for a program that is wrong: violations are not errors of the test."""
    standin().forget()
    held = Rig()
    yield held
    standin().fail_at(0, 0)
    held.code("StreamSynchronize", held.stream)
    standin().forget()
    held.close()
    standin().forget()


def found(*words: str) -> None:
    """Exactly one violation, which has these words."""
    violations = standin().violations()
    assert len(violations) == 1, violations
    assert all(word in violations[0] for word in words), violations


# ---- kernels ---------------------------------------------------------------------------------------------------------

ORDERS = [0, 1, 20]


@pytest.mark.parametrize("order", ORDERS)
def test_a_product_through_shared_memory(rig: Rig, order: int) -> None:
    m, n, depth = 100, 90, 70
    a, b, c, y = floats(m, depth), floats(depth, n), floats(n), floats(m, n)
    places = "#define BIAS_AT(i) (i)\n#define BATCH_A(i) 0\n#define BATCH_B(i) 0\n"
    text = defines(X="f32", W="f32", B="f32", Y="f32", WEIGHTS=0, BIAS=1) + places + STORE + common("matmul_local")
    sizes = [I32(v) for v in (m, n, depth, depth, 1, n, 1)]
    with environment(LINNET_STANDIN_ORDER=order):
        got = rig.run(Program(whole_text(text)), "lg_matmul_local", (2, 2), (256,), a, b, c, y, *sizes)[3]
    np.testing.assert_allclose(got, a @ b + c, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_a_map_of_each_kind_of_float(rig: Rig, dtype: str) -> None:
    """All 65536 values of 16 bits go through f32 and back unchanged."""
    x = np.arange(65536, dtype=np.uint16) if dtype != "f32" else floats(1000)
    text = defines(X=dtype, Y=dtype) + (
        "#define LG_EXTRAS ,LG_GLOBAL const X_T *x\n#define LG_STORE(v,at,c) Y_PUT(y,at,X_GET(x,at))\n" + common("map")
    )
    got = rig.run(Program(whole_text(text)), "lg_map", (-(-x.size // 64),), (64,), np.zeros_like(x), I32(x.size), x)[0]
    top = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0}[dtype]
    nan = (x & 0x7FFF) > top if x.dtype == np.uint16 else np.isnan(x)
    np.testing.assert_array_equal(got[~nan], x[~nan])
    assert not top or all((got[nan] & 0x7FFF) > top)


def test_conversion_to_f16_rounds_as_numpy(rig: Rig) -> None:
    bits = RNG.integers(0, 2**32, 100_000, np.uint32)
    x = np.concatenate(
        [bits.view(np.float32), np.ldexp(floats(100_000), RNG.integers(-30, 20, 100_000)).astype(np.float32)]
    )
    x = x[~np.isnan(x)]
    text = defines(X="f32", Y="f16") + (
        "#define LG_EXTRAS ,LG_GLOBAL const X_T *x\n#define LG_STORE(v,at,c) Y_PUT(y,at,X_GET(x,at))\n" + common("map")
    )
    y = np.zeros(x.size, np.uint16)
    got = rig.run(Program(whole_text(text)), "lg_map", (-(-x.size // 256),), (256,), y, I32(x.size), x)[0]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, x.astype(np.float16).view(np.uint16))


@pytest.mark.parametrize("group", [1, 64])
@pytest.mark.parametrize("order", ORDERS)
def test_softmax(rig: Rig, group: int, order: int) -> None:
    x = floats(5, 300)
    text = defines(X="f32", Y="f32", GROUP=group, WIDE=0) + common("lines") + common("softmax")
    with environment(LINNET_STANDIN_ORDER=order):
        sizes = (I32(5), I32(300), I32(1), I32(0))
        got = rig.run(Program(whole_text(text)), "lg_softmax", (5 if group > 1 else 1,), (64,), x, x, *sizes)[1]
    want = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(got, want / want.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(("kind", "want"), [(0, np.sum), (1, np.mean)])
def test_reduce(rig: Rig, kind: int, want: object) -> None:
    x, y = floats(6, 500), floats(6)
    text = defines(X="f32", Y="f32", GROUP=64, ADDS=1, COMPARES=0, MULTIPLIES=0, ADDS_EXPONENTIALS=0, FINDS=0, FLOATS=1, SCALED=0,
                   X_FLOAT=1, X_F64=0, X_U64=0, Y_BOOL=0, ONE_DIM=1, ROOTS=0) + common("lines") + common("reduce")  # fmt: skip
    sizes = [I32(v) for v in (6, 500, 1, 1, 6, 0, 0, 0, 500, 1, 1, 500, 0, 0, 0, 1)]
    reals = (F32(1), I32(0), F32(1), I32(kind), I32(0))
    got = rig.run(Program(whole_text(text)), "lg_reduce", (6,), (64,), x, y, *sizes, *reals)[1]
    np.testing.assert_allclose(got, want(x, -1), rtol=1e-4, atol=1e-5)  # type: ignore[operator]


WARPS = """
LG_KERNEL(sums)(float *y, const int pitch) {
    extern LG_LOCAL float dynamic[];
    float v = y[LG_GROUP(0) * pitch + threadIdx.x];
    for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
    if (threadIdx.x % 32 == 0) dynamic[threadIdx.x / 32] = v;
    LG_BARRIER();
    float total = 0;
    for (int w = 0; w < 4; ++w) total += dynamic[w];
    int lanes[32], mine = (int)threadIdx.x;
    lg_cpu_warp(&mine, lanes, sizeof mine);
    const int next = __shfl_down_sync(0xffffffffu, mine, 1), bits = (int)__ballot_sync(0xffffffffu, mine % 2);
    const bool right = lanes[31] == (mine | 31) && next == (mine % 32 == 31 ? mine : mine + 1) && bits == (int)0xaaaaaaaa;
    y[LG_GROUP(0) * pitch + threadIdx.x] = right ? total : -1.0f;
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_operations_of_warps_and_dynamic_shared_memory(rig: Rig, order: int) -> None:
    y = np.abs(floats(3, 128))
    with environment(LINNET_STANDIN_ORDER=order):
        got = rig.run(Program(whole_text(WARPS)), "sums", (3,), (128,), y, I32(128), shared=16)[0]
    np.testing.assert_allclose(got, np.repeat(y.sum(-1, keepdims=True), 128, -1), rtol=1e-5)


# ---- faults of kernels -----------------------------------------------------------------------------------------------


def failing(faulty: Rig, body: str, threads: int = 64, *arguments: object, code: int = LAUNCH_FAILED) -> None:
    text = whole_text(f"LG_KERNEL(wrong)(int *y, const int n) {{ {body} }}")
    with pytest.raises(CudaError) as error:
        faulty.run(Program(text), "wrong", (1,), (threads,), np.arange(64, dtype=np.int32), I32(63))
    assert error.value.code == code


def test_a_barrier_that_a_part_of_a_block_never_reaches(faulty: Rig) -> None:
    failing(faulty, "if (threadIdx.x < 32) LG_BARRIER(); y[threadIdx.x] = 1;")
    found("divergent", "32 are at a barrier", "32 have returned")


def test_two_barriers_at_once(faulty: Rig) -> None:
    failing(faulty, "if (threadIdx.x < 32) { LG_BARRIER(); } else { LG_BARRIER(); } y[threadIdx.x] = 1;")
    found("different barriers")


def test_a_wait_that_never_ends(faulty: Rig) -> None:
    failing(faulty, "volatile int *p = y; while (p[0] == 0) lg_cpu_yield();")
    found("none of them does")


@pytest.mark.parametrize("place", ["n + 1 + threadIdx.x", "1LL << 44"])
def test_a_write_beyond_an_allocation(faulty: Rig, place: str) -> None:
    failing(faulty, f"y[{place}] = 1;", code=ILLEGAL_ADDRESS)
    found("wrong fails: it uses the address")


def test_a_division_of_integers_by_zero(faulty: Rig) -> None:
    failing(faulty, "y[0] = 100 / (n - 63);", code=ILLEGAL_ADDRESS)
    found("divides")


def test_a_stack_that_overflows(faulty: Rig) -> None:
    failing(
        faulty,
        "volatile int big[100000]; big[0] = n; big[n] = 1; LG_BARRIER(); y[0] = big[0] + big[n];",
        code=ILLEGAL_ADDRESS,
    )


def test_the_order_of_threads_shows_a_race(rig: Rig) -> None:
    """Without a barrier after its last use, the shared memory is overwritten by threads that are ahead."""
    text = """LG_KERNEL(race)(int *y, const int n) {
        LG_LOCAL int held[64];
        held[threadIdx.x] = y[threadIdx.x];
        y[threadIdx.x] = held[threadIdx.x == 63 ? 0 : threadIdx.x + 1]; RACE
    }"""
    y = np.arange(64, dtype=np.int32)

    def results(repaired: bool) -> set[bytes]:
        whole = whole_text(text.replace("RACE", "").replace("y[threadIdx.x];", "y[threadIdx.x]; LG_BARRIER();", 1)
                           if repaired else text.replace("RACE", "LG_BARRIER();"))  # fmt: skip
        out = set()
        for order in (0, 1, 5, 6):
            with environment(LINNET_STANDIN_ORDER=order):
                out.add(rig.run(Program(whole), "race", (1,), (64,), y, I32(0))[0].tobytes())
        return out

    assert results(True) == {np.roll(y, -1).tobytes()}
    assert len(results(False)) > 1


def test_shared_memory_has_no_values_of_the_block_before(rig: Rig) -> None:
    text = """LG_KERNEL(left)(int *y, const int n) {
        LG_LOCAL int held[1];
        y[LG_GROUP(0)] = held[0];
        held[0] = 5;
    }"""
    assert list(rig.run(Program(whole_text(text)), "left", (3,), (1,), np.zeros(3, np.int32), I32(0))[0]) == [
        -1,
        -1,
        -1,
    ]


# ---- programs --------------------------------------------------------------------------------------------------------


def test_errors_of_the_compiler_are_in_the_log() -> None:
    with pytest.raises(CompileError, match="not_declared"):
        Program(whole_text("LG_KERNEL(k)(int *y) { y[0] = not_declared; }"))
    with pytest.raises(CompileError, match="5: unrecognized option --fast"):
        Program(whole_text("LG_KERNEL(k)(int *y) { y[0] = 1; }"), ["--gpu-architecture=sm_87", "--fast"])
    with pytest.raises(CompileError, match="5: the options name no"):
        Program(whole_text("LG_KERNEL(k)(int *y) { y[0] = 1; }"), [])


def test_images_that_are_damaged_or_for_another_gpu(rig: Rig) -> None:
    program = Program(whole_text("LG_KERNEL(k)(int *y) { y[0] = 1; }"))
    handle = ctypes.c_uint64()
    wrong = bytearray(program.image)
    wrong[200] ^= 1
    assert rig.code("ModuleLoadData", ctypes.byref(handle), bytes(wrong)) == 200
    assert (
        rig.code("ModuleLoadData", ctypes.byref(handle), b"no image at all, and it is longer than a header has to be")
        == 200
    )
    hopper = Program(whole_text("LG_KERNEL(k)(int *y) { y[0] = 1; }"), ["--gpu-architecture=sm_90a"])
    assert rig.code("ModuleLoadData", ctypes.byref(handle), hopper.image) == 209
    module = rig.made("ModuleLoadData", program.image)
    assert rig.code("ModuleGetFunction", ctypes.byref(handle), module, b"other") == 500
    rig.call("ModuleUnload", module)


# ---- wrong use of the driver -----------------------------------------------------------------------------------------

ADD = "LG_KERNEL(add)(int *y, const int n) { y[LG_ID(0)] += n; }"


def test_leaks_are_reported(faulty: Rig) -> None:
    before, _ = standin().report()
    memory, event = faulty.made("MemAlloc", 100), faulty.made("EventCreate", 0)
    stream, graph = faulty.made("StreamCreate", 1), faulty.made("GraphCreate", 0)
    pinned = faulty.made("MemHostAlloc", 64, 0)
    after, text = standin().report()
    assert after - before == 5 and all(word in text for word in ("memory", "event", "stream", "graph", "pinned memory"))
    faulty.call("MemFree", memory)
    faulty.call("EventDestroy", event)
    faulty.call("StreamDestroy", stream)
    faulty.call("GraphDestroy", graph)
    faulty.call("MemFreeHost", pinned)
    assert standin().report()[0] == before and not standin().violations()


def test_an_end_that_comes_twice(faulty: Rig) -> None:
    memory, event = faulty.made("MemAlloc", 100), faulty.made("EventCreate", 0)
    faulty.call("MemFree", memory)
    assert faulty.code("MemFree", memory) == INVALID_VALUE
    found("cuMemFree", "freed before")
    standin().forget()
    faulty.call("EventDestroy", event)
    assert faulty.code("EventDestroy", event) == INVALID_HANDLE
    found("cuEventDestroy", "has been destroyed")


def test_handles_of_the_wrong_kind(faulty: Rig) -> None:
    assert faulty.code("EventRecord", faulty.stream, faulty.stream) == INVALID_HANDLE
    found("stream, not a event")
    standin().forget()
    assert faulty.code("StreamSynchronize", 12345) == INVALID_HANDLE
    found("no handle")


def test_use_after_the_end(faulty: Rig) -> None:
    memory, data = faulty.made("MemAlloc", 100), np.zeros(25, np.int32)
    faulty.call("MemFree", memory)
    assert faulty.code("MemcpyHtoDAsync", memory, data.ctypes.data, 100, faulty.stream) == INVALID_VALUE
    found("has been freed")
    standin().forget()
    function = faulty.function(Program(whole_text(ADD)), "add")
    faulty.launch(function, (1,), (4,), memory, I32(1))
    assert faulty.code("StreamSynchronize", faulty.stream) == ILLEGAL_ADDRESS
    found("add fails", "has been freed")


def test_memory_that_queued_work_uses(faulty: Rig) -> None:
    memory = faulty.made("MemAlloc", 100)
    faulty.launch(faulty.function(Program(whole_text(ADD)), "add"), (1,), (4,), memory + 16, I32(1))
    faulty.call("MemFree", memory)
    found("cuMemFree", "queued work uses")


def test_pinned_memory_that_queued_work_uses(faulty: Rig) -> None:
    memory, pinned = faulty.upload(np.zeros(25, np.int32)), faulty.made("MemHostAlloc", 100, 0)
    faulty.call("MemcpyDtoHAsync", pinned, memory, 100, faulty.stream)
    faulty.call("MemFreeHost", pinned)
    found("cuMemFreeHost", "queued work uses")


def test_a_module_an_event_and_a_stream_that_are_in_use(faulty: Rig) -> None:
    memory, program, event = (
        faulty.upload(np.zeros(25, np.int32)),
        Program(whole_text(ADD)),
        faulty.made("EventCreate", 2),
    )
    function, other = faulty.function(program, "add"), faulty.made("StreamCreate", 1)
    faulty.launch(function, (1,), (4,), memory, I32(1))
    faulty.call("EventRecord", event, other)
    faulty.call("EventDestroy", event)
    faulty.call("ModuleUnload", program.module)
    faulty.call("StreamDestroy", other)
    assert [text.split(":")[0] for text in standin().violations()] == [
        "cuEventDestroy",
        "cuModuleUnload",
        "cuStreamDestroy",
    ]


def test_copies_beyond_an_allocation(faulty: Rig) -> None:
    memory, data = faulty.upload(np.zeros(25, np.int32)), np.zeros(100, np.int32)
    assert faulty.code("MemcpyHtoDAsync", memory + 4, data.ctypes.data, 100, faulty.stream) == INVALID_VALUE
    found("100 bytes at +4 of memory of 100 bytes")


@pytest.mark.parametrize("offset", [0, -4])
def test_a_write_beside_an_allocation(faulty: Rig, offset: int) -> None:
    """So close that no guard page sees it."""
    memory = faulty.made("MemAlloc", 100)
    faulty.launch(
        faulty.function(Program(whole_text(ADD)), "add"), (1,), (26 if offset == 0 else 4,), memory + offset, I32(1)
    )
    faulty.finish()
    faulty.call("MemFree", memory)
    found("has written outside", f"at {'+100' if offset == 0 else '-4'}")


def test_sizes_of_launches(faulty: Rig) -> None:
    memory, function = faulty.upload(np.zeros(25, np.int32)), faulty.function(Program(whole_text(ADD)), "add")
    for grid, block, shared in (
        ((1,), (1025,), 0),
        ((0,), (4,), 0),
        ((1, 65536), (4,), 0),
        ((1,), (4,), 48 * 1024 + 1),
    ):
        standin().forget()
        with pytest.raises(CudaError) as error:
            faulty.launch(function, grid, block, memory, I32(1), shared=shared)
        assert error.value.code == INVALID_VALUE
        found("add")
    standin().forget()
    assert faulty.code("FuncSetAttribute", function, 8, 101 * 1024) == INVALID_VALUE
    found("a block has 102400")
    standin().forget()
    faulty.call("FuncSetAttribute", function, 8, 100 * 1024)
    faulty.launch(function, (1,), (4,), memory, I32(1), shared=100 * 1024)
    faulty.finish()
    assert not standin().violations()


def test_calls_without_a_context() -> None:
    standin().forget()
    handle = ctypes.c_uint64()
    assert standin().library.cuMemAlloc_v2(ctypes.byref(handle), ctypes.c_uint64(100)) == 201
    found("no context is current")
    standin().forget()


# ---- order -----------------------------------------------------------------------------------------------------------


def test_work_runs_when_somebody_waits(rig: Rig) -> None:
    """Without a wait, the host sees the old values: what the queue reads and writes must live until then."""
    data, out = np.full(25, 3, np.int32), np.zeros(25, np.int32)
    memory = rig.upload(np.zeros(25, np.int32))
    rig.call("MemcpyHtoDAsync", memory, data.ctypes.data, 100, rig.stream)
    rig.call("MemcpyDtoHAsync", out.ctypes.data, memory, 100, rig.stream)
    assert not out.any()
    data[:] = 4
    rig.finish()
    assert (out == 4).all()


def test_streams_are_ordered_by_events_alone(rig: Rig) -> None:
    function, memory = rig.function(Program(whole_text(ADD)), "add"), rig.upload(np.zeros(64, np.int32))
    other, event, out = rig.made("StreamCreate", 1), rig.made("EventCreate", 2), np.zeros(64, np.int32)
    for waits in (False, True):
        rig.launch(function, (1,), (64,), memory, I32(1))
        rig.call("EventRecord", event, rig.stream)
        if waits:
            rig.call("StreamWaitEvent", other, event, 0)
        rig.call("MemcpyDtoHAsync", out.ctypes.data, memory, 256, other)
        rig.call("StreamSynchronize", other)
        assert (out == (2 if waits else 0)).all()
    rig.call("EventSynchronize", event)
    rig.call("EventDestroy", event)
    rig.call("StreamDestroy", other)


def test_queries_of_events_make_progress(rig: Rig) -> None:
    function, memory = rig.function(Program(whole_text(ADD)), "add"), rig.upload(np.zeros(64, np.int32))
    first, last = rig.made("EventCreate", 0), rig.made("EventCreate", 0)
    rig.call("EventRecord", first, rig.stream)
    rig.launch(function, (1,), (64,), memory, I32(1))
    rig.call("EventRecord", last, rig.stream)
    standin().hold(2)
    assert [rig.code("EventQuery", last) for _ in range(6)] == [NOT_READY] * 4 + [0, 0]
    elapsed = ctypes.c_float(-1)
    rig.call("EventElapsedTime", ctypes.byref(elapsed), first, last)
    assert elapsed.value >= 0
    rig.call("EventDestroy", first)
    rig.call("EventDestroy", last)


def test_graphs_replay_copies_of_parameters(rig: Rig) -> None:
    function, memory = rig.function(Program(whole_text(ADD)), "add"), rig.upload(np.zeros(64, np.int32))
    graph, node, executable = rig.made("GraphCreate", 0), ctypes.c_uint64(), ctypes.c_uint64()
    for number in (1, 10):
        passed = parameters([memory, I32(number)])
        what = Node(function, (1, 1, 1), (64, 1, 1), 0, ctypes.cast(passed, ctypes.c_void_p))
        after = ctypes.c_uint64(node.value)
        rig.call(
            "GraphAddKernelNode", ctypes.byref(node), graph, ctypes.byref(after), int(number > 1), ctypes.byref(what)
        )
        ctypes.memset(passed, 0, ctypes.sizeof(passed))
    rig.call("GraphInstantiate", ctypes.byref(executable), graph, 0)
    rig.call("GraphDestroy", graph)
    before = standin().count("graphs")
    for _ in range(3):
        rig.call("GraphLaunch", executable.value, rig.stream)
    rig.call("GraphExecDestroy", executable.value)
    assert (rig.download(memory, np.zeros(64, np.int32)) == 33).all() and standin().count("graphs") == before + 3


def test_the_kth_call_fails_and_has_no_effect(faulty: Rig) -> None:
    event = ctypes.c_uint64(77)
    before, calls = standin().report()[0], standin().calls()
    standin().fail_at(2, 999)
    memory = faulty.made("MemAlloc", 100)
    assert faulty.code("EventCreate", ctypes.byref(event), 0) == 999 and event.value == 77
    assert standin().report()[0] == before + 1 and standin().calls() == calls + 2
    standin().fail_at(1, 999)
    assert faulty.code("MemFree", memory) == 999
    assert standin().report()[0] == before, "memory that the caller could not free is no leak"
    faulty.call("MemFree", memory)
    assert not standin().violations()


def test_images_are_kept(tmp_path: Path) -> None:
    with environment(LINNET_STANDIN_CACHE=tmp_path / "kept"):
        images = [Program(whole_text(ADD)).image for _ in range(2)]
    assert images[0] == images[1] and len(list((tmp_path / "kept").iterdir())) == 1
