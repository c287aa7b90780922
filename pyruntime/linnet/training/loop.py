"""`fit` itself: arguments to a run, and the loop over epochs and batches. A run is a function of the graph, the data, the
arguments and nothing else: not of threads, of time, or of how often it was interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.data.loader import Augment
from linnet.data.source import Arrays, Source
from linnet.errors import Error, FileError, TrainingError, UsageError
from linnet.graph import Graph
from linnet.model import Model
from linnet.session import Session
from linnet.training import manifest
from linnet.training.callbacks import Callback
from linnet.training.evaluation import checked_signature
from linnet.training.feeding import Data, feed_of
from linnet.training.history import History
from linnet.training.progress import progress_bar
from linnet.training.run import Run
from linnet.training.saver import BEST, Saver

if TYPE_CHECKING:
    from linnet.sync.fitting import Company
    from linnet.sync.roles import Cluster
    from linnet.sync.strategy import Strategy


def fit(
    model: Graph | Model | str | Path | Callable[[], Graph],
    data: Data,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = 32,
    validation: Data | float | None = None,
    validate_every: int | None = None,
    shuffle: bool = True,
    augment: Sequence[Augment] = (),
    seed: int = 0,
    directory: str | Path | None = None,
    resume: bool | str | Path = False,
    saver: Saver | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    accumulate: int = 1,
    log_every: int = 10,
    threads: int | None = None,
    train: str = "train",
    eval: str = "eval",
    cluster: Cluster | None = None,
    strategy: Strategy | None = None,
) -> History:
    """Trains a model and returns what became of it.

    model: a graph with a signature `train` (see Optimizer.minimize), a function that builds one, or a .lnt file (whose
    checkpoints linnet-train and the C library take, too, as those of the graph that was saved as this file). A graph stays as
    it is: the trained values are in `history.store` and `history.graph`.
    data: {input name: array}, arrays in the order of the signature's inputs, a source or Loader of linnet.data, or a
    function that gives the batches of an epoch. epochs, steps: how long; with both, what is reached first; 1 epoch by
    default. batch_size, shuffle, augment: for data that is no Loader; a batch that is fixed in the graph decides itself.
    validation: data for the signature `eval` (a number: this share of the data, taken out at random), run after every
    epoch, or every `validate_every` steps. seed: of shuffling and augmentation; first values and dropout follow the
    graph's own seed.
    accumulate: batches whose gradients are added up for one step, for batches that do not fit into memory; it needs the
    signatures of linnet.training.signatures(accumulate=True). The last step of an epoch may have fewer.
    directory: where checkpoints, metrics.jsonl and manifest.json go. saver: when to write checkpoints; Saver() by default.
    resume: go on from the latest checkpoint of the directory (from the start when there is none), or from the given one.
    What follows is bit for bit what would have followed: 10 steps and 10 more are 20 steps. callbacks: early stopping,
    TensorBoard, your own. progress: a bar; None: on a terminal only. log_every: steps between step metrics in the history.
    threads: as in Session; results do not depend on it.
    cluster: this process's place in a job of many (linnet.sync.cluster()), strategy: how its workers train together
    (linnet.sync.Strategy). The model then needs the signatures of linnet.sync.signatures; each worker takes one of as many
    batches in turn as there are workers, so that `accumulate` of one process becomes workers, with the same bits; worker 0
    alone validates, records and saves; resume=True goes on from the servers' snapshots. A process that is a server returns
    when the workers have left. In a job of one process nothing differs.

    Ctrl-C and SIGTERM let the step end, save, and then do what they do. A loss that is not finite raises TrainingError, which
    names step, op and tensor, and the last good checkpoint stays. Wrong data raises UsageError or GraphError (an index out
    of range) with the place in the data; with a directory, the state before it is saved.
    """
    made, graph = _model(model)
    place = None if directory is None else Path(directory)
    company = None
    if cluster is not None and not cluster.alone:
        company = _company(cluster, strategy, made, graph, accumulate, train, getattr(data, "batch_size", batch_size))
        if company.serves_only:
            return _serve(company, made, graph, place, resume is True)
        made, train, accumulate, place = company.model, company.signature, 1, company.directory(place)
        validation = validation if cluster.is_chief or isinstance(validation, int | float) else None
    if accumulate > 1:
        train = "accumulate"
        checked_signature(made, "apply", "to train by accumulated gradients")
    checked_signature(made, train, "to train by")
    if accumulate < 1:
        raise UsageError("no such accumulation", code=101, expected="1 or more batches", got=repr(accumulate))
    if steps is None and epochs is None:
        epochs = 1
    inputs = made.inputs(train)
    if isinstance(validation, int | float):
        data, validation = _source(data, inputs).split(validation, seed)
        validation = validation if company is None or company.cluster.is_chief else None
    feed = feed_of(data, inputs, batch_size=batch_size, shuffle=shuffle, seed=seed, augment=augment)
    saver = saver or Saver()
    run: Run
    if company is None:
        run = Run(made, train, feed, [*callbacks, *progress_bar(progress)], saver, place, threads, accumulate)
    else:
        feed = company.share(feed)
        watching = [*callbacks, *progress_bar(progress)] if company.cluster.is_chief else callbacks
        run = company.run(made, train, feed, watching, saver, place, threads)
    run.history.source, run.log_every, run.total = graph, log_every, _total(epochs, steps, feed.length, accumulate)
    description = {"model": made.metadata("digest"), "signature": train, "seed": seed, "accumulate": accumulate}
    description |= feed.description
    if validation is not None:
        checked_signature(made, eval, "to validate by")
        session = Session(made, eval, store=run.store, threads=threads)
        watched = feed_of(
            validation, session.inputs, batch_size=batch_size, shuffle=False, seed=seed, training=False
        )  # fmt: skip
        run.validate = session, watched
        run.known = [spec.name for spec in (*inputs, *session.inputs)]
        description["validation"] = watched.description["data"]
    _begin(run, resume if company is None or company.cluster.is_chief else False, description, threads)

    start = time.monotonic()
    with _Signals() as signals:
        try:
            with run.joined(resume is True):
                for callback in run.callbacks:
                    callback.on_start(run)
                _loop(run, epochs, steps, validate_every, signals)
        except BaseException as error:
            run.failed = True
            if not isinstance(error, TrainingError):  # the step before is whole
                with contextlib.suppress(Error):
                    saver.save(run)
            raise
        finally:
            for callback in run.callbacks:
                callback.on_end(run)
    history = run.history
    history.step, history.epoch, history.stopped = run.step, run.epoch, run.stopping
    history.seconds = time.monotonic() - start
    if saver.best is not None and saver.best_value is not None:
        history.best = {"metric": saver.best[0], "value": saver.best_value, "step": saver.best_step}
        history.best_path = None if place is None else place / BEST
    return history


def _loop(run: Run, epochs: int | None, steps: int | None, every: int | None, signals: _Signals) -> None:
    """Steps until there are enough, or something stops the run."""

    def enough() -> bool:
        return (steps is not None and run.step >= steps) or (epochs is not None and run.epoch >= epochs)

    while not run.stopping and not enough():
        with contextlib.closing(run.feed.epoch(run.epoch, run.batch)) as batches:
            for batch, last in batches:
                metrics = run.advance(batch, last)
                if metrics is None and not run.stopping:
                    continue
                if metrics is None:
                    break
                for callback in run.callbacks:
                    callback.on_step(run, metrics)
                if last if every is None else run.step % every == 0:
                    run.record()
                run.saver.after_step(run, last)
                if signals.number:
                    run.stop(signal.Signals(signals.number).name)
                if run.stopping or enough():
                    break
    run.saver.save(run)
    if run.unrecorded and not signals.number:
        run.record(scheduled=False)


def _company(
    cluster: Cluster, strategy: Strategy | None, model: Model, graph: Graph | None, accumulate: int, train: str,
    batch_size: int,
) -> Company:  # fmt: skip
    """This process's part in a job of several. UsageError when accumulation is not by these workers."""
    from linnet.sync.fitting import Company
    from linnet.sync.strategy import Strategy

    if accumulate not in (1, cluster.world_size):
        raise UsageError(
            "workers take the place of accumulation", code=101, tensor="accumulate", expected=f"1 or {cluster.world_size}",
            got=str(accumulate),
        )  # fmt: skip
    if train != "train":
        raise UsageError("a job trains by its own signatures", code=101, tensor="train", expected="train", got=train)
    return Company(cluster, strategy or Strategy(), model, graph, batch_size)


