"""What each node of a plan costs on each machine. A device that refuses every node sees them all while a plan is made, with
their sizes, and asks the other devices what they would take."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from linnet.clib.ffi import ffi
from linnet.clib.library import library, new_struct
from linnet.session.cluster import HERE
from linnet.session.device import Device
from linnet.session.model import string_of
from linnet.session.options import SessionOptions
from linnet.session.planner import Planner


def title(machine: str) -> str:
    """The name of a machine in tables and sentences."""
    return "this machine" if machine == HERE else machine


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine that can run nodes: this one, or a device. latency_ns and rate (bytes a microsecond; 0: no limit) are
    those of the way between this machine and the device. most_bytes: the memory that it lends; 0: not known."""

    name: str
    latency_ns: float = 0.0
    rate: float = 0.0
    most_bytes: int = 0


@dataclasses.dataclass
class Node:
    """A node of a plan. reads, writes: numbers of values. weights: the bytes of each constant and variable that it reads,
    by a number that stands for it. ns: nanoseconds on each machine; infinity: the machine cannot run it."""

    name: str
    op: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    weights: Mapping[int, int]
    ns: list[float]


@dataclasses.dataclass
class Costs:
    """The nodes of a plan in an order in which they can run, and the bytes of each value. machines[0] is this one."""

    machines: list[Machine]
    nodes: list[Node]
    sizes: dict[int, int]

    @property
    def makers(self) -> dict[int, int]:
        """The position of the node that computes each value; inputs of the model are missing."""
        return {value: i for i, node in enumerate(self.nodes) for value in node.writes}

    @property
    def results(self) -> list[int]:
        """Values that no node reads."""
        read = {value for node in self.nodes for value in node.reads}
        return [value for node in self.nodes for value in node.writes if value not in read]

    def weights(self, chosen: Sequence[int], machine: int) -> int:
        """Bytes of the constants and variables of the nodes that are placed on a machine, each counted once."""
        mine: dict[int, int] = {}
        for node, at in zip(self.nodes, chosen, strict=True):
            if at == machine:
                mine.update(node.weights)
        return sum(mine.values())

    def scaled(self, machine: int, positions: Iterable[int], ns: float) -> None:
        """Makes nodes of a machine take `ns` nanoseconds together, in the proportions that they have."""
        nodes = [self.nodes[i] for i in positions if math.isfinite(self.nodes[i].ns[machine])]
        before = sum(node.ns[machine] for node in nodes)
        for node in nodes:
            node.ns[machine] = node.ns[machine] * ns / before if before > 0 else ns / len(nodes)


class _Observer(Device):
    """Refuses every node. For each it notes the operands, and what the CPU and the given devices would take."""

    def __init__(self, devices: Sequence[Device], steps: Set[str]) -> None:
        """steps: names of the nodes that a plan of this machine runs. Others are views, which take no time anywhere."""
        self.name, self.devices, self.nodes, self.steps = "observer", devices, dict[str, Node](), steps
        self.sizes: dict[int, int] = {}
        self.failed: BaseException | None = None
        self._tensor = new_struct("linnet_device_tensor")
        self._name = ffi.new("char[]", b"observer")
        self._keep: list[Any] = []
        self.pointer = ffi.new("linnet_device *")
        self.pointer.struct_size, self.pointer.version, self.pointer.name = ffi.sizeof("linnet_device"), 3, self._name
        needed = ("limits", "cost", "allocate", "release", "open", "close", "finish", "create_event", "free_event",
                  "record", "wait", "upload", "download", "run")  # fmt: skip
        for field, kind in ffi.typeof("linnet_device").fields:
            if field in needed:
                own = {"limits": self._limits, "cost": self._cost}.get(field, lambda *_: 1)
                self._keep.append(
                    ffi.callback(kind.type, own, error=-1.0 if field == "cost" else None, onerror=self._note)
                )
                setattr(self.pointer, field, self._keep[-1])

    def _note(self, _: object, fault: BaseException, __: object) -> None:
        self.failed = self.failed or fault

    def _limits(self, _: object, limits: Any) -> int:
        limits.bodies = True  # it sees loops and branches, and not only what is in them
        return 0

    def _operand(self, step: Any, i: int, output: bool) -> Any:
        lib = library()
        (lib.linnet_step_get_output if output else lib.linnet_step_get_input)(step, i, self._tensor)
        return self._tensor

    def _inside(self, step: Any, known: Set[int]) -> dict[int, int]:
        """The bytes of the constants in the bodies of a loop or a branch, by numbers that no value has. known: addresses of
        the constants around them, which the bodies read as parameters."""
        lib, found = library(), dict[int, int]()
        bodies = [body for k in range(2) if (body := lib.linnet_step_body(step, k)) != ffi.NULL]
        if bodies:
            count = lib.linnet_step_input_count(step)
            operands = [int(ffi.cast("intptr_t", self._operand(step, i, False).data)) for i in range(count)]
            known = known | set(operands)
        for body in bodies:
            for inner in itertools.takewhile(
                lambda inner: inner != ffi.NULL, (lib.linnet_body_step(body, i) for i in itertools.count())
            ):
                for i in range(lib.linnet_step_input_count(inner)):
                    t = self._operand(inner, i, False)
                    address = int(ffi.cast("intptr_t", t.data))
                    if address and address not in known:
                        found[-address] = int(t.bytes)
                found |= self._inside(inner, known)
        return found

    def _cost(self, _: object, step: Any) -> float:
        lib, reads, writes, weights = library(), list[int](), list[int](), dict[int, int]()
        name = string_of(lib.linnet_step_name(step))
        if name in self.nodes:  # in the body of a loop, which is asked about after the nodes around it
            return -1.0
        for i in range(lib.linnet_step_input_count(step)):
            t = self._operand(step, i, False)
            if t.dtype < 0 or (t.rank == 0 and t.bytes == 0):
                continue
            if t.constant or t.variable != ffi.NULL:
                weights[int(t.value)] = int(t.bytes)
            else:
                reads.append(int(t.value))
            self.sizes.setdefault(int(t.value), int(t.bytes))
        weights |= self._inside(step, set())
        for i in range(lib.linnet_step_output_count(step)):
            t = self._operand(step, i, True)
            if t.bytes:
                writes.append(int(t.value))
                self.sizes.setdefault(int(t.value), int(t.bytes))
        counts = new_struct("linnet_step_counts")
        lib.linnet_step_get_counts(step, counts)
        ns = [0.0] * (1 + len(self.devices))
        if name in self.steps:
            ns = [float(counts.cpu_ns), *(_on_device(device, step) for device in self.devices)]
        self.nodes[name] = Node(name, string_of(lib.linnet_step_op(step)), tuple(reads), tuple(writes), weights, ns)
        return -1.0


