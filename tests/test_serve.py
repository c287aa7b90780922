"""linnet serve: the KServe v2 protocol, in JSON and binary, against Session.run; limits, keys, photos, metrics."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import wave
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import linnet
from linnet.ir.dtypes import numpy_dtype
from linnet.serve.settings import Refused
from linnet.serve.tensors import DATATYPES, Request, read_request, write_answer
from tests.serving import Client, binary_request, mlp, request, serving, wait


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mlp(tmp_path_factory.mktemp("models") / "mlp.lnt").parent


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Any]:
    with serving(folder, poll=0, max_body=1 << 20) as made:
        yield made


@pytest.fixture
def client(server: Any) -> Client:
    return Client(server.url)


def rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)}


def test_json_answers_equal_the_session(client: Client, folder: Path) -> None:
    session = linnet.Session(folder / "mlp.lnt")
    for count in (1, 2, 5, 32):
        status, answer = client.infer("mlp", rows(count), id="seven")
        assert status == 200 and answer["id"] == "seven"
        assert (answer["model_name"], answer["model_version"]) == ("mlp", "1")
        (output,) = answer["outputs"]
        assert (output["name"], output["datatype"], output["shape"]) == ("y", "FP32", [count, 3])
        found = np.array(output["data"], np.float32).reshape(count, 3)
        np.testing.assert_array_equal(found, session.run(rows(count))["y"])


def test_binary_answers_equal_the_session(client: Client, folder: Path) -> None:
    session = linnet.Session(folder / "mlp.lnt")
    for count in (1, 3, 16):
        np.testing.assert_array_equal(client.binary("mlp", rows(count))["y"], session.run(rows(count))["y"])


def test_metadata_and_health(client: Client) -> None:
    assert client.ask("GET", "/v2") == (
        200,
        {
            "name": "linnet", "version": linnet.__version__,
            "extensions": ["binary_tensor_data", "model_configuration", "model_repository", "statistics"],
        },
    )  # fmt: skip
    assert client.ask("GET", "/v2/health/live") == (200, {"live": True})
    assert client.ask("GET", "/v2/health/ready") == (200, {"ready": True})
    assert client.ask("GET", "/v2/models/mlp/ready") == (200, {"name": "mlp", "version": "1", "ready": True})
    status, found = client.ask("GET", "/v2/models/mlp/versions/1")
    assert status == 200 and found["versions"] == ["1"] and found["platform"] == "linnet_lnt"
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 8]}]
    assert found["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    assert found["parameters"]["max_batch"] == 32


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v2/models/none", "there is no model named 'none'; the models are mlp"),
        ("/v2/models/mlp/versions/7", "model 'mlp' has no version '7'; it has 1"),
        ("/v3", "there is no path '/v3'"),
    ],
)
def test_what_is_not_there_is_404(client: Client, path: str, says: str) -> None:
    assert client.ask("GET", path) == (404, {"error": says})


def wrong(**change: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]} | change


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff{}", "the body is not UTF-8"),
        (b"[1]", "the body must be a JSON object, got an array of 1"),
        (b'{"inputs":' + b"[" * 100_000, "nested too deeply"),
        ({}, "'inputs' must be an array, got nothing"),
        ({"inputs": [3]}, "inputs[0] must be an object, got 3"),
        ({"inputs": [wrong(name=3)]}, "'name' must be a string, got 3"),
        ({"inputs": [wrong(datatype="FP33")]}, "unknown datatype 'FP33'; expected one of FP32"),
        ({"inputs": [wrong(shape=[-1, 2])]}, "'shape' must be an array of at most 32 sizes of 0 or more"),
        ({"inputs": [wrong(shape=[True, 2])]}, "'shape' must be an array"),
        ({"inputs": [wrong(shape=[3, 2])]}, "'data' has 2 values, but shape [3, 2] has 6"),
        ({"inputs": [wrong(data=["a", "b"])]}, "'data' must hold numbers for FP32"),
        ({"inputs": [wrong(data=[[1], [1, 2]])]}, "'data' is not an array of numbers"),
        ({"inputs": [wrong(data=None)]}, "'data' must be an array, got nothing"),
        ({"inputs": [wrong(), wrong()]}, "input 'x' is given twice"),
        ({"inputs": [wrong(name="z")]}, "the model has no input 'z'; it has x"),
        ({"inputs": [wrong(datatype="INT32")]}, "input 'x' has datatype FP32, got INT32"),
        ({"inputs": [wrong()]}, "wrong_shape"),
        ({"inputs": []}, "no value is given for input 'x'; the inputs are x"),
        (request(rows(33)), "outside the session's bounds"),
        (request(rows(1), outputs=[{"name": "q"}]), "the model has no output 'q'; it has y"),
        (request(rows(1), outputs=3), "'outputs' must be an array, got 3"),
        (request(rows(1), parameters={"timeout": -1}), "the parameter 'timeout' is -1"),
        ({"inputs": [wrong(parameters={"shared_memory_region": "r"})]}, "shared memory is not supported"),
    ],
)
def test_a_wrong_request_is_400_and_says_why(client: Client, body: Any, says: str) -> None:
    status, answer = client.ask("POST", "/v2/models/mlp/infer", body)
    assert status == 400 and says in answer["error"], answer
    assert client.infer("mlp", rows(1))[0] == 200


def test_wrong_binary_data_is_400(client: Client) -> None:
    body, size = binary_request(rows(2))
    length = "inference-header-content-length"
    for data, header, says in (
        (body[:-1], size, "needs 64 bytes of binary data, but only 63 are left"),
        (body + b"x", size, "the inputs take 64 bytes of binary data, but the body has 65"),
        (body, len(body) + 1, "Inference-Header-Content-Length is"),
        (body.replace(b": 64", b": 60"), size, "'binary_data_size' is 60, but FP32 [2, 8] has 64 bytes"),
    ):
        status, answer = client.ask("POST", "/v2/models/mlp/infer", data, {length: str(header)})
        assert status == 400 and says in answer["error"], answer
    status, answer = client.ask("POST", "/v2/models/mlp/infer", body, {length: "-3"})
    assert status == 400 and "expected a number of bytes" in answer["error"]


def test_bodies_are_limited(client: Client, server: Any) -> None:
    """Whether their size is announced or not, and after decompression."""
    large = b" " * ((1 << 20) + 1)
    assert client.ask("POST", "/v2/models/mlp/infer", large)[0] == 413
    client = Client(server.url)
    status, answer = client.ask("POST", "/v2/models/mlp/infer", iter([large[: 1 << 19]] * 3))
    assert status == 413 and "--max-body" in answer["error"]
    client = Client(server.url)
    packed = gzip.compress(large)
    assert client.ask("POST", "/v2/models/mlp/infer", packed, {"content-encoding": "gzip"})[0] == 413
    good = gzip.compress(json.dumps(request(rows(1))).encode())
    assert client.ask("POST", "/v2/models/mlp/infer", good, {"content-encoding": "gzip"})[0] == 200
    for data, coding, status in ((good[:-3], "gzip", 400), (b"12", "deflate", 400), (good, "br", 415)):
        assert client.ask("POST", "/v2/models/mlp/infer", data, {"content-encoding": coding})[0] == status
    assert server.repository.versions["mlp"]["1"].loaded.busy == 0


@pytest.mark.parametrize("dtype", DATATYPES)
def test_each_datatype_there_and_back(dtype: str) -> None:
    """As JSON and as binary data: the arrays that are read are those that are written."""
    kind = numpy_dtype(dtype)
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind)
    if kind.kind in "iu":
        values[0, 0], values[1, 1] = np.iinfo(kind).min, np.iinfo(kind).max
    for binary in (False, True):
        asked = Request({}, None, binary, "", {})
        parts, header = write_answer({"v": values}, {"v": dtype}, asked, {})
        sent = b"".join(parts).replace(b'"outputs"', b'"inputs" ')
        (found,) = read_request(memoryview(sent), header).feeds.values()
        assert found.dtype == kind and found.shape == (2, 3)
        np.testing.assert_array_equal(found, values)


def test_integers_must_fit() -> None:
    body = b'{"inputs":[{"name":"v","shape":[1],"datatype":"UINT8","data":[%s]}]}'
    for number, says in (
        (b"256", "256 does not fit into UINT8"),
        (b"-1", "-1 does not fit"),
        (b"0.5", "must hold integers"),
    ):
        with pytest.raises(Refused, match=says):
            read_request(memoryview(body % number), None)
    assert int(read_request(memoryview(body % b"255"), None).feeds["v"][0]) == 255


def test_not_a_number_is_null_in_json() -> None:
    values = np.array([1, np.nan, np.inf], np.float32)
    parts, _ = write_answer({"v": values}, {"v": "f32"}, Request({}, None, False, "", {}), {})
    assert json.loads(b"".join(parts))["outputs"][0]["data"] == [1, None, None]


def test_statistics_and_metrics_count(folder: Path) -> None:
    with serving(folder, poll=0) as server:
        client = Client(server.url)
        for count in (1, 1, 4):
            assert client.infer("mlp", rows(count))[0] == 200
        assert client.infer("mlp", {"z": rows(1)["x"]})[0] == 400
        (stats,) = client.ask("GET", "/v2/models/mlp/stats")[1]["model_stats"]
        assert (stats["inference_count"], stats["execution_count"]) == (6, 3)
        assert stats["inference_stats"]["success"]["count"] == 3 and stats["inference_stats"]["fail"]["count"] == 1
        sizes = {entry["batch_size"]: entry["compute_infer"]["count"] for entry in stats["batch_stats"]}
        assert sizes == {1: 2, 4: 1}
        text = client.raw("GET", "/metrics")[2].decode()
        assert 'linnet_model_rows_total{model="mlp",version="1"} 6.0' in text
        assert 'linnet_requests_total{route="infer",status="200"} 3.0' in text
        assert 'linnet_requests_total{route="infer",status="400"} 1.0' in text
        assert "linnet_request_seconds_count 4.0" in text


def test_a_key_is_needed_where_one_is_set(folder: Path) -> None:
    with serving(folder, poll=0, key="secret") as server:
        for key in ("", "wrong", "secre"):
            status, answer = Client(server.url, key).infer("mlp", rows(1))
            assert status == 401 and "Authorization: Bearer KEY" in answer["error"]
        assert Client(server.url).ask("GET", "/metrics")[0] == 401
        assert Client(server.url).ask("GET", "/v2/health/ready")[0] == 200
        assert Client(server.url, "secret").infer("mlp", rows(1))[0] == 200


def test_a_photo_is_a_body(tmp_path: Path) -> None:
    """The answer is what Session.run gives for the pixels, with the labels that the file has."""
    Image = pytest.importorskip("PIL.Image")
    from linnet import nn, preprocess

    graph = linnet.Graph(seed=3)
    x = graph.placeholder("x", (1, 3, 8, 8))
    graph.signature("infer", {"x": x}, {"y": nn.dense(nn.flatten(x), 4)})
    whole = preprocess.image(graph.freeze(), "x", mean=(0, 0, 0), std=(1, 1, 1))
    whole, _ = preprocess.classes(whole, ["ant", "bee", "cat", "dog"], k=2)
    whole.save(tmp_path / "pets.lnt")
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    expected = linnet.Session(tmp_path / "pets.lnt").run({"x": pixels})
    with serving(tmp_path, poll=0, bounds={"x": "1..64,1..64,3"}) as server:
        client = Client(server.url)
        kind = client.ask("GET", "/v2/models/pets")[1]["inputs"][0]["parameters"]
        assert kind == {"kind": "image"}
        status, answer = client.ask("POST", "/v2/models/pets/infer", buffer.getvalue(), {"content-type": "image/png"})
        assert status == 200, answer
        for output in answer["outputs"]:
            found = np.array(output["data"]).reshape(output["shape"])
            np.testing.assert_allclose(found, expected[output["name"]], 1e-6)
        (labels,) = answer["parameters"]["found"].values()
        assert (
            len(labels) == 2
            and labels[0]["score"] >= labels[1]["score"]
            and labels[0]["label"] in ("ant", "bee", "cat", "dog")
        )
        status, answer = client.ask(
            "POST", "/v2/models/pets/infer", buffer.getvalue()[:60], {"content-type": "image/png"}
        )
        assert status == 400 and "cannot read 'the body'" in answer["error"]
        status, answer = client.ask("POST", "/v2/models/pets/infer", b"hello", {"content-type": "image/png"})
        assert status == 400 and "expected a JPEG, PNG or BMP image" in answer["error"]


def test_a_sound_is_a_body(tmp_path: Path) -> None:
    """The bounds are the server's own: half a second and half a minute both fit, two minutes do not."""
    from linnet import nn, preprocess

    graph = linnet.Graph(seed=3)
    x = graph.placeholder("mel", (1, "frames", 40))
    graph.signature("infer", {"mel": x}, {"y": nn.dense(x.mean(1), 3)})
    features = preprocess.Features(mels=40)
    preprocess.audio(graph.freeze(), "mel", features, rate=16000).save(tmp_path / "words.lnt")
    session = linnet.Session(tmp_path / "words.lnt")
    with serving(tmp_path, poll=0) as server:
        client = Client(server.url)
        for seconds, status in ((0.5, 200), (30, 200), (120, 400)):
            sound = (8000 * np.sin(np.arange(int(16000 * seconds)) / 7)).astype("<i2")
            buffer = BytesIO()
            with wave.open(buffer, "wb") as file:
                file.setparams((1, 2, 16000, len(sound), "NONE", ""))
                file.writeframes(sound.tobytes())
            found, answer = client.ask(
                "POST", "/v2/models/words/infer", buffer.getvalue(), {"content-type": "audio/wav"}
            )
            assert found == status, answer
            if found == 200:
                expected = session.run({"mel": sound / np.float32(32768)})["y"]
                np.testing.assert_allclose(np.array(answer["outputs"][0]["data"]), expected.ravel(), 1e-5, 1e-6)
            else:
                assert "outside the session's bounds" in answer["error"]


