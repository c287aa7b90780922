"""Runs what a change needs: `make check`, or `python -m tests.check [--base main] [--seconds 20] [--list]`. The change is what
differs from the base, committed or not. Tests are chosen that have executed the changed functions (tests/contexts.json.gz, which
`make contexts` writes). What that file does not know is covered by imports, and C files also by their folder."""

from __future__ import annotations

import argparse
import ast
import collections
import functools
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import tree
from tests.texts import c_tokens
from tests.tree import ROOT

CONTEXTS = ROOT / "tests" / "contexts.json.gz"

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
    "runtime_c/model/store": ("store shared_store packed_variables", "store_threads snapshot variables"),
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
    "runtime_c/run/packed_variables": ("packed_variables", "packed_variables"),
    "runtime_c/run/device": ("plan", "devices device_mock"),
    "runtime_c/run/device_variables": ("plan", "device_state devices device_mock"),
    "runtime_c/run/constants": ("plan", "device_constants devices device_mock"),
    "runtime_c/run": ("plan bind packed_variables", "session partial_runs variables control_flow"),
    "runtime_c/ops/copy": ("copy", "onnx_rules plan_total"),
    "runtime_c/ops/reduce": ("reduce", "onnx_rules"),
    "runtime_c/ops/attention": ("attention", "attention"),
    "runtime_c/ops/conv": ("conv depthwise winograd", "onnx_attributes"),
    "runtime_c/ops/pool": ("pool", "onnx_attributes"),
    "runtime_c/ops/resize": ("resize", "onnx_attributes"),
    "runtime_c/ops": ("kernel_lines gradient", "onnx_nodes gradient_values"),
    "runtime_c/fast/gemm": ("gemm conv depthwise kernel_lines", "onnx_quantized determinism"),
    "runtime_c/fast": ("attention norm pool reduce resize kernel_lines", "attention determinism recurrent"),
    "kernels_x86/gemm": ("gemm conv depthwise kernel_lines", ""),
    "kernels_arm/gemm": ("gemm conv depthwise kernel_lines", "cross"),
    "kernels_x86": ("kernel_lines norm pool reduce resize map crc32", "kernel_choice"),
    "kernels_arm": ("kernel_lines norm pool reduce resize map crc32", "cross"),
    "runtime_c/net": (
        "sync_stream sync_transport sync_tls sync_shm sync_wire sync_server",
        "sync_worker sync_protocol",
    ),
    "runtime_c/sync/codec": ("sync_wire sync_compress sync_edges sync_stream", "sync_protocol sync_server sync_worker"),
    "runtime_c/sync/common": ("sync_rows sync_finite sync_server sync_ring", "sync_server sync_training header"),
    "runtime_c/sync/server": (
        "sync_edges sync_finite sync_journal sync_members sync_server sync_server_edges sync_share",
        "sync_server sync_journal sync_protocol sync_training",
    ),
    "runtime_c/sync/worker": ("sync_edges", "sync_worker sync_server sync_training"),
    "runtime_c/sync/ring": ("sync_ring", "sync_ring"),
    "runtime_c/remote": ("", "remote"),
    "runtime_c/tools": ("step_times", "tools tools_media tool_style step_times cli_run train_tool"),
    "kernels_gpu/opencl": ("", "opencl opencl_memory opencl_moves device_waits opencl_weights opencl_models"),
    **{
        f"kernels_gpu/cuda/{part}": ("", f"cuda_texts cuda_compile {tests}")
        for tests, parts in {
            "cuda_gradients": "gemm_gradient gemm_turn",
            "cuda_check cuda_products": "gemm_conv gemm_matmul depthwise",
            "cuda_products cuda_models": "gemm mma wgmma",
        }.items()
        for part in parts.split()
    },
    "kernels_gpu/cuda": (
        "",
        "cuda_memory cuda_models cuda_products cuda_texts cuda_compile cuda_programs cuda_failures",
    ),
    **{
        f"kernels_gpu/common/{part}": ("", f"opencl_{test} cuda_check cuda_texts")
        for test, parts in {
            "gradients": "conv_gradient pool_gradient recurrent_gradient recurrent moments sum_parts",
            "norms": "pool resize copy cumsum top_k norm softmax batch_norm reduce lines",
            "moves": "gather random",
            "attention": "attention",
            "products": "conv matmul product window",
        }.items()
        for part in parts.split()
    },
    "kernels_gpu": ("", "opencl opencl_models cuda_models cuda_check cuda_texts device_library"),
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


