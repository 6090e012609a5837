"""Image-to-text models of transformers as captioners: how likely a text is, given the image, and which text they would write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models.hf.inputs import Inputs, Reader, alike, distinct, padded, pixels_of, positions, stacked
from crossmatch.models.hf.loading import Place, image_processor_of, network, quiet, require_fit, system_line, tokenizer_of
from crossmatch.models.telling import Telling

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

NOISE = 3  # images without information, for the language prior
NOISE_SIDE = 256
LONGEST = 50  # tokens of a caption that is written


def log_likelihoods(logits: Tensor, targets: Tensor, counted: Tensor) -> FloatArray:
    """The sum of log p over the tokens that count, for each row.

        log P(t) = Σ_n c_n · log p(w_n),      log p(w_n) = l_n[w_n] − log Σ_v exp(l_n[v])

    `logits` (rows, length, vocabulary), where place n speaks of `targets` (rows, length) at n; `counted` is 1 or 0.

    >>> log_likelihoods(torch.zeros(1, 2, 4), torch.tensor([[3, 1]]), torch.tensor([[1, 0]])).round(4)
    array([-1.3863])
    """
    chosen = logits.gather(2, targets.unsqueeze(2)).squeeze(2) - logits.logsumexp(dim=2)
    return np.asarray((chosen.double() * counted).sum(dim=1).numpy(), dtype=np.float64)


# -- architectures


@dataclass(frozen=True)
class Decoding:
    """How an architecture writes: what is computed once for an image, and what a batch of begun texts says of the next tokens.

    `starts`: the tokenizer's first token begins the text and is not predicted (it may be replaced by `first`); else the text is
    predicted as a whole, after `first`. `goes_on`: what `generate` is told of the tokens that are there, the one that ends and
    the one that fills.
    """

    sees: Callable[[Any, Inputs], Tensor]
    writes: Callable[[Any, Tensor, Inputs], Tensor]  # (texts, length, vocabulary), one row for each place of the tokens
    starts: bool
    first: Callable[[Any], int | None]
    config: Callable[[Any], Any]  # of the text network
    goes_on: Callable[[Tensor, int, int], dict[str, Any]]


def _blip_sees(net: Any, pixels: Inputs) -> Tensor:
    seen: Tensor = net.vision_model(**pixels).last_hidden_state
    return seen


def _blip_writes(net: Any, seen: Tensor, tokens: Inputs) -> Tensor:
    logits: Tensor = net.text_decoder(**tokens, encoder_hidden_states=seen.expand(len(tokens["input_ids"]), -1, -1)).logits
    return logits


def _git_sees(net: Any, pixels: Inputs) -> Tensor:
    return pixels["pixel_values"]


def _git_writes(net: Any, seen: Tensor, tokens: Inputs) -> Tensor:
    """The network repeats one image for all texts, and puts its patches before the tokens."""
    logits: Tensor = net(**tokens, pixel_values=seen).logits
    return logits[:, -tokens["input_ids"].shape[1] :]


def _pair_sees(net: Any, pixels: Inputs) -> Tensor:
    seen: Tensor = net.encoder(**pixels).last_hidden_state
    return seen


def _pair_writes(net: Any, seen: Tensor, tokens: Inputs) -> Tensor:
    ids, real = tokens["input_ids"], tokens["attention_mask"]
    states = (seen.expand(len(ids), *seen.shape[1:]).contiguous(),)  # GPT-2 cannot look at one image many times
    logits: Tensor = net(encoder_outputs=states, decoder_input_ids=ids, decoder_attention_mask=real, use_cache=False).logits
    return logits


def _pair_first(net: Any) -> int | None:
    """The start token, which transformers 4 kept in one configuration and 5 keeps in another."""
    told = [getattr(one, "decoder_start_token_id", None) for one in (net.config, net.generation_config, net.config.decoder)]
    return next((n for n in (*told, net.config.decoder.bos_token_id) if n is not None), None)


def _blip_goes_on(begun: Tensor, end: int, fill: int) -> dict[str, Any]:
    """The network takes the last token for the end of a whole text, and leaves it out; which one ends, and fills, it knows."""
    return {"input_ids": torch.cat([begun, torch.full_like(begun[:, :1], end)], dim=1)}


def _goes_on(name: str) -> Callable[[Tensor, int, int], dict[str, Any]]:
    return lambda begun, end, fill: {name: begun, "eos_token_id": end, "pad_token_id": fill}


DECODING: Mapping[str, Decoding] = {
    # BLIP's captioner begins with a token of its own in place of [CLS] (li2022blip, sec. 3.2, LM)
    "BlipForConditionalGeneration": Decoding(
        _blip_sees,
        _blip_writes,
        True,
        lambda net: int(net.config.text_config.bos_token_id),
        lambda config: config.text_config,
        _blip_goes_on,
    ),
    "GitForCausalLM": Decoding(_git_sees, _git_writes, True, lambda net: None, lambda config: config, _goes_on("input_ids")),
    "VisionEncoderDecoderModel": Decoding(
        _pair_sees, _pair_writes, False, _pair_first, lambda config: config.decoder, _goes_on("decoder_input_ids")
    ),
}


# -- captioners


class Plain(Protocol):
    """A captioner without correction; `longest` and `truncated` as everywhere."""

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray: ...

    def lengths(self, texts: Sequence[str]) -> IntArray: ...

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]: ...

    @property
    def longest(self) -> int: ...


class Decoder:
    """A network that writes a caption, token by token.

        log P(t | i) = Σ_n log p(w_n | w_1 … w_{n-1}, i)

    over all tokens of the text and the one that ends it, so that an empty text has a probability as well. Padding counts for
    nothing. A prompt is given, not predicted. Source: tschannen2023cappa (a captioner as a scorer).
    """

    def __init__(self, net: Any, reader: Reader, processor: Any, decoding: Decoding, prompt: str = "") -> None:
        self.net, self.reader, self.processor, self.decoding, self.prompt = net, reader, processor, decoding, prompt
        self.first = decoding.first(net)

    @property
    def longest(self) -> int:
        return self.reader.longest

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        return self.reader.truncated(self._prompted(texts))

    def lengths(self, texts: Sequence[str]) -> IntArray:
        """How many tokens each sum runs over."""
        return np.asarray([sum(counted) for _, _, counted in self._rows(texts)], dtype=np.int64)

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        (pictures, image), (words, text) = distinct(images), distinct(texts)
        rows = self._rows(words)
        out = np.empty((len(pictures), len(words)))
        with torch.inference_mode():
            for found, picture in zip(out, pictures, strict=True):
                (pixels,) = pixels_of(self.processor, [picture])
                seen = self.decoding.sees(self.net, pixels)
                for part in alike([len(given) for given, _, _ in rows]):
                    given, targets, counted = zip(*(rows[n] for n in part), strict=True)
                    ids, real = padded(given, self.reader.tokenizer.pad_token_id or 0)
                    logits = self.decoding.writes(self.net, seen, {"input_ids": ids, "attention_mask": real})
                    found[part] = log_likelihoods(logits, padded(targets, 0)[0], padded(counted, 0)[0])
        return out[np.ix_(image, text)]

    def write(self, images: Sequence[Image], longest: int, **how: Any) -> list[str]:
        """What the library's own `generate` writes for each image after the prompt; `how` is told to it."""
        row = self.reader.numbers([self.prompt])[0]
        begin, end = row[0] if self.first is None else self.first, row[-1]
        given = row[1:-1] if self.decoding.starts else row[:-1] if self.prompt else []
        begun, fill = torch.tensor([[begin, *given]]), self.reader.tokenizer.pad_token_id
        told = {"max_new_tokens": min(longest, self.reader.longest - begun.shape[1]), **how}
        out = [""] * len(images)
        with torch.inference_mode(), quiet():
            for places, pixels in stacked(pixels_of(self.processor, images)):
                go_on = self.decoding.goes_on(begun.repeat(len(places), 1), end, end if fill is None else fill)
                written = self.net.generate(**pixels, **go_on, **told)[:, begun.shape[1] :]
                texts = self.reader.tokenizer.batch_decode(written, skip_special_tokens=True)
                for place, text in zip(places, texts, strict=True):
                    out[place] = text.strip()
        return out

    def _prompted(self, texts: Sequence[str]) -> list[str]:
        return [f"{self.prompt} {text}".strip() if self.prompt else text for text in texts]

    def _rows(self, texts: Sequence[str]) -> list[tuple[list[int], list[int], list[int]]]:
        """For each text what the network is given, what it should say at each place, and which places count."""
        numbers = self.reader.numbers(self._prompted(texts))
        given = self.reader.numbers([self.prompt])[0][:-1] if self.prompt else []
        out = []
        for row in numbers:
            known = next((n for n, (a, b) in enumerate(zip(given, row, strict=False)) if a != b), min(len(given), len(row)))
            targets = row[1:] if self.decoding.starts else row
            begin = row[0] if self.first is None else self.first
            known = min(max(0, known - self.decoding.starts), len(targets) - 1)  # the end is always predicted
            out.append(([begin, *targets[:-1]], targets, [int(n >= known) for n in range(len(targets))]))
        return out