def _on_device(device: Device, step: Any) -> float:
    """What a device says that a node takes there; infinity if it cannot run it."""
    table = device.pointer
    alone = table.cost(table.context, step)
    if not alone >= 0:
        return math.inf
    end = ffi.offsetof("linnet_device", "offer") + ffi.sizeof("void *")
    if table.struct_size < end or table.offer == ffi.NULL:
        return float(alone)
    offer = new_struct("linnet_offer")
    offer.count, offer.cost_ns = 1, alone
    steps = ffi.new("const linnet_step *[1]", [step])
    if table.offer(table.context, steps, 1, offer) or offer.count != 1:
        return math.inf
    return float(offer.cost_ns)


def machine_of(device: Device) -> Machine:
    """The way to a device, and what it lends, as the device says it."""
    limits, about = new_struct("linnet_device_limits"), new_struct("linnet_device_about")
    device.pointer.limits(device.pointer.context, limits)
    end = ffi.offsetof("linnet_device", "about") + ffi.sizeof("void *")
    if device.pointer.struct_size >= end and device.pointer.about != ffi.NULL:
        device.pointer.about(device.pointer.context, about)
    return Machine(device.name, float(limits.transfer_ns), float(limits.transfer_rate), int(about.memory))


def observe(source: Any, signature: str, shapes: Mapping[str, Sequence[int]], options: SessionOptions) -> Costs:
    """The costs of a model's nodes on this machine and on each of options.devices. shapes: those of inputs whose
    shapes the model leaves open. options: opened. Raises the errors of Session."""
    devices = [device for device in options.devices if isinstance(device, Device)]
    open_ended = dataclasses.replace(options.on_cpu(), max_bytes=0)  # what does not fit here may fit elsewhere
    planner = Planner(source, signature, **open_ended.fields)
    wanted = {name: tuple(shape) for name, shape in shapes.items()}
    planner.plan(wanted)
    if planner.plan_info["segments"] > 1:  # with hosts, branches are planned beforehand
        planner = Planner(source, signature, **dataclasses.replace(open_ended, devices=(_Observer((), set()),)).fields)
        with quiet():
            planner.plan(wanted)
    steps = {name for step in planner.steps for name in (step.name, *step.fused.split("+"))}
    observer = _Observer(devices, steps)
    observed = Planner(source, signature, **dataclasses.replace(open_ended, devices=(observer,)).fields)
    with quiet():
        observed.plan(wanted)
    if observer.failed is not None:
        raise observer.failed
    nodes = observer.nodes
    if any(step.kernel in ("loop", "branch") for step in planner.steps):  # nodes of bodies stay here
        nodes = {name: node for name, node in nodes.items() if name in steps}
    machines = [Machine(HERE, most_bytes=options.max_bytes), *map(machine_of, devices)]
    costs = Costs(machines, list(nodes.values()), observer.sizes)
    calibrate(costs, planner, [0] * len(costs.nodes))
    return costs


def calibrate(costs: Costs, planner: Planner, chosen: Sequence[int]) -> None:
    """Corrects costs by a plan of a placement: the nodes of a step take as long together as the plan says. Steps that
    planning has added count with the node before them."""
    at = {node.name: i for i, node in enumerate(costs.nodes)}
    numbers = {machine.name: m for m, machine in enumerate(costs.machines)}
    groups: list[tuple[int, list[int], float]] = []
    for step in planner.steps:
        if step.op == "transfer":
            continue
        names = (step.name, *(step.fused.split("+") if step.fused else ()))
        machine = numbers.get(step.device, 0)
        positions = [at[name] for name in names if name in at and chosen[at[name]] == machine]
        ns = 1e6 * step.modelled_ms
        if positions:
            groups.append((machine, positions, ns))
        elif groups and groups[-1][0] == machine:
            groups[-1] = (machine, groups[-1][1], groups[-1][2] + ns)
    for machine, positions, ns in groups:
        costs.scaled(machine, positions, ns)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Plans that compare placements do not warn of steps that stay on the CPU."""
    log = logging.getLogger("linnet")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def finite(costs: Costs) -> np.ndarray:
    """ns[node, machine]."""
    return np.array([node.ns for node in costs.nodes], np.float64).reshape(len(costs.nodes), len(costs.machines))