# ---- functions -------------------------------------------------------------------------------------------------------


def _python_functions(text: str) -> list[tuple[str, int, int]]:
    """Name, first and last line of each function and method; one inside another belongs to the outer one."""
    found = []

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(word.lineno for word in node.decorator_list)])
                found.append((prefix + node.name, first, node.end_lineno or node.lineno))
            elif isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")

    walk(ast.parse(text).body, "")
    return found


def functions(path: str, text: str) -> list[tuple[str, int, int]]:
    """Name, first and last line of each function that a source of Python or C defines."""
    if path.endswith(".py"):
        return _python_functions(text)
    made = c_tokens.functions(c_tokens.read(text))
    return [(one.name, one.line, one.body[-1].line) for one in made if one.body and not one.macro]


def changed_lines(base: str, path: str) -> list[int] | None:
    """Lines of the file as it is that differ from the base; None if the base does not have the file."""
    fork = subprocess.run(["git", "merge-base", "HEAD", base], cwd=ROOT, capture_output=True, text=True, check=True)
    if subprocess.run(
        ["git", "cat-file", "-e", f"{fork.stdout.strip()}:{path}"], cwd=ROOT, capture_output=True, check=False
    ).returncode:
        return None
    words = ["git", "diff", "-U0", fork.stdout.strip(), "--", path]
    text = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: list[int] = []
    for start, count in re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", text, re.MULTILINE):
        found += range(int(start), int(start) + max(1, int(count or 1)))  # where lines were removed, the one before
    return found


@functools.cache
def contexts() -> dict[str, Any]:
    if not CONTEXTS.exists():
        return {"tests": [], "seconds": [], "files": {}}
    return json.loads(gzip.decompress(CONTEXTS.read_bytes()))  # type: ignore[no-any-return]


def executing(path: str, lines: list[int] | None) -> list[list[str]]:
    """For each changed function of the file, or for its whole file if no function has changed, the tests that have executed
    it: first those that execute the fewest functions besides. Empty if none is known."""
    known = contexts()["files"].get(path, {})
    names = contexts()["tests"]
    if not known or not (ROOT / path).exists():
        return []
    made = functions(path, (ROOT / path).read_text())
    wanted = {name for name, first, last in made for line in lines or [] if first <= line <= last}
    chosen = [known[name] for name in sorted(wanted) if name in known]
    if not chosen:  # something outside of functions, or functions that are new
        chosen = [sorted({number for numbers in known.values() for number in numbers[:2]})]
    return [[names[number] for number in numbers] for numbers in chosen]


# ---- the choice ------------------------------------------------------------------------------------------------------


def covering(path: str) -> tuple[list[str], list[str]]:
    """C test programs and Python test files for a file of C or of schema/, by its folder."""
    entry = next((covered for prefix, covered in COVERED.items() if path.startswith(prefix)), ("", ""))
    programs, files = (
        [f"test_{word}" for word in entry[0].split()],
        [f"tests/test_{word}.py" for word in entry[1].split()],
    )
    name = Path(path).stem
    if path.startswith("tests/c/"):
        return ([name] if name.startswith("test_") else []), ["tests/test_c_suite.py"] if path.endswith(".h") else []
    return programs, files


@functools.cache
def _durations() -> dict[str, float]:
    return json.loads((ROOT / "tests" / "durations.json").read_text())  # type: ignore[no-any-return]


def cost(test: str) -> float:
    """About how many seconds of processor time a test or a test file takes."""
    if "::" in test:
        known = contexts()
        return _durations().get(test, dict(zip(known["tests"], known["seconds"], strict=True)).get(test, TYPICAL))
    return TYPICAL + sum(seconds for name, seconds in _durations().items() if name.startswith(test + "::"))