class CaptionLikelihood:
    """A captioner, with the language prior corrected where `prior` (α) is above zero.

        s(i, t) = log P(t | i) − α · log P(t),        log P(t) = log(1/K · Σ_k P(t | noise_k))

    P(t) is the same network's, given K = 3 images that tell it nothing: every pixel an independent, uniform colour, always the same
    ones. α = 0 is the plain likelihood, which prefers texts that are likely anyway; α = 1 is the pointwise mutual information.
    Among images for one text α changes nothing. Source: lin2024revisiting (VisualGPTScore, α-debiasing); the noise is our choice.
    """

    def __init__(self, plain: Plain, prior: float, signature: str) -> None:
        self.plain, self.prior, self.signature = plain, prior, signature
        self.known: dict[str, float] = {}  # log P(t) of texts that were asked for: a trial asks for few texts at a time

    @property
    def longest(self) -> int:
        """How many tokens it reads."""
        return self.plain.longest

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts are longer than that."""
        return self.plain.truncated(texts)

    def lengths(self, texts: Sequence[str]) -> IntArray:
        """How many tokens each sum runs over."""
        return self.plain.lengths(texts)

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """log P(text | image), corrected: (images, texts)."""
        found = self.plain.log_likelihood(images, texts)
        return found - self.prior * self.log_prior(texts) if self.prior else found

    def log_prior(self, texts: Sequence[str]) -> FloatArray:
        """log P(text), without an image."""
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        if new:
            each = self.plain.log_likelihood(noise_images(), new)
            self.known.update(zip(new, np.logaddexp.reduce(each, axis=0) - np.log(len(each)), strict=True))
        return np.asarray([self.known[text] for text in texts], dtype=np.float64)


class CaptionWriter(CaptionLikelihood):
    """A captioner that also writes."""

    plain: Decoder
    usual_telling = Telling()  # how, where nothing is asked for

    def caption(self, images: Sequence[Image], **how: Any) -> list[str]:
        """A caption for each image, of at most `longest` (50) tokens; by `generate` of transformers, which says what options mean.

        `decoding` is "beam" (with `width`, 5, and `length_penalty`, 1.0), "greedy", or "sampled" from all words (with
        `temperature`, 1.0, and `seed`, 0). The language prior is not corrected in it.
        """
        asked = Telling.of(how)
        penalty = {"length_penalty": asked.length_penalty} if asked.width > 1 else {}
        ways: dict[str, dict[str, Any]] = {
            "greedy": {"num_beams": 1, "do_sample": False},
            "sampled": {"num_beams": 1, "do_sample": True, "temperature": asked.temperature, "top_k": 0, "top_p": 1.0},
            "beam": {"num_beams": asked.width, "do_sample": False, **penalty},
        }
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(asked.seed)
            return self.plain.write(images, asked.longest or LONGEST, **ways[asked.decoding])


def noise_images() -> list[Image]:
    """Images that say nothing: every pixel an independent colour; the same ones each time."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (NOISE, NOISE_SIDE, NOISE_SIDE, 3), dtype=np.uint8)
    return [Image.fromarray(one) for one in pixels]


