"""`linnet compare`: compares models on the same data. linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    CommandLineError,
    eval_option,
    image_option,
    json_option,
    note,
    shapes_of,
    shapes_option,
    threads_option,
    trust_pickle_option,
    user_ops_of,
    user_ops_option,
)
from linnet.report.tables import say as _say
from linnet.report.tables import show as _show


@dataclasses.dataclass(frozen=True)
class CompareOptions:
    """The options of `linnet compare`."""

    data: Path | None = option(
        "--data", type=click.Path(path_type=Path), metavar="NPZ|DIR|SCRIPT.py:FUNCTION",
        help="Samples to run: an .npz file; a folder of pictures, sounds, .npy or .npz files; or a function that gives "
        "{input name: array}. Default: the pictures of --eval.",
    )  # fmt: skip
    evaluate: Path | None = shared(eval_option)
    samples: int | None = option(
        "--samples", type=click.IntRange(1), metavar="N",
        help="Number of samples of --data. Default: 100 of a folder, all of an .npz file or function.",
    )  # fmt: skip
    image: str | None = shared(image_option)
    reference: bool = option(
        "--reference", is_flag=True, help="Run ONNX files in ONNX Runtime and TFLite files in LiteRT too."
    )
    seconds: float = option(
        "--seconds", type=click.FloatRange(0.01, 600), default=0.5, show_default=True,
        help="How many seconds to measure the latency of each model.",
    )  # fmt: skip
    html: Path | None = option("--html", type=click.Path(path_type=Path), help="Write the tables as an HTML page.")
    inputs: Sequence[str] = shared(
        shapes_option("Repeat for each input; it applies to all models that have the input.")
    )
    threads: int | None = shared(threads_option)
    trust_pickle: bool = shared(trust_pickle_option)
    user_ops: Sequence[str] = shared(user_ops_option)
    as_json: bool = shared(json_option)


@click.command(short_help="Compare models on the same data.")
@click.argument("models", metavar="A B...", nargs=-1, type=click.Path(path_type=Path))
@takes(CompareOptions)
def compare(models: Sequence[Path], given: CompareOptions) -> None:
    """Compare models A, B, ... on the same data: size, memory, latency, accuracy, and agreement with A.

    Each model is an ONNX, TFLite or .lnt file or a saved PyTorch module, and runs in linnet. Outputs are matched by
    name, then by order and shape. Each model turns pictures into its input by its own preprocessing, or by that of
    --image.
    """
    from linnet.file.atomic import write_atomic
    from linnet.quantization.accuracy import evaluation
    from linnet.report import compare as comparing
    from linnet.report import compare_text

    if len(models) < 2 and not (models and given.reference):
        raise CommandLineError(
            "one model alone cannot be compared", code=101, expected="two or more models, or one with --reference",
            got=f"{len(models)}",
        )  # fmt: skip
    if not math.isfinite(given.seconds):
        raise CommandLineError("--seconds must be a finite number", code=101, hint="for example --seconds 1")
    if given.data is None and (given.evaluate is None or not given.evaluate.is_dir()):
        raise CommandLineError(
            "no data is given",
            code=101,
            expected="--data with a file, a folder or SCRIPT.py:FUNCTION",
            hint="add --data",
        )
    measure = None if given.evaluate is None else evaluation(given.evaluate, image=given.image, note=note)
    if given.evaluate is not None and measure is None:
        note(
            f"{given.evaluate} has no sub-folders and so no labels; agreement with {models[0].name} is measured instead"
        )
    source = given.data if given.data is not None else given.evaluate
    assert source is not None
    subjects = comparing.subjects_of(
        models, threads=given.threads, reference=given.reference, input_shapes=shapes_of(given.inputs),
        user_ops=user_ops_of(given.user_ops), trust_pickle=given.trust_pickle,
    )  # fmt: skip
    paths = comparing.paths_of(models)
    found = comparing.compare(
        subjects, paths, source, measure, limit=given.samples, image=given.image, seconds=given.seconds, note=note
    )
    if given.html is not None:
        from linnet.report.tables_page import page

        title = "Comparison of " + ", ".join(paths)
        write_atomic(given.html, iter([page(title, compare_text.lines(found), compare_text.tables(found)).encode()]))
    if given.as_json:
        click.echo(json.dumps(found.to_dict()))
        return
    for line in compare_text.lines(found):
        _say(line)
    _show(*compare_text.tables(found))
