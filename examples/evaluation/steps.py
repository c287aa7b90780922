"""A training step of a network of networks.py by linnet or by PyTorch, in a process of its own:
`python -m examples.evaluation.steps ENGINE NETWORK BATCH SIDE THREADS DEVICE SEED`. step_times.py starts these processes."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import linnet

from .networks import CLASSES, NETWORKS, training
from .processes import answer_steps

LAYOUTS = ("PyTorch", "PyTorch, channels last")


def engines() -> list[str]:
    """The engines that are installed."""
    return ["linnet", *(LAYOUTS if importlib.util.find_spec("torch") else ())]


@dataclasses.dataclass(frozen=True)
class Work:
    """A network, the images of a step, their height and width, the threads, the device ("cpu" or the name of another), and the
    seed of weights and images."""

    name: str
    batch: int
    side: int
    threads: int
    device: str
    seed: int

    def feeds(self) -> tuple[np.ndarray, np.ndarray]:
        """Random images f32 [batch, 3, side, side] and labels i32 [batch]."""
        rng = np.random.default_rng(self.seed)
        images = rng.standard_normal((self.batch, 3, self.side, self.side), np.float32)
        return images, rng.integers(0, CLASSES, self.batch).astype(np.int32)


def bound(session: linnet.Session, feeds: dict[str, Any], device: str) -> tuple[Any, dict[str, Any]]:
    """A binding whose inputs and outputs stay on the device, and its outputs."""
    place = linnet.load_device(device)
    given = {}
    for name, value in feeds.items():
        given[name] = linnet.DeviceArray(place, value.shape, linnet.ir.dtypes.dtype_of(value.dtype))
        given[name].write(value)
    results = {
        spec.name: linnet.DeviceArray(place, [int(d) for d in spec.shape], spec.dtype) for spec in session.outputs
    }
    return session.bind(given, results), results


def linnet_step(work: Work) -> Callable[[], object]:
    """One step of SGD by linnet."""
    x, t = work.feeds()
    model = linnet.Model(training(work.name, work.batch, work.seed, work.side).to_bytes())
    on_cpu = work.device == "cpu"
    session = linnet.Session(model, "train", threads=work.threads, device=None if on_cpu else work.device)
    if on_cpu:
        arrays = {name: session.empty(name) for name in ("x", "t")}
        arrays["x"][...], arrays["t"][...] = x, t
        return session.bind(arrays).run
    binding, _ = bound(session, {"x": x, "t": t}, work.device)

    def step() -> None:
        binding.submit()
        binding.wait()

    return step


def torch_step(work: Work, channels_last: bool) -> Callable[[], object]:
    """The same step by PyTorch, which knows the device by the same name, for example "cuda"."""
    import torch

    from .in_torch import Network

    torch.set_num_threads(work.threads)
    torch.manual_seed(work.seed)
    images, labels = work.feeds()
    x, t = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)).to(work.device)
    model = Network(NETWORKS[work.name][0], x).to(work.device)
    x = x.to(work.device)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), t)
        loss.backward()
        optimizer.step()
        return float(loss.detach())  # waits for the device

    return step


def main() -> None:
    """Runs the steps that stdin asks for."""
    engine, name, batch, side, threads, device, seed = sys.argv[1:]
    work = Work(name, int(batch), int(side), int(threads), device, int(seed))
    answer_steps(linnet_step(work) if engine == "linnet" else torch_step(work, engine == LAYOUTS[1]))


if __name__ == "__main__":
    main()
