"""What a study yields, by its design: judgements, trials, ratings, preferences or choices, as files and in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from crossmatch.core.errors import CrossmatchError
from crossmatch.core.whole import whole_file
from crossmatch.metrics.preference import bradley_terry, bradley_terry_interval
from crossmatch.study import results
from crossmatch.study.design import Design
from crossmatch.study.promise import caption_places, trial_captions
from crossmatch.study.results import Decided
from crossmatch.study.said import Said, Study, Thing
from crossmatch.study.sheets import as_csv, as_jsonl

if TYPE_CHECKING:
    from crossmatch.core.collection import Collection

Yield = tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]  # files, what is in them, and what to do next


@dataclass(frozen=True)
class Heard:
    """What a study came to, and where it is written."""

    study: Study
    said: list[Said]
    decided: list[Decided]
    folder: Path  # in which it is written
    place: Path  # where that will stand
    pictures: Path
    collection: Collection | None = None  # that the items came from
    links: bool = True  # whether its links stand where people gave no grade
    taken: dict[str, str] = field(default_factory=dict)  # the file that each name in images/ is a copy of

    @property
    def people(self) -> int:
        return len({one.person for one in self.said})

    def picture(self, thing: Thing, n: int) -> str:
        """The name, in `images/`, of a copy of an image; called as the data call it, as far as a file can be."""
        file = thing.images[n]
        called = re.sub(r"[^\w.~-]", "_", thing.image_ids[n].removesuffix(Path(file).suffix)) if thing.image_ids else ""
        name = f"{called}{Path(file).suffix}" if called.strip("._") and len(called) < 150 else file
        name = name if self.taken.get(name, file) == file else file
        if name not in self.taken:
            self.taken[name] = file
            (self.folder / "images").mkdir(exist_ok=True)
            with whole_file(self.folder / "images" / name) as held:
                held.write((self.pictures / file).read_bytes())
        return name


def _judgements(heard: Heard) -> Yield:
    """Graded pairs; which file depends on what the pairs are of.

    Pairs that nobody asked about are unjudged, and count as irrelevant. If the links of the collection were among them, a model
    that finds the caption written for an image would be called wrong for it. So links stand, with the best grade, where people
    gave none; `by` tells them apart, and where people were asked, their word counts, also against a link.
    """
    kept = [one for one in heard.decided if one.grade is not None]
    if not kept:
        raise CrossmatchError("people were level on every item, so that nothing has a grade. Ask more of them.")
    name, heads, ids = PAIRS.get((len(kept[0].thing.images), len(kept[0].thing.captions)), PAIRS[1, 1])
    rows: list[tuple[object, ...]] = [
        (*ids(one), _short(one.grade), _short(one.deviation), one.answers, heard.study.name, "people") for one in kept
    ]
    level = len(heard.decided) - len(kept)
    told = [f"{len(kept):,} pairs graded" + (f", {level:,} left out because people were level" if level else "")]
    then: tuple[str, ...] = ()
    if heard.collection is None:
        told.append("no collection was named (--data), so that the grades stand alone, without the images and captions")
    else:
        then = (f"crossmatch run -m MODEL -t {quote(f'collection:{heard.place}{_threshold(heard.study.design)}')}",)
        if name == PAIRS[1, 1][0] and heard.links:
            more = _linked(heard.collection, {row[:2] for row in rows}, _short(_best(heard.study.design)), heard.study.name)
            rows += more
            told.append(
                f"{len(more):,} links of the collection stand as positives where people gave no grade (--no-links: they do not)"
            )
    return {name: as_csv((*heads, "grade", "deviation", "answers", "source", "by"), rows)}, tuple(told), then


def _linked(collection: Collection, graded: Container[tuple[object, ...]], best: str, source: str) -> list[tuple[object, ...]]:
    images, captions = collection.image_ids.tolist(), collection.caption_ids.tolist()
    pairs = ((str(images[i]), str(captions[c])) for i, c in collection.links.tolist())
    return [(*pair, best, "", 0, source, "links") for pair in pairs if pair not in graded]


def _best(design: Design) -> float:
    """The best grade that can be given."""
    if design.main.kind == "slider":
        return design.main.high
    return max(option.grade for option in design.main.options if option.grade is not None)


def _threshold(design: Design) -> str:
    """From which grade on a pair is positive, if it is not 1: 3 of 5 as in parekh2021cxc, partly right as in chun2022eccv."""
    grades = [option.grade for option in design.main.options if option.grade]
    least = 3.0 if max(grades, default=design.main.high) > 1 else min(grades)
    return "" if least == 1 else f"+positive={least:g}"


def _pair(one: Decided) -> tuple[str, str]:
    return _at(one.thing.image_ids, 0), _at(one.thing.caption_ids, 0)


def _two(ids: Sequence[str]) -> tuple[str, str]:
    return _at(ids, 0), _at(ids, 1)


def _at(ids: Sequence[str], n: int) -> str:
    return ids[n] if len(ids) > n else ""


PAIRS: dict[tuple[int, int], tuple[str, tuple[str, str], Callable[[Decided], tuple[str, str]]]] = {
    (1, 1): ("judgements.csv", ("image_id", "caption_id"), _pair),
    (0, 2): (
        "judgements_t2t.csv",
        ("caption_id", "other_caption_id"),
        lambda one: (_at(one.thing.caption_ids, 0), _at(one.thing.caption_ids, 1)),
    ),
    (2, 0): (
        "judgements_i2i.csv",
        ("image_id", "other_image_id"),
        lambda one: (_at(one.thing.image_ids, 0), _at(one.thing.image_ids, 1)),
    ),
}


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.6g}"


def _trials(heard: Heard) -> Yield:
    """Accepted forced choices, and for people's own performance the outcome of every one."""
    solved = results.instances(heard.study.design, heard.said)
    if solved:
        return _performance(heard, solved)
    wanted = heard.study.design.result.wanted
    kept = [one for one in heard.decided if one.value and (one.value == wanted if wanted else one.value.startswith("caption-"))]
    rows = [_trial(heard, one) for one in kept]
    level = sum(one.value is None for one in heard.decided)
    refused = len(heard.decided) - len(rows) - level
    told = (f"{len(rows):,} trials accepted, {refused:,} refused" + (f", {level:,} undecided" if level else ""),)
    if not rows:
        return {"trials.jsonl": ""}, told, ()
    file = quote(str(heard.place / "trials.jsonl"))
    data = f" --data {quote(str(heard.study.origin['data']))}" if heard.study.origin.get("data") else ""
    verify = f"crossmatch study new bison-verify --items {file}{data} --excludes {heard.study.name} -o CAMPAIGN"
    then = [verify] * (heard.study.design.name == "bison-select") + [f"crossmatch run -m MODEL -t trials:{file}"]
    return {"trials.jsonl": as_jsonl(rows)}, told, tuple(then)


