"""Comparisons of equal protocols, tables, and the HTML page."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crossmatch.data.benchmark import Benchmark
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.scores import Matrix
from crossmatch.data.trials import Trials
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.metrics.measurement import part_ranks
from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.paired_tests import holm_correction
from crossmatch.report.comparison import compare
from crossmatch.report.html_report import write_report
from crossmatch.report.tables import Table, comparison_table, format_p_value, format_row, format_table, result_tables

COLLECTION = Collection.from_captions({f"i{n}": [f"one {n}", f"two {n}"] for n in range(30)})
DATA = Retrieval(COLLECTION, {"links": Judgements.from_links(COLLECTION)})
OWN = Benchmark("own", "", lambda: DATA, ("hit@1", "hit@5"))
FORCED = Trials([f"t{n}" for n in range(40)], [["a", "b"]] * 40, [["x", "y"]] * 40, ["one", "two"] * 20)
TRIALS = Benchmark("forced", "", lambda: FORCED, ("i2t", "t2i", "group"))


class Mixed:
    """The correct scores with noise: better than chance, worse than the oracle."""

    def __init__(self, noise, seed=0):
        self.noise, self.seed = noise, seed

    def scores(self, data):
        right = np.zeros(COLLECTION.shape)
        right[tuple(COLLECTION.links.T)] = 1
        return Matrix(
            COLLECTION.image_ids,
            COLLECTION.caption_ids,
            right + self.noise * np.random.default_rng(self.seed).random(COLLECTION.shape),
        )


def result(model="random", benchmark=OWN, **options):
    return evaluate(model, benchmark, **{"samples": 20, **options})


# compare


def test_better_model_wins_in_any_unit():
    low, high = (result(m, metrics=("hit@1", "mean-rank")) for m in ("random", "oracle"))
    assert {c.winner for c in compare(low, high)} == {1}
    assert {c.winner for c in compare(high, low)} == {-1}
    ranks = next(c for c in compare(low, high) if c.first.metric == "mean-rank")
    assert ranks.difference.value < 0  # fewer ranks are better


def test_result_ties_with_itself():
    for c in compare(result(), result(name="twin")):
        assert (c.difference.value, c.difference.low, c.difference.high, c.p, c.winner) == (0, 0, 0, 1, 0)


def test_the_order_of_two_models_changes_only_the_sign():
    first, second = result(Mixed(3), name="a"), result(Mixed(5), name="b")
    for c, d in zip(compare(first, second), compare(second, first), strict=True):
        assert c.p == d.p
        assert c.difference.value == -d.difference.value
        assert (c.difference.low, c.difference.high) == pytest.approx((-d.difference.high, -d.difference.low))


def with_signatures(change):
    original = result()
    return replace(original, rows=tuple(replace(r, signature=change(r.signature)) for r in original.rows))


def other_data():
    smaller = Collection.from_captions({f"i{n}": [f"one {n}"] for n in range(30)})
    return result("oracle", data=Retrieval(smaller, {"links": Judgements.from_links(smaller)}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: result("oracle", ties="optimistic"), "ties:expected and ties:optimistic"),
        (other_data, r"data:\w{8} and data:\w{8}"),
        (lambda: with_signatures(lambda signature: signature.rsplit("|", 1)[0] + "|v0.0.1"), r"and v0\.0\.1"),
        (lambda: with_signatures(lambda signature: signature + "|folds:5"), "cannot be compared"),
        (lambda: result(benchmark=TRIALS), "Compare results on the same task"),
        (lambda: result(metrics=("map@r",)), "have no metric in common"),
    ],
)
def test_comparison_of_different_protocols_is_an_error(make, message):
    with pytest.raises(CrossmatchError, match=message):
        compare(result(), make())


def test_comparison_of_different_splits_is_an_error():
    test_split = evaluate("random", "diorama/retrieval", size="tiny", samples=5, metrics=("hit@1",))
    val_split = evaluate("oracle", "diorama/retrieval", size="tiny", split="val", samples=5, metrics=("hit@1",))
    with pytest.raises(CrossmatchError, match="split is the default and val"):
        compare(test_split, val_split)


def slow_t_test(gaps: list[float]) -> tuple[float, float, float]:
    """Student's test of the mean of independent gaps, and one more gap of zero in the variance."""
    n = len(gaps)
    mean = sum(gaps) / n
    error = math.sqrt((sum((gap - mean) ** 2 for gap in gaps) + mean**2) / (n * (n - 1)))
    margin = stats.t(n - 1).ppf(0.975) * error
    return mean - margin, mean + margin, 2 * stats.t(n - 1).sf(abs(mean) / error)


