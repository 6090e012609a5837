"""Write the table of docs/decisions/0024-sits-sampling.md: how the image-caption pairs of CxC were selected.

CROSSMATCH_DATA=FOLDER python docs/sits_sampling_results.py        # the folder needs cxc/ and coco/

It takes about a minute. The numbers are the same each time.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from blocks import HERE, markdown, replace_block
from crossmatch.benchmarks.coco import coco_collection
from crossmatch.benchmarks.cxc import read_ratings
from crossmatch.build.rated_pair_sampling import sample_sits
from crossmatch.build.step_files import read_rows
from crossmatch.data.collection import Collection
from crossmatch.data.io.paths import data_folder
from crossmatch.report.tables import Table

PAGE = HERE / "decisions" / "0024-sits-sampling.md"
SPLITS = ("test", "val")
PER_SOURCE = 2  # new pairs per image from each kind of rating

Pair = tuple[str, str]  # two image ids, or an image id and a caption id
Rating = tuple[str, str, float]


class Release(NamedTuple):
    """The released ratings of a split."""

    collection: Collection
    captions: list[Rating]  # caption pairs of similar images
    images: list[Rating]  # image pairs, in the order of the file
    selected: set[Pair]  # image and caption


def load_release(split: str) -> Release:
    """Read a split. Its texts are replaced by ids, because the val split has none without COCO's file."""
    data = coco_collection(split)
    data = Collection(data.image_ids, data.caption_ids, tuple(data.caption_ids.tolist()), data.links)
    tables = {task: read_ratings(task, split, data_folder()) for task in ("sts", "sis", "sits")}
    rows = {
        task: list(zip(t.first.tolist(), t.second.tolist(), t.grades.tolist(), t.methods.tolist(), strict=True))
        for task, t in tables.items()
    }
    return Release(
        data,
        [row[:3] for row in rows["sts"] if row[3] == "c2c_isim"],
        [row[:3] for row in rows["sis"]],
        {(image, caption) for image, caption, _, method in rows["sits"] if method == "c2i_intrasim"},
    )


def owners(data: Collection) -> dict[str, str]:
    """The image of each caption."""
    images, captions = data.image_ids.tolist(), data.caption_ids.tolist()
    return {captions[c]: images[i] for i, c in data.links.tolist()}


def first_batch(images: Sequence[Rating]) -> list[Rating]:
    """The rows before the first that repeats an earlier pair in the other order."""
    earlier: set[Pair] = set()
    for n, (a, b, _) in enumerate(images):
        if (b, a) in earlier:
            return list(images[:n])
        earlier.add((a, b))
    return list(images)


def image_pairs(pairs: Iterable[Pair], owner: dict[str, str]) -> Counter[Pair]:
    """How many captions of the second image are paired with the first image."""
    return Counter((image, owner[caption]) for image, caption in pairs)


def share(part: Iterable[Pair], whole: Iterable[Pair]) -> float:
    """Percentage of the pairs in `whole` that `part` contains."""
    elements = set(whole)
    return 100 * len(elements & set(part)) / len(elements)


def sample(release: Release, images: Sequence[Rating], seed: int = 0) -> set[Pair]:
    """The new pairs of an image and a caption that this package selects."""
    with TemporaryDirectory() as folder:
        output = Path(folder) / "sits"
        sample_sits(release.collection, output, caption_ratings=release.captions, image_ratings=images, seed=seed)
        return {
            (row["image_id"], row["caption_id"]) for row in read_rows(output) if row["sampling_method"] == "c2i_intrasim"
        }  # fmt: skip


def highest_rated(release: Release, owner: dict[str, str], images: Sequence[Rating]) -> set[Pair]:
    """Image pairs by descending rating, whatever the image: as many of each kind as the paper's text suggests."""
    per_kind = PER_SOURCE * release.collection.shape[0]
    of_captions = [(owner[a], owner[b], rating) for a, b, rating in release.captions]
    best: set[Pair] = set()
    for ratings in (of_captions, images):
        best |= {(a, b) for a, b, _ in sorted(ratings, key=lambda row: -row[2])[:per_kind]}
    return best


