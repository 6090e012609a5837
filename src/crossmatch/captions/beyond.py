"""What else a study tells of metrics: by the number of references, by changed words, and on people's own scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crossmatch.captions.agree import COUNTED, RatingAgreement
from crossmatch.captions.candidates import preferred, rated
from crossmatch.captions.human_scale import HumanScale, human_scale
from crossmatch.captions.reference_curve import DRAWS, Curve, accuracy_curve, correlation_curve
from crossmatch.captions.sensitivity import Sensitivity, probes, sensitivity
from crossmatch.core.errors import WrongWords
from crossmatch.core.ratings import Preferences, Ratings


def by_references(
    said: Ratings | Preferences,
    names: Iterable[str],
    draws: int = DRAWS,
    seed: int = 0,
    *,
    ties: str = "wrong",
    rating: str = "each",
    documents: str = "images",
    coefficient: str = "tau-c",
    **given: Any,
) -> Curve:
    """Agreement against the number of references, up to as many as every candidate has: accuracy, or a coefficient of correlation.

    `ties` and `rating`, `documents` and what is `given` mean the same as in `agree.agree`; where all candidates have the same
    number of references, the last point is what is found there. Source: jiang2019tiger, fig. 5.

    >>> said = Preferences("mine", ["0"], ["7"], [("a dog", "a cat")], [["two dogs", "a dog runs"]], [0], ["HI"])
    >>> [(point.group, point.references, point.value) for point in by_references(said, ["bleu-1"], ties="half").points]
    [('HI', 1, 0.875), ('mean', 1, 0.875), ('HI', 2, 1.0), ('mean', 2, 1.0)]
    """
    options = {"draws": draws, "seed": seed, "documents": documents, "study": said.name, **given}
    if isinstance(said, Preferences):
        return accuracy_curve(
            said.captions, said.preferred.tolist(), said.references, names, ties=ties, groups=said.groups.tolist(),
            image=said.images.tolist(), ids=said.ids.tolist(), held=preferred(said).documents, facts={"data": said.digest},
            **options,
        )  # fmt: skip
    if rating not in COUNTED:
        raise WrongWords(f"ratings are counted as {rating!r}; there are {' and '.join(COUNTED)}. Choose one.")
    said, candidates = rated(said)
    own, ids = list(candidates.references.values()), said.ids.tolist()
    rows, values = (said.of, said.values) if rating == "each" else (range(len(said)), said.mean)
    return correlation_curve(
        [said.captions[n] for n in rows], values.tolist(), [own[n] for n in rows], names, coefficient=coefficient,
        image=[str(said.images[n]) for n in rows], ids=[ids[n] for n in rows], held=candidates.documents,
        facts={"data": said.digest, "ratings": rating, "equal": said.equal}, **options,
    )  # fmt: skip


def by_words(said: Ratings | Preferences, names: Iterable[str], seed: int = 0, **given: Any) -> Sensitivity:
    """Which changed words of its references a metric notices; see `sensitivity`.

    Document frequencies, if none are given, are those of the references of the study's images, each image a document.
    """
    held: dict[str, list[str]] = {}
    if isinstance(said, Preferences):
        for image, texts in zip(said.images.tolist(), said.references, strict=True):
            held[image] = list(dict.fromkeys([*held.get(image, ()), *texts]))
    else:
        held = {image: list(said.references[image]) for image in dict.fromkeys(said.images.tolist())}
    facts = {"data": said.digest, "seed": seed}
    return sensitivity(probes(held, seed=seed), names, held=held, study=said.name, facts=facts, **given)


def on_their_scale(found: RatingAgreement) -> dict[str, HumanScale]:
    """Each metric put on people's scale; see `human_scale`."""
    said = found.said
    images = said.images[said.of].tolist()
    return {
        name: human_scale(scores[said.of], said.values, images) for name, scores in zip(found.metrics, found.scores, strict=True)
    }
