"""What a claim costs: as much for a person who did hundreds of HITs as for one who has just come, by the rows that are visited."""

import json
import re

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.event import listens_for

from crossmatch.study.assignment import people
from crossmatch.study.assignment.claims import claim_hit
from crossmatch.study.assignment.review import set_open
from crossmatch.study.database import queries
from crossmatch.study.database.schema import barred, claim, slot
from study_lab import add_annotator, add_small_study, claim_row, database_of, new_campaign, refusal_reason, submit_hit

HITS, DONE = 600, 500


@pytest.fixture
def crowded(campaign):
    """A study of HITs of one item for five people each; somebody has done most of them, and nobody else any."""
    study = add_small_study(campaign, "recipe.people=5", "recipe.batch=1", items=HITS)
    diligent, fresh = add_annotator(campaign, study), add_annotator(campaign, study)
    did(campaign, study, diligent, DONE)
    return campaign, study, diligent, fresh


def did(campaign, study, who, number):
    """As if they had claimed and submitted the first so many HITs, without the events."""
    with campaign.write_transaction() as connection:
        rows = connection.execute(
            select(slot.c.id, slot.c.hit).where(slot.c.study == study, slot.c.number == 0).order_by(slot.c.id)
        )
        mine = rows.all()[:number]
        done = {"study": study, "person": who, "at": 1.0, "submitted": 2.0}
        connection.execute(insert(claim), [{"id": f"{row.id:032x}", "hit": row.hit, "slot": row.id, **done} for row in mine])
        connection.execute(insert(barred), [{"person": who, "hit": row.hit} for row in mine])
        values = {"state": "done", "person": who}
        connection.execute(update(slot).where(slot.c.id.in_([row.id for row in mine])).values(**values))
        if campaign.engine.dialect.name == "postgresql":
            connection.execute(text("ANALYZE"))


def visited(campaign, study, who, limit=queries.NO_LIMIT):
    """The steps of SQLite's machine, or the rows of PostgreSQL's plan, of the one statement that takes a slot; it is undone."""
    values = {"person_id": who, "study_id": study, "now": campaign.now(), "hit_limit": limit}
    values |= {"claim_id": "f" * 32, "lease_end": campaign.now() + 60}
    steps = 0

    def step():
        nonlocal steps
        steps += 1

    with campaign.write_transaction() as connection:
        raw = connection.connection.dbapi_connection
        if campaign.engine.dialect.name == "postgresql":
            made = queries.TAKE_SLOT.compile(dialect=campaign.engine.dialect, compile_kwargs={"render_postcompile": True})
            found = raw.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {made}", {**made.params, **values}).fetchone()[0]
            steps = rows_of((json.loads(found) if isinstance(found, str) else found)[0]["Plan"])
        else:
            raw.set_progress_handler(step, 1)
            connection.execute(queries.TAKE_SLOT, values).first()
            raw.set_progress_handler(None, 1)
        connection.rollback()
    return steps


def rows_of(plan):
    """All rows that a plan touched, those that a filter threw away too."""
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return own + sum(rows_of(each) for each in plan.get("Plans", ()))


def test_slot_search_does_not_grow_with_finished_hits(crowded):
    campaign, study, diligent, fresh = crowded
    few = visited(campaign, study, fresh)
    assert visited(campaign, study, diligent) < 2 * few + 50  # the four open slots of their last HIT, and not those of 500
    mine = claim_row(campaign, claim_hit(campaign, study, diligent))
    with campaign.read_transaction() as connection:
        hits = connection.execute(select(slot.c.hit).distinct().order_by(slot.c.hit)).scalars().all()
    assert mine.hit == hits[DONE]


def test_cost_of_a_claim_does_not_grow_with_finished_hits(small):
    """Of all its statements together, by the steps of SQLite's machine."""
    study = add_small_study(small, "recipe.people=5", "recipe.batch=1", items=HITS)
    diligent, fresh = add_annotator(small, study), add_annotator(small, study)
    did(small, study, diligent, DONE)
    steps = []

    @listens_for(small.engine, "checkout")
    def count(raw, *_):
        raw.set_progress_handler(lambda: steps.append(1), 1)

    costs = []
    for who in (fresh, diligent):
        steps.clear()
        claim_hit(small, study, who)
        costs.append(len(steps))
    assert costs[1] < costs[0] + 300


@pytest.mark.postgres
def test_postgresql_finds_slots_by_index(request, tmp_path):
    """It plans a statement that it was given often for any values, and then knows an index of open slots alone only by the text."""
    with new_campaign(tmp_path / "campaign", database_of("postgresql", request)) as campaign:
        study = add_small_study(campaign, "recipe.people=2", "recipe.batch=1", items=100)
        early = [add_annotator(campaign, study) for _ in range(2)]
        for who in early * 80:
            submit_hit(campaign, study, who)
        fresh = add_annotator(campaign, study)
        expected = {"person_id": fresh, "study_id": study, "now": 0.0, "hit_limit": 9, "claim_id": "f"}
        with campaign.write_transaction() as connection:
            made = queries.TAKE_SLOT.compile(dialect=campaign.engine.dialect)
            names = sorted(made.params)
            asked = re.sub(r"%\((\w+)\)s", lambda item: f"${names.index(item[1]) + 1}", str(made))
            values = [repr({**made.params, **expected, "lease_end": 1.0}[name]) for name in names]
            raw = connection.connection.dbapi_connection
            # Autovacuum may have counted the rows at any moment, and a table of three pages is cheaper to read as a whole.
            raw.execute("ANALYZE")
            raw.execute("SET LOCAL enable_seqscan = off")
            raw.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            raw.execute(f"PREPARE take AS {asked}")
            plan = raw.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE take({', '.join(values)})").fetchone()[0][0]["Plan"]
            connection.rollback()
        assert rows_of(plan) < 30


@pytest.mark.parametrize("why", ["limit", "closed"])
def test_ineligible_person_causes_no_slot_search(crowded, why):
    campaign, study, diligent, fresh = crowded
    if why == "closed":
        set_open(campaign, study, False)
    assert visited(campaign, study, diligent, 0 if why == "limit" else queries.NO_LIMIT) < visited(campaign, study, fresh) + 10


def test_claim_reads_each_open_slot_once(campaign):
    study = add_small_study(campaign, "recipe.people=5", "recipe.batch=1", items=HITS)
    diligent = add_annotator(campaign, study)
    did(campaign, study, diligent, HITS)
    each = 12 if campaign.engine.dialect.name == "sqlite" else 3  # steps or rows for one of the 2,400, and for one of the 600
    assert visited(campaign, study, diligent) < each * 5 * HITS
    assert refusal_reason(campaign, study, diligent) == "none"


def test_exclusion_check_uses_the_index(crowded):
    """Their claims here are not looked at one by one to see whether they took part elsewhere."""
    campaign, _, diligent, fresh = crowded
    other = add_small_study(campaign, name="other", excludes=["eccv-hit"])
    for who in (diligent, fresh):
        people.give_consent(campaign, other, who)
    assert visited(campaign, other, diligent) < visited(campaign, other, fresh) + 10
    assert refusal_reason(campaign, other, diligent) == "excluded"
    assert claim_hit(campaign, other, fresh)
