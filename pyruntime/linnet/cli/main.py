"""The command `linnet` with its subcommands convert, quantize, compare, debug-quant, inspect, verify, run, pack, plan, place,
bench, tune, devices, check-device, host, serve, deploy, report, search, explain and those for training. A failure prints one
line to stderr and gives exit status 1, or 2 if the command line itself is wrong. Output files are written only after everything
has succeeded."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import click

from linnet.cli import sync as cli_sync
from linnet.cli import training as cli_training
from linnet.cli import verify as cli_verify
from linnet.cli.bench import bench
from linnet.cli.check_device import check_device
from linnet.cli.compare import compare
from linnet.cli.convert import convert
from linnet.cli.debug_quant import debug_quant
from linnet.cli.deploy import deploy
from linnet.cli.devices import devices
from linnet.cli.explain import explain
from linnet.cli.host import host
from linnet.cli.inspect import inspect
from linnet.cli.options import CommandLineError
from linnet.cli.pack import pack
from linnet.cli.placing import place
from linnet.cli.plan import plan
from linnet.cli.quantize import quantize
from linnet.cli.report import report
from linnet.cli.run import run
from linnet.cli.search import search
from linnet.cli.serve import serve
from linnet.cli.tune import tune
from linnet.cli.words import command_line_words
from linnet.clib.errors import ConversionError, Error
from linnet.clib.version import __version__
from linnet.report.tables import show as _show


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="linnet", message="%(prog)s %(version)s")
def cli() -> None:
    """Convert, inspect, run, plan, benchmark and train models.

    The first word of an error, such as wrong_shape, is its code: linnet explain wrong_shape prints the usual causes.
    """


for _command in (
    convert,
    quantize,
    compare,
    debug_quant,
    inspect,
    run,
    pack,
    plan,
    place,
    bench,
    tune,
    devices,
    check_device,
    host,
    serve,
    deploy,
    report,
    search,
    explain,
):
    cli.add_command(_command)
cli.add_command(cli_verify.verify)
cli.add_command(cli_training.export)
cli.add_command(cli_training.train)
cli.add_command(cli_training.finetune)
for _command in cli_sync.COMMANDS:
    cli.add_command(_command)


def main() -> NoReturn:
    """Entry point of the console script. If the caller has closed a stream, its text is discarded until the end."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    warnings.showwarning = partial(_warn, _command_of(sys.argv[1:]))
    sys.exit(_main(sys.argv[1:]))


def _command_of(arguments: Sequence[str]) -> click.Command | None:
    return cli.commands.get(arguments[0]) if arguments else None


def _main(arguments: Sequence[str]) -> int:
    command = _command_of(arguments)
    try:
        result = cli.main(list(arguments), prog_name="linnet", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except ConversionError as error:
        from linnet.report.text import problem_table

        one, what = len(error.problems) == 1, error.tensor or "the model"
        problems = [
            dataclasses.replace(
                problem,
                reason=command_line_words(problem.reason, command),
                hint=command_line_words(problem.hint, command),
            )
            for problem in error.problems
        ]
        _fail(str(problems[0]) if one else f"cannot convert {what}: {len(problems)} problems")
        if not one:
            _show(problem_table(problems), error=True)
        if "--json" in arguments:
            click.echo(json.dumps({"problems": [vars(problem) for problem in problems]}))
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            click.echo(error.format_message(), err=True)
        else:
            path = "linnet" if context is None else context.command_path
            _fail(f"{error.format_message().rstrip('.')}; see {path} --help")
        return 2 if isinstance(error, click.UsageError) else 1
    except (KeyboardInterrupt, click.Abort):
        kept = any(word.split("=")[0] == "--directory" for word in arguments)
        _fail("interrupted; run the same command again to continue" if kept else "interrupted")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output has closed the pipe
    except MemoryError:
        _fail("out of memory")
    except Error as error:
        _fail(command_line_words(str(error), command))
        return 2 if isinstance(error, CommandLineError) else 1
    except OSError as error:
        _fail(f"cannot write the output: {error.strerror or error}; the output may be missing or incomplete")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ModuleNotFoundError as error:
        name = (error.name or "?").split(".")[0]
        _fail(
            f"the package {name!r} is not installed; reinstall linnet with its dependencies, or run pip install {name}"
        )
    except Exception as error:
        if os.environ.get("LINNET_TRACEBACK"):
            raise
        _fail(f"{type(error).__name__}: {error} (please report this; set LINNET_TRACEBACK=1 to see the traceback)")
    return 1


def _warn(command: click.Command | None, message: Warning | str, *_: object) -> None:
    click.echo("linnet: warning: " + command_line_words(str(message), command), err=True)


def _fail(*messages: str) -> None:
    for message in messages:
        click.echo("linnet: error: " + " ".join(message.split()), err=True)


if __name__ == "__main__":
    main()
