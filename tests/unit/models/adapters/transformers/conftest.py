"""Tiny models of transformers with random weights, saved as folders."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from crossmatch.models.adapters.transformers.loading import import_transformers, silence_transformers

SPOKEN = "a an the red blue green cat dog cup on under two of picture photo Yes No does this figure show please answer or no yes"
WORDS = SPOKEN.split()
TEXTS = ["a red cat", "two dog on the cup", "", "the blue cup under a green dog on a red cup of the cat", "a red cat"]
SIDE = 16


@pytest.fixture(scope="package", autouse=True)
def _one_thread():
    """These networks are so small that threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def transformers():
    return import_transformers()


@pytest.fixture(scope="package")
def images():
    """Images of several sizes and modes; the first occurs twice."""
    rng = np.random.default_rng(1)
    sizes = ((20, 30, (255, 30, 90)), (16, 16, (40, 255, 20)), (40, 18, (90, 20, 255)))
    distinct = [Image.fromarray(rng.integers(0, colour, (h, w, 3), dtype=np.uint8, endpoint=True)) for h, w, colour in sizes]
    return [*distinct, distinct[0].convert("L"), distinct[0]]


@pytest.fixture(scope="package")
def make_tokenizer(transformers):
    """A tokenizer of whole words. `specials` are its first tokens, in this order; `template` adds tokens around a text."""

    def make(specials, template, last=(), **roles):
        from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

        vocabulary = {token: n for n, token in enumerate([*specials, *WORDS, *'".,?:', *last])}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
        tokenizer.add_special_tokens([AddedToken(token, special=True) for token in (*specials, *last)])
        if template:
            used = [(token, vocabulary[token]) for token in template.split() if token != "$A"]
            tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
        return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **roles)

    return make


@pytest.fixture(scope="package")
def bert(make_tokenizer):
    return make_tokenizer(
        ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[DEC]"), "[CLS] $A [SEP]",
        pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", model_max_length=512,
    )  # fmt: skip


@pytest.fixture(scope="package")
def saved(tmp_path_factory, transformers):
    """Save a network with its tokenizer and its image processor (or a processor of both), and return the folder."""

    def save(name, config, architecture, *processors, spread=0.1):
        torch.manual_seed(0)
        net = getattr(transformers, architecture)(config).eval()
        with torch.no_grad():
            for parameter in net.parameters():  # the usual initial weights are so small that all texts look alike
                parameter.add_(spread * torch.randn_like(parameter))
        folder = tmp_path_factory.mktemp(name)
        with silence_transformers():
            net.save_pretrained(folder)
            for processor in processors:
                processor.save_pretrained(folder)
        return folder

    return save


def tower(**more):
    """Sizes of a tiny transformer."""
    return {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4, **more}
