"""The annotation service under load: 20 annotators at once by HTTP, each a thread with its own session.

    python bench/study.py [--annotators 20] [--judgements 2000] [--items 100000] [--only load,sqlite,postgresql]

prints one json line per case. A judgement is a claim and a submission: a HIT of one pair and one gold pair, three people for each,
with sessions, CSRF tokens, the event chain, and a durable database (SQLite with synchronous=FULL, PostgreSQL with fsync). The
service is a separate process, as started by `study serve`; images are not fetched. Annotators do not pause, so that 20 of them
who wait 200 ms on average make 100 judgements per second.

    p95_ms           95th percentile of the time of a judgement; p95_request_ms: of a request
    errors           responses other than 200 (no request is repeated)
    overshoot        HITs with more answers than required; afterwards the events are replayed and compared (`study verify`)
    service_cpu_ms   processor time of the service per judgement, including its start; depends little on other load (`load_average`)
    stolen_pct       share of the machine's time that its host gave to others; if it is large, the times are not reliable

Further cases: adding 100,000 items from a jsonl file to a new study with five answers each (limit: 60 s), and the owner's page of
that study (limit: 1 s for the slowest of several visits).
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from sqlalchemy import func, select

from crossmatch.study.assignment.people import invite
from crossmatch.study.database.campaign import create_campaign
from crossmatch.study.database.schema import claim
from crossmatch.study.database.verification import verify
from crossmatch.study.design.add_study import add_study, create_study
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.item_files import read_items
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.results.progress import count_slots
from crossmatch.study.simulation.http_client import Client, RequestFailedError
from crossmatch.study.simulation.simulate import service
from crossmatch.study.study import find_study

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import PostgresNotFoundError, fresh_database, postgres
from timing import make_parser

PEOPLE = 3  # per pair
LIMITS = {"load": 60.0, "owner": 1.0}
VISITS = 5
DATABASES = ("sqlite", "postgresql")


def print_case(**line):
    print(json.dumps(line), flush=True)


# -- judgements


def make_campaign(folder, database, judgements):
    """Make a campaign of HITs with one pair and one gold pair each; no gold pair is repeated."""
    campaign = create_campaign(folder, database)
    (campaign.images_folder / "a.jpg").write_bytes(b"not opened")
    design = load_design(
        "eccv-hit", [f"recipe.people={PEOPLE}", "recipe.batch=1", "recipe.gold_positive=1", "recipe.gold_negative=0"]
    )
    pairs = -(-judgements // PEOPLE)
    items = [NewItem(f"p{n}", ("a.jpg",), (f"A dog of number {n}.",)) for n in range(pairs)]
    gold = {"match": ("yes", "weak-yes")}
    items += [NewItem(f"g{n}", ("a.jpg",), (f"A cat of number {n}.",), gold=gold, kind="positive") for n in range(pairs)]
    create_study(campaign, design, items, name="load")
    return campaign


def annotate(base, link, name, gate, times, requests, errors):
    """Claim and submit until no HIT is left."""
    client = Client(base, patience=0)
    try:
        client.join(link, name)
    except RequestFailedError as error:
        errors.append(str(error))
        gate.wait()
        return
    gate.wait()
    while True:
        start = time.perf_counter()
        try:
            hit = client.claim()
            if isinstance(hit, str):
                break
            claimed = time.perf_counter()
            client.submit(hit["claim"], [{"match": "yes"} for _ in hit["items"]], [4.0 for _ in hit["items"]])
        except RequestFailedError as error:
            errors.append(str(error))
            if len(errors) > 100:
                break
        else:
            done = time.perf_counter()
            times.append(done - start)
            requests.extend((claimed - start, done - claimed))
    client.close()


def overshoot(campaign):
    """Number of HITs with more counted answers than required."""
    counted = select(claim.c.hit, func.count().label("n")).where(claim.c.counted).group_by(claim.c.hit).subquery()
    with campaign.read_transaction() as connection:
        return connection.execute(select(func.count()).select_from(counted).where(counted.c.n > PEOPLE)).scalar_one()


def cpu_of_services():
    """Processor time in seconds of all services that have ended, including their start."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def processor_ticks():
    """Processor ticks of the machine so far: all, and those that its host gave to others; 0 if unknown."""
    try:
        ticks = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 0
    return sum(ticks), ticks[7]


