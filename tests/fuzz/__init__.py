"""Fuzzing: C programs over the verifier and the ops (fuzz_*.c), and damaged model files through the importers.
tests/test_fuzz.py and tests/test_malformed.py run a part each time, `make soak` the rest."""
