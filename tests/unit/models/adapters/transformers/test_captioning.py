"""Captioners: log-likelihoods against one forward pass per token, language prior, prompts, and generated captions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.abilities import list_abilities
from crossmatch.models.adapters.transformers import hf_model
from crossmatch.models.adapters.transformers.captioning import noise_images
from crossmatch.models.likelihood_scoring import LikelihoodScorer

from .conftest import SIDE, TEXTS, tower

CLOSE = {"rtol": 0, "atol": 1e-5}
LONG = "a red cat on the cup " * 30
POSITIONS = 48


@pytest.fixture(scope="module")
def square(transformers):
    return transformers.ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})


@pytest.fixture(scope="module")
def blip(transformers, saved, bert):
    config = transformers.BlipConfig(
        text_config=tower(
            vocab_size=len(bert), max_position_embeddings=POSITIONS, encoder_hidden_size=32,
            sep_token_id=3, bos_token_id=4, eos_token_id=3,
        ),
        vision_config=tower(image_size=SIDE, patch_size=8),
    )  # fmt: skip
    processor = transformers.BlipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    return saved("blip", config, "BlipForConditionalGeneration", bert, processor)


@pytest.fixture(scope="module")
def git(transformers, saved, bert):
    text = tower(vocab_size=len(bert), max_position_embeddings=POSITIONS, bos_token_id=2, eos_token_id=3)
    config = transformers.GitConfig(vision_config=tower(image_size=SIDE, patch_size=8), **text)
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return saved("git", config, "GitForCausalLM", bert, processor)


@pytest.fixture(scope="module")
def make_gpt2(transformers, saved, make_tokenizer, square):
    """A decoder with a tokenizer that writes no end token, as in ViT-GPT2."""

    def make(width):
        tokenizer = make_tokenizer(("[UNK]", "<end>"), "", bos_token="<end>", eos_token="<end>", model_max_length=1024)
        text = transformers.GPT2Config(
            vocab_size=len(tokenizer), n_embd=width, n_layer=2, n_head=4, n_positions=POSITIONS, bos_token_id=1, eos_token_id=1
        )
        vision = transformers.ViTConfig(**tower(image_size=SIDE, patch_size=8))
        config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text)
        config.decoder_start_token_id, config.pad_token_id = 1, 1
        return saved("gpt2", config, "VisionEncoderDecoderModel", tokenizer, square)

    return make


@pytest.fixture(scope="module")
def gpt2(make_gpt2):
    """Of another width than the encoder."""
    return make_gpt2(40)


@pytest.fixture(scope="module")
def gpt2_alike(make_gpt2):
    """As wide as the encoder, so there is no projection."""
    return make_gpt2(32)


@pytest.fixture(scope="module")
def bert_decoder(transformers, saved, bert, square):
    text = transformers.BertConfig(**tower(vocab_size=len(bert), max_position_embeddings=POSITIONS))
    vision = transformers.ViTConfig(**tower(image_size=SIDE, patch_size=8))
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text)
    config.decoder_start_token_id, config.pad_token_id = 2, 0
    return saved("bert", config, "VisionEncoderDecoderModel", bert, square)


def _decoder(net, pixels, ids):
    return net(pixel_values=pixels, input_ids=ids).logits


def _encoder_decoder(net, pixels, ids):
    return net(pixel_values=pixels, decoder_input_ids=ids).logits


# the class, the forward pass of the library, the first token, and which tokens of the tokenizer are predicted
CAPTIONERS = {
    "blip": ("BlipForConditionalGeneration", _decoder, 4, slice(1, None)),
    "git": ("GitForCausalLM", _decoder, 2, slice(1, None)),
    "gpt2": ("VisionEncoderDecoderModel", _encoder_decoder, 1, slice(0, None)),
    "gpt2_alike": ("VisionEncoderDecoderModel", _encoder_decoder, 1, slice(0, None)),
    "bert_decoder": ("VisionEncoderDecoderModel", _encoder_decoder, 2, slice(0, None)),
}


@pytest.fixture(scope="module", params=CAPTIONERS)
def captioner(request):
    folder = request.getfixturevalue(request.param)
    return request.param, folder, hf_model(str(folder))


def token_by_token(transformers, name, folder, images, texts, skip=0):
    """Slow version: one forward pass for each token of each text, in a batch of one."""
    architecture, predict, first, predicted = CAPTIONERS[name]
    net = getattr(transformers, architecture).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    out = np.empty((len(images), len(texts)))
    for i, image in enumerate(images):
        pixels = processor(images=image.convert("RGB"), return_tensors="pt")["pixel_values"]
        for t, text in enumerate(texts):
            ends = [1] if name.startswith("gpt2") else []
            row = tokenizer(text, truncation=True, max_length=POSITIONS - len(ends))["input_ids"] + ends
            prefix, total = [first], 0.0
            for n, token in enumerate(row[predicted]):
                with torch.inference_mode():
                    log_probabilities = predict(net, pixels, torch.tensor([prefix]))[0, -1].double().log_softmax(dim=0)
                total += log_probabilities[token].item() if n >= skip else 0.0
                prefix.append(token)
            out[i, t] = total
    return out


def test_log_likelihood_is_the_sum_over_tokens(transformers, captioner, images):
    name, folder, model = captioner
    texts = [*TEXTS, "cat " * 60]
    expected = token_by_token(transformers, name, folder, images[:3], texts)
    scores = model.log_likelihood(images[:3], texts)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-5)  # a sum of up to 48 numbers in float32
    assert np.ptp(expected, axis=0).min() > 1e-3  # the image matters
    assert list_abilities(model) == ("log-likelihood", "caption")
    assert (scores < 0).all()
    np.testing.assert_array_equal(scores[:, 0], scores[:, 4])


def test_log_likelihood_equals_the_loss_of_the_library(transformers, bert_decoder, images):
    """transformers divides by the number of tokens."""
    model = hf_model(str(bert_decoder))
    net = transformers.VisionEncoderDecoderModel.from_pretrained(bert_decoder).eval()
    pixels = model.plain.processor(images=images[0], return_tensors="pt")["pixel_values"]
    labels = model.plain.reader.tokenizer("two dog on the cup", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        loss = net(pixel_values=pixels, labels=labels).loss.item()
    per_token = model.log_likelihood(images[:1], ["two dog on the cup"]) / model.lengths(["two dog on the cup"])
    np.testing.assert_allclose(per_token, -loss, **CLOSE)


def test_batches_and_order_do_not_change_likelihoods(captioner, images):
    _, _, model = captioner
    texts = [*TEXTS, LONG, *(f"two cat of {'red ' * n}" for n in range(70))]  # more than a batch
    together = model.log_likelihood(images, texts)
    for i, t in ((0, 0), (1, 2), (2, 5), (3, 3), (4, 60)):
        np.testing.assert_allclose(model.log_likelihood([images[i]], [texts[t]]), together[i, t], rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(model.log_likelihood(images[::-1], texts[::-1])[::-1, ::-1], together, rtol=1e-6, atol=1e-5)
    assert model.log_likelihood([], texts).shape == (0, len(texts))
    assert model.log_likelihood(images, []).shape == (5, 0)


def test_lengths_and_truncation_are_reported(captioner):
    name, _, model = captioner
    extra = 2 if name == "bert_decoder" else 1  # the end token, and the first token of the tokenizer
    assert model.lengths(["a red cat", "", LONG]).tolist() == [3 + extra, extra, POSITIONS - (name in ("blip", "git"))]
    assert model.longest == POSITIONS
    fits = "cat " * (POSITIONS - (1 if name.startswith("gpt2") else 2))
    assert model.truncated(["", fits, fits + "cat"]).tolist() == [False, False, True]


def test_per_token_score_is_plain_score_divided_by_length(captioner, images):
    _, _, model = captioner
    plain, each = (LikelihoodScorer(model, how) for how in ("plain", "per-token"))
    np.testing.assert_allclose(each.score(images, TEXTS) * model.lengths(TEXTS), plain.score(images, TEXTS))
    assert each.signature.endswith("|fp32|likelihood:per-token")


def test_language_prior_is_computed_on_noise_images(transformers, captioner, images):
    name, folder, model = captioner
    corrected = hf_model(f"{folder},prior=0.5")
    without = token_by_token(transformers, name, folder, noise_images(), TEXTS[:3])
    prior = np.log(np.exp(without).mean(axis=0))
    expected = model.log_likelihood(images, TEXTS[:3]) - 0.5 * prior
    np.testing.assert_allclose(corrected.log_likelihood(images, TEXTS[:3]), expected, rtol=0, atol=2e-5)
    assert "|prior:0.5/3noise256|" in corrected.signature
    assert np.ptp(without, axis=0).min() > 0  # three different images
    np.testing.assert_array_equal(corrected.log_likelihood(images, TEXTS[:3]), corrected.log_likelihood(images, TEXTS[:3]))


def test_noise_images_are_not_scored_without_a_prior(captioner, images):
    _, _, model = captioner
    model.log_likelihood(images, TEXTS)
    assert model.log_priors == {}


def test_prompt_is_not_predicted(transformers, captioner, images):
    name, folder, model = captioner
    prompted = hf_model(f"{folder},prompt=a picture of")
    prompt_length = 3 + (name == "bert_decoder")  # the first token of the tokenizer belongs to the prompt
    texts = [f"a picture of {text}".strip() for text in TEXTS]
    expected = token_by_token(transformers, name, folder, images[:2], texts, skip=prompt_length)
    np.testing.assert_allclose(prompted.log_likelihood(images[:2], TEXTS), expected, rtol=0, atol=2e-5)
    assert prompted.lengths(["a red cat", ""]).tolist() == [4, 1]
    assert "|prompt:a picture of|" in prompted.signature
    assert prompted.truncated(["cat " * (POSITIONS - 3)]).tolist() == [True]
    assert model.truncated(["cat " * (POSITIONS - 3)]).tolist() == [False]


@pytest.mark.parametrize("prior", ["x", "-1", "nan", "1e9"])
def test_prior_must_be_a_number_from_0_to_10(git, prior):
    with pytest.raises(UsageError, match=f"prior={prior}: expected a number"):
        hf_model(f"{git},prior={prior}")


def test_decoder_without_start_token_is_refused(transformers, saved, make_tokenizer, square):
    tokenizer = make_tokenizer(("[UNK]", "<end>"), "", eos_token="<end>")
    text = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=4, n_positions=POSITIONS, bos_token_id=None, eos_token_id=1
    )
    vision = transformers.ViTConfig(**tower(image_size=SIDE, patch_size=8))
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text)
    folder = saved("startless", config, "VisionEncoderDecoderModel", tokenizer, square)
    with pytest.raises(CrossmatchError, match="has no decoder_start_token_id, the first token of a caption"):
        hf_model(str(folder))


def test_tokenizer_without_end_token_is_refused(transformers, saved, make_tokenizer):
    tokenizer = make_tokenizer(("[PAD]", "[UNK]", "[CLS]"), "[CLS] $A", pad_token="[PAD]", cls_token="[CLS]")
    text = tower(vocab_size=len(tokenizer), max_position_embeddings=POSITIONS)
    config = transformers.GitConfig(vision_config=tower(image_size=SIDE, patch_size=8), **text)
    folder = saved("endless", config, "GitForCausalLM", tokenizer, transformers.CLIPImageProcessorPil())
    with pytest.raises(
        CrossmatchError, match=r"expected a start and an end token for an empty text, but the tokenizer returns \[2\]"
    ):
        hf_model(str(folder))


# -- captions


def caption_greedily(transformers, name, folder, image, longest, prompt=""):
    """Slow version: the likeliest token, one forward pass each."""
    architecture, predict, first, _ = CAPTIONERS[name]
    net = getattr(transformers, architecture).from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pixels = processor(images=image.convert("RGB"), return_tensors="pt")["pixel_values"]
    end = 1 if name.startswith("gpt2") else 3
    prompt_ids = tokenizer(prompt, add_special_tokens=name == "bert_decoder")["input_ids"] if prompt else []
    tokens = [first, *(token for token in prompt_ids if token != end)]
    start = len(tokens)
    while len(tokens) - start < longest:
        with torch.inference_mode():
            token = int(predict(net, pixels, torch.tensor([tokens]))[0, -1].argmax())
        if token == end:
            break
        tokens.append(token)
    return tokenizer.decode(tokens[start:], skip_special_tokens=True).strip()


def test_greedy_caption_takes_the_likeliest_tokens(transformers, captioner, images):
    name, folder, model = captioner
    expected = [caption_greedily(transformers, name, folder, image, 9) for image in images]
    assert model.caption(images, decoding="greedy", longest=9) == expected
    assert model.caption(images, decoding="beam", width=1, longest=9) == expected
    assert model.caption([], decoding="greedy") == []


def test_caption_does_not_repeat_the_prompt(transformers, captioner, images):
    name, folder, _ = captioner
    model = hf_model(f"{folder},prompt=a red")
    expected = [caption_greedily(transformers, name, folder, image, 7, "a red") for image in images[:3]]
    assert model.caption(images[:3], decoding="greedy", longest=7) == expected


def test_sampled_captions_depend_on_the_seed(captioner, images):
    _, _, model = captioner
    before = torch.get_rng_state()
    sampled = [model.caption(images, decoding="sampled", seed=seed, longest=9) for seed in (0, 0, 1)]
    assert sampled[0] == sampled[1] != sampled[2]
    assert (torch.get_rng_state() == before).all()
    captions = model.caption(images, longest=9)
    assert captions == model.caption(images, decoding="beam", width=5, longest=9)
    assert all(isinstance(text, str) for text in captions)
    with pytest.raises(UsageError, match="one of greedy, sampled, beam"):
        model.caption(images, decoding="beams")
