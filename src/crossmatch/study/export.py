"""The results of a study as files that `crossmatch run`, `captions agree` and the next stage take, with where they came from.

    answers.csv         every answer that counts, one row for each person, item and question
    assignments.csv     one row for each submitted HIT, in the columns of MTurk's results
    provenance.json     which study, design and events; the last hash of the chain
    judgements.csv …    what the study yields, by its design

A cell that a spreadsheet would take for a formula begins with a blank, which our own readers drop.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmatch import __version__
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.pictures import opened
from crossmatch.core.progress import track
from crossmatch.core.whole import whole_file
from crossmatch.study import results
from crossmatch.study.events import check_chain
from crossmatch.study.said import Progress, Said, Study, counted, everything, progress
from crossmatch.study.sheets import as_csv
from crossmatch.study.yields import YIELDS, Heard

if TYPE_CHECKING:
    from crossmatch.core.collection import Collection
    from crossmatch.study.store import Campaign


@dataclass(frozen=True)
class Exported:
    """What was written, and what to do with it."""

    folder: Path
    files: tuple[str, ...]
    said: tuple[str, ...]  # counts, in words
    next: tuple[str, ...]  # commands


def export(
    campaign: Campaign, study: Study, folder: Path, collection: Collection | None = None, *, pending: bool = False
) -> Exported:
    """Write the results of a study into a folder.

    With the collection that the items came from, judgements come as a whole collection, ready for `crossmatch run`. HITs with wrong
    gold answers at which nobody has looked are left out, unless `pending`.
    """
    number, last = check_chain(campaign, study.id)
    with campaign.reading() as connection:
        said = list(counted(connection, study.id, pending=pending))
        all_said = list(everything(connection, study.id))
        far = progress(connection, study.id)
    if not said:
        raise CrossmatchError(f"{study.name} has no answers that count yet. Look with `crossmatch study status {campaign.folder}`.")
    folder.mkdir(parents=True, exist_ok=True)
    files = {"answers.csv": _answers(said), "assignments.csv": _assignments(study, all_said)}
    decided = results.decide(study.design, said)
    heard = Heard(study, said, decided, folder, campaign.pictures)
    more, told, then = YIELDS[study.design.result.yields](heard)
    files |= more
    if study.design.result.yields == "judgements" and collection is not None:
        files |= _collection(folder, collection)
    files["provenance.json"] = json.dumps(_provenance(heard, far, number, last), indent=1, ensure_ascii=False)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / name) as file:
            file.write(text.encode())
    head = f"{len(said):,} answers of {heard.people:,} people to {len({s.thing.id for s in said}):,} items"
    waits = [f"{far.review:,} HITs wait for a reviewer and {'count' if pending else 'are left out'}"] * bool(far.review)
    unfinished = [f"{far.open + far.held:,} of {far.slots:,} answers to HITs are still to come"] * bool(far.open + far.held)
    return Exported(folder, tuple(files), (head, *told, *waits, *unfinished), then)


def _provenance(heard: Heard, far: Progress, number: int, last: str) -> dict[str, Any]:
    """Which answers, by which design, up to which event: enough to tell later whether anything was changed."""
    design = heard.study.design
    return {
        "study": heard.study.name,
        "preset": design.name,
        "paper": design.paper,
        "events": number,
        "hash": last,
        "answers": len(heard.said),
        "people": heard.people,
        "items": len(heard.decided),
        "combine": design.result.combine,
        "pending_review": far.review,
        "still_to_come": far.open + far.held,
        "origin": dict(heard.study.origin),
        "design": design.told(),
        "crossmatch": __version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _answers(said: Sequence[Said]) -> str:
    head = ("item", "person", "question", "answer", "seconds", "at", "hit", "gold", "late", "order")
    rows = (
        (s.thing.key, s.person, name, _told(value), s.seconds, _time(s.at), s.hit, int(s.thing.gold is not None), int(s.late),
         json.dumps(s.orders) if s.orders else "")
        for s in said for name, value in s.answer.items()
    )  # fmt: skip
    return as_csv(head, rows)


def _told(value: Any) -> object:
    return ";".join(value) if isinstance(value, list) else value


STATUS = {None: "Submitted", "approve": "Approved", "reject": "Rejected", "reassign": "Approved"}


def _assignments(study: Study, said: Sequence[Said]) -> str:
    """One row for each HIT that a person submitted, as MTurk's results have it."""
    by_claim: dict[str, list[Said]] = {}
    for one in said:
        by_claim.setdefault(one.claim, []).append(one)
    most = max((len(each) for each in by_claim.values()), default=0)
    names = [q.name for q in study.design.questions]
    head = [
        "HITId",
        "Title",
        "Reward",
        "AssignmentId",
        "WorkerId",
        "AssignmentStatus",
        "SubmitTime",
        "WorkTimeInSeconds",
        "Late",
        "WrongGold",
    ]
    for n in range(1, most + 1):
        head += [f"Input.item_{n}", *(f"Answer.{name}_{n}" for name in names)]
    rows = []
    for claim, each in by_claim.items():
        first, times = each[0], [s.seconds for s in each if s.seconds is not None]
        recipe = study.design.recipe
        row: list[object] = [
            first.hit,
            study.design.title,
            f"{recipe.pay:.2f} {recipe.currency}",
            claim,
            first.person,
            STATUS[first.verdict],
        ]
        row += [_time(first.at), round(sum(times), 1) if times else "", int(first.late), int(first.doubt)]
        for one in each:
            row += [one.thing.key, *(_told(one.answer.get(name, "")) for name in names)]
        rows.append(row + [""] * (len(head) - len(row)))
    return as_csv(head, rows)


# -- the collection that was judged


def _collection(folder: Path, collection: Collection) -> dict[str, str]:
    """The images and captions that the judgements are of, in COCO's layout, so that the folder is a collection of its own."""
    (folder / "images").mkdir(exist_ok=True)
    images = []
    for n, name in enumerate(track(collection.image_ids.tolist(), "writing the images of the collection")):
        file = f"{n:06d}.png"
        if collection.open_image is None:
            raise CrossmatchError("the collection has no pictures, so that no collection can be written. Export without --data.")
        with whole_file(folder / "images" / file) as held:
            opened(collection.open_image, name).convert("RGB").save(held, "PNG")
        images.append({"id": name, "file_name": file})
    texts, ids = collection.captions, collection.caption_ids.tolist()
    annotations = [{"id": ids[c], "image_id": images[i]["id"], "caption": texts[c]} for i, c in collection.links.tolist()]
    return {"captions.json": json.dumps({"images": images, "annotations": annotations}, ensure_ascii=False)}
