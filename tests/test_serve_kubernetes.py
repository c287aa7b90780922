"""The manifests that `linnet serve --kubernetes` writes: kubernetes-validate checks them against Kubernetes' own schemas, a
server takes their arguments, and its memory stays below their limit."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import numpy as np
import pytest
import yaml

import linnet
from linnet.serve import Settings
from linnet.serve.kubernetes import SERVER_BYTES, Cluster, manifests, memory_of, model_files
from linnet.serve.load import load
from tests.native import ROOT
from tests.serving import Client, mlp, served

VERSIONS = ("1.32", "1.37")
DIGITS = ROOT / "examples" / "mnist_small" / "mnist_small.onnx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """digits.lnt, and version 2 of numbers."""
    made = tmp_path_factory.mktemp("models")
    graph = linnet.from_onnx(DIGITS)
    graph.save(made / "digits.lnt")
    (made / "numbers").mkdir()
    graph.save(made / "numbers" / "2.lnt")
    return made


def documents(text: str) -> dict[str, Any]:
    """The documents by kind, which Kubernetes would accept."""
    found = [document for document in yaml.safe_load_all(text) if document]
    for document in found:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    made = {document["kind"]: document for document in found}
    assert len(made) == len(found)
    return made


def container_of(made: dict[str, Any]) -> Any:
    (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


def volumes_of(made: dict[str, Any]) -> dict[str, Any]:
    return {volume["name"]: volume for volume in made["Deployment"]["spec"]["template"]["spec"]["volumes"]}


def limit_of(made: dict[str, Any]) -> int:
    return int(container_of(made)["resources"]["limits"]["memory"].removesuffix("Mi")) << 20


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def test_the_schemas_of_kubernetes_notice_mistakes(folder: Path) -> None:
    text = manifests(folder / "digits.lnt", image="x")
    for right, wrong in (("containerPort: 8000", "containerPort: http"), ("maxReplicas", "maximumReplicas")):
        assert right in text
        with pytest.raises(kubernetes_validate.ValidationError):
            documents(text.replace(right, wrong))


def test_models_on_a_volume(folder: Path) -> None:
    made = documents(manifests(folder, image="registry.example/linnet-serve:1"))
    assert made.keys() == {"PersistentVolumeClaim", "Deployment", "Service", "HorizontalPodAutoscaler"}
    pod, container = made["Deployment"]["spec"]["template"]["spec"], container_of(made)
    claim = volumes_of(made)["models"]["persistentVolumeClaim"]
    assert claim["claimName"] == made["PersistentVolumeClaim"]["metadata"]["name"] and claim["readOnly"]
    assert container["image"] == "registry.example/linnet-serve:1" and container["args"][0] == "/models"
    assert container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
    assert pod["terminationGracePeriodSeconds"] >= 30 + container["lifecycle"]["preStop"]["sleep"]["seconds"]
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["Service"]["spec"]["selector"].items() <= labels.items()
    assert made["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == made["Deployment"]["metadata"]["name"]
    assert "replicas" not in made["Deployment"]["spec"], "it would undo what the autoscaler has set"


def test_small_models_in_a_config_map_and_a_key(folder: Path) -> None:
    settings = Settings(key="a key: 'with' \"quotes\"", timeout=99.5, bounds={"input": "1..4,?,?,?"}, unload_idle=True)
    cluster = Cluster(name="digits", namespace="ml", cpus=2, replicas=2, max_replicas=9)
    text = manifests([folder / "digits.lnt"], image="linnet-serve", settings=settings, cluster=cluster)
    made = documents(text)
    assert made.keys() == {"Secret", "ConfigMap", "Deployment", "Service", "HorizontalPodAutoscaler"}
    assert all(document["metadata"]["namespace"] == "ml" for document in made.values())
    assert base64.b64decode(made["Secret"]["data"]["key"]).decode() == settings.key
    ((key, content),) = made["ConfigMap"]["binaryData"].items()
    assert base64.b64decode(content) == (folder / "digits.lnt").read_bytes()
    volumes, container = volumes_of(made), container_of(made)
    items = [{"key": key, "path": "digits/1/model.lnt"}]
    assert volumes["models"]["configMap"] == {"name": "digits-models", "items": items}
    assert volumes["key"]["secret"]["secretName"] == made["Secret"]["metadata"]["name"]
    mounted = next(mount for mount in container["volumeMounts"] if mount["name"] == "key")["mountPath"]
    arguments = container["args"]
    assert option(arguments, "--key-file") == f"{mounted}/key" and option(arguments, "--bounds") == "input=1..4,?,?,?"
    assert option(arguments, "--timeout") == "99.5" and "--unload-idle" in arguments
    assert made["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 110
    assert container["resources"]["limits"]["cpu"] == "2" and option(arguments, "--threads") == "2"
    scaler = made["HorizontalPodAutoscaler"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 9)
    assert len(text) < 262144, "kubectl apply puts the ConfigMap into an annotation"


def test_names_are_text_in_yaml(tmp_path: Path) -> None:
    names = ['no "yaml": [1]', "ключ#", "- x: &y"]
    for name in names:
        mlp(tmp_path / f"{name}.lnt")
    made = documents(manifests(tmp_path, image="a:1"))
    items = volumes_of(made)["models"]["configMap"]["items"]
    assert {item["path"] for item in items} == {f"{name}/1/model.lnt" for name in names}


def test_the_limit_is_the_memory_of_the_models(folder: Path) -> None:
    small, large = Settings(max_batch=1, threads=1), Settings(max_batch=64, threads=1)
    (few,) = model_files([folder / "digits.lnt"], small)
    (many,) = model_files([folder / "digits.lnt"], large)
    loaded = load((folder / "digits.lnt").read_bytes(), large, None)
    loaded.lane.close()
    assert many.bytes == loaded.bytes and few.bytes < many.bytes
    assert 64 * 28 * 28 * 8 < many.body < 64 * 28 * 28 * 32
    cluster = Cluster(margin_percent=50)
    memory = memory_of([few, many], large, cluster)
    assert (memory["models"], memory["largest"]) == (few.bytes + many.bytes, many.bytes)
    assert 0 <= memory["total"] - 3 * memory["margin"] < 3
    text = manifests(folder / "digits.lnt", image="a", settings=large, cluster=cluster)
    made = documents(text)
    resources = container_of(made)["resources"]
    assert resources["limits"] == resources["requests"]
    assert f"{many.bytes:,} bytes" in text, "the head of the file says where the memory goes"
    total = re.search(r"# +total +([\d,]+) bytes", text)
    assert total and 0 <= limit_of(made) - int(total[1].replace(",", "")) < 2**20
    assert int(option(container_of(made)["args"], "--max-bytes")) == 2 * many.bytes


def test_models_in_the_image(folder: Path) -> None:
    made = documents(manifests(folder, image="mine", cluster=Cluster(models_in="image")))
    assert made.keys() == {"Deployment", "Service", "HorizontalPodAutoscaler"}
    assert list(volumes_of(made)) == ["tmp"]


def config_volume(made: dict[str, Any], folder: Path) -> Path:
    """The files of a ConfigMap as Kubernetes mounts them: links to a folder whose name begins with dots."""
    hidden = folder / "..2026_12_01"
    for item in volumes_of(made)["models"]["configMap"]["items"]:
        path = hidden / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(made["ConfigMap"]["binaryData"][item["key"]]))
        link = folder / item["path"].split("/")[0]
        if not link.is_symlink():
            link.symlink_to(Path("..data") / link.name)
    (folder / "..data").symlink_to(hidden.name)
    return folder


def test_a_server_with_these_arguments_stays_below_the_limit(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "7.lnt").write_bytes((folder / "digits.lnt").read_bytes())
    made = documents(manifests(tmp_path / "7.lnt", image="x", settings=Settings(key="secret key", max_batch=16)))
    (tmp_path / "key").write_bytes(base64.b64decode(made["Secret"]["data"]["key"]))
    (tmp_path / "models").mkdir()
    mounted = {"/models": str(config_volume(made, tmp_path / "models")), "/etc/linnet/key": str(tmp_path / "key")}
    arguments = [mounted.get(word, word) for word in container_of(made)["args"]]
    failures: list[Any] = []
    image = np.full((16, 1, 28, 28), 1 / 3, np.float32)

    with served(arguments) as server:
        assert Client(server.url).ask("GET", "/v2/health/ready")[0] == 200
        assert Client(server.url).ask("POST", "/v2/repository/index", {})[0] == 401
        status, index = Client(server.url, "secret key").ask("POST", "/v2/repository/index", {})
        assert status == 200 and [(model["name"], model["state"]) for model in index] == [("7", "READY")]

        def ask() -> None:
            client = Client(server.url, "secret key")
            answers = [client.infer("7", {"input": image}) for _ in range(4)]
            failures.extend(answer for status, answer in answers if status != 200)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert server.most_bytes() < limit_of(made)


def test_the_size_of_a_server_without_models(tmp_path: Path) -> None:
    with served([str(tmp_path), "--port", "8000", "--log", "json", "--threads", "1"]) as server:
        assert Client(server.url).ask("GET", "/openapi.json")[0] == 200
        found = server.most_bytes()
    print(f"a server without models takes {found / 2**20:.1f} MiB")
    assert SERVER_BYTES / 2 < found < SERVER_BYTES


def test_the_command(folder: Path, tmp_path: Path, linnet_command: Callable[..., Any]) -> None:
    file, key = tmp_path / "made.yaml", tmp_path / "key"
    file.touch(0o644)
    key.write_text("secret\n")
    done = linnet_command(
        "serve", str(folder), "--kubernetes", str(file), "--image", "linnet-serve:2", "--key-file", str(key),
        "--max-batch", "4", "--threads", "3", "--max-pending", str(2**21),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600, "it has the key"
    made = documents(file.read_text())
    container = container_of(made)
    assert container["image"] == "linnet-serve:2" and container["resources"]["limits"]["cpu"] == "3"
    assert option(container["args"], "--max-batch") == "4" and option(container["args"], "--max-pending") == f"{2**21}"
    assert base64.b64decode(made["Secret"]["data"]["key"]) == b"secret"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kubernetes", "x"], "--kubernetes and --image belong together"),
        (["--image", "x"], "--kubernetes and --image belong together"),
        (["--kubernetes", "x", "--image", "a b"], "not the name of a container image"),
        (["--kubernetes", "none/x", "--image", "a"], "cannot write 'none/x': No such file or directory"),
        (["--kubernetes", "x", "--image", "a", "--certificate", "."], "--certificate has no meaning with --kubernetes"),
    ],
)
def test_what_the_command_refuses(
    folder: Path, linnet_command: Callable[..., Any], options: list[str], says: str
) -> None:
    done = linnet_command("serve", str(folder / "digits.lnt"), *options)
    assert done.returncode != 0 and says in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Upper"}, {"name": "a" * 43}, {"name": "a\nb"}, {"namespace": "-"}, {"cpus": 0}, {"replicas": 5},
        {"models_in": "cloud"}, {"margin_percent": -1},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_cluster_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(linnet.UsageError):
        Cluster(**wrong)


def test_what_manifests_refuse(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(linnet.UsageError, match="do not fit into a ConfigMap"):
        manifests(folder, image="a", cluster=Cluster(models_in="config"))
    with pytest.raises(linnet.UsageError, match="there are no models"):
        manifests(tmp_path, image="a")
    with pytest.raises(linnet.UsageError, match="there is no model"):
        manifests(tmp_path / "none.lnt", image="a")