def judgements_case(folder, database, kind, annotators, judgements):
    campaign = make_campaign(folder, database, judgements)
    study = find_study(campaign)
    times, requests, errors = [], [], []
    cpu_before = cpu_of_services()
    with service(folder) as base:
        gate = threading.Barrier(annotators + 1)
        people = [
            threading.Thread(target=annotate, args=(base, study.link, f"person-{n}", gate, times, requests, errors))
            for n in range(annotators)
        ]
        for person in people:
            person.start()
        gate.wait()
        start, ticks_before = time.perf_counter(), processor_ticks()
        for person in people:
            person.join()
        seconds, (all_ticks, stolen_ticks) = time.perf_counter() - start, np.subtract(processor_ticks(), ticks_before)
    spent = cpu_of_services() - cpu_before
    with campaign.read_transaction() as connection:
        slots = count_slots(connection, study.id)
    verified = verify(campaign)[0]
    assert verified.answers == 2 * slots.done == 2 * len(times) or errors, (verified, slots, len(times))
    print_case(
        workload="study/judgements", database=kind, annotators=annotators, judgements=len(times), seconds=round(seconds, 2),
        judgements_per_s=round(len(times) / seconds, 1), p50_ms=round(1000 * float(np.percentile(times, 50)), 1),
        p95_ms=round(1000 * float(np.percentile(times, 95)), 1), p95_request_ms=round(1000 * float(np.percentile(requests, 95)), 1),
        errors=len(errors), overshoot=overshoot(campaign),
        service_cpu_ms=round(1000 * spent / max(len(times), 1), 1), load_average=round(os.getloadavg()[0], 1),
        stolen_pct=round(100 * float(stolen_ticks) / max(float(all_ticks), 1.0), 1),
        missing=slots.left, chain="holds", first_error=errors[0] if errors else "",
    )  # fmt: skip
    campaign.close()


# -- many items


def load_case(folder, database, kind, number):
    campaign = create_campaign(folder, database)
    file = folder.parent / "items.jsonl"
    with file.open("w") as out:
        for n in range(number):
            texts = [f"A dog of number {n} runs along the beach.", f"Somebody walks dog number {n} by the sea."]
            out.write(
                json.dumps({"id": f"pair-{n}", "captions": texts, "caption_ids": [f"a{n}", f"b{n}"], "source": "bench"}) + "\n"
            )
    design = load_design("sts")
    start = time.perf_counter()
    add_study(campaign, design, read_items(file, design))
    ours = time.perf_counter() - start
    print_case(
        workload="study/load", database=kind, items=number, slots=number * design.recipe.people, ours_s=round(ours, 2),
        limit_s=LIMITS["load"], limit_ratio=round(ours / LIMITS["load"], 3),
    )  # fmt: skip
    return campaign


def owner_case(campaign, kind, number):
    """Time the owner's page of a large study with some answers."""
    study = find_study(campaign)
    token = invite(campaign, "bench-owner", "owner")
    with service(campaign.folder) as base:
        worker = Client(base)
        worker.join(study.link, "busy-person")
        for _ in range(20):
            hit = worker.claim()
            worker.submit(hit["claim"], [{"similarity": 2.5}], [3.0])
        owner = Client(base)
        owner.enter(token)
        times, size = [], 0
        for _ in range(VISITS):
            start = time.perf_counter()
            response = owner.request("GET", f"/owner/{study.name}")
            times.append(time.perf_counter() - start)
            assert response.status == 200, response.text
            size = len(response.body)
    print_case(
        workload="study/owner", database=kind, items=number, visits=VISITS, ours_s=round(max(times), 3), median_s=round(
            float(np.median(times)), 3), page_kb=round(size / 1024), limit_s=LIMITS["owner"],
        limit_ratio=round(max(times) / LIMITS["owner"], 3),
    )  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__, annotators=20, judgements=2000, items=100_000)
    parser.add_argument("--only", default="", help="judgements, load, sqlite, postgresql: separated by commas")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    kinds = [kind for kind in DATABASES if kind in only or not only & set(DATABASES)]
    cases = [case for case in ("judgements", "load") if case in only or not only & {"judgements", "load"}]
    with ExitStack() as stack:
        url = ""
        if "postgresql" in kinds:
            try:
                url = stack.enter_context(postgres())
            except PostgresNotFoundError as error:
                kinds.remove("postgresql")
                print(f"PostgreSQL is skipped: {error}", file=sys.stderr)
        for kind in kinds:
            for case in cases:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crossmatch-bench-")))
                database = fresh_database(url) if kind == "postgresql" else ""
                if case == "judgements":
                    judgements_case(folder / "S", database, kind, options.annotators, options.judgements)
                else:
                    campaign = load_case(folder / "S", database, kind, options.items)
                    owner_case(campaign, kind, options.items)
                    campaign.close()


if __name__ == "__main__":
    main()
