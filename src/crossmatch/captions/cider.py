"""CIDEr and CIDEr-D: cosine similarity of candidate and references over n-grams weighted by tf-idf."""

from __future__ import annotations

import numpy as np

from crossmatch.captions.corpus import CaptionCorpus, CaptionScores
from crossmatch.captions.document_frequencies import DocumentFrequencies, inverse_document_frequencies
from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import UsageError

SIGMA = 6.0  # of the length penalty, as in the paper


def cider_d(corpus: CaptionCorpus, frequencies: DocumentFrequencies | None = None, sigma: float = SIGMA) -> tuple[CaptionScores]:
    """CIDEr-D of each candidate, and the mean over candidates. coco-caption calls this metric CIDEr.

        CIDEr-D_n(c, S) = 10/m · Σ_j e^{-(l(c) - l(s_j))² / 2σ²} · min(g_n(c), g_n(s_j)) · g_n(s_j) / (‖g_n(c)‖ ‖g_n(s_j)‖)
        CIDEr-D = 1/4 · Σ_{n≤4} CIDEr-D_n,   g_n(s)_k = count of the n-gram k in s · log(|I| / max(1, df_k))

    df_k is the number of images whose references contain k, in this corpus or in a saved one. |I| is the number of images and m the
    number of references. l counts bigrams, as in coco-caption, so captions of zero and of one word have equal lengths. Words are
    not stemmed. The range is 0 to 10.
    Source: vedantam2015cider, sec. 7; chen2015microsoft, sec. 3.5.

    >>> references = {"7": ["a dog runs fast"], "8": ["the sun is up"]}
    >>> corpus = CaptionCorpus.from_texts({"7": "a dog runs fast", "8": "a cat"}, references)
    >>> cider_d(corpus)[0].values
    array([10.,  0.])
    """
    if not (sigma > 0 and np.isfinite(sigma)):
        raise UsageError(f"cider-d: sigma must be a positive number, got {sigma} (the paper uses {SIGMA:g}).")
    length = np.maximum(0, corpus.lengths - 1)
    length_difference = length - length[corpus.candidate_index][corpus.image_index]
    penalty = np.exp(-(length_difference**2) / (2 * sigma**2))
    idf = inverse_document_frequencies(corpus, frequencies)
    return _mean_over_references(corpus, 10 * penalty * _mean_cosine(corpus, idf, clip=True))


def cider(corpus: CaptionCorpus, frequencies: DocumentFrequencies | None = None) -> tuple[CaptionScores]:
    """CIDEr as the paper defines it: no clipping, no length penalty, no factor of 10. The range is 0 to 1.

        CIDEr_n(c, S) = 1/m · Σ_j g_n(c) · g_n(s_j) / (‖g_n(c)‖ ‖g_n(s_j)‖),   CIDEr = 1/4 · Σ_{n≤4} CIDEr_n

    g is defined in `cider_d`; the paper's division by the number of n-grams in the caption cancels in the cosine. Unlike in the
    paper, words are not stemmed, so that both metrics use the same tokens.
    Source: vedantam2015cider, sec. 3, eq. 1 to 3.

    >>> references = {"7": ["a dog runs fast"], "8": ["the sun is up"]}
    >>> corpus = CaptionCorpus.from_texts({"7": "a dog runs fast", "8": "a cat"}, references)
    >>> cider(corpus)[0].values
    array([1., 0.])
    """
    idf = inverse_document_frequencies(corpus, frequencies)
    return _mean_over_references(corpus, _mean_cosine(corpus, idf, clip=False))


def _mean_cosine(corpus: CaptionCorpus, idf: list[FloatArray], clip: bool) -> FloatArray:
    """The cosine of each caption with its candidate, averaged over n; `clip` limits the candidate's counts to the caption's."""
    captions = len(corpus.image_index)
    total = np.zeros(captions)
    for ngrams, ngram_idf in zip(corpus.ngrams, idf, strict=True):
        weight = ngrams.count * ngram_idf[ngrams.block_ngram][ngrams.block]
        norm = np.sqrt(np.bincount(ngrams.caption, weight**2, captions))
        has_candidate = corpus.is_candidate[ngrams.caption[ngrams.block_start]]
        candidate_weight = np.where(has_candidate, weight[ngrams.block_start], 0.0)[ngrams.block]
        clipped = np.minimum(candidate_weight, weight) if clip else candidate_weight
        product = np.bincount(ngrams.caption, clipped * weight, captions)
        norms = norm * norm[corpus.candidate_index][corpus.image_index]
        total += np.divide(product, norms, out=np.zeros(captions), where=norms > 0)
    return total / len(idf)


def _mean_over_references(corpus: CaptionCorpus, caption_scores: FloatArray) -> tuple[CaptionScores]:
    image_index = corpus.image_index[corpus.reference_index]
    values = np.bincount(image_index, caption_scores[corpus.reference_index], len(corpus)) / corpus.references_per_image
    return (CaptionScores.from_mean(values),)