def test_difference_equals_a_paired_t_test():
    first, second = result(Mixed(3)), result(Mixed(5))
    compared = next(c for c in compare(first, second) if c.first.key == "i2t/hit@1").difference
    before, after = (r.parts["i2t"].values["hit@1"] for r in (first, second))
    low, high, p = slow_t_test([100 * float(b - a) for a, b in zip(before, after, strict=True)])
    assert (compared.low, compared.high, compared.p) == (pytest.approx(low), pytest.approx(high), pytest.approx(p))


def test_difference_of_a_total_counts_an_image_once():
    """An image and its two captions are one cluster of all six summands."""
    first, second = result(Mixed(5), metrics=("rsum",)), result(Mixed(5, seed=1), metrics=("rsum",))
    (compared,) = compare(first, second)
    influence: dict[int, float] = {}
    for name in ("i2t", "t2i"):
        for k in (1, 5, 10):
            gaps = [
                (cluster, float(b - a))
                for cluster, a, b in zip(
                    first.parts[name].clusters,
                    metric(f"hit@{k}").values(part_ranks(first.parts[name], "expected")),
                    metric(f"hit@{k}").values(part_ranks(second.parts[name], "expected")),
                    strict=True,
                )
            ]
            mean = sum(gap for _, gap in gaps) / len(gaps)
            for cluster, gap in gaps:
                influence[cluster] = influence.get(cluster, 0.0) + 100 * (gap - mean) / len(gaps)
    n, value = len(influence), compared.difference.value
    error = math.sqrt(n / (n - 1) * (sum(x**2 for x in influence.values()) + (value / n) ** 2))
    assert n == 30
    assert compared.difference.p == pytest.approx(2 * stats.t(n - 1).sf(abs(value) / error))
    assert compared.difference.high - compared.difference.low == pytest.approx(2 * stats.t(n - 1).ppf(0.975) * error)


@pytest.mark.parametrize("task", ["diorama/retrieval", "diorama/sts", "diorama/bison"])
def test_p_agrees_with_the_interval(task):
    """Of every metric, except for McNemar's exact test."""
    first, second = (evaluate(model, task, size="tiny", samples=20) for model in ("random", "tfidf" if "sts" in task else "oracle"))
    for c in compare(first, second):
        if "McNemar" not in c.difference.test:
            assert (c.difference.p < 0.05) == (c.difference.low > 0 or c.difference.high < 0), c.first.key
            assert c.difference.low <= c.difference.value <= c.difference.high


# Holm


@given(st.lists(st.floats(1e-4, 1), min_size=1, max_size=12), st.floats(0.001, 0.9))
def test_holm_rejects_what_the_step_down_procedure_rejects(p, level):
    """Smallest first, each against level / (number left), until one fails."""
    rejected = set()
    for step, at in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[at] * (len(p) - step) > level:
            break
        rejected.add(at)
    adjusted = holm_correction(p)
    near = {n for n, q in enumerate(adjusted) if abs(q - level) < 1e-9}  # adjusted values are rounded to 12 digits
    assert {n for n, q in enumerate(adjusted) if q <= level} - near == rejected - near
    assert all(p[n] - 1e-9 <= adjusted[n] <= 1 for n in range(len(p)))


# Tables


def test_every_number_of_a_result_is_in_its_table():
    results = [result(), result("oracle")]
    (table,) = result_tables(results)
    text = format_table(table)
    for r in results:
        for row in r.rows:
            assert format_row(row) in text
    assert table.title == "own · samples 20"
    assert all(len(line) == len(table.header[0]) for line in (*table.header, *table.rows))


def test_each_task_has_one_table_with_dashes_for_missing_values():
    tables = result_tables([result(), result(benchmark=TRIALS), result("oracle", metrics=("hit@1",))])
    assert [t.title for t in tables] == ["own · samples 20", "forced · samples 20"]
    assert "–" in format_table(tables[0])


def test_results_of_other_data_are_labelled():
    results = [
        evaluate(m, "diorama/retrieval", size="tiny", split=s, samples=5, metrics=("hit@1",))
        for m, s in (("random", "test"), ("oracle", "val"))
    ]
    text = "\n".join(format_table(t) for t in result_tables(results))
    assert "split val" in text


def test_results_with_equal_names_are_both_shown():
    first, second = result(name="m"), result("oracle", name="m")
    text = "\n".join(format_table(t) for t in result_tables([first, second]))
    assert format_row(first["i2t/hit@1"]) in text
    assert format_row(second["i2t/hit@1"]) in text


