"""Builds by `make cross` and `make wheels`, once for all tests that use them, and Pythons of other processors.
If zig is missing, the skip message says how to get it. `python -m tests.cross_builds` builds before the tests start."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from linnet._fetch import cache_dir
from tests.native import BUILDS, ROOT, need, run

# How qemu runs each target: the oldest processor that its tools are for.
CPUS = {
    "aarch64": ("qemu-aarch64", "-cpu", "cortex-a53"),
    "armv7": ("qemu-arm", "-cpu", "cortex-a8"),
    "armv6": ("qemu-arm", "-cpu", "arm1176"),
    "riscv64": ("qemu-riscv64",),
    "android-arm64": ("qemu-aarch64", "-cpu", "cortex-a53"),
    "android-armv7": ("qemu-arm", "-cpu", "cortex-a8"),
}
# Of the foreign Python: Debian's name of its processor, and the name of its folder of libraries.
_DEBIAN = {"aarch64": ("arm64", "aarch64-linux-gnu"), "armv7l": ("armhf", "arm-linux-gnueabihf")}


def need_zig() -> None:
    need("cmake")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("missing: ziglang; get it with: make .venv/.wheels-stamp")


@functools.cache
def need_index() -> None:
    """Skips the test if pip reaches no package index."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(cache_dir() / "index"), "click>=8.1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("missing: a package index, from which pip installs what linnet needs")


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """One process at a time builds this."""
    BUILDS.mkdir(exist_ok=True)
    with open(BUILDS / f".lock-{name}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def cross(target: str, library: bool = False) -> Path:
    """The folder with the results of `make cross`. library: not only the tools."""
    need_zig()
    with _alone(f"cross-{target}"):
        run([sys.executable, str(ROOT / ".ci" / "cross.py"), target, *([] if library else ["--tools-only"])])
    return ROOT / f"build-{target}"


@functools.cache
def wheel(platform: str) -> Path:
    """The wheel that `make wheels PLATFORMS=...` makes, without compiled programs for NVIDIA's GPUs, which take 10 minutes."""
    need_zig()
    if importlib.util.find_spec("auditwheel") is None:
        pytest.skip("missing: auditwheel; get it with: make .venv/.wheels-stamp")
    with _alone("wheels"):
        text = run([sys.executable, str(ROOT / ".ci" / "wheels.py"), platform, "--no-cuda"], cwd=ROOT)
    return ROOT / text.splitlines()[-1].partition(": ")[0]


@functools.cache
def installed(platform: str, machine: str) -> Path:
    """A folder in which pip has installed the wheel of a platform, as for that machine."""
    path, site = wheel(platform), BUILDS / f"site-{platform}"
    tag = path.stem.rpartition("-")[2].split(".")[-1]
    assert tag.endswith(machine)
    shutil.rmtree(site, ignore_errors=True)
    run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", f"--platform={tag}",
         f"--target={site}", str(path)]
    )  # fmt: skip
    return site


@functools.cache
def python_root(machine: str) -> Path:
    """A folder with Debian's Python, NumPy and cffi for a machine, which is kept in the cache."""
    need("apt-get", "dpkg")
    debian, triple = _DEBIAN[machine]
    root = cache_dir() / "roots" / f"python-{machine}"
    with _alone(f"root-{machine}"):
        if (root / "done").exists():
            return root
        shutil.rmtree(root, ignore_errors=True)
        for folder in ("lists/partial", "cache/archives/partial"):
            (root / ".apt" / folder).mkdir(parents=True)
        (root / ".apt" / "status").touch()
        options = {
            "APT::Architecture": debian, "APT::Architectures": debian, "Dir::State::Lists": root / ".apt/lists",
            "Dir::Cache": root / ".apt/cache", "Dir::State::status": root / ".apt/status", "APT::Sandbox::User": "root",
            "Debug::NoLocking": 1,
        }  # fmt: skip
        apt = ["apt-get", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
        # A list that cannot be fetched is only a fault if a package is then missing.
        subprocess.run([*apt, "update"], capture_output=True, check=False, timeout=300)
        packages = ("python3.11", "python3-numpy", "python3-cffi-backend", "python3-cffi")
        done = subprocess.run(
            [*apt, "install", "-y", "--no-install-recommends", "--download-only", *packages],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"missing: Debian's Python for {debian}: {done.stderr.strip().splitlines()[-1]}")
        for package in sorted((root / ".apt/cache/archives").glob("*.deb")):
            run(["dpkg", "-x", str(package), str(root)])
        shutil.rmtree(root / ".apt")
        for name in ("blas/libblas.so.3", "lapack/liblapack.so.3"):  # as Debian's alternatives do
            shutil.copy(root / "usr/lib" / triple / name, root / "usr/lib" / triple)
        (root / "done").touch()
    return root


def foreign_python(machine: str, site: Path, program: str, *arguments: str) -> str:
    """What a program of an emulated Python prints that has nothing but NumPy, cffi and what is in `site`."""
    qemu = CPUS["armv7" if machine == "armv7l" else machine]
    need(qemu[0])
    root = python_root(machine)
    return run(
        [*qemu, "-L", str(root), str(root / "usr/bin/python3.11"), "-c", program, *arguments],
        cwd=site, env={"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
    )  # fmt: skip


if __name__ == "__main__":  # before the tests start, as tests/native.py does
    for wanted, whole in {"aarch64": True, "armv7": True, "armv6": False, "riscv64": False}.items():
        begun = time.monotonic()
        try:
            cross(wanted, whole)
            print(f"built for {wanted} in {time.monotonic() - begun:.0f} s", flush=True)
        except pytest.skip.Exception as missing:  # the tests that need it say so too
            print(f"not built for {wanted}: {missing}", flush=True)
        except pytest.fail.Exception as failure:
            sys.exit(f"{wanted}: {failure}")
