"""The annotation service under load: 20 people at once, each a process's thread with a session of its own, all by HTTP.

    python bench/study.py [--annotators 20] [--judgements 2000] [--items 100000] [--only load,sqlite,postgresql]

prints one json line per case. One judgement is a claim and a submission: a HIT of one pair and one gold pair, three people to each,
with sessions, csrf tokens, the chain of events, and a database that has everything on the disk before it says so (SQLite with
synchronous=FULL, PostgreSQL with fsync). The service is a process of its own, as `study serve` starts it; pictures are not fetched.
`p95_ms` is the 95th percentile of the time of a whole judgement, `p95_request_ms` of a single request. Nobody thinks between two
requests, so that 20 people who wait for 200 ms on average make 100 judgements a second and no more. `errors` are answers other
than 200 (nothing is tried twice), `overshoot` are HITs with more answers than were asked for; afterwards the events are replayed
and compared (`study verify`). `service_cpu_ms` is the processor time of the service for one judgement, its start included: it tells
more than the clock where others use the machine too (`load_average`). `stolen_pct` is the share of the machine's time that the host
gave to others meanwhile: where it is not small, the clock tells as much of them as of the service.

The other cases: 100,000 items from a jsonl file in a new study, five answers wanted to each (limit: 60 s), and the owner's page of
that study (limit: 1 s; the slowest of several visits, the first included).
"""

from __future__ import annotations

import argparse
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

from crossmatch.study.begin import NewItem, create_study
from crossmatch.study.client import Client, Failed
from crossmatch.study.design import load_design
from crossmatch.study.items import begin_study, read_items
from crossmatch.study.people import invite
from crossmatch.study.said import find_study, progress
from crossmatch.study.schema import claim
from crossmatch.study.simulate import service
from crossmatch.study.store import create
from crossmatch.study.verify import verify

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import NoPostgres, fresh_database, postgres

PEOPLE = 3  # to each pair
LIMITS = {"load": 60.0, "owner": 1.0}
VISITS = 5
DATABASES = ("sqlite", "postgresql")


def print_case(**line):
    print(json.dumps(line), flush=True)


# -- judgements


def campaign_of(folder, database, judgements):
    """Pairs, each in a HIT of its own with a gold pair of its own: nobody gets gold twice."""
    campaign = create(folder, database)
    (campaign.pictures / "a.jpg").write_bytes(b"not looked at")
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
    """One person: claim and submit until there is nothing more."""
    client = Client(base, patience=0)
    try:
        client.join(link, name)
    except Failed as error:
        errors.append(str(error))
        gate.wait()
        return
    gate.wait()
    while True:
        begun = time.perf_counter()
        try:
            hit = client.claim()
            if isinstance(hit, str):
                break
            claimed = time.perf_counter()
            client.submit(hit["claim"], [{"match": "yes"} for _ in hit["items"]], [4.0 for _ in hit["items"]])
        except Failed as error:
            errors.append(str(error))
            if len(errors) > 100:
                break
        else:
            done = time.perf_counter()
            times.append(done - begun)
            requests.extend((claimed - begun, done - claimed))
    client.close()


def overshoot(campaign):
    """HITs with more answers that count than were asked for."""
    counted = select(claim.c.hit, func.count().label("n")).where(claim.c.counted).group_by(claim.c.hit).subquery()
    with campaign.reading() as connection:
        return connection.execute(select(func.count()).select_from(counted).where(counted.c.n > PEOPLE)).scalar_one()


def cpu_of_services():
    """Seconds of processor time of the services that have ended, starting up included."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def stolen():
    """Ticks of the machine's processors so far: all of them, and those that its host gave to others. Nought where nobody tells."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 0
    return sum(ticks), ticks[7]


