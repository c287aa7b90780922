"""Synchronous training over a ring: each rank computes the gradients of its part of a batch, the ring averages them,
and each rank applies the mean. No server is needed, and all ranks have bit-identical variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import FileError, UsageError
from linnet.facade import Graph
from linnet.session.device import Device
from linnet.session.model import Model, Store, TensorSpec
from linnet.session.options import SessionOptions
from linnet.session.session import Session
from linnet.sync.contract import AVERAGE, COUNT, GRAD, GRADIENT, IDS, NOT_FINITE, UPDATE, names_in
from linnet.sync.ring import Ring


class RingTrainer:
    """One rank of a training run. All ranks create one, with the same model and the same ring.

    model: a path, bytes, Graph or Model with the signatures of `linnet.sync.signatures`; gradients must be dense.
    store: the variables. All ranks start with rank 0's values, so only rank 0 needs to load a checkpoint. threads:
    number of threads of each session. device: as in Session: the device that computes gradients. Ranks may have
    different devices, because each rank applies the mean on its CPU. options: further options of the sessions. steps:
    number of earlier steps; the value of rank 0 is used. Random numbers (dropout) equal those of a single process that
    uses the parts of all ranks in order.

        with linnet.sync.Ring(address, rank, size) as ring:
            trainer = linnet.sync.RingTrainer("model.lnt", ring)
            for batch in mine:
                print(trainer.step(batch)["loss"])

    If a rank is lost, `step` raises SyncError in other ranks. A rank in which it is raised has changed no variable.
    Some ranks may have finished the step already, so all must continue from one of them:

            except linnet.SyncError as error:
                trainer.go_on(ring.without(error.op_index, other_address))  # see trainer.steps

    Raises UsageError (missing signatures, sparse gradients), FileError (ranks have different models), SyncError.
    """

    def __init__(
        self,
        model: str | Path | bytes | Graph | Model,
        ring: Ring,
        *,
        store: Store | None = None,
        threads: int | None = None,
        device: str | Device | None = None,
        options: SessionOptions | None = None,
        steps: int = 0,
    ) -> None:
        self.model = model if isinstance(model, Model) else Model(model)
        self._check()
        self.store = Store(self.model) if store is None else store
        self.steps = steps
        """Number of steps made by all ranks that have these variables."""
        self.not_finite = 0
        """Number of steps whose gradients were not finite. They changed nothing, as with servers."""
        self._lenient = self.model.metadata(NOT_FINITE) == "update"
        chosen = SessionOptions.of(options, threads=threads, device=device)
        self._grad = Session(self.model, GRAD, store=self.store, **chosen.fields)
        # On the CPU, updates have the same bits in all ranks, whatever their devices.
        self._update = Session(self.model, UPDATE, store=self.store, **chosen.on_cpu().fields)
        self._averaged = names_in({AVERAGE: self.model.metadata(AVERAGE) or ""}, AVERAGE)
        self._counted = names_in({COUNT: self.model.metadata(COUNT) or ""}, COUNT)
        outputs = self.model.outputs(GRAD)
        self._scalars = [o.name for o in outputs if o.shape == () and o.dtype == "f32"]
        gradients = [o for o in outputs if o.name.startswith(GRADIENT)]
        # One array per dtype, so that a step needs only one or two all-reduces: gradients, averages, scalars, and the
        # weight.
        variables = {spec.name: spec for spec in self.model.variables}
        parts: dict[str, list[TensorSpec]] = {"f32": [g for g in gradients if g.dtype == "f32"]}
        parts["f32"] += [variables[name] for name in self._averaged if variables[name].dtype != "f64"]
        parts["f32"] += [o for o in outputs if o.name in self._scalars]
        parts["f64"] = [g for g in gradients if g.dtype == "f64"]
        parts["f64"] += [variables[name] for name in self._averaged if variables[name].dtype == "f64"]
        self._buckets = [_Bucket(specs, dtype) for dtype, specs in parts.items() if specs]
        self._ring = ring
        self.go_on(ring)

    def _check(self) -> None:
        if GRAD not in self.model.signatures or UPDATE not in self.model.signatures:
            raise UsageError(
                "the model has no signatures for distributed training",
                code=102,
                expected=f"signatures '{GRAD}' and '{UPDATE}'",
                got=", ".join(self.model.signatures) or "none",
                hint="add them with linnet.sync.signatures",
            )
        sparse = [o.name for o in self.model.outputs(GRAD) if o.name.startswith(GRADIENT) and o.name.endswith("/rows")]
        if sparse or IDS in self.model.signatures:
            name = sparse[0].removeprefix(GRADIENT).removesuffix("/rows") if sparse else ""
            raise UsageError(
                "a ring supports only dense gradients, but this gradient is sparse", code=101, tensor=name,
                hint="train with servers (linnet.sync.Server), where only the touched rows are transferred",
            )  # fmt: skip

    def go_on(self, ring: Ring) -> None:
        """Switches to a ring, which is either the first ring or a ring of the remaining ranks. All its ranks take the
        variables and `steps` of its rank 0."""
        digest = np.frombuffer(bytes.fromhex(self.model.metadata("digest") or ""), np.int32)
        same = np.array_equal(_from_rank_0(ring, digest), digest)
        if ring.all_reduce(np.array([not same], np.int32))[0]:
            raise FileError(
                "the ranks of the ring have different models",
                code=208,
                expected="the same file in all ranks",
                got=f"a model with digest {self.model.metadata('digest')} in this rank",
                hint="give all ranks the same file",
            )
        for spec in self.model.variables:
            value = self.store[spec.name]
            self.store[spec.name] = _from_rank_0(ring, value)
        self._large = any(_size(spec, self.store[spec.name]) for spec in self.model.variables)
        self.steps = int(_from_rank_0(ring, np.array([self.steps], np.int64))[0])
        self._ring = ring

    def step(self, inputs: Mapping[str, npt.ArrayLike], weight: float = 1.0) -> dict[str, np.ndarray]:
        """Runs one step with this rank's part of the batch. Returns the outputs of `grad` except the gradients.

        weight: weight of this part in the mean, above 0; use the number of examples if the parts differ in size. f32
        scalars (the loss, metrics) are returned as the weighted mean over all ranks. Other outputs are those of this
        rank. Moving averages of `grad`, for example of batch normalization, are averaged too. If gradients or the loss
        are not finite, the step changes nothing, unless the optimizer handles that case (a dynamic loss scale). Raises
        SyncError, and the errors of Session.run.
        """
        if not (weight > 0 and np.isfinite(weight)):
            raise UsageError(
                "the weight of a batch must be above 0", code=101, expected="a finite number above 0", got=repr(weight)
            )
        before = {name: self.store[name] for name in [*self._averaged, *self._counted]}
        for name in self._counted:
            self.store[name] = before[name] + self._ring.rank
        try:
            out = self._grad.run(inputs)
            values = {**out, **{name: self.store[name] for name in self._averaged}}
            means: dict[str, np.ndarray] = {}
            for bucket in self._buckets:
                means |= bucket.mean(self._ring, values, weight)
        except BaseException:
            for name, value in before.items():
                self.store[name] = value
            raise
        finite = self._lenient or all(bucket.is_finite() for bucket in self._buckets)
        if finite:
            finite = self._updated({name: mean for name, mean in means.items() if name.startswith(GRADIENT)})
        for name in self._averaged:
            self.store[name] = means[name].astype(values[name].dtype) if finite else before[name]
        self.not_finite += not finite
        for name in self._counted:
            self.store[name] = before[name] + self._ring.size
        self.steps += 1
        scalars = {name: means[name].copy() for name in self._scalars}
        return {name: value for name, value in (out | scalars).items() if not name.startswith(GRADIENT)}

    def _updated(self, gradients: dict[str, np.ndarray]) -> bool:
        """Applies the update. If gradients are so large that it may overflow, the update is tried. If any variable is
        then not finite, all variables are restored and the method returns False. The result is the same in all
        ranks."""
        if not (self._large or any(bucket.is_large() for bucket in self._buckets)):
            self._update.run(gradients)
            return True
        before = {spec: np.copy(self.store[spec.name]) for spec in self.model.variables}
        self._update.run(gradients)
        sizes = [(_size(spec, self.store[spec.name]), _size(spec, value)) for spec, value in before.items()]
        if all(after < np.inf or value == np.inf for after, value in sizes):
            self._large = any(after >= 1 for after, _ in sizes)
            return True
        for spec, value in before.items():
            self.store[spec.name] = value
        return False


class _Bucket:
    """Tensors of one dtype in one array, followed by the weight."""

    def __init__(self, specs: list[TensorSpec], dtype: str) -> None:
        self._shapes = {spec.name: tuple(int(d or 0) for d in spec.shape or ()) for spec in specs}
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        self._ends = np.cumsum(sizes)
        self._flat = np.empty(sum(sizes) + 1, np.float32 if dtype == "f32" else np.float64)

    def mean(self, ring: Ring, values: Mapping[str, Any], weight: float) -> dict[str, np.ndarray]:
        """The weighted mean of each tensor over all ranks. The results are views that are valid until the next call."""
        parts = np.split(self._flat[:-1], self._ends[:-1])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # is_finite reports this
            for part, name in zip(parts, self._shapes, strict=True):
                np.multiply(np.ravel(values[name]), self._flat.dtype.type(weight), out=part, casting="unsafe")
            self._flat[-1] = weight
            ring.all_reduce(self._flat)
            np.divide(self._flat[:-1], self._flat[-1], out=self._flat[:-1])
        return {name: part.reshape(shape) for part, (name, shape) in zip(parts, self._shapes.items(), strict=True)}

    def is_finite(self) -> bool:
        """Whether the means are finite. The answer is the same in all ranks."""
        return bool(np.isfinite(self._flat).all())

    def is_large(self) -> bool:
        """Whether the means are so large that updates must be tried (docs/protocol.md, "What overflows")."""
        most = 2.0**31 if self._flat.dtype == np.float32 else 2.0**255
        return not bool((np.abs(self._flat[:-1]) < most).all())


def _size(spec: TensorSpec, value: np.ndarray) -> float:
    """Returns 0 for ordinary values, 1 for values so large that updates must be tried, and infinity for values that are
    not finite."""
    if spec.dtype == "bf16":
        most = int((value.view(np.uint16) & 0x7FFF).max(initial=0))
        return np.inf if most >= 0x7F80 else float(most >= 0x6F00)
    if value.dtype.kind != "f":
        return 0
    if not np.isfinite(value).all():
        return np.inf
    limits = {"f16": 0.0, "f32": 2.0**95, "f64": 2.0**767}
    return float(bool((np.abs(value) >= limits[spec.dtype]).any()))


def _from_rank_0(ring: Ring, value: np.ndarray) -> np.ndarray:
    """Copies rank 0's value to all ranks: the other ranks add zeros to its bytes."""
    data = value.tobytes() if ring.rank == 0 else bytes(value.nbytes)
    whole = np.frombuffer(bytearray(data + bytes(-len(data) % 4)), np.int32)
    ring.all_reduce(whole)
    return np.frombuffer(whole.tobytes()[: value.nbytes], value.dtype).reshape(value.shape)
