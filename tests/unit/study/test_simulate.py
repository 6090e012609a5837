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

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.study import assign, people
from crossmatch.study.annotators import Annotator, Faces, Habits, Key, Tally, is_right, work
from crossmatch.study.client import ENTRY, Client, Failed
from crossmatch.study.design import load_design, presets
from crossmatch.study.ideal import Seen, ideal
from crossmatch.study.items import begin_study, read_items
from crossmatch.study.said import counted, everything, find_study, progress
from crossmatch.study.schema import slot
from crossmatch.study.simulate import NAME, key_of, service, simulate
from crossmatch.study.verify import verify
from crossmatch.study.web.faces import payload
from crossmatch.study.worlds import known_of, world_items
from study_lab import link_of, new_campaign

PERFECT = Habits(accuracy=1.0, noise=0.0)


class AtHand:
    """The service without a wire: what a client would be told."""

    def __init__(self, campaign, study_id, name="somebody"):
        self.campaign, self.study_id = campaign, study_id
        _, who = people.join(campaign, link_of(campaign, study_id), name)
        people.agree(campaign, study_id, who.id)
        self.person, self.drafts, self.submitted = who.id, [], []

    def claim(self):
        try:
            claim = assign.claim_hit(self.campaign, self.study_id, self.person)
        except assign.Nothing as error:
            return error.why
        with self.campaign.reading() as connection:
            self.held = assign.load_hit(connection, claim, self.person)
            return payload(self.held)

    def picture(self, path):
        *_, place, n = path.split("/")
        return (self.campaign.pictures / self.held.items[int(place)].images[int(n)]).read_bytes()

    def draft(self, claim, number, answers):
        self.drafts.append(answers)

    def submit(self, claim, answers, seconds=None):
        self.submitted.append(answers)
        assign.submit(self.campaign, claim, self.person, answers, seconds)


def begun(campaign, name, *overrides, n=6, **more):
    """A study of the embedded world."""
    design = load_design(name, overrides)
    return begin_study(campaign, design, world_items(design, n=n), name=name, **more)


def said_in(campaign, study_id):
    with campaign.reading() as connection:
        return list(everything(connection, study_id))


# What they answer


@pytest.mark.parametrize("name", sorted(presets()))
def test_who_makes_no_mistake_gives_the_right_answer_wherever_things_are_shown(small, name):
    made = begun(small, name, "recipe.batch=12", "recipe.people=2", n=12)
    study = find_study(small)
    key, known = key_of(small, study), known_of(study.origin)
    for who in ("anna", "bob"):
        tally = Tally()
        work(Annotator(who, PERFECT, key), AtHand(small, made, who), tally)
        assert tally.why == "none"
        assert tally.right == tally.known == tally.answers > 0
    orders = set()
    for one in said_in(small, made):
        thing = one.thing
        right = ideal(name, Seen(thing.image_ids, thing.captions, study.design.shows.lists, thing.block), known)
        value = one.answer[study.design.asked(thing.block)[0].name]
        assert value == pytest.approx(right, abs=1e-3) if isinstance(right, float) else value in right
        orders.add(json.dumps(one.orders))
    assert len(orders) > 1 or not study.design.shows.shuffle


