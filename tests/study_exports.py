"""Small studies about four coloured squares, and people who answer them, for the tests of exports."""

from __future__ import annotations

import csv

from crossmatch.study.assignment import claims, people
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.results.answers import is_artificial
from crossmatch.study.study import find_study

COLOURS = ("red", "green", "blue", "white")


def new_study(campaign, preset, items, *overrides, name=""):
    create_study(campaign, load_design(preset, overrides), items, name=name)
    return find_study(campaign, name or preset)


def answer_all_hits(campaign, study, name, answer):
    """A person joins and answers every HIT; `answer` maps a displayed item to its values. Returns the ids of the claims."""
    if is_artificial(name):
        person = people.find_by_token(campaign, people.invite_artificial(campaign, name, study.name))
    else:
        _, person = people.join_study(campaign, study.link, name)
    people.give_consent(campaign, study.id, person.id)
    claim_ids = []
    while True:
        try:
            claim_id = claims.claim_hit(campaign, study.id, person.id)
        except claims.NoHitAvailableError:
            return claim_ids
        with campaign.read_transaction() as connection:
            hit = claims.load_hit(connection, claim_id, person.id)
        claims.submit(campaign, claim_id, person.id, [answer(item) for item in hit.items])
        claim_ids.append(claim_id)


def choose(noun, declared_place):
    """An answer function that chooses the image, caption or list at a declared place, wherever it is displayed."""
    return lambda item: {item.questions[0].name: f"{noun}-{item.orders[noun + 's'].index(declared_place)}"}


def pair(image, caption, n=0, **more):
    text = f"A {caption} square."
    return NewItem(
        f"{image}-{caption}-{n}", (f"{image}.jpg",), (text,), details={"image_id": image, "caption_id": f"{caption}#0"}, **more
    )


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def two_image_item(n, first="red", second="blue"):
    return NewItem(
        f"t{n}",
        (f"{first}.jpg", f"{second}.jpg"),
        (f"A {first} square.",),
        details={"image_ids": [first, second], "category": "colour"},
    )
