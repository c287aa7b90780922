"""Devices (linnet_device.h, docs/devices.md): what a device gets, where its memory is, what a run submits, and failures.
tests/ext/mock_device.c proves the asynchronous side; here the device is written in Python and runs each call at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests.capi import Chain, Failure, ffi, lib
from tests.py_device import PyDevice, fail_each_allocation, op_of, tensor_of

HEAVY = {"matmul": 1.0}


def weights(*shape: int, seed: int = 1) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / shape[0]).astype(np.float32)


def layers(count: int = 3, wide: int = 64, variables: bool = False) -> Graph:
    """x [8, wide] -> count times (matmul by w0, w1, ...; add 1) -> y."""
    graph = Graph()
    y = x = graph.placeholder("x", (8, wide))
    for i in range(count):
        w = weights(wide, wide, seed=i)
        y = y @ (graph.variable(f"w{i}", w) if variables else graph.constant(w, f"w{i}")) + 1.0
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)


def run(session: Any) -> np.ndarray:
    return session.run({"x": X})["y"]


def devices_of(session: Any) -> dict[str, str]:
    return {step.name: step.device for step in session.steps if step.op != "transfer"}


def agree(graph: Graph, session: Any) -> None:
    np.testing.assert_allclose(run(session), linnet.Session(graph).run({"x": X})["y"], rtol=1e-5, atol=1e-6)


# ---- placement -------------------------------------------------------------------------------------------------------


def test_a_device_gets_what_it_can_run_and_the_results_agree() -> None:
    device = PyDevice(HEAVY)
    session = linnet.Session(layers(), devices=[device])
    assert [step.device for step in session.steps if step.op == "matmul"] == ["python"] * 3
    assert [step.device for step in session.steps if step.op == "map"] == ["cpu"] * 3
    agree(layers(), session)
    assert device.count("upload") == 3 + 3 and device.count("download") == 3  # 3 constants; 3 values each way
    placed = {step.op: step.placed for step in session.steps}
    assert placed["matmul"] == "chosen" and placed["map"] == "cannot" and session.plan_info["fallbacks"] == 3
    del session


def test_a_lone_cheap_op_is_not_sent_over() -> None:
    """The transfers cost more than the CPU; connected steps together are worth them."""
    alone = PyDevice(HEAVY, transfer_ns=20_000)
    session = linnet.Session(layers(), devices=[alone])
    assert set(devices_of(session).values()) == {"cpu"}
    assert {step.placed for step in session.steps} == {"cost"}  # the maps are epilogues
    together = PyDevice({"matmul": 1.0, "map": 1.0}, transfer_ns=2_000, transfer_rate=10_000)
    wide = layers(count=12, wide=256)
    session = linnet.Session(wide, devices=[together])
    assert set(devices_of(session).values()) == {"python"}
    x = np.ones((8, 256), np.float32)
    np.testing.assert_allclose(
        session.run({"x": x})["y"], linnet.Session(wide).run({"x": x})["y"], rtol=1e-4, atol=1e-4
    )
    assert together.count("download") == 1


def test_a_second_device_gets_what_the_first_cannot_run() -> None:
    first, second = PyDevice(HEAVY, "first"), PyDevice({"map": 0.0, "matmul": 0.0}, "second")
    session = linnet.Session(layers(), devices=[first, second])
    assert {step.op: step.device for step in session.steps if step.op != "transfer"} == {
        "matmul": "first", "map": "second",
    }  # fmt: skip
    agree(layers(), session)  # through the host: neither reaches the other


def test_hints_overrule_costs() -> None:
    device = PyDevice({"matmul": 1e12})
    session = linnet.Session(layers(), devices=[device])
    assert set(devices_of(session).values()) == {"cpu"}
    names = [step.name for step in session.steps if step.op == "matmul"]
    session = linnet.Session(layers(), devices=[device], placement={names[1]: "python"})
    assert [step.device for step in session.steps if step.op == "matmul"] == ["cpu", "python", "cpu"]
    assert [step.placed for step in session.steps if step.device == "python" and step.op == "matmul"] == ["hint"]
    agree(layers(), session)
    willing = PyDevice(HEAVY)
    session = linnet.Session(layers(), devices=[willing], placement={names[0]: "cpu", "*": "python"})
    assert [step.device for step in session.steps if step.op == "matmul"] == ["cpu", "python", "python"]
    with pytest.raises(linnet.UsageError, match=r"placement names a device.*cpu, python.*got gpu"):
        linnet.Session(layers(), devices=[willing], placement={"*": "gpu"}).run({"x": X})


def test_views_need_no_step_of_the_device() -> None:
    graph = Graph()
    x = graph.placeholder("x", (8, 64))
    y = ops.reshape(x @ graph.constant(weights(64, 64)), (16, 32)) @ graph.constant(weights(32, 32))
    graph.signature("infer", {"x": x}, {"y": y})
    device = PyDevice(HEAVY)
    session = linnet.Session(graph, devices=[device])
    agree(graph, session)
    assert device.count("run") == 2 and device.count("download") == 1


# ---- memory ----------------------------------------------------------------------------------------------------------


def info_of_device(plan: Any, i: int = 0) -> Any:
    info = ffi.new("linnet_plan_device_info *", {"struct_size": ffi.sizeof("linnet_plan_device_info")})
    assert lib().linnet_plan_get_device(plan, i, info) == 0
    return info


@pytest.mark.parametrize("fields", [
    {}, {"alignment": 4096}, {"padding": 100}, {"alignment": 256, "padding": 8, "largest_buffer": 18_000},
], ids=str)  # fmt: skip
def test_the_plan_says_exactly_what_is_allocated(fields: dict[str, int]) -> None:
    device = PyDevice({"matmul": 1.0, "map": 1.0}, **fields)

    def claim(steps: Any, count: int, claim: Any) -> None:
        claim.scratch_bytes, claim.packed_bytes = 1000, 300

    device.claims = claim
    spans = []

    def compute(work: Any) -> int:
        for s in range(work.count):
            for i in range(lib().linnet_step_input_count(work.steps[s])):
                spans.append(work.inputs[s][i])
            spans.append(work.outputs[s][0])
        spans.extend([work.scratch, work.packed])
        assert work.scratch.bytes == 1000 and work.packed.bytes == 300
        places = [(x.buffer, x.offset, x.bytes) for x in spans]
        for buffer, offset, size in places:
            assert offset % fields.get("alignment", 64) == 0
            assert offset + size + (fields.get("padding", 0) if size not in (1000, 300) else 0) <= len(
                device.buffers[buffer]
            )
        spans.clear()
        return device.compute(work)

    device.on_run = compute
    graph = layers(variables=True)
    with Chain(graph.to_bytes()) as chain:
        chain.make_plan(devices=device.pointers, device_count=1).make_session().set({"x": X}).run()
        np.testing.assert_allclose(chain.output(), run(linnet.Session(graph)), rtol=1e-5, atol=1e-6)
        info, total = info_of_device(chain.plan), sum(map(len, device.buffers.values()))
        assert info.total == total == chain.info().devices
        assert info.total == info.activations + info.scratch + info.packed + info.constants + info.variables
        assert info.steps == info.nodes == device.count("prepare") or info.steps == 6
        assert info.variables >= 3 * 64 * 64 * 4 and info.scratch >= 1000 and info.packed >= 6 * 300
        if fields.get("largest_buffer"):
            assert max(map(len, device.buffers.values())) <= fields["largest_buffer"] and len(device.buffers) > 3
        chain_total = chain.info().total
        assert chain_total > info.total
    assert device.nothing_left()


def test_a_value_above_the_largest_buffer_stays_on_the_cpu() -> None:
    for largest, padding, placed in ((64 * 64 * 4, 0, True), (64 * 64 * 4 - 1, 0, False), (64 * 64 * 4 + 99, 100, False),
                                     (64 * 64 * 4 + 100, 100, True)):  # fmt: skip
        device = PyDevice(HEAVY, largest_buffer=largest, padding=padding)
        session = linnet.Session(layers(), devices=[device])
        assert ("python" in devices_of(session).values()) == placed


def test_weights_are_no_transfers() -> None:
    """They are uploaded once, when the session is created. The time of a transfer decides about values of the run alone."""
    slow = {"transfer_ns": 100, "transfer_rate": 2000}  # 0.5 ms for the weights, 16 us for x and y
    for variables in (False, True):
        device = PyDevice({"matmul": 1000.0}, **slow)
        session = linnet.Session(layers(1, 512, variables), devices=[device], threads=1)
        session.run({"x": np.ones((8, 512), np.float32)})
        assert [step.device for step in session.steps if step.op == "matmul"] == ["python"]
    graph = Graph()
    x, w = graph.placeholder("x", (8, 512)), graph.placeholder("w", (512, 512))
    graph.signature("infer", {"x": x, "w": w}, {"y": x @ w})
    session = linnet.Session(graph, devices=[PyDevice({"matmul": 1000.0}, **slow)], threads=1)
    session.run({"x": np.ones((8, 512), np.float32), "w": np.ones((512, 512), np.float32)})
    assert [step.device for step in session.steps if step.op == "matmul"] == ["cpu"]


def test_constants_that_a_claim_packs_have_no_memory() -> None:
    device = PyDevice(HEAVY)
    seen: list[bytes] = []

    def claim(steps: Any, count: int, claim: Any) -> None:
        tensor = tensor_of(steps[0], 1)
        assert tensor.constant and tensor.bytes == 64 * 64 * 4
        claim.packs, claim.packed_bytes = 1, tensor.bytes
        seen.append(bytes(ffi.buffer(tensor.data, tensor.bytes)))

    def compute(work: Any) -> int:
        assert work.inputs[0][1].buffer == 0
        w = np.frombuffer(seen[device.count("run") - 1], np.float32).reshape(64, 64)
        device.array(work.steps[0], 0, work.outputs[0][0], True)[:] = (
            device.array(work.steps[0], 0, work.inputs[0][0]) @ w
        )
        return 0

    device.claims, device.on_run = claim, compute
    with Chain(layers().to_bytes()) as chain:
        chain.make_plan(devices=device.pointers, device_count=1).make_session().set({"x": X}).run()
        np.testing.assert_allclose(chain.output(), run(linnet.Session(layers())), rtol=1e-5, atol=1e-6)
        assert info_of_device(chain.plan).constants == 0 and info_of_device(chain.plan).packed == 3 * 64 * 64 * 4


def test_values_inside_a_fused_claim_have_no_memory() -> None:
    device = PyDevice({"matmul": 1.0, "map": 1.0})

    def claim(steps: Any, count: int, claim: Any) -> None:
        claim.count, claim.fused, claim.kernel = min(count, 4), 1, NAME

    inside: dict[int, np.ndarray] = {}

    def compute(work: Any) -> int:
        value = None
        for s in range(work.count):  # a fused kernel may write its results at any time
            if work.outputs[s][0].buffer:
                device.array(work.steps[s], 0, work.outputs[s][0], True)[:] = np.nan
        for s in range(work.count):
            step, spans = work.steps[s], work.inputs[s]
            inputs = [
                device.array(step, i, spans[i]) if spans[i].buffer else value
                for i in range(lib().linnet_step_input_count(step))
            ]
            value = inputs[0] @ inputs[1] if op_of(step) == "matmul" else inputs[0] + 1
            inside[s] = value
            if work.outputs[s][0].buffer:
                device.array(step, 0, work.outputs[s][0], True)[:] = value
        return 0

    device.claims, device.on_run = claim, compute
    session = linnet.Session(layers(), devices=[device])
    agree(layers(), session)
    steps = [step for step in session.steps if step.device == "python" and step.op != "transfer"]
    assert [(step.kernel, len(step.fused.split("+"))) for step in steps] == [("fused", 3), ("fused", 1)]
    assert device.count("run") == 2


NAME = ffi.new("char[]", b"fused")


def test_a_map_overwrites_its_operand_if_the_device_allows_it() -> None:
    """Only an operand that no later step reads."""
    graph = Graph()
    x = graph.placeholder("x", (64, 64))
    y = x @ graph.constant(weights(64, 64), "w") + 1.0
    z = y @ graph.constant(weights(64, 64, seed=2), "v") + y  # y + (y @ v) overwrites y @ v, or y: both end here
    graph.signature("infer", {"x": x}, {"z": z})
    feeds = {"x": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)}
    value = 64 * 64 * 4
    for fields, most in (({}, 3), ({"in_place": 1}, 2), ({"in_place": 1, "padding": 64}, 2)):
        device = PyDevice({"matmul": 1.0, "map": 1.0}, **fields)
        with Chain(graph.to_bytes()) as chain:
            chain.make_plan(devices=device.pointers, device_count=1).make_session().set(feeds).run()
            np.testing.assert_allclose(chain.output(), linnet.Session(graph).run(feeds)["z"], rtol=1e-4, atol=1e-5)
            assert info_of_device(chain.plan).activations == most * (value + fields.get("padding", 0)), fields


# ---- variables -------------------------------------------------------------------------------------------------------


def test_a_variable_is_uploaded_again_only_when_it_changes() -> None:
    device = PyDevice(HEAVY)
    session = linnet.Session(layers(variables=True), devices=[device])
    run(session)
    assert device.count("upload") == 3 + 3
    run(session)
    assert device.count("upload") == 3 + 3 + 3  # the values between the layers, and no variable
    session.variables["w1"] = 2 * session.variables["w1"]
    changed = run(session)
    assert device.count("upload") == 3 * 4 + 1
    fresh = linnet.Session(layers(variables=True))
    fresh.variables["w1"] = session.variables["w1"]
    np.testing.assert_allclose(changed, run(fresh), rtol=1e-5, atol=1e-6)


def training() -> Graph:
    graph = Graph()
    x = graph.placeholder("x", (8, 64))
    w = graph.variable("w", weights(64, 64))
    y = x @ w
    loss = (y * y).mean()
    (g,) = linnet.gradients(loss, [w])
    graph.signature("infer", {"x": x}, {"y": loss}, updates={w: w - 0.5 * g})
    return graph


def test_a_variable_is_trained_in_place() -> None:
    """The device computes the new value and keeps it; the store has it too, and nothing is uploaded again."""
    device = PyDevice({"matmul": 0.0, "map": 0.0})
    session, alone = linnet.Session(training(), devices=[device]), linnet.Session(training())
    losses = []
    for _ in range(4):
        before = device.count("upload")
        losses.append(float(run(session)))
        uploads = device.count("upload") - before
        np.testing.assert_allclose(losses[-1], run(alone), rtol=1e-5)
        np.testing.assert_allclose(session.variables["w"], alone.variables["w"], rtol=1e-5, atol=1e-7)
        if len(losses) == 1:
            first = uploads
    assert uploads == first - 1 and device.count("copy") == 4 and losses == sorted(losses, reverse=True)
    assert session.memory["devices"] > 3 * 64 * 64 * 4
    device.fail["run"] = 5
    kept = session.variables["w"].copy()
    with pytest.raises(linnet.Error):
        run(session)
    np.testing.assert_array_equal(session.variables["w"], kept)
    device.fail.clear()
    np.testing.assert_allclose(run(session), run(alone), rtol=1e-5)  # from the kept value, which is uploaded again


def test_a_variable_is_trained_in_place_by_a_later_segment() -> None:
    graph = Graph()
    x, w = graph.placeholder("x", (8, 64)), graph.variable("w", weights(64, 64))
    first = x @ w
    rows = ops.gather(x, ops.reshape(ops.nonzero(first.sum(1)), (-1,)), axis=0)
    y = rows @ w
    loss = (y * y).mean()
    (g,) = linnet.gradients(loss, [w])
    graph.signature("infer", {"x": x}, {"y": loss}, updates={w: w - 0.5 * g})
    device = PyDevice({"matmul": 0.0, "map": 0.0})
    session, alone = linnet.Session(graph, devices=[device]), linnet.Session(graph)
    assert session.plan_info["segments"] > 1
    counts = []
    for step in range(5):
        before = device.count("upload")
        np.testing.assert_allclose(run(session), run(alone), rtol=1e-5)
        np.testing.assert_allclose(session.variables["w"], alone.variables["w"], rtol=1e-5, atol=1e-7)
        counts.append(device.count("upload") - before)
        if step == 2:
            session.variables["w"] = alone.variables["w"] = 2 * alone.variables["w"]
    # The first program uploads its copy in each run, the last one only when the variable was written from outside.
    assert counts[1] == counts[2] == counts[4] == counts[3] - 1 == counts[0] - 2, counts
    assert device.count("copy") == 5


# ---- failures --------------------------------------------------------------------------------------------------------

FAILING = [
    "limits", "claim", "allocate", "open", "create_event", "record", "wait", "upload", "download", "copy", "prepare", "run",
    "finish", "elapsed",
]  # fmt: skip


@pytest.mark.parametrize("function", FAILING)
def test_every_failure_is_an_error_and_leaves_nothing(function: str) -> None:
    class Prepared(PyDevice):
        def _prepare(self, queue: int, work: Any, state: Any) -> int:
            return self._new(state)

        def _unprepare(self, state: int) -> None:
            self.objects.remove(state)

    device = Prepared({"matmul": 0.0, "map": 0.0})
    device.fail[function] = 9
    try:
        with Chain(training().to_bytes()) as chain:
            chain.make_plan(devices=device.pointers, device_count=1).make_session(trace=1).set({"x": X})
            chain.run()
            if function == "copy":  # after the commit: the next run uploads the variable instead
                uploads = device.count("upload")
                chain.run()
                assert device.count("upload") > uploads
                raise Failure(501, chain.error)
    except Failure as error:
        assert error.status == 501
        if function != "copy":
            text = str(error)
            assert "device python failed to" in text and "code 9: told to fail" in text, text
    else:
        raise AssertionError(f"{function} failed, and no error came")
    assert device.nothing_left()


@pytest.mark.parametrize("function", ["record", "wait", "upload", "download", "run"])
def test_a_session_runs_again_after_a_failure(function: str) -> None:
    device = PyDevice(HEAVY)
    graph = layers(variables=True)
    with Chain(graph.to_bytes()) as chain:
        chain.make_plan(devices=device.pointers, device_count=1).make_session().set({"x": X})
        for _ in range(2):  # in the first run the device has no variable yet
            device.fail[function] = 3
            with pytest.raises(Failure) as caught:
                chain.run()
            assert caught.value.status == 501
            device.fail.clear()
            np.testing.assert_allclose(chain.run().output(), run(linnet.Session(graph)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nth", range(6))
def test_any_failed_upload_is_made_again(nth: int) -> None:
    """Of three variables and three values between layers: the device does not count as having what did not arrive."""

    class Fails(PyDevice):
        left = nth

        def _upload(self, *arguments: Any) -> int:
            self.left -= 1
            return 3 if self.left == -1 else super()._upload(*arguments)

    session = linnet.Session(layers(variables=True), devices=[Fails(HEAVY)])
    with pytest.raises(linnet.Error, match="upload"):
        run(session)
    np.testing.assert_allclose(run(session), run(linnet.Session(layers(variables=True))), rtol=1e-5, atol=1e-6)


def test_a_device_of_an_older_header_lacks_the_last_fields() -> None:
    device = PyDevice(HEAVY)
    device.struct.struct_size = ffi.offsetof("linnet_device", "elapsed")
    agree(layers(), linnet.Session(layers(), devices=[device], trace=True))
    assert device.count("elapsed") == 0
    for struct_size, version in ((ffi.offsetof("linnet_device", "run"), 2), (ffi.sizeof("linnet_device"), 1)):
        device.struct.struct_size, device.struct.version = struct_size, version
        with pytest.raises(linnet.UsageError, match="version 3"):
            linnet.Session(layers(), devices=[device]).run({"x": X})


def test_traces_have_the_time_on_the_device() -> None:
    device = PyDevice(HEAVY)
    session = linnet.Session(layers(), devices=[device], trace=True)
    for _ in range(2):
        run(session)
    assert [step.device_ms for step in session.steps if step.op == "matmul"] == [pytest.approx(0.001234)] * 3
    assert {step.device_ms for step in session.steps if step.op != "matmul"} == {0.0}


def test_only_a_trace_asks_for_the_time_on_the_device() -> None:
    device = PyDevice(HEAVY)
    with Chain(layers().to_bytes()) as chain:
        chain.make_plan(devices=device.pointers, device_count=1).make_session(count_special=1).set({"x": X}).run()
    assert device.count("run") > 0 and device.count("elapsed") == 0


def test_inputs_and_outputs_are_shared_with_a_device_that_shares_memory(tmp_path: Path) -> None:
    class Shared(PyDevice):
        imported: Any = None

        def _import(self, host: Any, size: int, buffer: Any) -> int:
            self._new(buffer)
            self.buffers[buffer[0]] = ffi.buffer(host, size)
            return 0

    device = Shared({"matmul": 0.0, "map": 0.0}, shared=1)
    session = linnet.Session(layers(), devices=[device])
    agree(layers(), session)
    assert device.count("upload") == 3 and device.count("download") == 0  # the constants alone
    del session


# ---- private layouts, claims and queues of several devices ---------------------------------------------------------


class Private(PyDevice):
    """Keeps each value between its own steps reversed and with a header of 16 bytes. The token is 7."""

    def _propose(self, step: Any, output: int) -> int:
        return 7

    def _accept(self, step: Any, i: int, layout: int) -> int:
        assert layout == 7
        return 1

    def _layout_bytes(self, tensor: Any, layout: int) -> int:
        return int(tensor.bytes) + 16

    def _download(self, queue: int, tensor: Any, to: Any, source: Any) -> int:
        self.tokens.append(tensor.layout)
        data = bytes(self.at(source))
        if tensor.layout:
            data = np.frombuffer(data[16:], np.float32)[::-1].tobytes()
        ffi.memmove(to, data, len(data))
        return 0

    def compute(self, work: Any) -> int:
        for s in range(work.count):
            step = work.steps[s]
            inputs = []
            for i in range(lib().linnet_step_input_count(step)):
                tensor, span = tensor_of(step, i), work.inputs[s][i]
                assert span.bytes == tensor.bytes
                data = np.frombuffer(self.at(span), np.float32)
                shape = list(tensor.shape[0 : tensor.rank])
                inputs.append((data[4:][::-1] if tensor.layout else data).reshape(shape))
            value = inputs[0] @ inputs[1] if op_of(step) == "matmul" else inputs[0] + 1
            out = tensor_of(step, 0, True)
            assert work.outputs[s][0].bytes == out.bytes == value.nbytes + (16 if out.layout else 0)
            packed = np.concatenate([np.zeros(4, np.float32), value.ravel()[::-1]]) if out.layout else value.ravel()
            self.at(work.outputs[s][0])[:] = packed.tobytes()
            self.tokens.append(out.layout)
        return 0


def test_private_layouts_stay_between_the_steps_of_a_device() -> None:
    device = Private({"matmul": 0.0, "map": 0.0})
    device.tokens = []
    session = linnet.Session(layers(), devices=[device])
    agree(layers(), session)
    assert device.tokens == [7] * 7  # six steps, and the download, which converts
    device = Private(HEAVY)  # the CPU's steps between them see dense values
    device.tokens = []
    agree(layers(), linnet.Session(layers(), devices=[device]))


class Reaching(PyDevice):
    """Reads the buffers of every other device."""

    known: ClassVar[dict[str, PyDevice]] = {}

    def _reaches(self, other: Any) -> int:
        return 1

    def _follow(self, queue: int, of: Any, event: int) -> int:
        assert event in self.known[ffi.string(of.name).decode()].objects
        return 0

    def _copy(self, queue: int, to: Any, of: Any, source: Any) -> int:
        self.at(to)[:] = bytes(self.known[ffi.string(of.name).decode()].at(source))
        return 0


def test_values_go_from_device_to_device_without_the_host() -> None:
    first, second = Reaching(HEAVY, "first"), Reaching({"map": 0.0}, "second")
    first.known.update(first=first, second=second)
    with Chain(layers().to_bytes()) as chain:
        pointers = ffi.new("const linnet_device *[2]", [first.pointer, second.pointer])
        chain.make_plan(devices=pointers, device_count=2).make_session().set({"x": X})
        for _ in range(2):
            chain.run()
            np.testing.assert_allclose(chain.output(), run(linnet.Session(layers())), rtol=1e-5, atol=1e-6)
        assert first.count("copy") == 2 * 2 and second.count("copy") == 3 * 2
        assert first.count("download") == 0 and second.count("download") == 2
        assert first.count("follow") == second.count("follow") == 2 * 5
    assert first.nothing_left() and second.nothing_left()


def test_the_host_waits_only_for_what_it_needs() -> None:
    """The CPU runs its own branch between the submission of a result and the wait for it."""
    graph = Graph()
    x = graph.placeholder("x", (8, 64))
    far = x @ graph.constant(weights(64, 64, seed=1))
    near = ops.softmax(ops.exp(x))
    graph.signature("infer", {"x": x}, {"y": far + near})
    device = PyDevice(HEAVY)
    session = linnet.Session(graph, devices=[device])
    agree(graph, session)
    order = [step.kernel if step.op == "transfer" else step.op for step in session.steps]
    assert order.index("download") < order.index("wait")
    assert order.count("wait") == 1 and order[-2:] == ["wait", "map"] and "softmax" in order[: order.index("wait")]
    assert device.count("wait") == 1


def test_every_failing_allocation_of_a_plan_with_a_device_is_reported() -> None:
    def make() -> PyDevice:
        device = Private({"matmul": 0.0, "map": 0.0})
        device.tokens = []
        return device

    fail_each_allocation(training().to_bytes(), make)


def test_segments_whose_shapes_depend_on_data_use_devices_too() -> None:
    graph = Graph()
    x = graph.placeholder("x", (8, 64))
    found = ops.nonzero(x.sum(1))
    rows = ops.gather(x, ops.reshape(found, (-1,)), axis=0)
    graph.signature("infer", {"x": x}, {"y": rows @ graph.constant(weights(64, 64))})
    device = PyDevice(HEAVY)
    session, alone = linnet.Session(graph, devices=[device]), linnet.Session(graph)
    for rows_left in (3, 8, 3):
        values = np.where(np.arange(8)[:, None] < rows_left, np.abs(X), 0).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": values})["y"], alone.run({"x": values})["y"], rtol=1e-5, atol=1e-6)
    assert device.count("run") == 3


def test_an_unknown_short_name_lists_linnets_devices() -> None:
    with pytest.raises(
        linnet.FileError, match="linnet's own devices are opencl and cuda; for another library, give its path"
    ):
        linnet.load_device("gpu")
