"""What owners are told, against slow and obvious versions that read the tables and events themselves."""

import itertools
import json
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from crossmatch.metrics.answers import Answers
from crossmatch.metrics.raters import fleiss, krippendorff
from crossmatch.metrics.sides import side_bias
from crossmatch.study import assign, statistics, tally, verdicts
from crossmatch.study.begin import NewItem, create_study
from crossmatch.study.design import load_design
from crossmatch.study.schema import claim, event, hit, hit_item, item, slot
from crossmatch.study.statistics import Left, complete_items, differing, measured, money, numbered_anew, quartiles, slots, time_left
from crossmatch.study.tally import Asked, Tally
from crossmatch.study.workers import Worker, conspicuous, workers
from study_lab import Clock, a_study, answers_to, careless, hit_of, new_campaign, someone, work

WORDS = ("yes", "weak-yes", "weak-no", "no")


# -- studies with a past


def counted_tally(campaign, study_id):
    made = Tally(campaign, study_id)
    while made.read():
        pass
    return made


def seen(campaign, study_id):
    return counted_tally(campaign, study_id).snapshot()


def eventful(campaign, clock, study_id, seed=0, steps=60):
    """People who work, come late, leave, and answer gold wrong; reviewers who say this and that."""
    rng = np.random.default_rng(seed)
    lost, _ = asleep(campaign, clock, study_id, "lost"), clock.wait(61)
    slow, _ = asleep(campaign, clock, study_id, "slow"), clock.wait(61)  # takes over what was lost
    submit(campaign, rng, *slow)  # late, but nobody has taken it over
    crowd = [someone(campaign, study_id, f"person {n}") for n in range(6)]
    submitted = []
    for _ in range(steps):
        clock.wait(float(rng.exponential(2)))
        who = crowd[rng.integers(len(crowd))]
        with suppress(assign.Nothing):
            made = assign.claim_hit(campaign, study_id, who)
            clock.wait(float(rng.exponential(3)) + 0.1)
            if rng.random() < 0.8:
                submitted.append(made)
                submit(campaign, rng, made, who)
        if submitted and rng.random() < 0.3:
            review(campaign, rng, submitted)
    submit(campaign, rng, *lost)


def asleep(campaign, clock, study_id, name):
    """Somebody who passes the quiz, claims a HIT, and does nothing."""
    who = someone(campaign, study_id, name)
    work(campaign, study_id, who)
    return assign.claim_hit(campaign, study_id, who), who


def submit(campaign, rng, made, who):
    held = hit_of(campaign, made)
    given = answers_to(held, wrong=rng.random() < 0.3)
    for one, answer in zip(held.items, given, strict=True):
        if one.gold is None:
            answer["match"] = WORDS[rng.integers(4)]
        if answer["match"].startswith("weak"):
            answer["reason"] = ["grammar"]
    assign.submit(campaign, made, who, given, [float(s) for s in rng.exponential(9, len(given))] if rng.random() < 0.7 else None)


def review(campaign, rng, submitted):
    with suppress(assign.NotYours):  # a quiz is not reviewed
        verdicts.review(campaign, submitted[rng.integers(len(submitted))], None, verdicts.VERDICTS[rng.integers(3)])


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    """A study of 18 pairs in 6 HITs, by three people each, with gold and a quiz, in which everything has happened."""
    clock = Clock()
    with new_campaign(tmp_path_factory.mktemp("past") / "campaign", "", clock) as campaign:
        careless(campaign)
        quiz = ("recipe.quiz=2", "recipe.quiz_share=0.5", "recipe.people=3", "recipe.pay=2", "recipe.fee=0.5")
        study_id = a_study(campaign, *quiz, items=18, golden=8)
        eventful(campaign, clock, study_id, seed=1, steps=90)
        yield campaign, study_id, clock


# -- the slow versions


def rows(campaign, study_id):
    """Every answer to an item of a HIT, as a dict, in the order in which it was given; quizzes apart."""
    with campaign.reading() as connection:
        gold = {row.id: row.gold is not None for row in connection.execute(select(item))}
        claims = {row.id: row for row in connection.execute(select(claim).where(claim.c.slot.is_not(None)))}
        told = connection.execute(select(event).where(event.c.study == study_id, event.c.kind == "submit").order_by(event.c.number))
        out = []
        for row in told:
            if row.claim not in claims:
                continue
            made, body = claims[row.claim], json.loads(row.body)
            stands = made.counted and (not made.doubt or made.verdict is not None)
            for n, each in enumerate(body["answers"]):
                out.append({
                    "person": row.person, "item": each["item"], "answer": each["answer"], "orders": each["orders"],
                    "gold": gold[each["item"]], "stands": stands, "seconds": (body["seconds"] or [None] * 99)[n],
                })  # fmt: skip
    return out


