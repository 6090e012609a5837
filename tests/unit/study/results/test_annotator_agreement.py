"""What owners are told, against slow and obvious versions that read the tables and events themselves."""

import itertools
import json
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from crossmatch.metrics.agreement.answer_arrays import Answers
from crossmatch.metrics.agreement.fleiss_krippendorff import fleiss_kappa, krippendorff_alpha
from crossmatch.metrics.agreement.side_bias import side_bias
from crossmatch.study.assignment import claims as assign
from crossmatch.study.assignment import review as verdicts
from crossmatch.study.database.schema import claim, event, hit, hit_item, item, slot
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.results import annotator_agreement, event_columns
from crossmatch.study.results.annotator_agreement import measure_agreement, rank_disagreement, renumber_choices
from crossmatch.study.results.annotator_quality import AnnotatorSummary, find_warnings, summarise_annotators
from crossmatch.study.results.event_columns import CountedQuestion, EventReader
from crossmatch.study.results.progress import (
    TimeLeft,
    compute_cost,
    count_complete_items,
    count_slots,
    estimate_time_left,
    quartiles,
)
from study_lab import Clock, add_annotator, add_small_study, answers_to, disable_sync, hit_of, new_campaign, submit_hit

WORDS = ("yes", "weak-yes", "weak-no", "no")


# -- studies with a past


def counted_tally(campaign, study_id):
    reader = EventReader(campaign, study_id)
    while reader.read_batch():
        pass
    return reader


def seen(campaign, study_id):
    return counted_tally(campaign, study_id).snapshot()


def eventful(campaign, clock, study_id, seed=0, steps=60):
    """People who work, come late, leave, and answer gold wrong; reviewers who say this and that."""
    rng = np.random.default_rng(seed)
    lost, _ = asleep(campaign, clock, study_id, "lost"), clock.wait(61)
    slow, _ = asleep(campaign, clock, study_id, "slow"), clock.wait(61)  # takes over what was lost
    submit(campaign, rng, *slow)  # late, but nobody has taken it over
    crowd = [add_annotator(campaign, study_id, f"person {n}") for n in range(6)]
    submitted = []
    for _ in range(steps):
        clock.wait(float(rng.exponential(2)))
        who = crowd[rng.integers(len(crowd))]
        with suppress(assign.NoHitAvailableError):
            claim_id = assign.claim_hit(campaign, study_id, who)
            clock.wait(float(rng.exponential(3)) + 0.1)
            if rng.random() < 0.8:
                submitted.append(claim_id)
                submit(campaign, rng, claim_id, who)
        if submitted and rng.random() < 0.3:
            review(campaign, rng, submitted)
    submit(campaign, rng, *lost)


def asleep(campaign, clock, study_id, name):
    """Somebody who passes the quiz, claims a HIT, and does nothing."""
    who = add_annotator(campaign, study_id, name)
    submit_hit(campaign, study_id, who)
    return assign.claim_hit(campaign, study_id, who), who


def submit(campaign, rng, made, who):
    claimed_hit = hit_of(campaign, made)
    answers = answers_to(claimed_hit, wrong=rng.random() < 0.3)
    for study_item, answer in zip(claimed_hit.items, answers, strict=True):
        if study_item.gold is None:
            answer["match"] = WORDS[rng.integers(4)]
        if answer["match"].startswith("weak"):
            answer["reason"] = ["grammar"]
    assign.submit(
        campaign, made, who, answers, [float(s) for s in rng.exponential(9, len(answers))] if rng.random() < 0.7 else None
    )


