"""Captions out of a captioner: the likeliest word each time (greedy), words drawn at random (sampled), or a search (beam).

`longest` counts words, `END` among them. A caption that has not ended by then is cut there and stays unfinished: it has no `END`,
and its likelihood is that of all captions that begin with it. So nothing is said that the network did not say, and the likelihoods
of all that can be drawn sum to 1. `UNKNOWN` is never said. Of words that are equally likely the one with the lower number is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from crossmatch.core.errors import MissingDependency, WrongWords
from crossmatch.models.telling import LONGEST_ASKED, MOST_PENALTY
from crossmatch.models.zoo.captioner_parts import chosen
from crossmatch.models.zoo.inputs import BEGIN, END, LONGEST, PAD, UNKNOWN, Words

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

# Words of a caption, its end among them, wherever captions are told: in self-critical training, in validation, by `caption`. As
# many as are read of a text, so that a captioner may say all that it is taught: diorama's captions have up to 48, COCO's about 50.
LONGEST_TOLD = LONGEST + 1
BELOW_ONE = 1 - 2**-40  # the highest number that is drawn, so that it never falls behind the last word


class Teller(Protocol):
    """A network that tells a caption word by word; what is encoded and where it stands are tuples of tensors, images first."""

    def begin(self, encoded: Any) -> Any: ...

    def step(self, encoded: Any, state: Any, words: Tensor) -> tuple[Tensor, Any]: ...


@dataclass(frozen=True, eq=False)
class Told:
    """N captions as word numbers (N, L), each up to its `END` and then `PAD`, and the log-probability of each word, 0 at `PAD`.

    After `sampled` it is the probability with which the word was drawn, and has a gradient: what REINFORCE asks for. Else it is the
    network's own, without.
    """

    numbers: Tensor
    each: Tensor

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def log_likelihood(self) -> Tensor:
        """Of the captions, in nats: (N,)."""
        return self.each.sum(dim=1)

    @property
    def real(self) -> Tensor:
        """(N, L): which are words, `END` included."""
        return self.numbers != PAD

    @property
    def finished(self) -> Tensor:
        """(N,): which captions ended, and were not cut."""
        return (self.numbers == END).any(dim=1)

    @property
    def words(self) -> Words:
        """The captions with their `BEGIN`, as a network reads them."""
        return Words(torch.cat([self.numbers.new_full((len(self), 1), BEGIN), self.numbers], dim=1))


@torch.no_grad()
def greedy(net: Teller, encoded: Any, longest: int) -> Told:
    """The likeliest word each time."""

    def best(said: Tensor, images: Tensor, step: int) -> tuple[Tensor, Tensor]:
        likely = without_unknown(said).max(dim=1)
        return likely.indices, likely.values

    return _followed(net, encoded, longest, best)


def sampled(net: Teller, encoded: Any, longest: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Told:
    """Words drawn from p(w)^(1/temperature), normalised over all but `UNKNOWN`. Has a gradient unless it is switched off.

    An image takes as many numbers from the generator whatever is drawn, so that some images at a time are told the same as all.
    """
    if not 0 < temperature < math.inf:
        raise WrongWords(f"the temperature is {temperature}; a number above 0 was expected. Near 0 use greedy decoding.")
    _require(longest, "longest", LONGEST_ASKED)
    drawn = torch.rand(len(encoded[0]), longest, generator=generator, dtype=torch.float64).clamp(max=BELOW_ONE)

    def draw(said: Tensor, images: Tensor, step: int) -> tuple[Tensor, Tensor]:
        likely = without_unknown(said) if temperature == 1 else _tempered(without_unknown(said), temperature)
        with torch.no_grad():
            upto = likely.double().exp().cumsum(dim=1)
            words = torch.searchsorted(upto, drawn[images, step].unsqueeze(1) * upto[:, -1:], right=True)
        return words.squeeze(1), (likely.gather(1, words).squeeze(1) - likely.logsumexp(dim=1)).to(said.dtype)

    return _followed(net, encoded, longest, draw)


def _tempered(likely: Tensor, temperature: float) -> Tensor:
    """log p / temperature in double precision, the likeliest word at 0: so none of its powers is lost, however small."""
    exact = likely.double()
    return (exact - exact.detach().amax(dim=1, keepdim=True)) / temperature


def without_unknown(said: Tensor) -> Tensor:
    """Log-probabilities (N, V) with none for the unknown word."""
    return said.index_fill(1, torch.tensor([UNKNOWN], device=said.device), -torch.inf)


Choice = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


def _followed(net: Teller, encoded: Any, longest: int, choose: Choice) -> Told:
    """One caption for each image, by a rule that chooses the next words from their log-probabilities."""
    _require(longest, "longest", LONGEST_ASKED)
    n = len(encoded[0])
    images = torch.arange(n)  # that are being told; a finished one is dropped when half of them are
    words, state = torch.full((n,), BEGIN), net.begin(encoded)
    numbers, each = [], []
    for step in range(longest):
        said, state = net.step(encoded, state, words)
        going = words != END
        words, found = choose(said, images, step)
        words = words.where(going, END)
        numbers.append(torch.full((n,), PAD).index_put((images[going],), words[going]))
        each.append(said.new_zeros(n).index_put((images[going],), found[going]))
        going = words != END
        if not going.any():
            break
        if 2 * int(going.sum()) <= len(images):
            encoded, state, words, images = chosen(encoded, going), chosen(state, going), words[going], images[going]
    return Told(torch.stack(numbers, dim=1), torch.stack(each, dim=1))


@torch.no_grad()
def beam(net: Teller, encoded: Any, longest: int, width: int = 5, length_penalty: float = 1.0) -> Told:
    """The best caption that a beam search finds, by its log-likelihood over its length.

        score(S) = log P(S | I) / |S|^length_penalty,    |S| the number of words, `END` included

    0 ranks by likelihood alone, and so prefers short captions; 1 by likelihood per word. At each step the `width` likeliest
    beginnings are prolonged by every word. Of the results, those among the `width` likeliest that end are captions, and the `width`
    likeliest that do not are the next beginnings. The search for an image stops when no beginning can become a better caption than
    the best so far. Equal ones are taken in the order of the beginnings, then of word numbers, and a sooner caption before a later.
    An unfinished caption is given only where none has ended. All beginnings of all images take each step together.

    The sum grows by words alone, so that a beginning of s nats never scores above s / longest^length_penalty. With a width of 1 and
    no penalty this is greedy decoding.
    """
    _require(longest, "longest", LONGEST_ASKED)
    _require(width, "width")
    if not 0 <= length_penalty <= MOST_PENALTY:
        raise WrongWords(f"the length penalty is {length_penalty}; a number from 0 (none) to {MOST_PENALTY} was expected.")
    n = len(encoded[0])
    best = _Best(torch.full((n,), -torch.inf), torch.full((n, longest), PAD), torch.zeros(n, longest))
    images, state, shown = torch.arange(n), net.begin(encoded), encoded
    words, total = torch.full((n, 1), BEGIN), torch.zeros(n, 1)
    numbers, each = torch.empty(n, 1, 0, dtype=torch.long), torch.empty(n, 1, 0)
    for step in range(longest if n else 0):
        said, state = net.step(shown, state, words.flatten())
        before = words.shape
        said = said.view(*before, -1)  # (images, beginnings, V)
        sums = said + total.unsqueeze(2)
        sums[:, :, UNKNOWN] = -torch.inf
        place, total = likeliest(sums.flatten(1), 2 * width)
        parent, words = place // said.shape[2], place % said.shape[2]
        likely = said.flatten(1).gather(1, place)
        numbers, each = (_prolonged(*grown, parent) for grown in ((numbers, words), (each, likely)))
        ends = words == END
        score = total / (step + 1) ** length_penalty
        best.improve(images, score[:, :width].masked_fill(~ends[:, :width], -torch.inf), numbers, each)
        # the likeliest that do not end live on; there are enough, because each beginning ends in one way only
        alive = ends.long().sort(dim=1, stable=True).indices[:, : min(width, int((~ends).sum(dim=1).min()))]
        parent, words, total = (values.gather(1, alive) for values in (parent, words, total))
        numbers, each = (_picked(values, alive) for values in (numbers, each))
        if step + 1 == longest:
            best.cut(images, numbers, each)
            break
        going = best.score[images] < total[:, 0] / longest**length_penalty
        if not going.any():
            break
        rows = parent + torch.arange(len(images)).unsqueeze(1) * said.shape[1]
        if 2 * int(going.sum()) <= len(images):
            images, rows, encoded = images[going], rows[going], chosen(encoded, going)
            words, total, numbers, each = words[going], total[going], numbers[going], each[going]
        state = chosen(state, rows.flatten())
        if rows.shape != before:
            shown = chosen(encoded, torch.arange(len(images)).repeat_interleave(rows.shape[1]))
    return best.told()


@dataclass(frozen=True, eq=False)
class _Best:
    """The best caption of each image so far; its tensors are written into."""

    score: Tensor
    numbers: Tensor
    each: Tensor

    def improve(self, images: Tensor, score: Tensor, numbers: Tensor, each: Tensor) -> None:
        """Take what is better, of candidates (images, C) with their words (images, C, L)."""
        value, which = score.max(dim=1)
        better = value > self.score[images]
        self.score[images[better]] = value[better]
        self._write(images[better], numbers[better], each[better], which[better])

    def cut(self, images: Tensor, numbers: Tensor, each: Tensor) -> None:
        """Take the first candidate where no caption has ended."""
        none = self.score[images].isneginf()
        self._write(images[none], numbers[none], each[none], torch.zeros(int(none.sum()), dtype=torch.long))

    def _write(self, images: Tensor, numbers: Tensor, each: Tensor, which: Tensor) -> None:
        for into, values in ((self.numbers, numbers), (self.each, each)):
            into[images, : values.shape[2]] = values[torch.arange(len(which)), which]

    def told(self) -> Told:
        used = int((self.numbers != PAD).any(dim=0).sum())
        return Told(self.numbers[:, :used], self.each[:, :used])


def likeliest(scores: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The places and values of the highest scores of each row, the highest first; of equal ones, the first.

    `torch.topk` is fast, but which of equal ones it takes is not said: a row with more of its last value is sorted as a whole.

    >>> likeliest(torch.tensor([[1.0, 3.0, 1.0, 2.0, 1.0]]), 3)
    (tensor([[1, 3, 0]]), tensor([[3., 2., 1.]]))
    """
    most = min(most, scores.shape[1])
    value, place = scores.topk(most, dim=1)
    tied = (scores >= value[:, -1:]).sum(dim=1) > most
    if tied.any():
        place[tied] = scores[tied].sort(dim=1, descending=True, stable=True).indices[:, :most]
    place = place.sort(dim=1).values
    value, order = scores.gather(1, place).sort(dim=1, descending=True, stable=True)
    return place.gather(1, order), value


def _prolonged(grown: Tensor, last: Tensor, parent: Tensor) -> Tensor:
    """Beginnings (N, B, L) and what comes after some of them (N, C): (N, C, L + 1)."""
    return torch.cat([_picked(grown, parent), last.unsqueeze(2)], dim=2)


def _picked(grown: Tensor, which: Tensor) -> Tensor:
    """(N, B, L) and (N, C) to (N, C, L)."""
    return grown.gather(1, which.unsqueeze(2).expand(-1, -1, grown.shape[2]))


def _require(count: int, what: str, most: int | None = None) -> None:
    if count < 1 or (most is not None and count > most):
        limit = "" if most is None else f" and at most {most:,}"
        raise WrongWords(f"the {what} is {count}; a whole number of at least 1{limit} was expected.")
