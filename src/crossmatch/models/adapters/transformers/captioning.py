"""Image-to-text models of transformers as captioners: the likelihood of a text, given the image, and generated captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.adapters.transformers.input_batches import (
    Inputs,
    ReadsTexts,
    TextReader,
    count_positions,
    find_distinct,
    group_by_length,
    pad_rows,
    preprocess_images,
    stack_by_shape,
)
from crossmatch.models.adapters.transformers.loading import (
    ModelFiles,
    load_image_processor,
    load_network,
    load_tokenizer,
    make_signature,
    require_working,
    silence_transformers,
)
from crossmatch.models.decoding_options import DecodingOptions

if TYPE_CHECKING:
    from PIL.Image import Image

    from crossmatch.models.adapters.transformers.chat_models import ChatCaptioner

NOISE = 3  # images without information, for the language prior
NOISE_SIDE = 256
LONGEST = 50  # tokens of a generated caption


def sum_log_probabilities(logits: Tensor, targets: Tensor, counted: Tensor) -> FloatArray:
    """Return the sum of log p over the counted tokens of each row.

        log P(t) = Σ_n c_n · log p(w_n),      log p(w_n) = l_n[w_n] − log Σ_v exp(l_n[v])

    The logits (rows, length, vocabulary) at position n predict the target at n; targets and c_n, 1 or 0, are (rows, length).

    >>> sum_log_probabilities(torch.zeros(1, 2, 4), torch.tensor([[3, 1]]), torch.tensor([[1, 0]])).round(4)
    array([-1.3863])
    """
    log_probabilities = logits.gather(2, targets.unsqueeze(2)).squeeze(2) - logits.logsumexp(dim=2)
    return np.asarray((log_probabilities.double() * counted).sum(dim=1).numpy(), dtype=np.float64)


# -- architectures


@dataclass(frozen=True)
class CaptionArchitecture:
    """How an architecture generates text.

    If it has a start token, the tokenizer's first token begins the text and is not predicted, and `first_token` may replace it. If
    not, the whole text is predicted, after `first_token`.
    """

    encode_image: Callable[[Any, Inputs], Any]  # computed once for each image
    predict: Callable[[Any, Tensor, Inputs], Any]  # logits (texts, length, vocabulary) of the next token at each position
    has_start_token: bool
    first_token: Callable[[Any], int | None]  # None: the tokenizer's
    text_config: Callable[[Any], Any]  # configuration of the text network
    generate_arguments: Callable[[Tensor, int, int], dict[str, Any]]  # for the tokens so far, the end and the padding token


def _predict_git(net: Any, encoded: Tensor, tokens: Inputs) -> Any:
    """The network repeats one image for all texts, and prepends its patches to the tokens."""
    return net(**tokens, pixel_values=encoded).logits[:, -tokens["input_ids"].shape[1] :]


def _predict_encoder_decoder(net: Any, encoded: Tensor, tokens: Inputs) -> Any:
    ids, mask = tokens["input_ids"], tokens["attention_mask"]
    states = (encoded.expand(len(ids), *encoded.shape[1:]).contiguous(),)  # GPT-2 does not broadcast one image
    return net(encoder_outputs=states, decoder_input_ids=ids, decoder_attention_mask=mask, use_cache=False).logits


def _first_token_encoder_decoder(net: Any) -> int | None:
    """Return the start token, which transformers 4 and 5 store in different configurations."""
    configs = (net.config, net.generation_config, net.config.decoder)
    start_tokens = [getattr(config, "decoder_start_token_id", None) for config in configs]
    return next((n for n in (*start_tokens, net.config.decoder.bos_token_id) if n is not None), None)


def _generate_arguments_blip(prefix: Tensor, end: int, padding: int) -> dict[str, Any]:
    """The network removes the last token, as the end of a complete text; it knows its end and padding tokens."""
    return {"input_ids": torch.cat([prefix, torch.full_like(prefix[:, :1], end)], dim=1)}


def _generate_arguments(name: str) -> Callable[[Tensor, int, int], dict[str, Any]]:
    return lambda prefix, end, padding: {name: prefix, "eos_token_id": end, "pad_token_id": padding}


ARCHITECTURES: Mapping[str, CaptionArchitecture] = {
    # BLIP's captioner begins with its own token instead of [CLS] (li2022blip, sec. 3.2, LM)
    "BlipForConditionalGeneration": CaptionArchitecture(
        encode_image=lambda net, pixels: net.vision_model(**pixels).last_hidden_state,
        predict=lambda net, encoded, tokens: (
            net.text_decoder(**tokens, encoder_hidden_states=encoded.expand(len(tokens["input_ids"]), -1, -1)).logits
        ),
        has_start_token=True,
        first_token=lambda net: int(net.config.text_config.bos_token_id),
        text_config=lambda config: config.text_config,
        generate_arguments=_generate_arguments_blip,
    ),
    "GitForCausalLM": CaptionArchitecture(
        encode_image=lambda net, pixels: pixels["pixel_values"],
        predict=_predict_git,
        has_start_token=True,
        first_token=lambda net: None,
        text_config=lambda config: config,
        generate_arguments=_generate_arguments("input_ids"),
    ),
    "VisionEncoderDecoderModel": CaptionArchitecture(
        encode_image=lambda net, pixels: net.encoder(**pixels).last_hidden_state,
        predict=_predict_encoder_decoder,
        has_start_token=False,
        first_token=_first_token_encoder_decoder,
        text_config=lambda config: config.decoder,
        generate_arguments=_generate_arguments("decoder_input_ids"),
    ),
}


# -- captioners


class TransformersDecoder(ReadsTexts):
    """A network that generates a caption token by token.

        log P(t | i) = Σ_n log p(w_n | w_1 … w_{n-1}, i)

    over all tokens of the text and its end token, so that an empty text has a probability too. Padding is ignored. A prompt is
    given, not predicted. Source: tschannen2023cappa (a captioner as a scorer).
    """

    def __init__(self, net: Any, reader: TextReader, processor: Any, decoding: CaptionArchitecture, prompt: str = "") -> None:
        self.net, self.reader, self.processor, self.decoding, self.prompt = net, reader, processor, decoding, prompt
        self.first = decoding.first_token(net)

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        return self.reader.truncated(self._prompted(texts))

    def lengths(self, texts: Sequence[str]) -> IntArray:
        """The number of tokens of each sum."""
        return np.asarray([sum(counted) for _, _, counted in self._rows(texts)], dtype=np.int64)

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        (distinct_images, image_index), (distinct_texts, text_index) = find_distinct(images), find_distinct(texts)
        rows = self._rows(distinct_texts)
        out = np.empty((len(distinct_images), len(distinct_texts)))
        with torch.inference_mode():
            for row, image in zip(out, distinct_images, strict=True):
                (pixels,) = preprocess_images(self.processor, [image])
                encoded = self.decoding.encode_image(self.net, pixels)
                for part in group_by_length([len(inputs) for inputs, _, _ in rows]):
                    inputs, targets, counted = zip(*(rows[n] for n in part), strict=True)
                    ids, mask = pad_rows(inputs, self.reader.tokenizer.pad_token_id or 0)
                    logits = self.decoding.predict(self.net, encoded, {"input_ids": ids, "attention_mask": mask})
                    row[part] = sum_log_probabilities(logits, pad_rows(targets, 0)[0], pad_rows(counted, 0)[0])
        return out[np.ix_(image_index, text_index)]

    def write(self, images: Sequence[Image], longest: int, **options: Any) -> list[str]:
        """Generate a text for each image after the prompt, with `generate` of transformers and these options."""
        prompt_ids = self.reader.token_ids([self.prompt])[0]
        start, end = prompt_ids[0] if self.first is None else self.first, prompt_ids[-1]
        prompt_tokens = prompt_ids[1:-1] if self.decoding.has_start_token else prompt_ids[:-1] if self.prompt else []
        prefix, padding = torch.tensor([[start, *prompt_tokens]]), self.reader.tokenizer.pad_token_id
        generate_options = {"max_new_tokens": min(longest, self.reader.longest - prefix.shape[1]), **options}
        out = [""] * len(images)
        with torch.inference_mode(), silence_transformers():
            for positions, pixels in stack_by_shape(preprocess_images(self.processor, images)):
                arguments = self.decoding.generate_arguments(
                    prefix.repeat(len(positions), 1), end, end if padding is None else padding
                )
                written = self.net.generate(**pixels, **arguments, **generate_options)[:, prefix.shape[1] :]
                texts = self.reader.tokenizer.batch_decode(written, skip_special_tokens=True)
                for position, text in zip(positions, texts, strict=True):
                    out[position] = text.strip()
        return out

    def _prompted(self, texts: Sequence[str]) -> list[str]:
        return [f"{self.prompt} {text}".strip() if self.prompt else text for text in texts]

    def _rows(self, texts: Sequence[str]) -> list[tuple[list[int], list[int], list[int]]]:
        """Return for each text the input tokens, the target at each position, and which positions count."""
        token_ids = self.reader.token_ids(self._prompted(texts))
        prompt_ids = self.reader.token_ids([self.prompt])[0][:-1] if self.prompt else []
        out = []
        for row in token_ids:
            prompt_length = next(
                (n for n, (a, b) in enumerate(zip(prompt_ids, row, strict=False)) if a != b), min(len(prompt_ids), len(row))
            )
            targets = row[1:] if self.decoding.has_start_token else row
            start = row[0] if self.first is None else self.first
            # The end is always predicted.
            prompt_length = min(max(0, prompt_length - self.decoding.has_start_token), len(targets) - 1)
            out.append(([start, *targets[:-1]], targets, [int(n >= prompt_length) for n in range(len(targets))]))
        return out


class CaptionLikelihood:
    """A captioner, with the language prior corrected if `prior` (α) is above zero.

        s(i, t) = log P(t | i) − α · log P(t),        log P(t) = log(1/K · Σ_k P(t | noise_k))

    P(t) is computed by the same network for K = 3 fixed noise images, whose pixels are independent and uniform. α = 0 is the plain
    likelihood, which prefers frequent texts; α = 1 is the pointwise mutual information. α does not change the ranking of images for
    one text. Source: lin2024revisiting (VisualGPTScore, α-debiasing); the noise is our choice.
    """

    def __init__(self, plain: TransformersDecoder | ChatCaptioner, prior: float, signature: str) -> None:
        self.plain, self.prior, self.signature = plain, prior, signature
        self.longest, self.truncated, self.lengths = plain.longest, plain.truncated, plain.lengths
        self.log_priors: dict[str, float] = {}  # log P(t) of texts so far, because a trial has few texts

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Return log P(text | image), corrected: (images, texts)."""
        values = self.plain.log_likelihood(images, texts)
        return values - self.prior * self.log_prior(texts) if self.prior else values

    def log_prior(self, texts: Sequence[str]) -> FloatArray:
        """Return log P(text), without an image."""
        new = [text for text in dict.fromkeys(texts) if text not in self.log_priors]
        if new:
            likelihoods = self.plain.log_likelihood(noise_images(), new)
            self.log_priors.update(zip(new, np.logaddexp.reduce(likelihoods, axis=0) - np.log(len(likelihoods)), strict=True))
        return np.asarray([self.log_priors[text] for text in texts], dtype=np.float64)


