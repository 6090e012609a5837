"""Captioners in the results pages: what they say, how it is judged, and what they choose (hu2019bison, sec. 4 and 5)."""

# ruff: noqa: E501 - prose

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import crossmatch as cm
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.judge import Judged, compare, judge
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, Diorama
from crossmatch.metrics.proportion import paired
from crossmatch.models import make_model
from crossmatch.report.analysis_page import write
from crossmatch.report.analysis_plots import apart_panels
from crossmatch.report.distribution import Apart, apart
from crossmatch.report.tables import Table, value_with_error
from crossmatch.report.trial_plots import alteration_chart
from crossmatch.report.variants import Variant, alteration_tables, predictions
from crossmatch.run import evaluate_all, with_alterations
from make_results import markdown
from trained import RUN

HERE = Path(__file__).parent
CAPTIONERS = {"ShowTell": "show-tell", "ShowAttTell": "show-att-tell", "UpDown": "updown"}
METRICS = ("bleu-4", "cider-d", "spice", "meteor", "tiger")
GROUNDER, MATCHER = "scan-t2i", "vse++"  # TIGEr's grounding model, and the retrieval model that captioners are compared with
BEST = "updown-scst"
ORDER = ("permutation", "reversal")  # alterations that change the order of words and no word
DANGLING = {"a", "an", "the", "of", "in", "on", "at", "to", "with", "and", "or", "is", "are", "has", "by", "from", "that", "which"}

Found = Mapping[str, Mapping[str, cm.Result]]


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
def loaded(folder: Path, name: str) -> Any:
    return make_model(str(folder / "models" / name))


def said_by(folder: Path, name: str) -> dict[str, str]:
    """What a captioner says of each scene of the test split; of the very same model it is kept."""
    known = hashlib.sha256(loaded(folder, name).signature.encode()).hexdigest()[:12]
    file = folder / "captions" / f"{name}-{known}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        words = ["captions", "generate", "-m", str(folder / "models" / name), "--data", "diorama", "-o", str(file)]
        subprocess.run([*RUN, *words], check=True)
    return {row["image_id"]: row["caption"] for row in json.loads(file.read_text())}


def judged(folder: Path, name: str, said: Mapping[str, str], against: Mapping[str, tuple[str, ...]]) -> Judged:
    opener = world().collection.open_image
    return judge(name, Corpus.of(dict(said), dict(against)), METRICS, images=opener, grounder=loaded(folder, GROUNDER))


def all_judged(folder: Path) -> dict[str, Judged]:
    """Each captioner's captions against the five of their scenes."""
    names = [each for name in CAPTIONERS.values() for each in (name, f"{name}-scst")]
    return {name: judged(folder, name, said_by(folder, name), references()) for name in names}


def left_out(folder: Path, said: Mapping[str, str] | None = None) -> list[float]:
    """Times 100, the mean over five sets of four references of what is said, or without it of the caption that was left out."""
    sums = np.zeros(len(METRICS))
    for n in range(CAPTIONS_PER_SCENE):
        own = {name: five[n] for name, five in references().items()}
        four = {name: five[:n] + five[n + 1 :] for name, five in references().items()}
        one = judged(folder, f"without caption {n}", said or own, four)
        sums += [100 * one[name].scores.value for name in METRICS]
    return list(sums / CAPTIONS_PER_SCENE)


def table_4(folder: Path, found: Found, scored: Mapping[str, Judged]) -> Table:
    """hu2019bison, Table 4: caption scores and BISON accuracy; how long captions are, and how many end in a word that cannot."""
    rows = []
    for label, name in CAPTIONERS.items():
        for way, each in (("cross-entropy", name), ("then SCST", f"{name}-scst")):
            said = said_by(folder, each).values()
            cells = [_with_interval(scored[each], metric) for metric in METRICS]
            rows.append((label, way, *cells, *_ends(list(said)), value_with_error(accuracy(found[each]))))
    own = [five[n] for five in references().values() for n in range(CAPTIONS_PER_SCENE)]
    oracle = cm.evaluate("oracle", "diorama/bison")
    rows.append(("UpDown", "then SCST, 4 references", *(f"{x:.1f}" for x in left_out(folder, said_by(folder, BEST))), "", "", ""))
    rows.append(("the world's own", "one of five, 4 references", *(f"{x:.1f}" for x in left_out(folder)), *_ends(own), ""))
    rows.append(("oracle", "", *[""] * (len(METRICS) + 2), value_with_error(oracle["accuracy"])))
    return Table("", (("", "", *METRICS, "words", "dangling %", "BISON"),), tuple(rows), 2)


def _with_interval(one: Judged, metric: str) -> str:
    low, high = one.interval(metric)
    return f"{100 * one[metric].scores.value:.1f} ± {50 * (high - low):.1f}"


def _ends(said: list[str]) -> tuple[str, str]:
    """How many words a caption has, and how many captions per cent end in a word that needs another one."""
    words = [text.rstrip(". ").split() for text in said]
    loose = np.mean([not each or each[-1] in DANGLING for each in words])
    return f"{np.mean([len(each) for each in words]):.1f}", f"{100 * loose:.1f}"


