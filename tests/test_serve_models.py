"""linnet serve: models and versions in folders, hot swap, memory, runs that requests share, deadlines, queues."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.clib.errors import UsageError
from linnet.serve.repository import scan
from tests.command import run_process
from tests.serving import Client, Process, mlp, serving, wait


def rows(count: int, seed: int = 0, inputs: int = 8) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((count, inputs)).astype(np.float32)}


class Held:
    """Holds a lane's runs until `go_on`; `batches` are the rows of each run."""

    def __init__(self, server: Any, model: str = "mlp") -> None:
        self.loaded = server.repository.versions[model]["1"].loaded
        self.run, self.begun, self.go_on = self.loaded.lane.session.run, threading.Event(), threading.Event()
        self.batches: list[int] = []
        self.loaded.lane.session.run, self.loaded.quick = self, False

    def __call__(self, feeds: Any, *arguments: Any, **more: Any) -> Any:
        self.batches.append(len(feeds["x"]))
        self.begun.set()
        assert self.go_on.wait(60)
        return self.run(feeds, *arguments, **more)


def test_requests_that_wait_share_a_run(tmp_path: Path) -> None:
    """13 requests of one row wait for the first: they run as 8, 4 and 1, and each gets the answer to its own rows."""
    mlp(tmp_path / "mlp.lnt")
    session = linnet.Session(tmp_path / "mlp.lnt")
    with serving(tmp_path, poll=0) as server, ThreadPoolExecutor(14) as pool:
        held = Held(server)
        ask = lambda seed: Client(server.url).binary("mlp", rows(1, seed))["y"]  # noqa: E731
        first = pool.submit(ask, 0)
        assert held.begun.wait(60)
        others = [pool.submit(ask, seed) for seed in range(1, 14)]
        wait(lambda: held.loaded.busy == 14)
        held.go_on.set()
        for seed, answer in enumerate([first, *others]):
            np.testing.assert_allclose(answer.result(), session.run(rows(1, seed))["y"], 1e-5, 1e-6)
        assert held.batches == [1, 8, 4, 1]
        (stats,) = Client(server.url).ask("GET", "/v2/models/mlp/stats")[1]["model_stats"]
        assert (stats["inference_count"], stats["execution_count"]) == (14, 4)


def test_one_bad_request_does_not_spoil_the_run_of_others(tmp_path: Path) -> None:
    """An index out of range fails a shared run: its request gets the error, the others their answers."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", ("batch", 2), "i32")
    graph.signature("infer", {"x": x}, {"y": nn.embedding(x, 10, 4)})
    graph.freeze().save(tmp_path / "mlp.lnt")
    session = linnet.Session(tmp_path / "mlp.lnt")
    with serving(tmp_path, poll=0) as server, ThreadPoolExecutor(5) as pool:
        held = Held(server)
        feeds = [{"x": np.array([[i, 3]], np.int32)} for i in (1, 2, 99, 4, 5)]
        answers = [pool.submit(lambda f: Client(server.url).infer("mlp", f), feeds[0])]
        assert held.begun.wait(60)
        answers += [pool.submit(lambda f: Client(server.url).infer("mlp", f), feed) for feed in feeds[1:]]
        wait(lambda: held.loaded.busy == 5)
        held.go_on.set()
        for i, (feed, answer) in enumerate(zip(feeds, answers, strict=True)):
            status, found = answer.result()
            if i == 2:
                assert status == 400 and "index_out_of_range" in found["error"]
            else:
                expected = session.run(feed)["y"].ravel()
                np.testing.assert_array_equal(np.array(found["outputs"][0]["data"], np.float32), expected)


def test_rows_that_depend_on_each_other_do_not_share_runs(tmp_path: Path) -> None:
    """A model that subtracts the mean over the batch is found out when it is loaded."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch", 8))
    graph.signature("infer", {"x": x}, {"y": x - x.mean(0, keep_dims=True)})
    graph.save(tmp_path / "centred.lnt")
    with serving(tmp_path, poll=0) as server:
        assert server.repository.versions["centred"]["1"].loaded.batches == ()
        status, answer = Client(server.url).infer("centred", rows(4))
        expected = rows(4)["x"] - rows(4)["x"].mean(0)
        assert status == 200
        np.testing.assert_allclose(np.array(answer["outputs"][0]["data"]).reshape(4, 8), expected, 1e-5, 1e-6)


