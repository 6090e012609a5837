"""Numbers of the ECCV Caption paper: rank correlations, preferences, annotator bias, and consistency of its tables."""

import csv
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest

from crossmatch.metrics.agreement.annotation_overlap import compare_rankings, overlap
from crossmatch.metrics.bradley_terry import ComparisonCounts, bradley_terry, bradley_terry_interval
from crossmatch.metrics.correlation.kendall_tau import kendall_tau_b, tau_b
from crossmatch.metrics.pool_bias import subset_bias
from crossmatch.report.analysis.metric_correlation import TABLE_5, correlate_metrics, published_scoreboard
from crossmatch.report.published_results import load_published_table

PAPER = "chun2022eccv"

# Table 5: every cell, in the order of `TABLE_5`
RANK_CORRELATIONS = """
-    0.87 0.86 0.94 0.89 0.97 0.92 0.89 0.72 0.39 0.47 0.45
0.87 -    0.97 0.93 0.79 0.88 0.93 0.79 0.81 0.49 0.58 0.39
0.86 0.97 -    0.92 0.77 0.86 0.91 0.77 0.79 0.49 0.57 0.43
0.94 0.93 0.92 -    0.84 0.94 0.95 0.84 0.77 0.43 0.52 0.43
0.89 0.79 0.77 0.84 -    0.89 0.83 1.00 0.65 0.30 0.39 0.45
0.97 0.88 0.86 0.94 0.89 -    0.95 0.89 0.75 0.41 0.50 0.43
0.92 0.93 0.91 0.95 0.83 0.95 -    0.83 0.80 0.47 0.55 0.38
0.89 0.79 0.77 0.84 1.00 0.89 0.83 -    0.65 0.30 0.39 0.45
0.72 0.81 0.79 0.77 0.65 0.75 0.80 0.65 -    0.65 0.74 0.29
0.39 0.49 0.49 0.43 0.30 0.41 0.47 0.30 0.65 -    0.90 0.17
0.47 0.58 0.57 0.52 0.39 0.50 0.55 0.39 0.74 0.90 -    0.20
0.45 0.39 0.43 0.43 0.45 0.43 0.38 0.45 0.29 0.17 0.20 -
"""
PRINTED = np.array([[1.0 if cell == "-" else float(cell) for cell in line.split()] for line in RANK_CORRELATIONS.split("\n")[1:-1]])
PMRP = TABLE_5[-1]
LOWER_BY_A_TIE = {"coco-1k:mean/hit@1", "coco-1k:mean/hit@10", "coco-1k:rsum", "eccv-caption:mean/hit@1"}


# Tables 4, D.2 and D.3 against each other


def halves():
    return load_published_table(PAPER, "Table D.2"), load_published_table(PAPER, "Table D.3")


@pytest.mark.parametrize("key", [key for key in TABLE_5 if key.partition("/")[2] in ("hit@1", "r-precision", "map@r")])
def test_means_of_both_directions_equal_table_4(key):
    complete = load_published_table(PAPER, "Table 4")
    if (complete.models[0], key) not in {(n.model, f"{n.task}:{n.key}") for n in complete.numbers}:
        pytest.fail(f"Table 4 has no {key}")
    for model in complete.models:
        i2t, t2i = (half[model, key.replace("mean", d)].value for half, d in zip(halves(), ("i2t", "t2i"), strict=True))
        assert complete[model, key].value == pytest.approx((i2t + t2i) / 2, abs=0.00501), (
            model
        )  # two decimals of a mean of two decimals


def test_rsum_is_the_sum_of_the_six_recalls():
    complete = load_published_table(PAPER, "Table 4")
    for model in complete.models:
        six = sum(
            half[model, f"coco-1k:{d}/hit@{k}"].value for half, d in zip(halves(), ("i2t", "t2i"), strict=True) for k in (1, 5, 10)
        )
        assert complete[model, "coco-1k:rsum"].value == pytest.approx(six, abs=0.0501), model  # printed with one decimal


