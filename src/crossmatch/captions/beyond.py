"""What else a study tells of metrics: by the number of references, by changed words, and on people's own scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crossmatch.captions.agree import RatingAgreement
from crossmatch.captions.candidates import rated
from crossmatch.captions.human_scale import HumanScale, human_scale
from crossmatch.captions.reference_curve import DRAWS, Point, accuracy_curve, correlation_curve
from crossmatch.captions.sensitivity import Noticed, probes, sensitivity
from crossmatch.core.ratings import Preferences, Ratings


def by_references(
    said: Ratings | Preferences, names: Iterable[str], draws: int = DRAWS, seed: int = 0, **given: Any
) -> list[Point]:
    """Agreement against the number of references, up to as many as every candidate has: accuracy, or tau-b with each rating.

    Source: jiang2019tiger, fig. 5.
    """
    options = {"draws": draws, "seed": seed, **given}
    if isinstance(said, Preferences):
        return accuracy_curve(
            said.captions, said.preferred.tolist(), said.references, names, groups=said.groups.tolist(), image=said.images.tolist(),
            ids=said.ids.tolist(), **options,
        )  # fmt: skip
    said, candidates = rated(said)
    own, ids = list(candidates.references.values()), said.ids.tolist()
    rows = said.of.tolist()
    return correlation_curve(
        [said.captions[n] for n in rows], said.values.tolist(), [own[n] for n in rows], names,
        image=[str(said.images[n]) for n in rows], ids=[ids[n] for n in rows], **options,
    )  # fmt: skip


def by_words(said: Ratings | Preferences, names: Iterable[str], seed: int = 0, **given: Any) -> list[Noticed]:
    """Which changed words of its references a metric notices; see `sensitivity`."""
    held: dict[str, list[str]] = {}
    if isinstance(said, Preferences):
        for image, texts in zip(said.images.tolist(), said.references, strict=True):
            held[image] = list(dict.fromkeys([*held.get(image, ()), *texts]))
    else:
        held = {image: list(said.references[image]) for image in dict.fromkeys(said.images.tolist())}
    return sensitivity(probes(held, seed=seed), names, **given)


def on_their_scale(found: RatingAgreement) -> dict[str, HumanScale]:
    """Each metric put on people's scale; see `human_scale`."""
    said = found.said
    images = said.images[said.of].tolist()
    return {
        name: human_scale(scores[said.of], said.values, images) for name, scores in zip(found.metrics, found.scores, strict=True)
    }
