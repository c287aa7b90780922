"""Random inputs for timing and trials. They are made only if there is enough memory for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from linnet.clib.errors import ResourceError, UsageError
from linnet.clib.library import library
from linnet.ir.dtypes import numpy_dtype
from linnet.session.model import TensorSpec


def random_feeds(
    specs: Sequence[TensorSpec],
    shapes: Mapping[str, Any],
    usable: Callable[[], Mapping[str, Sequence[int]]] | None = None,
) -> dict[str, Any]:
    """Random input for timing: normally distributed floats, full-range quantized integers, and zeros for other integers
    (ids, lengths). usable: gives shapes that work, for the hint of an error (open_sizes.usable_shapes). Raises
    UsageError. Raises ResourceError, before it makes any input, if there is too little memory for the inputs."""
    generator, feeds, known = np.random.default_rng(0), dict[str, Any](), dict[str, Sequence[int]]()
    for spec in specs:
        shape = shapes.get(spec.name, spec.shape)
        if shape is None or None in shape:
            raise UsageError(
                f"input {spec.name!r} has no fixed shape",
                code=304,
                tensor=spec.name,
                got="[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
                if shape is not None
                else "any rank",
                hint="give all sizes" + (f", for example input_shapes={dict(usable())}" if usable is not None else ""),
            )
        known[spec.name] = shape
    need = sum(math.prod(known[spec.name]) * _bytes_while_made(spec) for spec in specs)
    available = int(library().linnet_memory_available())
    if need > available:
        raise ResourceError(
            "random inputs of these shapes need more memory than the machine has available", code=401,
            expected=f"at most {available} bytes", got=f"{need} bytes", hint="use smaller shapes, such as a smaller batch",
        )  # fmt: skip
    for spec in specs:
        shape, dtype = known[spec.name], numpy_dtype(spec.dtype)
        if dtype.kind == "f" or spec.dtype == "bf16":
            feeds[spec.name] = generator.standard_normal(shape).astype(dtype)
        elif spec.scale is not None:
            limits = np.iinfo(dtype)
            feeds[spec.name] = generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        else:
            feeds[spec.name] = np.zeros(shape, dtype)
    return feeds


def _bytes_while_made(spec: TensorSpec) -> int:
    """Bytes per element of a random input while it is made. This includes the doubles from which floats are made."""
    size = numpy_dtype(spec.dtype).itemsize
    return size + 8 if spec.dtype == "bf16" or numpy_dtype(spec.dtype).kind == "f" else size
