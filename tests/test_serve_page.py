"""The page of `linnet serve` in headless Chromium, against a real server: the list, the form, a photo, errors, the key, and
that nothing that a server says becomes HTML."""
# Dear: Chromium starts.

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import linnet
from tests.native import ROOT
from tests.serving import mlp, serving

PAGE = ROOT / "pyruntime" / "linnet" / "serve" / "page.html"
HOSTILE = "<img src=x onerror=alert(1)>"  # no slash: it is the name of a file


def detector(path: Path) -> None:
    """Finds one box in every photo: x 12 to 52, y 30 to 50 of a photo of 64 x 128 pixels. Its class has a hostile label."""
    graph = linnet.Graph()
    main = graph.function()
    blank = linnet.ops.mean(main.placeholder("images", "f32", (1, 3, 64, 64)))
    raw = main.constant(np.array([[[32, 33], [20, 20], [20, 20], [10, 10], [0.75, 0.5]]], np.float32))
    main.outputs.append(linnet.ops.add(raw, linnet.ops.multiply(blank, main.constant(np.float32(0))), name="output0"))
    graph.signature("infer", main)
    made = linnet.preprocess.image(graph, "images", fit="letterbox", pad=114)
    linnet.preprocess.boxes.yolo(made, "output0", labels=[HOSTILE]).save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    digits = ROOT / "examples" / "mnist_small" / "mnist_small.onnx"
    linnet.from_onnx(digits).save(made / "digits.lnt")
    labelled = linnet.preprocess.image(
        linnet.from_onnx(digits, input_shapes={"input": (1, 1, 28, 28)}), "input", colour="grey"
    )
    labels = [f"digit-{i}" for i in range(10)]
    linnet.preprocess.top_k(labelled, "logits", k=3, labels=labels, activation="softmax").save(made / "labelled.lnt")
    detector(made / "faces.lnt")
    mlp(made / f"{HOSTILE}.lnt", inputs=4)
    (made / "damaged.lnt").write_bytes(b"no model")
    return made


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,1000"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        pytest.skip("missing: chromium and chromedriver; get them with: apt-get install chromium chromium-driver")
    options.binary_location = chromium
    made = webdriver.Chrome(options, Service(driver))
    yield made
    made.quit()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Any]:
    with serving(folder, poll=0) as made:
        yield made


