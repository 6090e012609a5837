"""BiVLC's and SugarCrepe's published tables from the outcomes that their authors published (miranda2024bivlc, tab. 2 to 4)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from crossmatch.benchmarks import load_benchmark_data
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.report.comparison import compare

pytestmark = pytest.mark.usefixtures("real_data")
NAMES = {"CLIP": "ViT-B-32", "CLIP_COCO": "CLIP_COCO", "CLIP_TROHN-Text": "CLIP_TROHN-Text"}
# SugarCrepe; I2T, T2I, Group; Ipos2T, Ineg2T, Tpos2I, Tneg2I: tables 2 and 3 as printed
TABLE_3 = {
    "CLIP": (76.56, 75.83, 52.40, 49.06, 84.32, 89.50, 69.21, 82.82),
    "CLIP_COCO": (84.66, 82.75, 63.89, 60.96, 89.06, 91.75, 72.79, 90.86),
    "CLIP_TROHN-Text": (93.40, 78.18, 62.19, 57.48, 93.25, 83.87, 71.05, 90.59),
}
# I2T, T2I, Group of replace, swap and add
TABLE_4 = {
    "CLIP": (82.09, 60.36, 57.27, 46.52, 16.16, 13.65, 70.32, 44.63, 39.58),
    "CLIP_COCO": (87.99, 72.42, 69.94, 51.53, 25.07, 20.89, 83.16, 55.58, 51.58),
    "CLIP_TROHN-Text": (83.61, 70.03, 65.84, 54.32, 25.35, 20.61, 72.21, 55.37, 48.42),
}
FINER = ("i2t", "t2i", "group", "ipos2t", "ineg2t", "tpos2i", "tneg2i")


def published(folder, kind, model, task):
    return evaluate(f"precomputed:{folder}/bivlc/results/{kind}_{NAMES[model]}.csv", task, name=model)


@pytest.mark.parametrize("model", NAMES)
def test_tables_2_to_4(real_data_folder, model):
    result = published(real_data_folder, "BiVLC", model, "bivlc")
    assert [round(result[name].value, 2) for name in FINER] == list(TABLE_3[model][1:])
    by_type = [round(result[f"{kind}/{name}"].value, 2) for kind in ("replace", "swap", "add") for name in FINER[:3]]
    assert by_type == list(TABLE_4[model])
    assert [result[name].chance for name in FINER] == pytest.approx([25, 25, 100 / 6, 50, 50, 50, 50])
    assert all(row.low < row.value < row.high for row in result.rows)


@pytest.mark.parametrize("model", NAMES)
def test_sugarcrepe(real_data_folder, model):
    result = published(real_data_folder, "SUGARCREPE_CORRECT", model, "sugarcrepe")
    assert round(result["accuracy"].value, 2) == TABLE_3[model][0]  # the paper's number is the mean over all trials
    subsets = [row for row in result.rows if row.part.count("/") == 1]
    assert len(subsets) == 7
    assert result["macro/accuracy"].value == pytest.approx(sum(row.value for row in subsets) / 7)
    assert sum(row.n for row in subsets) == result["accuracy"].n == 7_512
    assert model != "CLIP" or round(result["macro/accuracy"].value, 2) == 73.08  # not the number that papers print


def test_trials_that_share_images(real_data_folder):
    """The clusters that intervals rest on: how many, and the largest."""
    result = {name: np.bincount(load_benchmark_data(name).clusters) for name in ("bison", "bivlc", "sugarcrepe")}
    assert {name: (len(sizes), int(sizes.max())) for name, sizes in result.items()} == {
        "bison": (7_317, 98), "bivlc": (1_161, 11), "sugarcrepe": (1_561, 22)
    }  # fmt: skip


def test_finding_1_t2i_is_below_i2t_and_2_hard_texts_do_not_help_bivlc(real_data_folder):
    clip, coco, text = (published(real_data_folder, "BiVLC", model, "bivlc") for model in NAMES)
    for result in (clip, coco, text):
        assert result["t2i"].high < result["i2t"].low
    comparisons = {c.first.key: c for c in compare(coco, text)}
    assert comparisons["group"].winner == -1  # CLIP_COCO is better on BiVLC than CLIP_TROHN-Text, beyond doubt
    assert comparisons["ipos2t"].winner == 1  # although hard negative texts were what that one was trained on


def test_bison_predictions_through_the_benchmark(real_data_folder):
    result = evaluate(f"precomputed:{real_data_folder}/bison/fake_predictions.cocoval2014.json", "bison")
    assert round(result["accuracy"].value, 3) == 49.962
    assert result["accuracy"].chance == 50
    assert result["accuracy"].low < 50 < result["accuracy"].high
    # the example predictions are no model's: they take the first candidate of every trial
    trials = json.loads((real_data_folder / "bison" / "bison_annotations.cocoval2014.json").read_text())["data"]
    predictions = json.loads((real_data_folder / "bison" / "fake_predictions.cocoval2014.json").read_text())
    first = {row["bison_id"]: row["image_candidates"][0]["image_id"] for row in trials}
    assert all(first[row["bison_id"]] == row["predicted_image_id"] for row in predictions)
