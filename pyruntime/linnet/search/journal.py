"""The study behind a search: where it is kept, and which trial is next. Processes that share a journal take trials in turn,
until all of them together have the wanted number. Trials of processes that were killed are taken again."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linnet.clib.errors import FileError, UsageError
from linnet.search.locks import POLL, JournalLock, Lock, held
from linnet.search.needed import optuna
from linnet.search.pruning import AmongFeasible
from linnet.search.sampling import sampler_of
from linnet.search.settings import Settings

_WORDS = "linnet"  # the user attribute of a study with its settings


class Opened:
    """A study that is open. folder: where its locks are, or None if it is only in memory."""

    def __init__(self, settings: Settings, create: bool = True) -> None:
        """Raises FileError if the journal cannot be opened or is damaged. Raises UsageError if its study has other
        settings. create: whether there need be none yet."""
        self.settings = settings
        self.folder: Path | None = None
        storage: Any = optuna.storages.InMemoryStorage()
        path = None if settings.journal is None else Path(settings.journal)
        if path is not None:
            if not create and not path.is_file():
                raise FileError(
                    "there is no journal of this study", code=201, tensor=str(path), hint="run the study first"
                )
            try:
                self.folder = path.with_name(path.name + ".locks")
                self.folder.mkdir(parents=True, exist_ok=True)
                lock = JournalLock(path, self.folder / "journal")
                with held(lock):  # also removes a line that was written in part
                    backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
                storage = optuna.storages.JournalStorage(backend)
            except OSError as error:
                raise FileError(
                    "the journal cannot be written", code=207, tensor=str(path), got=error.strerror or str(error),
                    hint="give a path in a folder that you may write to",
                ) from None  # fmt: skip
            except (ValueError, KeyError, TypeError, AssertionError, AttributeError) as error:
                raise FileError(
                    "this file is not a journal of Optuna, or it is damaged", code=206, tensor=str(path),
                    expected="a file that an earlier run of the study has written, or none", got=f"{error}"[:80],
                ) from None  # fmt: skip
        self._taking = None if self.folder is None else Lock(self.folder / f"{_plain(settings.name)}.taking")
        with held(self._taking):
            self.study = self._study(storage, create)

    def _study(self, storage: Any, create: bool) -> Any:
        settings, names = self.settings, [s.study_name for s in storage.get_all_studies()]
        if not create and settings.name not in names:
            raise UsageError(
                f"the journal has no study named {settings.name!r}", code=102, tensor=str(settings.journal),
                expected=" or ".join(names) or "a journal with studies", got=settings.name,
            )  # fmt: skip
        study = optuna.create_study(
            storage=storage, study_name=settings.name, directions=list(settings.directions.values()),
            sampler=sampler_of(settings), pruner=AmongFeasible(settings.pruner or optuna.pruners.MedianPruner()),
            load_if_exists=True,
        )  # fmt: skip
        now = json.loads(json.dumps(settings.words()))
        before = study.user_attrs.get(_WORDS)
        if before is None and not study.get_trials(deepcopy=False):
            study.set_user_attr(_WORDS, now)
        elif before != now:
            other = [key for key in now if (before or {}).get(key) != now[key]]
            raise UsageError(
                f"the journal has a study of the name {settings.name!r} with other settings", code=101,
                tensor=str(settings.journal), hint="give another journal or another name, or the settings as they were",
                expected="; ".join(f"{key}: {(before or {}).get(key, 'none')}" for key in other),
                got="; ".join(f"{key}: {now[key]}" for key in other),
            )  # fmt: skip
        return study

    def trials(self) -> list[Any]:
        """The frozen trials, by number."""
        return list(self.study.get_trials(deepcopy=False))

    @contextlib.contextmanager
    def next_trial(self) -> Iterator[Any]:
        """The next trial to run: one that a killed process has left, or a new one. None if the study has all its trials;
        then all of them are finished. Waits for trials that run in other processes, because these may be killed, too."""
        found = None
        while found is None:
            with held(self._taking):
                found = self._take()
                trials = self.trials()
            running = [t for t in trials if t.state == optuna.trial.TrialState.RUNNING]
            if found is None and len(trials) >= self.settings.trials and not running:
                break
            if found is None:
                time.sleep(POLL)
        trial, lock = found or (None, None)
        try:
            yield trial
        finally:
            if lock is not None:
                lock.release()

    def _take(self) -> tuple[Any, Lock | None] | None:
        trials = self.trials()
        for left in trials:
            if left.state == optuna.trial.TrialState.RUNNING:
                lock = self._lock(left.number)
                if lock is None or lock.try_acquire():
                    return optuna.trial.Trial(self.study, left._trial_id), lock
        if len(trials) >= self.settings.trials:
            return None
        trial = self.study.ask()
        lock = self._lock(trial.number)
        if lock is not None:
            lock.acquire()
        return trial, lock

    def _lock(self, number: int) -> Lock | None:
        return None if self.folder is None else Lock(self.folder / f"{_plain(self.settings.name)}.trial-{number}")

    def clean(self) -> None:
        """Removes the locks of a study that is finished."""
        if self.folder is not None and len(self.trials()) >= self.settings.trials:
            for path in self.folder.glob(f"{_plain(self.settings.name)}.trial-*"):
                path.unlink(missing_ok=True)


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else f"%{ord(letter):x}" for letter in name)
