"""Studies of four coloured squares, worked through by people at hand, for the tests of what becomes of their answers."""

from __future__ import annotations

import csv

from crossmatch.study.assignment import claims, people
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.new_study import NewItem, create_study
from crossmatch.study.study import find_study

COLOURS = ("red", "green", "blue", "white")


def begun(campaign, preset, items, *overrides, name=""):
    create_study(campaign, load_design(preset, overrides), items, name=name)
    return find_study(campaign, name or preset)


def work(campaign, study, who, answer):
    """A person does all that there is for them; `answer` is told the item as it is shown, and gives values by place."""
    _, person = people.join_study(campaign, study.link, who)
    people.give_consent(campaign, study.id, person.id)
    done = []
    while True:
        try:
            token = claims.claim_hit(campaign, study.id, person.id)
        except claims.NoHitAvailableError:
            return done
        with campaign.read_transaction() as connection:
            hit = claims.load_hit(connection, token, person.id)
        claims.submit(campaign, token, person.id, [answer(item) for item in hit.items])
        done.append(token)


def picked(side, wanted):
    """Choose the thing that is declared at this place, wherever it is shown."""
    return lambda item: {item.questions[0].name: f"{side}-{item.orders[side + 's'].index(wanted)}"}


def pair(image, caption, n=0, **more):
    text = f"A {caption} square."
    return NewItem(
        f"{image}-{caption}-{n}", (f"{image}.jpg",), (text,), details={"image_id": image, "caption_id": f"{caption}#0"}, **more
    )


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def two(n, first="red", second="blue"):
    return NewItem(
        f"t{n}",
        (f"{first}.jpg", f"{second}.jpg"),
        (f"A {first} square.",),
        details={"image_ids": [first, second], "category": "colour"},
    )
