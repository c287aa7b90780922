"""The choice of kernels as a user sees it: which kernels could run a step and why the others cannot, and tuning files,
which overrule the costs."""

from __future__ import annotations

import json
import logging
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.session.choices import Choice
from linnet.session.planner import Planner
from linnet.session.tune import tune
from tests.capi import Chain, lib, new_struct
from tests.native import build

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="needs kernels with vectors")

HEADER = "linnet-tuning 1 library 0.1.0 machine any threads 1\n"
FEEDS = {"x": np.random.default_rng(1).normal(size=(1, 8, 9, 9)).astype(np.float32)}


def network() -> linnet.Graph:
    """A copy, a depthwise convolution with a fused map, two convolutions with the same key, a sum, a softmax."""
    graph, rng = linnet.Graph(seed=1), np.random.default_rng(2)
    x = graph.placeholder("x", (1, 8, 9, 9))

    def weight(*shape: int) -> linnet.Tensor:
        return graph.constant(rng.normal(size=shape).astype(np.float32) / 4)

    y = ops.conv(ops.relu(ops.conv(x, weight(8, 1, 3, 3), group=8, pads=[1, 1, 1, 1])), weight(8, 8, 1, 1))
    y = ops.conv(y, weight(8, 8, 1, 1))
    graph.signature("infer", {"x": x}, {"y": ops.softmax(y.sum(axis=[2, 3]), axis=1)})
    return graph


@pytest.fixture(scope="module")
def model() -> linnet.Model:
    return linnet.Model(network())


def choices(model: linnet.Model, **options: object) -> list[Choice]:
    planner = Planner(model, **options)  # type: ignore[arg-type]
    planner.plan({})
    return planner.choices


