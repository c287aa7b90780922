"""SessionOptions: where and how sessions compute. Session, trainers and commands take these options as one value and pass it
on. A new option is a field of SessionOptions and SessionFields here, a line of `c_plan.plan`, which gives it to the C library,
and an option of the command line in `linnet.cli.session_options`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from linnet.clib.arguments import at_least
from linnet.clib.errors import UsageError
from linnet.clib.precision import precision_number
from linnet.session.model import isa_names, wrong_type

if TYPE_CHECKING:
    from typing_extensions import Self

    from linnet.session.cluster import Cluster
    from linnet.session.device import Device

ON_LOSS = ("fail", "replan", "retry")


class SessionFields(TypedDict, total=False):
    """The fields of SessionOptions, as keyword arguments of Session."""

    threads: int | None
    isa_max: str | None
    precision: str
    device: str | Device | None
    devices: Sequence[str | Device]
    placement: Mapping[str, str] | str | Path | None
    cluster: Mapping[str, Sequence[str | Device]] | str | Path | Cluster | None
    max_bytes: int
    max_device_bytes: int
    tuning: str | Path | bytes | None
    bind_threads: bool
    on_loss: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Where and how sessions compute. Session takes each field as an argument of its own; trainers such as linnet.fit take
    all of them as options=.

    threads: None for the number of cores in the largest CPU cluster.
    isa_max: one of isa_names().
    precision: the precision in which kernels and devices may compute sums of floats: "f32", "f16", "bf16" or "tf32".
        This is a permission, not a demand. "direct": f32 without Winograd's method (docs/numerics.md).
    device: a device, or its name as for load_device ("opencl:1,f16=on"). It runs the nodes that it can run, unless its
        costs say that the CPU is faster. Everything else runs on the CPU.
    devices: several of them, in order of preference; pass `device` or `devices`, not both.
    placement: node name -> device name, or "cpu"; "*" in a name stands for any characters. Overrides the costs; if
        several names match a node, the first one applies. A path: a JSON file with this mapping.
    cluster: the machines of the tasks that the graph's device scopes name (Graph.device): {job: [address of each task]}, as
        in {"worker": ["pi1:7700", "pi2:7700,key=pi.key"]}, or the path of a cluster.toml (docs/machines.md). The
        address "cpu" is this machine. Every node must then run where its scope places it (GraphError), unless
        `placement` names it. Without a cluster, scopes that name a job or a task are ignored, and others are hints.
    max_bytes: limit for everything that one session holds (memory_kept). Plans of earlier shapes are dropped to make
        room, and a plan that alone needs more is rejected (GraphError). Before that, a training step recomputes values
        instead of storing them (same bits, more time) if this is enough. Space is reserved for loops whose number of
        iterations is known only in the run (docs/autodiff.md). max_device_bytes: a limit for each device's memory.
    tuning: a file that `linnet tune` wrote, or its bytes. Its choices of kernels override those of the cost model.
    bind_threads: each worker thread stays on one core of the largest cluster if the system allows it. The caller's
        thread is not bound.
    on_loss: what `run` does if a host (a device remote:...) is lost during the run. "fail": raises DeviceError. "replan":
        plans again without the host, with a warning that says what moved, and runs again. "retry": waits for the host to
        come back, at most for its lease, connects again and runs again. With "replan" and "retry" each run downloads
        the variables that it has updated, so none is lost (docs/machines.md).
    """

    threads: int | None = None
    isa_max: str | None = None
    precision: str = "f32"
    device: str | Device | None = None
    devices: Sequence[str | Device] = ()
    placement: Mapping[str, str] | str | Path | None = None
    cluster: Mapping[str, Sequence[str | Device]] | str | Path | Cluster | None = None
    max_bytes: int = 0
    max_device_bytes: int = 0
    tuning: str | Path | bytes | None = None
    bind_threads: bool = False
    on_loss: str = "fail"

    def __post_init__(self) -> None:
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 0):
            raise wrong_type("threads", "a number of threads, or None for the machine's default", self.threads)
        if self.isa_max is not None and not isinstance(self.isa_max, str):
            raise wrong_type("isa_max", "one of " + ", ".join(isa_names()), self.isa_max)
        precision_number(self.precision)
        if isinstance(self.devices, str):
            raise UsageError(
                "'devices' is one name", code=101, expected="a list of devices", got=repr(self.devices),
                hint="give device= for one device, or devices=[...]",
            )  # fmt: skip
        if isinstance(self.placement, (str, Path)):
            object.__setattr__(self, "placement", read_placement(Path(self.placement)))
        if self.on_loss not in ON_LOSS:
            raise wrong_type("on_loss", "one of " + ", ".join(ON_LOSS), self.on_loss)
        at_least("max_bytes", self.max_bytes, 0)
        at_least("max_device_bytes", self.max_device_bytes, 0)

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
        return dataclasses.replace(options, **named).opened()

    def opened(self) -> Self:
        """The same options with loaded devices, all of them in `devices`, the cluster's too. Raises the errors of
        load_device."""
        devices = devices_of(self.device, self.devices)
        if self.cluster is None:
            return dataclasses.replace(self, device=None, devices=devices)
        from linnet.session.cluster import open_cluster

        cluster, names = open_cluster(self.cluster), {device.name for device in devices}
        devices += tuple(device for device in cluster.devices if device.name not in names)
        return dataclasses.replace(self, device=None, devices=devices, cluster=cluster)

    @property
    def fields(self) -> SessionFields:
        """Keyword arguments for Session."""
        return cast(SessionFields, {field.name: getattr(self, field.name) for field in dataclasses.fields(self)})

    @property
    def places(self) -> Mapping[str, str]:
        """The mapping of `placement`."""
        return cast("Mapping[str, str]", self.placement or {})

    @property
    def device_names(self) -> list[str]:
        """The names by which plans call the devices, for a manifest."""
        return [device.name for device in devices_of(self.device, self.devices)]

    def or_device(self, name: str) -> SessionOptions:
        """These options. If they name no device, with the device of this name ("": none)."""
        given = self.devices or self.device is not None or self.cluster is not None
        return self if given or not name else SessionOptions.of(self, device=name)

    def on_cpu(self) -> SessionOptions:
        """The same options without devices."""
        return dataclasses.replace(self, device=None, devices=(), placement=None, cluster=None, max_device_bytes=0)


def read_placement(path: Path) -> dict[str, str]:
    """The places of a JSON file: a device for each name of a node. Raises UsageError."""
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(
            "a placement cannot be read", code=101, tensor=str(path), expected="a JSON file", got=error.strerror or "",
        ) from None  # fmt: skip
    except ValueError as error:
        raise UsageError(
            "a placement is not valid JSON", code=101, tensor=str(path), expected='as in {"conv*": "opencl", "*": "cpu"}',
            got=str(error),
        ) from None  # fmt: skip
    if not isinstance(found, dict) or not all(isinstance(device, str) for device in found.values()):
        raise UsageError(
            "a placement must be an object with a device for each name", code=101, tensor=str(path),
            expected='as in {"conv*": "opencl", "*": "cpu"}', got=repr(found)[:80],
        )  # fmt: skip
    return found


def devices_of(device: str | Device | None, devices: Sequence[str | Device]) -> tuple[Device, ...]:
    """The devices of a Session's arguments (see linnet.session.device.chosen)."""
    if device is None and devices == ():
        return ()
    from linnet.session.device import chosen

    return chosen(device, devices)
