"""Options that several commands share, and the parsing of arguments of the form NAME=VALUE. A command line that is
wrong in itself raises CommandLineError."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from linnet.cli.declared import Adding, gathers
from linnet.clib.errors import UsageError, nearest
from linnet.clib.precision import PRECISIONS

if TYPE_CHECKING:
    from linnet.ir.user_op import UserOp
    from linnet.session.options import SessionOptions

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class CommandLineError(UsageError):
    """The command line itself is wrong, independent of any file's content. The exit status is 2."""


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
json_lines_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    help="Number of threads. Default: the number of cores in the largest CPU cluster.",
)


def shapes_option(sizes: str = "Repeat for each input.") -> Callable[[Decorated], Decorated]:
    """The option --shape. In commands without an option for values of inputs, it is also called --input. sizes: the end
    of its help text."""
    return click.option(
        "--input", "--shape", "inputs", multiple=True, metavar="NAME=D,D,...", help=f"Shape of an input. {sizes}"
    )


class DtypeChoice(click.Choice):  # type: ignore[type-arg]
    """One of linnet's names for dtypes. NumPy's names ("int8") are understood too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from linnet.ir.dtypes import named

        return super().convert(named(value) if isinstance(value, str) else value, param, ctx)


isa_max_option = click.option("--isa-max", metavar="NAME", help="Kernels use no more than this instruction set.")
precision_option = click.option(
    "--precision",
    type=DtypeChoice(PRECISIONS),
    default="f32",
    show_default=True,
    help="Precision in which kernels and devices may compute sums of floats. direct: f32 without Winograd's method.",
)
tuning_option = click.option(
    "--tuning",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Use the kernels that this file names. `linnet tune` writes such a file.",
)
strict_dims_option = click.option(
    "--strict-dims",
    is_flag=True,
    default=None,
    help="Fail if open dimensions with the same name get different sizes; by default this is only a warning.",
)
signature_option = click.option(
    "--signature", default="infer", show_default=True, help="Signature (entry point) of the model."
)

user_ops_option = click.option(
    "--user-ops",
    multiple=True,
    metavar="FILE|MODULE[:NAME]",
    help="User ops that the model names: a shared library, a Python file or a module. May be repeated.",
)

trust_pickle_option = click.option(
    "--trust-pickle",
    is_flag=True,
    help="Read modules that torch.save pickled. This runs any code that the file names.",
)

image_option = click.option(
    "--image",
    metavar="NAME[,KEY=VALUE...]",
    help="Add the steps from a picture to the model's input: imagenet (as in torchvision and timm), unit (0..1), "
    "symmetric (-1..1) or raw (0..255). Details: mean=0.5:0.4:0.3,std=0.2,layout=NHWC,input=x,colour=BGR,fit=letterbox, ... "
    "(docs/preprocess.md).",
)
labels_option = click.option(
    "--labels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Let the model return its 5 best classes with their labels: one label per line, `NUMBER: LABEL`, CSV or JSON.",
)
calibration_option = click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="NPZ|DIR|PICTURE|SCRIPT.py:FUNCTION",
    help="Sample inputs for quantization: an .npz file; a picture or sound, or a folder of pictures, sounds, .npy or .npz "
    "files; or a function that gives {input name: array}.",
)
eval_option = click.option(
    "--eval",
    "evaluate",
    type=click.Path(path_type=Path),
    metavar="DIR|SCRIPT.py:FUNCTION",
    help="Measure accuracy: a folder with a sub-folder of pictures for each class, or a function. It gets one argument, "
    "a function run(feeds), and returns a number or {name: number}; higher is better.",
)
samples_option = click.option(
    "--samples",
    type=click.IntRange(1),
    metavar="N",
    help="Number of calibration samples, spread evenly over the files. Default: 100 of a folder, all of an .npz file or "
    "function.",
)

training_data_option = click.option(
    "--data", required=True, metavar="FILE", help="FILE.npz, NAME=FILE,... (.npy or idx files), or a folder of images."
)
order_seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed for the order of the examples."
)

devices_option = click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME|PATH",
    help="Device that runs the steps it can: a name such as opencl or opencl:1,f16=on, or the path of a device's "
    "library. May be repeated, in order of preference. `linnet devices` lists names.",
)


def _placement(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, str] | None:
    """The places of --placement, given as NODE=DEVICE or as JSON files, in their order."""
    from linnet.session.options import read_placement

    found: dict[str, str] = {}
    for text in given:
        node, equals, device = text.partition("=")
        if equals:
            found.setdefault(node, device)
        else:
            found |= {name: place for name, place in read_placement(Path(text)).items() if name not in found}
    return found or None


placement_option = click.option(
    "--placement",
    multiple=True,
    callback=_placement,
    metavar="NODE=DEVICE|FILE.json",
    help="Place nodes by name, whatever they cost there: conv_0=opencl, '*=cpu', or a JSON file {NODE: DEVICE}. * stands "
    "for any characters. May be repeated; the first name that fits a node counts.",
)

cluster_option = click.option(
    "--cluster",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The machines that the model's device scopes name: a cluster.toml (docs/machines.md).",
)

max_bytes_option = click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Fail if the model needs more bytes than this. To stay below it, a training step may compute values again "
    "instead of keeping them. Loops reserve the bytes that are left. 0: no limit.",
)
max_device_bytes_option = click.option(
    "--max-device-bytes",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Fail if the plan needs more bytes than this on one of the devices. 0: no limit.",
)
on_loss_option = click.option(
    "--on-loss",
    type=click.Choice(["fail", "replan", "retry"]),
    default="fail",
    show_default=True,
    help="If a host is lost during a run: fail; plan again without it and run again; or wait for it to come back, at most "
    "for its lease.",
)


def refuse_same(output: Path | None, model: Path) -> None:
    """Raises CommandLineError if a command would overwrite its input."""
    if output is not None and output.exists() and model.exists() and output.samefile(model):
        raise CommandLineError(
            "the output file is the same file as the input model", code=101, tensor=str(output),
            hint="give another output path",
        )  # fmt: skip


# The command-line option of each field of linnet.SessionOptions that commands set.
_SESSION: dict[str, Adding] = {
    "threads": threads_option,
    "isa_max": isa_max_option,
    "precision": precision_option,
    "devices": devices_option,
    "placement": placement_option,
    "cluster": cluster_option,
    "max_bytes": max_bytes_option,
    "max_device_bytes": max_device_bytes_option,
    "tuning": tuning_option,
}


def session_options(*fields: str, on_loss: bool = False) -> Adding:
    """Adds the options that say where and how a command's sessions compute: one option for each of these fields of
    linnet.SessionOptions, or for all of its fields, of which on_loss only if it is asked for. The command receives them as
    one argument `options`. Without --device, LINNET_DEVICE names the device (`linnet launch`)."""
    taken = {field: _SESSION[field] for field in fields or _SESSION}
    if on_loss:
        taken["on_loss"] = on_loss_option

    def make(**given: Any) -> SessionOptions:
        from linnet.session.options import SessionOptions

        options = SessionOptions(**given)
        return options.or_device(os.environ.get("LINNET_DEVICE", "")) if "devices" in taken else options

    return gathers("options", taken, make)


def user_ops_of(items: Sequence[str]) -> list[UserOp]:
    """The ops of --user-ops: those of a C library, or the linnet.UserOp objects of a Python file or module."""
    from linnet.ir.user_op import UserOp, load_user_ops

    found: list[UserOp] = []
    for item in items:
        if item.endswith((".so", ".dylib", ".dll")):
            found += load_user_ops(item)
            continue
        where, _, name = item.partition(":")
        values = _module(where)
        made = [values.get(name)] if name else list(dict.fromkeys(v for v in values.values() if isinstance(v, UserOp)))
        if not made or not all(isinstance(op, UserOp) for op in made):
            raise CommandLineError(
                f"--user-ops {item}: there is no linnet.UserOp", code=101,
                expected=f"a variable '{name}' with a linnet.UserOp" if name else "a variable with a linnet.UserOp",
            )  # fmt: skip
        found += [op for op in made if isinstance(op, UserOp)]
    return found


def _module(where: str) -> dict[str, Any]:
    """The variables of a Python file or module."""
    try:
        if where.endswith(".py"):
            return runpy.run_path(where, run_name="linnet_user_ops")
        return vars(import_module(where))
    except Exception as error:
        raise CommandLineError(
            f"--user-ops {where}: cannot be imported: {type(error).__name__}: {error}", code=101, tensor=where,
            expected="a shared library (.so), a Python file (.py) or the name of a module",
        ) from error  # fmt: skip


def pairs(items: Sequence[str], example: str) -> list[tuple[str, str]]:
    """Splits NAME=VALUE arguments at the first "=". Name and value must not be empty."""
    pairs: list[tuple[str, str]] = []
    for item in items:
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            raise CommandLineError(
                f"{item!r} does not have the form NAME=VALUE", code=101, expected=f"for example {example}"
            )
        if any(name == other for other, _ in pairs):
            raise CommandLineError(f"{name!r} is given more than once", code=101, hint="give each input once")
        pairs.append((name, value))
    return pairs


def known(name: str, specs: Collection[str]) -> None:
    if name not in specs:
        expected = nearest(name, specs) or "a model with inputs"
        raise UsageError(f"the model has no input named {name!r}", code=102, tensor=name, expected=expected)


def shape_of(name: str, text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(d) for d in text.replace("x", ",").split(","))
        if min(shape) < 0:
            raise ValueError
    except ValueError:
        raise CommandLineError(
            f"the shape of {name!r} is invalid",
            code=101,
            expected="non-negative integers such as 1,3,224,224",
            got=text,
        ) from None
    return shape


def shapes_of(items: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The values of --shape."""
    return {name: shape_of(name, text) for name, text in pairs(items, "--shape x=1,3,224,224")}


def note(text: str) -> None:
    """Prints a text that is not an error to stderr."""
    click.echo(f"linnet: note: {text}", err=True)


def note_batches(assumed: Mapping[str, Sequence[int]]) -> None:
    """Prints to stderr which inputs got a batch size that the user did not give."""
    for name, shape in assumed.items():
        taken, other = ", ".join(map(str, shape)), ",".join(map(str, (8, *shape[1:])))
        note(
            f"the batch size of input {name!r} is open, so it is taken as {shape[0]}: [{taken}]; --shape {name}={other} sets "
            "another"
        )


def dims(shape: Any) -> str:
    return "[?]" if shape is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"