def written(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "tuned.txt"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return path


def able(choice: Choice) -> list[str]:
    return [c.kernel for c in choice.candidates if not c.why]


def test_the_chosen_kernel_is_the_first_of_the_cheapest(model: linnet.Model) -> None:
    found = choices(model)
    assert len(found) >= 4
    for choice in found:
        (chosen,) = [c for c in choice.candidates if c.chosen]
        could = [c for c in choice.candidates if not c.why]
        assert chosen.kernel == choice.step.kernel and not chosen.tuned
        assert chosen is min(could, key=lambda c: c.cost_ns)
        assert all(c.cost_ns > 0 for c in could) and all(c.cost_ns == 0 for c in choice.candidates if c.why)
        assert any(c.reference for c in choice.candidates)


def test_each_refusal_has_a_reason(model: linnet.Model) -> None:
    isa = linnet.isa_names()[1]
    why = {c.kernel: c.why for c in choices(model, isa_max=isa)[1].candidates}
    newer = [reason for kernel, reason in why.items() if "avx2" in kernel or "dotprod" in kernel]
    assert newer and all(reason.startswith("needs ") for reason in newer)
    if len(linnet.isa_names()) > 2:
        assert any(reason.endswith("which isa_max excludes") for reason in newer)
    assert why["conv_reference"] == "does not apply a fused map"  # the relu
    whole = [c.why for c in choices(model)[1].candidates if "integer_depthwise" in c.kernel and c.why]
    assert any("does not" in reason for reason in whole)
    plain = choices(model, reference=True)[0].candidates
    assert [c.kernel for c in plain if not c.why] == [c.kernel for c in plain if c.chosen] == ["conv_reference"]
    assert all("reference" in c.why or c.why.endswith("this machine does not have") for c in plain if c.why)


def test_steps_that_are_alike_have_one_key_for_any_number_of_threads(model: linnet.Model) -> None:
    keys = [choice.key for choice in choices(model, threads=1)]
    assert keys[2] == keys[3] and len(set(keys)) == len(keys) - 1
    assert keys[1].startswith("conv f32[1,8,9,9]:channels_last f32[8,1,3,3]:constant") and keys[1].endswith(
        "group=8 epilogue"
    )
    assert keys == [choice.key for choice in choices(model, threads=2)]


def test_keys_tell_what_decides_about_time() -> None:
    """Widths of quantization blocks, and the end of a long program of a map."""

    def blocks(size: int) -> linnet.Graph:
        graph, rng = linnet.Graph(), np.random.default_rng(2)
        x = graph.placeholder("x", (4, 64))
        scale = rng.uniform(0.5, 1, (64 // size, 8)).astype(np.float32)
        q = Quantization(scale.reshape(-1), np.zeros(scale.size, np.int32), 0, 4, block=size)
        w = graph.main.constant(
            rng.integers(-8, 8, (64, 8)).astype(np.int8).astype(numpy_dtype("i4")), "w", quantization=q
        )
        graph.signature("infer", {"x": x}, {"y": ops.matmul(x, w)})
        return graph

    def mapped(last: Callable[[linnet.Tensor], linnet.Tensor]) -> linnet.Graph:
        graph = linnet.Graph()
        x = graph.placeholder("x", (4, 64))
        graph.signature("infer", {"x": x}, {"y": last(ops.exp(ops.relu(x * 2.0) + 1.0))})
        return graph

    def key(graph: linnet.Graph) -> str:
        (choice,) = choices(linnet.Model(graph))
        return choice.key

    assert key(blocks(16)) == key(blocks(16)) != key(blocks(32))
    assert ":block16" in key(blocks(16)) and ":block32" in key(blocks(32))
    assert key(mapped(ops.tanh)) == key(mapped(ops.tanh)) != key(mapped(ops.sin))


def test_a_line_changes_the_kernel_of_its_steps_and_nothing_else(model: linnet.Model, tmp_path: Path) -> None:
    before, expected = choices(model), linnet.Session(model).run(FEEDS)["y"]
    for number in (1, 2):
        other = able(before[number])[-1]
        assert other != before[number].step.kernel
        path = written(tmp_path, "# a comment", "", f"{before[number].key} = {other}")
        after = choices(model, tuning=path)
        for old, new in zip(before, after, strict=True):
            if old.key == before[number].key:
                assert new.step.kernel == other
                assert [c.kernel for c in new.candidates if c.tuned] == [other]
            else:
                assert new == old
        session = linnet.Session(model, tuning=path)
        assert [s.kernel for s in session.steps] == [c.step.kernel for c in after]
        np.testing.assert_allclose(session.run(FEEDS)["y"], expected, rtol=1e-5, atol=1e-6)
    # A reference plan takes no kernels from the file.
    assert {c.step.kernel for c in choices(model, tuning=path, reference=True) if c.step.op == "conv"} == {
        "conv_reference"
    }


def test_kernels_that_do_not_exist_or_cannot_run_are_left_out_with_a_warning(
    model: linnet.Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = choices(model)
    path = written(
        tmp_path, f"{before[1].key} = conv_of_another_build", "softmax of nothing = softmax_of_another_build",
        f"{before[2].key} = conv_integer_depthwise__{linnet.isa_names()[1]}", f"{before[4].key} = {before[4].step.kernel}",
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "linnet"):
        after = choices(model, tuning=path)
    assert [c.step.kernel for c in after] == [c.step.kernel for c in before]
    unknown, refused = [record.getMessage() for record in caplog.records]
    assert unknown.startswith("2 of 4 lines") and "conv_of_another_build" in unknown
    assert refused.startswith("2 steps ") and "conv_integer_depthwise" in refused


def test_lines_for_other_models_do_no_harm(
    model: linnet.Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, f"matmul f32[7,7] f32[7,7] > f32[7,7] = {able(choices(model)[2])[0]}")
    assert [c.step.kernel for c in choices(model, tuning=path)] == [c.step.kernel for c in choices(model)]
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["line 1 ", "there was no header", "linnet-tuning 1"]),
        ("# only a comment\n", ["there was no header"]),
        ("conv = conv_reference\n", ["line 1 ", "is not the header", "linnet-tuning 1"]),
        ("linnet-tuning 2 library 9\n", ["another format", "linnet-tuning 2"]),
        ("linnet-tuning 12\n", ["another format"]),
        (HEADER + "\n# c\nconv f32[1]\n", ["line 4 ", "does not name a kernel", "KEY = KERNEL", "conv f32[1]"]),
        (HEADER + " = conv_reference\n", ["line 2 ", "does not name a kernel"]),
        (HEADER + "conv =\n", ["line 2 ", "does not name a kernel"]),
        (HEADER + "a = conv_reference\r\nb = conv_reference\r\na = conv_reference", ["line 4 ", "earlier line"]),
    ],
)
def test_errors_name_the_line(model: linnet.Model, tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "tuned.txt"
    path.write_text(text, newline="")
    with pytest.raises(linnet.FileError) as caught:
        choices(model, tuning=path)
    assert all(word in str(caught.value) for word in words), caught.value
    assert caught.value.hint


def test_files_that_cannot_be_read(model: linnet.Model, tmp_path: Path) -> None:
    with pytest.raises(linnet.FileError, match="does not exist"):
        linnet.Session(model, tuning=tmp_path / "none.txt")
    (tmp_path / "binary").write_bytes(HEADER.encode() + b"\0")
    with pytest.raises(linnet.FileError, match="not a tuning file"):
        linnet.Session(model, tuning=tmp_path / "binary")


def test_the_bodies_of_loops_are_tuned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = linnet.Graph(seed=1)
    x, n = graph.placeholder("x", (4, 16)), graph.placeholder("n", (), "i64")
    w = graph.constant(np.random.default_rng(2).normal(size=(16, 16)).astype(np.float32) / 8)
    state = linnet.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] @ w), (n * 0, x))
    graph.signature("infer", {"x": x, "n": n}, {"y": state[1], "z": x @ w})
    model = linnet.Model(graph)
    (outer,) = [c for c in choices(model) if c.step.op == "matmul"]
    assert "loop" in {c.step.kernel for c in choices(model)}
    path = written(
        tmp_path, f"{outer.key.replace(':constant', '')} = softmax_reference", f"{outer.key} = softmax_reference"
    )
    choices(model, tuning=path)
    assert caplog.records[-1].getMessage().startswith("2 steps ")


