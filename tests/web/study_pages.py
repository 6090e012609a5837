"""Helpers for browser tests of a study: read a page, answer by mouse or keyboard, and answer a whole study."""

import hashlib

import pytest

from polling import wait_until


def options(page):
    return page.locator(".question:visible .option")


def option_content(page, files, n):
    """The content of the n-th option: an image file, a caption, the files of a list, or the value of an option."""
    option = options(page).nth(n)
    kinds = option.get_attribute("class").split()
    sources = [image.get_attribute("src") for image in option.locator("img").all()]
    displayed_files = tuple(files[hashlib.sha256(page.request.get(source).body()).hexdigest()] for source in sources)
    if "images" in kinds or "lists" in kinds:
        return displayed_files[0] if "images" in kinds else displayed_files
    return option.locator(".words").inner_text() if "captions" in kinds else option.locator("input").get_attribute("value")


def question_name(page):
    """The name of the first visible question."""
    script = "JSON.parse(document.getElementById('work').dataset.hit).items.flatMap(i => i.questions.map(q => [q.text, q.name]))"
    return dict(page.evaluate(script))[page.locator(".question:visible legend").first.inner_text()]


def is_last(page):
    return not page.locator("#next").is_visible()


def leave(page, act):
    """Run an action that submits, and wait for the next page."""
    before = page.url
    act()
    page.wait_for_url(lambda url: url != before)
    page.wait_for_selector(".item, .done, .lead")


def wait_for_images(page, selector=".item img"):
    """Wait until images have their size, which may move what is below them."""
    script = "selector => [...document.querySelectorAll(selector)].every(image => image.complete && image.naturalWidth)"
    page.wait_for_function(script, arg=selector)


def wait_for_page(page, condition):
    """Wait for a condition that is checked here and not in the page, which goes on meanwhile."""
    return wait_until(condition, lambda seconds: page.wait_for_timeout(1000 * seconds))


def tab_to(page, selector):
    """Press Tab until the element with this selector has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not lead to {selector}")


def find_accessibility_violations(page):
    from axe_playwright_python.sync_playwright import Axe

    result = Axe().run(page)
    return [(v["id"], [node["html"] for node in v["nodes"]]) for v in result.response["violations"]]


def fits_width(page):
    """Whether the page needs no horizontal scrolling."""
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def draft_on_server(page):
    claim = page.url.rpartition("/")[2]
    return page.request.get(f"/api/h/{claim}").json()["draft"]["answers"]


# -- answering


def answer_by_mouse(page, files, n):
    """Answer an item by mouse clicks; returns the expected answer."""
    wait_for_images(page)
    name = question_name(page)
    if page.locator(".slider").count():
        box = page.locator(".slider").bounding_box()
        page.mouse.click(box["x"] + (0.2 + 0.3 * n) * box["width"], box["y"] + box["height"] / 2)
        return {name: pytest.approx(5 * (0.2 + 0.3 * n), abs=0.1)}
    chosen = n % options(page).count()
    expected = {name: option_content(page, files, chosen)}
    target = options(page).nth(chosen)
    (target.locator("img").first if target.locator("img").count() else target).click()
    if page.get_by_text("What is wrong?").is_visible():
        page.get_by_text("mentions something").click()
        page.get_by_text("gets something important wrong").click()
        page.get_by_text("Colour").click()
        expected |= {"reason": ["not-in-image", "wrong"], "error": ["colour"]}
    return expected


def answer_by_keys(page, files, n):
    """Answer an item by keys; returns the expected answer."""
    name = question_name(page)
    if page.locator(".slider").count():
        page.keyboard.press("a")
        page.keyboard.press("End")
        for _ in range(3 + n):
            page.keyboard.press("ArrowLeft")
        return {name: pytest.approx(5 - 0.01 * (3 + n))}
    chosen = (n + 1) % options(page).count()
    expected = {name: option_content(page, files, chosen)}
    page.keyboard.press(str(chosen + 1))
    if page.get_by_text("What is wrong?").is_visible():
        for key in ("3", "4", "4", "Enter", "0", "1"):  # the fourth is taken back; ten options reach to 0
            page.keyboard.press(key)
        expected |= {"reason": ["wrong"], "error": ["quantity", "others"]}
    return expected


def answer_whole_study(page, answer, go_on, submit, screenshot_folder=None, name=""):
    """Answer all HITs of a study; returns the expected answers of each HIT."""
    hits = []
    for hit in range(9):
        expected = []
        for n in range(9):
            assert page.locator("#submit").is_disabled()
            expected.append(answer(page, n + hit))
            if hit == n == 0 and screenshot_folder:
                page.screenshot(path=screenshot_folder / f"work-{name}.png")
            if is_last(page):
                break
            go_on(page)
        hits.append(expected)
        leave(page, lambda: submit(page))
        if "/s/" in page.url:
            return hits
    raise AssertionError("the study does not end")


BROKEN_WORDS = """() => {
  const broken = [], range = document.createRange();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.textContent.matchAll(/\\p{L}{2,}/gu)) {
      if (word[0].length > 30) continue;  // no column is wide enough for any word
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""


def broken_words(page):
    """The words of a page that continue on the next line."""
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
    return page.evaluate(BROKEN_WORDS)
