"""Studies of four coloured squares, worked through by people at hand, for the tests of what becomes of their answers."""

from __future__ import annotations

import csv

from crossmatch.study import assign, people
from crossmatch.study.begin import NewItem, create_study
from crossmatch.study.design import load_design
from crossmatch.study.said import find_study

COLOURS = ("red", "green", "blue", "white")


def begun(campaign, preset, items, *overrides, name=""):
    create_study(campaign, load_design(preset, overrides), items, name=name)
    return find_study(campaign, name or preset)


def work(campaign, study, who, answer):
    """A person does all that there is for them; `answer` is told the item as it is shown, and gives values by place."""
    _, person = people.join(campaign, study.link, who)
    people.agree(campaign, study.id, person.id)
    done = []
    while True:
        try:
            token = assign.claim_hit(campaign, study.id, person.id)
        except assign.Nothing:
            return done
        with campaign.reading() as connection:
            held = assign.load_hit(connection, token, person.id)
        assign.submit(campaign, token, person.id, [answer(one) for one in held.items])
        done.append(token)


def picked(side, wanted):
    """Choose the thing that is declared at this place, wherever it is shown."""
    return lambda one: {one.questions[0].name: f"{side}-{one.orders[side + 's'].index(wanted)}"}


def pair(image, caption, n=0, **more):
    text = f"A {caption} square."
    return NewItem(
        f"{image}-{caption}-{n}", (f"{image}.jpg",), (text,), body={"image_id": image, "caption_id": f"{caption}#0"}, **more
    )


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def two(n, first="red", second="blue"):
    return NewItem(
        f"t{n}",
        (f"{first}.jpg", f"{second}.jpg"),
        (f"A {first} square.",),
        body={"image_ids": [first, second], "category": "colour"},
    )