def review(campaign, rng, submitted):
    with suppress(assign.NotFoundError):  # a quiz is not reviewed
        verdicts.review(campaign, submitted[rng.integers(len(submitted))], None, verdicts.VERDICTS[rng.integers(3)])


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    """A study of 18 pairs in 6 HITs, by three people each, with gold and a quiz, in which everything has happened."""
    clock = Clock()
    with new_campaign(tmp_path_factory.mktemp("past") / "campaign", "", clock) as campaign:
        disable_sync(campaign)
        quiz = ("recipe.quiz=2", "recipe.quiz_share=0.5", "recipe.people=3", "recipe.pay=2", "recipe.fee=0.5")
        study_id = add_small_study(campaign, *quiz, items=18, gold_per_kind=8)
        eventful(campaign, clock, study_id, seed=1, steps=90)
        yield campaign, study_id, clock


# -- the slow versions


def rows(campaign, study_id):
    """Every answer to an item of a HIT, as a dict, in the order in which it was given; quizzes apart."""
    with campaign.read_transaction() as connection:
        gold = {row.id: row.gold is not None for row in connection.execute(select(item))}
        claims = {row.id: row for row in connection.execute(select(claim).where(claim.c.slot.is_not(None)))}
        submissions = connection.execute(
            select(event).where(event.c.study == study_id, event.c.kind == "submit").order_by(event.c.number)
        )
        out = []
        for row in submissions:
            if row.claim not in claims:
                continue
            made, body = claims[row.claim], json.loads(row.body)
            in_results = made.counted and (not made.doubt or made.verdict is not None)
            for n, answer in enumerate(body["answers"]):
                out.append({
                    "person": row.person, "item": answer["item"], "answer": answer["answer"], "orders": answer["orders"],
                    "gold": gold[answer["item"]], "in_results": in_results, "seconds": (body["seconds"] or [None] * 99)[n],
                })  # fmt: skip
    return out


def done_claims(campaign, study_id):
    with campaign.read_transaction() as connection:
        query = select(claim).where(claim.c.study == study_id, claim.c.submitted.is_not(None), claim.c.slot.is_not(None))
        return connection.execute(query).all()


def standing(campaign, study_id, question="match"):
    return [
        (r["item"], r["person"], r["answer"][question])
        for r in rows(campaign, study_id)
        if r["in_results"] and not r["gold"] and question in r["answer"]
    ]


def as_answers(triples, code):
    return Answers.from_triples([(i, p, code(v)) for i, p, v in triples])


# -- progress


def test_example_study_covers_all_cases(past):
    campaign, study_id, _ = past
    found = done_claims(campaign, study_id)
    with campaign.read_transaction() as connection:
        bodies = [json.loads(r.body) for r in connection.execute(select(event).where(event.c.kind == "submit"))]
    assert {row.verdict for row in found} == {None, "approve", "reject", "reassign"}
    assert any(body.get("late") and not body["counted"] for body in bodies)
    assert any(body.get("late") and body["counted"] for body in bodies)
    assert {body["passed"] for body in bodies if "passed" in body} == {True, False}
    assert any(row.doubt and row.verdict is None and row.counted for row in found)


def test_slots_are_those_of_the_table(past):
    campaign, study_id, _ = past
    with campaign.read_transaction() as connection:
        states = Counter(connection.execute(select(slot.c.state).where(slot.c.study == study_id)).scalars())
        slots = count_slots(connection, study_id)
    assert {name: getattr(slots, name) for name in ("open", "held", "review", "done")} == {
        name: states[name] for name in ("open", "held", "review", "done")
    }
    assert slots.total == 18
    assert slots.left == states["open"] + states["held"]


def test_an_item_is_complete_when_all_slots_of_its_hit_are_done(past):
    campaign, study_id, _ = past
    reader = counted_tally(campaign, study_id)
    with campaign.read_transaction() as connection:
        states = defaultdict(list)
        for row in connection.execute(select(slot)):
            states[row.hit].append(row.state)
        items = connection.execute(
            select(item.c.gold, hit_item.c.hit).join(hit_item, hit_item.c.item == item.c.id).join(hit, hit.c.id == hit_item.c.hit)
            .where(~hit.c.quiz)
        ).all()  # fmt: skip
    slow = sum(row.gold is None and set(states[row.hit]) == {"done"} for row in items)
    assert count_complete_items(reader.snapshot().hits, reader.size) == slow > 0
    assert (reader.size.hits, reader.size.items, reader.size.people) == (6, 18, 3)


