"""The training loop. An interrupted training resumes exactly: on a CPU it ends with the same weights, bit for bit.

Nothing depends on time: the order of the data follows from seed and epoch, the learning rate from the step, and all randomness from
torch's generator, whose state is part of each checkpoint. When checkpoints are written depends on time, but makes no difference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.file_contents import UndecodableFileError, check_record
from crossmatch.data.io.progress import announce, progress_bar
from crossmatch.models.files.checkpoint_files import require_finite
from crossmatch.models.files.model_folder import describe_mismatch
from crossmatch.train.checkpoints import Checkpoints
from crossmatch.train.output_folder import tensorboard_writer, write_log
from crossmatch.train.recipe import TrainSettings
from crossmatch.train.reproducibility import reproducible
from crossmatch.train.validation import DIGITS, LIKELIHOOD, SUM

CHECKPOINT_SECONDS = 30.0  # minimum time between two checkpoints
CHECKPOINT_SHARE = 20  # and at least so many times as long as writing one takes
INITIAL_DIVISOR, FINAL_DIVISOR = 25.0, 1e4  # one cycle starts at 1/25 of the learning rate and ends at 1/10,000 of that
MOMENTUM_RANGE = 0.85, 0.95  # of one cycle with momentum; smith2019super


class Training(Protocol):
    """A training that the loop can run: batches, loss and validation of one model."""

    settings: TrainSettings
    keeps_last_epoch: bool  # keep the weights of the last epoch instead of the best
    initial_rng_state: Tensor | None  # torch's random state at the first step; by default that of the seed
    zero_loss_hint: str  # why the loss of an epoch may be 0, and what to do; may be empty

    @property
    def net(self) -> nn.Module:
        """All weights that are trained and checkpointed."""
        ...

    @property
    def steps_per_epoch(self) -> int: ...

    def prepare(self, is_fresh: bool) -> None:
        """Read the data; before the first step (`is_fresh`), also refuse wrong settings. Must not change the random state."""
        ...

    def begin_epoch(self, epoch: int) -> None:
        """Shuffle the data. Random numbers may come from torch's generator."""
        ...

    def loss(self, step: int, progress: float) -> Tensor:
        """Compute the loss of batch `step` of the current epoch; `progress` is the share of all steps that are done."""
        ...

    def validate(self) -> dict[str, float]:
        """Measure the model; `SUM` decides which epoch is best, then `LIKELIHOOD`."""
        ...


@dataclass
class TrainingState:
    """Progress of a training. All but `seconds` is equal in an interrupted and an uninterrupted training."""

    epoch: int = 0  # finished epochs
    step: int = 0  # finished steps of the current epoch
    losses: list[float] = field(default_factory=list)  # of these steps
    seconds: float = 0.0
    best: float = -math.inf
    likely: float = -math.inf  # log-likelihood per word of the best epoch, which decides between equal values
    best_epoch: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)  # of log.csv
    weights: dict[str, Tensor] = field(default_factory=dict)  # of the best epoch

    def is_finished(self, settings: TrainSettings) -> bool:
        """Whether all epochs are done, or too many of them brought no improvement."""
        return self.epoch >= settings.epochs or 0 < settings.patience <= self.epoch - self.best_epoch

    def describe(self) -> str:
        """Text for the progress bar: mean loss of the last steps, and the validation score."""
        loss = f"loss {np.mean(self.losses[-100:]):.4g}" if self.losses else ""
        value = f"val {self.rows[-1][SUM]:.1f}, kept {self.best:.1f}" if self.rows else ""
        return " · ".join(filter(None, (loss, value)))


