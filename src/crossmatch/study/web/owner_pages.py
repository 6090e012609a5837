"""The pages of owners and reviewers: progress, annotators, reviews and disagreement of each study.

Both roles see the pages and review HITs. Only owners open and close studies, see the links for annotators, and invite people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, exists, func, select
from starlette.responses import Response
from starlette.routing import Route

from crossmatch.study.assignment import people
from crossmatch.study.assignment import review as reviews
from crossmatch.study.assignment.displayed_hits import NotFoundError
from crossmatch.study.assignment.people import ROLES
from crossmatch.study.database.schema import BUSY, claim, person, slot, study
from crossmatch.study.design.declaration import design_from_dict
from crossmatch.study.results import progress
from crossmatch.study.web import review_page_data, value_formatting
from crossmatch.study.web.annotator_pages import load_study
from crossmatch.study.web.security import RequestRejectedError, Visitor
from crossmatch.study.web.site import Site, redirect, site_of, with_body, with_role

if TYPE_CHECKING:
    from starlette.requests import Request

    from crossmatch.metrics.agreement.cohen_kappa import PairwiseKappas

STAFF = ("owner", "reviewer")
ITEMS_PER_PAGE = 10
HITS_PER_PAGE = 50
PEOPLE_PER_PAGE = 200
MAX_PERSON_ID = 2**31 - 1
MAX_PAIRS = 20  # of annotators with the lowest agreement
REVIEW_MESSAGES = {
    "approve": "Approved: the answers count.",
    "reject": "Rejected: the answers do not count and are not paid. The HIT is open for another person.",
    "reassign": "Reassigned: the answers do not count but are paid. The HIT is open for another person.",
    "undo": "Undone: the HIT has no verdict any more.",
    "kept": "Recorded. The HIT had already gone to another person, so nothing else has changed.",
}


@dataclass(frozen=True)
class StudyPage:
    """A page of one study for an owner or reviewer."""

    site: Site
    visitor: Visitor
    row: Any
    common: dict[str, Any]  # values that every page of the study shows

    @classmethod
    def open(cls, request: Request, tab: str) -> StudyPage:
        site = site_of(request)
        visitor = site.require_visitor(request, *STAFF)
        with site.campaign.read_transaction() as connection:
            row = load_study(connection, request.path_params["study"])
            return cls(site, visitor, row, _common_values(connection, row, tab))

    @property
    def slots(self) -> progress.SlotCounts:
        slots: progress.SlotCounts = self.common["slots"]
        return slots

    def render(self, template: str, **values: Any) -> Response:
        return self.site.page(template, self.visitor, **self.common, **values)


def _page_numbers(request: Request, total: int, size: int) -> dict[str, int]:
    """The requested page of a list, limited to existing pages."""
    text, pages = request.query_params.get("page", ""), max(1, -(-total // size))
    page = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1
    page = min(max(page, 1), pages)
    return {"page": page, "pages": pages, "start": size * (page - 1)}


def _base_url(site: Site, request: Request) -> str:
    """The address of this service according to the request."""
    return f"{'https' if site.secure else request.url.scheme}://{request.url.netloc}"


def _common_values(connection: Connection, row: Any, tab: str) -> dict[str, Any]:
    """The values that every page of a study shows."""
    return {
        "name": row.name,
        "design": design_from_dict(row.design),
        "open": row.open,
        "tab": tab,
        "fmt": value_formatting,
        "slots": progress.count_slots(connection, row.id),
    }


# -- all studies


def campaign(request: Request) -> Response:
    """All studies with their progress."""
    site = site_of(request)
    visitor = site.require_visitor(request, *STAFF)
    with site.campaign.read_transaction() as connection:
        rows = connection.execute(select(study.c.id, study.c.name, study.c.design, study.c.open).order_by(study.c.id)).all()
        studies = [_common_values(connection, row, "") for row in rows]
    return site.page("owner.html", visitor, studies=studies, roles=ROLES, fmt=value_formatting)


@with_body(with_role("owner"))
def invite(request: Request, visitor: Visitor, fields: dict[str, Any]) -> Response:
    """Create a personal link; it is shown once."""
    site = site_of(request)
    name, role = people.check_name(fields.get("person", "")), fields.get("role", "")
    if name == visitor.person.name:
        raise RequestRejectedError(
            409, "You cannot invite yourself here: a new link would end this session. Use `crossmatch study invite`."
        )
    study_name = fields.get("study", "")
    token = people.invite(site.campaign, name, role, studies=[study_name] if study_name else None)
    link = f"{_base_url(site, request)}/enter/{token}"
    return site.page("owner_invited.html", visitor, person=name, role=role, link=link)


# -- one study


def overview(request: Request) -> Response:
    """Progress, time, cost and agreement."""
    page = StudyPage.open(request, "overview")
    site, slots = page.site, page.slots
    view = site.statistics.view(site.campaign, page.row.id)
    snapshot = view.figures.snapshot
    flagged = [annotator for annotator in view.figures.annotators if annotator.warnings]
    browser_seconds = snapshot.answers.seconds[snapshot.answers.seconds >= 0]
    with site.campaign.read_transaction() as connection:
        pairs = [_lowest_pairs(connection, question.cohen) for question in view.agreement.questions] if view.agreement else []
        names = review_page_data.load_names(connection, (annotator.person_id for annotator in flagged))
    return page.render(
        "owner_study.html",
        view=view,
        answers=int(snapshot.is_counted.sum()),
        complete=progress.count_complete_items(snapshot.hits, view.figures.size),
        server=progress.quartiles(progress.seconds_per_item(snapshot.hits)),
        browser=progress.quartiles(browser_seconds),
        left=progress.estimate_time_left(snapshot.hits, slots.left, site.campaign.now()),
        cost=progress.compute_cost(snapshot.design.recipe, snapshot.hits, slots.left),
        pairs=pairs,
        flagged=flagged,
        names=names,
        link=f"{_base_url(site, request)}/join/{page.row.link}" if page.visitor.person.role == "owner" else "",
    )


def _lowest_pairs(connection: Connection, kappas: PairwiseKappas | None) -> list[dict[str, Any]]:
    """The names and kappas of the pairs with the lowest agreement."""
    pairs = sorted(kappas.pairs if kappas else (), key=lambda pair: (pair.kappa.value is None, pair.kappa.value or 0.0))[:MAX_PAIRS]
    names = review_page_data.load_names(connection, (person_id for pair in pairs for person_id in (pair.first, pair.second)))
    return [{"first": names[pair.first], "second": names[pair.second], "kappa": pair.kappa} for pair in pairs]


@with_body(with_role("owner"))
def set_open(request: Request, visitor: Visitor, fields: dict[str, Any]) -> Response:
    """Open or close a study."""
    site = site_of(request)
    with site.campaign.read_transaction() as connection:
        row = load_study(connection, request.path_params["study"])
    if fields.get("open") not in ("yes", "no"):
        raise RequestRejectedError(422, "The field `open` must be yes or no. Reload the page.")
    if row.open != (fields["open"] == "yes"):
        reviews.set_open(site.campaign, row.id, fields["open"] == "yes", visitor.person.id)
    return redirect(f"/owner/{row.name}")


def annotators(request: Request) -> Response:
    """Everybody who worked, those with warnings first."""
    page = StudyPage.open(request, "people")
    view = page.site.statistics.view(page.site.campaign, page.row.id)
    summaries = view.figures.annotators
    ordered = sorted(summaries, key=lambda summary: (-len(summary.warnings), -summary.answers, summary.person_id))
    numbers = _page_numbers(request, len(ordered), PEOPLE_PER_PAGE)
    visible = ordered[numbers["start"] : numbers["start"] + PEOPLE_PER_PAGE]
    with page.site.campaign.read_transaction() as connection:
        names = review_page_data.load_names(connection, (annotator.person_id for annotator in visible))
    values = {"annotators": visible, "names": names, "number": len(ordered), "questions": view.figures.snapshot.questions}
    return page.render("owner_people.html", view=view, **values, **numbers)


def annotator(request: Request) -> Response:
    """The HITs of one person."""
    page = StudyPage.open(request, "people")
    person_id = min(request.path_params["person"], MAX_PERSON_ID)
    is_theirs = (claim.c.study == page.row.id, claim.c.person == person_id)
    is_submitted = (claim.c.submitted.is_not(None), claim.c.slot.is_not(None))
    with page.site.campaign.read_transaction() as connection:
        total = connection.execute(select(func.count()).select_from(claim).where(*is_theirs, *is_submitted)).scalar_one()
        if not total:
            raise NotFoundError("This person has not submitted a HIT of this study. Go back to the list of people.")
        numbers = _page_numbers(request, total, HITS_PER_PAGE)
        query = select(claim).where(*is_theirs, *is_submitted).order_by(claim.c.submitted.desc(), claim.c.id)
        hits = connection.execute(query.limit(HITS_PER_PAGE).offset(numbers["start"])).all()
        name = review_page_data.load_names(connection, [person_id])[person_id]
    return page.render("owner_person.html", person=name, id=person_id, hits=hits, number=total, **numbers)


# -- reviews


def pending_reviews(request: Request) -> Response:
    """HITs with wrong gold answers, newest first."""
    page = StudyPage.open(request, "review")
    own_claim = claim.alias("own_claim")
    has_own_claim = exists().where(own_claim.c.person == page.visitor.person.id, own_claim.c.hit == claim.c.hit).label("own")
    query = (
        select(claim, person.c.key.label("annotator"), has_own_claim)
        .join(slot, slot.c.id == claim.c.slot)
        .join(person, person.c.id == claim.c.person)
        .where(slot.c.study == page.row.id, slot.c.state == "review", slot.c.claim == claim.c.id, BUSY)
        .order_by(claim.c.submitted.desc(), claim.c.id)
    )
    numbers = _page_numbers(request, page.slots.review, HITS_PER_PAGE)
    with page.site.campaign.read_transaction() as connection:
        hits = connection.execute(query.limit(HITS_PER_PAGE).offset(numbers["start"])).all()
        last = review_page_data.find_rejected_claim(connection, page.row.id, request.query_params.get("claim", ""))
    message = REVIEW_MESSAGES.get(request.query_params.get("done", ""), "")
    return page.render("owner_review.html", note=message, hits=hits, last=last, **numbers)


def submitted_hit(request: Request) -> Response:
    """A HIT as its annotator saw it, with the answers and the review form."""
    page = StudyPage.open(request, "review")
    with page.site.campaign.read_transaction() as connection:
        claim_row = review_page_data.load_claim(connection, page.row.id, request.path_params["claim"])
        return page.render(
            "owner_hit.html",
            claim=claim_row,
            person=review_page_data.load_names(connection, [claim_row.person])[claim_row.person],
            own=reviews.had_hit(connection, page.visitor.person.id, claim_row.hit),
            hit=review_page_data.load_submitted_hit(connection, claim_row),
            state=review_page_data.load_slot_state(connection, claim_row),
        )


@with_body(with_role(*STAFF))
def review(request: Request, visitor: Visitor, fields: dict[str, Any]) -> Response:
    """Approve, reject or reassign a HIT, or undo that."""
    site = site_of(request)
    with site.campaign.read_transaction() as connection:
        row = load_study(connection, request.path_params["study"])
        claim_row = review_page_data.load_claim(connection, row.id, request.path_params["claim"])
        has_slot = review_page_data.load_slot_state(connection, claim_row) is not None
    if fields.get("was") != (claim_row.verdict or ""):
        raise RequestRejectedError(409, "Somebody else has reviewed this HIT in the meantime. Open it again.")
    verdict = fields.get("verdict", "")
    is_counted = reviews.review(site.campaign, claim_row.id, visitor.person.id, verdict)
    outcome = verdict if has_slot or is_counted else "kept"
    return redirect(f"/owner/{row.name}/review?done={outcome}&claim={claim_row.id}")


# -- disagreement


def disagreement(request: Request) -> Response:
    """The items with the largest disagreement."""
    page = StudyPage.open(request, "disagreement")
    view = page.site.statistics.view(page.site.campaign, page.row.id)
    total = len(view.figures.disagreement.item)
    numbers = _page_numbers(request, total, ITEMS_PER_PAGE)
    with page.site.campaign.read_transaction() as connection:
        items = review_page_data.load_disagreement(connection, page.row.id, view.figures, numbers["start"], ITEMS_PER_PAGE)
    return page.render("owner_disagreement.html", view=view, items=items, total=total, **numbers)


ROUTES: tuple[Route, ...] = (
    Route("/owner", campaign),
    Route("/owner/invite", invite, methods=["POST"]),
    Route("/owner/{study}", overview),
    Route("/owner/{study}/open", set_open, methods=["POST"]),
    Route("/owner/{study}/people", annotators),
    Route("/owner/{study}/people/{person:int}", annotator),
    Route("/owner/{study}/review", pending_reviews),
    Route("/owner/{study}/hit/{claim}", submitted_hit),
    Route("/owner/{study}/hit/{claim}/review", review, methods=["POST"]),
    Route("/owner/{study}/disagreement", disagreement),
)
