"""`make count MODELS="..." CPUS="..." BASE=main`, or `python -m tests.count --help`: instructions of models on emulated ARM
processors, per kernel, step or function, before and after a change, and llvm-mca's view of the inner loops."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import linnet
from linnet.deploy import standard_models
from linnet.deploy.models import random_sample
from linnet.report.tables import show, table
from tests.count import loops
from tests.count.counts import FOLDER, Counted, CountError, Counts, added, count, driver, driver_of_revision

_CPUS = ("cortex-a72", "cortex-a76")
_DEFAULT = ("mobilenet_v2", "kws")
_TYPES = ("f32", "i8")
"""A row's key and its counts, of the tree and of the base."""
Rows = dict[str, list[Counts]]


def loaded(path: Path) -> linnet.Graph:
    """The graph of a file, with size 1 for each size that it leaves open."""
    graph = linnet.load_graph(path)
    opened = random_sample(graph.to_bytes(), "infer", {})[1]
    return linnet.load_graph(path, opened) if opened else graph


def _models(words: list[str], folder: Path) -> list[Path]:
    """The .lnt files of models by path, or by name and type such as mobilenet_v2.i8. Files of peers are converted, with size 1
    for each size that they leave open."""
    found = []
    for word in words or [f"{name}.{dtype}" for name in _DEFAULT for dtype in _TYPES]:
        path, made = Path(word), folder / f"{Path(word).name}.lnt"
        name, _, dtype = word.partition(".")
        if path.suffix == ".lnt":
            found.append(path)
            continue
        if path.exists():
            graph = loaded(path)
        elif name in standard_models.MODELS and dtype in _TYPES:
            graph = standard_models.MODELS[name]()
            if dtype != "f32":
                graph = linnet.quantize(
                    graph, [random_sample(graph.to_bytes(), "infer", {})[0]], dtype=dtype, effort="fast"
                )
        else:
            names = ", ".join(standard_models.MODELS)
            raise CountError(f"{word} is neither a file nor NAME.f32 or NAME.i8 with a NAME of {names}")
        graph.save(made)
        found.append(made)
    return found


def _rows(counted: list[Counted], key: str) -> Rows:
    """Counts by kernel, step or function; those that the base lacks count as 0 there."""
    each: list[dict[str, list[Counts]]] = []
    for c in counted:
        rows: dict[str, list[Counts]] = {}
        for i, step in enumerate(c.steps):
            name = f"{i:3} {step.kernel} {step.name}" if key == "step" else step.kernel
            rows.setdefault(name, []).append(step.counts)
        each.append({name: [counts] for name, counts in c.functions.items()} if key == "function" else rows)
    names = list(dict.fromkeys(name for rows in each for name in rows))
    return {name: [added(rows.get(name, [])) for rows in each] for name in names}


def _millions(number: int) -> str:
    return f"{number / 1e6:.3f}" if number < 1e7 else f"{number / 1e6:.1f}"


