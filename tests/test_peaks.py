"""The peaks of the machine, and the shares that steps reach: `linnet-bench --peaks`, and the columns of `linnet bench`."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.cli import peaks
from tests.graphs import bytes_of
from tests.native import build

PEAKS: dict[str, Any] = {
    "isa": "avx2", "threads": 2, "f32_gflops": 100.0, "i8_gops": 400.0,
    "cache_gbs": 200.0, "shared_gbs": 50.0, "memory_gbs": 10.0,
}  # fmt: skip


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(build("release", "linnet-bench") / "linnet-bench"), "--peaks", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def step(**facts: Any) -> dict[str, Any]:
    return {"kernel": "conv_f32_igemm_6x16__avx2", "device": "cpu", "flops": 0, "bytes": 0, **facts}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="needs loops with vectors")
def test_the_tool_measures() -> None:
    """Every rate; a wider instruction set is no slower, but for noise; text has the same lines."""
    done = tool("--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["isa"] == linnet.isa_names()[-1] and found["threads"] == 1
    rates = [key for key in found if key not in ("isa", "threads")]
    assert rates == ["f32_gflops", "i8_gops", "cache_gbs", "shared_gbs", "memory_gbs"]
    # A core of today does at most 2 operations x 16 lanes x 2 units x 6 GHz on floats, and four times as many on bytes.
    assert 0.5 < found["f32_gflops"] < 400 and 0.5 < found["i8_gops"] < 3200
    assert all(0.1 < found[key] < 2000 for key in rates[2:])
    text = tool("--threads", "2").stdout
    assert text.startswith(f"{found['isa']}, 2 threads\n") and text.count("GB/s") == 3 and "GFLOP/s" in text


def test_the_scalar_set_has_only_copies() -> None:
    found = json.loads(tool("--json", "--isa-max", "scalar").stdout)
    assert found["isa"] == "scalar" and found["f32_gflops"] is None is found["i8_gops"] and found["cache_gbs"] > 0


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [(["--isa-max", "mmx"], "no instruction set 'mmx'", 1), (["model.lnt"], "--peaks takes no model", 2)],
)
def test_wrong_words(words: list[str], said: str, status: int) -> None:
    done = tool(*words)
    assert done.returncode == status and said in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


@pytest.mark.parametrize(
    ("facts", "ms", "share", "of"),
    [
        ({"flops": 50e6, "bytes": 1000}, 1.0, 0.5, "f32"),
        ({"flops": 50e6, "bytes": 40e6, "kernel": "map"}, 1.0, 4.0, "memory"),  # 40 GB/s of 10
        ({"flops": 1e6, "bytes": 5e6, "kernel": "copy"}, 1.0, 0.1, "shared"),
        ({"flops": 1e6, "bytes": 1e6, "kernel": "copy"}, 0.1, 0.1, "f32"),
        ({"flops": 1e5, "bytes": 1e6, "kernel": "copy"}, 0.1, 0.05, "cache"),
        ({"flops": 100e6, "bytes": 1e6, "kernel": "conv_int8_igemm_dp4_14x32__avx512vnni"}, 1.0, 0.25, "i8"),
    ],
)
def test_the_larger_share_names_the_limit(facts: dict[str, Any], ms: float, share: float, of: str) -> None:
    found = peaks.shares(step(**facts), ms, PEAKS)
    assert found["peak_of"] == of and found["peak_share"] == pytest.approx(share)
    assert found["gflops"] == pytest.approx(facts["flops"] / ms / 1e6)
    assert found["gbs"] == pytest.approx(facts["bytes"] / ms / 1e6)


def test_what_has_no_share() -> None:
    """A step of a device, a wait, steps without peaks, a step that took no time; a rate that is not known counts as unlimited."""
    nothing = {"gflops": pytest.approx(1), "gbs": 0, "peak_share": None, "peak_of": None}
    assert peaks.shares(step(flops=1e6, device="opencl"), 1.0, PEAKS) == nothing
    assert peaks.shares(step(flops=1e6, kernel="wait"), 1.0, PEAKS) == nothing
    assert peaks.shares(step(flops=1e6), 1.0, None) == nothing
    assert peaks.shares(step(flops=1e6), 0.0, PEAKS)["peak_share"] == 0
    unknown = peaks.shares(step(flops=1e9, bytes=1e5), 1.0, {**PEAKS, "f32_gflops": None})
    assert unknown["peak_of"] == "cache" and unknown["peak_share"] == pytest.approx(0.0005)


def test_no_tool_no_peaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peaks.importlib.resources, "files", lambda _: tmp_path)
    assert peaks.measured(1, "sse2") is None


def test_bench_shows_the_shares(tmp_path: Path, linnet_command: Any) -> None:
    (tmp_path / "mlp.lnt").write_bytes(bytes_of("mlp"))
    done = linnet_command("bench", tmp_path / "mlp.lnt", "--seconds", "0.02", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["peaks"]["threads"] == 1 and report["peaks"]["isa"] == report["isa"]
    for op in report["ops"]:
        assert op["peak_of"] in ("f32", "cache", "shared", "memory") and 0 <= op["peak_share"] < 50
    text = linnet_command("bench", tmp_path / "mlp.lnt", "--seconds", "0.02").stdout
    assert "at most " in text and "% of peak" in text and "GB/s (memory)" in text