def test_a_full_queue_is_429(tmp_path: Path) -> None:
    mlp(tmp_path / "mlp.lnt")
    with serving(tmp_path, poll=0, max_queue=2) as server, ThreadPoolExecutor(2) as pool:
        held = Held(server)
        waiting = [pool.submit(lambda: Client(server.url).infer("mlp", rows(1))) for _ in range(2)]
        wait(lambda: held.loaded.busy == 2)
        status, headers, data = Client(server.url).raw("POST", "/v2/models/mlp/infer", json.dumps(_small()))
        assert status == 429 and headers["retry-after"] == "1" and b"--max-queue" in data
        held.go_on.set()
        assert [each.result()[0] for each in waiting] == [200, 200]


def _small() -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [0] * 8}]}


def test_a_deadline_ends_the_wait(tmp_path: Path) -> None:
    """The request in the run and the request in the queue are answered 504; the second never runs."""
    mlp(tmp_path / "mlp.lnt")
    with serving(tmp_path, poll=0) as server, ThreadPoolExecutor(2) as pool:
        held = Held(server)
        asked = {"timeout": 200_000}
        answers = [pool.submit(lambda: Client(server.url).infer("mlp", rows(1), parameters=asked))]
        assert held.begun.wait(60)
        answers.append(pool.submit(lambda: Client(server.url).infer("mlp", rows(1), parameters=asked)))
        for answer in answers:
            status, found = answer.result()
            assert status == 504 and found["error"].startswith("deadline_exceeded")
        held.go_on.set()
        assert Client(server.url).infer("mlp", rows(1))[0] == 200
        assert held.batches == [1, 1]


