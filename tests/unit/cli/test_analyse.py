"""`crossmatch analyse`: tables, JSON, files, and one line for what is wrong."""

import csv
import json
import re
import shutil
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


# -- ratings of pairs

PAIRS = {
    "judgements.csv": (
        "image_id,caption_id,grade,deviation,source,by,positive_from,sampling_method",
        ["a.png,a.png#0,5,0.1,sits,people,3,c2i_original", "b.png,a.png#0,3.2,0.5,sits,people,3,c2i_intrasim",
         "c.png,a.png#0,0.2,0.3,sits,people,3,c2i_intrasim", "c.png,c.png#0,5,,sits,links,3,"],
    ),
    "judgements_t2t.csv": (
        "caption_id,other_caption_id,grade,deviation,source,by,positive_from,sampling_method",
        ["a.png#0,a.png#1,2,0.4,sts,people,3,c2c_cocaption", "b.png#0,b.png#1,1,0.4,sts,people,3,c2c_cocaption",
         "a.png#0,b.png#0,4.6,0.2,sts,people,3,c2c_isim", "b.png#0,a.png#0,4,0.6,sts,people,3,c2c_isim"],
    ),
    "judgements_i2i.csv": ("image_id,other_image_id,grade,source,positive_from", ["a.png,b.png,2.6,sis,2.5", "a.png,c.png,1,sis,2.5"]),
}  # fmt: skip


@pytest.fixture
def rated(tmp_path):
    """A folder with three coloured images, six captions, and ratings of all three kinds of pairs."""
    pictures = pytest.importorskip("PIL.Image")
    folder = tmp_path / "rated"
    (folder / "images").mkdir(parents=True)
    rows = ["image,caption"]
    for name, colour in (("a.png", (200, 0, 0)), ("b.png", (210, 10, 0)), ("c.png", (0, 0, 200))):
        pictures.new("RGB", (8, 8), colour).save(folder / "images" / name)
        rows += [f"{name},Caption {n} of {name}." for n in range(2)]
    (folder / "captions.csv").write_text("\n".join(rows))
    for name, (header, lines) in PAIRS.items():
        (folder / name).write_text("\n".join((header, *lines)))
    return folder


def test_ratings_by_sampling_method(crossmatch, rated):
    code, out, err = crossmatch("ratings", "-t", f"collection:{rated}", "--json")
    assert (code, err) == (0, "")
    numbers = json.loads(out)
    assert list(numbers) == ["sts", "sis", "sits"]
    methods = {row["method"]: row for row in numbers["sits"]["methods"]}
    assert (methods["all"]["pairs"], methods["all"]["positive"]) == (3, 2), "the link that nobody rated is left out"
    assert methods["c2i_intrasim"]["mean"] == pytest.approx(1.7)
    assert methods["c2i_intrasim"]["deviation"] == pytest.approx(0.4)
    assert numbers["sis"]["methods"][0]["deviation"] is None
    assert numbers["sis"]["positives_per_item"]["image"] == {"items": 3, "counts": [1, 2]}
    assert numbers["sts"]["positives_per_item"]["caption"] == {"items": 4, "counts": [2, 2]}, "one pair in both orders counts once"
    assert numbers["sits"]["positives_per_item"] == {
        "image": {"items": 3, "counts": [1, 2]}, "caption": {"items": 1, "counts": [0, 0, 1]},
    }  # fmt: skip
    code, out, _ = crossmatch("ratings", "-t", f"collection:{rated}")
    assert code == 0
    assert "captions of similar images" in out


def test_page_of_ratings_has_figures_and_examples(crossmatch, rated, tmp_path):
    arguments = ("-t", f"collection:{rated}", "-m", "random", "-o", "page.html", "--examples", "2")
    code, _, err = crossmatch("ratings", *arguments)
    assert (code, err) == (0, "saved page.html\n")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 4
    assert "sts: 50 % of 4 pairs are positive (rated 3 or more)" in page
    assert "Number of such pairs: 1." in page, "captions of a and b, rated in both orders"
    assert page.count("data:image/jpeg;base64,") > 5
    assert page.count('class="label">query<') == 1 + 2, "one rated caption, and two images"
    targets = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert {target.partition(":")[0][:1] for target in targets} == {"d", "#"}, "the page refers to no other file"
    code, _, err = crossmatch("ratings", *arguments)
    assert (tmp_path / "page.html").read_text() == page, "the same page each time"


def test_figures_of_ratings_need_no_model(crossmatch, rated, tmp_path):
    code, _, err = crossmatch("ratings", "-t", f"collection:{rated}", "-o", "figures.svg")
    assert (code, err) == (0, "saved figures.svg\n")
    text = (tmp_path / "figures.svg").read_text()
    assert "How did people rate the pairs?" in text
    assert "Does the model score" not in text


def test_diorama_has_ratings_without_any_data(crossmatch):
    code, out, _ = crossmatch("ratings", "-t", "diorama/cxc", "--size", "tiny", "--json")
    assert code == 0
    numbers = json.loads(out)
    assert {source: row["positive_from"] for source, row in numbers.items()} == {"sts": 3.0, "sis": 2.5, "sits": 3.0}
    code, out, _ = crossmatch("ratings", "-t", "diorama/sis", "--size", "tiny", "--json")
    assert json.loads(out) == {"sis": numbers["sis"]}


def test_text_model_scores_captions_only(crossmatch, rated, tmp_path):
    code, _, _ = crossmatch("ratings", "-t", f"collection:{rated}", "-m", "tfidf", "-o", "page.html")
    assert code == 0
    page = (tmp_path / "page.html").read_text()
    assert "tfidf: sts" in page
    assert "tfidf: sits" not in page
    assert ">query<" not in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-t", "diorama/bison"), "diorama/bison has no ratings of pairs. Use cxc, diorama/cxc"),
        (("-t", "collection:bare"), "collection:bare has no ratings. Add judgements.csv"),
        (("-t", "collection:images-only", "-m", "tfidf"), "tfidf scores t2t only, but the ratings need i2i."),
    ],
)
def test_tasks_without_ratings_are_an_error(crossmatch, rated, tmp_path, arguments, message):
    shutil.copytree(rated, tmp_path / "bare", ignore=shutil.ignore_patterns("judgements*"))
    shutil.copytree(rated, tmp_path / "images-only", ignore=shutil.ignore_patterns("judgements.csv", "judgements_t2t.csv"))
    code, out, err = crossmatch("ratings", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"crossmatch: {message}")


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