def test_gold_is_answered_right_where_nothing_else_is_known(small, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    rows = "image,caption,kind\n" + "".join(
        f"a.jpg,text {n},{kind}\n" for n, kind in enumerate(["candidate"] * 20 + ["positive", "negative"])
    )
    (tmp_path / "pool.csv").write_text(rows)
    design = load_design("eccv-hit", ["recipe.batch=20"])
    made = begin_study(small, design, read_items(tmp_path / "pool.csv", design))
    tally = Tally()
    work(Annotator("anna", PERFECT, key_of(small, find_study(small))), AtHand(small, made), tally)
    assert (tally.known, tally.right) == (2, 2)
    assert len({one.answer["match"] for one in said_in(small, made)}) > 2  # all else is drawn
    with small.reading() as connection:
        assert progress(connection, made).review == 0


def test_a_truth_file_tells_what_is_right(small, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    (tmp_path / "items.csv").write_text("image,caption,caption_id\n" + "".join(f"a.jpg,text {n},c{n}\n" for n in range(9)))
    (tmp_path / "truth.csv").write_text("image,caption_id,grade\n" + "".join(f"a.jpg,c{n},{n % 3}\n" for n in range(9)))
    design = load_design("eccv-hit", ["recipe.gold_positive=0", "recipe.gold_negative=0"])
    made = begin_study(small, design, read_items(tmp_path / "items.csv", design))
    key = key_of(small, find_study(small), tmp_path / "truth.csv")
    work(Annotator("anna", PERFECT, key), AtHand(small, made), Tally())
    given = {one.thing.body["caption_id"]: one.answer["match"] for one in said_in(small, made)}
    assert given == {f"c{n}": ("no", "weak-yes", "yes")[n % 3] for n in range(9)}


@pytest.mark.parametrize("blocks", [False, True])
def test_items_may_tell_themselves_what_fits(small, tmp_path, blocks):
    for n, colour in enumerate(("red", "green", "blue", "black")):
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{n}.png")
    design = load_design("bivlc-human" if blocks else "bivlc-choose")
    one = {"images": ["0.png", "1.png"], "captions": ["It is red.", "It is green."], "fits": [False, True, True, False]}
    if not blocks:
        one = {"images": [f"{n}.png" for n in range(4)], "caption": "It is green.", "fits": [False, True, False, False]}
    (tmp_path / "items.jsonl").write_text("".join(json.dumps({"id": f"x{n}", **one}) + "\n" for n in range(5)))
    made = begin_study(small, design, read_items(tmp_path / "items.jsonl", design))
    tally = Tally()
    work(Annotator("anna", PERFECT, key_of(small, find_study(small))), AtHand(small, made), tally)
    assert tally.right == tally.known == tally.answers == (20 if blocks else 5)
    if not blocks:
        assert {one.answer["best"] for one in said_in(small, made)} == {"image-1"}


@pytest.mark.parametrize("turned", [False, True])
def test_a_trial_has_it_that_its_pairs_belong_together_unless_somebody_knows_better(small, tmp_path, turned):
    for n, colour in enumerate(("red", "green")):
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{n}.png")
    one = {"images": ["0.png", "1.png"], "captions": ["It is red.", "It is green."], "caption_ids": ["c0", "c1"]}
    (tmp_path / "items.jsonl").write_text("".join(json.dumps({"id": f"x{n}", **one}) + "\n" for n in range(5)))
    design = load_design("bivlc-human")
    made = begin_study(small, design, read_items(tmp_path / "items.jsonl", design))
    (tmp_path / "truth.csv").write_text("image,caption_id,grade\n0.png,c0,0\n0.png,c1,1\n1.png,c0,1\n1.png,c1,0\n")
    key = key_of(small, find_study(small), tmp_path / "truth.csv" if turned else None)
    tally = Tally()
    work(Annotator("anna", PERFECT, key), AtHand(small, made), tally)
    assert tally.right == tally.known == tally.answers == 20
    for said in said_in(small, made):
        place = said.thing.body["query"] % 2
        (answer,) = said.answer.values()
        assert answer.endswith(str(1 - place if turned else place))


def answers_of(habits, n=400, right=("b",), options="abcd", seed=0, kind="choice", **more):
    """What a person answers to many items with these options."""
    question = {"name": "q", "kind": kind, "after": "", "when": [], "low": 0.0, "high": 5.0,
                "options": [{"value": value} for value in options], **more}  # fmt: skip
    item = {"questions": [question], "images": [], "block": "", "lists": 0}
    who = Annotator("anna", habits, Key(), seed)
    who_knows = type("Knowing", (Annotator,), {"truth": lambda self, seen, question: right})(who.name, habits, Key(), seed)
    return [who_knows.answer(item, Seen((), (f"text {k}",)))[0]["q"] for k in range(n)]


def test_accuracy_is_the_share_of_right_answers():
    found = Counter(answers_of(Habits(accuracy=0.7), 2000))
    assert found["b"] / 2000 == pytest.approx(0.7, abs=0.04)
    assert min(found["a"], found["c"], found["d"]) > 100


def test_a_confusion_says_what_is_mistaken_for_what():
    found = Counter(answers_of(Habits(confusion={"b": {"b": 0.5, "d": 0.5}}), 1000))
    assert set(found) == {"b", "d"}
    assert found["d"] / 1000 == pytest.approx(0.5, abs=0.06)


def test_a_bias_towards_the_first_is_towards_what_comes_first():
    assert set(answers_of(Habits(first=1.0))) == {"a"}
    assert Counter(answers_of(Habits(accuracy=1.0, first=0.3), 2000))["a"] / 2000 == pytest.approx(0.3, abs=0.04)


def test_sliders_spread_around_the_truth():
    found = np.array(answers_of(Habits(noise=0.4), 2000, right=2.5, kind="slider"))
    assert found.mean() == pytest.approx(2.5, abs=0.05)
    assert found.std() == pytest.approx(0.4, abs=0.05)
    assert set(answers_of(Habits(noise=0.0), 5, right=4.25, kind="slider")) == {4.25}


def test_mistakes_on_a_scale_are_small_ones():
    design = load_design("caption-correctness")
    who = Annotator("anna", Habits(accuracy=0.0), Key(design))
    faces = Faces((), ())
    found = Counter(who._chosen(list("12345"), ("3",), faces, who.dice(n), "correctness") for n in range(2000))
    assert found["3"] == 0
    assert min(found["2"], found["4"]) > 2 * max(found["1"], found["5"])


def test_a_bias_towards_yes_is_towards_the_best_grade():
    design = load_design("eccv-hit")
    who = Annotator("anna", Habits(yes=1.0), Key(design))
    question = {"name": "match", "kind": "choice", "options": [{"value": option.value} for option in design.main.options]}
    assert who._value(question, ("no",), Faces((), ()), who.dice(1), lazy=False) == "yes"


def test_what_a_person_answers_does_not_depend_on_the_order_in_which_it_is_shown():
    who = Annotator("anna", Habits(accuracy=0.5), Key(load_design("bison-verify")), seed=3)
    texts = [(f"left {n}", f"right {n}") for n in range(200)]
    question = {"name": "which", "kind": "choice", "after": "", "when": [],
                "options": [{"value": value} for value in ("image-0", "image-1", "both", "neither")]}  # fmt: skip
    item = {"questions": [question], "block": "", "lists": 0}

    def said(images):
        faces = Faces(images, ("It.",))
        return faces.of(who.answer(item, Seen(images, ("It.",)))[0]["which"])

    assert [said(pair) for pair in texts] == [said(pair[::-1]) for pair in texts]


def test_who_is_lazy_answers_everything_alike(small):
    made = begun(small, "eccv-hit", n=18)
    client = AtHand(small, made)
    work(Annotator("anna", Habits(lazy=1.0), key_of(small, find_study(small))), client, Tally())
    assert len({answer["match"] for answer in client.submitted[0]}) == 1


def test_seconds_are_told_though_nobody_waits(small):
    made = begun(small, "sts", n=30)
    work(Annotator("anna", Habits(seconds=8.0), key_of(small, find_study(small))), AtHand(small, made), Tally())
    seconds = [one.seconds for one in said_in(small, made)]
    assert np.median(seconds) == pytest.approx(8, rel=0.3)
    assert min(seconds) < 7 < 9 < max(seconds)


def test_who_leaves_keeps_a_draft_and_may_come_back_to_the_same_hit(small):
    made = begun(small, "sts", "recipe.people=1", n=12)
    key = key_of(small, find_study(small))
    gone, back = AtHand(small, made, "gone"), AtHand(small, made, "back")
    left, returned = Tally(), Tally()
    work(Annotator("gone", Habits(dropout=1.0, returns=0.0), key), gone, left)
    work(Annotator("back", Habits(dropout=1.0, returns=1.0), key), back, returned)
    assert (left.hits, left.dropouts, left.why) == (0, 1, "left")
    assert len(gone.drafts) == 1
    assert returned.hits == returned.dropouts == 11  # all but the one that is kept for who is gone


def test_a_design_of_ones_own_gets_valid_answers(small, tmp_path):
    (tmp_path / "mine.toml").write_text(
        'title = "t"\nabout = "a"\n[shows]\ncaptions = 1\nimages = 0\n'
        '[[questions]]\nname = "mood"\nkind = "several"\ntext = "?"\n'
        'options = [{value="sad", text="Sad"}, {value="mad", text="Mad"}]\n'
        '[[questions]]\nname = "how"\nkind = "slider"\ntext = "?"\nafter = "mood"\nwhen = ["mad"]\nlow = -1\nhigh = 1\n'
        "[recipe]\nbatch = 30\n[result]\nyields = 'choices'\ncombine = 'majority'\n"
    )
    design = load_design(tmp_path / "mine.toml")
    (tmp_path / "items.csv").write_text("caption\n" + "".join(f"text {n}\n" for n in range(30)))
    made = begin_study(small, design, read_items(tmp_path / "items.csv", design))
    tally = Tally()
    work(Annotator("anna", Habits(), key_of(small, find_study(small))), AtHand(small, made), tally)
    assert (tally.answers, tally.known) == (30, 0)
    assert {"mood"} in [set(one.answer) for one in said_in(small, made)]
    assert {"mood", "how"} in [set(one.answer) for one in said_in(small, made)]


def test_near_is_right_on_a_slider():
    assert is_right(3.4, 3.0)
    assert not is_right(3.6, 3.0)
    assert is_right("yes", ("yes", "weak-yes"))


# Through HTTP


def test_a_study_is_finished_by_people_who_come_by_http(small, capsys):
    made = begun(small, "eccv-hit", "recipe.batch=6", "recipe.people=2", n=12)
    (found,) = simulate(small.folder, people=3, habits=PERFECT)
    assert (found.left, found.errors, found.review, found.accuracy) == (0, 0, 0, 1.0)
    assert (found.study, found.people, found.hits, found.answers) == ("eccv-hit", 3, 4, 4 * 8)
    assert verify(small)[0].answers == 4 * 8
    with small.reading() as connection:
        assert {one.person for one in counted(connection, made)} <= {f"{NAME}-{n:04d}" for n in range(1, 4)}


def test_more_people_join_when_each_may_do_only_so_much_and_the_clock_is_set_ahead_for_those_who_left(small):
    begun(small, "sts", "recipe.hits_per_person=2", "recipe.people=2", n=6)
    told = []
    (found,) = simulate(small.folder, people=3, habits=Habits(dropout=0.5, returns=0.0), seed=1, say=told.append)
    assert found.left == 0
    assert found.people > 3
    assert found.dropouts > 0
    assert any("more people join" in line for line in told)
    assert any("the clock is set ahead" in line for line in told)
    assert verify(small)[0].answers == 12


def test_it_says_how_much_is_missing_when_nobody_qualifies(small):
    begun(small, "eccv-hit", "recipe.quiz=4", "recipe.quiz_share=1", n=18)
    told = []
    (found,) = simulate(small.folder, people=2, habits=Habits(confusion={"yes": {"no": 1.0}, "no": {"yes": 1.0}}), say=told.append)
    assert (found.left, found.hits) == (1, 2)  # a quiz each
    assert "1 answers to HITs are missing" in told[-1]


def test_people_with_a_past_come_by_invitation(small):
    begun(small, "sts", "recipe.past_tasks=500", "recipe.past_accepted=0.95", "recipe.people=1", n=2)
    (found,) = simulate(small.folder, people=2)
    assert (found.left, found.errors) == (0, 0)


def test_a_link_is_enough_where_nothing_is_known(small):
    made = begun(small, "bison-verify", "recipe.batch=3", "recipe.people=1", n=6)
    with service(small.folder) as base:
        with pytest.raises(WrongWords, match=r"by a link nobody can see whether real people are there.* say --rehearse-here"):
            simulate(f"{base}/join/{link_of(small, made)}", people=2)
        (found,) = simulate(f"{base}/join/{link_of(small, made)}", people=2, here=True)
        again = simulate(small.folder, url=base, people=2)
    assert (found.study, found.errors, found.answers, found.accuracy, found.left) == ("bison-verify", 0, 6, None, None)
    assert (again[0].left, again[0].people) == (0, 0)


# Where real people are


def test_a_campaign_with_real_people_is_not_rehearsed_in_unless_told_so(small):
    made = begun(small, "sts", "recipe.people=1", n=2)
    people.invite(small, "anna")
    with pytest.raises(WrongWords, match=r"has 1 real people, such as 'anna'.* Rehearse in a campaign of its own"):
        simulate(small.folder, people=2)
    with small.reading() as connection:
        assert not list(everything(connection, made))


@pytest.fixture
def today(tmp_path):
    """A campaign whose clock is that of the service that `simulate` starts."""
    with new_campaign(tmp_path / "today", "", time.time) as campaign:
        yield campaign


def test_what_a_real_person_holds_stays_theirs(today):
    """Also when everybody artificial has nothing else to do, for whom the clock would be set ahead."""
    made = begun(today, "sts", "recipe.people=1", "recipe.lease_minutes=30", n=3)
    _, anna = people.join(today, link_of(today, made), "anna")
    people.agree(today, made, anna.id)
    mine = assign.claim_hit(today, made, anna.id)
    (found,) = simulate(today.folder, people=2, habits=PERFECT, here=True)
    assert (found.left, found.answers) == (1, 2)
    with today.reading() as connection:
        assert progress(connection, made).held == 1
    assert assign.claim_hit(today, made, anna.id) == mine
    assign.submit(today, mine, anna.id, [{"similarity": 1.0}])
    verify(today)


def test_a_lease_that_has_ended_is_still_left_to_a_real_person(today):
    made = begun(today, "sts", "recipe.people=1", n=3)
    _, anna = people.join(today, link_of(today, made), "anna")
    people.agree(today, made, anna.id)
    assign.claim_hit(today, made, anna.id)
    with today.writing() as connection:
        connection.execute(update(slot).where(slot.c.person == anna.id).values(lease=time.time() - 1))
    told = []
    (found,) = simulate(today.folder, people=2, here=True, say=told.append)
    assert (found.left, found.answers) == (3, 0)
    assert "artificial people leave it to them" in told[0]


def test_words_that_cannot_be_meant_are_refused(small):
    begun(small, "sts", n=2)
    nowhere = ("http://127.0.0.1:1/nowhere", {"here": True})
    for where, more in ((small.folder, {"people": 0}), (small.folder, {"study": "none"}), nowhere):
        with pytest.raises(WrongWords):
            simulate(where, **more)


def test_a_service_that_cannot_start_says_why(tmp_path):
    with pytest.raises(CrossmatchError, match=r"did not start: .*is no campaign"), service(tmp_path / "nothing"):
        pass


# The client


@contextmanager
def shaky(script):
    """A server that answers as the script says, request after request; None breaks off."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append((self.command, self.path, body))
            told = script[min(len(asked), len(script)) - 1]
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
        yield f"http://127.0.0.1:{server.server_port}", asked
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


def test_whoever_joined_and_lost_the_answer_is_let_in(small):
    made = begun(small, "sts", n=2)
    with service(small.folder) as base:
        client = Client(base)
        client.join(link_of(small, made), "anna")
        client.cookies = {ENTRY: client.cookies[ENTRY]}  # as if nothing had come back
        assert client.join(link_of(small, made), "anna") == "sts"
        assert client.claim()["items"]
        client.close()


def test_a_refusal_is_told_and_not_repeated():
    with shaky([(403, {"content-type": "application/json"}, b'{"error": "too old"}')]) as (base, asked):
        client = Client(base)
        with pytest.raises(Failed, match="too old") as told:
            client.submit("c", [])
        assert told.value.status == 403
        assert len(asked) == 1
        client.close()


def test_nobody_at_home_is_an_error_that_asks_whether_the_service_runs():
    with shaky([RECEIPT]) as (base, _):
        pass
    with pytest.raises(Failed, match="Is the service running"):
        Client(base, patience=0).claim()


def test_the_way_in_needs_the_cookie_and_the_secret_of_the_page(small):
    made = begun(small, "sts", n=2)
    with service(small.folder) as base:
        client = Client(base)
        assert client.join(link_of(small, made), "anna") == "sts"
        assert client.csrf
        assert client.cookies
        hit = client.claim()
        assert client.hit(hit["claim"])["items"] == hit["items"]
        client.draft(hit["claim"], 1, [{"similarity": 1.0}])
        stranger = Client(base)
        stranger.study, stranger.csrf = client.study, client.csrf
        with pytest.raises(Failed) as told:
            stranger.claim()
        assert told.value.status == 401
        client.csrf = "0" * 32
        with pytest.raises(Failed) as told:
            client.submit(hit["claim"], [{"similarity": 1.0}])
        assert told.value.status == 403
        twin = Client(base)
        with pytest.raises(Failed, match="somebody of this name"):
            twin.join(link_of(small, made), "anna")
        for each in (client, stranger, twin):
            each.close()
    assert Path(small.folder).is_dir()
