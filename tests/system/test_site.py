"""The documentation as `make docs` builds it, opened as a file in a browser."""

from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from browsing import browser

HOME = Path(__file__).parents[2]
SITE = HOME / "build/docs"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    assert (SITE / "index.html").is_file(), "run `make docs`"
    with browser(tmp_path_factory.mktemp("site") / "profile") as started:
        yield started


def asked(driver) -> list[str]:
    """What the page asked for, other than files."""
    names = "return performance.getEntriesByType('resource').map(one => one.name)"
    return [name for name in driver.execute_script(names) if not name.startswith("file:")]


def test_the_site_is_searched_without_a_network(driver):
    driver.get(f"{(SITE / 'search.html').as_uri()}?q=userfaultfd")
    found = WebDriverWait(driver, 60).until(
        lambda now: now.find_elements(By.CSS_SELECTOR, "#search-results li a")
    )
    assert any("pageshare" in one.get_attribute("href") for one in found)
    assert not asked(driver)


def test_the_first_page_leads_to_every_section(driver):
    driver.get((SITE / "index.html").as_uri())
    wait = WebDriverWait(driver, 60)
    wait.until(lambda now: "README.html" in now.current_url)
    wait.until(lambda now: now.execute_script("return document.readyState") == "complete")
    captions = driver.find_elements(By.CSS_SELECTOR, ".sidebar-tree .caption-text")
    titles = [one.get_attribute("textContent") for one in captions]
    assert titles == ["Tutorial", "How-to", "Reference", "Explanation"]
    assert not asked(driver)


@pytest.mark.parametrize("page", ["README", "CLAIMS", "docs/method", "docs/pageshare"])
def test_no_page_is_wider_than_a_telephone(driver, page):
    driver.set_window_size(390, 844)
    driver.get((SITE / f"{page}.html").as_uri())
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
