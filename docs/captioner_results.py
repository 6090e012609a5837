"""Captioners in the results pages: caption scores, and accuracy on BISON (hu2019bison, sec. 4 and 5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import crossmatch as cm
from blocks import PICTURES, excerpt, markdown
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.score_captions import ScoredCaptions, compare_captions, score_captions
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, Diorama
from crossmatch.evaluation.controls import load_with_alterations
from crossmatch.evaluation.evaluate import evaluate_all
from crossmatch.metrics.paired_tests import paired_difference
from crossmatch.models import make_model
from crossmatch.report.analysis.analysis_plots import split_panels
from crossmatch.report.analysis.scores_by_trial_outcome import ScoreSplit, split_scores
from crossmatch.report.pages import write_analysis
from crossmatch.report.query_variants import QueryVariant, alteration_tables, predicted_images
from crossmatch.report.result_plots import plot_alterations
from crossmatch.report.tables import Table, format_row
from training_jobs import Results, run_crossmatch

CAPTIONERS = {"ShowTell": "show-tell", "ShowAttTell": "show-att-tell", "UpDown": "updown"}
METRICS = ("bleu-4", "cider-d", "spice", "meteor", "tiger")
GROUNDER, MATCHER = "scan-t2i", "vse++"  # TIGEr's grounding model, and the retrieval model that captioners are compared with
BEST = "updown-scst"
WORD_ORDER = ("permutation", "reversal")  # alterations that change the order of words, but no word
BISON = "diorama/bison"
DANGLING = {"a", "an", "the", "of", "in", "on", "at", "to", "with", "and", "or", "is", "are", "has", "by", "from", "that", "which"}


@cache
def world() -> Diorama:
    return Diorama.make("test")


@cache
def references() -> dict[str, tuple[str, ...]]:
    """The five captions of each scene of the test split."""
    texts = [caption.text for caption in world().captions]
    names = world().collection.image_ids.tolist()
    return {name: tuple(texts[CAPTIONS_PER_SCENE * n : CAPTIONS_PER_SCENE * (n + 1)]) for n, name in enumerate(names)}


@cache
def load_model(folder: Path, name: str) -> Any:
    return make_model(str(folder / "models" / name))


def generate_captions(folder: Path, name: str) -> dict[str, str]:
    """A captioner's caption of each scene of the test split; a saved file of the same weights is reused."""
    digest = hashlib.sha256(load_model(folder, name).signature.encode()).hexdigest()[:12]
    file = folder / "captions" / f"{name}-{digest}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        run_crossmatch("captions", "generate", "-m", folder / "models" / name, "--data", "diorama", "-o", file)
    return {row["image_id"]: row["caption"] for row in json.loads(file.read_text())}


def score(folder: Path, name: str, captions: Mapping[str, str], targets: Mapping[str, tuple[str, ...]]) -> ScoredCaptions:
    corpus = CaptionCorpus.from_texts(dict(captions), dict(targets))
    opener = world().collection.open_image
    return score_captions(name, corpus, METRICS, images=opener, grounder=load_model(folder, GROUNDER))


def score_captioners(folder: Path) -> dict[str, ScoredCaptions]:
    """The captions of each captioner, scored with the five captions of their scenes."""
    names = [name for base in CAPTIONERS.values() for name in (base, f"{base}-scst")]
    return {name: score(folder, name, generate_captions(folder, name), references()) for name in names}


def leave_one_out_means(folder: Path, captions: Mapping[str, str] | None = None) -> list[str]:
    """Mean scores times 100 over the five sets of four references; without `captions`, of the caption that is left out."""
    sums = np.zeros(len(METRICS))
    for n in range(CAPTIONS_PER_SCENE):
        left_out = {name: texts[n] for name, texts in references().items()}
        others = {name: texts[:n] + texts[n + 1 :] for name, texts in references().items()}
        scored = score(folder, f"without caption {n}", captions or left_out, others)
        sums += [100 * scored[name].scores.value for name in METRICS]
    return [f"{value:.1f}" for value in sums / CAPTIONS_PER_SCENE]


def captioner_table(folder: Path, results: Results, scored: Mapping[str, ScoredCaptions]) -> Table:
    """hu2019bison, Table 4: caption scores and BISON accuracy, with the length of captions and the share of dangling ones."""
    rows = []
    for label, base in CAPTIONERS.items():
        for training, name in (("cross-entropy", base), ("then SCST", f"{base}-scst")):
            cells = [_with_interval(scored[name], metric) for metric in METRICS]
            lengths = _length_cells(generate_captions(folder, name).values())
            rows.append((label, training, *cells, *lengths, format_row(results[name][BISON]["accuracy"])))
    best = leave_one_out_means(folder, generate_captions(folder, BEST))
    own_captions = [text for texts in references().values() for text in texts]
    oracle = format_row(cm.evaluate("oracle", BISON)["accuracy"])
    rows += [
        ("UpDown", "then SCST, 4 references", *best, "", "", ""),
        ("diorama's own captions", "one of five, 4 references", *leave_one_out_means(folder), *_length_cells(own_captions), ""),
        ("oracle", "", *[""] * (len(METRICS) + 2), oracle),
    ]
    return Table("", (("", "", *METRICS, "words", "dangling %", "BISON"),), tuple(rows), 2)


def _with_interval(scored: ScoredCaptions, metric: str) -> str:
    low, high = scored.interval(metric)
    return f"{100 * scored[metric].scores.value:.1f} ± {50 * (high - low):.1f}"


