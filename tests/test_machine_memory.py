"""A run that would take more memory than the machine has is refused before it starts, with both numbers. With overcommit the
allocation would succeed, and the process would be killed later."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import linnet
from linnet.cli.main import cli
from linnet.clib.library import library
from tests.capi import Allocator, Chain, Failure, ffi, text

MNIST = Path(__file__).parent.parent / "examples" / "mnist_small" / "mnist_small.onnx"
EACH = 37_632  # bytes of intermediate tensors per image


def test_what_the_machine_does_not_have_is_refused(tmp_path: Path) -> None:
    available = library().linnet_memory_available()
    session = linnet.Session(linnet.from_onnx(MNIST), threads=1)
    n = available * 5 // 4 // EACH
    try:
        x = np.zeros((n, 1, 28, 28), np.float32)
    except MemoryError:
        pytest.skip("not even address space for the input")
    before = _resident()
    with pytest.raises(linnet.ResourceError, match="more memory than the machine has left") as caught:
        session.run({"input": x})
    assert caught.value.code == 401 and _resident() - before < 64 << 20
    has, needs = (int(re.findall(r"\d+", part)[0]) for part in (caught.value.expected, caught.value.got))
    assert has < needs and needs > n * EACH and abs(has - available) < available // 4
    assert "smaller" in caught.value.hint
    with pytest.raises(
        linnet.ResourceError, match=r"more memory than the machine has (left|available).*narrow the bounds"
    ):
        linnet.Session(linnet.from_onnx(MNIST), bounds={"input": f"1..{n},?,?,?"})
    assert session.run({"input": x[:3000]})  # 110 MB: checked and available
    path = tmp_path / "m.lnt"
    linnet.from_onnx(MNIST).save(path)
    result = CliRunner().invoke(cli, ["plan", str(path), "--input", f"input={n},?,?,?", "--json"])
    assert json.loads(result.output)["bound"]["total"] > needs  # it only asks


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 if Path("/proc/self/statm").exists() else 0


def test_a_hosts_allocator_is_taken_at_its_word() -> None:
    """The machine decides whether this much memory is available: it is asked and may refuse."""
    asked: list[int] = []

    @ffi.callback("void *(void *, size_t, size_t)")
    def alloc(_: Any, size: int, alignment: int) -> Any:
        asked.append(size)
        return ffi.NULL if size > 1 << 28 else allocator.struct.alloc(ffi.NULL, size, alignment)

    allocator = Allocator()
    host = ffi.new("linnet_allocator *", {"context": ffi.NULL, "alloc": alloc, "free": allocator.struct.free})
    data = linnet.from_onnx(MNIST).to_bytes()
    n = library().linnet_memory_available() * 5 // 4 // EACH
    with Chain(data, copy=False) as chain:
        chain.make_plan(shapes={"input": (n, 1, 28, 28)})
        with pytest.raises(Failure, match="more memory than the machine has left"):
            chain.make_session()
        with pytest.raises(Failure) as caught:
            chain.make_session(allocator=host)
        assert caught.value.status == 401 and text(caught.value.record.what) == "cannot allocate a session"
    assert max(asked) > n * EACH and not allocator.live