# -- the tally


@pytest.mark.parametrize("batch", [1, 7])
def test_incremental_reading_matches_full_reading(campaign, clock, monkeypatch, batch):
    monkeypatch.setattr(event_columns, "BATCH", batch)
    if campaign.engine.dialect.name == "sqlite":
        disable_sync(campaign)
    study_id = add_small_study(campaign, "recipe.people=2", items=6, gold_per_kind=2)
    going = EventReader(campaign, study_id)
    rng = np.random.default_rng(0)
    crowd = [add_annotator(campaign, study_id, f"person {n}") for n in range(3)]
    submitted = []
    for who in crowd[:2] * 2:
        submitted.append(assign.claim_hit(campaign, study_id, who))
        going.read_batch()
        clock.wait(1)
        submit(campaign, rng, submitted[-1], who)
        review(campaign, rng, submitted)
        going.read_batch()
        going.snapshot()
    while going.read_batch():
        pass
    whole = seen(campaign, study_id)
    snapshot = going.snapshot()
    assert snapshot.questions == whole.questions
    for part in ("hits", "answers"):
        for name, column in vars(getattr(whole, part)).items():
            assert getattr(getattr(snapshot, part), name) == pytest.approx(column, nan_ok=True)


def test_a_snapshot_stays_as_long_as_nothing_was_submitted(small, clock):
    study_id = add_small_study(small)
    reader = counted_tally(small, study_id)
    before = reader.snapshot()
    who = add_annotator(small, study_id)
    assign.claim_hit(small, study_id, who)
    reader.read_batch()
    assert reader.snapshot() is before
    submit_hit(small, study_id, who)
    reader.read_batch()
    assert reader.snapshot() is not before
    assert len(before.hits.person) == 0


def test_columns_match_the_events(past):
    campaign, study_id, _ = past
    snapshot, slow = seen(campaign, study_id), rows(campaign, study_id)
    assert snapshot.answers.item.tolist() == [r["item"] for r in slow]
    assert snapshot.person.tolist() == [r["person"] for r in slow]
    assert snapshot.answers.gold.tolist() == [r["gold"] for r in slow]
    assert snapshot.hits.in_results[snapshot.answers.hit_row].tolist() == [r["in_results"] for r in slow]
    names = snapshot.questions[0].answer_names
    assert [names[int(code)] for code in snapshot.answers.value] == [r["answer"]["match"] for r in slow]
    assert snapshot.answers.seconds.tolist() == pytest.approx(
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
        and other["in_results"]
        and not mine["gold"]
    ]
    return sum(pairs) / len(pairs), len(pairs)


def test_annotator_summaries_match_a_slow_count(past):
    campaign, study_id, _ = past
    slow, claims = rows(campaign, study_id), done_claims(campaign, study_id)
    with campaign.read_transaction() as connection:
        submissions = connection.execute(select(event).where(event.c.study == study_id, event.c.kind == "submit")).all()
    bodies = {row.claim: json.loads(row.body) for row in submissions}
    summaries = {summary.person_id: summary for summary in summarise_annotators(seen(campaign, study_id))}
    assert set(summaries) == {row.person for row in submissions}
    for who in {row.person for row in claims}:
        one, mine, hits = summaries[who], [r for r in slow if r["person"] == who], [row for row in claims if row.person == who]
        said = Counter(row.verdict for row in hits)
        assert (one.hits, one.answers, one.counted) == (len(hits), len(mine), sum(r["in_results"] for r in mine))
        assert one.gold == sum(r["gold"] for r in mine)
        assert one.wrong == sum(len(bodies[row.id]["wrong"]) for row in hits)
        assert one.late == sum(bodies[row.id]["late"] for row in hits)
        assert (one.approved, one.rejected, one.reassigned) == tuple(said[v] for v in verdicts.VERDICTS)
        assert one.seconds == pytest.approx(np.median([(row.submitted - row.at) / 5 for row in hits]))
        times = [r["seconds"] for r in mine if r["seconds"] is not None]
        assert one.browser_seconds == (pytest.approx(np.median(times)) if times else None)
        words = [r["answer"]["match"] for r in mine]
        assert one.longest_run == max(len(list(run)) for _, run in itertools.groupby(words))
        assert one.favourite_share == pytest.approx(max(Counter(words).values()) / len(words))
        assert (one.agreement, one.compared_count) == pytest.approx(same_share(slow, who))
        assert one.quiz is True