def test_candidates_of_freed_constants_are_refused() -> None:
    """A session frees constants that only packing needed, and kernels may look at them."""
    graph = linnet.Graph(seed=1)
    x, w = graph.placeholder("x", (None, 64)), graph.constant(np.ones((64, 64), np.float32))
    scale = ops.cast(ops.shape(x), dtype="f32").sum()
    graph.signature("infer", {"x": x}, {"y": x @ (w * scale)})
    candidate = new_struct("linnet_plan_candidate")
    with Chain(graph.to_bytes()) as chain:
        chain.make_plan(shapes={"x": (4, 64)})
        assert lib().linnet_plan_get_candidate(chain.plan, 0, 0, candidate) == 0
        assert lib().linnet_plan_get_candidate(chain.plan, 0, 99, candidate) == 101
        assert lib().linnet_plan_get_candidate(chain.plan, 1, 0, candidate) == 101
        chain.make_session()
        assert lib().linnet_plan_get_candidate(chain.plan, 0, 0, candidate) == 101


def test_the_command_shows_why(
    model: linnet.Model, tmp_path: Path, linnet_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = tmp_path / "model.lnt"
    path.write_bytes(network().to_bytes())
    text = linnet_command("plan", path, "--why").stdout
    assert "chosen  conv_float_depthwise" in text and "does not apply a fused map" in text and "Memory" not in text
    found = choices(model)
    report = json.loads(linnet_command("plan", path, "--why", "--json").stdout)
    assert [step["key"] for step in report["why"]] == [choice.key for choice in found]
    tuned = written(tmp_path, f"{found[2].key} = {able(found[2])[1]}")
    text = linnet_command("plan", path, "--why", "--tuning", tuned).stdout
    assert f"tuned   {able(found[2])[1]}" in text
    tuned.write_text("nonsense")
    failed = linnet_command("plan", path, "--tuning", tuned)
    assert failed.returncode == 1 and "line 1 of the tuning file" in failed.stderr


def test_what_is_measured_is_planned(tmp_path: Path) -> None:
    """tune -> plan: the file names the fastest kernels, and a plan with it has them."""
    network().save(tmp_path / "model.lnt")
    found = tune(tmp_path / "model.lnt", seconds=0.2, options=linnet.SessionOptions(threads=1))
    before = choices(linnet.Model(tmp_path / "model.lnt"), threads=1)
    several = {c.key: [k.kernel for k in c.candidates if not k.why and (k.chosen or not k.reference)] for c in before}
    assert {m.key: sorted(m.times) for m in found.measured} == {
        key: sorted(kernels) for key, kernels in several.items() if len(kernels) > 1
    }
    for m in found.measured:
        assert min(m.times.values()) > 0 and m.ratio <= 1
        assert m.steps == [c.step.name for c in before if c.key == m.key]
        assert m.best == m.before or m.times[m.best] == min(m.times.values())
    faster = {m.key: m.best for m in found.measured if m.best != m.before}
    lines = [line for line in found.text.splitlines() if not line.startswith("#")]
    assert lines[0].startswith("linnet-tuning 1 library ") and lines[0].endswith(" threads 1")
    assert lines[1:] == [f"{key} = {kernel}" for key, kernel in faster.items()] * found.kept
    assert found.kept == (bool(faster) and found.after_ms < found.before_ms)
    after = choices(linnet.Model(tmp_path / "model.lnt"), threads=1, tuning=found.text.encode())
    expected = [faster.get(c.key, c.step.kernel) if found.kept else c.step.kernel for c in before]
    assert [c.step.kernel for c in after] == expected


def test_a_kernel_that_is_slow_here_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the costs had chosen the slowest kernel of a large product."""
    graph, rng = linnet.Graph(seed=1), np.random.default_rng(2)
    x, w = graph.placeholder("x", (64, 256)), graph.constant(rng.normal(size=(256, 256)).astype(np.float32))
    graph.signature("infer", {"x": x}, {"y": x @ w})
    graph.save(tmp_path / "model.lnt")
    (choice,) = choices(linnet.Model(tmp_path / "model.lnt"), threads=1)
    *_, slow = [c.kernel for c in choice.candidates if not c.why and not c.reference]
    if slow == choice.step.kernel:
        pytest.skip("this machine has one kernel for the product")
    session = linnet.session.session.Session
    text = written(tmp_path, f"{choice.key} = {slow}").read_bytes()

    class Wrong(session):  # type: ignore[misc, valid-type]
        def __init__(self, *args: object, tuning: bytes | None = None, **options: object) -> None:
            given = tuning if tuning and b" = " in tuning else text
            super().__init__(*args, tuning=given, **options)

    class WrongPlanner(Planner):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **(options | {"tuning": text}))  # type: ignore[arg-type]

    monkeypatch.setattr("linnet.session.tune.Session", Wrong)
    monkeypatch.setattr("linnet.session.tune.Planner", WrongPlanner)
    found = tune(tmp_path / "model.lnt", seconds=0.3, options=linnet.SessionOptions(threads=1))
    (measured,) = found.measured
    assert measured.before == slow and measured.best != slow and measured.ratio < 0.97
    assert found.kept and found.after_ms < found.before_ms
    assert f"{choice.key} = {measured.best}\n" in found.text and f"{slow} takes " in found.text


def test_the_command_tunes(tmp_path: Path, linnet_command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    network().save(tmp_path / "model.lnt")
    done = linnet_command("tune", tmp_path / "model.lnt", "--seconds", "0.1", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "calls with several kernels" in done.stdout and f"wrote {tmp_path / 'model.tuning'}" in done.stdout
    assert (tmp_path / "model.tuning").read_text().startswith("linnet-tuning 1 library ")
    done = linnet_command("tune", tmp_path / "model.lnt", "--seconds", "0.1", "-o", tmp_path / "t", "--json")
    report = json.loads(done.stdout)
    assert report["output"] == str(tmp_path / "t") and report["measured"] and report["before_ms"] >= 0
    assert report["changed"] == sum(m["best"] != m["before"] for m in report["measured"])
    np.save(tmp_path / "x.npy", FEEDS["x"])
    for words in (["bench", "--seconds", "0.01"], ["run", "--input", tmp_path / "x.npy"]):
        command, *rest = words
        for name, status in (("t", 0), ("absent", 1)):
            done = linnet_command(command, tmp_path / "model.lnt", *rest, "--tuning", tmp_path / name)
            assert done.returncode == status, done.stderr
    failed = linnet_command("tune", tmp_path / "model.lnt", "--seconds", "nan")
    assert failed.returncode == 2 and "finite" in failed.stderr


def test_the_tool_takes_the_file_and_prints_warnings(tmp_path: Path) -> None:
    network().save(tmp_path / "model.lnt")
    choice = choices(linnet.Model(tmp_path / "model.lnt"))[2]
    other = able(choice)[1]
    path = written(tmp_path, f"{choice.key} = {other}", "x = kernel_of_another_build")
    bench = build("release") / "linnet-bench"
    done = subprocess.run(
        [bench, tmp_path / "model.lnt", "--seconds", "0.01", "--ops", "--tuning", path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert other in done.stdout and choice.step.kernel not in done.stdout
    assert done.stderr.startswith("linnet-bench: warning: 1 of 2 lines") and "kernel_of_another_build" in done.stderr


class _Taken:
    """Stands for a traced session: the kernels of two steps with one key, and the sum of their least times."""

    def __init__(self, kernel: str, ns: float) -> None:
        self.kernel, self.ns = kernel, ns

    def times(self, key: str) -> tuple[list[str], float]:
        return [self.kernel] * 2, self.ns


@pytest.mark.parametrize(
    ("before", "other", "best"),
    [(10_000, 9_000, "other"), (10_000, 9_690, "other"), (10_000, 9_750, "chosen"), (10_000, 12_000, "chosen"),
     (100, 50, "other"), (100, 65, "chosen")],
)  # fmt: skip
def test_a_kernel_must_be_clearly_faster(model: linnet.Model, before: float, other: float, best: str) -> None:
    """By 3 %, and by 20 ns for each of the steps, so that the clock alone decides nothing."""
    from linnet.session import tune as tuning

    same = [choices(model)[2], choices(model)[3]]
    sessions: Any = [_Taken("chosen", before), _Taken("other", other), _Taken("other", other + 500)]
    found = tuning._best("key", ["chosen", "other"], same, sessions)
    assert (found.best, found.before, found.times) == (best, "chosen", {"chosen": before, "other": other})


@pytest.mark.parametrize("after", [0.9, 1.0, 1.1])
def test_lines_are_kept_only_if_the_whole_model_is_faster(
    after: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from linnet.session import tune as tuning

    network().save(tmp_path / "model.lnt")
    (choice, *_) = choices(linnet.Model(tmp_path / "model.lnt"), threads=1)
    other = able(choice)[-1]
    measured = tuning.Measured(
        choice.key, [choice.step.name], {choice.step.kernel: 9e3, other: 1e3}, choice.step.kernel, other
    )
    monkeypatch.setattr(tuning, "measure", lambda *_, **__: ([measured], 1))
    monkeypatch.setattr(tuning, "_compared", lambda *_: (1.0, after))
    found = tune(tmp_path / "model.lnt", seconds=0.1, options=linnet.SessionOptions(threads=1))
    assert found.kept == (after < 1) and (f"{choice.key} = {other}" in found.text) == (after < 1)
