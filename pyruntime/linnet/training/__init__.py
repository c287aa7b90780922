"""`linnet.fit`: the loop that trains a graph's `train` signature, with validation, checkpoints, early stopping, records
and resuming. The runtime executes each step; everything around a step is a Callback."""

from linnet.clib.arguments import check_all
from linnet.training.callbacks import Callback, EarlyStopping, Run
from linnet.training.evaluation import evaluate
from linnet.training.history import History
from linnet.training.loop import fit
from linnet.training.saver import Saver
from linnet.training.signatures import accumulation, signatures
from linnet.training.tensorboard import TensorBoard

__all__ = [
    "Callback",
    "EarlyStopping",
    "History",
    "Run",
    "Saver",
    "TensorBoard",
    "accumulation",
    "evaluate",
    "fit",
    "signatures",
]

check_all(globals(), __all__)
