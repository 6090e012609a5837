"""The results of a study as files that `crossmatch run`, `captions agree` and the next stage take, with where they came from.

    answers.csv, assignments.csv, annotators.csv    who answered what (`records`)
    provenance.json                                 which study, design and events; the last hash of the chain; hashes of all files
    judgements.csv …                                what the study yields, by its design (`yields`)
    captions.json, images/                          the collection that was judged, where there is one

A cell that a spreadsheet would take for a formula begins with a blank, which our own readers drop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmatch import __version__
from crossmatch.benchmarks.formats.written import write_collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.study import exported, records, results
from crossmatch.study.design import Combine
from crossmatch.study.events import chain
from crossmatch.study.promise import require_result
from crossmatch.study.said import Progress, Said, Study, counted, everything, progress, things
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


@dataclass(frozen=True, eq=False)
class Read:
    """What the database says of a study in one moment. Answers of artificial people are among it only where all people are."""

    number: int  # of events
    hash: str
    counted: list[Said]
    all: list[Said]
    progress: Progress
    codes: dict[str, str]
    left_out: int  # answers of artificial people


def export(
    campaign: Campaign,
    study: Study,
    folder: Path,
    collection: Collection | None = None,
    *,
    pending: bool = False,
    links: bool = True,
    combine: Combine | None = None,
) -> Exported:
    """Write the results of a study into a folder, which holds them and nothing else afterwards.

    With the collection that the items came from, judgements come as a whole collection, ready for `crossmatch run`, in which its
    `links` stand as positives where people gave no grade. HITs with wrong gold answers at which nobody has looked are left out,
    unless `pending`. `combine` decides otherwise than the design says. Answers of artificial people are left out where real people
    have answered, too.
    """
    exported.require_replaceable(folder)
    if combine is not None:
        study = replace(study, design=replace(study.design, result=replace(study.design.result, combine=combine)))
    seen = _read(campaign, study, pending)
    if not seen.counted:
        raise CrossmatchError(f"{study.name} has no answers that count yet. Look with `crossmatch study status {campaign.folder}`.")
    decided = results.decide(study.design, seen.counted)
    collection = collection if study.design.result.yields == "judgements" else None
    with exported.replacing(folder) as place:
        heard = Heard(study, seen.counted, decided, place, folder, campaign.pictures, collection, links)
        files = {
            "answers.csv": records.answers(seen.counted),
            "assignments.csv": records.assignments(study, seen.all, seen.codes),
            "annotators.csv": records.annotators(seen.all, seen.counted, seen.codes),
        }
        more, told, then = YIELDS[study.design.result.yields](heard)
        files |= more
        if collection is not None:
            files |= _collection(heard, collection)
        names = exported.write(place, files, _provenance(heard, seen))
    return Exported(folder, names, (*_heard(heard, seen), *told, *_waiting(seen, pending)), then)


def _read(campaign: Campaign, study: Study, pending: bool) -> Read:
    """Everything in one transaction, or the last hash would not be that of what is written."""
    with campaign.reading() as connection:
        number, last = chain(connection, study.id)
        require_result(study.design, list(things(connection, study.id).values()))
        said, every = list(counted(connection, study.id, pending=pending)), list(everything(connection, study.id))
        codes = records.completion_codes(campaign, connection, study.id)
        far = progress(connection, study.id)
    both = len({one.artificial for one in every}) == 2
    kept, all_kept = ([one for one in some if not (both and one.artificial)] for some in (said, every))
    return Read(number, last, kept, all_kept, far, codes, len(said) - len(kept))


def _heard(heard: Heard, seen: Read) -> tuple[str, ...]:
    made_up = " artificial" * all(one.artificial for one in heard.said)
    head = f"{len(heard.said):,} answers of {heard.people:,}{made_up} people to {len({s.thing.id for s in heard.said}):,} items"
    out = [f"{seen.left_out:,} answers of artificial people are left out, because real people answered, too"] * bool(seen.left_out)
    return (head, *out)


def _waiting(seen: Read, pending: bool) -> tuple[str, ...]:
    far = seen.progress
    review = [f"{far.review:,} HITs wait for a reviewer and {'count' if pending else 'are left out'}"] * bool(far.review)
    open_ = [f"{far.open + far.held:,} of {far.slots:,} answers to HITs are still to come"] * bool(far.open + far.held)
    return (*review, *open_)


def _provenance(heard: Heard, seen: Read) -> dict[str, Any]:
    """Which answers, by which design, up to which event: enough to tell later whether anything was changed."""
    design = heard.study.design
    return {
        "study": heard.study.name,
        "preset": design.name,
        "paper": design.paper,
        "yields": design.result.yields,
        "events": seen.number,
        "hash": seen.hash,
        "answers": len(heard.said),
        "people": heard.people,
        "artificial": all(one.artificial for one in heard.said),
        "artificial_left_out": seen.left_out,
        "items": len(heard.decided),
        "combine": design.result.combine,
        "links": heard.collection is not None and heard.links,
        "pending_review": seen.progress.review,
        "still_to_come": seen.progress.open + seen.progress.held,
        "origin": dict(heard.study.origin),
        "design": design.told(),
        "crossmatch": __version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


# -- the collection that was judged


def _collection(heard: Heard, collection: Collection) -> dict[str, str]:
    """The images and captions that the judgements are of, in COCO's layout, so that the folder is a collection of its own.

    An image that people saw and the collection has not (another artist's drawing of a scene) is added to it, without a caption.
    """
    if collection.open_image is None:
        raise CrossmatchError("the collection has no pictures, so that no collection can be written. Export with --data ''.")
    known = set(map(str, collection.caption_ids.tolist()))
    strange = next((name for one in heard.decided for name in one.thing.caption_ids if name not in known), None)
    if strange is not None:
        raise CrossmatchError(
            f"people judged the caption {strange!r:.60}, which the collection has not. Name the one that has it (--data), or "
            "export the grades alone: --data ''"
        )
    there = set(collection.image_ids.tolist())
    more: dict[str, Path] = {}
    for thing in (one.thing for one in heard.decided):
        for name, file in zip(thing.image_ids, thing.images, strict=False):
            if name not in there:
                more.setdefault(name, heard.pictures / file)
    return {"captions.json": write_collection(heard.folder, collection, more, anew=True)}
