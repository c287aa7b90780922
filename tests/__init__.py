"""Tests, benchmarks and their shared code."""
