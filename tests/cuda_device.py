"""The CUDA device for tests: liblinnet_cuda on the stand-ins for CUDA's driver and for NVRTC, which compute on the processor
(tests/cuda/). A process opens the driver once, so this module names the stand-ins in the environment when it is imported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import linnet
from linnet.session.device import Device
from tests.cuda_rig import CUDA, NVRTC, Standin, need_standins, standin
from tests.tree import NATIVE

os.environ.setdefault("LINNET_CUDA", str(CUDA))
os.environ.setdefault("LINNET_NVRTC", str(NVRTC))
os.environ.setdefault("LINNET_STANDIN_CACHE", str(NATIVE / "standin-cache"))


def cuda_device(options: str = "") -> Device:
    """The stand-in's device, which gets all steps that it can run. Programs come from the cache of NVRTC's stand-in alone."""
    need_standins()
    assert (NATIVE / "liblinnet_cuda.so").exists(), "`make native` builds liblinnet_cuda"
    return linnet.load_device(f"cuda:0,cache=off{',' if options else ''}{options}")


@contextmanager
def clean() -> Iterator[Standin]:
    """Fails if the calls of the driver in the block were wrong, or left more objects than there were."""
    held = standin()
    held.forget()
    before, _ = held.report()
    yield held
    after, text = held.report()
    wrong = held.violations()
    held.forget()
    assert not wrong, "\n".join(wrong)
    assert after <= before, f"{after - before} objects of the driver are left:\n{text}"