def test_ties_and_unjudged_shares_are_noted():
    class Level:
        def scores(self, data):
            return Matrix(COLLECTION.image_ids, COLLECTION.caption_ids, np.zeros(COLLECTION.shape))

    notes = " ".join(result_tables([result(Level(), name="flat")])[0].notes)
    assert "flat: share of queries with a positive in a tie: i2t 100.0 %, t2i 100.0 %" in notes
    assert "share of unjudged pairs among the first 10 retrieved" in notes


def test_comparison_table_names_the_better_model():
    low, high = result(), result("oracle")
    text = format_table(comparison_table(compare(low, high), "random", "oracle"))
    assert text.splitlines()[0] == "own: oracle minus random"
    assert all(line.endswith("oracle") for line in text.splitlines()[2:])
    assert all(
        line.endswith("cannot tell") for line in format_table(comparison_table(compare(low, low), "a", "b")).splitlines()[2:]
    )


@given(st.floats(0, 1))
def test_p_values_have_no_leading_zero(p):
    text = format_p_value(p)
    assert text == "< .001" if p < 0.001 else float(text) == pytest.approx(p, abs=0.0005000001)
    assert not text.startswith("0")


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=5), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_columns_are_aligned(lines):
    text = format_table(Table("t", (("a", "b", "c"),), tuple(map(tuple, lines)), 1))
    assert text.splitlines()[0] == "t"
    assert [line.split() for line in text.splitlines()[2:]] == lines


# The page


class Page(HTMLParser):
    """All tags, and every attribute that could load something."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loads = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [
            (tag, k, v)
            for k, v in attributes
            if k in ("src", "href", "xlink:href", "srcset", "action", "data", "poster") or k.startswith("on")
        ]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "deep" / "report.html"
    write_report([result(), result("oracle"), result(benchmark=TRIALS)], path)
    return path.read_text(encoding="utf-8")


def test_page_is_self_contained(page):
    assert all(value.startswith("#") for _, _, value in Page(page).loads)
    assert not set(Page(page).tags) & {"script", "link", "iframe", "object", "embed", "img", "base", "form"}
    assert not re.search(r"@import|url\((?!#)", page)
    text = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    text = re.sub(r'rdf:resource="http://purl.org/dc/dcmitype/StillImage"', "", text)  # a name in the svg's metadata, never fetched
    assert re.findall(r"https?://[^\s\"'<]*", text) == []


def test_page_contains_every_value_and_signature(page):
    for r in (result(), result("oracle"), result(benchmark=TRIALS)):
        for row in r.rows:
            assert format_row(row) in page
            assert row.signature in page
        assert r.system in page


def test_page_is_reproducible(tmp_path):
    same = [replace(result(), seconds={}) for _ in range(2)]
    texts = [write_report([r], tmp_path / f"{n}.html").read_text() for n, r in enumerate(same)]
    assert texts[0] == texts[1]


HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</svg><script>", "{{ 7*7 }}", "&lt;b&gt;", "]]>", "a\nb",
    "$x^2$", "$\\bad$", "$$", "100 %", "_hidden", "模型", "é" * 40, "m" * 300, "🦊",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_model_names_are_escaped(tmp_path, name):
    path = write_report([result(name=name), result("oracle")], tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    assert not set(Page(text).tags) & {"script", "img"}
    assert all(k in ("href", "xlink:href") for _, k, _ in Page(text).loads)
    from html import unescape

    assert name in unescape(text)
    assert "49" not in re.findall(r"<th>([^<]*)</th>", text)


def test_empty_report_is_an_error(tmp_path):
    with pytest.raises(CrossmatchError, match="at least one result"):
        write_report([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("metrics", [("median-rank",), ("hit@1",)])
def test_page_with_a_single_metric(tmp_path, metrics):
    assert write_report([result(metrics=metrics)], tmp_path / "report.html").stat().st_size > 0


def test_page_about_one_image_and_one_caption(tmp_path):
    collection = Collection.from_captions({"a": ["x"]})
    data = Retrieval(collection, {"links": Judgements.from_links(collection)})
    assert write_report([result(data=data)], tmp_path / "report.html").stat().st_size > 0


def test_three_sets_of_judgements_are_drawn(tmp_path):
    """Three sets of judgements: each has its line in the plot of hits by depth."""
    sets = {name: Judgements.from_links(COLLECTION, name) for name in ("links", "people", "truth")}
    text = write_report([result(data=Retrieval(COLLECTION, sets))], tmp_path / "report.html").read_text()
    assert all(f"random, by {name}" in text for name in sets)