def _length_cells(captions: Collection[str]) -> tuple[str, str]:
    """The mean number of words, and the percentage of captions that end in a word which needs another one."""
    words = [text.rstrip(". ").split() for text in captions]
    dangling = np.mean([not text or text[-1] in DANGLING for text in words])
    return f"{np.mean([len(text) for text in words]):.1f}", f"{100 * dangling:.1f}"


def scst_difference_table(results: Results, scored: Mapping[str, ScoredCaptions]) -> Table:
    """The effect of self-critical training: paired differences with their intervals."""
    rows = []
    for label, name in CAPTIONERS.items():
        gaps = {change.metric: change.difference for change in compare_captions([scored[name], scored[f"{name}-scst"]])}
        choices = cm.compare(results[name][BISON], results[f"{name}-scst"][BISON])
        choice_gap = next(change.difference for change in choices if change.first.key == "accuracy")
        cells = [_format_gap(100 * gaps[m].value, 100 * gaps[m].low, 100 * gaps[m].high) for m in METRICS]
        rows.append((label, *cells, _format_gap(choice_gap.value, choice_gap.low, choice_gap.high)))
    return Table("", (("SCST − cross-entropy", *METRICS, "BISON"),), tuple(rows), 1)


def _format_gap(value: float, low: float, high: float) -> str:
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def split_by_choice(results: Results, scored: Mapping[str, ScoredCaptions]) -> dict[str, list[ScoreSplit]]:
    """hu2019bison, Figure 8: the score of a captioner's own caption of the true image, in right and in wrong trials."""
    trials = cm.load_benchmark_data(BISON)
    true_image = dict(zip(trials.ids.tolist(), trials.images[:, 0].tolist(), strict=True))
    splits = {}
    for label, base in CAPTIONERS.items():
        captions = scored[f"{base}-scst"]
        by_trial = {}
        for metric in METRICS:
            by_image = dict(zip(captions.corpus.ids, captions[metric].scores.values.tolist(), strict=True))
            by_trial[metric] = {trial: by_image[image] for trial, image in true_image.items()}
        splits[label] = split_scores(results[f"{base}-scst"][BISON], by_trial)
    return splits


def auc_table(splits: Mapping[str, list[ScoreSplit]]) -> Table:
    rows = [
        (label, *(f"{split.auc:.2f} [{split.low:.2f}, {split.high:.2f}]" for split in by_metric))
        for label, by_metric in splits.items()
    ]
    return Table("", (("AUC", *METRICS),), tuple(rows), 1)


def evaluate_alterations(folder: Path) -> tuple[Table, list[QueryVariant]]:
    """hu2019bison, Figures 9 and 15: altered queries, for a retrieval model, a grounding model and the best captioner."""
    tasks = load_with_alterations(BISON, {})
    results = []
    for name in (MATCHER, GROUNDER, "updown", BEST):
        results += evaluate_all(load_model(folder, name), tasks, name=name)
    return alteration_tables(results)[0]


def word_order_table(variants: list[QueryVariant]) -> Table:
    """How many more predictions change with the order of words in captioners than in the retrieval model, paired over trials."""
    rows = []
    for alteration in WORD_ORDER:
        by_model = {v.base.model: v for v in variants if v.name == alteration}
        changed = {
            name: (predicted_images(v.base.parts[""]) != predicted_images(v.result.parts[""])).astype(float)
            for name, v in by_model.items()
        }
        clusters = by_model[MATCHER].base.parts[""].clusters
        gaps = [paired_difference(changed[MATCHER], changed[name], clusters) for name in ("updown", BEST)]
        rows.append((alteration, *(_format_gap(100 * gap.value, 100 * gap.low, 100 * gap.high) for gap in gaps)))
    return Table("", (("predictions that change", f"updown − {MATCHER}", f"{BEST} − {MATCHER}"),), tuple(rows), 1)


def section(folder: Path, results: Results) -> str:
    scored = score_captioners(folder)
    splits = split_by_choice(results, scored)
    write_analysis(PICTURES / "captions_apart.svg", "", [], split_panels(splits["UpDown"]))
    alterations, variants = evaluate_alterations(folder)
    (PICTURES / "alterations.svg").write_text(plot_alterations(variants), encoding="utf-8")
    return "\n".join(
        [
            "### Captioners, before and after self-critical training",
            "Captions from beam search of width 5, scored with the five captions of their scene. TIGEr uses the trained "
            f"`{GROUNDER}` as grounding model. Caption scores are times 100, ± half of the 95 % interval over images. `words` is the "
            "mean length. The last rows score each of diorama's own captions with the other four (mean of five), and the best "
            "captioner with the same sets of four.\n",
            excerpt(
                captioner_table(folder, results, scored), "captioners",
                columns=("bleu-4", "cider-d", "spice", "tiger", "words", "BISON"),
            ),
            "\nThe effect of self-critical training (SCST), on the same scenes and trials:\n",
            markdown(scst_difference_table(results, scored)),
            "\n### Is a caption better where its captioner chooses right?",
            "The AUC of the score of a captioner's own caption of the true image, for right against wrong trials of BISON, after "
            "self-critical training. 0.5 means that the score carries no information. The picture shows UpDown.\n",
            markdown(auc_table(splits)),
            "\n![Scores of UpDown's captions where it chooses right and wrong](pictures/captions_apart.svg)",
            "\n### Altered queries",
            "The percentage of predictions on BISON that change when the query is altered.\n",
            excerpt(
                alterations, "captioner-alterations",
                columns=("captions altered", *(f"{name} of all trials" for name in (MATCHER, GROUNDER, "updown", BEST))),
            ),
            "\n![Predictions that change with the query](pictures/alterations.svg)\n",
            markdown(word_order_table(variants)),
            "",
        ]
    )  # fmt: skip