def _serve(company: Company, model: Model, graph: Graph | None, place: Path | None, resumed: bool) -> History:
    """A process that is a server: until the workers have left, or it is told to end. store: what they trained here."""
    start = time.monotonic()
    with _Signals() as signals:
        serving = company.serving(place, resumed)
        history = History(serving.model, serving.store, source=graph if serving.model is model else None)
        with serving.running():
            serving.wait_for_the_workers(lambda: not signals.number)
    history.seconds = time.monotonic() - start
    return history


def _model(model: Any) -> tuple[Model, Graph | None]:
    """The model, and the graph it was made of, if it was."""
    if callable(model) and not isinstance(model, Graph | Model):
        model = model()
        if not isinstance(model, Graph):
            raise UsageError(
                "the function gives no graph", code=101, expected="a linnet.Graph", got=type(model).__name__
            )
    if isinstance(model, Model):
        return model, None
    if not isinstance(model, Graph):
        return Model(model), None
    return Model(model), model


def _source(data: Any, inputs: Sequence[Any]) -> Source:
    """Data of which a share can be taken out."""
    if isinstance(data, Source):
        return data
    if isinstance(data, Mapping):
        return Arrays(data)
    if isinstance(data, Sequence) and len(data) == len(inputs):
        return Arrays({spec.name: value for spec, value in zip(inputs, data, strict=True)})
    raise UsageError(
        "no share of this data can be taken out for validation", code=101, expected="arrays or a source",
        got=type(data).__name__, hint="give the validation data itself",
    )  # fmt: skip


