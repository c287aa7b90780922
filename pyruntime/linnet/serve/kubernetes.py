"""Writes Kubernetes manifests that serve given models: `linnet serve MODELS --kubernetes FILE`. The memory limit is what the
models need at their largest batch, which is known before they run. docs/serving_containers.md describes the manifests."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from linnet.clib.arguments import at_least
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import bytes_of
from linnet.serve.load import Loaded, load, read_file
from linnet.serve.repository import scan
from linnet.serve.settings import Settings

MIB: Final = 1 << 20
SERVER_BYTES: Final = 64 * MIB  # of Python, NumPy and linnet without models; tests/test_serve_kubernetes.py measures it
_JSON_TIMES: Final = 8  # bytes that json.loads takes for a byte of a list of numbers, and the array made of them
_JSON_BYTES: Final = 24  # of a number in JSON, at most
_FILE_BYTES: Final = 16 * MIB  # of a photo or a sound
_CONFIG_BYTES: Final = 180_000  # kubectl copies a ConfigMap into an annotation, which may have 262144 bytes, as base64
_STOP: Final = 5  # seconds: until no more requests come after Kubernetes has decided to end a server
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?")
_PLACES: Final = ("auto", "config", "claim", "image")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """What manifests say besides the models and the settings of servers.

    name: of every object. namespace: "" leaves it to kubectl.
    cpus: processor cores of one server. replicas, max_replicas: how many servers the autoscaler keeps at least and at most.
    cpu_percent: the load that the autoscaler aims at, in percent of `cpus`.
    margin_percent: memory above the computed bytes, in percent.
    models_in: where servers find the models. "config": in a ConfigMap, which holds 180 kB of files; "claim": on a volume that
        the manifests claim; "image": the image has them in /models; "auto": "config" if they fit, or else "claim".
    """

    name: str = "linnet"
    namespace: str = ""
    cpus: int = 1
    replicas: int = 1
    max_replicas: int = 4
    cpu_percent: int = 70
    margin_percent: int = 20
    models_in: str = "auto"

    def __post_init__(self) -> None:
        for field, text in (("name", self.name), ("namespace", self.namespace or "default")):
            if not _NAME.fullmatch(text):
                raise UsageError(
                    f"{field} is not a name that Kubernetes accepts", code=101, tensor=field, got=repr(text),
                    expected="at most 42 lower-case letters, digits and dashes, beginning with a letter",
                )  # fmt: skip
        for field in ("cpus", "replicas", "cpu_percent"):
            at_least(field, getattr(self, field), 1)
        at_least("margin_percent", self.margin_percent, 0)
        at_least("max_replicas", self.max_replicas, self.replicas)
        if self.models_in not in _PLACES:
            raise UsageError(
                "models_in is not a place for models", code=101, got=repr(self.models_in),
                expected=f"one of {', '.join(_PLACES)}",
            )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """A model to serve. path: inside the folder of models. content: the file. bytes: what the loaded model takes at most.
    body: the bytes of its largest request. unbounded: why `bytes` is only an estimate, or ""."""

    path: str
    content: bytes
    bytes: int
    body: int
    unbounded: str


@dataclasses.dataclass(frozen=True)
class _Plan:
    """All that the documents say. memory: {purpose: bytes} of a server. place: one of _PLACES, except "auto"."""

    models: Sequence[ModelFile]
    image: str
    settings: Settings
    cluster: Cluster
    place: str
    memory: dict[str, int]

    @property
    def name(self) -> str:
        return self.cluster.name


def manifests(
    models: str | Path | Sequence[str | Path],
    *,
    image: str,
    settings: Settings | None = None,
    cluster: Cluster | None = None,
) -> str:
    """The YAML documents of a Deployment, a Service, a HorizontalPodAutoscaler, and the objects that they use.

    models: .lnt files, and folders with NAME.lnt or NAME/VERSION.lnt. They are loaded to find the memory that they take.
    image: the container image, with `linnet serve` as its entry point. settings: of the servers. The limits of requests
    become smaller if no model needs so much; `threads` is what the cluster says. A key in the settings becomes a Secret.
    Raises FileError, GraphError, UsageError."""
    settings, cluster = settings or Settings(), cluster or Cluster()
    if not image or not image.isprintable() or " " in image:
        raise UsageError(
            "this is not the name of a container image",
            code=101,
            got=repr(image),
            expected="a name such as linnet-serve:1",
        )
    settings = dataclasses.replace(settings, threads=cluster.cpus)
    sources = [models] if isinstance(models, (str, Path)) else list(models)
    files = model_files([Path(source) for source in sources], settings)
    body = min(settings.max_body, max(MIB, *(model.body for model in files)))
    settings = dataclasses.replace(settings, max_body=body, max_pending=min(settings.max_pending, 4 * body))
    size = sum(len(model.content) for model in files)
    place = cluster.models_in
    if place == "auto":
        place = "config" if size <= _CONFIG_BYTES else "claim"
    elif place == "config" and size > _CONFIG_BYTES:
        raise UsageError(
            "the models do not fit into a ConfigMap", code=306, expected=f"at most {_CONFIG_BYTES} bytes",
            got=f"{size} bytes", hint="use a volume: models_in='claim'",
        )  # fmt: skip
    plan = _Plan(files, image, settings, cluster, place, memory_of(files, settings, cluster))
    parts = [_head(plan)]
    if settings.key:
        parts.append(_secret(plan))
    if place == "config":
        parts.append(_config(plan))
    elif place == "claim":
        parts.append(_claim(plan))
    parts += [_deployment(plan), _service(plan), _autoscaler(plan)]
    return "---\n".join(parts)


def model_files(sources: Sequence[Path], settings: Settings) -> list[ModelFile]:
    """Reads and loads models, one after the other. Raises FileError, GraphError, UsageError."""
    made = []
    for (name, version), path in scan(sources).items():
        content = read_file(path)
        loaded = load(content, settings, None)
        loaded.lane.close()
        made.append(
            ModelFile(f"{name}/{version}/model.lnt", content, loaded.bytes, _body(loaded, settings), loaded.unbounded)
        )
    if not made:
        raise UsageError(
            "there are no models", code=201, got=", ".join(map(str, sources)), expected="files whose names end in .lnt"
        )
    return made


def _body(loaded: Loaded, settings: Settings) -> int:
    """The bytes of the largest request, as JSON or as a file."""
    if loaded.accepts:
        return _FILE_BYTES
    bound = loaded.lane.session.bound
    largest = bound.largest if bound is not None else {}
    total = 4096
    for spec in loaded.inputs:
        shape = largest.get(spec.name) or tuple(size or 1 for size in spec.shape or ())
        total += max(_JSON_BYTES * math.prod(shape), bytes_of(spec.dtype, shape))
    return total


def memory_of(models: Sequence[ModelFile], settings: Settings, cluster: Cluster) -> dict[str, int]:
    """The bytes of a server, by purpose, and their total: the memory limit."""
    made = {
        "models": sum(model.bytes for model in models),
        "largest": max(model.bytes for model in models),
        "server": SERVER_BYTES,
        "requests": settings.max_pending + _JSON_TIMES * settings.max_body,
    }
    made["margin"] = sum(made.values()) * cluster.margin_percent // 100
    return {**made, "total": sum(made.values())}


def _mib(size: int) -> int:
    """Bytes in whole MiB, rounded up."""
    return -(-size // MIB)


def _head(plan: _Plan) -> str:
    names = {
        "largest": "while a model is exchanged", "server": "server without models", "requests": "bodies of requests",
        "margin": f"margin, {plan.cluster.margin_percent} percent", "total": "total",
    }  # fmt: skip
    rows = [(json.dumps(model.path), model.bytes, model.unbounded) for model in plan.models]
    rows += [(text, plan.memory[key], "") for key, text in names.items()]
    width = max(len(text) for text, _, _ in rows)
    lines = [
        f"#   {text:{width}} {size:>15,} bytes" + (f"  an estimate: {json.dumps(why)}" if why else "")
        for text, size, why in rows
    ]
    where = {
        "config": "The models are in the ConfigMap.",
        "claim": f"Copy the models to the volume {plan.name}-models: docs/serving_containers.md says how.",
        "image": "The image must have the models in /models.",
    }[plan.place]
    return (
        "# Written by `linnet serve --kubernetes`. To create the objects, run: kubectl apply -f FILE\n"
        f"# {where}\n# The memory of one server, if runs have up to {plan.settings.max_batch} rows:\n"
        + "\n".join(lines)
        + "\n"
    )


def _meta(plan: _Plan, name: str = "") -> str:
    lines = ["metadata:", f"  name: {name or plan.name}"]
    if plan.cluster.namespace:
        lines.append(f"  namespace: {plan.cluster.namespace}")
    lines += ["  labels:", f"    app.kubernetes.io/name: {plan.name}", "    app.kubernetes.io/managed-by: linnet"]
    return "".join(f"{line}\n" for line in lines)


def _secret(plan: _Plan) -> str:
    data = base64.b64encode(plan.settings.key.encode()).decode()
    return f"apiVersion: v1\nkind: Secret\n{_meta(plan, f'{plan.name}-key')}type: Opaque\ndata:\n  key: {data}\n"


def _config(plan: _Plan) -> str:
    data = "".join(f"  model{i}: {base64.b64encode(model.content).decode()}\n" for i, model in enumerate(plan.models))
    return f"apiVersion: v1\nkind: ConfigMap\n{_meta(plan, f'{plan.name}-models')}binaryData:\n{data}"


def _claim(plan: _Plan) -> str:
    size = sum(len(model.content) for model in plan.models)
    return (
        f"apiVersion: v1\nkind: PersistentVolumeClaim\n{_meta(plan, f'{plan.name}-models')}"
        "spec:\n  accessModes:\n    - ReadWriteMany\n  resources:\n    requests:\n"
        f"      storage: {max(64, 4 * _mib(size))}Mi\n"
    )


def _volumes(plan: _Plan) -> tuple[str, str]:
    """The mounts of the container and the volumes of the pod."""
    mounts, volumes = "            - name: tmp\n              mountPath: /tmp\n", "        - name: tmp\n"
    volumes += "          emptyDir:\n            sizeLimit: 16Mi\n"
    if plan.place != "image":
        mounts += "            - name: models\n              mountPath: /models\n              readOnly: true\n"
    if plan.place == "config":
        volumes += f"        - name: models\n          configMap:\n            name: {plan.name}-models\n"
        volumes += "            items:\n"
        for i, model in enumerate(plan.models):
            volumes += f"              - key: model{i}\n                path: {json.dumps(model.path)}\n"
    elif plan.place == "claim":
        volumes += "        - name: models\n          persistentVolumeClaim:\n"
        volumes += f"            claimName: {plan.name}-models\n            readOnly: true\n"
    if plan.settings.key:
        mounts += "            - name: key\n              mountPath: /etc/linnet\n              readOnly: true\n"
        volumes += f"        - name: key\n          secret:\n            secretName: {plan.name}-key\n"
        volumes += "            defaultMode: 288\n"  # 0440
    return mounts, volumes


def _arguments(plan: _Plan) -> list[str]:
    """The arguments of `linnet serve` in the container."""
    given, usual = plan.settings, Settings()
    words = {
        "--host": "0.0.0.0", "--port": "8000", "--log": "json", "--threads": given.threads, "--max-batch": given.max_batch,
        "--max-body": given.max_body, "--max-pending": given.max_pending,
        "--max-bytes": plan.memory["models"] + plan.memory["largest"],
    }  # fmt: skip
    others = {
        "--max-wait": "max_wait_ms", "--max-queue": "max_queue", "--timeout": "timeout", "--poll": "poll",
        "--signature": "signature",
    }  # fmt: skip
    words |= {
        option: getattr(given, field)
        for option, field in others.items()
        if getattr(given, field) != getattr(usual, field)
    }
    if given.key:
        words["--key-file"] = "/etc/linnet/key"
    made = ["/models", *(str(word) for pair in words.items() for word in pair)]
    for name, bounds in given.bounds.items():
        made += ["--bounds", f"{name}={bounds}"]
    return [*made, "--unload-idle"] if given.unload_idle else made


def _probe(name: str, path: str, period: int, failures: int) -> str:
    return (
        f"          {name}:\n            httpGet:\n              path: {path}\n              port: http\n"
        f"            periodSeconds: {period}\n            timeoutSeconds: 3\n            failureThreshold: {failures}\n"
    )


def _deployment(plan: _Plan) -> str:
    cpus, memory = json.dumps(str(plan.cluster.cpus)), _mib(plan.memory["total"])
    mounts, volumes = _volumes(plan)
    arguments = "".join(f"            - {json.dumps(word)}\n" for word in _arguments(plan))
    probes = _probe("startupProbe", "/v2/health/live", 1, 120)
    probes += _probe("livenessProbe", "/v2/health/live", 10, 3)
    probes += _probe("readinessProbe", "/v2/health/ready", 2, 2)
    return f"""apiVersion: apps/v1