def fit(
    training: Training, checkpoints: Checkpoints, *, tensorboard: bool = False, every: float = CHECKPOINT_SECONDS
) -> TrainingState:
    """Train, and leave the weights of the best epoch (the first of equal ones) in the model.

    Args:
        training: What to train.
        checkpoints: Where to save the state; this process must have locked the folder.
        tensorboard: Also write TensorBoard events.
        every: Seconds between two checkpoints within an epoch (0: after each step). Each epoch ends with a checkpoint.
    """
    settings, output, net = training.settings, checkpoints.output, training.net
    steps_per_epoch = training.steps_per_epoch
    total_steps = steps_per_epoch * settings.epochs
    with reproducible(settings.seed, settings.threads):
        learners = [p for p in net.parameters() if p.requires_grad]
        optimiser = make_optimiser(learners, settings)
        saved = checkpoints.load_latest()
        state = TrainingState() if saved is None else _restore(saved, checkpoints, net, optimiser)
        with torch.random.fork_rng(devices=[]):  # loading a frozen model draws random numbers, reading its cache does not
            training.prepare(is_fresh=saved is None)
        if saved is None and training.initial_rng_state is not None:
            torch.set_rng_state(training.initial_rng_state)
        epoch_rng_state = torch.get_rng_state() if saved is None else saved.get("epoch_chance", saved["chance"])
        timer = _CheckpointTimer(state, every)

        def save_checkpoint() -> None:
            timer.update_seconds()
            content = _pack(state, net, optimiser) | {"epoch_chance": epoch_rng_state}
            checkpoints.save(state.epoch * steps_per_epoch + state.step, content)
            timer.record_save()

        if state.rows:
            write_log(output / "log.csv", state.rows)
        steps_done = state.epoch * steps_per_epoch + state.step
        with (
            tensorboard_writer(output / "tensorboard", tensorboard, state.epoch) as write_row,
            progress_bar(total_steps, "training", steps_done) as show,
        ):
            while not state.is_finished(settings):
                if state.step:  # resume within an epoch: repeat its shuffling
                    rng_state = torch.get_rng_state()
                    torch.set_rng_state(epoch_rng_state)
                    training.begin_epoch(state.epoch)
                    torch.set_rng_state(rng_state)
                else:
                    epoch_rng_state = torch.get_rng_state()
                    training.begin_epoch(state.epoch)
                net.train()
                while state.step < steps_per_epoch:
                    step = state.epoch * steps_per_epoch + state.step
                    set_schedule(optimiser, settings, step, steps_per_epoch)
                    loss = training.loss(state.step, step / total_steps)
                    state.losses.append(_descend(loss, optimiser, learners, training, step, checkpoints))
                    state.step += 1
                    show(step + 1, state.describe())
                    if timer.is_due() and state.step < steps_per_epoch:
                        save_checkpoint()
                timer.update_seconds()
                _finish_epoch(state, training)
                epoch_rng_state = torch.get_rng_state()
                save_checkpoint()
                write_log(output / "log.csv", state.rows)
                write_row(state.rows[-1])
                loss_text = f"loss {state.rows[-1]['loss']:.4g}"
                announce(f"epoch {state.epoch} of {settings.epochs} · {loss_text} · {state.describe()}", checkpoints.notify)
                if state.rows[-1]["loss"] == 0 and training.zero_loss_hint:
                    announce(
                        f"epoch {state.epoch}: the loss was 0, so nothing changed. {training.zero_loss_hint}", checkpoints.notify
                    )
        net.load_state_dict(state.weights)
        net.eval()
    require_finite(net, str(output))
    return state