def test_failed_quiz_is_listed_without_answers(past):
    campaign, study_id, _ = past
    failed = [summary for summary in summarise_annotators(seen(campaign, study_id)) if summary.quiz is False]
    assert failed
    assert all(
        (summary.hits, summary.answers, summary.seconds, summary.agreement, summary.longest_run, summary.warnings)
        == (0, 0, None, None, 0, ())
        for summary in failed
    )


def test_always_choosing_left_is_detected(small, clock):
    disable_sync(small)
    items = [NewItem(f"x{n}", ("a.jpg", "b.jpg"), ("caption",)) for n in range(40)]
    study_id = create_study(small, load_design("bison-verify", ["recipe.people=4"]), items, seed="seed")
    rng = np.random.default_rng(0)
    lazy, *others = (add_annotator(small, study_id, f"person {n}") for n in range(4))
    for _ in range(4):
        for who in (lazy, *others):
            claim_id = assign.claim_hit(small, study_id, who)
            clock.wait(0.1 if who == lazy else 5)
            claimed_hit = hit_of(small, claim_id)
            values = [{"which": "image-0" if who == lazy or rng.random() < 0.4 else "both"} for _ in claimed_hit.items]
            assign.submit(small, claim_id, who, values)
    snapshot = seen(small, study_id)
    summaries = {summary.person_id: summary for summary in summarise_annotators(snapshot)}
    assert (summaries[lazy].longest_run, summaries[lazy].favourite_share) == (40, 1.0)
    assert snapshot.questions[0].answer_names[summaries[lazy].favourite_option] == "image-0"
    assert set(summaries[lazy].warnings) >= {"same answer", "hasty"}
    assert not any("same answer" in summaries[who].warnings or "hasty" in summaries[who].warnings for who in others)
    chosen = [r for r in rows(small, study_id) if r["answer"]["which"] != "both"]
    lefts = sum(r["orders"]["images"].index(int(r["answer"]["which"][-1])) == 0 for r in chosen)
    ((places, bias),) = measure_agreement(snapshot, 0).bias
    assert places == 2
    assert bias == side_bias(lefts, len(chosen) - lefts)
    assert lefts == len(chosen)  # each of them chose by place


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (AnnotatorSummary(1, answers=100, gold=10, wrong=1), ()),
        (AnnotatorSummary(1, answers=100, gold=11, wrong=2), ()),
        (AnnotatorSummary(1, answers=10, gold=2, wrong=2, longest_run=10, run_rate=0.01, seconds=0.1, agreement=0.0), ("gold",)),
        (AnnotatorSummary(1, answers=100, longest_run=11, run_rate=0.4), ()),
        (AnnotatorSummary(1, answers=100, longest_run=13, run_rate=0.4), ("same answer",)),
        (AnnotatorSummary(1, answers=100, longest_run=100), ()),  # nobody else answered: chance 1
        (AnnotatorSummary(1, answers=100, seconds=3.4, agreement=0.5), ()),
        (AnnotatorSummary(1, answers=100, seconds=3.2, agreement=0.4), ("hasty", "apart")),
    ],
)
def test_warnings_follow_their_thresholds(one, message):
    assert find_warnings(one, 10.0, 0.7) == message


