"""Metrics as graphs: of one batch, and means over many as variables. They are outputs of a signature like any other."""
