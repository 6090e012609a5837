"""A real browser for pages: what they fetch and say is written down."""

import os
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="module")
def browser():
    """Opens a page from its file; `asked` and `said` hold its requests and its complaints."""
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine; `make test` installs it on Debian")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as run:
        started = run.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        def open_page(path):
            opened = started.new_page(viewport={"width": 1200, "height": 900})
            opened.asked, opened.said = [], []
            opened.on("request", lambda r: opened.asked.append(r.url))
            opened.on("console", lambda m: opened.said.append(m.text))
            opened.on("pageerror", lambda e: opened.said.append(str(e)))
            opened.goto(path.as_uri())
            return opened

        yield open_page
        started.close()
