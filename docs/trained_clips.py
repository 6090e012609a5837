"""CLIP with hard negatives, and detectors, in the results pages (miranda2024bivlc, sec. 5)."""

# ruff: noqa: E501 - prose

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

import crossmatch as cm
from crossmatch.metrics.proportion import share_of_alike
from crossmatch.models import make_model
from crossmatch.models.detector_model import EVEN
from crossmatch.report.tables import Table, value_with_error
from make_results import markdown
from trained import RUN, Job, recipe_of

SEEDS = range(3)
CHOICES = ("diorama/bivlc", "diorama/sugarcrepe")
BASE, PLAIN = "clip", "clip-in-batch"
TUNED = {
    "base": BASE,
    "in-batch": PLAIN,
    "hard texts": "clip-hard-texts",
    "hard pairs": "clip-hard-pairs",
    "hard pairs, drawn as the originals": "clip-hard-pairs-camera",
}
NOISE = (0.3, 0.6)
FINER = ("Ipos2T", "Ineg2T", "Tpos2I", "Tneg2I")
KEYS = (("SugarCrepe", "diorama/sugarcrepe", "accuracy"), ("I2T", "diorama/bivlc", "i2t"), ("T2I", "diorama/bivlc", "t2i"),
        ("Group", "diorama/bivlc", "group"), *((name, "diorama/bivlc", name.lower()) for name in FINER))  # fmt: skip

Found = Mapping[str, Mapping[str, cm.Result]]


def jobs() -> list[Job]:
    """Everything that is trained, what others begin with first."""
    base = [Job(f"{BASE}-{seed}", BASE, CHOICES, seed=seed) for seed in SEEDS]
    arms = {PLAIN: (PLAIN, ()), "clip-hard-texts": ("clip-hard-texts", ()), "clip-hard-pairs": ("clip-hard-pairs", ()),
            "clip-hard-pairs-camera": ("clip-hard-pairs", ("negatives.style=camera",))}  # fmt: skip
    tuned = [
        Job(f"{name}-{seed}", recipe, CHOICES, words, seed, f"{BASE}-{seed}")
        for name, (recipe, words) in arms.items()
        for seed in SEEDS
    ]
    wrong = [Job(f"{noisy(share)}-0", "clip-hard-pairs", CHOICES, (f"negatives.noise={share}",), 0, f"{BASE}-0") for share in NOISE]
    return [*base, *tuned, *wrong]


def noisy(share: float) -> str:
    return f"clip-hard-pairs-noise-{share}" if share else "clip-hard-pairs"


def values(found: Found, name: str, task: str, key: str) -> list[float]:
    """A number of a model, for each seed."""
    return [found[f"{name}-{seed}"][task][key].value for seed in SEEDS]


def over_seeds(each: Sequence[float], sign: str = "") -> str:
    """The mean, and half of its 95 % interval by Student's t."""
    half = stats.t.ppf(0.975, len(each) - 1) * np.std(each, ddof=1) / np.sqrt(len(each))
    return f"{np.mean(each):{sign}.1f} ± {half:.1f}"


def table_3(folder: Path, found: Found) -> Table:
    """miranda2024bivlc, Table 3 and the finer choices of Table 4, with chance and what was trained with."""
    chances = [found[f"{BASE}-0"][task][key].chance for _, task, key in KEYS]
    rows: list[tuple[str, ...]] = [("chance", "", *(f"{chance:.1f}" for chance in chances))]
    rows += [
        (label, budget(folder, name), *(over_seeds(values(found, name, task, key)) for _, task, key in KEYS))
        for label, name in TUNED.items()
    ]
    return Table("", (("", "training", *(head for head, *_ in KEYS)),), tuple(rows), 2)


def budget(folder: Path, name: str) -> str:
    """Passes, and pairs of a batch."""
    told = recipe_of(folder, f"{name}-0")["train"]
    return f"{told['epochs']} epochs, {told['batch']}"


