"""The one training loop of the zoo. It goes on where it was interrupted, with the same weights in the end, bit for bit on a CPU.

Nothing in it depends on time: the order of the pairs follows from seed and epoch, the learning rate from the step, and all chance
from torch's generator, whose state is part of each checkpoint. When a checkpoint is written is a matter of time, and makes no
difference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.core.declared import nearest
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.progress import announce
from crossmatch.core.progress import steps as bar
from crossmatch.models.checkpoint import require_finite
from crossmatch.models.folder import misfit
from crossmatch.train.batch import Batch, Negatives
from crossmatch.train.checkpoints import Checkpoints
from crossmatch.train.data import Rows, TrainingSet
from crossmatch.train.dual import reproducible
from crossmatch.train.hard import CHOSEN
from crossmatch.train.judge import DIGITS, LIKELY, SUM, judged, require_judgeable
from crossmatch.train.log import board, write_log
from crossmatch.train.recipe import TrainSettings

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    Objective = Callable[[nn.Module, Batch, Mapping[str, Any]], Tensor]

EVERY = 30.0  # seconds between two checkpoints, at least
SHARE = 20  # and so many times as long as it takes to write one
START, END = 25.0, 1e4  # one cycle begins at 1/25 of the learning rate, and ends at 1/10,000 of that
PROGRESS = "progress"  # what an objective is told beside its options: the share of all steps that are done


@dataclass
class State:
    """How far a training is. All but the seconds are the same in an interrupted and in an uninterrupted one."""

    epoch: int = 0  # epochs that are done
    step: int = 0  # steps of the next one that are done
    losses: list[float] = field(default_factory=list)  # of these steps
    seconds: float = 0.0
    best: float = -math.inf
    likely: float = -math.inf  # the log-likelihood per word of the best epoch, which decides between equals
    best_epoch: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)  # those of the best epoch

    def finished(self, settings: TrainSettings) -> bool:
        """All epochs are done, or too many of them brought no improvement."""
        return self.epoch >= settings.epochs or 0 < settings.patience <= self.epoch - self.best_epoch

    def said(self) -> str:
        """For the bar: the mean loss of the last steps, and what validation said."""
        loss = f"loss {np.mean(self.losses[-100:]):.4g}" if self.losses else ""
        value = f"val {self.rows[-1][SUM]:.1f}, best {self.best:.1f}" if self.rows else ""
        return " · ".join(filter(None, (loss, value)))


@dataclass(frozen=True, eq=False)
class Training:
    """A model, what it is trained towards, on what, and how.

    `model` has `net`, all of its weights; `match`, which the objective is given; `look`, which makes regions of what the store
    gives; and `compare`, by which it is validated.
    """

    model: Any
    objective: Objective
    options: Mapping[str, Any]
    data: TrainingSet
    validation: TrainingSet
    settings: TrainSettings
    judge: Callable[[Any, TrainingSet], dict[str, float]] | None = None  # what says how good an epoch is, if not `judged_by_kind`

    @property
    def each(self) -> int:
        """Steps of an epoch."""
        return self.data.steps(self.settings.batch)

    @property
    def total(self) -> int:
        """Steps of all epochs."""
        return self.each * self.settings.epochs

    def batches(self, epoch: int, texts: Any, begin: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, but for those at its beginning that are done."""
        for rows in self.data.batches(self.settings.batch, self.settings.seed, epoch)[begin:]:
            yield self._batch(rows, texts)

    def _batch(self, rows: Rows, texts: Any) -> Batch:
        pairs = rows.hard is not None and bool((rows.hard[:, 0] >= 0).all())
        numbers = np.concatenate([rows.image, rows.hard[:, 0]]) if rows.hard is not None and pairs else rows.image
        seen = self.model.look(self.data.store.take(numbers))  # all at once: a batch norm must not tell the negatives apart
        other = texts[torch.from_numpy(rows.other)] if self.settings.pairs == "captions" else None
        given = texts[torch.from_numpy(rows.caption)], torch.from_numpy(rows.image)
        if rows.hard is None:
            return Batch(seen, *given, other, known=torch.from_numpy(self.data.known(rows)))
        count, image = len(rows.image), torch.from_numpy(rows.hard[:, 0]) if pairs else None
        hard = Negatives(texts[torch.from_numpy(rows.hard[:, 1])], seen[count:] if pairs else None, image)
        return Batch(seen[:count], *given, other, hard, torch.from_numpy(self.data.known(rows)))