class CaptionWriter(CaptionLikelihood):
    """A captioner that also generates captions."""

    plain: TransformersDecoder
    default_decoding = DecodingOptions()

    def caption(self, images: Sequence[Image], **options: Any) -> list[str]:
        """Generate a caption for each image, of at most `longest` (50) tokens, by `generate` of transformers.

        The option `decoding` is "beam" (with `width`, 5, and `length_penalty`, 1.0), "greedy", or "sampled" from all words (with
        `temperature`, 1.0, and `seed`, 0). The language prior is not corrected.
        """
        decoding = DecodingOptions.from_mapping(options)
        penalty = {"length_penalty": decoding.length_penalty} if decoding.width > 1 else {}
        arguments: dict[str, dict[str, Any]] = {
            "greedy": {"num_beams": 1, "do_sample": False},
            "sampled": {"num_beams": 1, "do_sample": True, "temperature": decoding.temperature, "top_k": 0, "top_p": 1.0},
            "beam": {"num_beams": decoding.width, "do_sample": False, **penalty},
        }
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(decoding.seed)
            return self.plain.write(images, decoding.longest or LONGEST, **arguments[decoding.decoding])


def noise_images() -> list[Image]:
    """Return images without information: every pixel is an independent colour, the same in each call."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (NOISE, NOISE_SIDE, NOISE_SIDE, 3), dtype=np.uint8)
    return [Image.fromarray(image) for image in pixels]


def _parse_prior(text: str) -> float:
    """Return the α of `prior=α`."""
    try:
        prior = float(text)
    except ValueError:
        prior = np.nan
    if not 0 <= prior <= 10:
        raise UsageError(f"prior={text}: expected a number from 0 (plain) to 10, usually at most 1, as in prior=0.5.")
    return prior


def load_captioner(files: ModelFiles, architecture: str, prior: str = "0", prompt: str = "") -> CaptionLikelihood:
    """Load a captioner; an architecture that is not a plain captioner is prompted for a description in a chat."""
    alpha, prompt = _parse_prior(prior), prompt.strip()
    prior_fact = (f"prior:{alpha:g}/{NOISE}noise{NOISE_SIDE}",) if alpha else ()
    if architecture not in ARCHITECTURES:
        from crossmatch.models.adapters.transformers.chat_models import load_chat_captioner

        chat_captioner = load_chat_captioner(files, architecture, prompt)
        facts = (f"prompt:{chat_captioner.request}", *prior_fact)
        return CaptionLikelihood(chat_captioner, alpha, make_signature(files, "likelihood", chat_captioner.chat.net, None, *facts))
    decoding, net, tokenizer = ARCHITECTURES[architecture], load_network(files, architecture), load_tokenizer(files)
    plain = TransformersDecoder(net, _make_reader(files, tokenizer, decoding, net), load_image_processor(files), decoding, prompt)
    if not decoding.has_start_token and plain.first is None:
        raise CrossmatchError(f"{files.folder}: config.json has no decoder_start_token_id, the first token of a caption. Add it.")
    require_working(files, plain.log_likelihood)
    facts = ((f"prompt:{prompt}",) if prompt else ()) + prior_fact
    return CaptionWriter(plain, alpha, make_signature(files, "likelihood", net, plain.longest, *facts))


def _make_reader(files: ModelFiles, tokenizer: Any, decoding: CaptionArchitecture, net: Any) -> TextReader:
    """Make a reader with an end token, which the tokenizer or the reader appends."""
    end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    reader = TextReader.from_limits(tokenizer, count_positions(decoding.text_config(net.config)))
    written = reader.token_ids([""])[0]
    if end is None or (decoding.has_start_token and (len(written) < 2 or written[-1] != end)):
        raise CrossmatchError(
            f"{files.folder}: expected a start and an end token for an empty text, but the tokenizer returns {written}. Download "
            "the tokenizer that belongs to the model."
        )
    return reader if written and written[-1] == end else TextReader(tokenizer, reader.longest, end_token=end)
