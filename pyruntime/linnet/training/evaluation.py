"""Evaluation: runs the `eval` signature over all data and combines its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.clib.errors import UsageError
from linnet.ir.dtypes import has_floats
from linnet.training.feeding import Data, Feed, examples, feed_of, fitted

if TYPE_CHECKING:
    from pathlib import Path

    from linnet.facade import Graph
    from linnet.session.device import Device
    from linnet.session.model import Model, Store
    from linnet.session.options import SessionOptions
    from linnet.session.session import Session


def evaluate(
    model: Graph | Model | str | Path,
    data: Data,
    *,
    batch_size: int = 32,
    signature: str = "eval",
    store: Store | None = None,
    threads: int | None = None,
    device: str | Device | None = None,
    options: SessionOptions | None = None,
) -> dict[str, Any]:
    """Returns every output of the signature, combined over all data. Floats are averaged over examples; integers
    (counts, a confusion matrix) are summed over batches. Single numbers are returned as float or int, others as arrays.

    store: variables to evaluate with, for example `history.store` with `history.model`; default: the initial values of
    a new model. data, threads, device, options and errors: as in fit.
    """
    from linnet.session.model import Model
    from linnet.session.options import SessionOptions
    from linnet.session.session import Session

    made = model if isinstance(model, Model) else Model(model)
    chosen = SessionOptions.of(options, threads=threads, device=device)
    session = Session(made, signature, store=store, **chosen.fields)
    feed = feed_of(data, session.inputs, batch_size=batch_size, shuffle=False, seed=0, training=False)
    return over(session, feed)


def over(session: Session, feed: Feed, known: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the outputs of a session, combined over one epoch. known: names that batches may contain although the
    session does not take them."""
    specs = {spec.name: spec for spec in session.inputs}
    totals: dict[str, Any] = {}
    count = 0
    for batch, _ in feed.epoch(0, 0):
        feeds = fitted(batch, specs, known)
        rows = examples(feeds)
        for name, value in session.run(feeds).items():
            part = value.astype(np.float64) * rows if has_floats(value) else value.astype(np.int64)
            if name in totals and totals[name].shape != part.shape:
                raise UsageError(
                    f"the shape of output {name!r} changes from batch to batch", code=104, tensor=name,
                    expected=str(list(totals[name].shape)), got=str(list(part.shape)),
                    hint="evaluate means and counts, not rows",
                )  # fmt: skip
            totals[name] = totals[name] + part if name in totals else part
        count += rows
    made = {name: value / count if has_floats(value) else value for name, value in totals.items()}
    return {name: value.reshape(()).item() if value.size == 1 else value for name, value in made.items()}


def checked_signature(model: Model, name: str, purpose: str) -> None:
    """Raises UsageError if the model lacks the signature."""
    if name not in model.signatures:
        raise UsageError(
            f"the model has no signature {name!r} {purpose}", code=102, tensor=name,
            expected=" or ".join(model.signatures) or "a signature",
            hint="linnet.training.signatures(..., accumulate=True) adds it"
            if name in ("accumulate", "apply")
            else f"graph.signature({name!r}, {{inputs}}, {{'loss': loss}}"
            + (", updates=optimizer.minimize(loss))" if name == "train" else ")"),
        )  # fmt: skip
