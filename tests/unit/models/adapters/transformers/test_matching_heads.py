"""Matching heads equal the forward pass of transformers, in batches of any size."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from crossmatch.data.errors import CrossmatchError
from crossmatch.models.abilities import PairScorer, list_abilities
from crossmatch.models.adapters.transformers import hf_model

from .conftest import SIDE, TEXTS, tower

CLOSE = {"rtol": 0, "atol": 1e-5}
LONG = "a red cat on the cup " * 30


@pytest.fixture(scope="module")
def blip(transformers, saved, bert):
    """As released: the network has two tokens more than the tokenizer, [DEC] and [ENC]."""
    first_token, vocabulary_size = len(bert), len(bert) + 2
    config = transformers.BlipConfig(
        text_config=tower(vocab_size=vocabulary_size, max_position_embeddings=64, encoder_hidden_size=32, sep_token_id=3, bos_token_id=first_token),
        vision_config=tower(image_size=SIDE, patch_size=8), projection_dim=24, image_text_hidden_size=24,
    )  # fmt: skip
    processor = transformers.BlipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    return saved("blip", config, "BlipForImageTextRetrieval", bert, processor)


@pytest.fixture(scope="module")
def vilt(transformers, saved, bert):
    config = transformers.ViltConfig(
        **tower(vocab_size=len(bert), image_size=24, patch_size=8, max_position_embeddings=40, modality_type_vocab_size=2),
        max_image_length=4,  # fewer than the patches of any image here
    )
    processor = transformers.ViltImageProcessorPil(size={"shortest_edge": 24}, size_divisor=8)
    return saved("vilt", config, "ViltForImageAndTextRetrieval", bert, processor)


@pytest.fixture(scope="module")
def bridge(transformers, saved, make_tokenizer):
    tokenizer = make_tokenizer(
        ("<s>", "<pad>", "</s>", "[UNK]"), "<s> $A </s>",
        pad_token="<pad>", bos_token="<s>", cls_token="<s>", sep_token="</s>", eos_token="</s>", model_max_length=512,
    )  # fmt: skip
    text = tower(hidden_size=64, vocab_size=len(tokenizer), max_position_embeddings=66, pad_token_id=1)
    vision = {"hidden_size": 64, "num_hidden_layers": 2, "patch_size": 8, "image_size": SIDE}
    config = transformers.BridgeTowerConfig(text_config=text, vision_config=vision, **tower(hidden_size=64))
    edge = {"shortest_edge": SIDE}
    processor = transformers.BridgeTowerImageProcessorPil(size=edge, crop_size=edge, size_divisor=8)
    return saved("bridge", config, "BridgeTowerForImageAndTextRetrieval", tokenizer, processor)


def score_with_library(transformers, folder, architecture, images, texts):
    """The forward pass of transformers, one pair at a time."""
    net = getattr(transformers, architecture).from_pretrained(folder).eval()
    if hasattr(net.config, "max_image_length"):
        net.config.max_image_length = -1
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    longest = 40 if architecture.startswith("Vilt") else 64
    out = np.empty((len(images), len(texts)))
    for i, image in enumerate(images):
        for t, text in enumerate(texts):
            tokens = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")
            tokens.pop("token_type_ids", None)
            with torch.inference_mode():
                outputs = net(**tokens, **processor(images=image.convert("RGB"), return_tensors="pt"))
            logits = outputs.itm_score if hasattr(outputs, "itm_score") else outputs.logits
            out[i, t] = logits.softmax(dim=1)[0, 1] if logits.shape[1] == 2 else logits[0, 0]
    return out


HEADS = {
    "blip": "BlipForImageTextRetrieval",
    "vilt": "ViltForImageAndTextRetrieval",
    "bridge": "BridgeTowerForImageAndTextRetrieval",
}


@pytest.fixture(scope="module", params=HEADS)
def head(request):
    folder = request.getfixturevalue(request.param)
    return HEADS[request.param], folder, hf_model(str(folder))


def test_scores_equal_those_of_the_library(transformers, head, images):
    architecture, folder, model = head
    texts = [*TEXTS, LONG]
    expected = score_with_library(transformers, folder, architecture, images, texts)
    scores = model.score(images, texts)
    np.testing.assert_allclose(scores, expected, **CLOSE)
    assert np.ptp(expected, axis=0).min() > 1e-3  # both the image
    assert np.ptp(expected, axis=1).min() > 1e-3  # and the text matter
    assert list_abilities(model) == ("score",)
    assert isinstance(model, PairScorer)
    np.testing.assert_array_equal(scores[0], scores[4])  # equal images and equal texts
    np.testing.assert_array_equal(scores[:, 0], scores[:, 4])


def test_batches_and_order_do_not_change_scores(head, images):
    _, _, model = head
    texts = [*TEXTS, LONG, *(f"two cat of {'red ' * n}" for n in range(40))]  # more than a batch
    together = model.score(images * 4, texts)  # more images than a batch
    assert together.shape == (20, len(texts))
    for i, t in ((0, 0), (1, 2), (2, 5), (3, 3), (9, 45)):
        np.testing.assert_allclose(model.score([(images * 4)[i]], [texts[t]]), together[i, t], **CLOSE)
    np.testing.assert_allclose(model.score(images[::-1], texts[::-1])[::-1, ::-1], together[:5], **CLOSE)
    paired = model.score_pairs((images * 10)[: len(texts)], texts)
    np.testing.assert_allclose(paired, [together[n % 5, n] for n in range(len(texts))], **CLOSE)


def test_global_random_state_is_neither_used_nor_changed(head, images):
    _, _, model = head
    torch.manual_seed(5)
    before, first = torch.get_rng_state(), model.score(images, TEXTS)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    np.testing.assert_array_equal(model.score(images, TEXTS), first)


def test_empty_inputs_are_scored_and_unequal_pairs_refused(head, images):
    _, _, model = head
    assert model.score([], TEXTS).shape == (0, 5)
    assert model.score(images, []).shape == (5, 0)
    assert model.score_pairs([], []).shape == (0,)
    with pytest.raises(CrossmatchError, match=r"as many images as texts \(got 5 and 1\)"):
        model.score_pairs(images, ["a cat"])


def test_truncated_texts_are_detected(head):
    _, _, model = head
    fits = "cat " * (model.longest - 2)
    assert model.truncated(["", fits, fits + "cat"]).tolist() == [False, False, True]
    assert f"|tokens:{model.longest}|" in model.signature


def test_itc_gives_the_cosine_of_the_two_towers(transformers, blip, images):
    model = hf_model(f"{blip},itc")
    net = transformers.BlipForImageTextRetrieval.from_pretrained(blip).eval()
    tokens = model.reader.inputs(model.reader.token_ids(TEXTS))
    pixels = torch.cat([model.processor(images=i.convert("RGB"), return_tensors="pt")["pixel_values"] for i in images])
    with torch.inference_mode():
        expected = net(**tokens, pixel_values=pixels, use_itm_head=False).itm_score.numpy()
    np.testing.assert_allclose(model.embed_images(images) @ model.embed_texts(TEXTS).T, expected, **CLOSE)
    assert list_abilities(model) == ("embed",)
    assert "|itc|" in model.signature
    assert model.signature != hf_model(str(blip)).signature


def test_released_score_equals_blips_evaluation(transformers, blip, bert, images):
    """Slow version, pair by pair: 35 tokens; the logit of the head after [ENC] plus the cosine after [CLS]."""
    model = hf_model(f"{blip},released")
    net = transformers.BlipForImageTextRetrieval.from_pretrained(blip).eval()
    texts = [*TEXTS, LONG]
    expected = np.empty((len(images), len(texts)))
    for i, image in enumerate(images):
        pixels = model.processor(images=image.convert("RGB"), return_tensors="pt")["pixel_values"]
        for t, text in enumerate(texts):
            ids = bert(text, truncation=True, max_length=35, return_tensors="pt")["input_ids"]
            enc_ids = torch.cat([torch.tensor([[len(bert) + 1]]), ids[:, 1:]], dim=1)
            with torch.inference_mode():
                match_logit = net(input_ids=enc_ids, pixel_values=pixels).itm_score[0, 1]
                cosine = net(input_ids=ids, pixel_values=pixels, use_itm_head=False).itm_score[0, 0]
            expected[i, t] = match_logit + cosine
    np.testing.assert_allclose(model.score(images, texts), expected, **CLOSE)
    np.testing.assert_allclose(model.score_pairs(images, texts[:5]), np.diag(expected), **CLOSE)
    assert model.longest == 35
    assert model.truncated(["cat " * 33, "cat " * 34]).tolist() == [False, True]
    assert "|released|" in model.signature
    assert "|tokens:35|" in model.signature


def test_released_needs_the_enc_token(blip, vilt, tmp_path):
    shutil.copytree(blip, tmp_path / "blip")
    path = tmp_path / "blip" / "config.json"
    config = json.loads(path.read_text())
    for number in (4, config["text_config"]["vocab_size"] - 1):  # the next id is another word, or none
        config["text_config"]["bos_token_id"] = number
        path.write_text(json.dumps(config))
        with pytest.raises(CrossmatchError, match=r"the vocabulary has no \[ENC\].* Remove ,released"):
            hf_model(f"{tmp_path / 'blip'},released")
    with pytest.raises(CrossmatchError, match="which cannot be used for released, only for itm"):
        hf_model(f"{vilt},released")