def fit(training: Training, checkpoints: Checkpoints, *, tensorboard: bool = False, every: float = EVERY) -> State:
    """Train, and leave the weights of the best epoch in the model, the first of equals.

    After each epoch the validation set is judged: captioners by CIDEr-D of what they tell, and if that is equal by how likely the
    true captions are to them; all others by how often they choose
    right where it has hard negatives, else by the sum of the hits of a search in both directions, or among captions where texts are
    all that a model knows.

    A checkpoint is written at the end of an epoch, and within it every so many seconds (0: after each step). The folder of the
    checkpoints must be this process's own (`checkpoints.alone`).
    """
    model, settings, output = training.model, training.settings, checkpoints.output
    with reproducible(settings.seed):
        torch.set_num_threads(settings.threads)
        with torch.random.fork_rng(devices=[]):  # a tower that must be loaded draws numbers, one whose output is kept draws none
            texts = read_all(model, training.data.captions)
        learners = [p for p in model.net.parameters() if p.requires_grad]
        optimiser = optimiser_of(learners, settings)
        state = _resumed(checkpoints, model, optimiser)
        if state is None:
            state = State()
            _require_others(training)
            require_judgeable(model, training.validation)
            _require_heard(training, texts)
        clock = _Clock(state, every)

        def keep() -> None:
            clock.tick()
            checkpoints.save(state.epoch * training.each + state.step, _packed(state, model, optimiser))
            clock.saved()

        if state.rows:
            write_log(output / "log.csv", state.rows)
        done = state.epoch * training.each + state.step
        with board(output / "tensorboard", tensorboard, state.epoch) as show_row, bar(training.total, "training", done) as show:
            while not state.finished(settings):
                model.net.train()
                for batch in training.batches(state.epoch, texts, state.step):
                    at = state.epoch * training.each + state.step
                    set_rate(optimiser, learning_rate(settings, at, training.each))
                    state.losses.append(_stepped(training, batch, at, optimiser, learners, checkpoints))
                    state.step += 1
                    show(at + 1, state.said())
                    if clock.due() and state.step < training.each:
                        keep()
                clock.tick()
                _close_epoch(state, training)
                keep()
                write_log(output / "log.csv", state.rows)
                show_row(state.rows[-1])
                told = f"epoch {state.epoch} of {settings.epochs} · loss {state.rows[-1]['loss']:.4g} · {state.said()}"
                announce(told, checkpoints.tell)
                if state.rows[-1]["loss"] == 0 and (why := getattr(training.objective, "at_zero", "")):
                    announce(f"epoch {state.epoch} changed nothing: {why}", checkpoints.tell)
        model.net.load_state_dict(state.weights)
        model.net.eval()
    require_finite(model.net, str(output))
    return state


def read_all(model: Any, texts: Sequence[str]) -> Any:
    """All texts as the network wants them, to be taken by number: what frozen towers make of them once, or numbers of words."""
    own = getattr(model.match, "read_all", None)
    return own(list(texts)) if own is not None else model.vocabulary.numbered(texts)