def against_plain(found: Found) -> Table:
    """Each arm minus in-batch negatives that began with the same weights, over seeds."""
    rows = []
    for label, name in TUNED.items():
        if name not in (BASE, PLAIN):
            gaps = [np.subtract(values(found, name, *key), values(found, PLAIN, *key)) for _, *key in KEYS]
            rows.append((f"{label} − in-batch", *(over_seeds(gap.tolist(), "+") for gap in gaps)))
    return Table("", (("", *(head for head, *_ in KEYS)),), tuple(rows), 1)


def by_category(found: Found) -> Table:
    """I2T, T2I and Group of BiVLC and the accuracy of SugarCrepe by category."""
    rows = []
    for task, keys in (("diorama/bivlc", ("i2t", "t2i", "group")), ("diorama/sugarcrepe", ("accuracy",))):
        parts = [row.part for row in found[f"{BASE}-0"][task].rows if row.metric == keys[0] and row.part not in ("", "macro")]
        for part in parts:
            for key in keys:
                name = next(head for head, *asked in KEYS if asked == [task, key])
                cells = [over_seeds(values(found, model, task, f"{part}/{key}")) for model in TUNED.values()]
                rows.append((part, name, *cells))
    return Table("", (("", "", *TUNED),), tuple(rows), 2)


def noise(found: Found) -> Table:
    """What wrong negative images do to a model; one seed."""
    rows = []
    for share in (0.0, *NOISE):
        rows.append((f"{100 * share:.0f} %", *(value_with_error(found[f"{noisy(share)}-0"][task][key]) for _, task, key in KEYS)))
    return Table("", (("wrong images", *(head for head, *_ in KEYS)),), tuple(rows), 1)


def detectors(folder: Path) -> Table:
    """miranda2024bivlc, Table 5: detectors over the frozen towers of the base model and of the one tuned with hard pairs."""
    rows = []
    trials = cm.load_data("diorama/bivlc")
    for label, model in (("base", f"{BASE}-0"), ("hard pairs", "clip-hard-pairs-0")):
        output = folder / "models" / f"detector-{model}"
        subprocess.run([*RUN, "train", "detector", "-m", str(folder / "models" / model), "-o", str(output)], check=True)
        results = {task: cm.evaluate(str(output), task) for task in CHOICES}
        detector = make_model(str(output))
        shares = detector.detect(trials).accuracies(EVEN).values()  # of two items in each trial
        told = [share_of_alike(round(share * 2 * len(trials.ids)), 2 * len(trials.ids)) for share in shares]
        cells = [f"{100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]" for one in told]
        chosen = [value_with_error(results["diorama/bivlc"][key]) for key in ("i2t", "t2i", "group")]
        rows.append((label, *cells, *chosen, value_with_error(results["diorama/sugarcrepe"]["accuracy"])))
    heads = (f"{what}, % right" for what in detector.detect(trials).accuracies(EVEN))
    return Table("", (("over", *heads, "I2T", "T2I", "Group", "SugarCrepe"),), tuple(rows), 1)


def section(folder: Path, found: Found) -> str:
    return "\n".join(
        [
            "### Hard negatives",
            f"CLIP from scratch, and the same weights trained further on the same pairs, those for which an edit was found, with the other pairs of a batch as negatives, with an almost true caption for each pair, or with such a caption and an image of it (drawn in the second style, as those of the test are, or as the originals). Chosen by the accuracy on held-out trials. Captions that are known to be true of an image of the batch are left out of its negatives. Mean over {len(SEEDS)} seeds ± half of the 95 % interval by Student's t.\n",
            markdown(table_3(folder, found)),
            "\nDifferences from in-batch negatives, paired by seed:\n",
            markdown(against_plain(found)),
            "\nBy category:\n",
            markdown(by_category(found)),
            "\n### Wrong negative images",
            "Hard pairs, of which a share has a negative image that does not show what the negative caption says. Validation has none of these. One seed; ± half of the 95 % interval over trials.\n",
            markdown(noise(found)),
            "\n### Detectors of the drawing style",
            "A neuron over frozen vectors, trained to tell originals from edits: seed 0.\n",
            markdown(detectors(folder)),
            "",
        ]
    )
