"""The pages of annotators, and the interface that they use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import assign, people
from crossmatch.study.assign import Nothing
from crossmatch.study.design import ONE, Question, Shows, from_told
from crossmatch.study.schema import item, study
from crossmatch.study.shown import Hit, NotYours, Shown, as_declared, load_hit, shown_item
from crossmatch.study.web.guard import (
    FIELD,
    HEADER,
    Refused,
    Visitor,
    form_of,
    json_of,
    open_session,
    require,
    require_own,
    visitor,
)
from crossmatch.study.web.site import Site, is_api, see, site_of

if TYPE_CHECKING:
    from starlette.requests import Request

PLATFORMS = ("PROLIFIC_PID", "workerId", "person")  # parameters of a link by which platforms tell who comes
LETTERS = "ABCDEFGHIJ"
ENDS = ("none", "limit", "closed", "qualify", "excluded")  # why the page of a HIT sends people back to the study


# -- coming in


async def home(request: Request) -> Response:
    """Where to go: to the studies that are open for a person, or to the owner's page."""
    site = site_of(request)

    def shown() -> Response:
        who = visitor(site.campaign, request)
        if who is not None and who.person.role != "annotator":
            return see("/owner")
        with site.campaign.reading() as connection:
            rows = connection.execute(select(study.c.name, study.c.design).where(study.c.open).order_by(study.c.id)).all()
        studies = [{"name": row.name, "title": row.design["title"]} for row in rows] if who else []
        return site.page("home.html", who, studies=studies)

    return await run_in_threadpool(shown)


async def enter(request: Request) -> Response:
    """A person comes with their token: by GET a button, so that a preview of the link opens nothing; by POST they are in."""
    site, token = site_of(request), request.path_params["token"]
    if request.method != "POST":
        return site.page("enter.html", None, token=token)
    require_own(request, None, None)
    _limit_entry(site, request)
    who = await run_in_threadpool(people.enter, site.campaign, token)
    if who is None:
        raise Refused(404, "this link is not, or no longer, valid. Ask who sent it for another one.")
    answer = see("/")
    open_session(site.campaign, answer, who, site.secure)
    return answer


async def join(request: Request) -> Response:
    """A person comes by the link of a study: reads what it is about, agrees, and is in."""
    site, link = site_of(request), request.path_params["link"]
    given = next((request.query_params[name] for name in PLATFORMS if request.query_params.get(name)), "")
    fields = await form_of(request) if request.method == "POST" else {}

    def shown() -> Response:
        who = visitor(site.campaign, request)
        with site.campaign.reading() as connection:
            row = connection.execute(select(study).where(study.c.link == link)).first()
        if row is None:
            raise Refused(404, "this link leads to no study. Ask who sent it for another one.")
        if who is not None and (not given or who.person.key == given):
            return see(f"/s/{row.name}")
        if request.method != "POST":
            return site.page("join.html", None, design=from_told(row.design), given=given, open=row.open, error="")
        require_own(request, None, None)
        _limit_entry(site, request)
        if not row.open:
            raise Refused(409, "this study is closed. Thank you for coming.")
        try:
            made, person = people.join(site.campaign, link, given or fields.get("person", ""))
            people.agree(site.campaign, made, person.id)
        except CrossmatchError as error:
            return site.page("join.html", None, 409, design=from_told(row.design), given=given, open=True, error=str(error))
        answer = see(f"/s/{row.name}")
        open_session(site.campaign, answer, person, site.secure)
        return answer

    return await run_in_threadpool(shown)


def _limit_entry(site: Site, request: Request) -> None:
    address = request.client.host if request.client else ""
    if not site.entries.take(address):
        raise Refused(429, "too many people came from your address at once. Wait a minute, and try again.")


def _known(site: Site, request: Request) -> Visitor:
    who = require(site.campaign, request)
    if not site.requests.take(str(who.person.id)):
        raise Refused(429, "that was too fast. Wait a moment, and try again.")
    return who


def named(connection: Connection, name: str) -> Any:
    """The study of this name."""
    row = connection.execute(select(study).where(study.c.name == name)).first()
    if row is None:
        raise NotYours("there is no such study. Check the link.")
    return row


# -- a study


async def overview(request: Request) -> Response:
    """What is asked, how far one is, and a button to begin or to go on."""
    site, end = site_of(request), request.query_params.get("end", "")

    def shown() -> Response:
        who = _known(site, request)
        with site.campaign.reading() as connection:
            row = named(connection, request.path_params["study"])
            mine = people.membership(connection, row.id, who.person.id)
            code = people.completion(site.campaign, connection, row.id, who.person)
            examples = [
                _example(row, one) for one in connection.execute(select(item).where(item.c.study == row.id, item.c.example))
            ]
        told = {"member": mine, "code": code, "examples": examples, "end": end if end in ENDS else ""}
        return site.page("study.html", who, name=row.name, design=from_told(row.design), open=row.open, **told)

    return await run_in_threadpool(shown)


