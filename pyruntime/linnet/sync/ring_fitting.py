"""`linnet.fit` with Strategy("ring"), in a job without servers: the same loop, but a RingTrainer makes the steps.
Worker 0 validates, keeps records and saves for all. The other ranks wait at the next step until it has finished."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from linnet.clib.errors import Error, SyncError, TrainingError
from linnet.data.source import Batch
from linnet.sync.distributed_run import DistributedRun
from linnet.sync.ring import Ring
from linnet.sync.ring_training import RingTrainer
from linnet.training.feeding import examples, fitted

_PATIENCE = 600.0  # seconds that a rank may be silent; this limits how long worker 0 may validate


class RingRun(DistributedRun):
    """A run in which all ranks of a ring make each step together. store: the variables, with the same values in all
    ranks."""

    _trainer: RingTrainer

    @contextlib.contextmanager
    def joined(self, resumed: bool) -> Iterator[None]:
        """The context in which this process is a rank. All ranks start with the variables and the step of rank 0."""
        cluster = self.company.cluster
        ring = Ring(cluster.servers[0], cluster.rank, cluster.world_size, timeout=_PATIENCE, link=self.company.link)
        with ring:
            self._trainer = RingTrainer(self.model, ring, store=self.store, options=self.options, steps=self.step)
            if not cluster.is_chief:
                self._place_at(self._trainer.steps)
            yield

    def advance(self, batch: Batch, last: bool) -> dict[str, float] | None:
        feeds: dict[str, npt.NDArray[Any]] = {}
        try:
            feeds = fitted(batch, self._specs, self.known)
            metrics = self._checked(self._trainer.step(feeds, weight=examples(feeds)), feeds)
        except SyncError as error:
            if self.company.cluster.is_chief or error.op_index != 0:
                raise
            self.stop(f"worker 0 has ended: {error.what}")
            return None
        except TrainingError:
            raise
        except Error as error:
            raise self._placed(error, feeds) from None
        self._means.add(metrics, examples(feeds))
        self.step += 1
        self.epoch, self.batch = (self.epoch + 1, 0) if last else (self.epoch, self.batch + 1)
        if self.step % self.log_every == 0:
            self.metrics.add("step", {"step": self.step, "epoch": self.epoch, **metrics})
        return metrics
