"""The CUDA device for tests: liblinnet_cuda on the stand-ins for CUDA's driver and for NVRTC, which compute on the processor
(tests/cuda/). A process opens the driver once, so this module names the stand-ins in the environment when it is imported. With
LINNET_CUDA_TESTS=gpu, which `make test-cuda` sets, the tests run on a GPU instead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import linnet
from linnet.session.device import Device
from tests.cuda_rig import CUDA, NVRTC, Standin, need_standins, standin
from tests.tree import NATIVE

ON_GPU = os.environ.get("LINNET_CUDA_TESTS") == "gpu"
if not ON_GPU:
    os.environ.setdefault("LINNET_CUDA", str(CUDA))
    os.environ.setdefault("LINNET_NVRTC", str(NVRTC))
os.environ.setdefault("LINNET_STANDIN_CACHE", str(NATIVE / "standin-cache"))


def cuda_device(options: str = "") -> Device:
    """The stand-in's device, which gets all steps that it can run. Programs come from the cache of NVRTC's stand-in alone."""
    if not ON_GPU:
        need_standins()
    assert (NATIVE / "liblinnet_cuda.so").exists(), "`make native` builds liblinnet_cuda"
    return linnet.load_device(f"cuda:0{'' if ON_GPU else ',cache=off'}{',' if options else ''}{options}")


@contextmanager
def clean() -> Iterator[Standin | None]:
    """Fails if the calls of the driver in the block were wrong, or left more objects than there were. On a GPU nothing is known
    of that; compute-sanitizer looks for memory errors there."""
    if ON_GPU:
        yield None
        return
    held = standin()
    held.forget()
    before, _ = held.report()
    yield held
    after, text = held.report()
    wrong = held.violations()
    held.forget()
    assert not wrong, "\n".join(wrong)
    assert after <= before, f"{after - before} objects of the driver are left:\n{text}"
