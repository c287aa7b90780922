"""`linnet.fit` by Strategy("ring"), in a job without servers: the same loop, with steps of a RingTrainer. Worker 0 validates,
keeps records and saves for all; meanwhile the others wait at the next step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from linnet.data.source import Batch
from linnet.errors import Error, SyncError, TrainingError
from linnet.sync.fitting import CompanyRun
from linnet.sync.ring import Ring
from linnet.sync.ring_training import RingTrainer
from linnet.training.feeding import examples, fitted

_PATIENCE = 600.0  # seconds that a rank may be silent: as long as worker 0 may take to validate


class RingRun(CompanyRun):
    """A run whose steps are those of all ranks of a ring. store: the same in all."""

    _trainer: RingTrainer

    @contextlib.contextmanager
    def joined(self, resumed: bool) -> Iterator[None]:
        """Within it this process is a rank. All begin with the variables and the step of rank 0."""
        cluster = self.company.cluster
        ring = Ring(cluster.servers[0], cluster.rank, cluster.world_size, timeout=_PATIENCE, link=self.company.link)
        with ring:
            self._trainer = RingTrainer(self.model, ring, store=self.store, threads=self._threads, steps=self.step)
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
            self.stop(f"worker 0 ended: {error.what}")
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
