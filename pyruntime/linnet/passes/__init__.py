"""Graph simplification in Python, independent of the target. It removes dead and duplicate nodes, folds constants, and
fuses pointwise chains. `run` applies all passes. Each pass is also a function that takes one linnet.Function and
returns whether it changed anything."""

from __future__ import annotations

from linnet.clib.arguments import check_all
from linnet.passes.cleanup import remove_dead, remove_dead_functions, remove_double, remove_identities
from linnet.passes.folding import fold_constants
from linnet.passes.fusion import fuse_maps
from linnet.passes.gathers import look_up_first
from linnet.passes.heads import replace_head
from linnet.passes.norms import expand_batch_norm
from linnet.passes.pipeline import run, simplify
from linnet.passes.statistics import reestimate
from linnet.passes.weights import freeze, trainable

__all__ = [
    "expand_batch_norm",
    "fold_constants",
    "freeze",
    "fuse_maps",
    "look_up_first",
    "reestimate",
    "remove_dead",
    "remove_dead_functions",
    "remove_double",
    "remove_identities",
    "replace_head",
    "run",
    "simplify",
    "trainable",
]  # fmt: skip

check_all(globals(), __all__)