def make_optimiser(learners: Sequence[nn.Parameter], settings: TrainSettings) -> torch.optim.Optimizer:
    """Make Adam with L2 regularisation, or AdamW, which decays matrices only (radford2021clip, sec. 2.5)."""
    options: dict[str, Any] = {"lr": settings.learning_rate, "betas": (settings.beta1, settings.beta2), "eps": settings.eps}
    if settings.optimiser == "adam":
        return torch.optim.Adam(learners, weight_decay=settings.weight_decay, **options)
    groups = [
        {"params": [p for p in learners if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in learners if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, **options)


def learning_rate(settings: TrainSettings, step: int, steps_per_epoch: int) -> float:
    """Learning rate of a step, counted over all epochs.

        steps       η · decay^⌊epoch / decay_every⌋
        one-cycle   from η/25 to η along half a cosine in the first steps (`warm_up`), then down to η/250,000; smith2019super
        one-cycle-momentum   the same; Adam's β₁ moves in the opposite direction (`momentum`)
        cosine      η · (s + 1) / w in the first w steps (`warm_up_steps`), then η/2 · (1 + cos π (s − w) / (S − w)), which is 0
                    after the last of S steps; the released code of open_clip

    >>> published = TrainSettings(learning_rate=2e-4, decay_every=15)
    >>> [learning_rate(published, step, steps_per_epoch=100) for step in (0, 1499)]
    [0.0002, 0.0002]
    >>> round(learning_rate(published, 1500, steps_per_epoch=100), 10)
    2e-05
    """
    top = settings.learning_rate
    if settings.schedule == "steps":
        return top * settings.decay ** (step // steps_per_epoch // settings.decay_every) if settings.decay_every else top
    total = steps_per_epoch * settings.epochs
    if settings.schedule == "cosine":
        warm_up = settings.warm_up_steps
        if step < warm_up:
            return top * (step + 1) / warm_up
        return top / 2 * (1 + math.cos(math.pi * (step - warm_up) / max(total - warm_up, 1)))
    return _one_cycle(settings, step, total, top / INITIAL_DIVISOR, top, top / INITIAL_DIVISOR / FINAL_DIVISOR)


def momentum(settings: TrainSettings, step: int, steps_per_epoch: int) -> float:
    """Adam's β₁ at a step: it falls while the learning rate rises, if the schedule is one-cycle-momentum."""
    if settings.schedule != "one-cycle-momentum":
        return settings.beta1
    low, high = MOMENTUM_RANGE
    return _one_cycle(settings, step, steps_per_epoch * settings.epochs, high, low, high)


def _one_cycle(settings: TrainSettings, step: int, total: int, first: float, peak: float, last: float) -> float:
    peak_step, last_step = settings.warm_up * total - 1, total - 1
    if step <= peak_step:
        begin, end, share = first, peak, step / max(peak_step, 1)
    else:
        begin, end, share = peak, last, (step - peak_step) / max(last_step - peak_step, 1)
    return end + (begin - end) / 2 * (1 + math.cos(math.pi * share))


def set_schedule(optimiser: torch.optim.Optimizer, settings: TrainSettings, step: int, steps_per_epoch: int) -> None:
    """Set learning rate and momentum of a step."""
    rate, beta1 = learning_rate(settings, step, steps_per_epoch), momentum(settings, step, steps_per_epoch)
    for group in optimiser.param_groups:
        group["lr"], group["betas"] = rate, (beta1, group["betas"][1])


def _descend(
    loss: Tensor,
    optimiser: torch.optim.Optimizer,
    learners: list[nn.Parameter],
    training: Training,
    step: int,
    checkpoints: Checkpoints,
) -> float:
    """Take one optimiser step and return the loss. A loss or gradient that is not finite ends the training before the step."""
    settings = training.settings
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(learners, settings.clip or math.inf)
    value = loss.item()
    if not (math.isfinite(value) and bool(torch.isfinite(norm))):
        problem = f"the loss is {value}" if not math.isfinite(value) else "the gradient of the loss is not finite"
        clip = "" if settings.clip else " or --set train.clip=2"
        retry = "Train with"
        if checkpoints.exist:  # resuming would end the same way
            retry = f"Train in another folder, or replace {checkpoints.output} with --restart, and with"
        raise CrossmatchError(
            f"step {step + 1:,} (epoch {step // training.steps_per_epoch + 1}): {problem}. {retry} "
            f"--set train.learning_rate={settings.learning_rate / 2:g}{clip}"
        )
    optimiser.step()
    return value


def _finish_epoch(state: TrainingState, training: Training) -> None:
    """Validate, add a row to the log, and keep the weights if they are the best. Each validation has the same random numbers."""
    settings, steps_per_epoch = training.settings, training.steps_per_epoch
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        values = training.validate()
    _require_finite_values(values, state.epoch + 1, settings)
    total_steps = (state.epoch + 1) * steps_per_epoch
    head = {
        "epoch": state.epoch + 1,
        "step": total_steps,
        "seconds": state.seconds,
        "learning rate": learning_rate(settings, total_steps - 1, steps_per_epoch),
        "loss": float(np.mean(state.losses)),
    }
    state.rows.append(head | {f"val {name}" if name != SUM else SUM: value for name, value in values.items()})
    state.epoch, state.step, state.losses = state.epoch + 1, 0, []
    value, likelihood = values[SUM], values.get(LIKELIHOOD, -math.inf)
    is_better = (round(value, DIGITS), likelihood) > (round(state.best, DIGITS), state.likely)
    if is_better or training.keeps_last_epoch:
        state.best, state.likely, state.best_epoch = value, likelihood, state.epoch
        state.weights = {name: values.detach().clone() for name, values in training.net.state_dict().items()}


def _require_finite_values(values: dict[str, float], epoch: int, settings: TrainSettings) -> None:
    name = next((name for name, value in values.items() if not math.isfinite(value)), None)
    if name is not None:
        subject = "the scores are" if name == SUM else f"{name} is"
        raise CrossmatchError(
            f"Validation after epoch {epoch}: {subject} not finite, because the weights have diverged. Train in another folder, or "
            f"with --restart, and with --set train.learning_rate={settings.learning_rate / 10:g}"
        )


def _pack(state: TrainingState, net: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    fields = {name: getattr(state, name) for name in asdict(TrainingState())}
    return {"state": fields, "net": net.state_dict(), "optimiser": optimiser.state_dict(), "chance": torch.get_rng_state()}


def _restore(saved: dict[str, Any], checkpoints: Checkpoints, net: nn.Module, optimiser: torch.optim.Optimizer) -> TrainingState:
    """Restore weights, optimiser and random state from a checkpoint, and return the progress."""
    try:
        check_record(saved, "it", {"state": dict, "net": dict, "optimiser": dict, "chance": torch.Tensor})
        names = set(asdict(TrainingState()))
        if set(saved["state"]) != names:
            raise UndecodableFileError(f"its state has {', '.join(sorted(set(saved['state']) ^ names))} more or less")
        state = TrainingState(**saved["state"])
        if (mismatch := describe_mismatch(net, saved["net"])) is not None:
            raise UndecodableFileError(mismatch)
        net.load_state_dict(saved["net"])
        optimiser.load_state_dict(saved["optimiser"])
        torch.set_rng_state(saved["chance"])
    except (UndecodableFileError, ValueError, RuntimeError) as error:  # torch raises the last two for tensors that do not fit
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(
            f"The checkpoint in {checkpoints.output} does not fit this network ({reason}); another version wrote it. Start over "
            "with --restart, or choose another folder with -o."
        ) from None
    checkpoints.notify(f"Resuming the training in {checkpoints.output} after epoch {state.epoch}, step {state.step} of the next.")
    return state


class _CheckpointTimer:
    """Measures the duration of the training over all its parts, and decides when a checkpoint is due."""

    def __init__(self, state: TrainingState, every: float) -> None:
        self.state, self.every = state, every
        self.last_update = self.last_save = time.perf_counter()

    def update_seconds(self) -> None:
        now = time.perf_counter()
        self.state.seconds += now - self.last_update
        self.last_update = now

    def is_due(self) -> bool:
        return time.perf_counter() - self.last_save >= self.every

    def record_save(self) -> None:
        """Make slow checkpoints rare, unless one was requested after each step."""
        self.last_save = time.perf_counter()
        self.every = self.every and max(self.every, CHECKPOINT_SHARE * (self.last_save - self.last_update))
