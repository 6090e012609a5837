"""`crossmatch analyse`: tables, JSON, files, and one line for what is wrong."""

import csv
import json
from functools import partial

import pytest


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Saved results of a random scorer on the small world."""
    from crossmatch.data.result import save_result
    from crossmatch.evaluation.evaluate import evaluate

    folder = tmp_path_factory.mktemp("results")
    for task in ("bison", "bivlc", "sugarcrepe"):
        save_result(evaluate("random", f"diorama/{task}", size="tiny"), folder)
    return folder


@pytest.fixture
def crossmatch(crossmatch):
    return partial(crossmatch, "analyse")


BISON = ("-t", "diorama/bison", "--size", "tiny")


def bison(results):
    return results / "random" / "diorama" / "bison+size=tiny.json"


def test_references(crossmatch, tmp_path):
    code, out, err = crossmatch("references", *BISON, "-m", "overlap,tfidf")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "diorama/bison · size tiny"
    assert "references:overlap" in out
    assert not list(tmp_path.iterdir())
    code, out, err = crossmatch("references", *BISON, "-m", "overlap", "-o", "r", "--json")
    assert code == 0
    assert json.loads(out)["references:overlap"]["accuracy"] > 50
    assert err.startswith("saved r/references-overlap~")


def test_references_reports_bad_arguments_in_one_line(crossmatch):
    assert crossmatch("references", *BISON, "-m", "bleu-9")[::2] == (
        2,
        "crossmatch: there is no score references:bleu-9. Use one of references:overlap, references:rouge-1, references:bleu-1, "
        "references:bleu-2, references:bleu-3, references:bleu-4, references:rouge-l, references:cider, references:cider-d, "
        "references:meteor, references:spice, references:tfidf, references:bow, references:minilm, references:sentence.\n",
    )
    code, _, err = crossmatch("references", "-t", "diorama/bivlc", "--size", "tiny")
    assert code == 1
    assert "these trials have 2 captions each" in err
    code, _, err = crossmatch("references", *BISON, "-m", " , ")
    assert (code, err) == (2, "crossmatch: -m names no caption score. Name some: -m overlap,tfidf\n")
    code, _, err = crossmatch("references", *BISON, "--published")
    assert code == 2
    assert "No published numbers for diorama/bison size=tiny" in err


def test_statistics(crossmatch, tmp_path):
    code, out, err = crossmatch("statistics", *BISON, "--source", "references", "-o", "page.html")
    assert (code, err) == (0, "saved page.html\n")
    assert "vocabulary" in out
    assert (tmp_path / "page.html").read_text().count("<svg") == 1
    code, out, _ = crossmatch("statistics", *BISON, "--json")
    assert [one["name"] for one in json.loads(out)["sets"]] == ["diorama/bison"]


def test_scores(crossmatch, results, tmp_path):
    code, out, _ = crossmatch("scores", bison(results))
    assert code == 0
    assert "confidence" in out
    trials = _ids(results)
    with (tmp_path / "length.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["trial_id", "score"], *([name, n] for n, name in enumerate(trials))])
    code, out, err = crossmatch("scores", bison(results), "--by", "length.csv", "-o", "p/length.png", "--json")
    assert (code, err) == (0, "saved p/length.png\n")
    (row,) = json.loads(out)
    assert row["score"] == "length"
    assert row["right"]["n"] + row["wrong"]["n"] == len(trials)
    assert (tmp_path / "p" / "length.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = crossmatch("scores", bison(results), "--by", "length.csv", "--by", "length.csv")
    assert code == 1
    assert err.startswith("crossmatch: length.csv and length.csv both have a score 'length' (a column 'score' is named")
    with (tmp_path / "length.csv").open("a", newline="") as file:
        csv.writer(file).writerow(["stranger", 1])
    code, _, err = crossmatch("scores", bison(results), "--by", "length.csv", "--partial")
    assert code == 1
    assert err.startswith(f"crossmatch: length: 1 of {len(trials) + 1:,} values are for unknown trials, the first for 'stranger'")


@pytest.mark.parametrize("files", [("first",), ("first", "second")])
def test_scores_of_captions_are_a_score_of_trials(crossmatch, results, tmp_path, files):
    """`captions score --per-caption` writes a file for `--by`, for one set of candidates or several."""
    from crossmatch.benchmarks import load_benchmark_data

    collection = load_benchmark_data("diorama/retrieval", size="tiny").collection
    texts, captions = collection.texts(), {}
    for image, caption in collection.links.tolist():
        captions.setdefault(str(collection.image_ids[image]), []).append(texts[caption])
    for n, name in enumerate(files):
        (tmp_path / f"{name}.json").write_text(json.dumps({image: own[n] for image, own in captions.items()}))
    candidates = [word for name in files for word in ("--candidates", f"{name}.json")]
    score = ("captions", "score", *candidates, "--references", "diorama", "--size", "tiny", "--metrics", "bleu-1,cider-d")
    code, _, err = crossmatch.func(*score, "--samples", 10, "--per-caption", "values.csv")
    assert (code, err) == (0, "saved values.csv\n")
    code, out, _ = crossmatch("scores", bison(results), "--by", "values.csv", "--json")
    assert code == 0
    names = [row["score"] for row in json.loads(out)]
    assert names == (["bleu-1", "cider-d"] if len(files) == 1 else [f"{f} {m}" for f in files for m in ("bleu-1", "cider-d")])
    assert all(row["right"]["n"] + row["wrong"]["n"] == len(_ids(results)) for row in json.loads(out))


def _ids(results):
    from crossmatch.data.result import load_result

    return load_result(bison(results)).parts[""].ids.tolist()


def test_gap(crossmatch, results, tmp_path):
    code, out, err = crossmatch("gap", results, "-o", "gap.svg")
    assert (code, err) == (0, "saved gap.svg\n")
    assert out.splitlines()[0] == "diorama/bivlc · size tiny: the two directions and their halves"
    assert "only 1 of the models ran on both" in out
    code, out, _ = crossmatch("gap", results, "--json")
    assert len(json.loads(out)["directions"]) == 3


@pytest.mark.parametrize("arguments", [("gap", "."), ("scores", "x.json"), ("statistics", *BISON)])
def test_a_file_that_cannot_be_written_is_refused_before_any_work(crossmatch, arguments):
    code, out, err = crossmatch(*arguments, "-o", "x.txt")
    assert (code, out) == (2, "")
    assert err.startswith("crossmatch: x.txt: the name must end in .html for a page, or in .png, .svg, .pdf for the figures.")


def test_missing_result_is_reported(crossmatch):
    assert crossmatch("scores", "none.json")[0] == 2
    assert crossmatch("gap", "none")[0] == 2
