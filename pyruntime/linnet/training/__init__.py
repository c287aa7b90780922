"""`linnet.fit`: the loop that trains a graph's `train` signature, and what goes with it: validation, checkpoints, early
stopping, records, resuming. Everything around a step is a Callback; the step itself is the runtime's."""

from linnet.training.callbacks import Callback, EarlyStopping
from linnet.training.evaluation import evaluate
from linnet.training.history import History
from linnet.training.loop import fit
from linnet.training.run import Run
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