def optimiser_of(learners: Sequence[nn.Parameter], settings: TrainSettings) -> torch.optim.Optimizer:
    """Adam with weight decay as part of the gradient, or AdamW, which decays matrices alone (radford2021clip, sec. 2.5)."""
    given: dict[str, Any] = {"lr": settings.learning_rate, "betas": (settings.beta1, settings.beta2), "eps": settings.eps}
    if settings.optimiser == "adam":
        return torch.optim.Adam(learners, weight_decay=settings.weight_decay, **given)
    groups = [
        {"params": [p for p in learners if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in learners if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, **given)


def learning_rate(settings: TrainSettings, step: int, each: int) -> float:
    """The learning rate of a step, counted over all epochs of `each` steps.

        steps       η · decay^⌊epoch / decay_every⌋
        one-cycle   η/25 up to η along half a cosine in the first steps (`warm_up`), then down to η/250,000; smith2019super
        cosine      η · (s + 1) / w in the first w steps (`warm_up_steps`), then η/2 · (1 + cos π (s − w) / (S − w)), which is 0
                    after the last of S steps; the released code of open_clip

    >>> published = TrainSettings(learning_rate=2e-4, decay_every=15)
    >>> [learning_rate(published, step, each=100) for step in (0, 1499)]
    [0.0002, 0.0002]
    >>> round(learning_rate(published, 1500, each=100), 10)
    2e-05
    """
    top = settings.learning_rate
    if settings.schedule == "steps":
        return top * settings.decay ** (step // each // settings.decay_every) if settings.decay_every else top
    total = each * settings.epochs
    if settings.schedule == "cosine":
        rising = settings.warm_up_steps
        if step < rising:
            return top * (step + 1) / rising
        return top / 2 * (1 + math.cos(math.pi * (step - rising) / max(total - rising, 1)))
    peak, last = settings.warm_up * total - 1, total - 1
    begin, end = (top / START, top) if step <= peak else (top, top / START / END)
    share = step / max(peak, 1) if step <= peak else (step - peak) / max(last - peak, 1)
    return end + (begin - end) / 2 * (1 + math.cos(math.pi * share))


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def _stepped(training: Training, batch: Batch, at: int, optimiser: torch.optim.Optimizer, learners: list[nn.Parameter],
             checkpoints: Checkpoints) -> float:  # fmt: skip
    """One step downhill; gives the loss. A loss or a slope that is no number ends the training before it spoils the weights."""
    loss = training.objective(training.model.match, batch, {**training.options, PROGRESS: at / training.total})
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(learners, training.settings.clip or math.inf)
    value = loss.item()
    if not (math.isfinite(value) and bool(torch.isfinite(norm))):
        what = f"the loss is {value}" if not math.isfinite(value) else "the gradient of the loss is not finite"
        epoch, rate = at // training.each + 1, training.settings.learning_rate
        clip = "" if training.settings.clip else " or --set train.clip=2"
        kept = (
            f"The checkpoint before it is kept in {checkpoints.output}; from there it would come to the same. Train in another "
            "folder, or with --restart, and"
        )
        raise CrossmatchError(
            f"{what} at step {at + 1:,} (epoch {epoch}). {kept if checkpoints.there else 'Train with'} "
            f"--set train.learning_rate={rate / 2:g}{clip}"
        )
    optimiser.step()
    return value


def judged_by_kind(model: Any, held: TrainingSet) -> dict[str, float]:
    """By the choices between its pairs and their hard negatives where the validation set has some, else as `judged` does."""
    return judged(model, held) if held.hard is None else CHOSEN.found(model, held)


def _close_epoch(state: State, training: Training) -> None:
    """Validate, add a row to the log, keep the weights if they are the best so far. Chance in it is the same after every epoch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.settings.seed)
        found = (training.judge or judged_by_kind)(training.model, training.validation)
    _require_numbers(found, state.epoch + 1, training.settings)
    at = (state.epoch + 1) * training.each
    rate = learning_rate(training.settings, at - 1, training.each)
    head = {
        "epoch": state.epoch + 1,
        "step": at,
        "seconds": state.seconds,
        "learning rate": rate,
        "loss": float(np.mean(state.losses)),
    }
    state.rows.append(head | {f"val {name}" if name != SUM else SUM: value for name, value in found.items()})
    state.epoch, state.step, state.losses = state.epoch + 1, 0, []
    value, likely = found[SUM], found.get(LIKELY, -math.inf)
    if (round(value, DIGITS), likely) > (round(state.best, DIGITS), state.likely):
        state.best, state.likely, state.best_epoch = value, likely, state.epoch
        state.weights = {name: values.detach().clone() for name, values in training.model.net.state_dict().items()}


def _require_numbers(found: Mapping[str, float], epoch: int, settings: TrainSettings) -> None:
    """Refuse to go on with a network whose scores are no numbers: none of its epochs would be better than another."""
    odd = next((name for name, value in found.items() if not math.isfinite(value)), None)
    if odd is not None:
        what = "the scores are" if odd == SUM else f"{odd} is"
        raise CrossmatchError(
            f"{what} no finite number in validation after epoch {epoch}: the weights have grown beyond all measure. Train in "
            f"another folder, or with --restart, and --set train.learning_rate={settings.learning_rate / 10:g}"
        )


def _packed(state: State, model: Any, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    told = {name: getattr(state, name) for name in asdict(State())}
    return {"state": told, "net": model.net.state_dict(), "optimiser": optimiser.state_dict(), "chance": torch.get_rng_state()}


def _resumed(checkpoints: Checkpoints, model: Any, optimiser: torch.optim.Optimizer) -> State | None:
    """Put weights, optimiser and chance where they were, and say how far it is; nothing if there is no checkpoint."""
    found = checkpoints.latest()
    if found is None:
        return None
    try:
        state = State(**found["state"])
        if (odd := misfit(model.net, found["net"])) is not None:
            raise ValueError(odd)
        model.net.load_state_dict(found["net"])
        optimiser.load_state_dict(found["optimiser"])
        torch.set_rng_state(found["chance"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(
            f"the checkpoint in {checkpoints.output} does not fit this network ({said}). Another version wrote it: begin again "
            "with --restart, or name another folder."
        ) from None
    checkpoints.tell(
        f"the training in {checkpoints.output} goes on after epoch {state.epoch} and {state.step} steps of the next one"
    )
    return state


def _require_others(training: Training) -> None:
    """Refuse to match captions with captions where no image has two: each would be matched with itself."""
    if training.settings.pairs == "captions" and np.bincount(training.data.links[:, 0]).max() < 2:
        raise WrongWords(
            "the recipe matches captions with other captions of the same image (train.pairs is captions), and no image has two. "
            "Take a recipe for images and captions, such as de-i2t, or other data."
        )


class _Heard(Mapping[str, Any]):
    """Options that remember which of them were asked for."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options, self.asked = options, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return self.options[name]

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return name in self.options

    def __iter__(self) -> Iterator[str]:
        return iter(self.options)

    def __len__(self) -> int:
        return len(self.options)


def _require_heard(training: Training, texts: Any) -> None:
    """Refuse an option that the objective never asks for, probably misspelt: a rehearsal at the beginning and at the end."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        training.model.net.eval()
        batch = next(training.batches(0, texts))
        asked: set[str] = set()
        for progress in (0.0, 1.0):
            options = _Heard({**training.options, PROGRESS: progress})
            training.objective(training.model.match, batch, options)
            asked |= options.asked
    unheard = next((name for name in training.options if name not in asked), None)
    if unheard is not None:
        raise WrongWords(f"the objective has no option {unheard!r}. {nearest(unheard, sorted(asked - {PROGRESS}))}")


class _Clock:
    """How long the training took, over all of its parts, and whether it is time for a checkpoint."""

    def __init__(self, state: State, every: float) -> None:
        self.state, self.every = state, every
        self.last = self.kept = time.perf_counter()

    def tick(self) -> None:
        """Bring the seconds of the training up to date."""
        now = time.perf_counter()
        self.state.seconds += now - self.last
        self.last = now

    def due(self) -> bool:
        return time.perf_counter() - self.kept >= self.every

    def saved(self) -> None:
        """A checkpoint has been written since the last tick; large ones become rare, unless each step was asked for."""
        self.kept = time.perf_counter()
        self.every = self.every and max(self.every, SHARE * (self.kept - self.last))