def _print(model: Path, cpu: str, counted: list[Counted], key: str, most: int) -> None:
    now = counted[-1]
    rows = sorted(_rows(counted, key).items(), key=lambda row: -max(c["all"] for c in row[1]))
    if key == "step":
        rows = list(_rows(counted, key).items())
    columns = [name for name in ("fma", "imac", "dot", "mmla", "vload", "vstore", "load", "branch", "vother")
               if now.warm[name] > now.warm["all"] // 500]  # fmt: skip
    head = [key, *(["before"] if len(counted) > 1 else []), "count", *(["ratio"] if len(counted) > 1 else []), *columns]
    missed = now.warm["accesses"] > 0 and key != "function"  # blocks of instructions have no misses of their own
    if missed:
        head.append("misses")
    lines = []
    for name, counts in [(f"all of {model.name}", [c.warm for c in counted]), *rows[:most]]:
        before, after = counts[0]["all"], counts[-1]["all"]
        line = [name, *(_millions(c["all"]) for c in counts)]
        if len(counted) > 1:
            line.append(f"{after / before:.3f}" if before else "new")
        line += [_millions(counts[-1][c]) for c in columns]
        if missed:
            line.append(_millions(counts[-1]["misses"]))
        lines.append(line)
    title = f"{model.name} on {cpu} ({now.isa}): million instructions of a warm inference with one thread"
    shown = table(title, f"={head[0]}", *(f">{word}" for word in head[1:]))
    for line in lines:
        shown.add_row(*line)
    show(shown)
    before = [f" (before: load {_millions(c.load)}, plan {_millions(c.plan)}, session {_millions(c.create)})"
              for c in counted[:-1]]  # fmt: skip
    print(f"load {_millions(now.load)}, plan {_millions(now.plan)}, session with packing {_millions(now.create)}"
          f"{''.join(before)}; {now.warm['loaded'] / 1e6:.1f} MB loaded, {now.warm['stored'] / 1e6:.1f} MB stored, packed"
          f" weights {now.packed_bytes / 1e6:.2f} MB\n")  # fmt: skip


def _print_loops(program: Path, pattern: str, cpus: list[str], most: int) -> None:
    for cpu in cpus:
        for loop in loops.loops(program, pattern, cpu)[:most]:
            share = (
                f", {100 * loop.rate:.0f} % of the rate of {loop.products} multiply-accumulates"
                if loop.products
                else ""
            )
            print(f"{loop.function} at {loop.address:x} on {cpu}: {len(loop.instructions)} instructions in"
                  f" {loop.cycles:.1f} cycles{share}")  # fmt: skip
            print("\n".join(f"    {line}" for line in loop.instructions))


def _json(rows: list[tuple[Path, str, list[Counted]]], path: Path) -> None:
    def fields(c: Counted) -> dict[str, object]:
        steps = [{"op": s.op, "kernel": s.kernel, "name": s.name, "macs": s.macs, **s.counts} for s in c.steps]
        return {"isa": c.isa, "load": c.load, "plan": c.plan, "create": c.create, "warm": c.warm, "steps": steps,
                "functions": c.functions}  # fmt: skip

    listed = [{"model": m.name, "cpu": cpu, "after": fields(c[-1]), "before": fields(c[0]) if len(c) > 1 else None}
              for m, cpu, c in rows]  # fmt: skip
    path.write_text(json.dumps(listed, indent=1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.count", description=__doc__)
    parser.add_argument("models", nargs="*", help=".lnt, .onnx or .tflite files, or mobilenet_v2.i8 and the like")
    parser.add_argument(
        "--cpu",
        nargs="+",
        default=list(_CPUS),
        help="processors that qemu-aarch64 knows, or cortex-a7, a8, a9 and a15 of 32 bits",
    )
    parser.add_argument("--base", help="a commit, such as main: its counts stand before those of the tree")
    parser.add_argument("--by", choices=["kernel", "step", "function"], default="kernel")
    parser.add_argument("--isa", help="the best instructions to use, such as neon")
    parser.add_argument("--precision", choices=["f16", "bf16"], help="what a plan permits (docs/numerics.md)")
    parser.add_argument("--cache", help="BYTES:WAYS of a data cache, such as 32768:4: counts its misses too (slow)")
    parser.add_argument("--loops", metavar="REGEX", help="show llvm-mca's view of the inner loops of these functions")
    parser.add_argument("--most", type=int, default=30, help="rows or loops that are printed")
    parser.add_argument("--json", type=Path)
    return parser


def main(words: list[str] | None = None) -> int:
    args = _parser().parse_args(words)
    try:
        if args.loops:
            _print_loops(driver(), args.loops, args.cpu, args.most)
            return 0
        drivers = {cpu: [*([driver_of_revision(args.base, cpu)] if args.base else []), driver(cpu)] for cpu in args.cpu}
        rows = []
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            for model in _models(args.models, Path(folder)):
                for cpu in args.cpu:
                    counted = [
                        count(model, cpu, d, args.isa, args.by == "function", args.cache, args.precision)
                        for d in drivers[cpu]
                    ]
                    rows.append((model, cpu, counted))
                    _print(model, cpu, counted, args.by, args.most)
        if args.json:
            _json(rows, args.json)
    except (CountError, linnet.Error) as e:
        print(f"count: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
