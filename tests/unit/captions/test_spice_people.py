"""SPICE with our own parser beside what people say of captions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.spice import spice

CIDER = 0.439  # published for Flickr8k-Expert; the published SPICE has 0.449, and its claim is to be above CIDEr


def test_agreement_with_experts_is_above_that_of_cider(real_data_folder: Path) -> None:
    """Kendall's tau-c over all ratings, three of each caption; the rules were not fitted to these."""
    items, ratings = {}, []
    for image, entry in json.loads((real_data_folder / "judgements/flickr8k.json").read_text()).items():
        for judged in entry["human_judgement"]:
            item = f"{image} {judged['caption']}"
            items[item] = judged["caption"], entry["ground_truth"]
            ratings.append((item, judged["rating"]))
    assert len(ratings) == 16_992
    corpus = Corpus.of({item: own for item, (own, _) in items.items()}, {item: refs for item, (_, refs) in items.items()})
    score = dict(zip(items, spice(corpus, parser="rules")[0].values, strict=True))
    given = np.array([(score[item], rating) for item, rating in ratings])
    assert kendalltau(given[:, 0], given[:, 1], variant="c").statistic > CIDER
