"""The command `linnet serve`: serves models over HTTP by the KServe v2 protocol.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import CommandLineError, pairs, threads_option

if TYPE_CHECKING:
    from linnet.serve import Settings

_NEEDED = ("starlette", "uvicorn", "prometheus_client")


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """The options of `linnet serve`."""

    host: str = option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0: all.")
    port: int = option(
        "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on."
    )
    max_bytes: int = option(
        "--max-bytes", type=click.IntRange(min=0), default=0, metavar="N",
        help="Limit for the memory of all models. One that does not fit is refused, with both numbers. 0: no limit.",
    )  # fmt: skip
    unload_idle: bool = option(
        "--unload-idle", is_flag=True, help="Unload models that nobody asks for if another needs their memory."
    )
    max_batch: int = option(
        "--max-batch", type=click.IntRange(min=1), default=32, show_default=True,
        help="Most rows of one run. Requests that wait share runs if the model's batch is open. 1: each runs alone.",
    )  # fmt: skip
    max_wait: float = option(
        "--max-wait", type=click.FloatRange(min=0), default=0, metavar="MS",
        help="Milliseconds for which a request may wait for others. 0: it waits only while the model runs.",
    )  # fmt: skip
    max_queue: int = option(
        "--max-queue", type=click.IntRange(min=1), default=256, show_default=True,
        help="Most requests that wait for one model. A further one gets the status 429.",
    )  # fmt: skip
    max_body: int = option(
        "--max-body", type=click.IntRange(min=1), default=64 << 20, show_default=True, help="Most bytes of one request."
    )
    max_pending: int | None = option(
        "--max-pending", type=click.IntRange(min=1), metavar="N",
        help="Most bytes of the bodies of all requests that are being read or that wait "
        "[default: 4 times --max-body, at least 268435456]",
    )  # fmt: skip
    timeout: float = option(
        "--timeout", type=click.FloatRange(min=0, min_open=True), default=30, show_default=True, metavar="SECONDS",
        help="Time after which a request gets the status 504, and its run ends.",
    )  # fmt: skip
    bounds: Sequence[str] = option(
        "--bounds", multiple=True, metavar="NAME=D,D,...",
        help="Range of each dimension of the inputs with this name: a number, a range (1..32), or ? for what the model "
        "declares. Repeat for each input. Memory is known beforehand for shapes within the bounds, and others are refused.",
    )  # fmt: skip
    signature: str = option(
        "--signature",
        default="",
        metavar="NAME",
        help="Signature to serve [default: infer, or the first that trains nothing]",
    )
    key_file: Path | None = option(
        "--key-file", type=click.Path(path_type=Path), metavar="FILE",
        help="File with the key that requests must carry: Authorization: Bearer KEY. LINNET_SERVE_KEY gives it, too.",
    )  # fmt: skip
    certificate: Path | None = option(
        "--certificate",
        type=click.Path(path_type=Path, exists=True),
        metavar="PEM",
        help="Certificate, to serve HTTPS.",
    )
    certificate_key: Path | None = option(
        "--certificate-key",
        type=click.Path(path_type=Path, exists=True),
        metavar="PEM",
        help="Private key of --certificate.",
    )
    poll: float = option(
        "--poll", type=click.FloatRange(min=0), default=1, show_default=True, metavar="SECONDS",
        help="How often to look for models that are new, changed or gone. 0: never.",
    )  # fmt: skip
    log: str = option(
        "--log",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Form of the log on stderr.",
    )
    log_requests: bool = option("--log-requests", is_flag=True, help="Log each request.")
    threads: int | None = shared(threads_option)
    kubernetes: Path | None = option(
        "--kubernetes", type=click.Path(path_type=Path), metavar="FILE",
        help="Do not serve. Write manifests with which Kubernetes serves these models by these options, with the memory that "
        "they need as the limit.",
    )  # fmt: skip
    image: str | None = option(
        "--image", metavar="NAME", help="With --kubernetes: the container image (examples/serving/Containerfile)."
    )


@click.command(short_help="Serve models over HTTP.")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", type=click.Path(path_type=Path, exists=True))
@takes(ServeOptions)
def serve(models: Sequence[Path], given: ServeOptions) -> int:
    """Serve models over HTTP by the KServe v2 protocol: .lnt files, and folders with NAME.lnt or NAME/VERSION.lnt. A page at /
    shows and tries them; /metrics is for Prometheus."""
    if (given.kubernetes is None) != (given.image is None):
        raise CommandLineError("--kubernetes and --image belong together", code=101, hint="give both, or none")
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandLineError(
            f"linnet serve needs the package {missing[0]!r}", code=101, hint="pip install 'linnet-runtime[serve]'"
        )
    from linnet.serve import Settings, app, logs
    from linnet.serve.listen import Address, run

    settings = Settings(
        max_bytes=given.max_bytes, max_batch=given.max_batch, max_wait_ms=given.max_wait, max_queue=given.max_queue,
        max_body=given.max_body, max_pending=given.max_pending or max(4 * given.max_body, 256 << 20), timeout=given.timeout,
        bounds=dict(pairs(given.bounds, "--bounds x=1..32,3,?,?")), threads=given.threads, signature=given.signature,
        key=_key(given.key_file), poll=given.poll, unload_idle=given.unload_idle,
    )  # fmt: skip
    if given.kubernetes is not None and given.image is not None:
        return _manifests(models, given, settings)
    logs.configure(given.log, given.log_requests)
    address = Address(
        host=given.host, port=given.port, certificate=given.certificate, certificate_key=given.certificate_key
    )
    if given.host not in ("127.0.0.1", "::1", "localhost") and not settings.key:
        logs.warn("anybody who reaches this address may use and unload the models", hint="give --key-file")
    started = run(app(models, settings), address, settings.body_timeout)
    return 0 if started else 1


def _manifests(models: Sequence[Path], given: ServeOptions, settings: Settings) -> int:
    """Writes the file of --kubernetes. If it has a key, only its owner may read it. Raises CommandLineError, Error."""
    from linnet.serve.kubernetes import Cluster, manifests

    assert given.kubernetes is not None and given.image is not None
    if given.certificate is not None or given.certificate_key is not None:
        raise CommandLineError(
            "--certificate has no meaning with --kubernetes", code=101, hint="let an Ingress or a Gateway serve HTTPS"
        )
    cluster = Cluster(cpus=given.threads or 1)
    text = manifests(models, image=given.image, settings=settings, cluster=cluster)
    mode = 0o600 if settings.key else 0o666
    try:
        if settings.key:
            given.kubernetes.unlink(missing_ok=True)  # others may be allowed to read an older file
        with open(given.kubernetes, "w", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            file.write(text)
    except OSError as error:
        raise CommandLineError(
            f"cannot write '{given.kubernetes}': {error.strerror or error}", code=207, tensor=str(given.kubernetes)
        ) from None
    click.echo(f"wrote {given.kubernetes}")
    return 0


def _key(path: Path | None) -> str:
    """The key in a file or in the environment; "" if there is none. Raises CommandLineError."""
    if path is None:
        return os.environ.get("LINNET_SERVE_KEY", "")
    try:
        key = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandLineError(f"cannot read the key in '{path}': {reason}", code=202, tensor=str(path)) from None
    if not key or not key.isascii() or not key.isprintable():
        raise CommandLineError(
            f"the file '{path}' has no valid key", code=101, tensor=str(path), expected="one line of printable ASCII",
            hint=f"head -c 24 /dev/urandom | base64 > {path}",
        )  # fmt: skip
    return key
