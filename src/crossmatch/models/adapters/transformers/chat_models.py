"""Image-text-to-text models of transformers: prompted whether an image shows a text, or for a description of the image."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.adapters.transformers.captioning import sum_log_probabilities
from crossmatch.models.adapters.transformers.input_batches import (
    UNBOUNDED,
    group_by_length,
    pad_rows,
    require_pairs,
    score_all_pairs,
)
from crossmatch.models.adapters.transformers.loading import (
    ModelFiles,
    load_network,
    load_processor,
    make_signature,
    require_working,
)

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
WRITTEN: Mapping[str, str] = {"paligemma": "\n"}  # what the processor writes between prompt and answer
# Inputs with a row for each token; the answer's tokens get the values of the prompt's last token, as in `generate` of transformers.
PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "cross_attention_mask", "image_attention_mask")
ANSWERS: Mapping[str, int] = {"paligemma": 1}  # except these token_type_ids: 0 is visible from everywhere, 1 only from later tokens


class ChatModel:
    """A network that answers a prompt about an image.

        log P(a | i, p) = Σ_n log p(a_n | a_1 … a_{n-1}, p, i)

    over the tokens of the answer a, after the prompt p in the model's own chat template. The processor gets the prompt alone, and
    the answer's tokens are appended: no part of the network (InstructBLIP's Q-Former, PaliGemma's bidirectional prefix) sees the
    answer before it is predicted. Sequences are padded on the right, which a causal network ignores, so that an answer does not
    depend on its batch.
    """

    def __init__(self, net: Any, processor: Any, where: str) -> None:
        self.net, self.processor = net, processor
        processor.tokenizer.padding_side = "right"
        if processor.tokenizer.pad_token is None:
            processor.tokenizer.pad_token = processor.tokenizer.eos_token
        text = net.config.get_text_config(decoder=True)
        self.has_separate_decoder = bool(
            getattr(text, "is_encoder_decoder", False) or getattr(net.config, "is_encoder_decoder", False)
        )
        self.written = WRITTEN.get(net.config.model_type, "")
        template = getattr(processor, "chat_template", None) or getattr(processor.tokenizer, "chat_template", None)
        self.plain = None if template else PROMPTS.get(net.config.model_type)
        if template is None and self.plain is None:
            raise CrossmatchError(
                f"{where} has no chat template (chat_template.jinja), which a {net.config.model_type} needs. Download the model "
                "again, with all its files."
            )

    def prompt(self, message_text: str) -> str:
        """Return the prompt of a user message with an image, up to the start of the answer."""
        if self.plain is not None:
            return self.plain.format(message_text)
        message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": message_text}]}
        return str(self.processor.apply_chat_template([message], add_generation_prompt=True, tokenize=False))

    def tokens(self, prompt: str, answer: str) -> list[int]:
        """Return the tokens of the answer after the prompt; alone it might be tokenized differently."""
        return self._answer_tokens(prompt, answer)[1]

    def _answer_tokens(self, prompt: str, answer: str) -> tuple[int, list[int]]:
        """Return how many of the prompt's last tokens change when the answer follows ("▁" before "▁Yes"), and all later tokens."""
        if self.has_separate_decoder:
            return 0, self._token_ids(answer, False)
        text = prompt + self.written
        before, joined = self._token_ids(text), self._token_ids(join_answer(text, answer))
        same = next((n for n, (a, b) in enumerate(zip(before, joined, strict=False)) if a != b), min(len(before), len(joined)))
        return len(before) - same, joined[same:]

    def _token_ids(self, text: str, special: bool | None = None) -> list[int]:
        special = not self._has_start_token(text) if special is None else special
        return list(self.processor.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])

    def _has_start_token(self, text: str) -> bool:
        """Whether the template wrote the start token, which must not occur twice."""
        start = self.processor.tokenizer.bos_token
        return start is not None and text.startswith(start)

    def log_answers(self, images: Sequence[Image], prompts: Sequence[str], answers: Sequence[str]) -> FloatArray:
        """Return log P(answer n | image n, prompt n)."""
        answer_tokens = [self._answer_tokens(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        out = np.empty(len(images))
        with torch.inference_mode():
            lengths = [len(self._token_ids(prompt)) + len(row) for prompt, (_, row) in zip(prompts, answer_tokens, strict=True)]
            for part in group_by_length(lengths, PAIRS):
                inputs = self._prepare([images[n] for n in part], [prompts[n] for n in part])
                removed, targets = zip(*(answer_tokens[n] for n in part), strict=True)
                out[part] = self._log_probabilities(inputs, removed, targets)
        return out

    def _prepare(self, images: list[Image], texts: list[str]) -> dict[str, Any]:
        special = {"add_special_tokens": False} if self._has_start_token(texts[0]) else {}
        image_lists = [[image.convert("RGB")] for image in images]
        if self.plain is not None:  # processors without a chat template take one image for each text
            image_lists = [image for (image,) in image_lists]  # type: ignore[misc]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about labels of PaliGemma's processor, which are not needed
            return dict(self.processor(images=image_lists, text=texts, padding=True, return_tensors="pt", **special))

    def _log_probabilities(self, inputs: dict[str, Any], removed: Sequence[int], targets: Sequence[list[int]]) -> FloatArray:
        ids, counted = pad_rows(targets, 0)
        if self.has_separate_decoder:
            labels = ids.masked_fill(counted == 0, -100)
            return sum_log_probabilities(self.net(**inputs, labels=labels).logits, ids, counted)
        padding, answer_type = self.processor.tokenizer.pad_token_id or 0, ANSWERS.get(self.net.config.model_type)
        sequences = append_answers(inputs, removed, targets, answer_type, padding)
        logits: Tensor = self.net(**sequences, use_cache=False).logits
        ends = sequences["attention_mask"].sum(dim=1)
        starts = torch.tensor([int(end) - len(row) for end, row in zip(ends, targets, strict=True)])
        # position n predicts token n + 1; positions beyond a short answer do not count
        positions = (starts[:, None] - 1 + torch.arange(ids.shape[1])).clamp(max=logits.shape[1] - 1)
        answer_logits = logits[torch.arange(len(ids))[:, None], positions]
        return sum_log_probabilities(answer_logits, ids, counted)


def append_answers(
    inputs: Mapping[str, Any],
    removed: Sequence[int],
    answers: Sequence[Sequence[int]],
    answer_type: int | None = None,
    padding: int = 0,
) -> dict[str, Any]:
    """Remove the last tokens of each prompt, append its answer's tokens, and pad on the right.

    `removed` says how many tokens of each prompt, `answer_type` the `token_type_ids` of an answer, if they differ from those at the
    end of the prompt.

    >>> prompts = {"input_ids": torch.tensor([[5, 6, 7], [5, 0, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]])}
    >>> [values.tolist() for values in append_answers(prompts, [1, 0], [[8], [8, 9]]).values()]
    [[[5, 6, 8], [5, 8, 9]], [[1, 1, 1], [1, 1, 1]]]
    """
    is_token = inputs["attention_mask"].bool()
    out = {name: values for name, values in inputs.items() if name not in (*PER_TOKEN, "labels")}
    for name in (name for name in PER_TOKEN if name in inputs):
        rows = []
        for row, is_token_row, removed_count, answer in zip(inputs[name], is_token, removed, answers, strict=True):
            prompt_row = row[is_token_row][: int(is_token_row.sum()) - removed_count]
            answer_row = prompt_row[-1:].expand(len(answer), *prompt_row.shape[1:])
            if name == "input_ids":
                answer_row = torch.tensor(answer, dtype=prompt_row.dtype)
            elif name == "token_type_ids" and answer_type is not None:
                answer_row = torch.full_like(answer_row, answer_type)
            rows.append(torch.cat([prompt_row, answer_row]))
        out[name] = pad_sequence(rows, batch_first=True, padding_value=padding if name == "input_ids" else 0)
    return out


def join_answer(prompt: str, answer: str) -> str:
    """Append the answer to the prompt, with a space between them.

    >>> join_answer("ASSISTANT:", "Yes"), join_answer("<assistant> ", "Yes")
    ('ASSISTANT: Yes', '<assistant> Yes')
    """
    return f"{prompt}{'' if prompt[-1:].isspace() or not prompt else ' '}{answer}"


class VisualQuestionScorer:
    """Scores by the probability of "Yes" when the network is asked whether the image shows the text.

        VQAScore(i, t) = P("Yes" | i, question(t)),      question(t) = 'Does this figure show "t"? Please answer yes or no.'

    Source: lin2024vqascore.
    """

    def __init__(self, chat: ChatModel, question: str, signature: str) -> None:
        self.chat, self.question, self.signature = chat, question, signature

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Score every image with every text: (images, texts)."""
        return score_all_pairs(images, texts, self.score_pairs)

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Score image n with text n."""
        require_pairs(images, texts)
        prompts = [self.chat.prompt(self.question.replace("{}", text)) for text in texts]
        return np.asarray(np.exp(self.chat.log_answers(images, prompts, [ANSWER] * len(prompts))), dtype=np.float64)


class ChatCaptioner:
    """A chat model as a captioner: log P(text and its end | image, a request to describe it).

    Source: lin2024revisiting (VisualGPTScore).
    """

    longest = UNBOUNDED  # nothing is truncated

    def __init__(self, chat: ChatModel, request: str) -> None:
        self.chat, self.request = chat, request
        self.end = chat.processor.tokenizer.eos_token or ""

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=np.bool_)

    def lengths(self, texts: Sequence[str]) -> IntArray:
        prompt = self.chat.prompt(self.request)
        return np.asarray([len(self.chat.tokens(prompt, text + self.end)) for text in texts], dtype=np.int64)

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        prompt = self.chat.prompt(self.request)
        return score_all_pairs(
            images,
            texts,
            lambda images, texts: self.chat.log_answers(images, [prompt] * len(texts), [text + self.end for text in texts]),
        )


def load_question_scorer(files: ModelFiles, architecture: str, question: str = QUESTION) -> VisualQuestionScorer:
    """Load an image-text-to-text model that is asked about each text."""
    if "{}" not in question:
        raise UsageError(f"question={question} has no placeholder for the text. Write {{}} there, as in: question={QUESTION}")
    chat = ChatModel(load_network(files, architecture), load_processor(files), str(files.folder))
    signature = make_signature(files, "vqa", chat.net, None, f"question:{question}", f"answer:{ANSWER}")
    scorer = VisualQuestionScorer(chat, question, signature)
    require_working(files, scorer.score)
    return scorer


def load_chat_captioner(files: ModelFiles, architecture: str, request: str) -> ChatCaptioner:
    """Load an image-text-to-text model that is asked for a description."""
    chat = ChatModel(load_network(files, architecture), load_processor(files), str(files.folder))
    captioner = ChatCaptioner(chat, request or REQUEST)
    require_working(files, captioner.log_likelihood)
    return captioner
