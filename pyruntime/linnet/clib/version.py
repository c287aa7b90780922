"""The version of the Python package. `linnet.__version__` is this value."""

__version__ = "0.1.0"
