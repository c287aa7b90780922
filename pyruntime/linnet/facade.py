"""linnet.Graph: the graph of linnet.ir, extended by files, passes and ONNX.
Each part is imported when it is first used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy.typing as npt

from linnet.ir import graph
from linnet.ir.function import Function

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from linnet.ir.user_op import UserOp


class Graph(graph.Graph):
    __doc__ = graph.Graph.__doc__

    def _simplify(self, function: Function) -> None:
        from linnet.passes import simplify

        simplify(function)

    def freeze(self, values: Mapping[str, npt.ArrayLike] | None = None, signature: str = "infer") -> Self:
        """The inference graph of a trained graph, with variables as constants: see `linnet.passes.freeze`."""
        from linnet.passes import freeze

        return freeze(self, values, signature)

    def to_onnx(
        self,
        path: str | Path,
        values: Mapping[str, npt.ArrayLike] | None = None,
        signature: str = "infer",
        opset: int | None = None,
    ) -> None:
        """Writes one signature as an ONNX model. Its weights are the variables, with their values in `values` or their
        initial values. See `linnet.converters.export.to_onnx`."""
        from linnet.converters.export import to_onnx

        to_onnx(self, path, values, signature=signature, opset=opset)

    def save(self, path: str | Path) -> None:
        """Writes the .lnt file, atomically (a temporary file, then a rename). Warns if the name ends like that of another
        format."""
        from pathlib import Path

        from linnet.file.writer import write

        if (suffix := Path(path).suffix.lower()) in (".onnx", ".tflite", ".pt2", ".pb"):
            import warnings

            hint = "; graph.to_onnx writes ONNX" if suffix == ".onnx" else ""
            warnings.warn(
                f"the file '{path}' will be a linnet file, although its name ends in {suffix}{hint}", stacklevel=3
            )
        write(self, Path(path))

    def to_bytes(self) -> bytes:
        from linnet.file.writer import to_bytes

        return to_bytes(self)

    @staticmethod
    def load(path: str | Path, *, user_ops: Iterable[UserOp] = ()) -> Graph:
        """Reads a .lnt file into a graph. user_ops: the user ops that passes, gradients and sessions of the graph may
        need."""
        from pathlib import Path

        from linnet.file.reader import read
        from linnet.ir.user_op import register

        graph = read(Path(path), Graph)
        register(graph.user_ops, user_ops)
        return graph
