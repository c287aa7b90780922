"""Searches hyper-parameters and architectures for what devices trade: accuracy, bytes, time on a board, memory.
docs/search.md describes it; the extra `search` installs Optuna, which it stands on."""
