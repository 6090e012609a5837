"""CIDEr and CIDEr-D: how alike candidate and references are in the n-grams that tell images apart."""

from __future__ import annotations

import numpy as np

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies, telling
from crossmatch.captions.scores import Scores
from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import WrongWords

SIGMA = 6.0


def cider_d(corpus: Corpus, frequencies: Frequencies | None = None, sigma: float = SIGMA) -> tuple[Scores]:
    """CIDEr-D of each candidate, and the mean over candidates; what coco-caption calls CIDEr.

        CIDEr-D_n(c, S) = 10/m · Σ_j e^{-(l(c) - l(s_j))² / 2σ²} · min(g_n(c), g_n(s_j)) · g_n(s_j) / (‖g_n(c)‖ ‖g_n(s_j)‖)
        CIDEr-D = 1/4 · Σ_{n≤4} CIDEr-D_n,   g_n(s)_k = count of the n-gram k in s · log(|I| / max(1, df_k))

    df_k is the number of images with a reference that has k, in this corpus or in a saved one. l counts bigrams, as coco-caption
    does: captions of no and of one word are equally long. Words are not stemmed. 0 to 10.
    Source: vedantam2015cider, sec. 7; chen2015microsoft, sec. 3.5.

    >>> corpus = Corpus.of({"7": "a dog runs fast", "8": "a cat"}, {"7": ["a dog runs fast"], "8": ["the sun is up"]})
    >>> cider_d(corpus)[0].values
    array([10.,  0.])
    """
    if not (sigma > 0 and np.isfinite(sigma)):
        raise WrongWords(f"sigma is {sigma}; a positive number was expected (the paper has {SIGMA:g}).")
    length = np.maximum(0, corpus.lengths - 1)
    apart = length - length[corpus.candidate][corpus.image]
    penalty = np.exp(-(apart**2) / (2 * sigma**2))
    return _mean(corpus, 10 * penalty * _alike(corpus, telling(corpus, frequencies), clip=True))


def cider(corpus: Corpus, frequencies: Frequencies | None = None) -> tuple[Scores]:
    """CIDEr as the paper defines it: no clipping, no penalty for length, no factor of 10. 0 to 1.

        CIDEr_n(c, S) = 1/m · Σ_j g_n(c) · g_n(s_j) / (‖g_n(c)‖ ‖g_n(s_j)‖),   CIDEr = 1/4 · Σ_{n≤4} CIDEr_n

    g is as in `cider_d`: the paper's division by the number of n-grams in the caption cancels in the cosine. Words are not stemmed,
    unlike in the paper, so that both metrics see the same tokens.
    Source: vedantam2015cider, sec. 3, eq. 1 to 3.

    >>> corpus = Corpus.of({"7": "a dog runs fast", "8": "a cat"}, {"7": ["a dog runs fast"], "8": ["the sun is up"]})
    >>> cider(corpus)[0].values
    array([1., 0.])
    """
    return _mean(corpus, _alike(corpus, telling(corpus, frequencies), clip=False))


def _alike(corpus: Corpus, idf: list[FloatArray], clip: bool) -> FloatArray:
    """Of each caption: the mean over n of its cosine with its candidate, whose entries are clipped to its own if asked."""
    captions = len(corpus.image)
    total = np.zeros(captions)
    for grams, weight_of in zip(corpus.grams, idf, strict=True):
        weight = grams.count * weight_of[grams.gram][grams.block]
        norm = np.sqrt(np.bincount(grams.caption, weight**2, captions))
        own = np.where(corpus.is_candidate[grams.caption[grams.first]], weight[grams.first], 0.0)[grams.block]
        product = np.bincount(grams.caption, (np.minimum(own, weight) if clip else own) * weight, captions)
        norms = norm * norm[corpus.candidate][corpus.image]
        total += np.divide(product, norms, out=np.zeros(captions), where=norms > 0)
    return total / len(idf)


def _mean(corpus: Corpus, of_caption: FloatArray) -> tuple[Scores]:
    """The mean over the references of each candidate, then over candidates."""
    image = corpus.image[corpus.references]
    values = np.bincount(image, of_caption[corpus.references], len(corpus)) / corpus.references_each
    return (Scores(float(values.mean()), values),)
