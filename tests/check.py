"""Runs what a change needs: `make check`, or `python -m tests.check [--base main] [--seconds 90] [--list]`. The change is what
differs from the base, committed or not. Python tests are chosen by what they import, C tests by the changed file's folder."""

from __future__ import annotations

import argparse
import ast
import collections
import functools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests import tree
from tests.tree import ROOT

# Folders and files of C, the most specific first: the C tests and the Python tests that cover them.
COVERED: dict[str, tuple[str, str]] = {
    "runtime_c/include": ("structs types errors", "abi header api"),
    "runtime_c/base/platform": ("threads store", "machine_memory checkpoint_faults"),
    "runtime_c/base/resting": ("threads", ""),
    "runtime_c/base/crc32": ("crc32", "integrity"),
    "runtime_c/base/flatbuffer": ("flatbuffer model", "malformed"),
    "runtime_c/base": ("memory types structs errors threads store", "api allocations"),
    "runtime_c/generated": ("kernel_lines map copy", "generated schema"),
    "runtime_c/kernel": ("cost kernel_lines requant errors user step", "kernel_choice tuning onnx_quantized"),
    "runtime_c/model/checkpoint": ("store", "checkpoint checkpoint_faults"),
    "runtime_c/model/store": ("store shared_store kept", "store_threads snapshot variables"),
    "runtime_c/model": ("model store user", "format malformed integrity fuzz"),
    "runtime_c/map": ("map", "map_random map_source"),
    "runtime_c/simd": ("map kernel_lines norm reduce resize pool", "map_random"),
    "runtime_c/dispatch": ("kernel_lines", "kernel_choice tuning"),
    "runtime_c/plan/passes/transfers": ("plan", "devices device_mock"),
    "runtime_c/plan": (
        "plan planner passes",
        "passes plan_edges plan_random graph_regressions bounds partial_runs devices feeds planning_budget",
    ),
    "runtime_c/run/bind": ("bind", "binding"),
    "runtime_c/run/kept": ("kept", "packed_variables"),
    "runtime_c/run/device": ("plan", "devices device_mock"),
    "runtime_c/run/held": ("plan", "device_state devices device_mock"),
    "runtime_c/run/constants": ("plan", "device_constants devices device_mock"),
    "runtime_c/run": ("plan bind kept", "session partial_runs variables control_flow"),
    "runtime_c/ops/copy": ("copy", "onnx_rules plan_total"),
    "runtime_c/ops/reduce": ("reduce", "onnx_rules"),
    "runtime_c/ops/conv": ("conv depthwise winograd", "onnx_attributes"),
    "runtime_c/ops/pool": ("pool", "onnx_attributes"),
    "runtime_c/ops/resize": ("resize", "onnx_attributes"),
    "runtime_c/ops": ("kernel_lines gradient", "onnx_nodes gradient_values"),
    "runtime_c/fast/gemm": ("gemm conv depthwise kernel_lines", "onnx_quantized determinism"),
    "runtime_c/fast": ("norm pool reduce resize kernel_lines", "determinism recurrent"),
    "kernels_x86/gemm": ("gemm conv depthwise kernel_lines", ""),
    "kernels_arm/gemm": ("gemm conv depthwise kernel_lines", "cross"),
    "kernels_x86": ("kernel_lines norm pool reduce resize map crc32", "kernel_choice"),
    "kernels_arm": ("kernel_lines norm pool reduce resize map crc32", "cross"),
    "runtime_c/sync": (
        "sync_compress sync_edges sync_finite sync_journal sync_members sync_ring sync_rows sync_server sync_server_edges "
        "sync_share sync_shm sync_stream sync_tls sync_transport sync_wire",
        "sync_server sync_worker sync_ring sync_journal sync_protocol sync_training",
    ),
    "runtime_c/tools": ("", "tools tools_media tool_style cli_run train_tool"),
    "schema": ("kernel_lines", "schema generated format public_names"),
    "tests/c": ("", ""),
}
ALWAYS_PYTHON = ("layers", "texts", "words")  # after any change of Python or C: seconds
ALWAYS_C = ("layers_c", "texts")
TYPICAL = 2.0  # seconds of a test file beyond its tests in tests/durations.json


