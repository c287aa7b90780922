"""All texts of the sources, which are kept in build-tests until a source changes: parsing everything takes 12 seconds, and
several tests, in several processes, read the same list."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import pickle
from pathlib import Path

from tests.texts import ROOT, Text, c_texts, name_of, python_texts, sources

KEPT = ROOT / "build-tests" / "texts.pickle"


def _digest() -> str:
    found = hashlib.sha256()
    for path in [*sources(*c_texts.ENDINGS, ".py"), *sorted(Path(__file__).parent.glob("*.py"))]:
        data = path.read_bytes()
        found.update(f"{name_of(path)} {len(data)}\n".encode() + data)
    return found.hexdigest()


@functools.cache
def all_texts() -> tuple[Text, ...]:
    """Error texts, help texts and comments, of C and of Python."""
    KEPT.parent.mkdir(exist_ok=True)
    digest = _digest()
    with open(KEPT.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be writing it
        if KEPT.exists():
            known, texts = pickle.loads(KEPT.read_bytes())
            if known == digest:
                return texts
        texts = (*c_texts.texts(), *python_texts.texts())
        KEPT.write_bytes(pickle.dumps((digest, texts)))
    return texts
