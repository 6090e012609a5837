"""`crossmatch study`, from the items to a result of `crossmatch run`."""

import csv
import json
import re
import subprocess
import sys
import time
import urllib.request

import pytest

from crossmatch.study.simulate import _free_port

NO_GOLD = ("--set", "recipe.gold_positive=0", "--set", "recipe.gold_negative=0")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Pairs of the embedded world, with gold ones among them."""
    file = tmp_path_factory.mktemp("pool") / "pool.csv"
    rows = [(f"test-{i:05d}", f"test-{c:05d}#{n}", "candidate") for i in range(3) for c in range(3) for n in range(2)]
    rows += [(f"test-{i:05d}", f"test-{i:05d}#4", "positive") for i in range(10, 14)]
    rows += [(f"test-{i:05d}", f"test-{i + 7:05d}#1", "negative") for i in range(10, 14)]
    with file.open("w", newline="") as held:
        csv.writer(held).writerows([("image_id", "caption_id", "kind"), *rows])
    return file


@pytest.fixture(scope="module")
def campaign(pool, tmp_path_factory):
    """A study of that pool that artificial people have finished through HTTP."""
    folder = tmp_path_factory.mktemp("campaign") / "S"
    for words in (
        ["new", "eccv-hit", "--pool", pool, "--data", "diorama:tiny", "-o", folder, "--set", "recipe.people=2"],
        ["simulate", folder, "--people", "3", "--accuracy", "1"],
    ):
        done = subprocess.run([sys.executable, "-m", "crossmatch", "study", *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder


def test_a_simulated_study_becomes_judgements_that_run_uses(campaign, tmp_path, crossmatch):
    code, said, _ = crossmatch("study", "verify", campaign)
    assert code == 0
    assert re.match(r"eccv-hit: \d+ events, 40 answers count", said)
    told = json.loads(crossmatch("study", "status", campaign, "--json")[1])["eccv-hit"]
    assert (told["open"], told["held"], told["done"]) == (0, 0, 2)
    code, said, _ = crossmatch("study", "export", campaign, "-o", "out")
    assert code == 0
    assert "out/judgements.csv" in said.splitlines()
    with (tmp_path / "out" / "judgements.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["by"] == "people"]  # links stand beside them
    assert len(rows) == 18
    assert {row["answers"] for row in rows} == {"2"}
    links = [row for row in rows if row["caption_id"].startswith(row["image_id"])]
    assert {float(row["grade"]) for row in links} == {1.0}  # the captions of a scene are true of it, and everybody is right
    _, said, _ = crossmatch("run", "-m", "random", "-t", "collection:out", "-o", "results", "--json")
    (result,) = json.loads(said).values()
    assert any(key.startswith("t2i/eccv-hit/") for key in result)


def test_the_service_opens_and_says_where(campaign):
    port = _free_port()
    words = [sys.executable, "-m", "crossmatch", "study", "serve", str(campaign), "--port", str(port)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        try:
            told = [server.stderr.readline() for _ in range(3)]
            links = dict(line.split() for line in told[:2])
            assert links.keys() == {"owner", "eccv-hit"}
            assert "Does the description fit the picture?" in fetched(links["eccv-hit"], server)
        finally:
            server.terminate()


def fetched(address, server):
    """A page, as soon as the service answers."""
    for n in range(100):
        try:
            with urllib.request.urlopen(address, timeout=5) as page:
                return page.read().decode()
        except OSError:
            assert server.poll() is None, server.stderr.read()
            time.sleep(0.1 + n / 100)
    raise AssertionError("the service never answered")


def test_people_are_invited_each_by_a_link_of_their_own(campaign, tmp_path, crossmatch):
    (tmp_path / "people.csv").write_text("person,past_tasks,past_accepted\nAnna,600,0.99\n")
    code, said, _ = crossmatch("study", "invite", campaign, "Ben", "--list", "people.csv", "--url", "https://study.example/")
    links = dict(line.split("\t") for line in said.splitlines())
    assert code == 0
    assert links.keys() == {"Ben", "Anna"}
    assert links["Ben"].startswith("https://study.example/enter/")
    assert links["Ben"] not in crossmatch("study", "invite", campaign, "Ben")[1]  # a new one, and the old one ends


def test_a_study_is_closed_and_opened_again(campaign, crossmatch):
    assert crossmatch("study", "close", campaign)[1] == "eccv-hit is closed\n"
    assert json.loads(crossmatch("study", "status", campaign, "--json")[1])["eccv-hit"]["accepting"] is False
    assert crossmatch("study", "close", campaign, "--reopen")[1] == "eccv-hit is open\n"


def test_a_second_stage_excludes_the_people_of_the_first(tmp_path, crossmatch):
    assert crossmatch("study", "new", "bison-select", "--data", "diorama:tiny", "--number", 4, "-o", "S")[0] == 0
    assert crossmatch("study", "simulate", "S", "--people", 1, "--accuracy", 1)[0] == 0
    _, _, said = crossmatch("study", "export", "S", "-o", "selected")
    assert "study new bison-verify" in said
    words = ("--items", "selected/trials.jsonl", "--data", "diorama:tiny", "--excludes", "bison-select", "-o", "S")
    code, said, err = crossmatch("study", "new", "bison-verify", *words)
    assert (code, err) == (0, "")
    assert re.match(r"bison-verify: \d+ items in 1 HITs, 2 answers", said)
    assert crossmatch("study", "simulate", "S", "--study", "bison-verify", "--people", 2, "--accuracy", 1)[0] == 0
    _, said, err = crossmatch("study", "export", "S", "--study", "bison-verify", "-o", "verified")
    assert "0 refused" in err
    code, said, _ = crossmatch("run", "-m", "random", "-t", "trials:verified/trials.jsonl", "-o", "r", "--json")
    assert code == 0


def test_the_presets_are_listed(crossmatch):
    _, said, _ = crossmatch("study", "presets")
    assert all(name in said for name in ("eccv-hit", "bison-verify", "bivlc-human", "Bradley".lower()))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("new", "eccv-hti", "--data", "diorama:tiny", "-o", "S"), 2, "Did you mean 'eccv-hit'"),
        (("new", "eccv-hit", "-o", "S"), 2, "say what is to be judged"),
        (("new", "eccv-hit", "--data", "collection:pets", "-o", "S"), 2, "does not say which of it"),
        (("new", "sts", "--data", "diorama:tiny", "-o", "S", "--set", "recipe.people=0"), 2, "at least 1"),
        (("new", "sts", "--items", "none.jsonl", "-o", "S"), 2, "none.jsonl"),
        (("new", "sts", "--data", "diorama:tiny", "-o", "S", "--database", "mysql://x"), 2, "PostgreSQL URL"),
        (("serve", "nowhere"), 2, "is no campaign"),
        (("status", "nowhere"), 2, "is no campaign"),
        (("export", "nowhere", "-o", "x"), 2, "is no campaign"),
        (("invite", "nowhere"), 2, "is no campaign"),
        (("simulate", "nowhere"), 2, "is no campaign"),
    ],
)
def test_wrong_words_are_one_line(words, code, said, crossmatch, tmp_path):
    found, _, err = crossmatch("study", *words)
    assert (found, len(err.splitlines())) == (code, 1)
    assert said in err
    assert not (tmp_path / "S" / "campaign.db").exists()
