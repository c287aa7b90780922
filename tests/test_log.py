"""The log callback (linnet_model_config.log): what the library decides silently reaches the host, and Python's
logging.getLogger("linnet"). The library itself prints nothing (tests/test_header.py)."""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.clib.ffi import ffi
from tests.capi import check, lib, new_struct, text
from tests.graphs import bytes_of
from tests.py_device import PyDevice
from tests.test_devices import layers
from tests.test_updates import _deep


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "linnet"]


def test_a_mapped_file_is_not_checked_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "net.lnt"
    path.write_bytes(bytes_of("conv_net"))
    with caplog.at_level(logging.INFO, "linnet"):
        linnet.Model(path)
        assert messages(caplog) == [("INFO", f"the weights of {path} were not compared with their digests")]
        caplog.clear()
        linnet.Model(path, verify=True)
        linnet.Model(path, verify=False)
        linnet.Model(path.read_bytes())
        assert messages(caplog) == []


def test_messages_below_the_level_of_the_logger_are_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "net.lnt"
    path.write_bytes(bytes_of("conv_net"))
    with caplog.at_level(logging.WARNING, "linnet"):
        linnet.Model(path)
    assert messages(caplog) == []


class Host:
    """A host in C terms: keeps what its callback receives, with the context."""

    def __init__(self) -> None:
        self.received: list[tuple[int, str]] = []
        self.handle = ffi.new_handle(self)

        @ffi.callback("linnet_log")
        def log(context: Any, level: int, message: Any) -> None:
            ffi.from_handle(context).received.append((level, text(message)))

        self.log = log
        self.config = new_struct("linnet_model_config")
        self.config.log, self.config.log_context = log, self.handle

    def open(self, content: bytes, *, copy: bool = False, shift: int = 0) -> Any:
        """Opens a model from memory at an address with this remainder of 16."""
        memory = ffi.new("char[]", len(content) + 32)
        at = memory + (-int(ffi.cast("uintptr_t", memory)) % 16 + shift)
        ffi.memmove(at, content, len(content))
        out, error = ffi.new("linnet_model **"), ffi.new("linnet_error *")
        how = lib().LINNET_COPY if copy else lib().LINNET_BORROW
        check(lib().linnet_model_open_memory(at, len(content), how, self.config, out, error), error)
        self.keep = memory
        return ffi.gc(out[0], lib().linnet_model_free)


def test_borrowed_memory_that_must_be_copied() -> None:
    host, content = Host(), bytes_of("conv_net")
    host.open(content, copy=True)
    host.open(content, copy=True, shift=4)
    assert host.received == []
    host.open(content, shift=4)
    info = lib().LINNET_LOG_INFO
    assert host.received == [
        (info, f"the model's memory is not 16-byte aligned, so its {len(content)} bytes were copied")
    ]


def test_a_newer_format_is_a_warning() -> None:
    host, content = Host(), bytearray(bytes_of("conv_net"))
    struct.pack_into("<I", content, 8, 9)
    host.open(bytes(content), copy=True)
    ((level, message),) = host.received
    assert level == lib().LINNET_LOG_WARNING and "format version 9" in message


def test_recomputed_values_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    usual = linnet.Session(_deep(), threads=1).memory
    budget = usual["total"] - usual["activations"] // 2
    with caplog.at_level(logging.INFO, "linnet"):
        session = linnet.Session(_deep(), threads=1, max_bytes=budget)
    steps, again = session.plan_info["steps"], session.plan_info["recomputed"]
    assert again > 0
    assert messages(caplog) == [
        ("INFO", f"{again} of {steps} steps compute a value again, to need at most {budget} bytes")
    ]


def test_steps_that_fall_back_to_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    """A warning if no step at all runs on a device."""
    why = "run on the CPU, because no device can run them or would be faster"
    with caplog.at_level(logging.INFO, "linnet"):
        session = linnet.Session(layers(), devices=[PyDevice({"matmul": 1.0})])
        assert {step.op: step.device for step in session.steps if step.op != "transfer"} == {
            "matmul": "python",
            "map": "cpu",
        }
        assert messages(caplog) == [("INFO", f"3 of 6 steps {why}: map")]
        caplog.clear()
        linnet.Session(layers(), devices=[PyDevice({})])
        ((level, message),) = messages(caplog)
        assert level == "WARNING" and f"{why}: matmul" in message
        caplog.clear()
        linnet.Session(layers())
        assert messages(caplog) == []
