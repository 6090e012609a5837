"""Image-text-to-text models: the probability of an answer against one forward pass per token."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.abilities import PairScorer, list_abilities
from crossmatch.models.adapters.transformers import hf_model
from crossmatch.models.adapters.transformers.chat_models import PROMPTS, QUESTION, REQUEST, append_answers

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
    """Without a chat template, as in the first releases."""
    return make_llava("plain", None)


@pytest.fixture(scope="module")
def t5_tokenizer(make_tokenizer):
    return make_tokenizer(
        ("<pad>", "</s>", "[UNK]", "<image>"), "$A </s>", pad_token="<pad>", eos_token="</s>", model_max_length=512,
    )  # fmt: skip


def language_model_configs(transformers, words):
    """Configurations of an encoder-decoder and of a causal language model."""
    sizes = {"vocab_size": words, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}
    return {
        "t5": transformers.T5Config(**sizes, decoder_start_token_id=0),
        "llama": transformers.LlamaConfig(**tower(vocab_size=words, max_position_embeddings=512)),
    }


@pytest.fixture(scope="module")
def make_blip(transformers, saved, t5_tokenizer, llama_tokenizer, bert):
    """BLIP-2 or InstructBLIP, whose Q-Former reads the question too; without a chat template, as in the released models."""

    def make(family, language):
        tokenizer = {"t5": t5_tokenizer, "llama": llama_tokenizer}[language]
        image = transformers.BlipImageProcessorPil(size={"height": SIDE, "width": SIDE})
        qformer_tokenizers = [bert] if family == "InstructBlip" else []
        processor = getattr(transformers, f"{family}Processor")(image, tokenizer, *qformer_tokenizers, num_query_tokens=3)
        qformer = tower(vocab_size=len(bert if qformer_tokenizers else tokenizer), encoder_hidden_size=32)
        config = getattr(transformers, f"{family}Config")(
            vision_config=getattr(transformers, f"{family}VisionConfig")(**tower(image_size=SIDE, patch_size=8)),
            qformer_config=getattr(transformers, f"{family}QFormerConfig")(**qformer),
            text_config=language_model_configs(transformers, len(tokenizer))[language],
            num_query_tokens=3, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        )  # fmt: skip
        return saved(f"{family}-{language}", config, f"{family}ForConditionalGeneration", processor)

    return make


@pytest.fixture(scope="module")
def blip2(make_blip):
    return make_blip("Blip2", "t5")


@pytest.fixture(scope="module")
def causal_blip2(make_blip):
    return make_blip("Blip2", "llama")


@pytest.fixture(scope="module")
def instructblip(make_blip):
    return make_blip("InstructBlip", "t5")


@pytest.fixture(scope="module")
def causal_instructblip(make_blip):
    return make_blip("InstructBlip", "llama")


@pytest.fixture(scope="module")
def paligemma(transformers, saved, make_tokenizer):
    """The processor writes <image>…<bos>question and a line end; attention within that prefix is bidirectional."""
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


def log_answers_one_by_one(transformers, folder, images, prompts, answers):
    """Slow version: one forward pass for each token of each answer, in a batch of one."""
    net = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    processor.image_processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    has_separate_decoder = net.config.text_config.model_type == "t5"
    out = []
    for image, prompt, answer in zip(images, prompts, answers, strict=True):
        options = {"add_special_tokens": False} if prompt.startswith("<s>") else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of PaliGemma's processor
            inputs = processor(images=image.convert("RGB"), text=prompt, return_tensors="pt", **options)
        inputs.pop("labels", None)
        prefix, total = [0], 0.0
        for token in processor.tokenizer(answer, add_special_tokens=False)["input_ids"]:
            with torch.inference_mode():
                outputs = net(**inputs, decoder_input_ids=torch.tensor([prefix])) if has_separate_decoder else net(**inputs)
            total += outputs.logits[0, -1].double().log_softmax(dim=0)[token].item()
            prefix.append(token)
            if not has_separate_decoder:
                inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([[token]])], dim=1)
                inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
                if "token_type_ids" in inputs:
                    inputs["token_type_ids"] = torch.cat([inputs["token_type_ids"], torch.ones(1, 1, dtype=torch.long)], dim=1)
        out.append(total)
    return np.array(out)


PROMPT_OF_MODEL = {
    "llava": "<s>user <image> {} assistant:",
    "plain_llava": PROMPTS["llava"],
    "blip2": PROMPTS["blip-2"],
    "causal_blip2": PROMPTS["blip-2"],
    "instructblip": PROMPTS["instructblip"],
    "causal_instructblip": PROMPTS["instructblip"],
    "paligemma": PROMPTS["paligemma"],
}


@pytest.fixture(scope="module", params=PROMPT_OF_MODEL)
def chat_model(request):
    folder = request.getfixturevalue(request.param)
    return PROMPT_OF_MODEL[request.param], folder, hf_model(str(folder))


def test_every_prompt_is_tested():
    assert set(PROMPTS.values()) == set(PROMPT_OF_MODEL.values()) - {PROMPT_OF_MODEL["llava"]}


def grid(template, images, texts):
    return [i for i in images for _ in texts], [template.replace("{}", QUESTION.replace("{}", t)) for _ in images for t in texts]


def test_score_is_the_probability_of_yes(transformers, chat_model, images):
    template, folder, model = chat_model
    pictures, prompts = grid(template, images, TEXTS)
    expected = log_answers_one_by_one(transformers, folder, pictures, prompts, ["Yes"] * len(prompts)).reshape(5, 5)
    scores = model.score(images, TEXTS)
    np.testing.assert_allclose(np.log(scores), expected, **CLOSE)  # probabilities differ by less than their logarithms
    assert np.ptp(expected, axis=0).min() > 1e-3  # both the image
    assert np.ptp(expected, axis=1).min() > 1e-3  # and the text matter
    np.testing.assert_array_equal(scores[:, 0], scores[:, 4])
    assert list_abilities(model) == ("score",)
    assert isinstance(model, PairScorer)
    assert f"|question:{QUESTION}|answer:Yes|" in model.signature


def test_batches_and_order_do_not_change_scores(chat_model, images):
    _, _, model = chat_model
    texts = [*TEXTS, *(f"two cat of {'red ' * n}" for n in range(8))]
    together = model.score(images, texts)
    for i, t in ((0, 0), (1, 2), (2, 3), (4, 12)):
        np.testing.assert_allclose(model.score([images[i]], [texts[t]]), together[i, t], **CLOSE)
    np.testing.assert_allclose(model.score(images[::-1], texts[::-1])[::-1, ::-1], together, **CLOSE)
    np.testing.assert_allclose(model.score_pairs(images, texts[:5]), np.diag(together[:, :5]), **CLOSE)
    assert model.score([], texts).shape == (0, 13)
    assert model.score(images, []).shape == (5, 0)
    with pytest.raises(CrossmatchError, match="as many images as texts"):
        model.score_pairs(images, texts)


def test_question_can_be_changed(transformers, chat_model, images):
    template, folder, model = chat_model
    changed = hf_model(f"{folder},question=a photo of {{}}, yes or no?")
    expected = log_answers_one_by_one(
        transformers, folder, images[:1], [template.replace("{}", "a photo of a cat, yes or no?")], ["Yes"]
    )
    np.testing.assert_allclose(changed.score(images[:1], ["a cat"])[0], np.exp(expected), **CLOSE)
    assert changed.signature != model.signature
    with pytest.raises(UsageError, match="has no placeholder for the text"):
        hf_model(f"{folder},question=a cat?")


def test_likelihood_is_the_probability_of_the_description(transformers, chat_model, images):
    template, folder, _ = chat_model
    model = hf_model(f"{folder},likelihood")
    assert list_abilities(model) == ("log-likelihood",)
    prompts = [template.replace("{}", REQUEST)] * 10
    pictures = [i for i in images[:2] for _ in TEXTS]
    expected = log_answers_one_by_one(
        transformers, folder, pictures, prompts, [f"{t} {model.plain.end}" for t in TEXTS] * 2
    ).reshape(2, 5)
    scores = model.log_likelihood(images[:2], TEXTS)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-5)  # a sum of up to 15 numbers in float32
    assert model.lengths(["a red cat", ""]).tolist() == [4, 1]
    assert not model.truncated(TEXTS).any()
    corrected = hf_model(f"{folder},likelihood,prior=1,prompt=a photo of what?")
    assert "|prompt:a photo of what?|prior:1/3noise256|" in corrected.signature
    assert np.isfinite(corrected.log_likelihood(images[:1], TEXTS[:2])).all()


@pytest.mark.parametrize("name", ["causal_instructblip", "paligemma", "causal_blip2"])
def test_network_does_not_see_the_answer_before_it_is_predicted(request, name, images, monkeypatch):
    """Neither the Q-Former nor the prefix contains it: the logits of the first token are equal for all answers."""
    chat = hf_model(str(request.getfixturevalue(name))).chat
    prompt, calls = chat.prompt("the figure"), []
    words = dict(zip(("Yes", "No"), chat.processor.tokenizer.convert_tokens_to_ids(["Yes", "No"]), strict=True))
    forward = chat.net.forward

    def record(**inputs):
        calls.append((inputs, forward(**inputs).logits))
        return forward(**inputs)

    monkeypatch.setattr(chat.net, "forward", record)
    for answer in words:
        chat.log_answers(images[:1], [prompt], [answer])
    (yes, before), (no, after) = calls
    assert [n for n, values in yes.items() if torch.is_tensor(values) and not torch.equal(values, no[n])] == ["input_ids"]
    assert (yes["input_ids"] != no["input_ids"]).nonzero().tolist() == [[0, yes["input_ids"].shape[1] - 1]]
    assert (yes["input_ids"][0, -1], no["input_ids"][0, -1]) == tuple(words.values())
    torch.testing.assert_close(before[:, :-1], after[:, :-1])


def test_answers_are_appended_to_inputs_of_every_shape():
    """Padding on either side, a mask with several axes, and the token type of an answer."""
    is_token = torch.tensor([[0, 1, 1], [1, 1, 1]])
    mask = torch.arange(6.0).reshape(2, 3, 1)
    inputs = {"input_ids": torch.tensor([[0, 5, 6], [5, 6, 7]]), "attention_mask": is_token, "token_type_ids": 0 * is_token,
             "cross_attention_mask": mask, "labels": is_token, "pixel_values": mask}  # fmt: skip
    sequences = append_answers(inputs, [0, 1], [[8, 9], [8]], answer_type=1, padding=3)
    assert sequences["input_ids"].tolist() == [[5, 6, 8, 9], [5, 6, 8, 3]]
    assert sequences["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert sequences["token_type_ids"].tolist() == [[0, 0, 1, 1], [0, 0, 1, 0]]
    assert sequences["cross_attention_mask"][..., 0].tolist() == [[1, 2, 2, 2], [3, 4, 4, 0]]
    assert sequences["pixel_values"] is mask
    assert "labels" not in sequences


def test_start_token_is_written_once(llava, images):
    """The template writes it, so the tokenizer must not."""
    chat = hf_model(str(llava)).chat
    prompt = chat.prompt("a cat")
    assert prompt.startswith("<s>")
    inputs = chat._prepare(images[:1], [prompt])
    assert (inputs["input_ids"] == 2).sum() == 1
    assert (inputs["input_ids"] == 4).sum() == 4  # the patches of an image


def test_template_may_end_in_white_space(transformers, make_llava, images):
    folder = make_llava("newline", TEMPLATE.replace("{{ ending }}", "{{ '\\n' }}"))
    model = hf_model(str(folder))
    assert model.chat.prompt("a cat").endswith("\n")
    assert model.chat.tokens(model.chat.prompt("a cat"), "Yes") == [model.chat.processor.tokenizer.convert_tokens_to_ids("Yes")]
    assert model.score(images[:1], ["a cat"]).shape == (1, 1)


def test_prompt_tokens_that_merge_with_the_answer_are_replaced(llava, monkeypatch):
    """As "▁" before "▁Yes" in the vocabularies of Llama."""
    chat = hf_model(str(llava)).chat
    monkeypatch.setattr(chat, "_token_ids", lambda text, special=None: {"ask: ": [7, 1], "ask: Yes": [7, 2, 3]}[text])
    assert chat._answer_tokens("ask: ", "Yes") == (1, [2, 3])
    assert chat.tokens("ask: ", "Yes") == [2, 3]


def test_model_without_template_needs_a_known_prompt(make_llava, images):
    folder = make_llava("bare", None)
    model = hf_model(str(folder))
    assert model.chat.prompt("a cat?") == "USER: <image>\na cat? ASSISTANT:"
    assert model.score(images[:2], TEXTS).shape == (2, 5)
    model.chat.net.config.model_type = "other"
    with pytest.raises(CrossmatchError, match=r"has no chat template \(chat_template.jinja\), which a other needs"):
        type(model.chat)(model.chat.net, model.chat.processor, "here")