def test_pmrp_differs_from_table_4_for_eleven_models_as_noted():
    complete, (d2, d3) = load_published_table(PAPER, "Table 4"), halves()
    off = {}
    for model in complete.models:
        mean = (d2[model, PMRP.replace("mean", "i2t")].value + d3[model, PMRP.replace("mean", "t2i")].value) / 2
        if abs(complete[model, PMRP].value - mean) > 0.00501:
            off[model] = round(complete[model, PMRP].value - mean, 3)
    assert off == {
        "CLIP ViT-B/32": 2.775, "CLIP ViT-B/16": 2.45, "CLIP ViT-L/14": 1.395, "VinVL (zero-shot)": 10.085, "VinVL": -6.54,
        "ViLT (zero-shot)": 2.8, "ViLT": -0.25, "BLIP": -10.565, "PVSE K=1, No NM": 11.825, "PVSE K=1, Semi-hard NM": 8.745,
        "PVSE K=1, Hardest NM": 7.195,
    }  # fmt: skip
    assert list(off) == list(complete.models[14:])
    assert max(abs(d2[m, PMRP.replace("mean", "i2t")].value - d2[m, "cxc:i2t/hit@1"].value) for m in off) < 2.8
    note = d2.notes["pmrp"]
    assert all(word in note for word in ("last 11 models", "-10.56 (BLIP)", "+11.82 (PVSE K=1, No NM)", "within 2.8"))


# Table 5


def test_rank_correlations_equal_table_5():
    result = correlate_metrics(published_scoreboard())
    assert result.board.metrics == TABLE_5
    assert (result.models == 25).all()
    assert not np.ma.getmaskarray(result.tau).any()
    assert np.abs(result.tau - PRINTED).max() < 0.01
    unlike = {(TABLE_5[a], TABLE_5[b]) for a, b in zip(*np.nonzero(result.tau.round(2) != PRINTED), strict=True)}
    assert {pair for pair in unlike if PMRP not in pair} == set()
    assert {a for a, b in unlike if b == PMRP} == LOWER_BY_A_TIE


def test_one_printed_tie_explains_the_difference():
    board = published_scoreboard()
    column = TABLE_5.index(PMRP)
    level = [model for model, value in zip(board.models, board.values[:, column], strict=True) if value == 57.65]
    assert level == ["PCME (CutMix pre-trained)", "VSE∞ (WSL grid)"]
    untied = board.values.copy()
    untied[board.models.index("VSE∞ (WSL grid)"), column] += 0.001
    assert np.array_equal(tau_b(untied).tau.round(2), PRINTED)


def test_pmrp_of_the_appendix_does_not_give_table_5():
    board, (d2, d3) = published_scoreboard(), halves()
    appendix = np.array([d2[m, PMRP.replace("mean", "i2t")].value + d3[m, PMRP.replace("mean", "t2i")].value for m in board.models])
    assert kendall_tau_b(board.values[:, 0], appendix) > 0.65  # printed: 0.45


# Table D.1

PREFERENCES = [[0, 231, 66, 111, 316], [89, 0, 21, 79, 328], [254, 299, 0, 273, 343], [185, 217, 23, 0, 287], [28, 16, 1, 9, 24]]


def test_table_d1_gives_the_preference_scores_with_other_letters():
    strength = bradley_terry(ComparisonCounts.from_matrix(PREFERENCES, "ABCDE"))
    assert sorted(100 * strength, reverse=True) == pytest.approx([70.85, 13.15, 10.66, 4.89, 0.44], abs=0.005)
    text = {"A": 70.85, "B": 13.15, "C": 10.66, "D": 4.89, "E": 0.44}
    row_of = {letter: "ABCDE"[int(np.abs(100 * strength - score).argmin())] for letter, score in text.items()}
    assert row_of == {"A": "C", "B": "D", "C": "A", "D": "B", "E": "E"}