class Page:
    """The page of a server, as a person sees it."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        browser.get("about:blank")
        browser.get(url)

    def all(self, css: str) -> list[Any]:
        return list(self.browser.find_elements(By.CSS_SELECTOR, css))

    def text(self, css: str) -> str:
        return "\n".join(str(element.text) for element in self.all(css))

    def wait(self, until: Any) -> Any:
        return WebDriverWait(self.browser, 60, ignored_exceptions=(Exception,)).until(lambda _: until())

    def row(self, name: str) -> Any:
        (row,) = [row for row in self.all("#models tbody tr") if row.find_element(By.TAG_NAME, "button").text == name]
        return row

    def choose(self, name: str) -> None:
        self.wait(lambda: self.row(name))
        self.row(name).find_element(By.TAG_NAME, "button").click()
        self.wait(lambda: self.text("#ask h2").startswith(name))

    def set(self, css: str, text: str) -> None:
        """Types a text. Its field gets the event that ends an edit."""
        self.browser.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))", self.all(css)[0], text
        )

    def run(self) -> str:
        (button,) = self.all("#ask button.do")
        button.click()
        self.wait(lambda: self.text("#answer h2") == "Result" or self.all("#answer .error"))
        return self.text("#answer")


@pytest.fixture
def page(browser: Any, server: Any) -> Page:
    return Page(browser, server.url)


def test_the_list_shows_states_memory_and_times(page: Page, server: Any) -> None:
    page.wait(lambda: len(page.all("#models tbody tr")) == 5)
    assert "ready" in page.row("digits").text and "unavailable" in page.row("damaged").text
    loaded = server.repository.versions["digits"]["1"].loaded
    cells = [cell.text for cell in page.row("digits").find_elements(By.TAG_NAME, "td")]
    value, unit = cells[2].split()
    assert abs(float(value) * {"MB": 1e6, "kB": 1e3}[unit] - loaded.bytes) < loaded.bytes / 100
    page.choose("digits")
    before = int(page.row("digits").find_elements(By.TAG_NAME, "td")[3].text)
    page.run()
    page.wait(lambda: int(page.row("digits").find_elements(By.TAG_NAME, "td")[3].text) == before + 1)
    assert re.search(r"\d (µs|ms|s)", page.row("digits").find_elements(By.TAG_NAME, "td")[5].text)


def test_numbers_give_the_results_of_a_session(page: Page, folder: Path) -> None:
    page.choose(HOSTILE)
    assert "x FP32 [?, 4]" in page.text("#ask")
    page.set("#shape0", "2, 4")
    values = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    page.set("#values0", str(values.tolist()))
    said = page.run()
    expected = linnet.Session(folder / f"{HOSTILE}.lnt").run({"x": values})["y"]
    assert "y FP32 [2, 3]" in said and "in this browser" in said and "the run" in said
    shown = [float(cell.text) for cell in page.all("#answer td.num")]
    np.testing.assert_allclose(np.reshape(shown, (2, 3)), expected, rtol=1e-4, atol=1e-6)


def test_the_largest_elements_come_first(page: Page, folder: Path) -> None:
    page.choose("digits")
    with np.load(ROOT / "examples" / "mnist_small" / "samples.npz") as samples:
        image = samples["images"][:1, None].astype(np.float32) / 255
    page.set("#shape0", "1, 1, 28, 28")
    page.set("#values0", str(image.tolist()))
    page.run()
    logits = linnet.Session(folder / "digits.lnt").run({"input": image})["logits"][0]
    shown = [row.text for row in page.all("#answer .bars tr")]
    assert [int(re.match(r"element (\d+)", row)[1]) for row in shown] == list(np.argsort(-logits))  # type: ignore[index]


def test_a_photo_gets_boxes(page: Page, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    Image.new("RGB", (64, 128), (0, 0, 0)).save(photo)
    page.choose("faces")
    page.all("#drop input")[0].send_keys(str(photo))
    page.wait(lambda: page.all("#answer #photo"))
    assert HOSTILE in page.text("#answer .bars") and "0.75" in page.text("#answer .bars")
    pixel = "const c = document.getElementById('photo'), by = c.width / 64;"
    pixel += "const p = c.getContext('2d').getImageData(arguments[0] * by, arguments[1] * by, 1, 1).data;"
    on_the_box = page.browser.execute_script(pixel + "return [...p]", 52, 45)
    inside = page.browser.execute_script(pixel + "return [...p]", 60, 110)
    assert on_the_box[1] > 150 and inside[:3] == [0, 0, 0]


def test_a_photo_gets_labels(page: Page, tmp_path: Path, folder: Path) -> None:
    with np.load(ROOT / "examples" / "mnist_small" / "samples.npz") as samples:
        pixels = samples["images"][0]
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    page.choose("labelled")
    page.all("#drop input")[0].send_keys(str(tmp_path / "digit.png"))
    page.wait(lambda: page.all("#answer .bars tr"))
    session = linnet.Session(folder / "labelled.lnt")
    found = session.run({"input": np.repeat(pixels[:, :, None], 3, axis=2)})
    shown = [row.text.split() for row in page.all("#answer .bars")[0].find_elements(By.TAG_NAME, "tr")]
    scores = next(value for value in found.values() if value.dtype == np.float32).reshape(-1)
    classes = next(value for value in found.values() if value.dtype != np.float32).reshape(-1)
    assert [int(label.removeprefix("digit-")) for label, _ in shown] == classes.tolist() and len(shown) == 3
    np.testing.assert_allclose([float(score) for _, score in shown], scores, rtol=1e-4, atol=1e-6)


def test_a_photo_that_is_dropped(page: Page) -> None:
    page.choose("faces")
    page.browser.execute_async_script(
        """
        const done = arguments[0], canvas = document.createElement("canvas");
        canvas.width = 64; canvas.height = 128;
        canvas.getContext("2d").fillRect(0, 0, 64, 128);
        canvas.toBlob(blob => {
          const data = new DataTransfer();
          data.items.add(new File([blob], "dropped.jpg", {type: "image/jpeg"}));
          const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
          document.getElementById("drop").dispatchEvent(drop);
          done();
        }, "image/jpeg");
        """
    )
    page.wait(lambda: page.all("#answer #photo"))
    assert "dropped.jpg" in page.text("#drop")


def test_errors_are_shown(page: Page, tmp_path: Path) -> None:
    page.choose(HOSTILE)
    page.set("#values0", "[1, 2")
    assert "The values of x are not a JSON array." in page.run()
    page.set("#values0", "[1, 2]")
    assert "'data' has 2 values, but shape [1, 4] has 4" in page.run()
    page.choose("damaged")
    page.wait(lambda: "is not ready" in page.text("#ask .error"))
    wrong = tmp_path / "wrong.jpg"
    wrong.write_bytes(b"no photo")
    page.choose("faces")
    page.all("#drop input")[0].send_keys(str(wrong))
    page.wait(lambda: "JPEG, PNG or BMP" in page.text("#answer .error"))


def test_nothing_becomes_html_and_nothing_else_is_loaded(page: Page, browser: Any, server: Any) -> None:
    page.choose(HOSTILE)
    page.run()
    assert not page.all("img") and len(page.all("script")) == 1
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(each => each.name)")
    assert loaded and all(name.startswith(server.url) for name in loaded)
    problems = [entry for entry in browser.get_log("browser") if "Content Security Policy" in entry["message"]]
    assert not problems
    source = PAGE.read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|https?://", source)


def test_it_fits_a_phone(page: Page, browser: Any) -> None:
    browser.set_window_size(400, 800)
    try:
        page.choose("digits")
        page.run()
        wide = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1]
    finally:
        browser.set_window_size(1200, 1000)


def test_a_key(browser: Any, folder: Path) -> None:
    with serving(folder / "digits.lnt", key="a key", poll=0) as server:
        page = Page(browser, server.url)
        page.wait(page.all("#key")[0].is_displayed)
        assert not page.all("#models tbody tr")
        page.all("#secret")[0].send_keys("wrong")
        page.all("#key button")[0].click()
        page.wait(lambda: "needs a key" in page.text("#trouble"))
        page.all("#secret")[0].send_keys("a key")
        page.all("#key button")[0].click()
        page.choose("digits")
        assert not page.all("#key")[0].is_displayed() and "logits" in page.run()
        browser.refresh()
        page.choose("digits")
        assert not page.all("#key")[0].is_displayed(), "the key is kept while the tab is open"