def judged(folder, database, kind, annotators, judgements):
    campaign = campaign_of(folder, database, judgements)
    one = find_study(campaign)
    times, requests, errors = [], [], []
    before = cpu_of_services()
    with service(folder) as base:
        gate = threading.Barrier(annotators + 1)
        people = [
            threading.Thread(target=annotate, args=(base, one.link, f"person-{n}", gate, times, requests, errors))
            for n in range(annotators)
        ]
        for each in people:
            each.start()
        gate.wait()
        begun, ticks = time.perf_counter(), stolen()
        for each in people:
            each.join()
        seconds, (every, others) = time.perf_counter() - begun, np.subtract(stolen(), ticks)
    spent = cpu_of_services() - before
    with campaign.reading() as connection:
        far = progress(connection, one.id)
    found = verify(campaign)[0]
    assert found.answers == 2 * far.done == 2 * len(times) or errors, (found, far, len(times))
    print_case(
        workload="study/judgements", database=kind, annotators=annotators, judgements=len(times), seconds=round(seconds, 2),
        judgements_per_s=round(len(times) / seconds, 1), p50_ms=round(1000 * float(np.percentile(times, 50)), 1),
        p95_ms=round(1000 * float(np.percentile(times, 95)), 1), p95_request_ms=round(1000 * float(np.percentile(requests, 95)), 1),
        errors=len(errors), overshoot=overshoot(campaign),
        service_cpu_ms=round(1000 * spent / max(len(times), 1), 1), load_average=round(os.getloadavg()[0], 1),
        stolen_pct=round(100 * float(others) / max(float(every), 1.0), 1),
        missing=far.open + far.held, chain="holds", first_error=errors[0] if errors else "",
    )  # fmt: skip
    campaign.close()


# -- many items


def loaded(folder, database, kind, number):
    campaign = create(folder, database)
    file = folder.parent / "items.jsonl"
    with file.open("w") as out:
        for n in range(number):
            texts = [f"A dog of number {n} runs along the beach.", f"Somebody walks dog number {n} by the sea."]
            out.write(
                json.dumps({"id": f"pair-{n}", "captions": texts, "caption_ids": [f"a{n}", f"b{n}"], "source": "bench"}) + "\n"
            )
    design = load_design("sts")
    begun = time.perf_counter()
    begin_study(campaign, design, read_items(file, design))
    ours = time.perf_counter() - begun
    print_case(
        workload="study/load", database=kind, items=number, slots=number * design.recipe.people, ours_s=round(ours, 2),
        limit_s=LIMITS["load"], limit_ratio=round(ours / LIMITS["load"], 3),
    )  # fmt: skip
    return campaign


def owners_page(campaign, kind, number):
    """The owner's page of a large study with some answers in it; some people are at work at the same time."""
    one = find_study(campaign)
    token = invite(campaign, "bench-owner", "owner")
    with service(campaign.folder) as base:
        worker = Client(base)
        worker.join(one.link, "busy-person")
        for _ in range(20):
            hit = worker.claim()
            worker.submit(hit["claim"], [{"similarity": 2.5}], [3.0])
        owner = Client(base)
        owner.enter(token)
        times, size = [], 0
        for _ in range(VISITS):
            begun = time.perf_counter()
            answer = owner.ask("GET", f"/owner/{one.name}")
            times.append(time.perf_counter() - begun)
            assert answer.status == 200, answer.said
            size = len(answer.body)
    print_case(
        workload="study/owner", database=kind, items=number, visits=VISITS, ours_s=round(max(times), 3), median_s=round(
            float(np.median(times)), 3), page_kb=round(size / 1024), limit_s=LIMITS["owner"],
        limit_ratio=round(max(times) / LIMITS["owner"], 3),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--annotators", type=int, default=20)
    parser.add_argument("--judgements", type=int, default=2000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--only", default="", help="judgements, load, sqlite, postgresql: with commas")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    kinds = [kind for kind in DATABASES if kind in only or not only & set(DATABASES)]
    works = [work for work in ("judgements", "load") if work in only or not only & {"judgements", "load"}]
    with ExitStack() as stack:
        url = ""
        if "postgresql" in kinds:
            try:
                url = stack.enter_context(postgres())
            except NoPostgres as error:
                kinds.remove("postgresql")
                print(f"PostgreSQL is left out: {error}", file=sys.stderr)
        for kind in kinds:
            for work in works:
                place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crossmatch-bench-")))
                database = fresh_database(url) if kind == "postgresql" else ""
                if work == "judgements":
                    judged(place / "S", database, kind, options.annotators, options.judgements)
                else:
                    campaign = loaded(place / "S", database, kind, options.items)
                    owners_page(campaign, kind, options.items)
                    campaign.close()


if __name__ == "__main__":
    main()