def _trial(heard: Heard, one: Decided) -> dict[str, Any]:
    """One caption and two images, the first of which is right; or an image and captions, the first of which is.

    Where the item tells of a whole trial it is that one: `trial_of` has two captions, the item's own and another, for its two
    images in their order.
    """
    value, thing = str(one.value), one.thing
    whole = thing.body.get("trial_of")
    whole = whole if isinstance(whole, Mapping) else {}
    captions, order = trial_captions(thing, value), list(range(len(thing.images)))
    if captions == tuple(whole.get("captions", ())):
        caption_ids = list(map(str, whole.get("caption_ids", ())))
    else:
        caption_ids = [thing.caption_ids[n] for n in caption_places(thing, value)] if thing.caption_ids else []
        side, _, place = value.rpartition("-")
        order.sort(key=lambda n: side == "image" and n != int(place))
    more = {
        "image_ids": [thing.image_ids[n] for n in order] if thing.image_ids else [],
        "caption_ids": caption_ids if len(caption_ids) == len(captions) else [],
        "category": thing.body.get("category") or whole.get("category", ""),
    }
    told = {"id": thing.key, "images": [heard.picture(thing, n) for n in order], "captions": list(captions)}
    return told | {key: value for key, value in more.items() if value}


WINS = ("text_score_i0", "text_score_i1", "image_score_c0", "image_score_c1")


def _performance(heard: Heard, solved: list[results.Instance]) -> Yield:
    """How well people do: the outcomes of each trial in the columns that `precomputed:FILE` reads, and the trials themselves.

    Where several people solved a trial, each of them counts as one of its own.
    """
    several = len({one.name for one in solved}) < len(solved)
    names = [f"{one.name}@{one.person}" if several else one.name for one in solved]
    whole = _instances(heard)
    i2t, t2i = (sum(all(one.wins[k : k + 2]) for one in solved) / len(solved) for k in (0, 2))
    group = sum(all(one.wins) for one in solved) / len(solved)
    told = (f"{len(solved):,} instances solved: I2T {100 * i2t:.1f}, T2I {100 * t2i:.1f}, Group {100 * group:.1f} %",)
    people, trials = (heard.place / name for name in ("people.csv", "trials.jsonl"))
    files = {
        people.name: as_csv(("trial_id", *WINS), [(name, *one.wins) for name, one in zip(names, solved, strict=True)]),
        trials.name: as_jsonl({"id": name, **whole[one.name]} for name, one in zip(names, solved, strict=True)),
    }
    run = f"crossmatch run -m {quote(f'precomputed:{people}')} --name people -t {quote(f'trials:{trials}')}"
    return files, told, (run,)