def done_claims(campaign, study_id):
    with campaign.reading() as connection:
        asked = select(claim).where(claim.c.study == study_id, claim.c.submitted.is_not(None), claim.c.slot.is_not(None))
        return connection.execute(asked).all()


def standing(campaign, study_id, question="match"):
    return [
        (r["item"], r["person"], r["answer"][question])
        for r in rows(campaign, study_id)
        if r["stands"] and not r["gold"] and question in r["answer"]
    ]


def as_answers(triples, code):
    return Answers.of([(i, p, code(v)) for i, p, v in triples])


# -- progress


def test_a_past_has_everything_in_it(past):
    campaign, study_id, _ = past
    found = done_claims(campaign, study_id)
    with campaign.reading() as connection:
        bodies = [json.loads(r.body) for r in connection.execute(select(event).where(event.c.kind == "submit"))]
    assert {row.verdict for row in found} == {None, "approve", "reject", "reassign"}
    assert any(body.get("late") and not body["counted"] for body in bodies)
    assert any(body.get("late") and body["counted"] for body in bodies)
    assert {body["passed"] for body in bodies if "passed" in body} == {True, False}
    assert any(row.doubt and row.verdict is None and row.counted for row in found)


def test_slots_are_those_of_the_table(past):
    campaign, study_id, _ = past
    with campaign.reading() as connection:
        states = Counter(connection.execute(select(slot.c.state).where(slot.c.study == study_id)).scalars())
        found = slots(connection, study_id)
    assert {name: getattr(found, name) for name in ("open", "held", "review", "done")} == {
        name: states[name] for name in ("open", "held", "review", "done")
    }
    assert found.all == 18
    assert found.left == states["open"] + states["held"]


def test_an_item_is_complete_when_all_slots_of_its_hit_are_done(past):
    campaign, study_id, _ = past
    found = counted_tally(campaign, study_id)
    with campaign.reading() as connection:
        states = defaultdict(list)
        for row in connection.execute(select(slot)):
            states[row.hit].append(row.state)
        items = connection.execute(
            select(item.c.gold, hit_item.c.hit).join(hit_item, hit_item.c.item == item.c.id).join(hit, hit.c.id == hit_item.c.hit)
            .where(~hit.c.quiz)
        ).all()  # fmt: skip
    slow = sum(row.gold is None and set(states[row.hit]) == {"done"} for row in items)
    assert complete_items(found.snapshot().work, found.size) == slow > 0
    assert (found.size.hits, found.size.items, found.size.people) == (6, 18, 3)


# -- the tally


@pytest.mark.parametrize("batch", [1, 7])
def test_reading_on_comes_to_the_same_as_reading_all(campaign, clock, monkeypatch, batch):
    monkeypatch.setattr(tally, "BATCH", batch)
    if campaign.engine.dialect.name == "sqlite":
        careless(campaign)
    study_id = a_study(campaign, "recipe.people=2", items=6, golden=2)
    going = Tally(campaign, study_id)
    rng = np.random.default_rng(0)
    crowd = [someone(campaign, study_id, f"person {n}") for n in range(3)]
    submitted = []
    for who in crowd[:2] * 2:
        submitted.append(assign.claim_hit(campaign, study_id, who))
        going.read()
        clock.wait(1)
        submit(campaign, rng, submitted[-1], who)
        review(campaign, rng, submitted)
        going.read()
        going.snapshot()
    while going.read():
        pass
    whole = seen(campaign, study_id)
    found = going.snapshot()
    assert found.asked == whole.asked
    for part in ("work", "said"):
        for name, column in vars(getattr(whole, part)).items():
            assert getattr(getattr(found, part), name) == pytest.approx(column, nan_ok=True)


def test_a_snapshot_stays_as_long_as_nothing_was_submitted(small, clock):
    study_id = a_study(small)
    made = counted_tally(small, study_id)
    before = made.snapshot()
    who = someone(small, study_id)
    assign.claim_hit(small, study_id, who)
    made.read()
    assert made.snapshot() is before
    work(small, study_id, who)
    made.read()
    assert made.snapshot() is not before
    assert len(before.work.person) == 0


