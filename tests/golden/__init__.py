"""Golden files of released format versions."""
