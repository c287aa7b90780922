"""`linnet compare`: compares models on the same data. linnet.cli.main adds it to its group."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import click

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


@click.command(short_help="Compare models on the same data.")
@click.argument("models", metavar="A B...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--data", type=click.Path(path_type=Path), metavar="NPZ|DIR|SCRIPT.py:FUNCTION",
    help="Samples to run: an .npz file; a folder of pictures, sounds, .npy or .npz files; or a function that gives "
    "{input name: array}. Default: the pictures of --eval.",
)  # fmt: skip
@eval_option
@click.option(
    "--samples", type=click.IntRange(1), metavar="N",
    help="Number of samples of --data. Default: 100 of a folder, all of an .npz file or function.",
)  # fmt: skip
@image_option
@click.option("--reference", is_flag=True, help="Run ONNX files in ONNX Runtime and TFLite files in LiteRT too.")
@click.option(
    "--seconds", type=click.FloatRange(0.01, 600), default=0.5, show_default=True,
    help="How many seconds to measure the latency of each model.",
)  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path), help="Write the tables as an HTML page.")
@shapes_option("Repeat for each input; it applies to all models that have the input.")
@threads_option
@trust_pickle_option
@user_ops_option
@json_option
def compare(
    models: Sequence[Path],
    data: Path | None,
    evaluate: Path | None,
    samples: int | None,
    image: str | None,
    reference: bool,
    seconds: float,
    html: Path | None,
    inputs: Sequence[str],
    threads: int | None,
    trust_pickle: bool,
    user_ops: Sequence[str],
    as_json: bool,
) -> None:
    """Compare models A, B, ... on the same data: size, memory, latency, accuracy, and agreement with A.

    Each model is an ONNX, TFLite or .lnt file or a saved PyTorch module, and runs in linnet. Outputs are matched by
    name, then by order and shape. Each model turns pictures into its input by its own preprocessing, or by that of
    --image.
    """
    from linnet.file.atomic import write_atomic
    from linnet.quantization.accuracy import evaluation
    from linnet.report import compare as comparing
    from linnet.report import compare_text

    if len(models) < 2 and not (models and reference):
        raise CommandLineError(
            "one model alone cannot be compared", code=101, expected="two or more models, or one with --reference",
            got=f"{len(models)}",
        )  # fmt: skip
    if not math.isfinite(seconds):
        raise CommandLineError("--seconds must be a finite number", code=101, hint="for example --seconds 1")
    if data is None and (evaluate is None or not evaluate.is_dir()):
        raise CommandLineError(
            "no data is given",
            code=101,
            expected="--data with a file, a folder or SCRIPT.py:FUNCTION",
            hint="add --data",
        )
    measure = None if evaluate is None else evaluation(evaluate, image=image, note=note)
    if evaluate is not None and measure is None:
        note(f"{evaluate} has no sub-folders and so no labels; agreement with {models[0].name} is measured instead")
    source = data if data is not None else evaluate
    assert source is not None
    subjects = comparing.subjects_of(
        models, threads=threads, reference=reference, input_shapes=shapes_of(inputs), user_ops=user_ops_of(user_ops),
        trust_pickle=trust_pickle,
    )  # fmt: skip
    paths = comparing.paths_of(models)
    found = comparing.compare(subjects, paths, source, measure, limit=samples, image=image, seconds=seconds, note=note)
    if html is not None:
        from linnet.report.tables_page import page

        title = "Comparison of " + ", ".join(paths)
        write_atomic(html, iter([page(title, compare_text.lines(found), compare_text.tables(found)).encode()]))
    if as_json:
        click.echo(json.dumps(found.to_dict()))
        return
    for line in compare_text.lines(found):
        _say(line)
    _show(*compare_text.tables(found))