def test_a_client_that_goes_away_ends_its_run(tmp_path: Path) -> None:
    """A loop of many steps ends long before its end, because nobody waits for it."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 8))
    _, y = linnet.while_loop(
        lambda state: state[0] < 2_000_000_000, lambda state: [state[0] + 1, state[1] * 1.0], [0, x]
    )
    graph.signature("infer", {"x": x}, {"y": y})
    graph.save(tmp_path / "mlp.lnt")
    with serving(tmp_path, poll=0, timeout=3000) as server:
        loaded = server.repository.versions["mlp"]["1"].loaded
        client = Client(server.url)
        client.connection.request("POST", "/v2/models/mlp/infer", json.dumps(_small()))
        wait(lambda: loaded.lane._running)
        client.connection.close()
        wait(lambda: not loaded.lane._running)


def versions(folder: Path) -> Path:
    """Two models: `a` with versions 2 and 10, `b`."""
    (folder / "a").mkdir()
    mlp(folder / "a" / "2.lnt", seed=2)
    (folder / "a" / "10").mkdir()
    mlp(folder / "a" / "10" / "model.lnt", seed=10)
    mlp(folder / "b.lnt", seed=3)
    return folder


def test_the_highest_version_answers(tmp_path: Path) -> None:
    versions(tmp_path)
    with serving(tmp_path, poll=0) as server:
        client = Client(server.url)
        for path, file in (
            ("a", "a/10/model.lnt"),
            ("a/versions/10", "a/10/model.lnt"),
            ("a/versions/2", "a/2.lnt"),
            ("b", "b.lnt"),
        ):
            expected = linnet.Session(tmp_path / file).run(rows(2))["y"]
            np.testing.assert_array_equal(client.binary(path, rows(2))["y"], expected)
        status, index = client.ask("POST", "/v2/repository/index")
        assert status == 200
        assert {(e["name"], e["version"], e["state"]) for e in index} == {
            ("a", "2", "READY"), ("a", "10", "READY"), ("b", "1", "READY"),
        }  # fmt: skip
        assert client.ask("GET", "/v2/models/a")[1]["versions"] == ["2", "10"]


def test_two_files_of_one_version_are_refused(tmp_path: Path) -> None:
    versions(tmp_path)
    mlp(tmp_path / "a.lnt")
    (tmp_path / "a" / "1").mkdir()
    mlp(tmp_path / "a" / "1" / "m.lnt")
    with pytest.raises(UsageError, match="two files are version 1 of model 'a'"):
        scan([tmp_path])
    with pytest.raises(UsageError, match="there is no model"):
        scan([tmp_path / "none"])


def test_load_and_unload(tmp_path: Path) -> None:
    mlp(tmp_path / "mlp.lnt")
    with serving(tmp_path, poll=0) as server:
        client = Client(server.url)
        assert client.ask("POST", "/v2/repository/models/mlp/unload", "{}") == (200, {})
        status, answer = client.infer("mlp", rows(1))
        assert status == 503 and answer["error"] == "model 'mlp/1' is not ready: unloaded"
        assert client.ask("GET", "/v2/models/mlp/ready")[0] == 503
        assert client.ask("POST", "/v2/repository/index", {"ready": True}) == (200, [])
        mlp(tmp_path / "new.lnt")
        for name in ("mlp", "new"):
            assert client.ask("POST", f"/v2/repository/models/{name}/load") == (200, {})
            assert client.infer(name, rows(1))[0] == 200
        assert client.ask("POST", "/v2/repository/models/none/load")[0] == 404
        status, answer = client.ask("POST", "/v2/repository/models/mlp/load", {"parameters": {"config": "x"}})
        assert status == 400 and "'config'" in answer["error"]


def test_a_changed_file_is_exchanged_under_load(tmp_path: Path) -> None:
    """Every answer is that of the old or of the new model, none fails, and the new one answers in the end. A half-written
    file changes nothing."""
    path = mlp(tmp_path / "mlp.lnt", seed=1)
    mlp(tmp_path / "new", seed=2)
    answers = [linnet.Session(file).run(rows(1))["y"] for file in (path, tmp_path / "new")]
    with serving(path, poll=0.05) as server, ThreadPoolExecutor(4) as pool:
        ended = threading.Event()

        def ask() -> list[int]:
            client, found = Client(server.url), []
            while not ended.is_set():
                y = client.binary("mlp", rows(1))["y"]
                found.append([np.array_equal(y, each) for each in answers].index(True))
            return found

        asking = [pool.submit(ask) for _ in range(4)]
        version = server.repository.versions["mlp"]["1"]
        whole = (tmp_path / "new").read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        wait(lambda: version.reason)
        assert version.state == "READY" and version.loaded is not None
        shutil.copy(tmp_path / "new", path)
        wait(lambda: not version.reason)
        client = Client(server.url)
        np.testing.assert_array_equal(client.binary("mlp", rows(1))["y"], answers[1])
        ended.set()
        for each in asking:
            found = each.result()
            assert found == sorted(found)  # the old model never answers after the new one
        path.unlink()
        wait(lambda: "mlp" not in server.repository.versions)
        assert client.infer("mlp", rows(1))[0] == 404


def test_a_model_that_does_not_fit_is_refused_with_both_numbers(tmp_path: Path) -> None:
    for name in "abc":
        mlp(tmp_path / f"{name}.lnt", units=4096)
    with serving(tmp_path, poll=0) as server:
        each = server.repository.versions["a"]["1"].loaded.bytes
        assert server.repository.bytes == 3 * each
    limit = 2 * each + each // 2
    with serving(tmp_path, poll=0, max_bytes=limit) as server:
        assert server.repository.bytes == 2 * each <= limit
        states = {entry["name"]: entry for entry in Client(server.url).ask("POST", "/v2/repository/index")[1]}
        assert [states[name]["state"] for name in "abc"] == ["READY", "READY", "UNAVAILABLE"]
        says = re.search(r"expected at most (\d+) bytes, got (\d+) bytes", states["c"]["reason"])
        assert says and int(says[1]) == limit - 2 * each < int(says[2]) <= each
        status, answer = Client(server.url).infer("c", rows(1))
        assert status == 503 and says[0] in answer["error"]
    with serving(tmp_path, poll=0, max_bytes=2 * each + int(says[2])) as server:  # just enough
        for name in "abc":
            for count in (1, 32, 5):
                assert Client(server.url).infer(name, rows(count))[0] == 200
    with serving(tmp_path, poll=0, max_bytes=2 * each + int(says[2]) - 1) as server:
        assert server.repository.versions["c"]["1"].loaded is None


def test_idle_models_make_room(tmp_path: Path) -> None:
    """With room for two of three, each answers when it is asked for."""
    for seed, name in enumerate("abc"):
        mlp(tmp_path / f"{name}.lnt", units=4096, seed=seed)
    with serving(tmp_path, poll=0) as server:
        each = server.repository.versions["a"]["1"].loaded.bytes
    expected = {name: linnet.Session(tmp_path / f"{name}.lnt").run(rows(1))["y"] for name in "abc"}
    with serving(tmp_path, poll=0, max_bytes=2 * each, unload_idle=True) as server:
        client = Client(server.url)
        for name in "cabcbacc":
            for version in (one for ones in server.repository.versions.values() for one in ones.values()):
                if version.loaded is not None:
                    version.loaded.used -= 10  # as if it had been idle for long
            np.testing.assert_array_equal(client.binary(name, rows(1))["y"], expected[name])
            assert server.repository.bytes == 2 * each


def test_memory_is_what_was_said(tmp_path: Path) -> None:
    """Whatever sizes of batches run, the session never holds more than the server said beforehand."""
    path = mlp(tmp_path / "mlp.lnt", units=512)
    with serving(tmp_path, poll=0) as server:
        client, loaded = Client(server.url), server.repository.versions["mlp"]["1"].loaded
        most = 0
        for count in (1, 32, 2, 31, 4, 8, 16, 3, 5, 7, 9, 32, 1):
            assert client.infer("mlp", rows(count))[0] == 200
            most = max(most, loaded.lane.session.memory_kept + path.stat().st_size)
        assert most <= loaded.bytes <= 2 * most


def test_a_training_signature_is_not_served(tmp_path: Path) -> None:
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", 8)), graph.placeholder("t", ("batch",), "i32")
    logits = nn.dense(x, 3)
    loss = linnet.softmax_cross_entropy(logits, t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.SGD(0.1).minimize(loss))
    graph.save(tmp_path / "only_train.lnt")
    graph.signature("infer", {"x": x}, {"logits": logits})
    graph.save(tmp_path / "both.lnt")
    with serving(tmp_path, poll=0) as server:
        client = Client(server.url)
        assert client.infer("both", rows(2))[0] == 200
        status, answer = client.infer("only_train", rows(2))
        assert status == 503 and "no signature that leaves its variables as they are" in answer["error"]
    with serving(tmp_path / "both.lnt", poll=0, signature="train") as server:
        assert "changes variables" in server.repository.versions["both"]["1"].reason


def test_triton_client(tmp_path: Path) -> None:
    """NVIDIA's client works as it is, with JSON and binary tensors and compression."""
    import tritonclient.http as triton

    path = mlp(tmp_path / "mlp.lnt")
    expected = linnet.Session(path).run(rows(3))["y"]
    with serving(tmp_path, poll=0) as server:
        client = triton.InferenceServerClient(server.url.removeprefix("http://"))
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("mlp")
        assert client.get_server_metadata()["name"] == "linnet"
        assert client.get_model_metadata("mlp")["inputs"][0]["shape"] == [-1, 8]
        assert client.get_model_config("mlp")["max_batch_size"] == 32
        for binary in (True, False):
            given = triton.InferInput("x", [3, 8], "FP32")
            given.set_data_from_numpy(rows(3)["x"], binary_data=binary)
            wanted = triton.InferRequestedOutput("y", binary_data=binary)
            for outputs in ([wanted], None):
                for coding in (None, "gzip"):
                    answer = client.infer(
                        "mlp", [given], outputs=outputs, request_id="r1", request_compression_algorithm=coding,
                        timeout=5_000_000,
                    )  # fmt: skip
                    np.testing.assert_array_equal(answer.as_numpy("y"), expected)
                    assert answer.get_response()["id"] == "r1"
        assert client.get_inference_statistics("mlp")["model_stats"][0]["inference_count"] == 24
        assert client.get_model_repository_index()[0]["name"] == "mlp"
        client.unload_model("mlp")
        assert not client.is_model_ready("mlp")
        client.load_model("mlp")
        assert client.is_model_ready("mlp")
        with pytest.raises(triton.InferenceServerException, match="no model named 'none'"):
            client.get_model_metadata("none")
        client.close()