def _instances(heard: Heard) -> dict[str, dict[str, Any]]:
    """The trials that two-way questions were made of: images from a question about a caption, captions from one about an image."""
    out: dict[str, dict[str, Any]] = {}
    for thing in {s.thing.id: s.thing for s in heard.said if "trial" in s.thing.body}.values():
        told = out.setdefault(str(thing.body["trial"]), {})
        if len(thing.images) == 2:
            told |= {"images": [heard.picture(thing, n) for n in range(2)], "image_ids": list(thing.image_ids)}
        else:
            told |= {"captions": list(thing.captions), "caption_ids": list(thing.caption_ids)}
        if thing.body.get("category"):
            told["category"] = thing.body["category"]
    return {name: {key: value for key, value in told.items() if value} for name, told in out.items()}


def _ratings(heard: Heard) -> Yield:
    """Every single rating, as `captions agree` takes them."""
    question = heard.study.design.main
    grade = {option.value: option.grade for option in question.options}
    rows = [
        (_rated(s.thing), _at(s.thing.caption_ids, 0), s.thing.captions[0],
         _short(grade.get(s.answer[question.name], s.answer[question.name])), s.person)
        for s in heard.said if s.thing.gold is None
    ]  # fmt: skip
    file = quote(str(heard.place / "ratings.csv"))
    then = (f"crossmatch captions agree --judgements {file} --references REFERENCES --metrics cider-d,spice",)
    return (
        {"ratings.csv": as_csv(("image_id", "caption_id", "caption", "rating", "person"), rows)},
        (f"{len(rows):,} ratings",),
        then,
    )


def _rated(thing: Thing) -> str:
    """The image that a rated caption is of, though it may not have been shown."""
    return _at(thing.image_ids, 0) or str(thing.body.get("image_id") or (thing.body.get("image_ids") or [thing.key])[0])


def _preferences(heard: Heard) -> Yield:
    """Comparisons of systems, and their strengths by Bradley and Terry's model with intervals."""
    found, question = results.preferences(heard.study.design, heard.said), heard.study.design.main.name
    compared = [(*s.thing.body["systems"], s.answer[question], s.person, s.thing.key) for s in heard.said if s.thing.gold is None]
    files = {"preferences.csv": as_csv(("first", "second", "preferred", "person", "item"), compared)}
    try:
        strength = bradley_terry(found)
        low, high = bradley_terry_interval(found)
    except CrossmatchError as error:
        return files, (f"no strengths: {error}",), ()
    table = zip(found.items, strength.tolist(), low.tolist(), high.tolist(), strict=True)
    rows = sorted(((name, *map(_short, numbers)) for name, *numbers in table), key=lambda row: -float(row[1]))
    files["strengths.csv"] = as_csv(("system", "strength", "low", "high"), rows)
    return files, tuple(f"{name}: {value} [{least}, {most}]" for name, value, least, most in rows), ()


def _choices(heard: Heard) -> Yield:
    """What was chosen of each item, by how many; the best of several images with a copy of it, and all that the item tells."""
    decided = [one for one in heard.decided if one.value is not None]
    images = sum(str(one.value).startswith("image-") for one in decided)
    none = sum(one.value == "none" for one in decided)
    level = len(heard.decided) - len(decided)
    told = f"{images:,} captions have an image, {none:,} have none" if images else f"{len(decided):,} items decided"
    return {"choices.jsonl": as_jsonl(_chosen(heard, one) for one in decided)}, (f"{told}, {level:,} undecided",), ()


def _chosen(heard: Heard, one: Decided) -> dict[str, Any]:
    rest = {k: v for k, v in one.thing.body.items() if k not in ("image_ids", "caption_ids", "image_id", "caption_id", "caption")}
    told: dict[str, Any] = {**rest, "id": one.thing.key, "value": one.value, "share": one.share, "answers": one.answers}
    side, _, place = str(one.value).rpartition("-")
    if side == "image":
        told |= {
            "images": [heard.picture(one.thing, int(place))],
            "image_ids": list(one.thing.image_ids[int(place) : int(place) + 1]),
        }
    return {**told, "captions": list(one.thing.captions), "caption_ids": list(one.thing.caption_ids)}


YIELDS: dict[str, Callable[[Heard], Yield]] = {
    "judgements": _judgements,
    "trials": _trials,
    "ratings": _ratings,
    "preferences": _preferences,
    "choices": _choices,
}
