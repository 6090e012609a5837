"""What the tests of the study's pages do with a page: read it, answer by mouse or by keys, walk through a whole study."""

import hashlib

import pytest


def options(page):
    return page.locator(".asked:visible .option")


def thing(page, files, n):
    """What the n-th option stands for, by what is seen of it: a file, a text, files, or its value."""
    option = options(page).nth(n)
    kinds = option.get_attribute("class").split()
    sources = [image.get_attribute("src") for image in option.locator("img").all()]
    shown = tuple(files[hashlib.sha256(page.request.get(source).body()).hexdigest()] for source in sources)
    if "images" in kinds or "lists" in kinds:
        return shown[0] if "images" in kinds else shown
    return option.locator(".words").inner_text() if "captions" in kinds else option.locator("input").get_attribute("value")


def asked(page):
    """The name of the question that is asked first."""
    told = "JSON.parse(document.getElementById('work').dataset.hit).items.flatMap(i => i.questions.map(q => [q.text, q.name]))"
    return dict(page.evaluate(told))[page.locator(".asked:visible legend").first.inner_text()]


def is_last(page):
    return not page.locator("#next").is_visible()


def leave(page, act):
    """Do what submits, and wait until the page is another."""
    before = page.url
    act()
    page.wait_for_url(lambda url: url != before, wait_until="commit")
    page.wait_for_selector(".item, .done, .lead")


def tab_to(page, selector):
    """Press Tab until this has the focus, as people without a mouse do."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not lead to {selector}")


def axe(page):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page)
    return [(v["id"], [node["html"] for node in v["nodes"]]) for v in found.response["violations"]]


def fits(page):
    """Nothing sticks out at the side."""
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def draft_on_server(page):
    claim = page.url.rpartition("/")[2]
    return page.request.get(f"/api/h/{claim}").json()["draft"]["answers"]


# -- answering


def answer_by_mouse(page, files, n):
    """Answer an item by clicks; what was meant."""
    name = asked(page)
    if page.locator(".slider").count():
        box = page.locator(".slider").bounding_box()
        page.mouse.click(box["x"] + (0.2 + 0.3 * n) * box["width"], box["y"] + box["height"] / 2)
        return {name: pytest.approx(5 * (0.2 + 0.3 * n), abs=0.1)}
    chosen = n % options(page).count()
    meant = {name: thing(page, files, chosen)}
    target = options(page).nth(chosen)
    (target.locator("img").first if target.locator("img").count() else target).click()
    if page.get_by_text("What is wrong?").is_visible():
        page.get_by_text("mentions something").click()
        page.get_by_text("gets something important wrong").click()
        page.get_by_text("Colour").click()
        meant |= {"reason": ["not-in-image", "wrong"], "error": ["colour"]}
    return meant


def answer_by_keys(page, files, n):
    """Answer an item by keys; what was meant."""
    name = asked(page)
    if page.locator(".slider").count():
        page.keyboard.press("a")
        page.keyboard.press("End")
        for _ in range(3 + n):
            page.keyboard.press("ArrowLeft")
        return {name: pytest.approx(5 - 0.01 * (3 + n))}
    chosen = (n + 1) % options(page).count()
    meant = {name: thing(page, files, chosen)}
    page.keyboard.press(str(chosen + 1))
    if page.get_by_text("What is wrong?").is_visible():
        for key in ("3", "4", "4", "Enter", "0", "1"):  # the fourth is taken back; ten options reach to 0
            page.keyboard.press(key)
        meant |= {"reason": ["wrong"], "error": ["quantity", "others"]}
    return meant


def whole_study(page, answer, go_on, submit, shots=None, name=""):
    """All HITs of a study; what was meant, HIT by HIT."""
    hits = []
    for hit in range(9):
        meant = []
        for n in range(9):
            assert page.locator("#submit").is_disabled()
            meant.append(answer(page, n + hit))
            if hit == n == 0 and shots:
                page.wait_for_load_state("networkidle")
                page.screenshot(path=shots / f"work-{name}.png")
            if is_last(page):
                break
            go_on(page)
        hits.append(meant)
        leave(page, lambda: submit(page))
        if "/s/" in page.url:
            return hits
    raise AssertionError("the study does not end")
