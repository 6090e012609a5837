"""A campaign with a small study of each preset, a server for it, and a browser, for the tests of the pages."""

import hashlib
import os
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from crossmatch.study.database import events
from crossmatch.study.database.campaign import create_campaign
from crossmatch.study.database.schema import claim, item, person, study
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.declaration import load_design, preset_names
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.design.places import parse_place
from polling import LIMIT, wait_until

PRESETS = tuple(preset_names())
SMALL = {"sts": 1, "sis": 1, "sits": 1, "bivlc-human": 4}  # items of a HIT; 2 elsewhere
SCRIPT_TEXT = '<img src=x onerror="document.title=1"></script><script>document.title=2</script>'


def small_design(name, *more):
    """A preset with small HITs that many people can answer."""
    gold = ["recipe.gold_positive=1", "recipe.gold_negative=1"] if name == "eccv-hit" else []
    return load_design(name, [f"recipe.batch={SMALL.get(name, 2)}", "recipe.people=40", *gold, *more])


def items_of(name, pictures, captions):
    """The items of a preset for two HITs (bivlc-human: one HIT with two blocks), with gold and examples."""
    shows = load_design(name).shows
    number = {"bison-select": 5, "bivlc-human": 1, "ranking-preference": 1}.get(name, max(shows.captions, 0))
    images = {"ranking-preference": 10, "bivlc-human": 1}.get(name, shows.images)

    def take(n, count, values):
        return tuple(values[(7 * n + j) % len(values)] for j in range(count))

    if name == "bivlc-human":
        items = [NewItem(f"i{n}", take(n, 1, pictures), take(n, 2, captions), "i2t") for n in range(2)]
        return items + [NewItem(f"t{n}", take(n, 2, pictures), take(n, 1, captions), "t2i") for n in range(2)]
    items = [NewItem(f"x{n}", take(n, images, pictures), take(n, number, captions)) for n in range(1 + SMALL.get(name, 2))]
    if name == "eccv-hit":
        sides = (("positive", ("yes", "weak-yes")), ("negative", ("no", "weak-no")))
        items += [
            NewItem(kind, take(5, 1, pictures), take(5 + k, 1, captions), gold={"match": v}, kind=kind)
            for k, (kind, v) in enumerate(sides)
        ]
        why = {"why": "All that it says is in the picture."}
        items += [NewItem("shown", (pictures[0],), (captions[0],), gold={"match": ("yes",)}, kind="example", details=why)]
    if name == "bison-verify":
        items += [NewItem("shown", pictures[:2], (captions[0],), gold={"which": ("image-0",)}, kind="example")]
    return items


def make_campaign(folder):
    """A campaign with a study of each preset, one with script in its texts, and one with a quiz and a limit."""
    from crossmatch.diorama.world import Diorama

    campaign = create_campaign(folder)
    world = Diorama.make("test", images=12)
    captions = tuple(caption.text for caption in world.captions)
    pictures = tuple(f"p{n}.jpg" for n in range(12))
    for n, file in enumerate(pictures):
        world.picture(n, 512).convert("RGB").save(campaign.images_folder / file, quality=80)
    for name in PRESETS:
        create_study(campaign, small_design(name), items_of(name, pictures, captions), seed=name)
    script_items = [
        NewItem("bad", pictures[:2], (SCRIPT_TEXT, *captions[:4])),
        NewItem("seen", pictures[:2], (SCRIPT_TEXT,), gold={"telling": ("caption-0",)}, kind="example"),
    ]
    hostile = replace(small_design("bison-select"), title=SCRIPT_TEXT, instructions=(SCRIPT_TEXT,), consent=SCRIPT_TEXT)
    create_study(campaign, hostile, script_items, name="hostile")
    quiz = small_design("eccv-hit", "recipe.quiz=2", "recipe.hits_per_person=1", "recipe.gold_positive=0", "recipe.gold_negative=0",
                        "recipe.completion_url=https://example.org/done?code={code}", "recipe.pay=1.4")  # fmt: skip
    create_study(campaign, quiz, items_of("eccv-hit", pictures, captions), name="quiz")
    return campaign


@contextmanager
def run_server(campaign):
    """The address of a real server of this campaign, on a free port."""
    import uvicorn

    from crossmatch.study.web.app import make_app

    config = uvicorn.Config(make_app(campaign), host="127.0.0.1", port=0, log_level="error", http="h11", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(LIMIT)


@contextmanager
def chromium():
    """Launch Chromium. Tests are skipped on a machine without it, except in CI."""
    from .conftest import CHROMIUM, FLAGS, chromium_environment

    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine; `make test` installs it on Debian")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as run:
        started = run.chromium.launch(executable_path=CHROMIUM, args=FLAGS, env=chromium_environment())
        yield started
        started.close()


def make_screenshot_folder(tmp_path_factory):
    """The folder for screenshots of pages, to look at after the tests."""
    name = os.environ.get("CROSSMATCH_SCREENSHOTS")
    folder = Path(name) if name else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# -- reading the database


def link_of(campaign, name):
    with campaign.read_transaction() as connection:
        return connection.execute(select(study.c.link).where(study.c.name == name)).scalar_one()


def submissions(campaign, name, key):
    """The bodies of a person's submissions to a study, from the event log."""
    with campaign.read_transaction() as connection:
        study_id = connection.execute(select(study.c.id).where(study.c.name == name)).scalar_one()
        person_id = connection.execute(select(person.c.id).where(person.c.key == key)).scalar_one()
        rows = [row for row in events.read_events(connection, study_id) if row.kind == "submit" and row.person == person_id]
        return [events.read_body(connection, study_id, row.number) for row in rows]


def counted_flags(campaign, key):
    with campaign.read_transaction() as connection:
        query = select(claim.c.counted).join(person, person.c.id == claim.c.person).where(person.c.key == key)
        return list(connection.execute(query.where(claim.c.submitted.is_not(None))).scalars())


def answers_by_content(campaign, submitted):
    """The answers of a submission, with the file, text or files of each chosen image, caption or list."""
    with campaign.read_transaction() as connection:
        rows = {row.id: row for row in connection.execute(select(item))}
    return [
        {question: _content(rows[answer["item"]], value) for question, value in answer["answer"].items()}
        for answer in submitted["answers"]
    ]


def _content(row, value):
    place = parse_place(value)
    if place is None:
        return value
    if place.side == "lists":
        half = len(row.images) // 2
        return tuple(row.images[place.n * half : place.n * half + half])
    return getattr(row, place.side)[place.n]


def files_by_content(campaign):
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path.name for path in campaign.images_folder.iterdir()}
