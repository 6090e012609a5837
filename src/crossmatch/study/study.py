"""A study of a campaign: its settings, its progress, and its results as `Judgements`, `Trials`, `Ratings` or comparisons."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from crossmatch.data.errors import UsageError
from crossmatch.data.judgements import ARTIFICIAL, rehearsal_note
from crossmatch.study.database.schema import study
from crossmatch.study.design.declaration import Design, design_from_dict

if TYPE_CHECKING:
    from crossmatch.data.collection import Collection
    from crossmatch.data.judgements import Judgements
    from crossmatch.data.ratings import Ratings
    from crossmatch.data.trials import Trials
    from crossmatch.metrics.bradley_terry import ComparisonCounts
    from crossmatch.study.database.campaign import Campaign
    from crossmatch.study.results.answers import Answer


@dataclass(frozen=True)
class Study:
    """A study of an open campaign.

    `find_study` and `list_studies` return it. Its methods use the answers that count: approved or without wrong gold answers.
    As soon as a real person has submitted a HIT, the answers of artificial annotators are left out, with a warning. Before, results
    say that they come from artificial annotators: judgements and trials by a note, ratings by their name, preferences by a warning.

    Attributes:
        id: The number of the study in its campaign.
        name: The name of the study.
        design: The design, as it was when the study was added.
        seed: Seed of the displayed orders.
        link: The last part of the address by which people join.
        is_open: Whether people can still take part.
        origin: Where the items came from.
        campaign: The campaign.

    >>> from crossmatch.study import add_study, create_campaign, find_study, load_design, read_items
    >>> count = (folder / "items.jsonl").write_text('{"captions": ["A cat.", "A kitten."]}')
    >>> campaign, design = create_campaign(folder / "campaign"), load_design("sts")
    >>> study_id = add_study(campaign, design, read_items(folder / "items.jsonl", design))
    >>> study = find_study(campaign)
    >>> study.name, study.is_open, study.design.recipe.people, study.answers()
    ('sts', True, 5, [])
    >>> campaign.close()
    """

    id: int
    name: str
    design: Design
    seed: str
    link: str
    is_open: bool
    origin: Mapping[str, Any]
    campaign: Campaign = field(repr=False, compare=False)

    def answers(self, *, pending: bool = False) -> list[Answer]:
        """The answers that count, in the order of submission, with those to gold questions.

        Args:
            pending: Whether to include HITs with wrong gold answers that await review.
        """
        from crossmatch.study.results.answers import is_artificial, read_answers

        with self.campaign.read_transaction() as connection:
            answers = read_answers(connection, self.id, pending=pending)
        for omitted in answers.left_out:
            if all(map(is_artificial, omitted.people)):
                warnings.warn(f"{self.name}: {omitted.message}.", stacklevel=2)
        return answers.counted

    def judgements(self, collection: Collection, *, links: bool = True) -> Judgements:
        """The graded pairs of a study of similarity or matching, for a collection with these images and captions.

        Args:
            collection: The collection that the items came from.
            links: Whether the collection's links count as positives where people gave no grade.
        """
        from crossmatch.study.results.judgements_and_trials import as_judgements

        return as_judgements(self, self.answers(), collection, links=links)

    def trials(self) -> Trials:
        """The accepted forced choices. Images are opened from the campaign's folder."""
        from crossmatch.study.results.judgements_and_trials import as_trials

        return as_trials(self, self.answers())

    def ratings(self, references: Mapping[str, Sequence[str]]) -> Ratings:
        """The single ratings of captions.

        Args:
            references: Reference captions by image id. Images without references are left out and counted.
        """
        from crossmatch.study.results.judgements_and_trials import as_ratings

        return as_ratings(self, self.answers(), references)

    def preferences(self) -> ComparisonCounts:
        """How often each system was preferred to each other one, for the Bradley-Terry model."""
        from crossmatch.study.results.answers import answered_by
        from crossmatch.study.results.judgements_and_trials import as_comparisons

        answers = self.answers()
        if answered_by(answers) == ARTIFICIAL:
            warnings.warn(f"{rehearsal_note(f'preferences of {self.name}')}.", stacklevel=2)
        return as_comparisons(self, answers)


def list_studies(campaign: Campaign) -> list[Study]:
    """All studies of a campaign.

    Args:
        campaign: The campaign.

    Returns:
        The studies in the order in which they were added.

    >>> from crossmatch.study import add_study, create_campaign, list_studies, load_design, read_items
    >>> count = (folder / "items.jsonl").write_text('{"captions": ["A cat.", "A kitten."]}')
    >>> campaign, design = create_campaign(folder / "campaign"), load_design("sts")
    >>> items = read_items(folder / "items.jsonl", design)
    >>> ids = [add_study(campaign, design, items, name=name) for name in ("pilot", "main")]
    >>> [study.name for study in list_studies(campaign)]
    ['pilot', 'main']
    >>> campaign.close()
    """
    with campaign.read_transaction() as connection:
        rows = connection.execute(select(study).order_by(study.c.id)).all()
    return [
        Study(row.id, row.name, design_from_dict(row.design), row.seed, row.link, row.open, row.origin, campaign) for row in rows
    ]


def find_study(campaign: Campaign, name: str = "") -> Study:
    """The study with this name, or the only one.

    Args:
        campaign: The campaign.
        name: The name of the study; may be left out if there is only one.

    Raises:
        UsageError: There is no such study, or there are several and no name is given.

    >>> from crossmatch.study import add_study, create_campaign, find_study, load_design, read_items
    >>> count = (folder / "items.jsonl").write_text('{"captions": ["A cat.", "A kitten."]}')
    >>> campaign, design = create_campaign(folder / "campaign"), load_design("sts")
    >>> study_id = add_study(campaign, design, read_items(folder / "items.jsonl", design), name="pilot")
    >>> find_study(campaign, "pilot").design.title
    'How alike are these two sentences?'
    >>> campaign.close()
    """
    studies = {study.name: study for study in list_studies(campaign)}
    if not studies:
        raise UsageError(f"{campaign.folder} has no study yet. Create one: crossmatch study new PRESET … -o {campaign.folder}")
    if not name and len(studies) > 1:
        raise UsageError(f"{campaign.folder} has {len(studies)} studies: {', '.join(studies)}. Choose one: --study NAME")
    if name and name not in studies:
        raise UsageError(f"{campaign.folder} has no study {name!r}. Its studies: {', '.join(studies)}.")
    return studies[name] if name else next(iter(studies.values()))
