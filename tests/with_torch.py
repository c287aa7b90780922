"""PyTorch for test modules that compare all they do with it: `from tests.with_torch import torch` skips the whole module where
it is missing. A single test takes the fixture `torch` instead. `make test-more` installs it and runs both."""

from __future__ import annotations

import pytest

MISSING = "PyTorch is the reference. Install it with: pip install 'linnet-runtime[torch]', or run: make test-more"
torch = pytest.importorskip("torch", reason=MISSING, exc_type=ImportError)
