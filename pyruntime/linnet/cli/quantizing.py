"""The part that `linnet convert --dtype`, `linnet quantize` and `linnet debug-quant` share: their options, and the
quantization of a graph."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.declared import Adding, gathers
from linnet.cli.options import CommandLineError, DtypeChoice, calibration_option, image_option, note, samples_option

if TYPE_CHECKING:
    from linnet.facade import Graph
    from linnet.quantization.calibrate import Feeds
    from linnet.quantization.entry import Quantized
    from linnet.quantization.goal import Goal
    from linnet.quantization.table import Table

DTYPES = ("f32", "f16", "bf16", "i16", "i8", "auto")
EFFORTS = ("fast", "normal", "best")


def refuse_dynamic(given: Mapping[str, object]) -> None:
    """Raises CommandLineError if an option is given that has no effect with --dynamic. given: {name: value or None}."""
    for name, value in given.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise CommandLineError(
                f"{option} has no effect with --dynamic, because each run finds the ranges", code=101,
                hint=f"leave out {option} or --dynamic",
            )  # fmt: skip


@dataclasses.dataclass
class Quantizing:
    """The values of the options. table: a file, or the rows themselves."""

    dtype: str
    calibration: Path | None
    samples: int | None
    image: str | None
    table: Path | Table | None
    table_out: Path | None
    effort: str | None
    dynamic: bool = False  # quantize activations in each run; calibration data then only compare the models

    @property
    def asked(self) -> bool:
        """Whether the options change the graph at all."""
        return self.dtype != "f32" or self.table is not None

    @property
    def table_file(self) -> Path | None:
        return self.table if isinstance(self.table, Path) else None

    def check(self) -> None:
        """Raises CommandLineError for options that do not go together."""
        if self.calibration is not None and not self.asked:
            raise CommandLineError(
                "--calibration has no effect because f32 models are not quantized",
                code=101,
                hint="add --dtype i8 or i16",
            )
        if self.samples is not None and self.calibration is None:
            raise CommandLineError(
                "--samples has no effect without calibration", code=101, hint="add --calibration, or remove --samples"
            )
        if self.effort is not None and not self.asked:
            raise CommandLineError(
                "--effort has no effect because f32 models are not quantized", code=101, hint="add --dtype i8"
            )
        if self.dynamic:
            refuse_dynamic({"table": self.table, "table_out": self.table_out, "effort": self.effort})

    def data(self, graph: Graph) -> Iterable[Feeds] | None:
        """The samples for calibration."""
        from linnet.quantization.sources import samples_of

        if self.calibration is None:
            return None
        return samples_of(graph, self.calibration, self.samples, image=self.image, note=note)

    def apply(self, graph: Graph) -> Graph:
        """Returns the quantized graph, or the graph itself for f32. Writes the file of --table-out."""
        return self.quantized(graph).graph

    def quantized(self, graph: Graph, goal: Goal | None = None, threads: int | None = None) -> Quantized:
        """`apply` with everything that the quantizer learns on the way."""
        from linnet.quantization.dynamic import refuse_with_dynamic
        from linnet.quantization.entry import Quantized, Settings, dynamically, quantized
        from linnet.quantization.goal import Goal
        from linnet.quantization.table import Table

        if not self.asked:
            return Quantized(graph, Table(), [], [])
        if self.dynamic:
            refuse_with_dynamic(self.dtype, {})
            return Quantized(dynamically(graph), Table(), [], [])
        settings = Settings(self.table, sys.stderr.isatty(), threads, effort=self.effort or "normal")
        made = quantized(graph, self.data(graph), self.dtype, goal or Goal(), settings)
        if self.table_out is not None:
            made.table.write(self.table_out)
        return made


def quantize_options(default: str, dtype_help: str = "Data type of the converted model.") -> Adding:
    """Adds the options of quantization. The command receives all of them as one argument `quantizing`."""
    options = {
        "dtype": click.option("--dtype", type=DtypeChoice(DTYPES), default=default, show_default=True, help=dtype_help),
        "calibration": calibration_option,
        "samples": samples_option,
        "image": image_option,
        "table": click.option(
            "--table", type=click.Path(path_type=Path), help="Text file with per-layer quantization overrides."
        ),
        "table_out": click.option(
            "--table-out", type=click.Path(path_type=Path), help="Write the chosen per-layer quantization to this text file."
        ),
        "effort": click.option(
            "--effort", type=click.Choice(EFFORTS),
            help="How much time quantization may take to keep the accuracy: fast, normal (the default) or best.",
        ),
    }  # fmt: skip
    return gathers("quantizing", options, Quantizing)
