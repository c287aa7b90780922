"""A device written in Python, for tests of the runtime: its functions are callbacks, its buffers are bytearrays, and every
call is recorded. It computes `add`, `mul` and matmul of f32 with NumPy; `run` may be replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from linnet.session.device import Device
from tests.capi import Allocator, Chain, Failure, ffi, lib

VERSION = 3
_OPCODES = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum}


def tensor_of(step: Any, i: int, output: bool = False) -> Any:
    """The linnet_device_tensor of an operand."""
    out = ffi.new("linnet_device_tensor *", {"struct_size": ffi.sizeof("linnet_device_tensor")})
    get = lib().linnet_step_get_output if output else lib().linnet_step_get_input
    assert get(step, i, out) == 0
    return out


def op_of(step: Any) -> str:
    return ffi.string(lib().linnet_step_op(step)).decode()


class PyDevice(Device):
    """cost: op name -> nanoseconds; ops that are missing cannot run. fail: function name -> code that it returns.
    fields: other fields of linnet_device_limits."""

    def __init__(self, cost: dict[str, float] | None = None, name: str = "python", **fields: int) -> None:
        self.costs, self.calls, self.fail = cost, [], dict[str, int]()
        self.buffers: dict[int, Any] = {}
        self.objects: set[int] = set()  # queues, events, states
        self.faults: list[BaseException] = []  # what callbacks raised, which C code cannot see
        self.claims: Callable[[Any, int, Any], None] | None = None
        self.on_run: Callable[[Any], int] = self.compute
        self._next, self._fields = 1, fields
        self._name = ffi.new("char[]", name.encode())
        self._text = ffi.new("char[]", b"told to fail")
        self._alive: list[Any] = []
        self.struct = ffi.new("linnet_device *", {
            "struct_size": ffi.sizeof("linnet_device"), "version": VERSION, "name": self._name,
        })  # fmt: skip
        for field, kind in ffi.typeof("linnet_device").fields:
            method = getattr(self, f"_{field}", None)
            if method is not None and kind.type.kind == "function":
                setattr(self.struct, field, self._callback(field, kind.type, method))
        self.pointer, self.name = self.struct, name  # as linnet.load_device
        self.pointers = ffi.new("const linnet_device *[1]", [self.struct])

    def _callback(self, field: str, kind: Any, method: Callable[..., Any]) -> Any:
        def call(_: object, *arguments: Any) -> Any:
            self.calls.append(field)
            return self.fail[field] if field in self.fail else method(*arguments)

        def raised(_: object, fault: BaseException, __: object) -> None:
            self.faults.append(fault)

        self._alive.append(ffi.callback(kind, call, onerror=raised))
        return self._alive[-1]

    def count(self, field: str) -> int:
        return self.calls.count(field)

    def _new(self, handle: Any) -> int:
        self._next += 1
        handle[0] = self._next
        self.objects.add(self._next)
        return 0

    def _limits(self, limits: Any) -> int:
        for name, value in self._fields.items():
            setattr(limits, name, value)
        return 0

    def _cost(self, step: Any) -> float:
        return 0.0 if self.costs is None else self.costs.get(op_of(step), -1.0)

    def _claim(self, steps: Any, count: int, claim: Any) -> int:
        if self.claims is not None:
            self.claims(steps, count, claim)
        return 0

    def _allocate(self, size: int, buffer: Any) -> int:
        self._new(buffer)
        self.buffers[buffer[0]] = bytearray(b"\x5a" * size)
        return 0

    def _release(self, buffer: int, size: int) -> None:
        assert len(self.buffers.pop(buffer)) == size
        self.objects.remove(buffer)

    def _open(self, queue: Any) -> int:
        return self._new(queue)

    _create_event = _open

    def _close(self, queue: int) -> None:
        self.objects.remove(queue)

    _free_event = _close

    def _finish(self, queue: int) -> int:
        return 0

    def _record(self, queue: int, event: int) -> int:
        return 0

    def _wait(self, event: int) -> int:
        return 0

    def at(self, span: Any) -> memoryview:
        """The bytes of a span."""
        return memoryview(self.buffers[span.buffer])[span.offset : span.offset + span.bytes]

    def _upload(self, queue: int, tensor: Any, to: Any, source: Any) -> int:
        self.at(to)[:] = ffi.buffer(source, tensor.bytes)
        return 0

    def _download(self, queue: int, tensor: Any, to: Any, source: Any) -> int:
        ffi.memmove(to, self.at(source), tensor.bytes)
        return 0

    def _copy(self, queue: int, to: Any, of: Any, source: Any) -> int:
        self.at(to)[:] = bytes(self.at(source))
        return 0

    def _run(self, queue: int, work: Any, state: int) -> int:
        return self.on_run(work)

    def _elapsed(self, work: Any, state: int, ns: Any) -> int:
        ns[0] = 1234
        return 0

    def _explain(self, code: int) -> Any:
        return self._text

    def array(self, step: Any, i: int, span: Any, output: bool = False) -> np.ndarray:
        tensor = tensor_of(step, i, output)
        return np.frombuffer(self.at(span), np.float32).reshape(list(tensor.shape[0 : tensor.rank]))

    def compute(self, work: Any) -> int:
        for s in range(work.count):
            step = work.steps[s]
            inputs = [self.array(step, i, work.inputs[s][i]) for i in range(lib().linnet_step_input_count(step))]
            out = self.array(step, 0, work.outputs[s][0], output=True)
            if op_of(step) == "matmul":
                count = ffi.new("int *")
                turned = [lib().linnet_step_integers(step, name, count)[0] for name in (b"transpose_a", b"transpose_b")]
                a, b = (x.T if turn else x for x, turn in zip(inputs, turned, strict=False))
                out[:] = a @ b + (inputs[2] if len(inputs) > 2 else 0)
            else:
                self.run_map(step, inputs, out)
        return 0

    def run_map(self, step: Any, inputs: list[np.ndarray], out: np.ndarray) -> None:
        """Interprets the program of a map, with the opcodes that the tests' graphs have."""
        program = ffi.new("linnet_map *", {"struct_size": ffi.sizeof("linnet_map")})
        opcode = ffi.new("linnet_map_opcode *", {"struct_size": ffi.sizeof("linnet_map_opcode")})
        assert lib().linnet_step_get_map(step, program) == 0 and program.result == -1
        registers: list[Any] = []
        for i in range(program.instruction_count):
            code, _, a, b, _ = program.program[5 * i : 5 * i + 5]
            assert lib().linnet_map_get_opcode(code, opcode) == 0
            name = ffi.string(opcode.name).decode()
            if name == "load":
                value = inputs[a]
            elif name == "const":
                value = np.float32(program.floats[a])
            elif name == "store":
                out[:] = value = registers[a]
            else:
                value = _OPCODES[name](registers[a], registers[b])
            registers.append(value)

    def nothing_left(self) -> bool:
        """Whether everything is freed, and no callback has raised anything."""
        assert not self.faults, self.faults
        return not self.buffers and not self.objects


def fail_each_allocation(data: bytes, make: Callable[[], PyDevice]) -> PyDevice:
    """Plans and opens the model for a new device while the host's allocator fails at each call in turn, until it fails at
    none. Each failure is reported, and nothing is left. Returns the last device."""
    for fail_at in range(1000):
        device, allocator = make(), Allocator(fail_at)
        try:
            with Chain(data, allocator) as chain:
                chain.make_plan(devices=device.pointers, device_count=1).make_session()
        except Failure as error:
            assert error.status == 401 and allocator.failed, error
        assert device.nothing_left() and not allocator.live and not allocator.faults, fail_at
        if not allocator.failed:
            assert fail_at > 10
            return device
    raise AssertionError("more than 1000 allocations")