def test_columns_are_what_the_events_say(past):
    campaign, study_id, _ = past
    found, slow = seen(campaign, study_id), rows(campaign, study_id)
    assert found.said.item.tolist() == [r["item"] for r in slow]
    assert found.person.tolist() == [r["person"] for r in slow]
    assert found.said.gold.tolist() == [r["gold"] for r in slow]
    assert found.work.stands[found.said.work].tolist() == [r["stands"] for r in slow]
    names = found.asked[0].names
    assert [names[int(code)] for code in found.said.value] == [r["answer"]["match"] for r in slow]
    assert found.said.seconds.tolist() == pytest.approx(
        [np.nan if r["seconds"] is None else r["seconds"] for r in slow], nan_ok=True
    )


# -- people


def same_share(slow, who):
    """The share of the same answers, over all pairs of an answer of theirs and one of another that stands."""
    pairs = [
        mine["answer"]["match"] == other["answer"]["match"]
        for mine in slow
        for other in slow
        if mine["person"] == who
        and other["person"] != who
        and mine["item"] == other["item"]
        and other["stands"]
        and not mine["gold"]
    ]
    return sum(pairs) / len(pairs), len(pairs)


def test_people_are_counted_as_by_hand(past):
    campaign, study_id, _ = past
    slow, claims = rows(campaign, study_id), done_claims(campaign, study_id)
    with campaign.reading() as connection:
        told = connection.execute(select(event).where(event.c.study == study_id, event.c.kind == "submit")).all()
    bodies = {row.claim: json.loads(row.body) for row in told}
    found = {one.person: one for one in workers(seen(campaign, study_id))}
    assert set(found) == {row.person for row in told}
    for who in {row.person for row in claims}:
        one, mine, hits = found[who], [r for r in slow if r["person"] == who], [row for row in claims if row.person == who]
        said = Counter(row.verdict for row in hits)
        assert (one.hits, one.answers, one.counted) == (len(hits), len(mine), sum(r["stands"] for r in mine))
        assert one.gold == sum(r["gold"] for r in mine)
        assert one.wrong == sum(len(bodies[row.id]["wrong"]) for row in hits)
        assert one.late == sum(bodies[row.id]["late"] for row in hits)
        assert (one.approved, one.rejected, one.reassigned) == tuple(said[v] for v in verdicts.VERDICTS)
        assert one.seconds == pytest.approx(np.median([(row.submitted - row.at) / 5 for row in hits]))
        times = [r["seconds"] for r in mine if r["seconds"] is not None]
        assert one.browser == (pytest.approx(np.median(times)) if times else None)
        words = [r["answer"]["match"] for r in mine]
        assert one.run == max(len(list(run)) for _, run in itertools.groupby(words))
        assert one.most == pytest.approx(max(Counter(words).values()) / len(words))
        assert (one.agreement, one.compared) == pytest.approx(same_share(slow, who))
        assert one.quiz is True


def test_who_failed_the_quiz_is_listed_without_answers(past):
    campaign, study_id, _ = past
    failed = [one for one in workers(seen(campaign, study_id)) if one.quiz is False]
    assert failed
    assert all(
        (one.hits, one.answers, one.seconds, one.agreement, one.run, one.watch) == (0, 0, None, None, 0, ()) for one in failed
    )