def test_a_photo_for_a_model_without_the_steps_is_415(client: Client) -> None:
    status, answer = client.ask("POST", "/v2/models/mlp/infer", b"\x89PNG\r\n\x1a\n", {"content-type": "image/png"})
    assert status == 415 and "linnet convert --image imagenet" in answer["error"]


def connect(server: Any) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def everything(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    found = b""
    while data := connection.recv(1 << 16):
        found += data
    return found


def test_headers_are_limited_in_size_and_time(folder: Path) -> None:
    with serving(folder, poll=0, header_timeout=0.3) as server:
        with connect(server) as line:
            line.sendall(b"GET /v2 HTTP/1.1\r\nhost: x\r\n")
            assert b"408" in everything(line).split(b"\r\n")[0]
        with connect(server) as line:  # a connection that says nothing
            assert b"408" in everything(line).split(b"\r\n")[0]
    with serving(folder, poll=0) as server, connect(server) as line:
        sent = 0
        try:
            line.sendall(b"GET /v2 HTTP/1.1\r\nx: ")
            while sent < 1 << 28:
                line.sendall(b"a" * (1 << 16))
                sent += 1 << 16
        except OSError:
            pass
        assert sent < 1 << 24


def test_a_body_must_arrive_in_time(folder: Path) -> None:
    with serving(folder, poll=0, body_timeout=1) as server, connect(server) as line:
        line.sendall(b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert b"408" in everything(line).split(b"\r\n")[0]
        assert Client(server.url).infer("mlp", rows(1))[0] == 200


def test_stop_answers_what_waits(folder: Path) -> None:
    """A server that is told to stop answers the requests that it has."""
    with serving(folder, poll=0) as server:
        loaded = server.repository.versions["mlp"]["1"].loaded
        lane, loaded.quick = loaded.lane, False
        run, begun, go_on = lane.session.run, threading.Event(), threading.Event()

        def slow(*arguments: Any, **more: Any) -> Any:
            begun.set()
            assert go_on.wait(30)
            return run(*arguments, **more)

        lane.session.run = slow
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(Client(server.url).infer("mlp", rows(1))))
        thread.start()
        assert begun.wait(30)
        server.should_exit = True
        time.sleep(0.3)
        go_on.set()
        thread.join()
        assert found[0][0] == 200
        wait(lambda: not server.repository.versions["mlp"]["1"].loaded)
