"""The counts that the papers print, from the real files."""

import csv
import json
import re
from collections import Counter

import numpy as np
import pytest

from crossmatch.benchmarks import load_benchmark_data
from crossmatch.benchmarks.sugarcrepe import trial_ids_by_row

# miranda2024bivlc, tab. 1
ORDER = ("replace/obj", "replace/att", "replace/rel", "swap/obj", "swap/att", "add/obj", "add/att")
SUGARCREPE = dict(zip(ORDER, (1_652, 788, 1_406, 246, 666, 2_062, 692), strict=True))
BIVLC = dict(zip(ORDER, (4_800, 1_748, 1_848, 324, 1_112, 1_596, 304), strict=True))


@pytest.fixture
def need_file(real_data):
    def here(name):
        if not (real_data / name).is_file():
            pytest.skip(f"needs {name} in the data folder")
        return real_data / name

    return here


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def captions(rows):
    return [[" ".join(row[key].split()) for key in ("caption", "negative_caption")] for row in rows]


def test_bison_counts_equal_table_2(need_file):
    need_file("bison/bison_annotations.cocoval2014.json")
    trials = load_benchmark_data("bison")
    assert trials.shape == (1, 2)
    assert len(trials.ids) == 54_253
    assert len(np.unique(trials.images)) == 38_680
    assert len(np.unique(trials.captions)) == 45_218


def test_bison_predictions_cover_every_trial(need_file):
    need_file("bison/bison_annotations.cocoval2014.json")
    predictions = json.loads(need_file("bison/fake_predictions.cocoval2014.json").read_text())
    trials = load_benchmark_data("bison")
    chosen = {str(row["bison_id"]): str(row["predicted_image_id"]) for row in predictions}
    assert set(chosen) == set(trials.ids.tolist())
    answers = np.array([chosen[name] for name in trials.ids.tolist()])
    assert (trials.images == answers[:, None]).sum() == len(trials.ids)
    assert 100 * (trials.images[:, 0] == answers).mean() == pytest.approx(49.962, abs=5e-4)


@pytest.mark.slow
def test_bison_captions_are_references(need_file):
    need_file("bison/bison_annotations.cocoval2014.json")
    need_file("coco/karpathy_test_captions.tsv")
    chosen, longest, drawn = (load_benchmark_data("bison", caption=kind) for kind in ("chosen", "longest", "random"))
    is_listed = np.isin(chosen.ids, longest.ids)
    assert longest.ids.tolist() == drawn.ids.tolist() == chosen.ids[is_listed].tolist()
    assert len(longest.ids) >= 6_672  # the positive images of so many trials are in the test split alone
    references = [text for text, image in zip(chosen.captions[is_listed, 0].tolist(), chosen.images[is_listed, 0].tolist(), strict=True)
           if text in chosen.references[image]]  # fmt: skip
    assert len(references) == is_listed.sum()
    words = [np.array([len(text.split()) for text in trials.captions[:, 0].tolist()]) for trials in (chosen, drawn, longest)]
    assert (words[2] >= words[0][is_listed]).all()
    assert words[1].mean() < words[0][is_listed].mean() < words[2].mean()  # people chose longer captions than chance (sec. 4)


def test_bivlc_counts_equal_table_1(need_file):
    need_file("bivlc/results/BiVLC_ViT-B-32.csv")
    trials = load_benchmark_data("bivlc")
    assert trials.shape == (2, 2)
    assert len(trials.ids) == 2_933
    count = Counter(trials.categories.tolist())  # four retrieval examples each: two captions and two images ask
    assert {name: 4 * n for name, n in count.items()} == BIVLC
    assert sum(BIVLC.values()) == 4 * len(trials.ids) == 11_732


def test_sugarcrepe_counts_equal_table_1(need_file):
    need_file("sugarcrepe/test_SugarCrepe.csv")
    trials = load_benchmark_data("sugarcrepe")
    assert trials.shape == (2, 1)
    assert Counter(trials.categories.tolist()) == SUGARCREPE
    assert len(trials.ids) == 7_512


def test_json_of_swap_obj_lacks_one_record(need_file):
    need_file("sugarcrepe/test_SugarCrepe.csv")
    need_file("sugarcrepe/swap_obj.json")
    csv_, json_ = load_benchmark_data("sugarcrepe"), load_benchmark_data("sugarcrepe", source="json")
    assert set(csv_.ids) - set(json_.ids) == {"swap_obj/108"}
    at = csv_.ids.tolist().index("swap_obj/108")
    assert csv_.captions[at].tolist() == [
        "A West 32nd sign under a Korea Way road sign.",
        "A Korea Way sign under a West 32nd road sign.",
    ]
    selected = csv_.select(np.flatnonzero(csv_.ids != "swap_obj/108"))
    assert selected.file_rows.tolist() == json_.file_rows.tolist()
    assert selected.ids.tolist() == json_.ids.tolist()
    assert (selected.captions == json_.captions).all()
    assert (selected.images == json_.images).all()


@pytest.mark.parametrize("model", ["ViT-B-32", "CLIP_COCO", "CLIP_TROHN-Text"])
def test_published_outcomes_are_in_the_order_of_the_trials(need_file, model):
    rows = table(need_file(f"bivlc/results/BiVLC_{model}.csv"))
    trials = load_benchmark_data("bivlc")
    assert captions(rows) == trials.captions.tolist()
    rows = table(need_file(f"bivlc/results/SUGARCREPE_CORRECT_{model}.csv"))
    trials = load_benchmark_data("sugarcrepe")
    assert trial_ids_by_row((row["type"], row["subtype"]) for row in rows) == trials.ids.tolist()
    assert captions(rows) == trials.captions.tolist()


def test_coco_images_of_bivlc_have_the_published_sizes(need_file):
    """The file of each natural image has the size that BiVLC's authors published."""
    rows = table(need_file("bivlc/results/BiVLC_ViT-B-32.csv"))
    need_file("bivlc/BiVLC_negative_imgs.csv")
    images = json.loads(need_file("coco/captions_val2017.json").read_text())["images"]
    size = {image["file_name"]: f"{image['width']}x{image['height']}" for image in images}
    trials = load_benchmark_data("bivlc")
    assert [size[name] for name in trials.images[:, 0].tolist()] == [re.search(r"size=(\d+x\d+)", row["image"])[1] for row in rows]
    assert np.unique(trials.images[:, 0], return_counts=True)[1].max() == 11  # rows that share an image are not independent
