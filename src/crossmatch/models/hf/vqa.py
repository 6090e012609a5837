"""Image-text-to-text models of transformers: asked whether an image shows a text, or for a description of the image."""

from __future__ import annotations

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


class Chat:
    """A network that answers a prompt about an image.

        log P(a | i, p) = Σ_n log p(a_n | a_1 … a_{n-1}, p, i)

    over the tokens of the answer a, after the prompt p in the model's own chat template. Sequences are filled up on the right,
    where a causal network does not look, so that an answer does not depend on the others of its batch.
    """

    def __init__(self, net: Any, processor: Any, where: str) -> None:
        self.net, self.processor = net, processor
        processor.tokenizer.padding_side = "right"
        if processor.tokenizer.pad_token is None:
            processor.tokenizer.pad_token = processor.tokenizer.eos_token
        text = net.config.get_text_config(decoder=True)
        self.answers_apart = bool(getattr(text, "is_encoder_decoder", False) or getattr(net.config, "is_encoder_decoder", False))
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
        if self.answers_apart:
            return self._numbers(answer, False)
        before, whole = self._numbers(prompt), self._numbers(joined(prompt, answer))
        same = next((n for n, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), min(len(before), len(whole)))
        return whole[same:]

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
        targets = [self.tokens(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        out = np.empty(len(images))
        with torch.inference_mode():
            for part in alike([len(self._numbers(p)) + len(t) for p, t in zip(prompts, targets, strict=True)], PAIRS):
                texts = [prompts[n] if self.answers_apart else joined(prompts[n], answers[n]) for n in part]
                given = self._given([images[n] for n in part], texts)
                out[part] = self._answered(given, [targets[n] for n in part])
        return out

    def _given(self, images: list[Image], texts: list[str]) -> dict[str, Any]:
        special = {"add_special_tokens": False} if self._begun(texts[0]) else {}
        pictures = [[image.convert("RGB")] for image in images]
        if self.plain is not None:  # processors without a chat take one image for each text
            pictures = [one for (one,) in pictures]  # type: ignore[misc]
        return dict(self.processor(images=pictures, text=texts, padding=True, return_tensors="pt", **special))

    def _answered(self, given: dict[str, Any], targets: list[list[int]]) -> FloatArray:
        ids, counted = padded(targets, 0)
        if self.answers_apart:
            labels = ids.masked_fill(counted == 0, -100)
            return log_likelihoods(self.net(**given, labels=labels).logits, ids, counted)
        logits: Tensor = self.net(**given, use_cache=False).logits
        ends = given["attention_mask"].sum(dim=1)
        starts = torch.tensor([int(end) - len(row) for end, row in zip(ends, targets, strict=True)])
        # what place n says is about token n + 1; places beyond a short answer do not count
        places = (starts[:, None] - 1 + torch.arange(ids.shape[1])).clamp(max=logits.shape[1] - 1)
        chosen = logits[torch.arange(len(ids))[:, None], places]
        return log_likelihoods(chosen, ids, counted)


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
