"""User ops: one in C (crop.c, main.c) and one in Python (sparsemax.py). docs/user_ops.md is the page about them."""
