"""Comparisons refuse what is not alike; tables and the page say what was measured, and nothing in them is taken for code."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.benchmark import Benchmark, Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Judgements
from crossmatch.core.scores import Matrix
from crossmatch.core.trials import Trials
from crossmatch.metrics.significance import Draws, compare_replicates, holm, interval, replicates
from crossmatch.metrics.table import metric
from crossmatch.report.compare import compare
from crossmatch.report.html import write_report
from crossmatch.report.tables import Table, as_text, comparison_table, p_value, results_table, value_with_error
from crossmatch.run import evaluate

HELD = Collection.of({f"i{n}": [f"one {n}", f"two {n}"] for n in range(30)})
DATA = Retrieval(HELD, {"links": Judgements.from_links(HELD)})
OWN = Benchmark("own", "", lambda: DATA, ("hit@1", "hit@5"))
FORCED = Trials([f"t{n}" for n in range(40)], [["a", "b"]] * 40, [["x", "y"]] * 40, ["one", "two"] * 20)
TRIALS = Benchmark("forced", "", lambda: FORCED, ("i2t", "t2i", "group"))


class Mixed:
    """Right with noise: better than chance, worse than the oracle."""

    def __init__(self, noise):
        self.noise = noise

    def scores(self, data):
        right = np.zeros(HELD.shape)
        right[tuple(HELD.links.T)] = 1
        return Matrix(HELD.image_ids, HELD.caption_ids, right + self.noise * np.random.default_rng(0).random(HELD.shape))


def result(model="random", benchmark=OWN, **more):
    return evaluate(model, benchmark, **{"samples": 20, **more})


# compare


def test_the_better_model_is_found_whatever_the_unit():
    low, high = (result(m, metrics=("hit@1", "mean-rank")) for m in ("random", "oracle"))
    assert {c.better for c in compare(low, high)} == {1}
    assert {c.better for c in compare(high, low)} == {-1}
    ranks = next(c for c in compare(low, high) if c.first.metric == "mean-rank")
    assert ranks.difference.value < 0  # fewer ranks are better


def test_a_result_is_no_better_than_itself():
    for c in compare(result(), result(name="twin")):
        assert (c.difference.value, c.difference.low, c.difference.high, c.p, c.better) == (0, 0, 0, 1, 0)


def test_the_order_of_two_models_changes_only_the_sign():
    one, two = result(Mixed(3), name="a"), result(Mixed(5), name="b")
    for c, d in zip(compare(one, two), compare(two, one), strict=True):
        assert c.p == d.p
        assert c.difference.value == -d.difference.value
        assert (c.difference.low, c.difference.high) == pytest.approx((-d.difference.high, -d.difference.low))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 1}, "seed:0 against seed:1"),
        ({"samples": 21}, "bootstrap:20 against bootstrap:21"),
        ({"ties": "optimistic"}, "ties:expected against ties:optimistic"),
    ],
)
def test_unequal_protocols_are_refused_and_the_difference_is_named(change, says):
    with pytest.raises(CrossmatchError, match=says):
        compare(result(), result("oracle", **change))


def test_unequal_data_are_refused():
    smaller = Collection.of({f"i{n}": [f"one {n}"] for n in range(30)})
    other = Retrieval(smaller, {"links": Judgements.from_links(smaller)})
    with pytest.raises(CrossmatchError, match=r"data:\w{8} against data:\w{8}"):
        compare(result(), result("oracle", data=other))


def test_sizes_of_the_world_are_not_compared():
    one = evaluate("random", "diorama/retrieval", size="tiny", samples=5, metrics=("hit@1",))
    two = evaluate("oracle", "diorama/retrieval", size="tiny", split="val", samples=5, metrics=("hit@1",))
    with pytest.raises(CrossmatchError, match="split is as usual against val"):
        compare(one, two)


def test_versions_and_tasks_are_not_compared():
    one = result()
    old = replace(one, model="old", rows=tuple(replace(r, signature=r.signature.rsplit("|", 1)[0] + "|v0.0.1") for r in one.rows))
    with pytest.raises(CrossmatchError, match=r"against v0\.0\.1"):
        compare(one, old)
    with pytest.raises(CrossmatchError, match="Compare like with like"):
        compare(one, result(benchmark=TRIALS))
    with pytest.raises(CrossmatchError, match="share no metric"):
        compare(one, result(metrics=("map@r",)))


def test_a_signature_with_a_fact_more_is_refused_too():
    one = result()
    more = replace(one, rows=tuple(replace(r, signature=r.signature + "|folds:5") for r in one.rows))
    with pytest.raises(CrossmatchError, match="cannot be compared"):
        compare(one, more)


def test_the_difference_is_that_of_the_same_draws():
    one, two = result(Mixed(3)), result(Mixed(5))
    found = {c.first.key: c for c in compare(one, two)}
    values = [r.parts["i2t"].values["hit@1"] for r in (one, two)]
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(10):
        times = rng.multinomial(30, np.full(30, 1 / 30), size=1000)
        gaps.append(times @ (values[1] - values[0]) / 30)
    gaps = 100 * np.concatenate(gaps)
    slow_p = min(1.0, 2 * (min((gaps <= 1e-9).sum(), (gaps >= -1e-9).sum()) + 1) / 10_001)
    assert found["i2t/hit@1"].difference.p == pytest.approx(slow_p, abs=1e-12)
    assert (found["i2t/hit@1"].difference.low, found["i2t/hit@1"].difference.high) == pytest.approx(
        tuple(np.quantile(gaps, [0.025, 0.975]))
    )


# Holm and the bootstrap


@given(st.lists(st.floats(1e-4, 1), min_size=1, max_size=12), st.floats(0.001, 0.9))
@settings(max_examples=200, deadline=None)
def test_holm_rejects_what_the_step_down_procedure_rejects(p, level):
    """Smallest first, each against level / (number left), until one fails."""
    rejected = set()
    for step, at in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[at] * (len(p) - step) > level:
            break
        rejected.add(at)
    adjusted = holm(p)
    near = {n for n, q in enumerate(adjusted) if abs(q - level) < 1e-9}  # adjusted values are rounded to 12 digits
    assert {n for n, q in enumerate(adjusted) if q <= level} - near == rejected - near
    assert all(p[n] - 1e-9 <= adjusted[n] <= 1 for n in range(len(p)))


def test_whole_clusters_are_drawn():
    """Two queries of one cluster always count alike: with one cluster every replicate is the value itself."""
    m = metric("hit@1")
    assert set(replicates(m, np.array([1.0, 0.0, 1.0]), Draws.of(np.array([7, 7, 7]), 50))) == {2 / 3}
    found = replicates(m, np.array([1.0, 1.0, 0.0]), Draws.of(np.array([2, 2, 9]), 200))
    assert set(np.round(found, 9)) == {0.0, round(2 / 3, 9), 1.0}


def test_replicates_that_cannot_be_paired_are_refused():
    with pytest.raises(CrossmatchError, match="Use the same number of samples"):
        compare_replicates(np.zeros(3), np.zeros(4), 0.0)


def test_p_is_never_zero_and_never_above_one():
    assert compare_replicates(np.zeros(99), np.ones(99), 1.0).p == pytest.approx(2 / 100)
    assert compare_replicates(np.zeros(99), np.zeros(99), 0.0).p == 1.0
    assert interval(np.full(9, 0.25)) == (0.25, 0.25)


# Tables


def test_every_number_of_a_result_is_in_its_table():
    both = [result(), result("oracle")]
    (table,) = results_table(both)
    text = as_text(table)
    for r in both:
        for row in r.rows:
            assert value_with_error(row) in text
    assert table.title == "own · samples 20"
    assert all(len(line) == len(table.head[0]) for line in (*table.head, *table.rows))


def test_one_table_for_each_task_and_a_dash_for_what_is_missing():
    tables = results_table([result(), result(benchmark=TRIALS), result("oracle", metrics=("hit@1",))])
    assert [t.title for t in tables] == ["own · samples 20", "forced · samples 20"]
    assert "–" in as_text(tables[0])


def test_results_of_other_data_do_not_share_a_table_without_a_word():
    """The same task on another split: its own table, its own column title, or a refusal."""
    both = [
        evaluate(m, "diorama/retrieval", size="tiny", split=s, samples=5, metrics=("hit@1",))
        for m, s in (("random", "test"), ("oracle", "val"))
    ]
    try:
        text = "\n".join(as_text(t) for t in results_table(both))
    except CrossmatchError:
        return
    assert "split val" in text


def test_two_results_of_one_name_do_not_hide_each_other():
    one, two = result(name="m"), result("oracle", name="m")
    try:
        text = "\n".join(as_text(t) for t in results_table([one, two]))
    except CrossmatchError:
        return
    assert value_with_error(one["i2t/hit@1"]) in text
    assert value_with_error(two["i2t/hit@1"]) in text


def test_ties_and_unjudged_are_told_below_the_table():
    class Level:
        def scores(self, data):
            return Matrix(HELD.image_ids, HELD.caption_ids, np.zeros(HELD.shape))

    notes = " ".join(results_table([result(Level(), name="flat")])[0].notes)
    assert "flat: 100.0 % in i2t, 100.0 % in t2i of the queries have a positive in a tie" in notes
    assert "of the first 10 retrieved are unjudged" in notes


def test_a_comparison_names_the_winner_or_says_that_it_cannot_tell():
    low, high = result(), result("oracle")
    text = as_text(comparison_table(compare(low, high), "random", "oracle"))
    assert text.splitlines()[0] == "own: oracle minus random"
    assert all(line.endswith("oracle") for line in text.splitlines()[2:])
    assert all(line.endswith("cannot tell") for line in as_text(comparison_table(compare(low, low), "a", "b")).splitlines()[2:])


@given(st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_p_values_are_written_as_the_style_guides_ask(p):
    text = p_value(p)
    assert text == "< .001" if p < 0.001 else float(text) == pytest.approx(p, abs=0.0005000001)
    assert not text.startswith("0")


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=5), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=50, deadline=None)
def test_columns_are_aligned(lines):
    text = as_text(Table("t", (("a", "b", "c"),), tuple(map(tuple, lines)), 1))
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


def test_the_page_points_at_nothing_outside_itself(page):
    assert all(value.startswith("#") for _, _, value in Page(page).loads)
    assert not set(Page(page).tags) & {"script", "link", "iframe", "object", "embed", "img", "base", "form"}
    assert not re.search(r"@import|url\((?!#)", page)
    left = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    left = re.sub(r'rdf:resource="http://purl.org/dc/dcmitype/StillImage"', "", left)  # a name in the svg's metadata, never fetched
    assert re.findall(r"https?://[^\s\"'<]*", left) == []


def test_the_page_holds_every_value_and_signature(page):
    for r in (result(), result("oracle"), result(benchmark=TRIALS)):
        for row in r.rows:
            assert value_with_error(row) in page
            assert row.signature in page
        assert r.system in page


def test_the_page_is_the_same_each_time(tmp_path):
    same = [replace(result(), seconds={}) for _ in range(2)]
    texts = [write_report([r], tmp_path / f"{n}.html").read_text() for n, r in enumerate(same)]
    assert texts[0] == texts[1]


HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</svg><script>", "{{ 7*7 }}", "&lt;b&gt;", "]]>", "a\nb",
    "$x^2$", "$\\bad$", "$$", "100 %", "_hidden", "模型", "é" * 40, "m" * 300, "🦊",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_is_shown_as_it_is_and_never_run(tmp_path, name):
    path = write_report([result(name=name), result("oracle")], tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    assert not set(Page(text).tags) & {"script", "img"}
    assert all(k in ("href", "xlink:href") for _, k, _ in Page(text).loads)
    from html import unescape

    assert name in unescape(text)
    assert "49" not in re.findall(r"<th>([^<]*)</th>", text)


def test_a_report_of_nothing_is_refused(tmp_path):
    with pytest.raises(CrossmatchError, match="at least one result"):
        write_report([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("metrics", [("median-rank",), ("hit@1",)])
def test_a_page_of_one_metric_of_any_unit(tmp_path, metrics):
    assert write_report([result(metrics=metrics)], tmp_path / "report.html").stat().st_size > 0


def test_a_page_about_one_image_and_one_caption(tmp_path):
    one = Collection.of({"a": ["x"]})
    data = Retrieval(one, {"links": Judgements.from_links(one)})
    assert write_report([result(data=data)], tmp_path / "report.html").stat().st_size > 0


def test_a_third_set_of_judgements_is_drawn_too(tmp_path):
    """Three sets of judgements: each has its line in the plot of hits by depth."""
    sets = {name: Judgements.from_links(HELD, name) for name in ("links", "people", "truth")}
    text = write_report([result(data=Retrieval(HELD, sets))], tmp_path / "report.html").read_text()
    assert all(f"random, by {name}" in text for name in sets)
