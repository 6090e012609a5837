"""Artificial annotators see what people see, answer as their habits let them, and finish a study through HTTP."""

import http.server
import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sqlalchemy import update

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.assignment import claims, people
from crossmatch.study.database.schema import slot
from crossmatch.study.database.verification import verify
from crossmatch.study.design.add_study import add_study
from crossmatch.study.design.declaration import load_design, load_presets
from crossmatch.study.design.item_files import read_items
from crossmatch.study.results.answers import read_answers
from crossmatch.study.results.progress import count_slots
from crossmatch.study.simulation.correct_answers import ViewedItem, correct_answer
from crossmatch.study.simulation.diorama_items import truth_of, world_items
from crossmatch.study.simulation.http_client import BROWSER_COOKIE, Client, RequestFailedError
from crossmatch.study.simulation.simulate import make_answer_key, service, simulate
from crossmatch.study.simulation.simulated_annotators import (
    AnswerKey,
    Habits,
    SimulatedAnnotator,
    WorkSummary,
    is_right,
    work,
)
from crossmatch.study.study import find_study
from crossmatch.study.web.hit_json import hit_as_json
from study_lab import link_of, new_campaign

PERFECT = Habits(accuracy=1.0, noise=0.0)


class AtHand:
    """The service without a wire: what a client would be told."""

    def __init__(self, campaign, study_id, name="somebody"):
        self.campaign, self.study_id = campaign, study_id
        _, who = people.join_study(campaign, link_of(campaign, study_id), name)
        people.give_consent(campaign, study_id, who.id)
        self.person, self.drafts, self.submitted = who.id, [], []

    def claim(self):
        try:
            claim = claims.claim_hit(self.campaign, self.study_id, self.person)
        except claims.NoHitAvailableError as error:
            return error.reason
        with self.campaign.read_transaction() as connection:
            self.held = claims.load_hit(connection, claim, self.person)
            return hit_as_json(self.held)

    def picture(self, path):
        *_, place, n = path.split("/")
        return (self.campaign.images_folder / self.held.items[int(place)].images[int(n)]).read_bytes()

    def draft(self, claim, number, answers):
        self.drafts.append(answers)

    def submit(self, claim, answers, seconds=None):
        self.submitted.append(answers)
        claims.submit(self.campaign, claim, self.person, answers, seconds)


def begun(campaign, name, *overrides, n=6, **more):
    """A study of the embedded world."""
    design = load_design(name, overrides)
    return add_study(campaign, design, world_items(design, n=n), name=name, **more)


def submitted_answers(campaign, study_id):
    with campaign.read_transaction() as connection:
        return read_answers(connection, study_id).submitted


# What they answer


@pytest.mark.parametrize("name", sorted(load_presets()))
def test_perfect_annotator_is_right_in_every_displayed_order(small, name):
    study_id = begun(small, name, "recipe.batch=12", "recipe.people=2", n=12)
    study = find_study(small)
    key, known = make_answer_key(small, study), truth_of(study.origin)
    for who in ("anna", "bob"):
        tally = WorkSummary()
        work(SimulatedAnnotator(who, PERFECT, key), AtHand(small, study_id, who), tally)
        assert tally.why == "none"
        assert tally.right == tally.checkable == tally.answers > 0
    orders = set()
    for answer in submitted_answers(small, study_id):
        thing = answer.item
        right = correct_answer(name, ViewedItem(thing.image_ids, thing.captions, study.design.shows.lists), known)
        value = answer.values[study.design.questions_for(thing.block)[0].name]
        assert value == pytest.approx(right, abs=1e-3) if isinstance(right, float) else value in right
        orders.add(json.dumps(answer.orders))
    assert len(orders) > 1 or not study.design.shows.shuffle


