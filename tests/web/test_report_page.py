"""The report in a real browser: it stands alone, shows its tables and plots, and fits a phone."""

import pytest

import crossmatch as cm

from .study_pages import broken_words


@pytest.fixture(scope="module")
def page(tmp_path_factory, browser):
    results = [
        cm.evaluate(m, "diorama/retrieval", name=name, size="tiny", samples=50, metrics=("hit@1", "map@r", "median-rank"))
        for m, name in (("random", "random"), ("oracle", "<b>oracle</b>"))
    ]
    path = cm.write_report(results, tmp_path_factory.mktemp("report") / "report.html")
    return browser(path)


def test_nothing_is_fetched_and_nothing_complains(page):
    assert len(page.requests) == 1
    assert page.console_messages == []


def test_tables_and_plots_are_there(page):
    assert page.locator("table").count() == 1
    assert page.locator("tbody tr").count() == 6
    assert page.locator("figure svg").count() == 4
    assert all(box["width"] > 400 for box in (svg.bounding_box() for svg in page.locator("figure svg").all()))
    assert "of the positives are missing" in page.locator(".note").first.inner_text()


def test_names_are_text_never_markup(page):
    assert page.locator("table b").count() == 0
    assert page.locator("th", has_text="<b>oracle</b>").count() == 1


def test_words_are_not_broken(page):
    assert broken_words(page) == []


def test_a_phone_can_read_it(page):
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1200, "height": 900})
