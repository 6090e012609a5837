"""Fixtures with a real browser that records the requests and console messages of each page."""

import itertools
import os
import re
import shutil

import pytest

from polling import LIMIT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PERSON_NUMBERS = itertools.count()  # for unique names
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def chromium_environment():
    """Chromium writes crash reports into the folder of settings: into that of the run, not the user's."""
    return {**os.environ, "XDG_CONFIG_HOME": os.environ["XDG_CACHE_HOME"]}


def record_messages(page):
    page.requests, page.console_messages = [], []
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("console", lambda message: page.console_messages.append(message.text))
    page.on("pageerror", lambda error: page.console_messages.append(str(error)))


@pytest.fixture(scope="module")
def browser():
    """Opens an HTML file; the page records its `requests`, and its `console_messages` with script errors."""
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine; `make test` installs it on Debian")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as run:
        started = run.chromium.launch(executable_path=CHROMIUM, args=FLAGS, env=chromium_environment())

        def open_page(path):
            page = started.new_page(viewport={"width": 1200, "height": 900})
            record_messages(page)
            page.goto(path.as_uri())
            return page

        yield open_page
        started.close()


# -- the pages of studies


@pytest.fixture(scope="session")
def campaign(tmp_path_factory):
    """A campaign with a small study of each preset."""
    from .studies import make_campaign

    created = make_campaign(tmp_path_factory.mktemp("study") / "S")
    yield created
    created.close()


@pytest.fixture(scope="session")
def server_url(campaign):
    """The address of a real server of the campaign."""
    from .studies import run_server

    with run_server(campaign) as address:
        yield address


@pytest.fixture(scope="module")
def chrome():
    from .studies import chromium

    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def screenshot_folder(tmp_path_factory):
    from .studies import make_screenshot_folder

    return make_screenshot_folder(tmp_path_factory)


@pytest.fixture
def visit(chrome, server_url):
    """Opens pages, each for a new person. At the end, no page has sent requests elsewhere or logged unexpected messages."""
    pages = []

    def open_page(path="/", expected="", **settings):
        context = chrome.new_context(**{"viewport": {"width": 1280, "height": 860}, "base_url": server_url, **settings})
        page = context.new_page()
        page.set_default_timeout(1000 * LIMIT)
        record_messages(page)
        pages.append((page, expected))
        if path:
            page.goto(path)
        return page

    yield open_page
    for page, expected in pages:
        assert [url for url in page.requests if not url.startswith(server_url)] == []
        messages = [text for text in page.console_messages if "409 (Conflict)" not in text]  # logged when no HIT is left
        assert [text for text in messages if not (expected and re.search(expected, text))] == []
        page.context.close()


@pytest.fixture
def open_first_hit(visit, campaign):
    """Opens the first HIT of a study for a new person, whose name is `page.person_name`."""
    from .studies import link_of
    from .study_pages import wait_for_images

    def join_and_claim(study, expected="", **settings):
        page = visit("", expected, **settings)
        page.person_name = f"{study}-{next(PERSON_NUMBERS)}"
        text = page.request.post(f"/join/{link_of(campaign, study)}", form={"person": page.person_name}).text()
        secret = re.search(r'name="csrf" content="(\w+)"', text).group(1)
        page.goto(page.request.post(f"/s/{study}/claim", form={"csrf": secret}).url)
        page.wait_for_selector(".item")
        wait_for_images(page)
        return page

    return join_and_claim
