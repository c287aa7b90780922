"""SessionOptions: where and how the sessions of a training run compute. Trainers take them as one value and pass this
value on, so that a new option of Session is added here and in no trainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.clib.errors import UsageError
from linnet.session.making import devices_of
from linnet.session.session import Session

if TYPE_CHECKING:
    from linnet.session.device import Device
    from linnet.session.model import Model, Store


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Options for all sessions of a trainer, such as linnet.fit(options=...). Each field is the argument of Session with
    the same name. max_bytes and max_device_bytes limit each session on its own."""

    threads: int | None = None
    isa_max: str | None = None
    precision: str = "f32"
    device: str | Device | None = None
    devices: Sequence[str | Device] = ()
    placement: Mapping[str, str] | None = None
    max_bytes: int = 0
    max_device_bytes: int = 0
    tuning: str | Path | bytes | None = None
    bind_threads: bool = False

    @staticmethod
    def of(options: SessionOptions | None, **given: Any) -> SessionOptions:
        """The options of a trainer that also takes some of them as arguments of their own (`given`). Devices are opened
        here, before a trainer writes files or connects. Raises UsageError if an option is given in both ways, and the
        errors of load_device."""
        options = options or SessionOptions()
        named = {name: value for name, value in given.items() if value is not None}
        for name in named:
            twice = "devices" if name == "device" and len(options.devices) else name
            if getattr(options, twice) not in (None, ()):
                raise UsageError(
                    f"both {name}= and options.{twice} are given", code=101, tensor=name, expected="one of them",
                    got=f"{name}={named[name]!r} and {twice}={getattr(options, twice)!r}", hint=f"leave out {name}=",
                )  # fmt: skip
        made = dataclasses.replace(options, **named)
        return dataclasses.replace(made, device=None, devices=devices_of(made.device, made.devices))

    @property
    def device_names(self) -> list[str]:
        """The names by which plans call the devices, for a manifest."""
        return [device.name for device in devices_of(self.device, self.devices)]

    def or_device(self, name: str) -> SessionOptions:
        """These options. If they name no device, with the device of this name ("": none)."""
        return self if self.devices or self.device is not None or not name else SessionOptions.of(self, device=name)

    def session(self, model: Model, signature: str, store: Store | None = None) -> Session:
        """A session with these options. Raises the errors of Session."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Session(model, signature, store=store, **fields)

    def on_cpu(self) -> SessionOptions:
        """The same options without devices."""
        return dataclasses.replace(self, device=None, devices=(), placement=None, max_device_bytes=0)
