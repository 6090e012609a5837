"""The rules of assignment under any sequence of events, held against a model in plain Python.

People come, claim, answer, vanish and come back, too late or not; reviewers change their minds; studies close and open. After each
step no slot is filled twice, nobody has an item twice, and everything can be told from the events.
"""

import contextlib
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from sqlalchemy import select

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment import people
from crossmatch.study.assignment.claims import MAX_LEASES, NoHitAvailableError, claim_hit, save_draft, submit
from crossmatch.study.assignment.displayed_hits import NotFoundError
from crossmatch.study.assignment.review import VERDICTS, ReviewConflictError, review, set_open
from crossmatch.study.database.campaign import create_campaign
from crossmatch.study.database.schema import claim, hit_item, slot
from crossmatch.study.database.verification import verify
from study_lab import WITH_GOLD, Clock, add_annotator, add_small_study, answers_to, disable_sync, hit_of

LEASE = 60.0  # minutes
PEOPLE = 2  # of each HIT
LIMIT = 3  # HITs of a person, in the first study


@dataclass
class Slot:
    """What the model knows of a slot."""

    state: str = "open"
    claim: str = ""
    until: float = 0.0
    again: bool = False  # opened again by a reviewer


@dataclass
class Mine:
    """What the model knows of a claim."""

    study: int
    person: int
    hit: int
    slot: int
    at: float = 0.0
    submitted: bool = False
    counted: bool = False
    had_counted: bool = False
    doubt: bool = False
    verdict: str | None = None


@dataclass
class Model:
    """The rules, said again, slowly."""

    slots: dict[int, Slot] = field(default_factory=dict)  # in the order in which they are handed out
    hits: dict[int, int] = field(default_factory=dict)  # of a slot
    studies: dict[int, int] = field(default_factory=dict)  # of a slot
    items: dict[int, set[int]] = field(default_factory=dict)  # of a HIT
    claims: dict[str, Mine] = field(default_factory=dict)
    had: dict[int, dict[int, int]] = field(default_factory=dict)  # of a person: the HIT in which they had each item
    open: dict[int, bool] = field(default_factory=dict)

    def held(self, study: int, person: int) -> str | None:
        """The claim that a person has not finished and nobody took over."""
        return next(
            (one.claim for number, one in self.slots.items() if one.state == "held" and self.studies[number] == study
             and self.claims[one.claim].person == person), None)  # fmt: skip

    def free(self, study: int, person: int, now: float) -> int | None:
        """The first slot that a person may have."""
        mine = [claim_id for claim_id in self.claims.values() if claim_id.person == person]
        done = [claim_id for claim_id in mine if claim_id.study == study and claim_id.submitted]
        if not self.open[study] or any(claim_id.study != study for claim_id in mine) or (study == 1 and len(done) >= LIMIT):
            return None
        back = [n for n, one in self.slots.items() if one.again or (one.state == "held" and one.until < now)]
        for number in [*back, *(n for n, one in self.slots.items() if one.state == "open")]:  # what came back goes first
            if self.studies[number] != study:
                continue
            hit, had = self.hits[number], self.had.get(person, {})
            seen = any(item in had and had[item] != hit for item in self.items[hit])
            if not seen and all(each.hit != hit for each in done):
                return number
        return None