def test_fourth_row_lacks_24_comparisons():
    """(C) became (E) for captions with five positives: 3 captions x 8 people. The counts say which row that is."""
    met = np.array(PREFERENCES) + np.array(PREFERENCES).T
    np.fill_diagonal(met, 0)
    assert met.sum() / 2 + 24 == 3200
    assert met[3].tolist() == [296, 296, 296, 0, 296]
    assert met[:3, 4].tolist() == [344, 344, 344]
    assert PREFERENCES[4][4] == 24


def test_order_of_preference_is_significant_except_in_the_middle():
    low, high = bradley_terry_interval(ComparisonCounts.from_matrix(PREFERENCES))
    a, b, c, d, e = range(5)
    assert high[d] < low[c]
    assert high[b] < low[a]
    assert high[e] < low[b]
    assert low[d] < high[a]  # 13.15 and 10.66 overlap


# Table E.1: rows are models, columns whose proposals were judged, the last column all of them

RECALL_AT_1 = np.array([
    [76.5, 63.6, 67.6, 45.3, 42.0, 76.6], [68.0, 80.1, 69.0, 51.1, 47.2, 80.1], [67.7, 64.3, 77.3, 46.0, 44.1, 77.4],
    [59.5, 59.8, 58.8, 62.0, 49.3, 72.4], [51.7, 51.5, 52.6, 42.8, 49.3, 64.3],
])  # fmt: skip
R_PRECISION = np.array([
    [53.5, 39.4, 42.1, 30.1, 31.3, 42.1], [41.8, 55.9, 41.6, 33.8, 35.9, 43.2], [42.9, 39.9, 54.8, 31.8, 33.8, 43.1],
    [34.0, 34.5, 33.9, 45.5, 37.0, 35.8], [31.0, 31.5, 31.9, 29.6, 39.6, 32.1],
])  # fmt: skip


def test_worked_example():
    result = subset_bias(RECALL_AT_1[:, :5].T, RECALL_AT_1[:, 5], np.eye(5, dtype=bool))
    assert round(float(result.overall[0]), 1) == 9.5  # eq. E.6
    assert round(float(result.self_bias[0]), 1) == 0.1
    assert round(float(result.other_bias[0]), 1) == 11.8


@pytest.mark.parametrize("table", [RECALL_AT_1, R_PRECISION])
def test_bias_of_single_annotators_equals_the_table(table):
    result = subset_bias(table[:, :5].T, table[:, 5], np.eye(5, dtype=bool)).by_size()
    complete, self_part, second = [], [], []
    for theta in range(5):
        apart = [abs(table[phi][theta] - table[phi][5]) for phi in range(5)]
        complete.append(sum(apart) / 5)
        self_part.append(apart[theta])
        second.append((sum(apart) - apart[theta]) / 4)
    assert result == {1: pytest.approx((sum(complete) / 5, sum(self_part) / 5, sum(second) / 5))}


# Table 2 needs the pairs that people verified, which are not published; what the published pairs do tell


def links(name):
    spec = importlib.util.find_spec("eccv_caption")
    if spec is None or spec.origin is None:
        pytest.skip("eccv_caption is not installed; its data are needed")
    read = json.loads((Path(spec.origin).parent / "data" / f"{name}.json").read_text())
    return {int(query): [int(item) for item in items] for query, items in read.items()}


@pytest.mark.parametrize(
    ("judged", "way", "precision", "recall"),
    [
        ("original", "image_to_caption", 99.86, 31.30),
        ("original", "caption_to_image", 100.0, 13.59),
        ("cxc", "image_to_caption", 99.99, 41.92),
        ("cxc", "caption_to_image", 100.0, 18.27),
    ],
)
def test_original_links_and_cxc_against_eccv_caption(judged, way, precision, recall):
    judgements, truth = links(f"{judged}_{way}"), links(f"eccv_{way}")
    result = overlap(judgements, truth)
    hits = {q: len(set(judgements.get(q, [])) & set(items)) for q, items in truth.items()}
    assert result.precision() == pytest.approx(np.mean([hits[q] / len(set(judgements[q])) for q in truth if judgements.get(q)]))
    assert result.recall() == pytest.approx(np.mean([hits[q] / len(set(truth[q])) for q in truth if judgements.get(q)]))
    assert (round(100 * result.precision(), 2), round(100 * result.recall(), 2)) == (precision, recall)


