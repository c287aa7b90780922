"""Finds faces in a photo and 468 points on each, with two MediaPipe networks (TFLite, f16 weights, Apache-2.0).
detect: the two networks; __main__: the picture and the table."""
