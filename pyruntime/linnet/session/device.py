"""Devices: opens libraries of devices by name, lists what they find on this machine, and takes the device arguments of
Session. The C library finds and loads the libraries (linnet_device.h)."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from linnet.clib.errors import Error, UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library, new_struct

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("other", "gpu", "cpu", "npu")  # in the order of linnet_device_kind


class Device:
    """A device of a library (linnet_device.h), for Session(devices=[...]). The library is never closed, so sessions may
    outlive this object. `name` is the name by which plans call the device."""

    def __init__(self, name: str | Path) -> None:
        out, error = ffi.new("const linnet_device **"), ffi.new("linnet_error *")
        if library().linnet_device_open(os.fsencode(name), out, error):
            raise _failure(name, error)
        self.pointer = out[0]
        self.name = _text(self.pointer.name)
        self._given = os.fspath(name)

    @property
    def lease(self) -> float:
        """For a host: how many seconds it may give no sign of life while a run waits for it."""
        given = [option for option in self._given.split(",")[1:] if option.startswith("lease=")]
        return float(given[-1].partition("=")[2]) if given else 10.0


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """A device that a library finds, or the reason why it does not find one.

    name: what load_device, Session and --device take, such as "opencl:0". device: the name by which plans and
    placements call the device. hardware, driver: names and versions of the processor and of its driver. kind: "gpu",
    "cpu", "npu" or "other". features: such as ("f16", "f64"). memory: total bytes. memory_free: bytes that can be
    allocated now. Both are 0 if they are not known. missing: "" for a device. Otherwise the entry is no device, and
    `missing` is a sentence that says what is missing and what to do.
    """

    name: str
    device: str = ""
    hardware: str = ""
    driver: str = ""
    kind: str = "other"
    features: tuple[str, ...] = ()
    memory: int = 0
    memory_free: int = 0
    missing: str = ""


def load_device(name: str | Path) -> Device:
    """Opens a device by its name: LIBRARY[:INDEX][,OPTION=VALUE]..., for example "opencl", "opencl:1" or
    "opencl:1,f16=on". LIBRARY is a short name, or the path of a library that exports `linnet_extension_devices`.
    Another machine is remote:ADDRESS[,OPTION=VALUE]..., for example "remote:pi1:7700,key=mykey" (docs/machines.md).
    Raises FileError if there is no such library, device or machine. Raises UsageError if the name or an option is
    wrong."""
    _name_nvrtc(name)
    return Device(name)


def devices(name: str | Path = "opencl") -> list[DeviceInfo]:
    """Lists the devices that a library finds on this machine. An entry with `missing` is not a device: it says why
    there is none, or why some are missing. Raises FileError if there is no such library. Raises UsageError if the name
    is wrong."""
    _name_nvrtc(name)
    made, error = new_struct("linnet_device_list"), ffi.new("linnet_error *")
    if library().linnet_device_find(os.fsencode(name), made, error):
        raise _failure(name, error)
    base, sign, options = os.fspath(name).partition(",")
    start, colon, index = base.rpartition(":")
    is_host = base.startswith("remote:")  # its number is a port
    if colon and start and index.isascii() and index.isdigit() and not is_host:
        base = start
    names = [base if is_host else f"{base}:{i}" for i in range(made.count)]
    found = [_info(name + sign + options, made.devices[i]) for i, name in enumerate(names)]
    if made.missing != ffi.NULL:
        found.append(DeviceInfo(base, missing=_text(made.missing)))
    return found


def _name_nvrtc(name: str | Path) -> None:
    """If pip has installed CUDA's compiler, puts its path into the environment for liblinnet_cuda. The loader does not
    look where pip installs it."""
    if "LINNET_NVRTC" in os.environ or not os.fspath(name).startswith("cuda"):
        return
    from pathlib import Path

    for folder in sys.path:
        for path in sorted(Path(folder).glob("nvidia/*/lib/libnvrtc.so.1[1-9]"), reverse=True):
            os.environ["LINNET_NVRTC"] = str(path)
            return


def chosen(device: str | Device | None, given: Sequence[str | Device]) -> tuple[Device, ...]:
    """The devices of the arguments device= and devices=, of which only one may be given. Devices given by name are
    opened."""
    if device is not None and len(given) > 0:
        raise UsageError(
            "both 'device' and 'devices' are given", code=101, expected="one of them",
            hint="give device= for one device, or devices=[...] for several, in order of preference",
        )  # fmt: skip
    wanted = [device] if device is not None else given
    return tuple(load_device(item) if isinstance(item, str | os.PathLike) else item for item in wanted)


def _info(name: str, device: Any) -> DeviceInfo:
    """What a device says about itself. The struct of an older device may end before the field `about`."""
    about = new_struct("linnet_device_about")
    end = ffi.offsetof("linnet_device", "about") + ffi.sizeof("void *")
    if device.struct_size < end or device.about == ffi.NULL or device.about(device.context, about):
        return DeviceInfo(name, _text(device.name))
    return DeviceInfo(
        name,
        _text(device.name),
        _text(about.hardware),
        _text(about.driver),
        KINDS[about.kind] if 0 <= about.kind < len(KINDS) else KINDS[0],
        tuple(_text(about.features).split()),
        int(about.memory),
        int(about.memory_free),
    )


_OWN = ("opencl", "cuda")


def _failure(name: str | Path, record: Any) -> Error:
    error = exception(record)
    if not error.tensor and f"'{os.fspath(name)}'" in error.what:
        error.tensor = os.fspath(name)
    if error.code == 201 and os.fspath(name).isalpha() and os.fspath(name) not in _OWN:
        error.hint = f"linnet's own devices are {' and '.join(_OWN)}; for another library, {error.hint}"
    return error


def _text(pointer: Any) -> str:
    return "" if pointer == ffi.NULL else bytes(ffi.string(pointer)).decode("utf-8", "replace")
