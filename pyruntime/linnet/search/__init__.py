"""Searches hyper-parameters and architectures for what devices trade: accuracy, bytes, time on a board, memory.
docs/search.md describes it; the extra `search` installs Optuna, which it stands on."""

from linnet.clib.arguments import check_all
from linnet.search.needed import optuna as _optuna  # noqa: F401 (the first that says that Optuna is missing)
from linnet.search.pruning import Pruning
from linnet.search.result import Found, Row
from linnet.search.runs import load, run
from linnet.search.settings import Settings
from linnet.search.study_file import StudyFile, read_study

__all__ = ["Found", "Pruning", "Row", "Settings", "StudyFile", "load", "read_study", "run"]

check_all(globals(), __all__)
