"""A real browser for pages: what they fetch and say is written down."""

import itertools
import os
import re
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NUMBER = itertools.count()  # so that everybody has a name of their own
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


# -- the pages of studies


@pytest.fixture(scope="session")
def campaign(tmp_path_factory):
    """A campaign with a small study of each preset."""
    from .studies import make_campaign

    made = make_campaign(tmp_path_factory.mktemp("study") / "S")
    yield made
    made.close()


@pytest.fixture(scope="session")
def at(campaign):
    """The address of a real server of the campaign."""
    from .studies import served

    with served(campaign) as address:
        yield address


@pytest.fixture(scope="module")
def chrome():
    from .studies import chromium

    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def shots(tmp_path_factory):
    from .studies import screenshots

    return screenshots(tmp_path_factory)


@pytest.fixture
def visit(chrome, at):
    """Opens pages, each as somebody new; none may ask elsewhere, and none may complain of what is not expected."""
    opened = []

    def open_page(path="/", expected="", **settings):
        context = chrome.new_context(**{"viewport": {"width": 1280, "height": 860}, "base_url": at, **settings})
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.asked, page.said = [], []
        page.on("request", lambda r: page.asked.append(r.url))
        page.on("console", lambda m: page.said.append(m.text))
        page.on("pageerror", lambda e: page.said.append(str(e)))
        opened.append((page, expected))
        if path:
            page.goto(path)
        return page

    yield open_page
    for page, expected in opened:
        assert [url for url in page.asked if not url.startswith(at)] == []
        said = [text for text in page.said if "409 (Conflict)" not in text]  # so the browser tells that no HIT is left
        assert [text for text in said if not (expected and re.search(expected, text))] == []
        page.context.close()


@pytest.fixture
def begin(visit, campaign):
    """Opens the first HIT of a study for somebody new, past the first pages; `key` is what they are called."""
    from .studies import link_of

    def begun(study, expected="", **settings):
        page = visit("", expected, **settings)
        page.key = f"{study}-{next(NUMBER)}"
        text = page.request.post(f"/join/{link_of(campaign, study)}", form={"person": page.key}).text()
        secret = re.search(r'name="csrf" content="(\w+)"', text).group(1)
        page.goto(page.request.post(f"/s/{study}/claim", form={"csrf": secret}).url)
        page.wait_for_selector(".item")
        return page

    return begun
