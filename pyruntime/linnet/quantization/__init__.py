"""Quantization after training, quantization-aware training, and training of integer weights."""
