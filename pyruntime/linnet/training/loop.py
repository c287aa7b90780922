"""`fit`: turns its arguments into a run, and loops over epochs and batches. A run depends only on the graph, the data
and the arguments. It does not depend on threads, time or interruptions."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from linnet.clib.arguments import at_least
from linnet.clib.errors import Error, TrainingError, UsageError
from linnet.data.loader import Augment
from linnet.facade import Graph
from linnet.session.device import Device
from linnet.session.model import Model
from linnet.session.options import SessionOptions
from linnet.session.session import Session
from linnet.training.callbacks import Callback
from linnet.training.evaluation import checked_signature
from linnet.training.feeding import BATCH, Data, feed_of
from linnet.training.history import History
from linnet.training.job import Cluster, Company
from linnet.training.progress import progress_bar
from linnet.training.run import RunParts, TrainingRun
from linnet.training.run_setup import begin, model_of, source_of, total_of
from linnet.training.saver import BEST, Saver


def fit(
    model: Graph | Model | str | Path | Callable[[], Graph],
    data: Data,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
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
    device: str | Device | None = None,
    options: SessionOptions | None = None,
    train: str = "train",
    eval: str = "eval",
    cluster: Cluster | None = None,
    strategy: Any = None,
) -> History:
    """Trains a model and returns its History.

    model: a graph with a signature `train` (see Optimizer.minimize), a function that builds one, or a .lnt file.
        Checkpoints of the file, and of the graph that was saved as this file, also work in linnet-train and the C
        library. The graph is not changed; the trained values are in `history.store` and `history.graph`.
    data: {input name: array}, arrays in the order of the signature's inputs, a source or Loader of linnet.data, or a
        function that returns the batches of an epoch.
    epochs, steps: when to stop; with both, whichever is reached first; default: 1 epoch.
    batch_size, shuffle, augment: for data that is not a Loader; a batch size that is fixed in the graph takes
        precedence. Default: 32 examples, or all of them if there are fewer. A batch larger than the data is rejected.
    validation: data for the signature `eval`. A number means this fraction of the data, chosen at random. Validation
        runs after every epoch or every `validate_every` steps.
    seed: for shuffling and augmentation; initial values and dropout use the graph's own seed.
    accumulate: number of batches whose gradients are added up for one step, for batches that do not fit into memory. It
        needs the signatures of linnet.training.signatures(accumulate=True). The last step of an epoch may have fewer
        batches.
    directory: for checkpoints, metrics.jsonl and manifest.json. Two processes cannot train in one directory.
    saver: when to write checkpoints; default Saver().
    resume: continue from the latest checkpoint in the directory (from the start if there is none), or from the given
        one. The result is bit-identical to an uninterrupted run: 10 steps and then 10 more give the same bits as 20
        steps.
    callbacks: early stopping, TensorBoard, your own.
    progress: show a progress bar; None: only on a terminal.
    log_every: the history keeps the metrics of every `log_every`-th step.
    threads: as in Session; results do not depend on it.
    device: as in Session: the device that trains and validates, such as "cuda" or "opencl:1". Variables stay on it
        between steps. Its results repeat bit for bit, and differ from the CPU's within the accuracy of floats.
        Default: the device that `linnet launch --device` gives to this process of the cluster, or the CPU.
    options: further options of the run's sessions, for example SessionOptions(max_bytes=..., placement=...).
    cluster: this process's place in a job with several processes (linnet.sync.cluster()).
    strategy: how the workers of the job train together (linnet.sync.Strategy). The model then needs the signatures of
        linnet.sync.signatures. Of N consecutive batches, each of the N workers takes one. So N workers give the same
        bits as one process with `accumulate=N`. Only worker 0 validates, records and saves. resume=True continues from
        the servers' snapshots. In a worker's history, the loss is the mean over all workers; other metrics are those of
        this worker. A server process returns when the workers have left. Its history has one record per second, with
        the mean loss of the steps since the previous record. In a job with one process, cluster has no effect.

    On Ctrl-C or SIGTERM, the current step ends and the state is saved; then the signal takes its usual effect. A loss
    that is not finite raises TrainingError, which names step, op and tensor; the last good checkpoint is kept. Wrong
    data raises UsageError or GraphError (an index out of range) with the position in the data. If there is a directory,
    the state before the error is saved. If the first step of a new run fails, nothing of the run stays in the
    directory.
    """
    made, graph = model_of(model)
    place = None if directory is None else Path(directory)
    chief = cluster is None or cluster.alone or cluster.is_chief
    company = None
    if cluster is not None and not cluster.alone:
        batch = getattr(data, "batch_size", batch_size or BATCH)
        company = cluster.company(strategy, made, graph, accumulate, train, batch)
        if company.serves_only:
            return _serve(company, made, graph, place, resume is True)
        made, train, accumulate, place = company.model, company.signature, 1, company.directory(place)
        validation = validation if chief or isinstance(validation, int | float) else None
    chosen = SessionOptions.of(options, threads=threads, device=device)
    if cluster is not None:
        chosen = chosen.or_device(cluster.local_device)
    train = _checked(made, train, accumulate)
    for name, limit in (("epochs", epochs), ("steps", steps)):
        if limit is not None:
            at_least(name, limit, 0)
    if steps is None and epochs is None:
        epochs = 1
    if isinstance(validation, int | float):
        data, validation = source_of(data, made.inputs(train)).split(validation, seed)
        validation = validation if chief else None
    feed = feed_of(data, made.inputs(train), batch_size=batch_size, shuffle=shuffle, seed=seed, augment=augment)
    saver = saver or Saver()
    watching = [*callbacks, *progress_bar(progress)] if chief else callbacks
    if company is not None:
        feed = company.share(feed)
    parts = RunParts(made, train, feed, watching, saver, place, chosen, accumulate)
    run = TrainingRun(parts) if company is None else company.run(parts)
    run.history.source, run.log_every, run.total = graph, log_every, total_of(epochs, steps, feed.length, accumulate)
    description = {"model": made.metadata("digest"), "signature": train, "seed": seed, "accumulate": accumulate}
    description |= feed.description
    if validation is not None:
        description["validation"] = _validate_by(run, eval, validation, batch_size, seed)
    resume = resume or (company is not None and company.again and place is not None)
    with contextlib.ExitStack() as held:
        begin(run, resume if chief else False, description, held)
        start = time.monotonic()
        _train(run, epochs, steps, validate_every, resume is True)
    return _finished(run, saver, time.monotonic() - start)


def _checked(model: Model, train: str, accumulate: int) -> str:
    """Returns the signature that runs each batch. Raises UsageError if the model lacks this signature or the signature
    that applies accumulated gradients."""
    if accumulate > 1:
        train = "accumulate"
        checked_signature(model, "apply", "for training with accumulated gradients")
    checked_signature(model, train, "for training")
    if accumulate < 1:
        raise UsageError("accumulate is out of range", code=101, expected="1 or more batches", got=repr(accumulate))
    return train


def _validate_by(run: TrainingRun, signature: str, data: Data, batch_size: int | None, seed: int) -> Any:
    """Makes the run validate with this data, and returns a description of the data."""
    checked_signature(run.model, signature, "for validation")
    session = Session(run.model, signature, store=run.store, **run.options.fields)
    feed = feed_of(data, session.inputs, batch_size=batch_size, shuffle=False, seed=seed, training=False)
    run.validate = session, feed
    run.known = [spec.name for spec in (*run.model.inputs(run.signature), *session.inputs)]
    return feed.description["data"]


def _train(run: TrainingRun, epochs: int | None, steps: int | None, every: int | None, resumed: bool) -> None:
    """Runs the loop with its callbacks and the saver. If a step fails, the state before this step is saved."""
    with _Signals() as signals:
        try:
            with run.joined(resumed):
                for callback in run.callbacks:
                    callback.on_start(run)
                _loop(run, epochs, steps, every, signals)
        except BaseException as error:
            run.failed = True
            nothing = run.forget is not None and run.step == run.begun
            if not nothing and not isinstance(error, TrainingError):  # the previous step is complete
                with contextlib.suppress(Error):
                    run.saver.save(run)
            raise
        finally:
            for callback in run.callbacks:
                callback.on_end(run)
            if run.failed and run.forget is not None and run.step == run.begun:
                run.forget()


def _finished(run: TrainingRun, saver: Saver, seconds: float) -> History:
    history = run.history
    history.step, history.epoch, history.stopped = run.step, run.epoch, run.stopping
    history.seconds = seconds
    if saver.best is not None and saver.best_value is not None:
        history.best = {"metric": saver.best[0], "value": saver.best_value, "step": saver.best_step}
        history.best_path = None if run.directory is None else run.directory / BEST
    return history


def _loop(run: TrainingRun, epochs: int | None, steps: int | None, every: int | None, signals: _Signals) -> None:
    """Runs steps until the requested number is reached or something stops the run."""

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


def _serve(company: Company, model: Model, graph: Graph | None, place: Path | None, resumed: bool) -> History:
    """Runs a process that is only a server, until the workers have left or it is told to end. The store of the History
    then holds the trained values of this server's variables."""
    start = time.monotonic()
    with _Signals() as signals:
        serving = company.serving(place, resumed)
        company.begun()
        history = History(serving.model, serving.store, source=graph if serving.model is model else None)
        with serving.running():
            serving.wait_for_the_workers(lambda: not signals.number)
    history.records = serving.records
    history.step = int(history.records[-1]["step"]) if history.records else 0
    history.seconds = time.monotonic() - start
    return history


class _Signals:
    """Handles Ctrl-C and SIGTERM while training: the current step ends first. A second signal takes effect at once."""

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
            signal.raise_signal(self.number)  # now for the previous handler