def test_the_command_serves_logs_and_stops(tmp_path: Path) -> None:
    mlp(tmp_path / "mlp.lnt")
    server = Process(tmp_path, "--port", 0, "--log-requests")
    assert Client(server.url).infer("mlp", rows(1))[0] == 200
    logged = server.until("request")
    assert (logged["path"], logged["status"]) == ("/v2/models/mlp/infer", 200) and logged["ms"] > 0
    (loaded,) = [event for event in server.events if event["event"] == "model loaded"]
    assert loaded["model"] == "mlp/1" and loaded["bytes"] > 0
    assert server.stop() in (0, -signal.SIGTERM)


def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    path = mlp(tmp_path / "mlp.lnt")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_process("serve", path, "--port", port)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; give another --port" in done.stderr


def test_a_retrying_client_survives_kill_9(tmp_path: Path) -> None:
    """A client that sends again what was not answered gets every answer, though the server is killed in the middle."""
    path = mlp(tmp_path / "mlp.lnt")
    session = linnet.Session(path)
    server = Process(path, "--port", 0)
    port = server.url.rpartition(":")[2]
    found: dict[int, np.ndarray] = {}

    def ask() -> None:
        client: Client | None = None
        for seed in range(200):
            while seed not in found:
                try:
                    client = client or Client(f"http://127.0.0.1:{port}")
                    found[seed] = client.binary("mlp", rows(1, seed))["y"]
                except Exception:  # whatever the killed server leaves
                    client = None

    thread = threading.Thread(target=ask)
    thread.start()
    wait(lambda: len(found) > 50)
    server.process.kill()
    server.process.wait()
    server = Process(path, "--port", port)
    thread.join(120)
    assert not thread.is_alive() and len(found) == 200
    for seed, y in found.items():
        np.testing.assert_array_equal(y, session.run(rows(1, seed))["y"])
    server.stop()