# -- agreement


def test_agreement_uses_counted_answers_without_gold(past):
    campaign, study_id, _ = past
    result = measure_agreement(seen(campaign, study_id), 0)
    triples = standing(campaign, study_id)
    grades = {"yes": 1.0, "weak-yes": 0.5, "weak-no": 0.0, "no": 0.0}
    assert (result.level, result.answers) == ("interval", len(triples))
    assert result.krippendorff.value == pytest.approx(krippendorff_alpha(as_answers(triples, grades.get), "interval").value)
    slow = fleiss_kappa(as_answers(triples, WORDS.index), 3)
    assert (result.fleiss.value, result.fleiss.items) == (pytest.approx(slow.value), slow.items)
    assert result.cohen.skipped_pairs + len(result.cohen.pairs) == len(
        {frozenset((p, q)) for i, p, _ in triples for j, q, _ in triples if i == j and p != q}
    )
    assert result.bias == ()
    assert "same order on every page" in result.no_bias


# -- agreement where the declared order carries the truth


def crowd_of(campaign, preset, items, accuracy, seed=0):
    """Two people who choose what is right (declared first) with this probability, else one of the other things."""
    files, sides = {"bison-verify": (2, "images"), "bivlc-choose": (4, "images"), "bivlc-ambiguity": (2, "images")}[preset]
    new_item = [NewItem(f"{preset}-{n}", ("a.jpg",) * files, ("caption",)) for n in range(items)]
    design = load_design(preset, ["recipe.people=2", f"recipe.batch={items}"])
    study_id = create_study(campaign, design, new_item, seed="seed")
    rng = np.random.default_rng(seed)
    for name in ("anna", "bert"):
        who = add_annotator(campaign, study_id, f"{name} {preset}")
        claim_id = hit_of(campaign, assign.claim_hit(campaign, study_id, who))
        recorded = []
        for study_item in claim_id.items:
            declared = 0 if rng.random() < accuracy else 1 + rng.integers(files - 1)
            recorded.append({study_item.questions[0].name: f"image-{study_item.orders[sides].index(declared)}"})
        assign.submit(campaign, claim_id.claim_id, who, recorded)
    return measure_agreement(seen(campaign, study_id), 0)


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
def test_kappa_matches_theory_if_the_first_image_is_correct(small, preset, accuracy, kappa):
    disable_sync(small)
    result = crowd_of(small, preset, 800, accuracy)
    for told in (result.krippendorff, result.fleiss, result.cohen.mean):
        assert told.value == pytest.approx(kappa, abs=4 * (told.high - told.low) / 4)  # four standard errors
        assert abs(told.value - kappa) < 0.13


def test_perfect_annotators_have_agreement_one(small):
    result = crowd_of(small, "bison-verify", 60, 1.0)
    assert (result.krippendorff.value, result.fleiss.value, result.cohen.mean.value) == (1.0, pytest.approx(1), pytest.approx(1))


def test_renumbering_keeps_equal_answers_equal():
    loaded = CountedQuestion(load_design("bison-verify").main_question, ("image-0", "image-1", "both"), is_shuffled=True)
    rng = np.random.default_rng(0)
    item, code = np.repeat(np.arange(300), 3), rng.integers(0, 3, 900)
    anew, told = renumber_choices(item, code, np.full(900, 2), loaded)
    names = np.array(told.answer_names)[anew]
    for n in range(300):
        mine = item == n
        assert (code[mine][:, None] == code[mine]).tolist() == (names[mine][:, None] == names[mine]).tolist()
    assert ((names == "both") == (code == 2)).all()  # a liking for it is a habit
    first = (names[code == 0] == "image-0").mean()
    assert 0.4 < first < 0.6
    several = replace(loaded, question=replace(loaded.question, kind="several"), answer_names=("image-0, image-1, both",))
    assert renumber_choices(np.array([0, 1]), np.zeros(2, np.int64), np.full(2, 2), several)[1].answer_names == (
        "both, image-0, image-1",
    )


