"""Builds graphs: ops as functions, map expressions, and control flow."""