def contradictions(ratings: Sequence[Rating], used: Counter[Pair], ambiguous: set[Pair], grade: Callable[[float], float]) -> str:
    """How often the release contradicts the rule that each image takes its two highest grades.

    A pair is possible if fewer than two pairs of one of its images have a higher grade, and required if an image has at most two
    pairs with this grade or a higher one. Pairs that the other kind of rating may have selected are left out.
    """
    grades_of: dict[str, list[float]] = defaultdict(list)
    for a, b, rating in ratings:
        for image in (a, b):
            grades_of[image].append(grade(rating))
    selected = impossible = required = unused = 0
    for a, b, rating in ratings:
        if {(a, b), (b, a)} & ambiguous:
            continue
        value = grade(rating)
        is_possible = any(sum(other > value for other in grades_of[image]) < PER_SOURCE for image in (a, b))
        is_required = any(sum(other >= value for other in grades_of[image]) <= PER_SOURCE for image in (a, b))
        selected += used[a, b] > 0
        impossible += used[a, b] > 0 and not is_possible
        required += is_required
        unused += is_required and not used[a, b]
    return f"{100 * impossible / selected:.1f} / {100 * unused / required:.1f}"


def rated_captions(release: Release, owner: dict[str, str], released: Counter[Pair], by_images: set[Pair]) -> tuple[float, int]:
    """Among the pairs of images that only captions explain: how often the new caption is the rated one, and most new captions."""
    rated = {(owner[a], owner[b]): b for a, b, _ in release.captions}
    only = {pair for pair in rated if pair in released and pair not in by_images and pair[::-1] not in by_images}
    captions = [(image, caption) for image, caption in release.selected if (image, owner[caption]) in only]
    share_of_rated = sum(rated[image, owner[caption]] == caption for image, caption in captions) / len(captions)
    return share_of_rated, max(released[pair] for pair in only)


def column(split: str) -> dict[str, str]:
    """One column of the table."""
    release = load_release(split)
    owner, batch = owners(release.collection), first_batch(release.images)
    released = image_pairs(release.selected, owner)
    of_captions = [(owner[a], owner[b], rating) for a, b, rating in release.captions]
    by_captions, by_images = {row[:2] for row in of_captions}, {row[:2] for row in release.images}
    both = by_captions | by_images
    later = {row[:2] for row in release.images[len(batch) :]}
    own, repeated = (sample(release, batch, seed) for seed in (0, 1))
    own_pairs, repeated_pairs = image_pairs(own, owner), image_pairs(repeated, owner)
    no_rating = sum((a, b) not in both and (b, a) not in both for a, b in released)
    reverse_only = sum((a, b) not in both and (b, a) in both for a, b in released)
    only_later = sum((a, b) in later and not {(a, b), (b, a)} & by_captions for a, b in released)
    own_caption = rated_captions(release, owner, released, by_images)
    rounded = lambda rating: math.floor(rating + 0.5)  # noqa: E731
    evidence = {
        "captions": (of_captions, by_images), "images": (batch, by_captions | {pair[::-1] for pair in by_captions}),
    }  # fmt: skip
    cells = {
        "released new pairs of an image and a caption": f"{len(release.selected):,}",
        "of that many pairs of images": f"{len(released):,}",
        "- without a rating of these images": f"{no_rating:,}",
        "- rated in the other order only": f"{reverse_only:,}",
        "only captions explain: with the rated caption itself, %": f"{100 * own_caption[0]:.1f}",
        "only captions explain: most captions of a pair": f"{own_caption[1]}",
        "image ratings before the first repeated pair": f"{len(batch):,} of {len(release.images):,}",
        "- pairs of images that only a later rating explains": f"{only_later:,}",
        "captions per pair of images: 1, 2, 3, 4 (release)": _counts(released),
        "captions per pair of images: 1, 2, 3, 4 (this package)": _counts(own_pairs),
    }
    for name, (ratings, ambiguous) in evidence.items():
        cells[f"{name}: contradictions with exact ratings, %"] = contradictions(ratings, released, ambiguous, float)
        cells[f"{name}: contradictions with rounded ratings, %"] = contradictions(ratings, released, ambiguous, rounded)
    return cells | {
        "shared: highest ratings of all images, %": f"{share(highest_rated(release, owner, release.images), released):.1f}",
        "shared: this package, all ratings, %": f"{share(image_pairs(sample(release, release.images), owner), released):.1f}",
        "shared: this package, first batch of image ratings, %": f"{share(own_pairs, released):.1f}",
        "two seeds of this package share with each other, %": f"{share(repeated_pairs, own_pairs):.1f}",
        "shared with captions: this package, first batch, %": f"{share(own, release.selected):.1f}",
        "two seeds share with captions, %": f"{share(repeated, own):.1f}",
    }


def _counts(pairs: Counter[Pair]) -> str:
    counts = Counter(pairs.values())
    return ", ".join(f"{counts[n]:,}" for n in range(1, 5))


def main() -> None:
    columns = [column(split) for split in SPLITS]
    rows = tuple((name, *(cells[name] for cells in columns)) for name in columns[0])
    replace_block(PAGE, "sits sampling", markdown(Table("", (("", *SPLITS),), rows, 1)))


if __name__ == "__main__":
    main()
