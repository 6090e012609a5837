"""Image-text-to-text models: the probability of an answer, token by token, whatever the batch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models.abilities import PairScorer, abilities
from crossmatch.models.hf import hf_model
from crossmatch.models.hf.vqa import PROMPTS, QUESTION, REQUEST, continued

from .conftest import SIDE, TEXTS, tower

CLOSE = {"rtol": 0, "atol": 1e-5}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }} {% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<image> {% else %}{{ c['text'] }}{% endif %}{% endfor %} {% endfor %}"
    "{% if add_generation_prompt %}assistant{{ ending }}{% endif %}"
)


@pytest.fixture(scope="module")
def llama_tokenizer(make_tokenizer):
    return make_tokenizer(
        ("<pad>", "[UNK]", "<s>", "</s>", "<image>"), "<s> $A",
        pad_token="<pad>", bos_token="<s>", eos_token="</s>", model_max_length=512,
    )  # fmt: skip


@pytest.fixture(scope="module")
def make_llava(transformers, saved, llama_tokenizer):
    def make(name, template):
        image = transformers.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
        processor = transformers.LlavaProcessor(
            image, llama_tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
            chat_template=template,
        )  # fmt: skip
        config = transformers.LlavaConfig(
            vision_config=transformers.CLIPVisionConfig(**tower(image_size=SIDE, patch_size=8)),
            text_config=transformers.LlamaConfig(**tower(vocab_size=len(llama_tokenizer), max_position_embeddings=512)),
            image_token_index=4, vision_feature_select_strategy="default", vision_feature_layer=-1,
        )  # fmt: skip
        return saved(name, config, "LlavaForConditionalGeneration", processor)

    return make


@pytest.fixture(scope="module")
def llava(make_llava):
    return make_llava("llava", TEMPLATE.replace("{{ ending }}", ":"))


@pytest.fixture(scope="module")
def plain_llava(make_llava):
    """Without a chat template, as the first releases."""
    return make_llava("plain", None)


@pytest.fixture(scope="module")
def t5_tokenizer(make_tokenizer):
    return make_tokenizer(
        ("<pad>", "</s>", "[UNK]", "<image>"), "$A </s>", pad_token="<pad>", eos_token="</s>", model_max_length=512,
    )  # fmt: skip


def writers(transformers, words):
    """The two kinds of language models: one reads the question and writes the answer apart, the other goes on after it."""
    sizes = {"vocab_size": words, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}
    return {
        "t5": transformers.T5Config(**sizes, decoder_start_token_id=0),
        "llama": transformers.LlamaConfig(**tower(vocab_size=words, max_position_embeddings=512)),
    }


@pytest.fixture(scope="module")
def make_blip2(transformers, saved, t5_tokenizer, llama_tokenizer):
    """Without a chat template, as the released ones."""

    def make(language):
        tokenizer = {"t5": t5_tokenizer, "llama": llama_tokenizer}[language]
        image = transformers.BlipImageProcessorPil(size={"height": SIDE, "width": SIDE})
        processor = transformers.Blip2Processor(image, tokenizer, num_query_tokens=3)
        config = transformers.Blip2Config(
            vision_config=transformers.Blip2VisionConfig(**tower(image_size=SIDE, patch_size=8)),
            qformer_config=transformers.Blip2QFormerConfig(**tower(vocab_size=len(tokenizer), encoder_hidden_size=32)),
            text_config=writers(transformers, len(tokenizer))[language],
            num_query_tokens=3, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        )  # fmt: skip
        return saved(f"blip2-{language}", config, "Blip2ForConditionalGeneration", processor)

    return make


@pytest.fixture(scope="module")
def blip2(make_blip2):
    return make_blip2("t5")


@pytest.fixture(scope="module")
def causal_blip2(make_blip2):
    return make_blip2("llama")


@pytest.fixture(scope="module")
def make_instructblip(transformers, saved, t5_tokenizer, llama_tokenizer, bert):
    """Its Q-Former reads the question as well, through a tokenizer of its own."""

    def make(language):
        tokenizer = {"t5": t5_tokenizer, "llama": llama_tokenizer}[language]
        image = transformers.BlipImageProcessorPil(size={"height": SIDE, "width": SIDE})
        processor = transformers.InstructBlipProcessor(image, tokenizer, bert, num_query_tokens=3)
        config = transformers.InstructBlipConfig(
            vision_config=transformers.InstructBlipVisionConfig(**tower(image_size=SIDE, patch_size=8)),
            qformer_config=transformers.InstructBlipQFormerConfig(**tower(vocab_size=len(bert), encoder_hidden_size=32)),
            text_config=writers(transformers, len(tokenizer))[language],
            num_query_tokens=3, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        )  # fmt: skip
        return saved(f"instructblip-{language}", config, "InstructBlipForConditionalGeneration", processor)

    return make


@pytest.fixture(scope="module")
def instructblip(make_instructblip):
    return make_instructblip("t5")


@pytest.fixture(scope="module")
def causal_instructblip(make_instructblip):
    return make_instructblip("llama")


@pytest.fixture(scope="module")
def paligemma(transformers, saved, make_tokenizer):
    """Its processor writes <image>…<bos>question, then an end of line; all of that sees all of itself, the answer does not."""
    tokenizer = make_tokenizer(
        ("<pad>", "[UNK]", "<bos>", "<eos>", "<image>", "\n"), "$A",
        pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", model_max_length=512,
    )  # fmt: skip
    image = transformers.SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    image.image_seq_length = 4
    processor = transformers.PaliGemmaProcessor(image, tokenizer)
    config = transformers.PaliGemmaConfig(
        vision_config=transformers.SiglipVisionConfig(**tower(image_size=SIDE, patch_size=8)),
        text_config=transformers.GemmaConfig(**tower(vocab_size=len(tokenizer), num_key_value_heads=2, head_dim=8)),
        image_token_index=4, projection_dim=32, hidden_size=32,
    )  # fmt: skip
    return saved("paligemma", config, "PaliGemmaForConditionalGeneration", processor)


def answered(transformers, folder, images, prompts, answers):
    """The slow and obvious way: one forward of transformers for each token of each answer, with nothing else in the batch."""
    net = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    processor.image_processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    apart = net.config.text_config.model_type == "t5"
    out = []
    for image, prompt, answer in zip(images, prompts, answers, strict=True):
        how = {"add_special_tokens": False} if prompt.startswith("<s>") else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of PaliGemma's processor
            given = processor(images=image.convert("RGB"), text=prompt, return_tensors="pt", **how)
        given.pop("labels", None)
        told, total = [0], 0.0
        for token in processor.tokenizer(answer, add_special_tokens=False)["input_ids"]:
            with torch.inference_mode():
                said = net(**given, decoder_input_ids=torch.tensor([told])) if apart else net(**given)
            total += said.logits[0, -1].double().log_softmax(dim=0)[token].item()
            told.append(token)
            if not apart:
                given["input_ids"] = torch.cat([given["input_ids"], torch.tensor([[token]])], dim=1)
                given["attention_mask"] = torch.ones_like(given["input_ids"])
                if "token_type_ids" in given:
                    given["token_type_ids"] = torch.cat([given["token_type_ids"], torch.ones(1, 1, dtype=torch.long)], dim=1)
        out.append(total)
    return np.array(out)


ASKED = {
    "llava": "<s>user <image> {} assistant:",
    "plain_llava": PROMPTS["llava"],
    "blip2": PROMPTS["blip-2"],
    "causal_blip2": PROMPTS["blip-2"],
    "instructblip": PROMPTS["instructblip"],
    "causal_instructblip": PROMPTS["instructblip"],
    "paligemma": PROMPTS["paligemma"],
}


@pytest.fixture(scope="module", params=ASKED)
def asked(request):
    folder = request.getfixturevalue(request.param)
    return ASKED[request.param], folder, hf_model(str(folder))


def test_every_known_prompt_is_tried():
    assert set(PROMPTS.values()) == set(ASKED.values()) - {ASKED["llava"]}


def grid(form, images, texts):
    return [i for i in images for _ in texts], [form.replace("{}", QUESTION.replace("{}", t)) for _ in images for t in texts]


def test_the_score_is_the_probability_of_yes(transformers, asked, images):
    form, folder, model = asked
    pictures, prompts = grid(form, images, TEXTS)
    expected = answered(transformers, folder, pictures, prompts, ["Yes"] * len(prompts)).reshape(5, 5)
    found = model.score(images, TEXTS)
    np.testing.assert_allclose(np.log(found), expected, **CLOSE)  # of words that are all rare, P differs by less
    assert np.ptp(expected, axis=0).min() > 1e-3  # both the image
    assert np.ptp(expected, axis=1).min() > 1e-3  # and the text matter
    np.testing.assert_array_equal(found[:, 0], found[:, 4])
    assert abilities(model) == ("score",)
    assert isinstance(model, PairScorer)
    assert f"|question:{QUESTION}|answer:Yes|" in model.signature


def test_neither_company_nor_order_changes_a_score(asked, images):
    _, _, model = asked
    texts = [*TEXTS, *(f"two cat of {'red ' * n}" for n in range(8))]
    together = model.score(images, texts)
    for i, t in ((0, 0), (1, 2), (2, 3), (4, 12)):
        np.testing.assert_allclose(model.score([images[i]], [texts[t]]), together[i, t], **CLOSE)
    np.testing.assert_allclose(model.score(images[::-1], texts[::-1])[::-1, ::-1], together, **CLOSE)
    np.testing.assert_allclose(model.score_pairs(images, texts[:5]), np.diag(together[:, :5]), **CLOSE)
    assert model.score([], texts).shape == (0, 13)
    assert model.score(images, []).shape == (5, 0)
    with pytest.raises(CrossmatchError, match="no pairs"):
        model.score_pairs(images, texts)


def test_another_question(transformers, asked, images):
    form, folder, model = asked
    other = hf_model(f"{folder},question=a photo of {{}}, yes or no?")
    expected = answered(transformers, folder, images[:1], [form.replace("{}", "a photo of a cat, yes or no?")], ["Yes"])
    np.testing.assert_allclose(other.score(images[:1], ["a cat"])[0], np.exp(expected), **CLOSE)
    assert other.signature != model.signature
    with pytest.raises(WrongWords, match="does not say where the text goes"):
        hf_model(f"{folder},question=a cat?")


def test_as_a_captioner(transformers, asked, images):
    form, folder, _ = asked
    model = hf_model(f"{folder},likelihood")
    assert abilities(model) == ("log-likelihood",)
    prompts = [form.replace("{}", REQUEST)] * 10
    pictures = [i for i in images[:2] for _ in TEXTS]
    expected = answered(transformers, folder, pictures, prompts, [f"{t} {model.plain.end}" for t in TEXTS] * 2).reshape(2, 5)
    found = model.log_likelihood(images[:2], TEXTS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)  # a sum of up to 15 numbers in float32
    assert model.lengths(["a red cat", ""]).tolist() == [4, 1]
    assert not model.truncated(TEXTS).any()
    corrected = hf_model(f"{folder},likelihood,prior=1,prompt=a photo of what?")
    assert "|prompt:a photo of what?|prior:1/3noise256|" in corrected.signature
    assert np.isfinite(corrected.log_likelihood(images[:1], TEXTS[:2])).all()


@pytest.mark.parametrize("name", ["causal_instructblip", "paligemma", "causal_blip2"])
def test_the_answer_is_not_shown_before_it_is_asked_for(request, name, images, monkeypatch):
    """Neither to a Q-Former nor in a prefix; what is said of its first token is the same whatever the answer is."""
    chat = hf_model(str(request.getfixturevalue(name))).chat
    prompt, seen = chat.prompt("the figure"), []
    words = dict(zip(("Yes", "No"), chat.processor.tokenizer.convert_tokens_to_ids(["Yes", "No"]), strict=True))
    forward = chat.net.forward

    def listening(**given):
        seen.append((given, forward(**given).logits))
        return forward(**given)

    monkeypatch.setattr(chat.net, "forward", listening)
    for answer in words:
        chat.log_answers(images[:1], [prompt], [answer])
    (yes, before), (no, after) = seen
    assert [n for n, values in yes.items() if torch.is_tensor(values) and not torch.equal(values, no[n])] == ["input_ids"]
    assert (yes["input_ids"] != no["input_ids"]).nonzero().tolist() == [[0, yes["input_ids"].shape[1] - 1]]
    assert (yes["input_ids"][0, -1], no["input_ids"][0, -1]) == tuple(words.values())
    torch.testing.assert_close(before[:, :-1], after[:, :-1])


def test_inputs_of_every_shape_go_on_with_the_answer():
    """Filled up on either side; a mask of several axes, and what an answer's tokens are called."""
    real = torch.tensor([[0, 1, 1], [1, 1, 1]])
    seen = torch.arange(6.0).reshape(2, 3, 1)
    given = {"input_ids": torch.tensor([[0, 5, 6], [5, 6, 7]]), "attention_mask": real, "token_type_ids": 0 * real,
             "cross_attention_mask": seen, "labels": real, "pixel_values": seen}  # fmt: skip
    found = continued(given, [0, 1], [[8, 9], [8]], kind=1, fill=3)
    assert found["input_ids"].tolist() == [[5, 6, 8, 9], [5, 6, 8, 3]]
    assert found["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert found["token_type_ids"].tolist() == [[0, 0, 1, 1], [0, 0, 1, 0]]
    assert found["cross_attention_mask"][..., 0].tolist() == [[1, 2, 2, 2], [3, 4, 4, 0]]
    assert found["pixel_values"] is seen
    assert "labels" not in found


def test_the_beginning_is_written_once(llava, images):
    """The template writes it, and the tokenizer would write it again."""
    chat = hf_model(str(llava)).chat
    prompt = chat.prompt("a cat")
    assert prompt.startswith("<s>")
    given = chat._given(images[:1], [prompt])
    assert (given["input_ids"] == 2).sum() == 1
    assert (given["input_ids"] == 4).sum() == 4  # the patches of an image


def test_a_template_that_ends_in_a_space(transformers, make_llava, images):
    folder = make_llava("newline", TEMPLATE.replace("{{ ending }}", "{{ '\\n' }}"))
    model = hf_model(str(folder))
    assert model.chat.prompt("a cat").endswith("\n")
    assert model.chat.tokens(model.chat.prompt("a cat"), "Yes") == [model.chat.processor.tokenizer.convert_tokens_to_ids("Yes")]
    assert model.score(images[:1], ["a cat"]).shape == (1, 1)


def test_an_end_of_the_prompt_that_merges_with_the_answer_is_written_anew(llava, monkeypatch):
    """As "▁" before "▁Yes" in the vocabularies of Llama."""
    chat = hf_model(str(llava)).chat
    monkeypatch.setattr(chat, "_numbers", lambda text, special=None: {"ask: ": [7, 1], "ask: Yes": [7, 2, 3]}[text])
    assert chat._after("ask: ", "Yes") == (1, [2, 3])
    assert chat.tokens("ask: ", "Yes") == [2, 3]


def test_without_a_template_a_known_prompt_or_an_error(make_llava, images):
    folder = make_llava("bare", None)
    model = hf_model(str(folder))
    assert model.chat.prompt("a cat?") == "USER: <image>\na cat? ASSISTANT:"
    assert model.score(images[:2], TEXTS).shape == (2, 5)
    model.chat.net.config.model_type = "other"
    with pytest.raises(CrossmatchError, match=r"has no chat template \(chat_template.jinja\), which says how a other is asked"):
        type(model.chat)(model.chat.net, model.chat.processor, "here")