def test_gold_is_answered_right_without_other_truth(small, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    rows = "image,caption,kind\n" + "".join(
        f"a.jpg,text {n},{kind}\n" for n, kind in enumerate(["candidate"] * 20 + ["positive", "negative"])
    )
    (tmp_path / "pool.csv").write_text(rows)
    design = load_design("eccv-hit", ["recipe.batch=20"])
    study_id = add_study(small, design, read_items(tmp_path / "pool.csv", design))
    tally = WorkSummary()
    work(SimulatedAnnotator("anna", PERFECT, make_answer_key(small, find_study(small))), AtHand(small, study_id), tally)
    assert (tally.checkable, tally.right) == (2, 2)
    assert len({answer.values["match"] for answer in submitted_answers(small, study_id)}) > 2  # all else is drawn
    with small.read_transaction() as connection:
        assert count_slots(connection, study_id).review == 0


def test_truth_file_decides_the_right_answers(small, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    (tmp_path / "items.csv").write_text("image,caption,caption_id\n" + "".join(f"a.jpg,text {n},c{n}\n" for n in range(9)))
    (tmp_path / "truth.csv").write_text("image,caption_id,grade\n" + "".join(f"a.jpg,c{n},{n % 3}\n" for n in range(9)))
    design = load_design("eccv-hit", ["recipe.gold_positive=0", "recipe.gold_negative=0"])
    study_id = add_study(small, design, read_items(tmp_path / "items.csv", design))
    key = make_answer_key(small, find_study(small), tmp_path / "truth.csv")
    work(SimulatedAnnotator("anna", PERFECT, key), AtHand(small, study_id), WorkSummary())
    values = {answer.item.details["caption_id"]: answer.values["match"] for answer in submitted_answers(small, study_id)}
    assert values == {f"c{n}": ("no", "weak-yes", "yes")[n % 3] for n in range(9)}


@pytest.mark.parametrize("blocks", [False, True])
def test_items_can_declare_what_fits(small, tmp_path, blocks):
    for n, colour in enumerate(("red", "green", "blue", "black")):
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{n}.png")
    design = load_design("bivlc-human" if blocks else "bivlc-choose")
    values = {"images": ["0.png", "1.png"], "captions": ["It is red.", "It is green."], "fits": [False, True, True, False]}
    if not blocks:
        values = {"images": [f"{n}.png" for n in range(4)], "caption": "It is green.", "fits": [False, True, False, False]}
    (tmp_path / "items.jsonl").write_text("".join(json.dumps({"id": f"x{n}", **values}) + "\n" for n in range(5)))
    study_id = add_study(small, design, read_items(tmp_path / "items.jsonl", design))
    tally = WorkSummary()
    work(SimulatedAnnotator("anna", PERFECT, make_answer_key(small, find_study(small))), AtHand(small, study_id), tally)
    assert tally.right == tally.checkable == tally.answers == (20 if blocks else 5)
    if not blocks:
        assert {answer.values["best"] for answer in submitted_answers(small, study_id)} == {"image-1"}


@pytest.mark.parametrize("turned", [False, True])
def test_pairs_of_a_trial_fit_unless_the_truth_differs(small, tmp_path, turned):
    for n, colour in enumerate(("red", "green")):
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{n}.png")
    values = {"images": ["0.png", "1.png"], "captions": ["It is red.", "It is green."], "caption_ids": ["c0", "c1"]}
    (tmp_path / "items.jsonl").write_text("".join(json.dumps({"id": f"x{n}", **values}) + "\n" for n in range(5)))
    design = load_design("bivlc-human")
    study_id = add_study(small, design, read_items(tmp_path / "items.jsonl", design))
    (tmp_path / "truth.csv").write_text("image,caption_id,grade\n0.png,c0,0\n0.png,c1,1\n1.png,c0,1\n1.png,c1,0\n")
    key = make_answer_key(small, find_study(small), tmp_path / "truth.csv" if turned else None)
    tally = WorkSummary()
    work(SimulatedAnnotator("anna", PERFECT, key), AtHand(small, study_id), tally)
    assert tally.right == tally.checkable == tally.answers == 20
    for stored_answer in submitted_answers(small, study_id):
        place = stored_answer.item.details["query"] % 2
        (answer,) = stored_answer.values.values()
        assert answer.endswith(str(1 - place if turned else place))


def answers_of(habits, n=400, right=("b",), options="abcd", seed=0, kind="choice", **more):
    """What a person answers to many items with these options."""
    question = {"name": "q", "kind": kind, "after": "", "when": [], "low": 0.0, "high": 5.0,
                "options": [{"value": value} for value in options], **more}  # fmt: skip
    item = {"questions": [question], "images": [], "block": "", "lists": 0}
    who = SimulatedAnnotator("anna", habits, AnswerKey(), seed)
    who_knows = type("Knowing", (SimulatedAnnotator,), {"truth": lambda self, displayed, question: right})(
        who.name, habits, AnswerKey(), seed
    )
    return [who_knows.answer(item, ViewedItem((), (f"text {k}",)))[0]["q"] for k in range(n)]


def test_accuracy_is_the_share_of_right_answers():
    found = Counter(answers_of(Habits(accuracy=0.7), 2000))
    assert found["b"] / 2000 == pytest.approx(0.7, abs=0.04)
    assert min(found["a"], found["c"], found["d"]) > 100


def test_confusion_decides_the_errors():
    found = Counter(answers_of(Habits(confusion={"b": {"b": 0.5, "d": 0.5}}), 1000))
    assert set(found) == {"b", "d"}
    assert found["d"] / 1000 == pytest.approx(0.5, abs=0.06)


def test_first_bias_prefers_the_first_displayed_option():
    assert set(answers_of(Habits(first=1.0))) == {"a"}
    assert Counter(answers_of(Habits(accuracy=1.0, first=0.3), 2000))["a"] / 2000 == pytest.approx(0.3, abs=0.04)


def test_sliders_spread_around_the_truth():
    found = np.array(answers_of(Habits(noise=0.4), 2000, right=2.5, kind="slider"))
    assert found.mean() == pytest.approx(2.5, abs=0.05)
    assert found.std() == pytest.approx(0.4, abs=0.05)
    assert set(answers_of(Habits(noise=0.0), 5, right=4.25, kind="slider")) == {4.25}


def test_errors_on_a_scale_are_mostly_small():
    design = load_design("caption-correctness")
    who = SimulatedAnnotator("anna", Habits(accuracy=0.0), AnswerKey(design))
    faces = ViewedItem((), ())
    found = Counter(who._choose_option(list("12345"), ("3",), faces, who.dice(n), "correctness") for n in range(2000))
    assert found["3"] == 0
    assert min(found["2"], found["4"]) > 2 * max(found["1"], found["5"])


def test_a_bias_towards_yes_is_towards_the_best_grade():
    design = load_design("eccv-hit")
    who = SimulatedAnnotator("anna", Habits(yes=1.0), AnswerKey(design))
    question = {"name": "match", "kind": "choice", "options": [{"value": option.value} for option in design.main_question.options]}
    assert who._choose_value(question, ("no",), ViewedItem((), ()), who.dice(1), lazy=False) == "yes"


def test_simulated_answer_does_not_depend_on_the_displayed_order():
    who = SimulatedAnnotator("anna", Habits(accuracy=0.5), AnswerKey(load_design("bison-verify")), seed=3)
    texts = [(f"left {n}", f"right {n}") for n in range(200)]
    question = {"name": "which", "kind": "choice", "after": "", "when": [],
                "options": [{"value": value} for value in ("image-0", "image-1", "both", "neither")]}  # fmt: skip
    item = {"questions": [question], "block": "", "lists": 0}

    def said(images):
        viewed = ViewedItem(images, ("It.",))
        return viewed.content_of(who.answer(item, viewed)[0]["which"])

    assert [said(pair) for pair in texts] == [said(pair[::-1]) for pair in texts]


def test_lazy_annotator_repeats_one_answer(small):
    study_id = begun(small, "eccv-hit", n=18)
    client = AtHand(small, study_id)
    work(SimulatedAnnotator("anna", Habits(lazy=1.0), make_answer_key(small, find_study(small))), client, WorkSummary())
    assert len({answer["match"] for answer in client.submitted[0]}) == 1


def test_simulated_seconds_are_sent_without_waiting(small):
    study_id = begun(small, "sts", n=30)
    work(
        SimulatedAnnotator("anna", Habits(seconds=8.0), make_answer_key(small, find_study(small))),
        AtHand(small, study_id),
        WorkSummary(),
    )
    seconds = [answer.seconds for answer in submitted_answers(small, study_id)]
    assert np.median(seconds) == pytest.approx(8, rel=0.3)
    assert min(seconds) < 7 < 9 < max(seconds)


def test_dropout_saves_a_draft_and_can_resume(small):
    study_id = begun(small, "sts", "recipe.people=1", n=12)
    key = make_answer_key(small, find_study(small))
    gone, back = AtHand(small, study_id, "gone"), AtHand(small, study_id, "back")
    left, returned = WorkSummary(), WorkSummary()
    work(SimulatedAnnotator("gone", Habits(dropout=1.0, returns=0.0), key), gone, left)
    work(SimulatedAnnotator("back", Habits(dropout=1.0, returns=1.0), key), back, returned)
    assert (left.hits, left.dropouts, left.why) == (0, 1, "left")
    assert len(gone.drafts) == 1
    assert returned.hits == returned.dropouts == 11  # all but the one that is kept for who is gone


def test_custom_design_gets_valid_answers(small, tmp_path):
    (tmp_path / "mine.toml").write_text(
        'title = "t"\nabout = "a"\n[shows]\ncaptions = 1\nimages = 0\n'
        '[[questions]]\nname = "mood"\nkind = "several"\ntext = "?"\n'
        'options = [{value="sad", text="Sad"}, {value="mad", text="Mad"}]\n'
        '[[questions]]\nname = "how"\nkind = "slider"\ntext = "?"\nafter = "mood"\nwhen = ["mad"]\nlow = -1\nhigh = 1\n'
        "[recipe]\nbatch = 30\n[result]\nyields = 'choices'\ncombine = 'majority'\n"
    )
    design = load_design(tmp_path / "mine.toml")
    (tmp_path / "items.csv").write_text("caption\n" + "".join(f"text {n}\n" for n in range(30)))
    study_id = add_study(small, design, read_items(tmp_path / "items.csv", design))
    tally = WorkSummary()
    work(SimulatedAnnotator("anna", Habits(), make_answer_key(small, find_study(small))), AtHand(small, study_id), tally)
    assert (tally.answers, tally.checkable) == (30, 0)
    assert {"mood"} in [set(answer.values) for answer in submitted_answers(small, study_id)]
    assert {"mood", "how"} in [set(answer.values) for answer in submitted_answers(small, study_id)]


def test_slider_value_near_the_truth_is_right():
    assert is_right(3.4, 3.0)
    assert not is_right(3.6, 3.0)
    assert is_right("yes", ("yes", "weak-yes"))


# Through HTTP


def test_simulated_annotators_finish_a_study_by_http(small, capsys):
    study_id = begun(small, "eccv-hit", "recipe.batch=6", "recipe.people=2", n=12)
    (found,) = simulate(small.folder, people=3, habits=PERFECT)
    assert (found.left, found.errors, found.review, found.accuracy) == (0, 0, 0, 1.0)
    assert (found.study, found.people, found.hits, found.answers) == ("eccv-hit", 3, 4, 4 * 8)
    assert verify(small)[0].answers == 4 * 8
    assert {answer.person for answer in submitted_answers(small, study_id)} <= {f"artificial-{n:04d}" for n in range(1, 4)}


@pytest.mark.slow
def test_simulation_adds_people_and_sets_the_clock_ahead(small):
    begun(small, "sts", "recipe.hits_per_person=2", "recipe.people=2", n=6)
    recorded = []
    (found,) = simulate(small.folder, people=3, habits=Habits(dropout=0.5, returns=0.0), seed=1, say=recorded.append)
    assert found.left == 0
    assert found.people > 3
    assert found.dropouts > 0
    assert any("more people join" in line for line in recorded)
    assert any("the clock is set ahead" in line for line in recorded)
    assert verify(small)[0].answers == 12


def test_missing_answers_are_reported_if_nobody_qualifies(small):
    begun(small, "eccv-hit", "recipe.quiz=4", "recipe.quiz_share=1", n=18)
    recorded = []
    (found,) = simulate(
        small.folder, people=2, habits=Habits(confusion={"yes": {"no": 1.0}, "no": {"yes": 1.0}}), say=recorded.append
    )
    assert (found.left, found.hits) == (1, 2)  # a quiz each
    assert "1 assignments are missing" in recorded[-1]


def test_simulation_invites_people_with_past_tasks(small):
    begun(small, "sts", "recipe.past_tasks=500", "recipe.past_accepted=0.95", "recipe.people=1", n=2)
    (found,) = simulate(small.folder, people=2)
    assert (found.left, found.errors) == (0, 0)


def test_simulation_uses_a_running_service(small):
    begun(small, "bison-verify", "recipe.batch=3", "recipe.people=1", n=6)
    with service(small.folder) as base:
        (first,) = simulate(small.folder, url=base, people=2)
        (again,) = simulate(small.folder, url=base, people=2)
    assert (first.study, first.errors, first.answers, first.left) == ("bison-verify", 0, 6, 0)
    assert (again.left, again.people) == (0, 0)


# Where real people are


def test_campaign_with_real_people_needs_the_option(small):
    study_id = begun(small, "sts", "recipe.people=1", n=2)
    people.invite(small, "anna")
    with pytest.raises(UsageError, match=r"has 1 real people, such as 'anna'.* Simulate in a separate campaign"):
        simulate(small.folder, people=2)
    assert not submitted_answers(small, study_id)


@pytest.fixture
def today(tmp_path):
    """A campaign whose clock is that of the service that `simulate` starts."""
    with new_campaign(tmp_path / "today", "", time.time) as campaign:
        yield campaign


def test_simulation_does_not_take_over_hits_of_real_people(today):
    """Also when everybody artificial has nothing else to do, for whom the clock would be set ahead."""
    study_id = begun(today, "sts", "recipe.people=1", "recipe.lease_minutes=30", n=3)
    _, anna = people.join_study(today, link_of(today, study_id), "anna")
    people.give_consent(today, study_id, anna.id)
    mine = claims.claim_hit(today, study_id, anna.id)
    (found,) = simulate(today.folder, people=2, habits=PERFECT, allow_real_people=True)
    assert (found.left, found.answers) == (1, 2)
    with today.read_transaction() as connection:
        assert count_slots(connection, study_id).held == 1
    assert claims.claim_hit(today, study_id, anna.id) == mine
    claims.submit(today, mine, anna.id, [{"similarity": 1.0}])
    verify(today)


def test_a_lease_that_has_ended_is_still_left_to_a_real_person(today):
    study_id = begun(today, "sts", "recipe.people=1", n=3)
    _, anna = people.join_study(today, link_of(today, study_id), "anna")
    people.give_consent(today, study_id, anna.id)
    claims.claim_hit(today, study_id, anna.id)
    with today.write_transaction() as connection:
        connection.execute(update(slot).where(slot.c.person == anna.id).values(lease=time.time() - 1))
    recorded = []
    (found,) = simulate(today.folder, people=2, allow_real_people=True, say=recorded.append)
    assert (found.left, found.answers) == (3, 0)
    assert "so artificial annotators stop" in recorded[0]


def test_invalid_simulation_options_are_refused(small):
    begun(small, "sts", n=2)
    link = Path("http://127.0.0.1:1/join/nowhere")  # only a campaign's folder can name artificial annotators
    for where, more in ((small.folder, {"people": 0}), (small.folder, {"study": "none"}), (link, {})):
        with pytest.raises(UsageError):
            simulate(where, **more)


def test_failed_start_of_the_service_names_the_reason(tmp_path):
    with pytest.raises(CrossmatchError, match=r"did not start: .*is not a campaign"), service(tmp_path / "nothing"):
        pass


# The client


@contextmanager
def shaky(script):
    """A server that answers as the script says, request after request; None breaks off."""
    recorded = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            recorded.append((self.command, self.path, body))
            told = script[min(len(recorded), len(script)) - 1]
            if told is None:
                self.connection.close()
                self.close_connection = True
                return
            status, headers, text = told
            self.send_response(status)
            for name, value in {"content-length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - the library's names

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", recorded
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


RECEIPT = (200, {"content-type": "application/json"}, b'{"again": true}')


@pytest.mark.parametrize("trouble", [None, (503, {}, b"busy"), (429, {}, b"slow down")])
def test_a_submission_is_sent_again_when_its_answer_is_lost(trouble):
    with shaky([trouble, RECEIPT]) as (base, asked):
        client = Client(base)
        assert client.submit("c", [{"q": "a"}]) == {"again": True}
        assert len({body for _, _, body in asked}) == 1
        assert len(asked) == 2
        client.close()


def test_client_joins_again_after_a_lost_response(small):
    study_id = begun(small, "sts", n=2)
    with service(small.folder) as base:
        client = Client(base)
        client.join(link_of(small, study_id), "anna")
        client.cookies = {BROWSER_COOKIE: client.cookies[BROWSER_COOKIE]}  # as if nothing had come back
        assert client.join(link_of(small, study_id), "anna") == "sts"
        assert client.claim()["items"]
        client.close()


def test_refusal_is_reported_and_not_retried():
    with shaky([(403, {"content-type": "application/json"}, b'{"error": "too old"}')]) as (base, asked):
        client = Client(base)
        with pytest.raises(RequestFailedError, match="too old") as error:
            client.submit("c", [])
        assert error.value.status == 403
        assert len(asked) == 1
        client.close()


def test_unreachable_service_is_an_error():
    with shaky([RECEIPT]) as (base, _):
        pass
    with pytest.raises(RequestFailedError, match="Is the service running"):
        Client(base, patience=0).claim()


def test_client_uses_the_cookie_and_the_csrf_token(small):
    study_id = begun(small, "sts", n=2)
    with service(small.folder) as base:
        client = Client(base)
        assert client.join(link_of(small, study_id), "anna") == "sts"
        assert client.csrf
        assert client.cookies
        hit = client.claim()
        assert client.hit(hit["claim"])["items"] == hit["items"]
        client.draft(hit["claim"], 1, [{"similarity": 1.0}])
        stranger = Client(base)
        stranger.study, stranger.csrf = client.study, client.csrf
        with pytest.raises(RequestFailedError) as error:
            stranger.claim()
        assert error.value.status == 401
        client.csrf = "0" * 32
        with pytest.raises(RequestFailedError) as error:
            client.submit(hit["claim"], [{"similarity": 1.0}])
        assert error.value.status == 403
        twin = Client(base)
        with pytest.raises(RequestFailedError, match="name is already taken"):
            twin.join(link_of(small, study_id), "anna")
        for each in (client, stranger, twin):
            each.close()
    assert Path(small.folder).is_dir()