def test_missing_original_links_were_removed_by_the_authors():
    judgements, truth = links("original_image_to_caption"), links("eccv_image_to_caption")
    missing = {caption for image in truth for caption in judgements[image] if caption not in truth[image]}
    assert missing == {75083, 129825, 296557, 375316, 433639, 462530, 576409, 605566, 609235}  # all of them listed in appendix C.1


@pytest.mark.parametrize("of_links", [0, 0.25, 0.5, 0.75, 1])
def test_leaving_out_empty_queries_fits_table_2_and_zero_does_not(of_links):
    """465 positive images come from CxC alone (Table 3). Take so many away, some of them original links; the paper has 16.1."""
    judgements, original, truth = (links(f"{name}_caption_to_image") for name in ("cxc", "original", "eccv"))
    rng = np.random.default_rng(0)
    original_pairs = [(q, i) for q in truth for i in original[q]]
    extra = [(q, i) for q in truth for i in judgements[q] if i not in original[q]]
    assert (len(original_pairs), len(extra)) == (1332, 563)
    many = round(465 * of_links)
    gone = {original_pairs[n] for n in rng.choice(1332, many, replace=False)} | {
        extra[n] for n in rng.choice(563, 465 - many, replace=False)
    }
    people = {q: [i for i in items if (q, i) not in gone] for q, items in truth.items()}
    result = overlap(judgements, people, people)
    assert 0.15 < result.recall() < 0.183
    assert 0.137 < result.recall("zero") < 0.152


# Table A.1


def real_lists():
    """The first 25 images of four small systems: two sorts of TF-IDF, images as BLIP-2's caption or as one of people's."""
    text = pytest.importorskip("sklearn.feature_extraction.text", reason="scikit-learn is not installed")
    data = Path(os.environ.get("CROSSMATCH_DATA", Path(__file__).parents[3] / "shared/data"))
    if not (data / "captions/blip2_results_xe.json").exists():
        pytest.skip(f"no {data}/captions/blip2_results_xe.json")
    with (data / "coco/karpathy_test_captions.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    captions_by_image = {}
    for row in rows:
        captions_by_image.setdefault(row["image_id"], []).append(row["caption"])
    written = json.loads((data / "captions/blip2_results_xe.json").read_text())
    queries = [captions[0] for captions in list(captions_by_image.values())[::20]]
    captions_by_source = {
        "blip-2": [written[i] for i in captions_by_image],
        "people": [captions[1] for captions in captions_by_image.values()],
    }
    lists = {}
    for kind, grams in (("word", (1, 1)), ("char_wb", (3, 4))):
        count = text.TfidfVectorizer(analyzer=kind, ngram_range=grams, sublinear_tf=True).fit(row["caption"] for row in rows[::5])
        for name, texts in captions_by_source.items():
            scores = (count.transform(queries) @ count.transform(texts).T).toarray()
            lists[f"{kind} {name}"] = np.argsort(-scores, axis=1, kind="stable")[:, :25]
    return lists


def test_common_items_give_taus_like_table_a1_and_below_does_not():
    """Printed: tau from -0.013 to 0.430, ranks from 3.87 to 6.24, and tau is positive where the mean rank is above 4."""
    lists = real_lists()
    common, below = (compare_rankings(lists, missing) for missing in ("common", "below"))
    off = ~np.eye(4, dtype=bool)
    assert 0.1 < common.tau[off].min() < common.tau[off].max() < 0.6
    assert 2 < common.mean_rank[off].min() < common.mean_rank[off].max() < 9
    shows = [name.split()[1] for name in lists]
    apart = np.array([[a != b for b in shows] for a in shows])  # systems that see other captions of the images
    assert (below.tau[apart] < -0.3).all()
    assert (below.mean_rank[apart] > 15).all()
    assert (common.shared_items[off] < 18).all()
