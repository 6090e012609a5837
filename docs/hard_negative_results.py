"""CLIP with hard negatives, and detectors, in the results pages (miranda2024bivlc, sec. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

import crossmatch as cm
from blocks import excerpt, markdown
from crossmatch.metrics.proportions import independent_proportion
from crossmatch.models import make_model
from crossmatch.models.baselines.synthetic_detector import EVEN_LOG_ODDS
from crossmatch.report.tables import Table, format_row
from training_jobs import Job, Results, load_train_settings, run_crossmatch

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
COLUMNS = (
    ("SugarCrepe", "diorama/sugarcrepe", "accuracy"),
    *((name, "diorama/bivlc", name.lower()) for name in ("I2T", "T2I", "Group", "Ipos2T", "Ineg2T", "Tpos2I", "Tneg2I")),
)
LABELS = tuple(label for label, *_ in COLUMNS)
MAIN_COLUMNS = LABELS[:4]


def jobs() -> list[Job]:
    """All models to train; a model comes after the one it starts from."""
    base = [Job(f"{BASE}-{seed}", BASE, CHOICES, seed=seed) for seed in SEEDS]
    recipes = {PLAIN: (PLAIN, ()), "clip-hard-texts": ("clip-hard-texts", ()), "clip-hard-pairs": ("clip-hard-pairs", ()),
               "clip-hard-pairs-camera": ("clip-hard-pairs", ("negatives.style=camera",))}  # fmt: skip
    tuned = [
        Job(f"{name}-{seed}", recipe, CHOICES, settings, seed, f"{BASE}-{seed}")
        for name, (recipe, settings) in recipes.items()
        for seed in SEEDS
    ]
    noisy = [
        Job(f"{noisy_name(share)}-0", "clip-hard-pairs", CHOICES, (f"negatives.noise={share}",), 0, f"{BASE}-0") for share in NOISE
    ]
    return [*base, *tuned, *noisy]


def noisy_name(share: float) -> str:
    return f"clip-hard-pairs-noise-{share}" if share else "clip-hard-pairs"


def values_by_seed(results: Results, name: str, task: str, key: str) -> list[float]:
    return [results[f"{name}-{seed}"][task][key].value for seed in SEEDS]


def format_over_seeds(values: Sequence[float], sign: str = "") -> str:
    """The mean, and half of its 95 % interval by Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):{sign}.1f} ± {half:.1f}"


def models_table(folder: Path, results: Results) -> Table:
    """miranda2024bivlc, Table 3 and the finer choices of Table 4, with chance and the training."""
    chances = [results[f"{BASE}-0"][task][key].chance for _, task, key in COLUMNS]
    rows: list[tuple[str, ...]] = [("chance", "", *(f"{chance:.1f}" for chance in chances))]
    for label, name in TUNED.items():
        settings = load_train_settings(folder, f"{name}-0")
        cells = [format_over_seeds(values_by_seed(results, name, task, key)) for _, task, key in COLUMNS]
        rows.append((label, f"{settings['epochs']} epochs, {settings['batch']}", *cells))
    return Table("", (("", "training", *LABELS),), tuple(rows), 2)


def difference_table(results: Results) -> Table:
    """Each kind of hard negatives minus in-batch negatives, which started from the same weights, over seeds."""
    rows = []
    for label, name in TUNED.items():
        if name not in (BASE, PLAIN):
            gaps = [np.subtract(values_by_seed(results, name, *key), values_by_seed(results, PLAIN, *key)) for _, *key in COLUMNS]
            rows.append((f"{label} − in-batch", *(format_over_seeds(gap.tolist(), "+") for gap in gaps)))
    return Table("", (("", *LABELS),), tuple(rows), 1)