def test_reason_names_the_answer(small):
    study_id = add_small_study(small, "recipe.people=2")
    for name in ("anna", "bert"):
        who = add_annotator(small, study_id, name)
        for _ in range(2):
            submit_hit(small, study_id, who, match="no")
    result = measure_agreement(seen(small, study_id), 0)
    assert result.fleiss.value is None
    assert "“no”" in result.fleiss.reason
    assert result.krippendorff.value is None


def test_agreement_is_undefined_for_one_person_per_item(small):
    study_id = add_small_study(small)
    result = measure_agreement(seen(small, study_id), 0)
    assert result.cohen is None
    assert "One person" in result.no_cohen
    assert result.krippendorff.reason == "there are no answers yet."


def test_pairwise_agreement_is_limited_to_the_busiest_people(small, monkeypatch):
    monkeypatch.setattr(annotator_agreement, "MAX_PEOPLE", 2)
    monkeypatch.setattr(annotator_agreement, "MIN_SHARED_ITEMS", 3)
    study_id = add_small_study(small, "recipe.people=3")
    for name, matches in (("anna", ("yes", "no")), ("bert", ("yes", "no")), ("cleo", ("no",))):
        who = add_annotator(small, study_id, name)
        for match in matches:
            submit_hit(small, study_id, who, match=match)
    result = measure_agreement(seen(small, study_id), 0)
    assert (result.left_out, len(result.cohen.pairs)) == (1, 1)
    assert result.cohen.mean.value == pytest.approx(1.0)


def slider_study(campaign, people=3, items=12):
    disable_sync(campaign)
    new_item = [NewItem(f"x{n}", (), ("one", "two")) for n in range(items)]
    study_id = create_study(campaign, load_design("sts", [f"recipe.people={people}"]), new_item, seed="seed")
    rng = np.random.default_rng(1)
    crowd = [add_annotator(campaign, study_id, f"person {n}") for n in range(people)]
    for _ in range(items):
        for who in crowd:
            new_item = assign.claim_hit(campaign, study_id, who)
            number = hit_of(campaign, new_item).items[0].item_id
            constant = who == crowd[-1]
            value = 2.5 if constant else float(np.clip(number % 6 + rng.normal(0, 0.5), 0, 5))
            assign.submit(campaign, new_item, who, [{"similarity": value}])
    return study_id, crowd


def test_slider_agreement_uses_numbers(small):
    study_id, crowd = slider_study(small)
    snapshot = seen(small, study_id)
    triples = standing(small, study_id, "similarity")
    result = measure_agreement(snapshot, 0)
    assert result.krippendorff.value == pytest.approx(krippendorff_alpha(as_answers(triples, float), "interval").value)
    assert result.fleiss.value is None
    assert "slider" in result.no_cohen
    given = defaultdict(dict)
    for number, who, value in triples:
        given[number][who] = value
    people = {summary.person_id: summary for summary in summarise_annotators(snapshot)}
    for who in crowd[:-1]:
        own = [answers[who] for answers in given.values()]
        theirs = [np.mean([v for other, v in answers.items() if other != who]) for answers in given.values()]
        assert people[who].agreement == pytest.approx(np.corrcoef(own, theirs)[0, 1])
    assert people[crowd[-1]].agreement is None  # the same answer throughout has no correlation
    assert (people[crowd[-1]].longest_run, people[crowd[-1]].favourite_share, people[crowd[-1]].favourite_option) == (12, 1.0, 5)


