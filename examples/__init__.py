"""Runnable examples. `python examples/demo.py` is the demo; each folder is a separate example."""