def accuracy(results: Mapping[str, cm.Result]) -> cm.core.result.Row:
    return results["diorama/bison"]["accuracy"]


def after_before(found: Found, scored: Mapping[str, Judged]) -> Table:
    """What self-critical training changed: paired differences with their intervals."""
    rows = []
    for label, name in CAPTIONERS.items():
        gaps = {one.metric: one.difference for one in compare([scored[name], scored[f"{name}-scst"]])}
        choice = cm.compare(found[name]["diorama/bison"], found[f"{name}-scst"]["diorama/bison"])
        chosen = next(one.difference for one in choice if one.first.key == "accuracy")
        cells = [_gap(100 * gaps[m].value, 100 * gaps[m].low, 100 * gaps[m].high) for m in METRICS]
        rows.append((label, *cells, _gap(chosen.value, chosen.low, chosen.high)))
    return Table("", (("SCST − cross-entropy", *METRICS, "BISON"),), tuple(rows), 1)


def _gap(value: float, low: float, high: float) -> str:
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def told_apart(found: Found, scored: Mapping[str, Judged]) -> dict[str, list[Apart]]:
    """hu2019bison, Figure 8: the score of a captioner's own caption of the true image, where it chooses right and where wrong."""
    trials = cm.load_data("diorama/bison")
    shown = dict(zip(trials.ids.tolist(), trials.images[:, 0].tolist(), strict=True))
    out = {}
    for label, name in CAPTIONERS.items():
        one = scored[f"{name}-scst"]
        of_image = {metric: dict(zip(one.corpus.ids, one[metric].scores.values.tolist(), strict=True)) for metric in METRICS}
        of_trial = {metric: {trial: score[image] for trial, image in shown.items()} for metric, score in of_image.items()}
        out[label] = apart(found[f"{name}-scst"]["diorama/bison"], of_trial)
    return out


def apart_rows(found: Mapping[str, list[Apart]]) -> Table:
    rows = [(label, *(f"{one.auc:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in scores)) for label, scores in found.items()]
    return Table("", (("AUC", *METRICS),), tuple(rows), 1)


def altered(folder: Path) -> tuple[Table, list[Variant]]:
    """hu2019bison, Figures 9 and 15: altered queries, for a retrieval model, a grounding one and the best captioner."""
    tasks = with_alterations("diorama/bison", {})
    names, data = [name for name, _ in tasks], [data for _, data in tasks]
    results = []
    for name in (MATCHER, GROUNDER, "updown", BEST):
        results += evaluate_all(loaded(folder, name), names, name=name, data=data)
    return alteration_tables(results)[0]


def reacts_more(found: list[Variant]) -> Table:
    """How many more predictions of the captioner change with the order of words than of the retrieval model; paired over trials."""
    rows = []
    for how in ORDER:
        by_model = {v.base.model: v for v in found if v.how == how}
        changes = {name: predictions(v.base.parts[""]) != predictions(v.result.parts[""]) for name, v in by_model.items()}
        clusters = by_model[MATCHER].base.parts[""].clusters
        cells = [paired(changes[MATCHER].astype(float), changes[name].astype(float), clusters) for name in ("updown", BEST)]
        rows.append((how, *(_gap(100 * d.value, 100 * d.low, 100 * d.high) for d in cells)))
    return Table("", (("predictions that change", f"updown − {MATCHER}", f"{BEST} − {MATCHER}"),), tuple(rows), 1)


def section(folder: Path, found: Found) -> str:
    scored = all_judged(folder)
    scores = told_apart(found, scored)
    write(HERE / "pictures" / "captions_apart.svg", "", [], apart_panels(scores["UpDown"]))
    changes, variants = altered(folder)
    (HERE / "pictures" / "alterations.svg").write_text(alteration_chart(variants), encoding="utf-8")
    return "\n".join(
        [
            "### Captioners, before and after self-critical training",
            f"Beam search of width 5, each caption against the five of its scene; TIGEr with the trained `{GROUNDER}` as grounding model. All but BISON times 100, ± half of the 95 % interval over images. Dangling: captions that end in a word which needs another, as self-critical training is known to make. The world's own captions are each compared with the four others, the mean of five; beside them the best captioner on the same sets of four.\n",
            markdown(table_4(folder, found, scored)),
            "\nWhat self-critical training changed, on the same scenes and trials:\n",
            markdown(after_before(found, scored)),
            "\n### Is a caption better where its captioner chooses right?",
            "The AUC of the score of a captioner's own caption of the true image, for right against wrong trials of BISON, after self-critical training: 0.5 says nothing. The picture is of UpDown.\n",
            markdown(apart_rows(scores)),
            "\n![Scores of UpDown's captions where it chooses right and wrong](pictures/captions_apart.svg)",
            "\n### Altered queries",
            "Predictions on BISON that change when the query is altered, per cent.\n",
            markdown(changes),
            "\n![Predictions that change with the query](pictures/alterations.svg)\n",
            markdown(reacts_more(variants)),
            "",
        ]
    )