def _total(epochs: int | None, steps: int | None, length: int | None, accumulate: int) -> int | None:
    """Steps of the whole run; None when only the data tells."""
    found = [steps] if steps is not None else []
    if epochs is not None and length is not None:
        found.append(epochs * -(-length // accumulate))
    return min(found, default=None)


def _begin(run: Run, resume: bool | str | Path, description: dict[str, Any], threads: int | None) -> None:
    """The run's directory, and where the run begins. Raises UsageError when the directory holds another run."""
    directory = run.directory
    if directory is None:
        if resume is True:
            raise UsageError("there is nothing to resume without a directory", code=101, hint="give a directory")
        if resume:
            run.load(Path(resume))
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        latest, old = run.checkpoint(), (directory / manifest.NAME).exists()
        if resume is True and (latest is not None or old):
            if latest is not None:
                run.load(latest)
                content = manifest.resume(directory, description, run.step)
            else:  # it ended before there was anything to go on with
                content = manifest.describe(description, threads)
            run.metrics.go_on(run.step)
        elif latest is not None or old:
            raise UsageError(
                f"'{directory}' holds a run already", code=101, tensor=str(directory),
                got=f"its checkpoint {latest.name}" if latest is not None else "its manifest",
                hint="go on with resume=True, or give another directory",
            )  # fmt: skip
        else:
            content = manifest.describe(description, threads)
            if resume is not True and resume:
                run.load(Path(resume))
                content["from"] = str(resume)
        manifest.write(directory, content)
    except OSError as error:
        if isinstance(error, Error):
            raise
        raise FileError(
            f"cannot write to '{directory}': {error.strerror or error}", code=207, tensor=str(directory),
            hint="give a folder that can be written to",
        ) from None  # fmt: skip


class _Signals:
    """Ctrl-C and SIGTERM while training: the step ends first. A second one is not waited for."""

    def __enter__(self) -> _Signals:
        self.number = 0
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: object) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.number and error[0] is None:
            signal.raise_signal(self.number)  # now for whoever was there before
