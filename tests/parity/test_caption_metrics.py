"""BLEU, ROUGE-L and CIDEr-D against pycocoevalcap on equal tokens."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.captions.bleu import bleu
from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.ptb_tokenizer import tokenise
from crossmatch.captions.rouge import rouge_l

pytest.importorskip("pycocoevalcap", reason="the peer is not installed; install crossmatch[dev]")
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

EQUAL = {"rtol": 0, "atol": 1e-9}


def check(candidates: list[list[str]], references: list[list[list[str]]]) -> None:
    """Corpus value and every caption's, all six metrics."""
    gts = {n: [" ".join(tokens) for tokens in texts] for n, texts in enumerate(references)}
    res = {n: [" ".join(tokens)] for n, tokens in enumerate(candidates)}
    corpus = CaptionCorpus.from_tokens(candidates, references)
    corpus_value, caption_values = Bleu(4).compute_score(gts, res, verbose=0)
    for n, ours in enumerate(bleu(corpus)):
        np.testing.assert_allclose(ours.value, corpus_value[n], **EQUAL)
        np.testing.assert_allclose(ours.values, caption_values[n], **EQUAL)
    for peer, result in (
        (Rouge(), [rouge_l(corpus)[0]]),
        (Cider(), [cider_d(corpus)[0], cider_d(corpus, DocumentFrequencies.from_corpus(corpus))[0]]),
    ):
        corpus_value, caption_values = peer.compute_score(gts, res)
        for ours in result:
            np.testing.assert_allclose(ours.value, corpus_value, **EQUAL)
            np.testing.assert_allclose(ours.values, caption_values, **EQUAL)


@pytest.mark.slow
def test_real_captions(real_data_folder: Path) -> None:
    """BLIP-2's captions of the 5,000 Karpathy test images, with all 25,000 references."""
    references: dict[str, list[list[str]]] = {}
    with (real_data_folder / "coco/karpathy_test_captions.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            references.setdefault(row["image_id"], []).append(tokenise(row["caption"]))
    candidates = json.loads((real_data_folder / "captions/blip2_results_xe.json").read_text())
    assert len(references) == 5_000
    check([tokenise(candidates[i]) for i in references], list(references.values()))


caption = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), min_size=1, max_size=9)  # few words, so that n-grams repeat


@given(st.lists(st.tuples(caption, st.lists(caption, min_size=1, max_size=4)), min_size=2, max_size=6))
def test_small_corpora(pairs: list[tuple[list[str], list[list[str]]]]) -> None:
    check([candidate for candidate, _ in pairs], [texts for _, texts in pairs])


def test_long_captions() -> None:
    rng = np.random.default_rng(0)
    texts = [[str(word) for word in rng.integers(0, 9, size)] for size in (62, 63, 64, 65, 130, 1, 200, 64)]
    check(texts[:4], [[texts[4], texts[5]], [texts[0]], [texts[6], texts[3]], [texts[7]]])


def test_empty_candidates_and_references() -> None:
    check([[], ["a", "dog"], ["a"]], [[["a", "dog"]], [[], ["a", "dog", "runs"]], [[]]])