async def agree(request: Request) -> Response:
    """A person who has entered by a token agrees to take part."""
    site, fields = site_of(request), await form_of(request)

    def done() -> Response:
        who = _known(site, request)
        require_own(request, who, fields.get(FIELD))
        with site.campaign.reading() as connection:
            row = named(connection, request.path_params["study"])
        people.agree(site.campaign, row.id, who.person.id)
        return see(f"/s/{row.name}")

    return await run_in_threadpool(done)


async def claim(request: Request) -> Response:
    """The next HIT; a page for a form, json for a script."""
    site, api = site_of(request), is_api(request)
    fields = await json_of(request) if api else await form_of(request)
    token = request.headers.get(HEADER) if api else fields.get(FIELD)

    def done() -> Response:
        who = _known(site, request)
        require_own(request, who, token)
        with site.campaign.reading() as connection:
            row = named(connection, request.path_params["study"])
        try:
            made = assign.claim_hit(site.campaign, row.id, who.person.id)
        except Nothing as error:
            return _nothing(site, who, row, error, api)
        if not api:
            return see(f"/h/{made}")
        with site.campaign.reading() as connection:
            return JSONResponse(payload(connection, load_hit(connection, made, who.person.id)))

    return await run_in_threadpool(done)


def _nothing(site: Site, who: Visitor, row: Any, error: Nothing, api: bool) -> Response:
    with site.campaign.reading() as connection:
        code = people.completion(site.campaign, connection, row.id, who.person)
    if api:
        told = {"code": code[0], "url": code[1]} if code else {}
        return JSONResponse({"error": str(error), "why": error.why, **told}, 409)
    return site.page("finished.html", who, name=row.name, title=row.design["title"], text=str(error), why=error.why, code=code)


# -- a HIT


async def work(request: Request) -> Response:
    """A HIT as a page."""
    site = site_of(request)

    def shown() -> Response:
        who = _known(site, request)
        with site.campaign.reading() as connection:
            held = load_hit(connection, request.path_params["claim"], who.person.id)
            if held.submitted:
                return see(f"/s/{held.name}")
            mine = people.membership(connection, held.study, who.person.id)
            told = payload(connection, held)
        return site.page("work.html", who, hit=told, design=held.design, submitted=mine.submitted if mine else 0)

    return await run_in_threadpool(shown)


async def hit_json(request: Request) -> Response:
    site = site_of(request)

    def shown() -> Response:
        who = _known(site, request)
        with site.campaign.reading() as connection:
            return JSONResponse(payload(connection, load_hit(connection, request.path_params["claim"], who.person.id)))

    return await run_in_threadpool(shown)


async def save_draft(request: Request) -> Response:
    site, told = site_of(request), await json_of(request)

    def done() -> Response:
        who = _known(site, request)
        require_own(request, who, request.headers.get(HEADER))
        number = told.get("number")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**31:
            raise CrossmatchError("a draft needs a number from 1 on. Reload the page.")
        if not isinstance(told.get("answers"), list) or len(told["answers"]) > 10_000:
            raise CrossmatchError("a draft needs a list of answers. Reload the page.")
        assign.keep_draft(site.campaign, request.path_params["claim"], who.person.id, number, told["answers"])
        return JSONResponse({"kept": True})

    return await run_in_threadpool(done)


async def submit(request: Request) -> Response:
    """Answers to all items of a HIT. Acknowledged only once they are on the disk."""
    site, told = site_of(request), await json_of(request)

    def done() -> Response:
        who = _known(site, request)
        require_own(request, who, request.headers.get(HEADER))
        receipt = assign.submit(
            site.campaign, request.path_params["claim"], who.person.id, told.get("answers"), told.get("seconds")
        )
        return JSONResponse({"again": receipt.again, "late": receipt.late, "counted": receipt.counted, "passed": receipt.passed})

    return await run_in_threadpool(done)


async def picture(request: Request) -> Response:
    """The n-th image of an item of one's own HIT. The address says nothing of the file."""
    site = site_of(request)

    def shown() -> Response:
        who = _known(site, request)
        anybody = None if who.person.role in ("owner", "reviewer") else who.person.id
        with site.campaign.reading() as connection:
            held = load_hit(connection, request.path_params["claim"], anybody)
        return _file(site, held.items, request.path_params["place"], request.path_params["n"])

    return await run_in_threadpool(shown)


async def example_picture(request: Request) -> Response:
    site = site_of(request)

    def shown() -> Response:
        _known(site, request)
        with site.campaign.reading() as connection:
            row = named(connection, request.path_params["study"])
            examples = connection.execute(select(item).where(item.c.study == row.id, item.c.example)).all()
        design = from_told(row.design)
        items = tuple(shown_item(design, one, row.seed, "example") for one in examples)
        return _file(site, items, request.path_params["place"], request.path_params["n"])

    return await run_in_threadpool(shown)