kind: Deployment
{_meta(plan)}spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: {plan.name}
  strategy:
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {plan.name}
        app.kubernetes.io/managed-by: linnet
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/path: /metrics
        prometheus.io/port: "8000"
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {_STOP + math.ceil(plan.settings.timeout) + 5}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: linnet
          image: {json.dumps(plan.image)}
          args:
{arguments}          ports:
            - name: http
              containerPort: 8000
          resources:
            requests:
              cpu: {cpus}
              memory: {memory}Mi
            limits:
              cpu: {cpus}
              memory: {memory}Mi
{probes}          lifecycle:
            preStop:
              sleep:
                seconds: {_STOP}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop:
                - ALL
          volumeMounts:
{mounts}      volumes:
{volumes}"""


def _service(plan: _Plan) -> str:
    return (
        f"apiVersion: v1\nkind: Service\n{_meta(plan)}spec:\n  selector:\n"
        f"    app.kubernetes.io/name: {plan.name}\n  ports:\n    - name: http\n      port: 8000\n"
        "      targetPort: http\n"
    )


def _autoscaler(plan: _Plan) -> str:
    cluster = plan.cluster
    return f"""apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
{_meta(plan)}spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {plan.name}
  minReplicas: {cluster.replicas}
  maxReplicas: {cluster.max_replicas}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {cluster.cpu_percent}
"""