def test_who_always_presses_left_is_seen_although_the_pictures_change_sides(small, clock):
    careless(small)
    items = [NewItem(f"x{n}", ("a.jpg", "b.jpg"), ("caption",)) for n in range(40)]
    study_id = create_study(small, load_design("bison-verify", ["recipe.people=4"]), items, seed="seed")
    rng = np.random.default_rng(0)
    lazy, *others = (someone(small, study_id, f"person {n}") for n in range(4))
    for _ in range(4):
        for who in (lazy, *others):
            made = assign.claim_hit(small, study_id, who)
            clock.wait(0.1 if who == lazy else 5)
            held = hit_of(small, made)
            given = [{"which": "image-0" if who == lazy or rng.random() < 0.4 else "both"} for _ in held.items]
            assign.submit(small, made, who, given)
    told = seen(small, study_id)
    found = {one.person: one for one in workers(told)}
    assert (found[lazy].run, found[lazy].most) == (40, 1.0)
    assert told.asked[0].names[found[lazy].option] == "image-0"
    assert set(found[lazy].watch) >= {"same answer", "hasty"}
    assert not any("same answer" in found[who].watch or "hasty" in found[who].watch for who in others)
    chosen = [r for r in rows(small, study_id) if r["answer"]["which"] != "both"]
    lefts = sum(r["orders"]["images"].index(int(r["answer"]["which"][-1])) == 0 for r in chosen)
    ((places, bias),) = measured(told, 0).bias
    assert places == 2
    assert bias == side_bias(lefts, len(chosen) - lefts)
    assert lefts == len(chosen)  # each of them chose by place


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (Worker(1, answers=100, gold=10, wrong=1), ()),
        (Worker(1, answers=100, gold=11, wrong=2), ()),
        (Worker(1, answers=10, gold=2, wrong=2, run=10, chance=0.01, seconds=0.1, agreement=0.0), ("gold",)),
        (Worker(1, answers=100, run=11, chance=0.4), ()),
        (Worker(1, answers=100, run=13, chance=0.4), ("same answer",)),
        (Worker(1, answers=100, run=100), ()),  # nobody else answered: chance 1
        (Worker(1, answers=100, seconds=3.4, agreement=0.5), ()),
        (Worker(1, answers=100, seconds=3.2, agreement=0.4), ("hasty", "apart")),
    ],
)
def test_what_is_worth_a_look(one, says):
    assert conspicuous(one, 10.0, 0.7) == says


# -- agreement


def test_agreement_is_of_answers_that_stand_and_are_not_gold(past):
    campaign, study_id, _ = past
    found = measured(seen(campaign, study_id), 0)
    triples = standing(campaign, study_id)
    grades = {"yes": 1.0, "weak-yes": 0.5, "weak-no": 0.0, "no": 0.0}
    assert (found.level, found.answers) == ("interval", len(triples))
    assert found.krippendorff.value == pytest.approx(krippendorff(as_answers(triples, grades.get), "interval").value)
    slow = fleiss(as_answers(triples, WORDS.index), 3)
    assert (found.fleiss.value, found.fleiss.items) == (pytest.approx(slow.value), slow.items)
    assert found.cohen.few + len(found.cohen.pairs) == len(
        {frozenset((p, q)) for i, p, _ in triples for j, q, _ in triples if i == j and p != q}
    )
    assert found.bias == ()
    assert "same order on every page" in found.no_bias


# -- agreement where the declared order carries the truth


def crowd_of(campaign, preset, items, accuracy, seed=0):
    """Two people who choose what is right (declared first) with this probability, else one of the other things."""
    files, sides = {"bison-verify": (2, "images"), "bivlc-choose": (4, "images"), "bivlc-ambiguity": (2, "images")}[preset]
    made = [NewItem(f"{preset}-{n}", ("a.jpg",) * files, ("caption",)) for n in range(items)]
    design = load_design(preset, ["recipe.people=2", f"recipe.batch={items}"])
    study_id = create_study(campaign, design, made, seed="seed")
    rng = np.random.default_rng(seed)
    for name in ("anna", "bert"):
        who = someone(campaign, study_id, f"{name} {preset}")
        held = hit_of(campaign, assign.claim_hit(campaign, study_id, who))
        given = []
        for one in held.items:
            declared = 0 if rng.random() < accuracy else 1 + rng.integers(files - 1)
            given.append({one.questions[0].name: f"image-{one.orders[sides].index(declared)}"})
        assign.submit(campaign, held.claim, who, given)
    return measured(seen(campaign, study_id), 0)


@pytest.mark.parametrize(
    ("preset", "accuracy", "kappa"),
    [
        ("bison-verify", 0.9, (2 * 0.9 - 1) ** 2),
        ("bison-verify", 0.75, (2 * 0.75 - 1) ** 2),
        ("bison-verify", 0.5, 0.0),  # who guess
        ("bivlc-ambiguity", 0.9, (2 * 0.9 - 1) ** 2),
        ("bivlc-choose", 0.7, (0.7**2 + 0.3**2 / 3 - 1 / 4) / (3 / 4)),  # one of four
    ],
)
def test_kappa_is_known_where_the_first_of_all_items_is_the_right_one(small, preset, accuracy, kappa):
    careless(small)
    found = crowd_of(small, preset, 800, accuracy)
    for told in (found.krippendorff, found.fleiss, found.cohen.mean):
        assert told.value == pytest.approx(kappa, abs=4 * (told.high - told.low) / 4)  # four standard errors
        assert abs(told.value - kappa) < 0.13


