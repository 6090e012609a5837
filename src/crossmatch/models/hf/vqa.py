"""Image-text-to-text models of transformers: asked whether an image shows a text, or for a description of the image."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models.hf.caption_likelihood import log_likelihoods
from crossmatch.models.hf.inputs import UNBOUNDED, alike, distinct, padded, require_pairs
from crossmatch.models.hf.loading import Place, network, processor_of, require_fit, system_line

try:
    import torch
    from torch import Tensor
    from torch.nn.utils.rnn import pad_sequence
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

QUESTION = 'Does this figure show "{}"? Please answer yes or no.'
ANSWER = "Yes"
REQUEST = "Describe this image in one sentence."
PAIRS = 8  # in a batch: these networks are large

PROMPTS: Mapping[str, str] = {  # of models without a chat template, by model type
    "blip-2": "Question: {} Answer:",
    "instructblip": "{}",
    "llava": "USER: <image>\n{} ASSISTANT:",
    "paligemma": "<image>answer en {}",
}
WRITTEN: Mapping[str, str] = {"paligemma": "\n"}  # what a processor itself writes between prompt and answer
# Inputs with a row for each token; an answer's tokens have what the last token of the prompt has, as where transformers generates.
PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "cross_attention_mask", "image_attention_mask")
ANSWERS: Mapping[str, int] = {"paligemma": 1}  # but for these token_type_ids: 0 is seen from everywhere, 1 only from later on


class Chat:
    """A network that answers a prompt about an image.

        log P(a | i, p) = Σ_n log p(a_n | a_1 … a_{n-1}, p, i)

    over the tokens of the answer a, after the prompt p in the model's own chat template. The processor is given the prompt alone,
    and the answer's tokens are put after it: no part of the network (InstructBLIP's Q-Former, PaliGemma's prefix, which all of
    itself sees) is shown the answer before it is asked for it. Sequences are filled up on the right, where a causal network does
    not look, so that an answer does not depend on the others of its batch.
    """

    def __init__(self, net: Any, processor: Any, where: str) -> None:
        self.net, self.processor = net, processor
        processor.tokenizer.padding_side = "right"
        if processor.tokenizer.pad_token is None:
            processor.tokenizer.pad_token = processor.tokenizer.eos_token
        text = net.config.get_text_config(decoder=True)
        self.answers_apart = bool(getattr(text, "is_encoder_decoder", False) or getattr(net.config, "is_encoder_decoder", False))
        self.written = WRITTEN.get(net.config.model_type, "")
        template = getattr(processor, "chat_template", None) or getattr(processor.tokenizer, "chat_template", None)
        self.plain = None if template else PROMPTS.get(net.config.model_type)
        if template is None and self.plain is None:
            raise CrossmatchError(
                f"{where} has no chat template (chat_template.jinja), which says how a {net.config.model_type} is asked. Fetch the "
                "model again, with all its files."
            )

    def prompt(self, words: str) -> str:
        """These words as a user's message with an image, up to where the answer begins."""
        if self.plain is not None:
            return self.plain.format(words)
        message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": words}]}
        told: str = self.processor.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        return told

    def tokens(self, prompt: str, answer: str) -> list[int]:
        """The tokens of the answer where it stands after the prompt; alone it may be cut in another way."""
        return self._after(prompt, answer)[1]

    def _after(self, prompt: str, answer: str) -> tuple[int, list[int]]:
        """How many of the prompt's last tokens become others when the answer follows ("▁" before "▁Yes"), and all from there on."""
        if self.answers_apart:
            return 0, self._numbers(answer, False)
        asked = prompt + self.written
        before, whole = self._numbers(asked), self._numbers(joined(asked, answer))
        same = next((n for n, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), min(len(before), len(whole)))
        return len(before) - same, whole[same:]

    def _numbers(self, text: str, special: bool | None = None) -> list[int]:
        special = not self._begun(text) if special is None else special
        found: list[int] = self.processor.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        return found

    def _begun(self, text: str) -> bool:
        """Whether the template wrote the first token itself, which must not come twice."""
        begin = self.processor.tokenizer.bos_token
        return begin is not None and text.startswith(begin)

    def log_answers(self, images: Sequence[Image], prompts: Sequence[str], answers: Sequence[str]) -> FloatArray:
        """log P(answer n | image n, prompt n)."""
        after = [self._after(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        out = np.empty(len(images))
        with torch.inference_mode():
            for part in alike([len(self._numbers(p)) + len(t) for p, (_, t) in zip(prompts, after, strict=True)], PAIRS):
                given = self._given([images[n] for n in part], [prompts[n] for n in part])
                out[part] = self._answered(given, [after[n][0] for n in part], [after[n][1] for n in part])
        return out

    def _given(self, images: list[Image], texts: list[str]) -> dict[str, Any]:
        special = {"add_special_tokens": False} if self._begun(texts[0]) else {}
        pictures = [[image.convert("RGB")] for image in images]
        if self.plain is not None:  # processors without a chat take one image for each text
            pictures = [one for (one,) in pictures]  # type: ignore[misc]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of PaliGemma's processor, which makes labels that are not needed
            return dict(self.processor(images=pictures, text=texts, padding=True, return_tensors="pt", **special))

    def _answered(self, given: dict[str, Any], gone: list[int], targets: list[list[int]]) -> FloatArray:
        ids, counted = padded(targets, 0)
        if self.answers_apart:
            labels = ids.masked_fill(counted == 0, -100)
            return log_likelihoods(self.net(**given, labels=labels).logits, ids, counted)
        whole = continued(given, gone, targets, ANSWERS.get(self.net.config.model_type), self.processor.tokenizer.pad_token_id or 0)
        logits: Tensor = self.net(**whole, use_cache=False).logits
        ends = whole["attention_mask"].sum(dim=1)
        starts = torch.tensor([int(end) - len(row) for end, row in zip(ends, targets, strict=True)])
        # what place n says is about token n + 1; places beyond a short answer do not count
        places = (starts[:, None] - 1 + torch.arange(ids.shape[1])).clamp(max=logits.shape[1] - 1)
        chosen = logits[torch.arange(len(ids))[:, None], places]
        return log_likelihoods(chosen, ids, counted)


def continued(
    given: Mapping[str, Any], gone: Sequence[int], answers: Sequence[Sequence[int]], kind: int | None = None, fill: int = 0
) -> dict[str, Any]:
    """The inputs of prompts, each without its last `gone` tokens and with its answer's tokens after it, filled up on the right.

    `kind`: what `token_type_ids` say of an answer, where that is not what they say of the end of the prompt.

    >>> prompts = {"input_ids": torch.tensor([[5, 6, 7], [5, 0, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]])}
    >>> [values.tolist() for values in continued(prompts, [1, 0], [[8], [8, 9]]).values()]
    [[[5, 6, 8], [5, 8, 9]], [[1, 1, 1], [1, 1, 1]]]
    """
    real = given["attention_mask"].bool()
    out = {name: values for name, values in given.items() if name not in (*PER_TOKEN, "labels")}
    for name in (name for name in PER_TOKEN if name in given):
        rows = []
        for row, here, less, answer in zip(given[name], real, gone, answers, strict=True):
            kept = row[here][: int(here.sum()) - less]
            more = kept[-1:].expand(len(answer), *kept.shape[1:])
            if name == "input_ids":
                more = torch.tensor(answer, dtype=kept.dtype)
            elif name == "token_type_ids" and kind is not None:
                more = torch.full_like(more, kind)
            rows.append(torch.cat([kept, more]))
        out[name] = pad_sequence(rows, batch_first=True, padding_value=fill if name == "input_ids" else 0)
    return out


def joined(prompt: str, answer: str) -> str:
    """The answer after the prompt, with a space where there is none.

    >>> joined("ASSISTANT:", "Yes"), joined("<assistant> ", "Yes")
    ('ASSISTANT: Yes', '<assistant> Yes')
    """
    return f"{prompt}{'' if prompt[-1:].isspace() or not prompt else ' '}{answer}"


class Asker:
    """How surely the network says yes when it is asked whether the image shows the text.

        VQAScore(i, t) = P("Yes" | i, question(t)),      question(t) = 'Does this figure show "t"? Please answer yes or no.'

    Source: lin2024vqascore.
    """

    def __init__(self, chat: Chat, question: str, signature: str) -> None:
        self.chat, self.question, self.signature = chat, question, signature

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Every image with every text: (images, texts)."""
        (pictures, image), (words, text) = distinct(images), distinct(texts)
        found = self._ask([p for p in pictures for _ in words], words * len(pictures)).reshape(len(pictures), len(words))
        return found[np.ix_(image, text)]

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Image n with text n."""
        require_pairs(images, texts)
        return self._ask(list(images), list(texts))

    def _ask(self, images: list[Image], texts: list[str]) -> FloatArray:
        prompts = [self.chat.prompt(self.question.replace("{}", text)) for text in texts]
        return np.asarray(np.exp(self.chat.log_answers(images, prompts, [ANSWER] * len(prompts))), dtype=np.float64)


class Describer:
    """The same network as a captioner: log P(text and its end | image, a request to describe it).

    Source: lin2024revisiting (VisualGPTScore).
    """

    longest = UNBOUNDED  # nothing is cut

    def __init__(self, chat: Chat, request: str) -> None:
        self.chat, self.request = chat, request
        self.end = chat.processor.tokenizer.eos_token or ""

    @property
    def net(self) -> Any:
        return self.chat.net

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=np.bool_)

    def lengths(self, texts: Sequence[str]) -> IntArray:
        prompt = self.chat.prompt(self.request)
        return np.asarray([len(self.chat.tokens(prompt, text + self.end)) for text in texts], dtype=np.int64)

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        (pictures, image), (words, text) = distinct(images), distinct(texts)
        prompts = [self.chat.prompt(self.request)] * (len(pictures) * len(words))
        answers = [word + self.end for word in words] * len(pictures)
        found = self.chat.log_answers([p for p in pictures for _ in words], prompts, answers)
        return found.reshape(len(pictures), len(words))[np.ix_(image, text)]


def asker(place: Place, architecture: str, options: Mapping[str, str]) -> Asker:
    """An image-text-to-text model that is asked about each text."""
    question = options.get("question", QUESTION)
    if "{}" not in question:
        raise WrongWords(f"question={question} does not say where the text goes. Write {{}} there, as in: question={QUESTION}")
    chat = Chat(network(place, architecture), processor_of(place), str(place.folder))
    line = system_line(place, "vqa", chat.net, None, f"question:{question}", f"answer:{ANSWER}")
    made = Asker(chat, question, line)
    require_fit(place, made.score)
    return made


def describer(place: Place, architecture: str, request: str) -> Describer:
    """An image-text-to-text model that is asked for a description."""
    made = Describer(Chat(network(place, architecture), processor_of(place), str(place.folder)), request or REQUEST)
    require_fit(place, made.log_likelihood)
    return made