def choose(
    files: list[str], lines: Callable[[str], list[int] | None] = lambda _: None
) -> tuple[list[str], dict[str, float]]:
    """C test programs, and Python tests (files, or single tests) with their rank: 0 is certain, more is farther from the
    change. `lines` gives the changed lines of a file."""
    programs: list[str] = []
    ranks: dict[str, float] = {}

    def want(test: str, rank: float) -> None:
        if (ROOT / test.partition("::")[0]).exists():
            ranks[test] = min(rank, ranks.get(test, rank))

    unknown: set[str] = set()  # modules of which no function is known
    for path in files:
        native = path.startswith(("runtime_c/", "kernels_", "schema/", "tests/c/"))
        reached = executing(path, lines(path)) if native or _module(path) else []
        for tests in reached:
            for place, test in enumerate(tests):
                program = re.fullmatch(r"tests/test_c_suite\.py::test_plain\[(\w+)\]", test)
                if program:
                    programs.append(program[1])
                elif "test_c_suite.py" not in test and "test_cross.py" not in test:
                    want(test, 1 + place / 16)
        if re.fullmatch(r"tests/test_\w+\.py", path):
            want(path, 0)
        elif native:
            more, covered = covering(path)
            programs += more if not reached else []
            for test in (*(covered if not reached else ()), *(f"tests/test_{word}.py" for word in ALWAYS_C)):
                want(test, 0.5)
        elif path.endswith(".md"):
            want("tests/test_docs.py", 0.5)
            want("tests/test_texts.py", 0.5)
        elif path.startswith("tests/mutations/"):
            want("tests/test_mutations.py", 0)
        elif path in ("CMakeLists.txt", "Makefile", "pyproject.toml") or path.startswith((".ci/", "runtime_c/flags")):
            want("tests/test_package.py", 0.5)
            want("tests/test_hardening.py", 0.5)
        module = _module(path)
        if module and (ROOT / path).exists():
            for test in ALWAYS_PYTHON:
                want(f"tests/test_{test}.py", 0.5)
            if not reached:
                unknown.add(module)
    if unknown:
        for test, steps in distances(unknown).items():
            named = any(module.rpartition(".")[2] in test for module in unknown)
            want(test, steps - 0.5 * named)
    return sorted(set(programs)), ranks


# ---- running ---------------------------------------------------------------------------------------------------------


def lint(files: list[str]) -> list[list[str]]:
    """Commands that check the changed files."""
    there = [path for path in files if (ROOT / path).exists() and "generated" not in path]
    python = [path for path in there if path.endswith(".py")]
    native = [path for path in there if path.endswith((".c", ".h"))]
    run = [sys.executable, "-m"]
    ruff = ["--force-exclude", *python]  # also of named files, the generated ones are left out
    commands = (
        [[*run, "ruff", "check", "-q", *ruff], [*run, "ruff", "format", "-q", "--check", *ruff]] if python else []
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
    parser.add_argument("--seconds", type=float, default=20, help="about how long the Python tests may take (20)")
    parser.add_argument("--list", action="store_true", help="prints the choice and runs nothing")
    parser.add_argument("--files", nargs="*", help="checks what these files need, whatever has changed")
    options = parser.parse_args()
    sys.path.insert(0, str(tree.package()))
    files = changed(options.base) if options.files is None else options.files
    programs, ranks = choose(files, functools.partial(changed_lines, options.base))
    jobs = os.cpu_count() or 2
    room, chosen, left = options.seconds * jobs, [], []
    for test in sorted(ranks, key=lambda name: (ranks[name], cost(name))):
        fits = ranks[test] <= 0 or cost(test) <= room
        (chosen if fits else left).append(test)
        room -= cost(test) if fits else 0
    print(
        f"{len(files)} files changed since {options.base}: {len(programs)} C tests, {len(chosen)} Python tests and files of "
        f"them, about {sum(map(cost, chosen)):.0f} processor seconds"
    )
    if options.list:
        print(*programs, *chosen, sep="\n")
    failed = [] if options.list else run(files, programs, chosen)
    if left:
        print(f"left out, as farther from the change or too long (make test runs them): {_short(left)}")
    if failed:
        print(f"failed: {'; '.join(failed)}")
    return bool(failed)


def _short(names: list[str]) -> str:
    return " ".join(names[:8]) + (f" and {len(names) - 8} others" if len(names) > 8 else "")


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
        folder = build("release", *tree.LIBRARIES, *programs)
        for name in programs:
            step(c_test(folder, name, 12), name)
    own = [test for test in tests if test in files]  # a changed test runs whatever its mark is, but for soaks
    for marks, wanted in (("not soak", own), ("not (more or soak)", [test for test in tests if test not in own])):
        if wanted:
            # Names in a file: pytest ends with an error for a name on its command line that is no test any more.
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
                names.write("\n".join(wanted))
                names.flush()
                workers = str(min(os.cpu_count() or 2, len(wanted)))
                command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "--dist", "worksteal", "-m", marks]
                paths = dict.fromkeys(test.partition("::")[0] for test in wanted)
                step([*command, f"--chosen={names.name}", *paths], "pytest")
    return failed


if __name__ == "__main__":
    sys.exit(main())
