"""`crossmatch study`, from the items to a result of `crossmatch run`."""

import csv
import json
import re
import subprocess
import sys
import urllib.request
from contextlib import suppress

import pytest
from PIL import Image

from crossmatch.study.simulation.simulate import _free_port
from polling import LIMIT, wait_until

NO_GOLD = ("--set", "recipe.gold_positive=0", "--set", "recipe.gold_negative=0")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Pairs of diorama, some of them gold."""
    path = tmp_path_factory.mktemp("pool") / "pool.csv"
    rows = [(f"test-{i:05d}", f"test-{c:05d}#{n}", "candidate") for i in range(3) for c in range(3) for n in range(2)]
    rows += [(f"test-{i:05d}", f"test-{i:05d}#4", "positive") for i in range(10, 14)]
    rows += [(f"test-{i:05d}", f"test-{i + 7:05d}#1", "negative") for i in range(10, 14)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("image_id", "caption_id", "kind"), *rows])
    return path


@pytest.fixture(scope="module")
def campaign(pool, tmp_path_factory):
    """A study of that pool that artificial people have finished through HTTP."""
    folder = tmp_path_factory.mktemp("campaign") / "S"
    for arguments in (
        ["new", "eccv-hit", "--pool", pool, "--data", "diorama:tiny", "-o", folder, "--set", "recipe.people=2"],
        ["simulate", folder, "--people", "3", "--accuracy", "1"],
    ):
        process = subprocess.run(
            [sys.executable, "-m", "crossmatch", "study", *map(str, arguments)], capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr
    return folder


def test_simulated_study_becomes_judgements_for_run(campaign, tmp_path, crossmatch):
    code, output, _ = crossmatch("study", "verify", campaign)
    assert code == 0
    assert re.match(r"eccv-hit: \d+ events, 40 answers count or await review", output)
    parsed = json.loads(crossmatch("study", "status", campaign, "--json")[1])["eccv-hit"]
    assert (parsed["open"], parsed["held"], parsed["done"]) == (0, 0, 2)
    code, output, _ = crossmatch("study", "export", campaign, "-o", "out")
    assert code == 0
    assert "out/judgements.csv" in output.splitlines()
    with (tmp_path / "out" / "judgements.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["by"] == "artificial annotators"]  # links stand beside them
    assert len(rows) == 18
    assert {row["answers"] for row in rows} == {"2"}
    links = [row for row in rows if row["caption_id"].startswith(row["image_id"])]
    assert {float(row["grade"]) for row in links} == {1.0}  # the captions of a scene are true of it, and everybody is right
    _, output, _ = crossmatch("run", "-m", "random", "-t", "collection:out", "-o", "results", "--json")
    (result,) = json.loads(output).values()
    assert any(key.startswith("t2i/eccv-hit/") for key in result)


@pytest.mark.parametrize("gold", [False, True])
def test_simulation_says_how_many_answers_have_a_known_truth(tmp_path, crossmatch, gold):
    items = [{"image": f"{n}.png", "caption": f"Caption {n}.", "image_id": f"{n}", "caption_id": f"{n}"} for n in range(3)]
    if gold:
        items[0] |= {"gold": {"match": ["yes"]}, "kind": "positive"}
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    for n in range(3):
        Image.new("RGB", (8, 8), (80 * n, 0, 0)).save(tmp_path / f"{n}.png")
    changes = ("--set", f"recipe.gold_positive={int(gold)}", "--set", "recipe.gold_negative=0", "--set", "recipe.people=1")
    assert crossmatch("study", "new", "eccv-hit", "--items", "items.jsonl", "-o", "own", *changes)[0] == 0
    code, output, _ = crossmatch("study", "simulate", "own", "--people", 1, "--accuracy", 1)
    assert code == 0
    note = "% correct of the 1 of 3 answers whose truth is known" if gold else "the truth is not known, so answers are random"
    assert note in " ".join(output.split())
    assert ("100.0" in output) == gold


def test_serve_prints_its_links(campaign):
    port = _free_port()
    arguments = [sys.executable, "-m", "crossmatch", "study", "serve", str(campaign), "--port", str(port)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as server:
        try:
            parsed = [server.stderr.readline() for _ in range(3)]
            links = dict(line.split() for line in parsed[:2])
            assert links.keys() == {"owner", "eccv-hit"}
            assert "Does the description fit the image?" in fetched(links["eccv-hit"], server)
        finally:
            server.terminate()


def fetched(address, server):
    """A page, as soon as the service answers."""

    def read():
        assert server.poll() is None, server.stderr.read()
        with suppress(OSError), urllib.request.urlopen(address, timeout=LIMIT) as page:
            return page.read().decode()

    return wait_until(read)


def test_every_person_gets_a_personal_link(campaign, tmp_path, crossmatch):
    (tmp_path / "people.csv").write_text("person,past_tasks,past_accepted\nAnna,600,0.99\n")
    code, output, _ = crossmatch("study", "invite", campaign, "Ben", "--list", "people.csv", "--url", "https://study.example/")
    links = dict(line.split("\t") for line in output.splitlines())
    assert code == 0
    assert links.keys() == {"Ben", "Anna"}
    assert links["Ben"].startswith("https://study.example/enter/")
    assert links["Ben"] not in crossmatch("study", "invite", campaign, "Ben")[1]  # a new one, and the old one ends


def test_a_study_is_closed_and_reopened(campaign, crossmatch):
    closed = json.loads(crossmatch("study", "status", campaign, "--close", "--json")[1])
    assert closed["eccv-hit"]["accepting"] is False
    assert "closed" in crossmatch("study", "status", campaign)[1]
    assert json.loads(crossmatch("study", "status", campaign, "--reopen", "--json")[1])["eccv-hit"]["accepting"] is True


def test_hits_with_wrong_gold_answers_are_listed_and_reviewed(pool, crossmatch):
    crossmatch("study", "new", "eccv-hit", "--pool", pool, "--data", "diorama:tiny", "-o", "S", "--set", "recipe.people=2")
    assert crossmatch("study", "review", "S")[1] == "eccv-hit: no HIT awaits review\n"
    crossmatch("study", "simulate", "S", "--people", 2, "--yes", 1)  # wrong for every negative gold pair
    table = crossmatch("study", "review", "S")[1]
    assignments = [line.split() for line in table.splitlines() if "artificial-" in line]
    assert len(assignments) == json.loads(crossmatch("study", "status", "S", "--json")[1])["eccv-hit"]["review"] == 2
    (first, *_), (second, *_) = assignments
    code, _, messages = crossmatch("study", "review", "S", "--approve", first, "--reject", second)
    assert code == 0
    assert messages == f"{first}: approve, the answers count\n{second}: reject, the answers do not count\n"
    assert crossmatch("study", "review", "S")[1] == "eccv-hit: no HIT awaits review\n"
    crossmatch("study", "review", "S", "--undo", first)
    assert first in crossmatch("study", "review", "S")[1]
    code, _, message = crossmatch("study", "review", "S", "--reject", first, "--approve", "nonsense")
    assert code == 2
    assert message.startswith(
        "crossmatch: eccv-hit has no submitted assignment 'nonsense'. `crossmatch study review S` lists the IDs."
    )
    assert first in crossmatch("study", "review", "S")[1]  # nothing was changed
    assert crossmatch("study", "review", "S", "--approve", first, "--reject", first)[0] == 2
    assert crossmatch("study", "status", "S", "--close", "--reopen")[0] == 2
    assert crossmatch("study", "new", "sts", "--data", "diorama:tiny", "-o", "S")[0] == 0
    assert crossmatch("study", "review", "S", "--study", "sts", "--approve", first)[0] == 2  # it belongs to another study


def test_second_stage_excludes_the_people_of_the_first(tmp_path, crossmatch):
    assert crossmatch("study", "new", "bison-select", "--data", "diorama:tiny", "--number", 4, "-o", "S")[0] == 0
    assert crossmatch("study", "simulate", "S", "--people", 1, "--accuracy", 1)[0] == 0
    _, _, output = crossmatch("study", "export", "S", "-o", "selected")
    assert "study new bison-verify" in output
    arguments = ("--items", "selected/trials.jsonl", "--data", "diorama:tiny", "--excludes", "bison-select", "-o", "S")
    code, output, err = crossmatch("study", "new", "bison-verify", *arguments)
    assert (code, err) == (0, "")
    assert re.match(r"bison-verify: \d+ items in 1 HITs, 2 assignments", output)
    assert crossmatch("study", "simulate", "S", "--study", "bison-verify", "--people", 2, "--accuracy", 1)[0] == 0
    _, output, err = crossmatch("study", "export", "S", "--study", "bison-verify", "-o", "verified")
    assert "0 rejected" in err
    code, output, _ = crossmatch("run", "-m", "random", "-t", "trials:verified/trials.jsonl", "-o", "r", "--json")
    assert code == 0


def test_the_presets_are_listed(crossmatch):
    _, output, _ = crossmatch("list", "studies")
    assert all(name in output for name in ("eccv-hit", "bison-verify", "bivlc-human", "Bradley".lower()))


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (("new", "eccv-hti", "--data", "diorama:tiny", "-o", "S"), 2, "Did you mean 'eccv-hit'"),
        (("new", "eccv-hit", "-o", "S"), 2, "Choose the items to judge"),
        (("new", "eccv-hit", "--data", "collection:pets", "-o", "S"), 2, "needs --items FILE or --pool FILE"),
        (("new", "sts", "--data", "diorama:tiny", "-o", "S", "--set", "recipe.people=0"), 2, "at least 1"),
        (("new", "sts", "--items", "none.jsonl", "-o", "S"), 2, "none.jsonl"),
        (("new", "sts", "--data", "diorama:tiny", "-o", "S", "--database", "mysql://x"), 2, "PostgreSQL URL"),
        (("serve", "nowhere"), 2, "is not a campaign"),
        (("status", "nowhere"), 2, "is not a campaign"),
        (("review", "nowhere"), 2, "is not a campaign"),
        (("export", "nowhere", "-o", "x"), 2, "is not a campaign"),
        (("invite", "nowhere"), 2, "is not a campaign"),
        (("simulate", "nowhere"), 2, "is not a campaign"),
    ],
)
def test_wrong_usage_is_one_line(arguments, code, output, crossmatch, tmp_path):
    actual_code, _, err = crossmatch("study", *arguments)
    assert (actual_code, len(err.splitlines())) == (code, 1)
    assert output in err
    assert not (tmp_path / "S" / "campaign.db").exists()