class Rules(RuleBasedStateMachine):
    """Two studies that exclude each other; HITs share their gold."""

    crowd, claims = Bundle("crowd"), Bundle("claims")

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.clock, self.model = Clock(), Model()
        self.campaign = create_campaign(Path(self.folder.name) / "c", "", self.clock)
        disable_sync(self.campaign)
        more = (*WITH_GOLD, f"recipe.people={PEOPLE}", "recipe.batch=2")
        add_small_study(self.campaign, *more, f"recipe.hits_per_person={LIMIT}", items=8, gold_per_kind=3, name="first")
        add_small_study(self.campaign, *more, items=4, gold_per_kind=2, name="second", excludes=["first"])
        with self.campaign.read_transaction() as connection:
            for row in connection.execute(select(slot).order_by(slot.c.id)):
                self.model.slots[row.id], self.model.hits[row.id], self.model.studies[row.id] = Slot(), row.hit, row.study
            for row in connection.execute(select(hit_item)):
                self.model.items.setdefault(row.hit, set()).add(row.item)
        self.model.open = {1: True, 2: True}

    def teardown(self):
        self.campaign.close()
        self.folder.cleanup()

    # -- what can happen

    @rule(target=crowd)
    def join(self):
        who = add_annotator(self.campaign, 1)
        people.give_consent(self.campaign, 2, who)
        return who

    @rule(minutes=st.sampled_from([1.0, LEASE - 1, LEASE, LEASE + 1]))
    def wait(self, minutes):
        self.clock.wait(minutes)

    @rule(target=claims, who=crowd, study=st.sampled_from([1, 1, 1, 2]))
    def claim(self, who, study):
        model, lease = self.model, self.clock() + 60 * LEASE
        before, number = model.held(study, who), model.free(study, who, self.clock())
        token = self.claimed(study, who)
        if token is None:
            assert (before, number) == (None, None), f"the model has slot {number} for {who}"
            return multiple()
        if before is not None:
            assert token == before
            place = model.slots[model.claims[token].slot]
            place.until = lease if place.until < self.clock() else max(place.until, self.renewed(token))
            return multiple()
        assert number is not None, f"the model has nothing for {who}"
        hit = model.hits[number]
        lost = next(
            (t for t, claim_id in model.claims.items() if (claim_id.person, claim_id.hit, claim_id.submitted) == (who, hit, False)),
            None,
        )
        assert lost in (None, token)
        model.claims[token] = Mine(study, who, hit, number, self.clock() if lost is None else model.claims[token].at)
        model.slots[number] = Slot("held", token, lease)
        for item in model.items[hit]:
            model.had.setdefault(who, {})[item] = hit
        return multiple() if lost else token

    def claimed(self, study, who):
        try:
            return claim_hit(self.campaign, study, who)
        except NoHitAvailableError:
            return None

    def renewed(self, token):
        return min(self.clock() + 60 * LEASE, self.model.claims[token].at + MAX_LEASES * 60 * LEASE)

    @rule(token=claims)
    def draft(self, token):
        """Whoever is at work keeps the HIT, but not for ever."""
        one = self.model.claims[token]
        place, until = self.model.slots[one.slot], self.renewed(token)
        longer = not one.submitted and place.claim == token and place.state == "held" and place.until < until
        assert save_draft(self.campaign, token, one.person, 1, []) == (until if longer else None)
        place.until = until if longer else place.until

    @rule(token=claims, wrong=st.booleans(), match=st.sampled_from(["yes", "no"]))
    def submit(self, token, wrong, match):
        one = self.model.claims[token]
        place = self.model.slots[one.slot]
        receipt = submit(self.campaign, token, one.person, answers_to(hit_of(self.campaign, token), match, wrong))
        assert receipt.is_repeat is one.submitted
        if one.submitted:
            return
        counts = place.state == "held" and place.claim == token
        late = not counts or place.until < self.clock()
        assert (receipt.is_counted, receipt.is_late) == (counts, late)
        one.submitted, one.counted, one.had_counted, one.doubt = True, counts, counts, wrong
        if counts:
            place.state = "review" if wrong else "done"

    @rule(token=claims, who=crowd)
    def meddle(self, token, who):
        """Somebody else submits it, or keeps a draft of it."""
        if self.model.claims[token].person == who:
            return
        for act in (lambda: submit(self.campaign, token, who, []), lambda: save_draft(self.campaign, token, who, 1, [])):
            with contextlib.suppress(NotFoundError):
                act()
                raise AssertionError("another's HIT was touched")

    @rule(token=claims)
    def answer_badly(self, token):
        one = self.model.claims[token]
        if not one.submitted:
            with contextlib.suppress(CrossmatchError):
                submit(self.campaign, token, one.person, [{"match": "perhaps"}] * 4)
                raise AssertionError("an answer that is no option was taken")

    @rule(token=claims, verdict=st.sampled_from(VERDICTS))
    def review(self, token, verdict):
        one = self.model.claims[token]
        if not one.submitted:
            with contextlib.suppress(NotFoundError):
                review(self.campaign, token, None, verdict)
                raise AssertionError("what was not submitted was reviewed")
            return
        if verdict == "approve":
            self.count(token, "done")
        elif one.counted:
            one.counted, self.model.slots[one.slot] = False, Slot(again=True)
        one.verdict = verdict
        assert review(self.campaign, token, None, verdict) is one.counted

    @rule(token=claims)
    def undo(self, token):
        one = self.model.claims[token]
        possible = one.verdict is not None and (one.counted or not one.had_counted or self.open_slot(one) is not None)
        try:
            found = review(self.campaign, token, None, "undo")
        except (ReviewConflictError, NotFoundError):
            assert not possible
            return
        assert possible
        self.count(token, "review" if one.doubt else "done")
        one.verdict = None
        assert found is one.counted

    def open_slot(self, one):
        """Where answers could count again: their own slot, or else another one of the HIT that nobody has."""
        rest = [n for n, each in self.model.slots.items() if self.model.hits[n] == one.hit and each.state == "open"]
        return min(rest, key=lambda n: (n != one.slot, n), default=None)

    def count(self, token, state):
        one = self.model.claims[token]
        number = one.slot if one.counted else self.open_slot(one) if one.had_counted else None
        one.counted = number is not None
        if number is not None:
            one.slot, self.model.slots[number] = number, Slot(state, token)

    @rule(token=consumes(claims))
    def vanish(self, token):
        """Nobody ever hears of this claim again."""

    @rule(study=st.sampled_from([1, 2]))
    def close_or_open(self, study):
        self.model.open[study] = not self.model.open[study]
        set_open(self.campaign, study, self.model.open[study])

    # -- what always holds

    @invariant()
    def slots_are_those_of_the_model(self):
        with self.campaign.read_transaction() as connection:
            query = {row.id: (row.state, row.claim or "") for row in connection.execute(select(slot))}
        assert query == {number: (one.state, one.claim) for number, one in self.model.slots.items()}

    @invariant()
    def nothing_is_filled_twice(self):
        with self.campaign.read_transaction() as connection:
            rows = connection.execute(select(claim)).all()
            query = [row.claim for row in connection.execute(select(slot.c.claim).where(slot.c.claim.is_not(None)))]
        assert max(Counter(row.hit for row in rows if row.counted).values(), default=0) <= PEOPLE
        assert max(Counter(row.slot for row in rows if row.counted).values(), default=0) <= 1
        assert len(query) == len(set(query))  # a slot that is held is held by one claim, and by no other slot's
        answered = Counter((row.person, item) for row in rows if row.submitted for item in self.model.items[row.hit])
        assert max(answered.values(), default=0) <= 1
        assert {row.id: row.counted for row in rows} == {token: claim_id.counted for token, claim_id in self.model.claims.items()}

    @invariant()
    def nobody_is_in_two_studies_that_exclude_each_other(self):
        places = {(claim_id.person, claim_id.study) for claim_id in self.model.claims.values()}
        assert max(Counter(person for person, _ in places).values(), default=0) <= 1

    @invariant()
    def the_events_tell_the_same(self):
        verify(self.campaign)


Rules.TestCase.settings = settings(
    max_examples=30, stateful_step_count=40, suppress_health_check=list(HealthCheck), print_blob=True
)
test_the_rules_of_assignment = Rules.TestCase
