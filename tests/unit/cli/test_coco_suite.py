"""The eight tasks on COCO from one file of embeddings, as a user runs them."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from crossmatch.benchmarks.coco import coco_collection
from crossmatch.cli import main

TASKS = "coco-1k,coco-5k,cxc,cxc-sts,cxc-sis,cxc-sits,eccv-caption,pmrp"
ZETAS = ("zeta=0", "zeta=1", "zeta=2", "mean")
HITS = {"hit@1", "hit@5", "hit@10"}


@pytest.mark.usefixtures("real_data")
def test_every_metric_of_all_eight_tasks_from_one_file(tmp_path, monkeypatch, capsys):
    file = coco_collection("test")
    rng = np.random.default_rng(0)
    images = rng.standard_normal((5_000, 16), dtype=np.float32)
    captions = images[file.caption_owners()] + rng.standard_normal((25_000, 16), dtype=np.float32)
    np.savez(tmp_path / "emb.npz", image_ids=file.image_ids.astype(np.int64), image_embeddings=images,
             caption_ids=file.caption_ids.astype(np.int64), caption_embeddings=captions)  # fmt: skip
    arguments = ["run", "-m", f"precomputed:{tmp_path / 'emb.npz'}", "-t", TASKS, "--json", "-o", str(tmp_path / "results")]
    monkeypatch.setattr(sys, "argv", ["crossmatch", *arguments, "--samples", "50"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    parsed = json.loads(capsys.readouterr().out)
    assert list(parsed) == TASKS.split(",")
    both = [f"{d}/{m}" for d in ("i2t", "t2i") for m in (*HITS, "median-rank", "mean-rank")]
    expected = {
        "coco-1k": {*both, "rsum"},
        "coco-5k": {*both, "rsum"},
        "cxc": {f"{d}/{m}" for d in ("i2t", "t2i", "t2t", "i2i") for m in (*HITS, "median-rank")},
        **{f"cxc-{s}": {"bootstrap-spearman", "bootstrap-spearman-std"} for s in ("sts", "sis", "sits")},
        "eccv-caption": {f"{d}/{m}" for d in ("i2t", "t2i") for m in (*HITS, "map@r", "r-precision")},
        "pmrp": {f"{d}/{z}/{m}" for d in ("i2t", "t2i") for z in ZETAS for m in ("pmrp", "pmrp@50")},
    }
    assert {task: set(rows) for task, rows in parsed.items()} == expected
    assert all(np.isfinite(value) for rows in parsed.values() for value in rows.values())
    assert parsed["coco-1k"]["t2i/hit@1"] > parsed["coco-5k"]["t2i/hit@1"] > 1  # smaller galleries are easier
    assert len(list((tmp_path / "results").rglob("*.json"))) == 8
