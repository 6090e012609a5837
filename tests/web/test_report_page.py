"""The report in a real browser: it stands alone, shows its tables and plots, and fits a phone."""

import os
import shutil

import pytest

import crossmatch as cm

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine; `make test` installs it on Debian")
    playwright = pytest.importorskip("playwright.sync_api")
    results = [
        cm.evaluate(m, "diorama/retrieval", name=name, size="tiny", samples=50, metrics=("hit@1", "map@r", "median-rank"))
        for m, name in (("random", "random"), ("oracle", "<b>oracle</b>"))
    ]
    path = cm.write_report(results, tmp_path_factory.mktemp("report") / "report.html")
    with playwright.sync_playwright() as run:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
        browser = run.chromium.launch(executable_path=CHROMIUM, args=flags)
        opened = browser.new_page(viewport={"width": 1200, "height": 900})
        opened.asked, opened.said = [], []
        opened.on("request", lambda r: opened.asked.append(r.url))
        opened.on("console", lambda m: opened.said.append(m.text))
        opened.on("pageerror", lambda e: opened.said.append(str(e)))
        opened.goto(path.as_uri())
        yield opened
        browser.close()


def test_nothing_is_fetched_and_nothing_complains(page):
    assert len(page.asked) == 1
    assert page.said == []


def test_tables_and_plots_are_there(page):
    assert page.locator("table").count() == 1
    assert page.locator("tbody tr").count() == 6
    assert page.locator("figure svg").count() == 4
    assert all(box["width"] > 400 for box in (svg.bounding_box() for svg in page.locator("figure svg").all()))
    assert "of the positives are missing" in page.locator(".note").first.inner_text()


def test_names_are_text_never_markup(page):
    assert page.locator("table b").count() == 0
    assert page.locator("th", has_text="<b>oracle</b>").count() == 1


def test_a_phone_can_read_it(page):
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1200, "height": 900})
