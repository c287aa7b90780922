"""Counts the instructions of a model on an emulated ARM processor: `make count`, docs/counting.md."""