def _file(site: Site, items: tuple[Shown, ...], place: int, n: int) -> Response:
    if place >= len(items) or n >= len(items[place].images):
        raise NotYours("there is no such picture.")
    path = site.campaign.pictures / items[place].images[n]
    if path.parent != site.campaign.pictures or not path.is_file():
        raise NotYours("there is no such picture.")
    # no FileResponse: it tells when the file was made, and gold may have been made on another day
    return Response(path.read_bytes(), media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


# -- what a page is told of a HIT: nothing by which gold could be known


def payload(connection: Connection, held: Hit) -> dict[str, Any]:
    """A HIT as json: places instead of names, and no word of what is gold."""
    number, answers = assign.draft_of(connection, held.claim)
    return {
        "claim": held.claim,
        "study": held.name,
        "title": held.design.title,
        "quiz": held.quiz,
        "submitted": held.submitted,
        "lease": held.lease,
        "draft": {"number": number, "answers": answers},
        "items": [_told(held, one, place) for place, one in enumerate(held.items)],
    }


def _told(held: Hit, one: Shown, place: int) -> dict[str, Any]:
    address = f"/h/{held.claim}/picture/{place}"
    return {**_faces(held.design.shows, one, address), "block": one.block}


def _faces(shows: Shows, one: Shown, address: str) -> dict[str, Any]:
    places = _places(shows, len(one.images))
    return {
        "images": [f"{address}/{n}" for n in range(len(one.images))],
        "places": places,
        "labels": list(shows.labels) if len(shows.labels) == len(places) else [],
        "captions": list(one.captions),
        "lists": shows.lists,
        "questions": [_question(q, one, places) for q in one.questions],
    }


def _places(shows: Shows, number: int) -> list[str]:
    """What each picture is called: by its place alone, which gives nothing away.

    >>> _places(Shows(labels=("Left: look here first", "Right")), 2), _places(Shows(), 3)
    (['Left picture', 'Right picture'], ['Picture A', 'Picture B', 'Picture C'])
    >>> _places(Shows(lists=2), 4)
    ['List A, picture 1', 'List A, picture 2', 'List B, picture 1', 'List B, picture 2']
    """
    if shows.lists:
        size = number // shows.lists
        return [f"List {LETTERS[n // size]}, picture {n % size + 1}" for n in range(number)]
    labels = shows.labels if len(shows.labels) == number else ("Left", "Right") if number == 2 else ()
    if labels:
        return [f"{label.partition(':')[0]} picture" for label in labels]
    return ["The picture"] if number == 1 else [f"Picture {_letter(n)}" for n in range(number)]


def _letter(n: int) -> str:
    return LETTERS[n] if n < len(LETTERS) else str(n + 1)


def _question(question: Question, one: Shown, places: list[str]) -> dict[str, Any]:
    side = question.among
    among = [
        {"value": f"{ONE[side]}-{n}", "text": _face(side, one, n, places), "hint": "", "shown": side, "place": n}
        for n in range(one.sizes[side] if side else 0)
    ]
    fixed = [{"value": o.value, "text": o.text, "hint": o.hint, "shown": "", "place": -1} for o in question.options]
    if question.kind == "slider":
        fixed = [
            {**told, "at": (float(o.grade or 0) - question.low) / (question.high - question.low)}
            for told, o in zip(fixed, question.options, strict=True)
        ]
    return {
        "name": question.name, "kind": question.kind, "text": question.text, "options": among + fixed, "low": question.low,
        "high": question.high, "after": question.after, "when": list(question.when),
    }  # fmt: skip


def _face(side: str, one: Shown, n: int, places: list[str]) -> str:
    """What the button of a thing that is shown says."""
    if side == "captions":
        return one.captions[n]
    if side == "lists":
        return f"List {LETTERS[n]}"
    return places[n]


def _example(row: Any, one: Any) -> dict[str, Any]:
    """An example with the answer that it should get, in words."""
    design = from_told(row.design)
    shown = shown_item(design, one, row.seed, "example")
    told = _faces(design.shows, shown, "")
    answers = []
    for question in shown.questions:
        accepted = (one.gold or {}).get(question.name, ())
        said = [told_option["text"] for q in told["questions"] if q["name"] == question.name for told_option in q["options"]
                if as_declared(shown, {question.name: told_option["value"]})[question.name] in accepted]  # fmt: skip
        if said:
            answers.append({"question": question.text, "answer": " or ".join(said)})
    seen = {key: told[key] for key in ("captions", "lists", "places", "labels")}
    return {"images": len(shown.images), **seen, "answers": answers, "why": str(one.body.get("why", ""))}