def test_agreement_is_measured_for_each_block_question(small):
    items = [NewItem(f"i{n}", ("a.jpg",), ("one", "two"), "i2t") for n in range(3)]
    items += [NewItem(f"t{n}", ("a.jpg", "b.jpg"), ("one",), "t2i") for n in range(3)]
    study_id = create_study(small, load_design("bivlc-human", ["recipe.people=2"]), items, seed="seed")
    for name in ("anna", "bert"):
        who = add_annotator(small, study_id, name)
        claim_id = assign.claim_hit(small, study_id, who)
        claimed_hit = [
            {"caption": "caption-0"} if study_item.block == "i2t" else {"image": "image-1"}
            for study_item in hit_of(small, claim_id).items
        ]
        assign.submit(small, claim_id, who, claimed_hit)
    snapshot = seen(small, study_id)
    result = [measure_agreement(snapshot, n) for n in range(len(snapshot.questions))]
    assert [(outcome.question.name, outcome.answers) for outcome in result] == [("caption", 6), ("image", 6)]
    assert [outcome.bias[0][1].proportions[0].value for outcome in result] == [1.0, 0.0]


# -- where people differ


def test_items_are_ordered_by_entropy(past):
    campaign, study_id, _ = past
    ranking = rank_disagreement(seen(campaign, study_id))
    given = defaultdict(list)
    for number, _, value in standing(campaign, study_id):
        given[number].append(value)

    def entropy(values):
        shares = [n / len(values) for n in Counter(values).values()]
        return -sum(p * np.log2(p) for p in shares)

    slow = sorted(((round(-entropy(v), 9), number) for number, v in given.items() if len(set(v)) > 1))
    assert ranking.item.tolist() == [number for _, number in slow]
    assert ranking.spread == pytest.approx([-spread for spread, _ in slow])
    assert ranking.answers.tolist() == [len(given[number]) for _, number in slow]


def test_items_are_ordered_by_standard_deviation(small):
    study_id, _ = slider_study(small)
    ranking = rank_disagreement(seen(small, study_id))
    given = defaultdict(list)
    for number, _, value in standing(small, study_id, "similarity"):
        given[number].append(value)
    assert ranking.spread == pytest.approx(sorted((np.std(v) for v in given.values()), reverse=True))
    assert len(ranking.item) == 12


# -- time and money


def test_rejected_hits_are_not_paid_and_late_ones_are(past):
    campaign, study_id, _ = past
    snapshot = seen(campaign, study_id)
    paid = [row for row in done_claims(campaign, study_id) if row.verdict != "reject"]
    cost = compute_cost(snapshot.design.recipe, snapshot.hits, left=4)
    assert (cost.paid_hits, cost.so_far, cost.total) == (
        len(paid),
        pytest.approx(3 * len(paid)),
        pytest.approx(3 * (len(paid) + 4)),
    )
    assert cost.hourly == pytest.approx(np.median([2 * 3600 / (row.submitted - row.at) for row in paid]))
    assert not any(row.slot is None for row in paid)  # a quiz is not paid


def test_times_have_quartiles():
    assert quartiles(np.zeros(0)) is None
    values = quartiles(np.array([4.0, 1.0, 3.0, 2.0]))
    assert (values.low, values.median, values.high) == (1.75, 2.5, 3.25)


def test_time_left_follows_the_latest_hits(small, clock):
    study_id = add_small_study(small, items=18)
    who = add_annotator(small, study_id)
    nothing = seen(small, study_id).hits
    assert estimate_time_left(nothing, 6, clock()) == TimeLeft(None, None, "No counted HIT has been submitted yet.")
    for _ in range(3):
        claim_id = assign.claim_hit(small, study_id, who)
        clock.wait(2)
        assign.submit(small, claim_id, who, answers_to(hit_of(small, claim_id)))
        clock.wait(3)
    time_left = estimate_time_left(seen(small, study_id).hits, 3, clock())
    assert time_left.work_seconds == pytest.approx(3 * 120)
    assert time_left.seconds == pytest.approx(3 * (10 + 3) * 60 / 2)  # two HITs after the first one, in the 13 minutes since
    assert estimate_time_left(seen(small, study_id).hits, 0, clock()) == TimeLeft(0.0, 0.0)