def test_people_who_are_always_right_agree_entirely_and_not_by_chance(small):
    found = crowd_of(small, "bison-verify", 60, 1.0)
    assert (found.krippendorff.value, found.fleiss.value, found.cohen.mean.value) == (1.0, pytest.approx(1), pytest.approx(1))


def test_numbering_anew_keeps_who_agrees_with_whom():
    asked = Asked(load_design("bison-verify").main, ("image-0", "image-1", "both"), shuffled=True)
    rng = np.random.default_rng(0)
    item, code = np.repeat(np.arange(300), 3), rng.integers(0, 3, 900)
    anew, told = numbered_anew(item, code, np.full(900, 2), asked)
    names = np.array(told.names)[anew]
    for n in range(300):
        mine = item == n
        assert (code[mine][:, None] == code[mine]).tolist() == (names[mine][:, None] == names[mine]).tolist()
    assert ((names == "both") == (code == 2)).all()  # a liking for it is a habit
    first = (names[code == 0] == "image-0").mean()
    assert 0.4 < first < 0.6
    several = replace(asked, question=replace(asked.question, kind="several"), names=("image-0, image-1, both",))
    assert numbered_anew(np.array([0, 1]), np.zeros(2, np.int64), np.full(2, 2), several)[1].names == ("both, image-0, image-1",)


def test_names_of_answers_stand_in_the_reason_instead_of_codes(small):
    study_id = a_study(small, "recipe.people=2")
    for name in ("anna", "bert"):
        who = someone(small, study_id, name)
        for _ in range(2):
            work(small, study_id, who, match="no")
    found = measured(seen(small, study_id), 0)
    assert found.fleiss.value is None
    assert "“no”" in found.fleiss.reason
    assert found.krippendorff.value is None


def test_one_person_for_each_item_is_nothing_to_compare(small):
    study_id = a_study(small)
    found = measured(seen(small, study_id), 0)
    assert found.cohen is None
    assert "one person" in found.no_cohen
    assert found.krippendorff.reason == "nobody answered anything yet."


def test_hits_of_more_people_than_can_be_compared_are_left_out(small, monkeypatch):
    monkeypatch.setattr(statistics, "MOST_PEOPLE", 2)
    monkeypatch.setattr(statistics, "SHARED", 3)
    study_id = a_study(small, "recipe.people=3")
    for name, matches in (("anna", ("yes", "no")), ("bert", ("yes", "no")), ("cleo", ("no",))):
        who = someone(small, study_id, name)
        for match in matches:
            work(small, study_id, who, match=match)
    found = measured(seen(small, study_id), 0)
    assert (found.left_out, len(found.cohen.pairs)) == (1, 1)
    assert found.cohen.mean.value == pytest.approx(1.0)


def slider_study(campaign, people=3, items=12):
    careless(campaign)
    made = [NewItem(f"x{n}", (), ("one", "two")) for n in range(items)]
    study_id = create_study(campaign, load_design("sts", [f"recipe.people={people}"]), made, seed="seed")
    rng = np.random.default_rng(1)
    crowd = [someone(campaign, study_id, f"person {n}") for n in range(people)]
    for _ in range(items):
        for who in crowd:
            made = assign.claim_hit(campaign, study_id, who)
            number = hit_of(campaign, made).items[0].item
            constant = who == crowd[-1]
            value = 2.5 if constant else float(np.clip(number % 6 + rng.normal(0, 0.5), 0, 5))
            assign.submit(campaign, made, who, [{"similarity": value}])
    return study_id, crowd


def test_sliders_are_numbers(small):
    study_id, crowd = slider_study(small)
    told = seen(small, study_id)
    triples = standing(small, study_id, "similarity")
    found = measured(told, 0)
    assert found.krippendorff.value == pytest.approx(krippendorff(as_answers(triples, float), "interval").value)
    assert found.fleiss.value is None
    assert "slider" in found.no_cohen
    given = defaultdict(dict)
    for number, who, value in triples:
        given[number][who] = value
    people = {one.person: one for one in workers(told)}
    for who in crowd[:-1]:
        own = [answers[who] for answers in given.values()]
        theirs = [np.mean([v for other, v in answers.items() if other != who]) for answers in given.values()]
        assert people[who].agreement == pytest.approx(np.corrcoef(own, theirs)[0, 1])
    assert people[crowd[-1]].agreement is None  # the same answer throughout has no correlation
    assert (people[crowd[-1]].run, people[crowd[-1]].most, people[crowd[-1]].option) == (12, 1.0, 5)