def changed(base: str) -> list[str]:
    """Files that differ from the last commit of this branch that the base has; of the base itself, those not committed."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()

    fork = git("merge-base", "HEAD", base)[0]
    names = {*git("diff", "--name-only", fork), *git("ls-files", "--others", "--exclude-standard")}
    return sorted(names)


# ---- Python ----------------------------------------------------------------------------------------------------------


def _module(path: str) -> str | None:
    """The module of a file of linnet or of the tests."""
    for folder, package in (("pyruntime/linnet", "linnet"), ("converters", "linnet.converters"), ("tests", "tests"),
                            ("examples", "examples")):  # fmt: skip
        if path.startswith(folder + "/") and path.endswith(".py"):
            inner = path[len(folder) + 1 : -3].removesuffix("__init__").strip("/").replace("/", ".")
            return f"{package}.{inner}".rstrip(".")
    return None


def _uses(path: Path) -> set[str]:
    """Modules that a test or example names: what it imports, and what it takes from `linnet` by attribute."""
    import linnet

    text = path.read_text()
    found = {"linnet.cli.main"} if "linnet_command" in text or '"-m", "linnet"' in text else set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "linnet":
            found |= {linnet._LAZY.get(node.attr, f"linnet.{node.attr}")}
    return found


@functools.cache
def _importers() -> dict[str, set[str]]:
    """{module: modules of linnet, tests and examples that import it directly, and its package, which may import it by name}.
    `linnet` itself, which imports all when asked for it, is left out."""
    import grimp

    graph = grimp.build_graph("linnet", cache_dir=None, exclude_type_checking_imports=True)
    found: dict[str, set[str]] = collections.defaultdict(set)
    for module in graph.modules:
        found[module] |= {*graph.find_modules_that_directly_import(module), module.rpartition(".")[0]} - {"linnet"}
    known = set(graph.modules)
    for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("examples/**/*.py")]:
        user = _module(str(path.relative_to(ROOT)))
        for name in _uses(path):
            if user and name != "linnet" and (name in known or name.startswith(("tests.", "examples."))):
                found[name].add(user)
    return found


def distances(modules: set[str]) -> dict[str, int]:
    """{test file: the fewest imports between it and a module}."""
    seen, edge, steps = dict.fromkeys(modules, 0), set(modules), 0
    while edge:
        steps += 1
        edge = {user for module in edge for user in _importers().get(module, ())} - set(seen)
        seen |= dict.fromkeys(edge, steps)
    tests = {module: steps for module, steps in seen.items() if module.startswith("tests.test_")}
    return {f"tests/{module.removeprefix('tests.')}.py": steps for module, steps in tests.items()}


# ---- the choice ------------------------------------------------------------------------------------------------------


def covering(path: str) -> tuple[list[str], list[str]]:
    """C test programs and Python test files for a file of C or of schema/."""
    entry = next((covered for prefix, covered in COVERED.items() if path.startswith(prefix)), ("", ""))
    programs, files = (
        [f"test_{word}" for word in entry[0].split()],
        [f"tests/test_{word}.py" for word in entry[1].split()],
    )
    name = Path(path).stem
    if path.startswith("tests/c/"):
        return ([name] if name.startswith("test_") else []), ["tests/test_c_suite.py"] if path.endswith(".h") else []
    return programs, files


def cost(file: str) -> float:
    """About how many seconds of processor time a test file takes."""
    known: dict[str, float] = json.loads((ROOT / "tests" / "durations.json").read_text())
    return TYPICAL + sum(seconds for test, seconds in known.items() if test.startswith(file + "::"))


def choose(files: list[str]) -> tuple[list[str], dict[str, float]]:
    """C test programs, and Python test files with their rank: 0 is certain, more is farther from the change."""
    programs: list[str] = []
    ranks: dict[str, float] = {}

    def want(test: str, rank: float) -> None:
        if (ROOT / test).exists():
            ranks[test] = min(rank, ranks.get(test, rank))

    modules = {module for path in files if (module := _module(path)) and (ROOT / path).exists()}
    for path in files:
        if re.fullmatch(r"tests/test_\w+\.py", path):
            want(path, 0)
        elif path.startswith(("runtime_c/", "kernels_", "schema/", "tests/c/")):
            more, covered = covering(path)
            programs += more
            for test in (*covered, *(f"tests/test_{word}.py" for word in ALWAYS_C)):
                want(test, 0.5)
        elif path.endswith(".md"):
            want("tests/test_docs.py", 0.5)
            want("tests/test_texts.py", 0.5)
        elif path.startswith("tests/mutations/"):
            want("tests/test_mutations.py", 0)
        elif path in ("CMakeLists.txt", "Makefile", "pyproject.toml") or path.startswith((".ci/", "runtime_c/flags")):
            want("tests/test_package.py", 0.5)
            want("tests/test_hardening.py", 0.5)
    if modules:
        for test in ALWAYS_PYTHON:
            want(f"tests/test_{test}.py", 0.5)
        for test, steps in distances(modules).items():
            named = any(module.rpartition(".")[2] in test for module in modules)
            want(test, steps - 0.5 * named)
    return sorted(set(programs)), ranks


# ---- running ---------------------------------------------------------------------------------------------------------


def lint(files: list[str]) -> list[list[str]]:
    """Commands that check the changed files."""
    there = [path for path in files if (ROOT / path).exists() and "generated" not in path]
    python = [path for path in there if path.endswith(".py")]
    native = [path for path in there if path.endswith((".c", ".h"))]
    run = [sys.executable, "-m"]
    commands = (
        [[*run, "ruff", "check", "-q", *python], [*run, "ruff", "format", "-q", "--check", *python]] if python else []
    )
    if any(path.startswith(("pyruntime/", "converters/")) for path in python):
        commands.append([*run, "mypy"])
    if native:
        commands.append(["clang-format", "--dry-run", "-Werror", *native])
    if any(path.startswith("schema/") for path in there):
        commands.append([sys.executable, "schema/generate.py", "--check"])
    return commands


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="main", help="the commit or branch to compare with (main)")
    parser.add_argument("--seconds", type=float, default=90, help="about how long the Python tests may take (90)")
    parser.add_argument("--list", action="store_true", help="prints the choice and runs nothing")
    parser.add_argument("--files", nargs="*", help="checks what these files need, whatever has changed")
    options = parser.parse_args()
    sys.path.insert(0, str(tree.package()))
    files = changed(options.base) if options.files is None else options.files
    programs, ranks = choose(files)
    jobs = os.cpu_count() or 2
    room, chosen, left = options.seconds * jobs, [], []
    for test in sorted(ranks, key=lambda name: (ranks[name], cost(name))):
        fits = ranks[test] == 0 or cost(test) <= room
        (chosen if fits else left).append(test)
        room -= cost(test) if fits else 0
    print(
        f"{len(files)} files changed since {options.base}: {len(programs)} C tests, {len(chosen)} files of Python tests"
    )
    if options.list:
        print(*programs, *chosen, sep="\n")
    failed = [] if options.list else run(files, programs, chosen)
    if left:
        print(f"left out, as farther from the change or too long (make test runs them): {' '.join(left)}")
    if failed:
        print(f"failed: {'; '.join(failed)}")
    return bool(failed)


def run(files: list[str], programs: list[str], tests: list[str]) -> list[str]:
    """Runs the linters, the C tests and the Python tests. Returns what failed."""
    from tests.native import build, c_test

    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["MYPYPATH"] = str(ROOT / "build" / "python")
    failed = []

    def step(command: list[str], name: str) -> None:
        begun = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, check=False)
        print(f"{name}: {'ok' if done.returncode == 0 else 'FAILED'}, {time.monotonic() - begun:.1f} s", flush=True)
        if done.returncode != 0:
            failed.append(name)

    for command in lint(files):
        step(
            command, " ".join(word for word in command[:4] if not word.startswith(("-", "/"))) or Path(command[0]).name
        )
    if programs:
        folder = build("release", "linnet", "linnet_sync", *programs)
        for name in programs:
            step(c_test(folder, name, 12), name)
    own = [test for test in tests if test in files]  # a changed test runs whatever its mark is, but for soaks
    for marks, wanted in (("not soak", own), ("not (more or soak)", [test for test in tests if test not in own])):
        if wanted:
            workers = str(min(os.cpu_count() or 2, len(wanted)))
            command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "--dist", "worksteal", "-m", marks, *wanted]
            step(command, "pytest")
    return failed


if __name__ == "__main__":
    sys.exit(main())
