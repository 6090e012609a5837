"""Dual encoders equal the forward pass of transformers, in batches of any size."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from crossmatch.data.errors import CrossmatchError
from crossmatch.models.abilities import list_abilities
from crossmatch.models.adapters.transformers import hf_model
from crossmatch.models.adapters.transformers.input_batches import preprocess_images

from .conftest import SIDE, TEXTS, tower

LONG = "a red cat on the cup " * 30
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def clip_tokenizer(make_tokenizer):
    return make_tokenizer(
        ("[PAD]", "[UNK]", "<start>"), "<start> $A <end>", last=("<end>",),
        pad_token="[PAD]", bos_token="<start>", eos_token="<end>", model_max_length=77,
    )  # fmt: skip


@pytest.fixture(scope="module")
def square(transformers):
    return transformers.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})


@pytest.fixture(scope="module")
def make_clip(transformers, saved, clip_tokenizer, square):
    def make(name, end):
        text = tower(vocab_size=len(clip_tokenizer), eos_token_id=end, max_position_embeddings=77)
        config = transformers.CLIPConfig(text_config=text, vision_config=tower(image_size=SIDE, patch_size=8), projection_dim=24)
        return saved(name, config, "CLIPModel", clip_tokenizer, square)

    return make


@pytest.fixture(scope="module")
def clip(make_clip, clip_tokenizer):
    return make_clip("clip", clip_tokenizer.eos_token_id)


@pytest.fixture(scope="module")
def old_clip(make_clip):
    """The first configurations name token 2 as the end token, and mean the highest id."""
    return make_clip("old_clip", 2)


@pytest.fixture(scope="module")
def siglip(transformers, saved, make_tokenizer):
    tokenizer = make_tokenizer(("</s>", "[UNK]"), "$A </s>", pad_token="</s>", eos_token="</s>", model_max_length=64)
    vision = tower(image_size=SIDE, patch_size=8)
    text = tower(vocab_size=len(tokenizer), max_position_embeddings=64, projection_size=32)
    processor = transformers.SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    config = transformers.SiglipConfig(text_config=text, vision_config=vision)
    return saved("siglip", config, "SiglipModel", tokenizer, processor)


@pytest.fixture(scope="module")
def siglip2(transformers, saved):
    """With a tokenizer of letters, because transformers always uses its own class for this architecture."""
    letters = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *"▁abcdefghijklmnopqrstuvwxyz"]
    vocabulary = {token: n for n, token in enumerate(letters)}
    tokenizer = transformers.Siglip2Tokenizer(vocabulary, [], model_max_length=64, padding_side="right")
    vision = tower(patch_size=8, num_patches=16)
    text = tower(vocab_size=len(tokenizer), max_position_embeddings=64, projection_size=32)
    processor = transformers.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
    config = transformers.Siglip2Config(text_config=text, vision_config=vision)
    return saved("siglip2", config, "Siglip2Model", tokenizer, processor)


@pytest.fixture(scope="module")
def blip(transformers, saved, bert):
    config = transformers.BlipConfig(
        text_config=tower(vocab_size=len(bert), max_position_embeddings=64, encoder_hidden_size=32),
        vision_config=tower(image_size=SIDE, patch_size=8), projection_dim=24, image_text_hidden_size=24,
    )  # fmt: skip
    return saved("blip", config, "BlipModel", bert, transformers.BlipImageProcessorPil(size={"height": SIDE, "width": SIDE}))


@pytest.fixture(scope="module")
def chinese(transformers, saved, bert):
    config = transformers.ChineseCLIPConfig(
        text_config=tower(vocab_size=len(bert), max_position_embeddings=64),
        vision_config=tower(image_size=SIDE, patch_size=8), projection_dim=24,
    )  # fmt: skip
    processor = transformers.ChineseCLIPImageProcessorPil(size={"height": SIDE, "width": SIDE}, do_center_crop=False)
    return saved("chinese", config, "ChineseCLIPModel", bert, processor)


@pytest.fixture(scope="module")
def altclip(transformers, saved, make_tokenizer, square):
    tokenizer = make_tokenizer(
        ("<s>", "<pad>", "</s>", "[UNK]"), "<s> $A </s>",
        pad_token="<pad>", bos_token="<s>", cls_token="<s>", sep_token="</s>", eos_token="</s>", model_max_length=512,
    )  # fmt: skip
    text = tower(vocab_size=len(tokenizer), max_position_embeddings=66, pad_token_id=1, project_dim=32)
    config = transformers.AltCLIPConfig(text_config=text, vision_config=tower(image_size=SIDE, patch_size=8), projection_dim=24)
    return saved("altclip", config, "AltCLIPModel", tokenizer, square)


@pytest.fixture(scope="module")
def align(transformers, saved, bert):
    vision = {
        "image_size": 32, "in_channels": [32, 16], "out_channels": [16, 32], "kernel_sizes": [3, 3], "strides": [1, 2],
        "num_block_repeats": [1, 1], "expand_ratios": [1, 2], "depthwise_padding": [], "hidden_dim": 32, "width_coefficient": 1.0,
        "depth_coefficient": 1.0,
    }  # fmt: skip
    text = tower(vocab_size=len(bert), max_position_embeddings=64)
    config = transformers.AlignConfig(text_config=text, vision_config=vision, projection_dim=32)
    size = {"height": 32, "width": 32}
    processor = transformers.EfficientNetImageProcessorPil(size=size, crop_size=size, include_top=True)
    return saved("align", config, "AlignModel", bert, processor, spread=0.5)


FAMILIES = {"clip": 77, "old_clip": 77, "siglip": 64, "siglip2": 64, "blip": 64, "chinese": 64, "altclip": 64, "align": 64}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    folder = request.getfixturevalue(request.param)
    return request.param, folder, hf_model(str(folder))


def embed_with_library(transformers, folder, architecture, images, texts):
    """The forward pass of transformers, one image and one text at a time."""
    net = getattr(transformers, architecture).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    is_siglip = architecture.startswith("Siglip")
    options = {"padding": "max_length", "max_length": 64, "return_attention_mask": False} if is_siglip else {}
    longest = min(tokenizer.model_max_length, 77 if architecture == "CLIPModel" else 64)
    vectors = []
    for image, text in zip(images, texts, strict=True):
        tokens = tokenizer(text, truncation=True, return_tensors="pt", **({"max_length": longest} | options))
        tokens.pop("token_type_ids", None)
        with torch.inference_mode():
            outputs = net(**tokens, **processor(images=image.convert("RGB"), return_tensors="pt"))
        vectors.append([torch.nn.functional.normalize(v, dim=1)[0].numpy() for v in (outputs.image_embeds, outputs.text_embeds)])
    return [np.stack(side) for side in zip(*vectors, strict=True)]


def test_embeddings_equal_those_of_the_library(transformers, family, images):
    _, folder, model = family
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    texts = [*TEXTS[:4], LONG]
    image, text = embed_with_library(transformers, folder, architecture, images, texts)
    assert list_abilities(model) == ("embed",)
    np.testing.assert_allclose(model.embed_images(images), image, **CLOSE)
    np.testing.assert_allclose(model.embed_texts(texts), text, **CLOSE)
    assert np.abs(text[0] - text[1]).max() > 1e-3  # different texts have different vectors
    assert np.abs(image[0] - image[1]).max() > 1e-3


def test_batches_and_order_do_not_change_embeddings(family, images):
    _, _, model = family
    texts = [*TEXTS, LONG, *(f"two cat of {'red ' * n}" for n in range(70))]  # more than a batch
    together = model.embed_texts(texts)
    np.testing.assert_allclose(together[:8], np.concatenate([model.embed_texts([t]) for t in texts[:8]]), **CLOSE)
    np.testing.assert_allclose(model.embed_texts(texts[::-1])[::-1], together, **CLOSE)
    many = images * 4
    alone = np.concatenate([model.embed_images([image]) for image in images] * 4)
    np.testing.assert_allclose(model.embed_images(many), alone, **CLOSE)
    np.testing.assert_array_equal(model.embed_prepared(model.prepare_images(many)), model.embed_images(many))
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-6)


def test_empty_inputs_and_empty_texts_are_embedded(family):
    _, _, model = family
    assert model.embed_texts([]).shape == model.embed_images([]).shape == (0, model.dimensions)
    assert np.isfinite(model.embed_texts([""])).all()


def test_truncated_texts_are_detected(family):
    name, _, model = family
    assert model.longest == FAMILIES[name]
    word = "c" if name == "siglip2" else "cat "
    fits = word * (model.longest - len(model.reader.token_ids([""])[0]))
    assert model.truncated(["a cat", fits, fits + word, LONG]).tolist() == [False, False, True, True]
    assert model.truncated([]).shape == (0,)
    np.testing.assert_allclose(*model.embed_texts([fits, fits + word + "dog"]), **CLOSE)


def test_signature_changes_with_the_configuration(family, tmp_path):
    name, folder, model = family
    parts = model.signature.split("|")
    assert parts[0] == f"hf:{folder.name}"
    assert parts[1:3] == ["embed", "revision:folder"]
    assert f"tokens:{FAMILIES[name]}" in parts
    assert parts[-1] == "fp32"
    assert model.similarity == "cosine"
    copy = tmp_path / folder.name
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert hf_model(str(copy)).signature == model.signature
    with (copy / "config.json").open("a") as file:
        file.write(" ")
    assert hf_model(str(copy)).signature != model.signature


def test_siglip_texts_are_padded_to_64_tokens(transformers, siglip):
    """With less padding the same text has another embedding."""
    model = hf_model(str(siglip))
    tokens = model.reader.inputs(model.reader.token_ids(["a red cat"]))
    assert list(tokens) == ["input_ids"]
    assert tokens["input_ids"].shape == (1, 64)
    net = transformers.SiglipModel.from_pretrained(siglip).eval()
    with torch.inference_mode():
        short = torch.nn.functional.normalize(net.get_text_features(tokens["input_ids"][:, :4]).pooler_output, dim=1).numpy()
    assert np.abs(short - model.embed_texts(["a red cat"])).max() > 1e-3
    np.testing.assert_allclose(*model.embed_texts(["A RED Cat", "a red cat"]), **CLOSE)  # it was trained on lower case


def test_images_are_converted_to_rgb(clip, images):
    model = hf_model(str(clip))
    grey = images[3]
    assert grey.mode == "L"
    np.testing.assert_array_equal(model.embed_images([grey]), model.embed_images([grey.convert("RGB")]))
    assert preprocess_images(model.processor, [grey])[0]["pixel_values"].shape == (1, 3, SIDE, SIDE)


def test_clip_tokenizer_without_end_token_is_refused(transformers, saved, make_tokenizer, square):
    tokenizer = make_tokenizer(("[PAD]", "[UNK]", "<start>"), "<start> $A", last=("<end>",), pad_token="[PAD]", eos_token="<end>")
    text = tower(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, max_position_embeddings=77)
    config = transformers.CLIPConfig(text_config=text, vision_config=tower(image_size=SIDE, patch_size=8), projection_dim=24)
    folder = saved("endless", config, "CLIPModel", tokenizer, square)
    with pytest.raises(CrossmatchError, match=r"returns \[2\] for an empty text, without the end token"):
        hf_model(str(folder))
