"""The page in a real browser: at every width, in the dark, on paper, without scripts."""

import base64
import http.server
import re
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from test_pinning import TEXT as PINNINGS
from test_pinning import make as pinned

import records
from browsing import browser
from tare import analysis, report, suite
from tare.record import Record
from tare.report import overview

FIGURES = {
    *("answers", "levels", "distributions", "sessions", "pairs"),
    *("budget", "account", "deadlines", "paper"),
}
HOME = Path(__file__).parents[2]
QUICKSTART = HOME / "experiments/quickstart.yaml"
RESULTS = HOME / "testdata/results"
NO_SCRIPTS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
WIDTHS = (390, 800, 1280, 1600)
PAPER = {"A4": (8.27, 11.69), "Letter": (8.5, 11.0)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    recipe = records.Recipe(requests=400, lost={"qemu/fastdds": 2})
    return drawn(records.make(tmp_path_factory.mktemp("browser") / "r", recipe))


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    recipe = records.Recipe(requests=400, blocks=9)
    text = QUICKSTART.read_text()
    return drawn(records.make(tmp_path_factory.mktemp("quickstart") / "r", recipe, text))


def drawn(record):
    report.write(report.render(analysis.analyse(record)), record.folder / "report.html")
    return record.folder


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser") / "profile") as started:
        yield started


def show(driver, folder, width=1280, height=800, *, scheme="light", media=""):
    """Open a report in a window of a size; what a reader's device would say is emulated."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    driver.get((folder / "report.html").as_uri())


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
    """Figures that are displayed in a size that can be read."""
    return {
        figure.get_attribute("id").removeprefix("figure-")
        for figure in driver.find_elements(By.TAG_NAME, "figure")
        if figure.is_displayed() and figure.size["width"] > 300 and figure.size["height"] > 60
    }


def test_the_page_has_no_scripts_and_the_browser_complains_of_nothing(driver, folder):
    show(driver, folder)
    assert driver.find_elements(By.TAG_NAME, "script") == []
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []
    assert shown(driver) == FIGURES
    assert "A response through Cyclone DDS takes" in driver.find_element(By.ID, "answers").text


def test_where_scripts_are_blocked_every_figure_is_there(folder, tmp_path):
    with (
        served(folder, NO_SCRIPTS) as (address, asked),
        browser(tmp_path / "profile", scripts=False) as driver,
    ):
        driver.get(address)
        assert shown(driver) == FIGURES
        assert asked == ["/report.html"]


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_has_the_title_the_answer_and_the_picture(
    driver, quickstart, width, height
):
    show(driver, quickstart, width, height)
    title, answer = (driver.find_element(By.CSS_SELECTOR, s) for s in ("h1", ".headline"))
    picture = driver.find_element(By.ID, "figure-answers")
    ends = [e.rect["y"] + e.rect["height"] for e in (title, answer, picture)]
    assert ends == sorted(ends)
    assert ends[-1] <= height
    assert len(picture.find_elements(By.CSS_SELECTOR, ".interval")) == 8
    assert len(picture.find_elements(By.CSS_SELECTOR, ".band")) == 8
    assert "In the QEMU guest (TCG): all 3 slower" in answer.text


def too_wide(driver):
    """What is wider than the room that it has: it would be cut, or scroll sideways."""
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    return driver.execute_script(
        "return [document.documentElement, ...document.querySelectorAll('.table, pre, figure *')]"
        ".filter(e => e.scrollWidth > e.clientWidth + 1 && !e.ownerSVGElement && e.clientWidth)"
        ".map(e => e.outerHTML.slice(0, 200))"
    )


def met(driver):
    """Labels of an axis that lie upon each other."""
    return driver.execute_script(
        "return [...document.querySelectorAll('figure svg')].flatMap(svg => {"
        " const boxes = [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect());"
        " return boxes.filter((a, i) => boxes.some((b, j) => i < j && a.left < b.right &&"
        "  b.left < a.right && a.top < b.bottom && b.top < a.bottom)).map(() => svg.outerHTML) })"
    )


def sizes(driver):
    """Sizes of a figure's texts in pixels, as they are drawn."""
    return driver.execute_script(
        "return [...document.querySelectorAll('figure text, figure span, figure small')].map(e =>"
        " parseFloat(getComputedStyle(e).fontSize) * (e.getScreenCTM ? e.getScreenCTM().a : 1))"
    )


@pytest.fixture(scope="module")
def pages(folder, tmp_path_factory):
    """A page of every workload, and a suite's."""
    found = {}
    home = tmp_path_factory.mktemp("pages")
    for plan in sorted(RESULTS.glob("*/plan.json")):
        found[plan.parent.name] = analysis.analyse(Record(plan.parent))
    written = suite.Suite(title="All of them", parts=tuple(f"{name}.yaml" for name in found))
    of_suite = suite.SuiteResult.create(home, written, found, {"gvisor": "runsc is not here"})
    drawn = {name: report.render(one) for name, one in found.items()}
    drawn["suite"] = overview.render(of_suite, found)
    for name, page in drawn.items():
        (home / name).mkdir()
        report.write(page, home / name / "report.html")
    return [folder, *(home / name for name in drawn)]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_can_be_read_at_every_width(driver, pages, width):
    assert len(pages) > 8
    for page in pages:
        show(driver, page, width)
        drawn = sizes(driver)
        assert len(drawn) > 10, page
        assert min(drawn) >= 9.5, page
        assert max(drawn) <= 18, page
        assert met(driver) == [], page
        assert too_wide(driver) == [], page


def test_wide_screens_are_used(driver, folder):
    show(driver, folder, 1600)
    rects = [g.rect for g in driver.find_elements(By.CSS_SELECTOR, "#figure-answers .group")]
    assert len({rect["y"] for rect in rects}) == 1
    assert sum(rect["width"] for rect in rects) > 1400


def test_every_logarithmic_axis_is_marked(driver, folder):
    show(driver, folder)
    marks = driver.execute_script(
        "return [...document.querySelectorAll('.axis svg, .panel svg')]"
        ".map(svg => svg.querySelectorAll('text').length)"
    )
    assert len(marks) > 10
    assert min(marks) >= 2


def luminance(colour):
    """Relative luminance of a computed colour (WCAG 2.1)."""
    whole = 1 if colour.startswith("color(") else 255
    parts = [float(part) / whole for part in re.findall(r"[\d.]+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_marks_stand_out_in_the_light_and_in_the_dark(driver, folder, scheme):
    show(driver, folder, scheme=scheme)
    ground, words, marks = driver.execute_script(
        "const styles = s => [...document.querySelectorAll(s)].map(e => getComputedStyle(e));"
        "return [styles('html')[0].backgroundColor,"
        " styles('p, h1, th, td, a, .verdict, .what, .number').map(s => s.color)"
        "  .concat(styles('figure text').map(s => s.fill)),"
        " styles('figure use, figure rect:not(.band)').map(s => s.fill)"
        "  .concat(styles('figure .interval, figure .path').map(s => s.stroke))]"
    )
    assert (luminance(ground) < 0.05) == (scheme == "dark")
    assert len(words) > 500
    assert len(marks) > 200
    assert min(contrast(colour, ground) for colour in set(words)) >= 4.5
    assert min(contrast(colour, ground) for colour in set(marks)) >= 2.0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_stand_out_on_every_shade_of_a_map(driver, tmp_path, scheme):
    show(driver, drawn(pinned(tmp_path / "r", PINNINGS)), scheme=scheme)
    cells = driver.execute_script(
        "return [...document.querySelectorAll('.map td[style]')].map(e => getComputedStyle(e))"
        ".map(s => [s.color, s.backgroundColor])"
    )
    assert len(set(map(tuple, cells))) > 2
    assert min(contrast(*cell) for cell in cells) >= 4.5


@pytest.mark.parametrize("paper", PAPER)
def test_the_first_answer_prints_on_four_pages(driver, quickstart, paper):
    show(driver, quickstart)
    width, height = PAPER[paper]
    size = {"paperWidth": width, "paperHeight": height, "printBackground": True}
    printed = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", size)["data"])
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 1 <= pages <= 4


def test_no_heading_is_left_alone_at_the_end_of_a_page(driver, folder):
    show(driver, folder, media="print")
    left = driver.execute_script(
        "return [...document.querySelectorAll('h2, h3, h4, caption')]"
        ".filter(e => getComputedStyle(e).breakAfter != 'avoid').map(e => e.textContent)"
    )
    assert left == []


def test_paper_is_light_whatever_the_screen_is(driver, folder):
    show(driver, folder, scheme="dark", media="print")
    ground = driver.execute_script(
        "return getComputedStyle(document.documentElement).backgroundColor"
    )
    assert luminance(ground) == 1.0


def test_a_reader_without_eyes_gets_headings_names_and_alternatives(driver, folder):
    show(driver, folder)
    nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {}
    for node in nodes:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            roles.setdefault(node.get("role", {}).get("value"), []).append(name)
    assert len(roles["figure"]) == len(FIGURES)
    assert all(roles["figure"])
    assert all(roles["image"])
    assert all(roles["heading"])
    assert "Answers" in roles["heading"]
    assert len(roles["table"]) >= 6
    assert all(roles["table"][:6])
    assert "main" in roles
