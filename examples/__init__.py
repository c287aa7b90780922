"""Runnable examples. `python examples/demo.py` is the demo; each folder is one example of its own."""
