"""The pages about captions in a real browser: they stand alone, show captions as text, and fit a phone."""

import pytest

from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.score_captions import score_captions
from crossmatch.report.captions.agreement_plots import histogram_panel
from crossmatch.report.captions.scores_output import scores_table, worst_and_best, write_captions_page

from .study_pages import broken_words, wait_for_images


@pytest.fixture(scope="module")
def page(tmp_path_factory, browser):
    from PIL import Image

    candidates = {str(n): f"a dog number {n}" for n in range(30)} | {"30": "<script>document.title = 'gone'</script>", "31": ""}
    references = {i: ["a dog", "a very long reference " * 30 if int(i) % 2 else "כלב גדול \U0001f415"] for i in candidates}
    judged = score_captions("<b>mine</b>", CaptionCorpus.from_texts(candidates, references), ["bleu-1", "rouge-l"])
    groups = worst_and_best(judged, "rouge-l", lambda image: Image.new("RGB", (60, 40), (int(image), 0, 0)))
    table = scores_table([judged])
    panels = [histogram_panel({name: result.scores.values for name, result in judged.results.items()})]
    signatures = [result.signature for result in judged.results.values()]
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_captions_page(path, "Captions: <b>mine</b>", table.title, [table], panels, groups, signatures)
    return browser(path)


def test_nothing_is_fetched_and_nothing_complains(page):
    assert [url for url in page.requests if not url.startswith("data:")] == page.requests[:1]
    assert page.console_messages == []


def test_captions_are_text_never_markup(page):
    assert page.title() == "Captions: <b>mine</b>"
    assert page.locator(".card", has_text="<script>").count() >= 1
    assert page.locator(".card b").first.inner_text() == "0.000"


def test_the_worst_and_the_best_are_there_with_their_pictures(page):
    assert page.locator("h2", has_text="Worst by rouge-l").count() == 1
    assert page.locator(".card").count() == 24
    assert page.locator(".card img").count() == 24
    wait_for_images(page, ".card img")
    assert page.locator(".caption", has_text="(no words)").count() == 1


def test_words_are_not_broken(page):
    """The signatures are long lines without spaces; they break between their parts."""
    assert page.locator("code").count() == 2
    for width in range(400, 600, 20):
        page.set_viewport_size({"width": width, "height": 800})
        assert broken_words(page) == []
    page.set_viewport_size({"width": 1200, "height": 900})


def test_a_phone_can_read_it(page):
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1200, "height": 900})