def category_table(results: Results) -> Table:
    """I2T, T2I and Group of BiVLC and the accuracy of SugarCrepe by category."""
    rows = []
    for task, columns in (("diorama/bivlc", COLUMNS[1:4]), ("diorama/sugarcrepe", COLUMNS[:1])):
        all_rows = results[f"{BASE}-0"][task].rows
        categories = [row.part for row in all_rows if row.metric == columns[0][2] and row.part not in ("", "macro")]
        for category in categories:
            for label, _, key in columns:
                cells = [format_over_seeds(values_by_seed(results, name, task, f"{category}/{key}")) for name in TUNED.values()]
                rows.append((category, label, *cells))
    return Table("", (("", "", *TUNED),), tuple(rows), 2)


def noise_table(results: Results) -> Table:
    """The effect of wrong negative images; one seed."""
    rows = [
        (f"{100 * share:.0f} %", *(format_row(results[f"{noisy_name(share)}-0"][task][key]) for _, task, key in COLUMNS))
        for share in (0.0, *NOISE)
    ]
    return Table("", (("wrong images", *LABELS),), tuple(rows), 1)


def detector_table(folder: Path) -> Table:
    """miranda2024bivlc, Table 5: detectors over the frozen towers of the base model and of the one tuned with hard pairs."""
    rows = []
    trials = cm.load_benchmark_data("diorama/bivlc")
    items = 2 * len(trials.ids)
    for label, model in (("base", f"{BASE}-0"), ("hard pairs", "clip-hard-pairs-0")):
        output = folder / "models" / f"detector-{model}"
        run_crossmatch("train", "detector", "--begin", folder / "models" / model, "-o", output)
        results = {task: cm.evaluate(str(output), task) for task in CHOICES}
        accuracies = make_model(str(output)).detect(trials).accuracies(EVEN_LOG_ODDS)
        shares = [independent_proportion(round(share * items), items) for share in accuracies.values()]
        cells = [f"{100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]" for share in shares]
        choices = [format_row(results["diorama/bivlc"][key]) for key in ("i2t", "t2i", "group")]
        rows.append((label, *cells, *choices, format_row(results["diorama/sugarcrepe"]["accuracy"])))
    header = ("over", *(f"{side}, % right" for side in accuracies), "I2T", "T2I", "Group", "SugarCrepe")
    return Table("", (header,), tuple(rows), 1)


def section(folder: Path, results: Results) -> str:
    return "\n".join(
        [
            "### Hard negatives",
            "`base` is a CLIP trained from scratch. The other models start from its weights and train on the same pairs (those with "
            "an edit), with different negatives: the other pairs of a batch (`in-batch`), an almost true caption for each pair "
            "(`hard texts`), or such a caption and an image of it (`hard pairs`). The negative images are drawn in the generator "
            "style, as in the test, or in the style of the originals.\n",
            "The epoch was chosen by the accuracy on held-out trials. Captions that are known to be true of an image of the batch "
            f"are not used as its negatives. Mean over {len(SEEDS)} seeds ± half of the 95 % interval by Student's t. `training` is "
            "the number of epochs and the batch size.\n",
            excerpt(models_table(folder, results), "hard-negatives", columns=MAIN_COLUMNS),
            "\nDifferences from in-batch negatives, paired by seed:\n",
            excerpt(difference_table(results), "hard-negatives-differences", columns=(*MAIN_COLUMNS, "Tpos2I", "Tneg2I")),
            "\nBy category:\n",
            excerpt(category_table(results), "hard-negatives-categories", rows=lambda row: "/" not in row[0]),
            "\n### Wrong negative images",
            "Hard pairs with a share of negative images that do not show what the negative caption says. Validation has no wrong "
            "images. One seed; ± half of the 95 % interval over trials.\n",
            excerpt(noise_table(results), "hard-negatives-noise", columns=MAIN_COLUMNS),
            "\n### Detectors of the drawing style",
            "One neuron over frozen embeddings, trained to separate originals from edits; seed 0.\n",
            markdown(detector_table(folder)),
            "",
        ]
    )
