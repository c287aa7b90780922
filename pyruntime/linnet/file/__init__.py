"""Reads and writes model files and checkpoints."""
