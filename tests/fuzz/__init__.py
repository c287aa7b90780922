"""Fuzzing: C programs that test the verifier and the ops (fuzz_*.c), and damaged model files for the importers.
tests/test_fuzz.py and tests/test_malformed.py run a part each time; `make soak` runs the rest."""