def prior_of(options: Mapping[str, str]) -> float:
    """The α of `prior=α`, 0 where none is given.

    >>> prior_of({"prior": "0.5"}), prior_of({})
    (0.5, 0.0)
    """
    said = options.get("prior", "0")
    try:
        prior = float(said)
    except ValueError:
        prior = np.nan
    if not 0 <= prior <= 10:
        raise WrongWords(f"prior={said} has no meaning; a number from 0 (plain) upwards was expected, usually up to 1: prior=0.5.")
    return prior


def captioner(place: Place, architecture: str, options: Mapping[str, str]) -> CaptionLikelihood:
    """A captioner; architectures that are no plain captioners are asked for a description in a chat."""
    prior, prompt = prior_of(options), options.get("prompt", "").strip()
    if architecture not in DECODING:
        from crossmatch.models.hf.vqa import describer

        described = describer(place, architecture, prompt)
        more = (f"prompt:{described.request}", *_prior_line(prior))
        return CaptionLikelihood(described, prior, system_line(place, "likelihood", described.net, None, *more))
    decoding, net, tokenizer = DECODING[architecture], network(place, architecture), tokenizer_of(place)
    plain = Decoder(net, _reader(place, tokenizer, decoding, net), image_processor_of(place), decoding, prompt)
    if not decoding.starts and plain.first is None:
        raise CrossmatchError(f"{place.folder}: config.json has no decoder_start_token_id, with which a caption begins. Add it.")
    require_fit(place, plain.log_likelihood)
    more = ((f"prompt:{prompt}",) if prompt else ()) + _prior_line(prior)
    return CaptionWriter(plain, prior, system_line(place, "likelihood", net, plain.longest, *more))


def _prior_line(prior: float) -> tuple[str, ...]:
    return (f"prior:{prior:g}/{NOISE}noise{NOISE_SIDE}",) if prior else ()


def _reader(place: Place, tokenizer: Any, decoding: Decoding, net: Any) -> Reader:
    """With the end token, which the tokenizer writes itself or which is put after each text."""
    end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    reader = Reader.of(tokenizer, positions(decoding.config(net.config)))
    written = reader.numbers([""])[0]
    if end is None or (decoding.starts and (len(written) < 2 or written[-1] != end)):
        raise CrossmatchError(
            f"{place.folder}: the tokenizer writes {written} for an empty text, but a token that begins it and one that ends it "
            "were expected. Fetch the tokenizer that belongs to the model."
        )
    return reader if written and written[-1] == end else Reader(tokenizer, reader.longest, end=end)
