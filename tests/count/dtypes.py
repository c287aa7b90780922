"""`python -m tests.count.dtypes`: each model at f32, f16, i16 and i8 on emulated ARM processors, quantized as for that processor.
It prints the table of docs/counting.md, and names what is wrong: fewer bits that are dearer, and shares of the reference."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import linnet
from linnet.deploy import standard_models
from linnet.deploy.models import random_sample
from tests import zoo
from tests.count.__main__ import loaded
from tests.count.counts import FOLDER, Counted, CountError, count, driver

_CPUS = ("cortex-a72", "cortex-a76")
"""Columns: the dtype of the graph and the precision that the plan permits."""
_COLUMNS = {
    "f32": ("f32", None),
    "f16": ("f16", None),
    "f16 sums": ("f16", "f16"),
    "i16": ("i16", None),
    "i8": ("i8", None),
}
"""Fewer bits, more bits, and the largest ratio of their counts: f16 with sums of f32 converts each value twice."""
_ORDER = (("i8", "i16", 1.0), ("i8", "f16", 1.0), ("i16", "f32", 1.0), ("f16", "f32", 1.05), ("f16 sums", "f32", 1.0))
"""The largest share of a model's instructions that kernels written in plain C may take."""
_REFERENCE = 0.01
_HAS_SUMS_OF_F16 = ("cortex-a76", "max", "neoverse")
_MODELLED = ("cortex-a53", "cortex-a72", "cortex-a76")  # the processors whose times quantize knows
_DEFAULT = ("mobilenet_v2", "kws")


@dataclass(frozen=True)
class Row:
    """Counts of a model on a processor, by column."""

    model: str
    cpu: str
    counts: dict[str, Counted]

    def faults(self) -> Iterator[str]:
        """What the counts show to be wrong, in words."""
        here = f"{self.model} on {self.cpu}"
        for narrow, wide, most in _ORDER:
            if narrow in self.counts and wide in self.counts:
                ratio = self.counts[narrow].warm["all"] / self.counts[wide].warm["all"]
                if ratio > most:
                    yield f"{here}: {narrow} takes {ratio:.3f} of the instructions of {wide}, more than {most}"
        for column, counted in self.counts.items():
            plain = sum(s.counts["all"] for s in counted.steps if s.kernel.endswith("_reference"))
            if plain > _REFERENCE * counted.warm["all"]:
                names = sorted({s.kernel for s in counted.steps if s.kernel.endswith("_reference")})
                yield f"{here}: {', '.join(names)} take {plain / counted.warm['all']:.1%} at {column}"

    def line(self) -> str:
        """A row of the table: million instructions, and the megabytes that are loaded beside them."""
        cells = []
        for column in _COLUMNS:
            c = self.counts.get(column)
            cells.append(f"{_short(c.warm['all'] / 1e6)} ({_short(c.warm['loaded'] / 1e6)})" if c else "")
        return f"| {self.model} | {self.cpu} | {' | '.join(cells)} |"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def _graph(word: str) -> linnet.Graph:
    """A graph by path, by name of a standard model, or by name of a model of tests/zoo.py; sizes that it leaves open are 1."""
    if Path(word).is_file():
        return loaded(Path(word))
    if word in standard_models.MODELS:
        return standard_models.MODELS[word]()
    if word in zoo.MODELS:
        return linnet.load_graph(zoo.fetch(word), zoo.input_shapes(word))
    raise CountError(f"{word} is neither a file nor a name of {', '.join([*standard_models.MODELS, *zoo.MODELS])}")


def _quantized(graph: linnet.Graph, word: str, dtype: str, cpu: str, effort: str) -> linnet.Graph:
    if dtype == "f32":
        return graph
    sample = zoo.inputs(word) if word in zoo.MODELS else random_sample(graph.to_bytes(), "infer", {})[0]
    machine = cpu if cpu in _MODELLED else "cortex-a53" if cpu.startswith("cortex-a") else "cortex-a76"
    return linnet.quantize(graph, [sample], dtype=dtype, effort=effort, machine=machine)


def row(word: str, cpu: str, columns: list[str], effort: str, folder: Path) -> Row:
    """Quantizes and counts a model."""
    graph, counts, made = _graph(word), {}, dict[str, Path]()
    for column in columns:
        dtype, precision = _COLUMNS[column]
        if precision and not cpu.startswith(_HAS_SUMS_OF_F16):
            continue
        if dtype not in made:
            made[dtype] = folder / f"{Path(word).stem}.{dtype}.{cpu}.lnt"
            _quantized(graph, word, dtype, cpu, effort).save(made[dtype])
        counts[column] = count(made[dtype], cpu, driver(cpu), precision=precision)
    return Row(Path(word).stem, cpu, counts)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.count.dtypes", description=__doc__)
    parser.add_argument(
        "models", nargs="*", default=list(_DEFAULT), help="paths, or names such as mobilenet_v2 and yunet"
    )
    parser.add_argument("--cpu", nargs="+", default=list(_CPUS))
    parser.add_argument("--columns", nargs="+", default=list(_COLUMNS), choices=list(_COLUMNS))
    parser.add_argument("--effort", default="fast", help="of quantize")
    args = parser.parse_args(words)
    print(
        f"| million instructions (megabytes loaded) | processor | {' | '.join(_COLUMNS)} |\n|{'---|' * (2 + len(_COLUMNS))}"
    )
    faults = []
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        for word in args.models:
            for cpu in args.cpu:
                try:
                    found = row(word, cpu, args.columns, args.effort, Path(folder))
                except (CountError, linnet.Error) as error:
                    faults.append(f"{word} on {cpu}: {error}")
                    continue
                print(found.line(), flush=True)
                faults += found.faults()
    print("\n".join(["", *faults] if faults else []))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