def test_blocks_with_questions_of_their_own_are_measured_each(small):
    items = [NewItem(f"i{n}", ("a.jpg",), ("one", "two"), "i2t") for n in range(3)]
    items += [NewItem(f"t{n}", ("a.jpg", "b.jpg"), ("one",), "t2i") for n in range(3)]
    study_id = create_study(small, load_design("bivlc-human", ["recipe.people=2"]), items, seed="seed")
    for name in ("anna", "bert"):
        who = someone(small, study_id, name)
        made = assign.claim_hit(small, study_id, who)
        given = [{"caption": "caption-0"} if one.block == "i2t" else {"image": "image-1"} for one in hit_of(small, made).items]
        assign.submit(small, made, who, given)
    told = seen(small, study_id)
    found = [measured(told, n) for n in range(len(told.asked))]
    assert [(each.question.name, each.answers) for each in found] == [("caption", 6), ("image", 6)]
    assert [each.bias[0][1].shares[0].value for each in found] == [1.0, 0.0]


# -- where people differ


def test_items_are_ordered_by_entropy(past):
    campaign, study_id, _ = past
    found = differing(seen(campaign, study_id))
    given = defaultdict(list)
    for number, _, value in standing(campaign, study_id):
        given[number].append(value)

    def entropy(values):
        shares = [n / len(values) for n in Counter(values).values()]
        return -sum(p * np.log2(p) for p in shares)

    slow = sorted(((round(-entropy(v), 9), number) for number, v in given.items() if len(set(v)) > 1))
    assert found.item.tolist() == [number for _, number in slow]
    assert found.spread == pytest.approx([-spread for spread, _ in slow])
    assert found.answers.tolist() == [len(given[number]) for _, number in slow]


def test_items_are_ordered_by_standard_deviation(small):
    study_id, _ = slider_study(small)
    found = differing(seen(small, study_id))
    given = defaultdict(list)
    for number, _, value in standing(small, study_id, "similarity"):
        given[number].append(value)
    assert found.spread == pytest.approx(sorted((np.std(v) for v in given.values()), reverse=True))
    assert len(found.item) == 12


# -- time and money


def test_rejected_hits_are_not_paid_and_late_ones_are(past):
    campaign, study_id, _ = past
    told = seen(campaign, study_id)
    paid = [row for row in done_claims(campaign, study_id) if row.verdict != "reject"]
    found = money(told.design.recipe, told.work, left=4)
    assert (found.paid, found.so_far, found.total) == (len(paid), pytest.approx(3 * len(paid)), pytest.approx(3 * (len(paid) + 4)))
    assert found.hourly == pytest.approx(np.median([2 * 3600 / (row.submitted - row.at) for row in paid]))
    assert not any(row.slot is None for row in paid)  # a quiz is not paid


def test_times_have_quartiles():
    assert quartiles(np.zeros(0)) is None
    found = quartiles(np.array([4.0, 1.0, 3.0, 2.0]))
    assert (found.low, found.median, found.high) == (1.75, 2.5, 3.25)


def test_time_left_is_told_by_the_latest_hits(small, clock):
    study_id = a_study(small, items=18)
    who = someone(small, study_id)
    nothing = seen(small, study_id).work
    assert time_left(nothing, 6, clock()) == Left(None, None, "nobody has submitted anything that counts yet.")
    for _ in range(3):
        made = assign.claim_hit(small, study_id, who)
        clock.wait(2)
        assign.submit(small, made, who, answers_to(hit_of(small, made)))
        clock.wait(3)
    found = time_left(seen(small, study_id).work, 3, clock())
    assert found.work == pytest.approx(3 * 120)
    assert found.seconds == pytest.approx(3 * (10 + 3) * 60 / 2)  # two HITs after the first one, in the 13 minutes since
    assert time_left(seen(small, study_id).work, 0, clock()) == Left(0.0, 0.0)
