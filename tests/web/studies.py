"""A campaign with a small study of each preset, a server for it, and a browser: what the tests of the pages share."""

import hashlib
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from crossmatch.study.database import events
from crossmatch.study.database.campaign import create_campaign
from crossmatch.study.database.schema import claim, item, person, study
from crossmatch.study.design.declaration import load_design, preset_names
from crossmatch.study.design.new_study import NewItem, create_study

PRESETS = tuple(preset_names())
SMALL = {"sts": 1, "sis": 1, "sits": 1, "bivlc-human": 4}  # items of a HIT; 2 elsewhere
BAD = '<img src=x onerror="document.title=1"></script><script>document.title=2</script>'


def small_design(name, *more):
    """A preset with small HITs, for a crowd of test people."""
    gold = ["recipe.gold_positive=1", "recipe.gold_negative=1"] if name == "eccv-hit" else []
    return load_design(name, [f"recipe.batch={SMALL.get(name, 2)}", "recipe.people=40", *gold, *more])


def items_of(name, pictures, words):
    """As many items of a preset as make two HITs (bivlc-human: one, in two blocks), and what else it needs."""
    shows = load_design(name).shows
    number = {"bison-select": 5, "bivlc-human": 1, "ranking-preference": 1}.get(name, max(shows.captions, 0))
    images = {"ranking-preference": 10, "bivlc-human": 1}.get(name, shows.images)

    def some(n, k, among):
        return tuple(among[(7 * n + j) % len(among)] for j in range(k))

    if name == "bivlc-human":
        new_item = [NewItem(f"i{n}", some(n, 1, pictures), some(n, 2, words), "i2t") for n in range(2)]
        return new_item + [NewItem(f"t{n}", some(n, 2, pictures), some(n, 1, words), "t2i") for n in range(2)]
    new_item = [NewItem(f"x{n}", some(n, images, pictures), some(n, number, words)) for n in range(1 + SMALL.get(name, 2))]
    if name == "eccv-hit":
        sides = (("positive", ("yes", "weak-yes")), ("negative", ("no", "weak-no")))
        new_item += [
            NewItem(kind, some(5, 1, pictures), some(5 + k, 1, words), gold={"match": v}, kind=kind)
            for k, (kind, v) in enumerate(sides)
        ]
        why = {"why": "All that it says is in the picture."}
        new_item += [NewItem("shown", (pictures[0],), (words[0],), gold={"match": ("yes",)}, kind="example", details=why)]
    if name == "bison-verify":
        new_item += [NewItem("shown", pictures[:2], (words[0],), gold={"which": ("image-0",)}, kind="example")]
    return new_item


def make_campaign(folder):
    """A campaign with a study of each preset, one with script in its texts, and one with a quiz and a limit."""
    from crossmatch.diorama.world import Diorama

    campaign = create_campaign(folder)
    world = Diorama.make("test", images=12)
    words = tuple(one.text for one in world.captions)
    pictures = tuple(f"p{n}.jpg" for n in range(12))
    for n, file in enumerate(pictures):
        world.picture(n, 512).convert("RGB").save(campaign.images_folder / file, quality=80)
    for name in PRESETS:
        create_study(campaign, small_design(name), items_of(name, pictures, words), seed=name)
    bad = [
        NewItem("bad", pictures[:2], (BAD, *words[:4])),
        NewItem("seen", pictures[:2], (BAD,), gold={"telling": ("caption-0",)}, kind="example"),
    ]
    hostile = replace(small_design("bison-select"), title=BAD, instructions=(BAD,), consent=BAD)
    create_study(campaign, hostile, bad, name="hostile")
    quiz = small_design("eccv-hit", "recipe.quiz=2", "recipe.hits_per_person=1", "recipe.gold_positive=0", "recipe.gold_negative=0",
                        "recipe.completion_url=https://example.org/done?code={code}", "recipe.pay=1.4")  # fmt: skip
    create_study(campaign, quiz, items_of("eccv-hit", pictures, words), name="quiz")
    return campaign


@contextmanager
def served(campaign):
    """The address of a real server of this campaign, on a free port."""
    import uvicorn

    from crossmatch.study.web.app import make_app

    config = uvicorn.Config(make_app(campaign), host="127.0.0.1", port=0, log_level="error", http="h11", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@contextmanager
def chromium():
    """Debian's Chromium; a machine without it skips, unless it is the project's own."""
    from .conftest import CHROMIUM, FLAGS

    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine; `make test` installs it on Debian")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as run:
        started = run.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def screenshots(tmp_path_factory):
    """Where pictures of pages are kept to look at."""
    response = os.environ.get("CROSSMATCH_SCREENSHOTS")
    folder = Path(response) if response else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# -- what the database holds


def link_of(campaign, name):
    with campaign.read_transaction() as connection:
        return connection.execute(select(study.c.link).where(study.c.name == name)).scalar_one()


def submissions(campaign, name, key):
    """The bodies of a person's submissions to a study, as the events hold them, in order."""
    with campaign.read_transaction() as connection:
        query = connection.execute(select(study.c.id).where(study.c.name == name)).scalar_one()
        who = connection.execute(select(person.c.id).where(person.c.key == key)).scalar_one()
        rows = [row for row in events.read_events(connection, query) if row.kind == "submit" and row.person == who]
        return [events.read_body(connection, query, row.number) for row in rows]


def counted(campaign, key):
    with campaign.read_transaction() as connection:
        mine = select(claim.c.counted).join(person, person.c.id == claim.c.person).where(person.c.key == key)
        return list(connection.execute(mine.where(claim.c.submitted.is_not(None))).scalars())


def things(campaign, submitted):
    """The answers of a submission, with pictures, captions and lists by what they are: a file, a text, files."""
    with campaign.read_transaction() as connection:
        rows = {row.id: row for row in connection.execute(select(item))}
    return [{q: _thing(rows[one["item"]], value) for q, value in one["answer"].items()} for one in submitted["answers"]]


def _thing(row, value):
    side, _, n = str(value).rpartition("-")
    if side not in ("image", "caption", "list") or not n.isdigit():
        return value
    if side == "caption":
        return row.captions[int(n)]
    if side == "image":
        return row.images[int(n)]
    half = len(row.images) // 2
    return tuple(row.images[int(n) * half : int(n) * half + half])


def files_by_content(campaign):
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path.name for path in campaign.images_folder.iterdir()}
