"""Lays the sources out as the package `linnet`, as links in build/python, so that an edited file counts at once.
`python -m tests.tree` makes the Python that runs it use them; with `requirements EXTRA...` it lists what to install."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "build"  # where `make native` builds
LIBRARIES = (
    "linnet",
    "linnet_sync",
    "linnet_opencl",
    "linnet_cuda",
    "linnet_remote",
)  # CMake's targets that Python loads


def _link(link: Path, target: Path) -> None:
    if not link.is_symlink() or link.readlink() != target:
        temporary = link.with_name(f".{link.name}.{os.getpid()}")
        temporary.symlink_to(target)
        temporary.replace(link)


def package() -> Path:
    """Makes the folder that has the package `linnet`, and returns it. Libraries and tools are those of `make native`."""
    folder = NATIVE / "python"
    inside = folder / "linnet"
    wanted = {path.name: path for path in (ROOT / "pyruntime" / "linnet").iterdir() if path.name != "__pycache__"}
    wanted |= {"converters": ROOT / "converters", "include": ROOT / "runtime_c" / "include"}
    wanted["errors"] = ROOT / "docs" / "errors"
    libraries = ("liblinnet.so", "liblinnet.so.0", "liblinnet_sync.so")
    libraries += ("liblinnet_opencl.so", "liblinnet_cuda.so", "liblinnet_remote.so")
    wanted |= {f"lib/{name}": NATIVE / name for name in libraries}
    wanted |= {
        f"bin/{name}": NATIVE / name
        for name in ("linnet-bench", "linnet-run", "linnet-parameter-server", "linnet-train", "linnet-host")
    }
    for name, target in wanted.items():
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        _link(inside / name, target)
    for link in inside.iterdir():  # of files that have moved or gone
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)
    return folder


def _project() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(extras: list[str]) -> list[str]:
    """What linnet and these extras need: requirements for pip."""
    project = _project()
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


def develop() -> None:
    """Puts the package on the path of this Python, and the commands of pyproject.toml beside it."""
    Path(sysconfig.get_path("purelib"), "linnet-tree.pth").write_text(f"{package()}\n")
    for command, target in _project()["scripts"].items():
        module, function = re.fullmatch(r"([\w.]+):(\w+)", target).groups()  # type: ignore[union-attr]
        script = Path(sysconfig.get_path("scripts"), command)
        script.write_text(
            f"#!{sys.executable}\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        )
        script.chmod(0o755)


if __name__ == "__main__":
    if sys.argv[1:2] == ["requirements"]:
        print("\n".join(requirements(sys.argv[2:])))
    elif sys.argv[1:2] == ["package"]:
        print(package())
    else:
        develop()
