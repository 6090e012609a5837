"""Take the screenshots of docs/studies.md: a campaign on diorama with the work of artificial annotators."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from crossmatch.study.assignment.people import owner_token
from crossmatch.study.database.campaign import Campaign, create_campaign
from crossmatch.study.design.add_study import add_study
from crossmatch.study.design.declaration import load_design
from crossmatch.study.simulation.diorama_items import world_items
from crossmatch.study.simulation.simulate import service, simulate
from crossmatch.study.simulation.simulated_annotators import Habits
from crossmatch.study.study import find_study

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1200, 820
CROWD = (Habits(accuracy=0.95), Habits(accuracy=0.9), Habits(accuracy=0.85), Habits(accuracy=0.8, lazy=0.6), Habits(accuracy=0.45))
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


def make_campaign(folder: Path) -> Campaign:
    campaign = create_campaign(folder)
    hit = load_design("eccv-hit", ["recipe.people=3"])
    add_study(campaign, hit, world_items(hit, "diorama:tiny", 108))
    for name in ("sits", "bison-verify"):
        design = load_design(name)
        add_study(campaign, design, world_items(design, "diorama:tiny", 20))
    return campaign


def shoot(page: Page, name: str, height: int = HEIGHT) -> None:
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.wait_for_load_state("networkidle")
    page.screenshot(path=HERE / f"{name}.jpg", type="jpeg", quality=82)


def shoot_annotator_page(page: Page, base: str, campaign: Campaign, study: str, name: str, act: Callable[[Page], None]) -> None:
    """Join a study, answer something with `act`, and take a screenshot."""
    page.goto(f"{base}/join/{find_study(campaign, study).link}")
    if study == "eccv-hit":
        shoot(page, "study-join")
    page.get_by_role("button", name="Agree and start").click()
    page.get_by_role("button", name="Start").click()
    page.wait_for_selector(".item")
    act(page)
    shoot(page, name)


def answer_choice(page: Page) -> None:
    page.get_by_text("Partially YES, but").click()
    page.get_by_text("gets something important wrong").click()


def move_slider(page: Page) -> None:
    slider = page.locator("input[type=range]")
    box = slider.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 0.55 * box["width"], box["y"] + box["height"] / 2)


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as home, sync_playwright() as run:
        campaign = make_campaign(Path(home) / "campaign")
        simulate(campaign.folder, "eccv-hit", people=5, habits=CROWD, seed=1, limit=120)
        browser = run.chromium.launch(executable_path=chromium, args=list(FLAGS))
        with service(campaign.folder) as base:
            for study, name, act in (
                ("bison-verify", "study-two-pictures", lambda page: None),
                ("sits", "study-slider", move_slider),
            ):
                shoot_annotator_page(browser.new_context().new_page(), base, campaign, study, name, act)
            page = browser.new_context().new_page()
            page.goto(f"{base}/enter/{owner_token(campaign)}")
            page.get_by_role("button").click()
            page.goto(f"{base}/owner/eccv-hit")
            page.locator("[data-soon]").wait_for(state="detached", timeout=60_000)  # agreement is measured in the background
            shoot(page, "study-owner", 1500)
            page.goto(f"{base}/owner/eccv-hit/people")
            shoot(page, "study-people")
        fresh = make_campaign(Path(home) / "fresh")
        with service(fresh.folder) as base:
            shoot_annotator_page(browser.new_context().new_page(), base, fresh, "eccv-hit", "study-hit", answer_choice)
        browser.close()


if __name__ == "__main__":
    main()
