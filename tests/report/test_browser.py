"""The page in a real browser: with scripts, without, under a strict policy, on paper."""

import base64
import http.server
import shutil
import threading
from contextlib import contextmanager
from functools import partial

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import records
from tare import analysis, report

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
)
FIGURES = {
    *("effects", "levels", "distributions", "sessions"),
    *("budget", "account", "deadlines", "paper"),
}
STRICT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'unsafe-inline'"
NO_SCRIPTS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
PATIENCE_S = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    recipe = records.Recipe(requests=400, lost={"qemu/fastdds": 2})
    record = records.make(tmp_path_factory.mktemp("browser") / "r", recipe)
    report.write(report.render(analysis.analyse(record)), record.folder / "report.html")
    return record.folder


@contextmanager
def browser(profile, *, scripts=True, size=(1200, 900)):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.fail("no browser: apt-get install --no-install-recommends chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    if not scripts:
        blocked = {"profile.managed_default_content_settings.javascript": 2}
        options.add_experimental_option("prefs", blocked)
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield started
    finally:
        started.quit()


@contextmanager
def served(folder, policy):
    """Serve a folder on the loopback, every answer under a content security policy."""

    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self):
            self.send_header("Content-Security-Policy", policy)
            super().end_headers()

        def log_message(self, *_):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/report.html", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def shown(driver):
    """Figure -> which of its drawings is displayed, in a size that can be read."""
    found = {}
    for figure in driver.find_elements(By.TAG_NAME, "figure"):
        name = figure.get_attribute("id").removeprefix("figure-")
        for kind in ("still", "live"):
            for svg in figure.find_elements(By.CSS_SELECTOR, f".{kind} svg"):
                if svg.is_displayed() and svg.size["width"] > 300 and svg.size["height"] > 60:
                    found.setdefault(name, []).append(kind)
    return found


def complaints(driver):
    return [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"]


def test_figures_come_alive_where_scripts_run_and_nothing_is_complained_of(folder, tmp_path):
    with browser(tmp_path / "profile") as driver:
        driver.get((folder / "report.html").as_uri())
        alive = {name: ["live"] for name in FIGURES}
        WebDriverWait(driver, PATIENCE_S).until(lambda d: shown(d) == alive)
        assert complaints(driver) == []
        answers = driver.find_element(By.ID, "answers").text
        assert "A response through Cyclone DDS takes" in answers
        assert "slower" in answers


def test_without_scripts_every_figure_stands_still_and_is_there(folder, tmp_path):
    with browser(tmp_path / "profile", scripts=False) as driver:
        driver.get((folder / "report.html").as_uri())
        assert shown(driver) == {name: ["still"] for name in FIGURES}
        assert "A response through Cyclone DDS takes" in driver.page_source


def test_under_a_policy_without_eval_the_figures_come_alive_all_the_same(folder, tmp_path):
    with (
        served(folder, STRICT) as (address, asked),
        browser(tmp_path / "profile") as driver,
    ):
        driver.get(address)
        alive = {name: ["live"] for name in FIGURES}
        WebDriverWait(driver, PATIENCE_S).until(lambda d: shown(d) == alive)
        assert complaints(driver) == []
        assert asked == ["/report.html"]


def test_under_a_policy_without_any_script_the_still_figures_stay(folder, tmp_path):
    with (
        served(folder, NO_SCRIPTS) as (address, asked),
        browser(tmp_path / "profile") as driver,
    ):
        driver.get(address)
        assert shown(driver) == {name: ["still"] for name in FIGURES}
        assert asked == ["/report.html"]


def test_where_drawing_breaks_the_still_figures_stay(folder, tmp_path):
    page = (folder / "report.html").read_text()
    broken = tmp_path / "report.html"
    # The policy that the page brings along admits only its own script, so it must go with it.
    page = page.replace('<meta http-equiv="Content-Security-Policy"', "<meta")
    broken.write_text(page.replace('"scales":', '"was":'))
    with browser(tmp_path / "profile") as driver:
        driver.get(broken.as_uri())
        WebDriverWait(driver, PATIENCE_S).until(
            lambda d: not d.find_elements(By.CSS_SELECTOR, ".live")
        )
        assert shown(driver) == {name: ["still"] for name in FIGURES}


@pytest.mark.parametrize("width", [1200, 500])
def test_the_page_itself_never_scrolls_sideways(folder, tmp_path, width):
    with browser(tmp_path / "profile", size=(width, 900)) as driver:
        driver.get((folder / "report.html").as_uri())
        root = driver.execute_script(
            "const r = document.documentElement; return [r.scrollWidth, r.clientWidth]"
        )
        assert root[0] <= root[1]


def test_it_prints(folder, tmp_path):
    with browser(tmp_path / "profile") as driver:
        driver.get((folder / "report.html").as_uri())
        printed = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
        assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_a_reader_without_eyes_gets_headings_names_and_alternatives(folder, tmp_path):
    with browser(tmp_path / "profile", scripts=False) as driver:
        driver.get((folder / "report.html").as_uri())
        nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {}
    for node in nodes:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            roles.setdefault(node.get("role", {}).get("value"), []).append(name)
    assert len(roles["image"]) == len(FIGURES)
    assert all(roles["image"])
    assert all(roles["heading"])
    assert "Answers" in roles["heading"]
    assert len(roles["table"]) >= 8
    assert "main" in roles
