"""Write the part of docs/results.md on caption metrics, and docs/pictures/references.svg.

python docs/make_caption_results.py [FOLDER]     # needs judgements, coco and captions in $CROSSMATCH_DATA
                                                 # FOLDER keeps the trained models, `demo` by default
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from blocks import PICTURES, RESULTS, excerpt, markdown, replace_block
from crossmatch.benchmarks.formats.caption_scoring_files import read_candidates, read_references
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.human.metric_agreement import RatingAgreement, measure_agreement
from crossmatch.captions.human.published_ratings import load_ratings
from crossmatch.captions.human.rating_scale_matching import map_to_rating_scale
from crossmatch.captions.human.reference_curve import measure_reference_curve
from crossmatch.captions.human.score_judged_captions import prepare_ratings, score_judged_captions
from crossmatch.captions.human.sensitivity import measure_word_sensitivity
from crossmatch.captions.score_captions import score_captions
from crossmatch.data.io.paths import data_folder
from crossmatch.data.ratings import Ratings
from crossmatch.diorama.quality_captions import QUALITY, quality_captions
from crossmatch.diorama.world import Diorama
from crossmatch.metrics.cluster_bootstrap import ClusterBootstrap
from crossmatch.metrics.correlation.replicated_correlations import replicated_correlations
from crossmatch.models import make_model
from crossmatch.report.captions.agreement_plots import curve_panel
from crossmatch.report.captions.agreement_with_people import (
    agreement_tables,
    curve_table,
    load_printed_numbers,
    scale_table,
    sensitivity_table,
)
from crossmatch.report.captions.scores_output import scores_table
from crossmatch.report.pages import write_analysis
from crossmatch.report.tables import Table
from crossmatch.train.small_dual_encoder import train_dual
from crossmatch.train.small_grounder import train_grounded

METRICS = ("bleu-1", "bleu-4", "rouge-l", "meteor", "cider", "cider-d", "spice")
NGRAM_METRICS = tuple(name for name in METRICS if name != "spice")
ALL_METRICS = (*METRICS, "tiger", "rrs", "wds", "clip-score", "ref-clip-score")
LEVEL_PAIRS = (
    ("exact", "wrong attribute"),
    ("exact", "wrong object"),
    ("exact", "shuffled words"),
    ("paraphrase", "wrong attribute"),
    ("paraphrase", "another scene"),
)
SMALLEST_BLEU = 1e-3  # a BLEU-4 below this comes from a caption without a common 4-gram; coco-caption's guards keep it above 0


def blip2_table() -> Table:
    """BLIP-2's captions of Karpathy's test split, by every metric that needs no image."""
    folder = data_folder()
    candidates = read_candidates(folder / "captions" / "blip2_results_xe.json")
    corpus = CaptionCorpus.from_texts(candidates, read_references(folder / "coco" / "karpathy_test_captions.tsv"))
    return scores_table([score_captions("BLIP-2", corpus, ("bleu", "rouge-l", "meteor", "cider", "cider-d", "spice"))])


def alternatives_table(study: Ratings) -> Table:
    """Other ways to compute the correlations, beside the printed ones, to find out which of them the paper used."""
    names = ("bleu-1", "bleu-4", "rouge-l", "meteor", "cider-d", "spice")
    ratings, candidates = prepare_ratings(study)
    captions = np.arange(len(ratings))
    every_rating = _resampling(ratings.candidate_of_rating), ratings.candidate_of_rating, ratings.values
    mean_rating = _resampling(captions), captions, ratings.mean
    by_candidate, by_image = (
        {name: result.scores.values for name, result in score_judged_captions(candidates, names, *documents).items()}
        for documents in (("candidates",), ())
    )
    without_guards = {**by_candidate, "bleu-4": np.where(by_candidate["bleu-4"] < SMALLEST_BLEU, 0.0, by_candidate["bleu-4"])}
    rows = []
    for label, scores, (draws, caption, human) in (
        ("each rating, documents by candidate", by_candidate, every_rating),
        ("each rating, documents by image (the default)", by_image, every_rating),
        ("mean rating, documents by candidate", by_candidate, mean_rating),
        ("each rating, no common 4-gram is 0", without_guards, every_rating),
    ):
        for coefficient in ("tau-b", "tau-c", "spearman"):
            values = [replicated_correlations(human, scores[name][caption], draws, (coefficient,))[0][0] for name in names]
            rows.append((label if coefficient == "tau-b" else "", coefficient, *(f"{value:.3f}" for value in values)))
    printed = load_printed_numbers()
    for label, measure, symbol in (("printed", "tau", "τ"), ("", "rho", "ρ")):
        rows.append((label, symbol, *(f"({printed[study.name, name, measure]})" for name in names)))
    return Table("", (("", "", *names),), tuple(rows), 2)


def _resampling(clusters: np.ndarray) -> ClusterBootstrap:
    return ClusterBootstrap.from_clusters(clusters, 2, 0)


def quality_tables(metrics: tuple[str, ...], **models: object) -> tuple[Table, Table]:
    """Captions of known quality in diorama: the mean score of each level, and the correlation of scores and levels."""
    world = Diorama.make("test", images=500)
    captions = quality_captions(world)
    names = [f"{caption.image} {caption.level}" for caption in captions]
    corpus = CaptionCorpus.from_texts(
        dict(zip(names, (caption.caption for caption in captions), strict=True)),
        dict(zip(names, (caption.references for caption in captions), strict=True)),
    )
    opener = world.collection.open_image
    results = score_captions(
        "diorama", corpus, metrics, samples=2, images=lambda name: opener(name.partition(" ")[0]), **models
    ).results  # fmt: skip
    level = np.array([caption.level for caption in captions])
    quality = np.array([caption.quality for caption in captions], dtype=np.float64)
    image = np.unique([caption.image for caption in captions], return_inverse=True)[1].ravel()
    all_levels, in_order = np.ones(len(level), dtype=bool), level != "shuffled words"
    means, agreement = [], []
    for name in metrics:
        scores = results[name].scores.values
        by_level = {label: scores[level == label] for label in QUALITY}
        means.append((name, *(f"{values.mean():.3f}" for values in by_level.values())))
        cells = [name]
        for members in (all_levels, in_order):
            draws = ClusterBootstrap.from_clusters(image[members], 1000, 0)
            (value,), replicates = replicated_correlations(quality[members], scores[members], draws, ("tau-c",))
            low, high = np.quantile(replicates[0], (0.025, 0.975))
            cells.append(f"{value:.3f} [{low:.3f}, {high:.3f}]")
        cells += [f"{100 * (by_level[better] > by_level[worse]).mean():.1f}" for better, worse in LEVEL_PAIRS]
        agreement.append(tuple(cells))
    agreement.sort(key=lambda row: -float(row[1].split()[0]))
    mean_header = ("", *(f"{label} ({rank})" for label, rank in QUALITY.items()))
    agreement_header = ("", "τ-c with the quality", "without shuffled", "exact > attribute", "exact > object", "exact > shuffled",
                        "paraphrase > attribute", "paraphrase > another scene")  # fmt: skip
    return Table("", (mean_header,), tuple(means), 1), Table("", (agreement_header,), tuple(agreement), 1)


def main(folder: Path) -> None:
    studies = {name: load_ratings(name) for name in ("flickr8k-expert", "composite", "pascal-50s")}
    flickr = studies["flickr8k-expert"]
    agreements = {name: measure_agreement(study, METRICS) for name, study in studies.items()}
    flickr_agreement = agreements["flickr8k-expert"]
    assert isinstance(flickr_agreement, RatingAgreement)
    curve = measure_reference_curve(studies["pascal-50s"], METRICS)
    write_analysis(PICTURES / "references.svg", "", [], [curve_panel(curve.points)])
    train_grounded(folder / "grounded")
    train_dual(folder / "dual")
    models = {"grounder": make_model(str(folder / "grounded")), "embedder": make_model(str(folder / "dual"))}
    short_curve = replace(curve, points=tuple(point for point in curve.points if point.group in ("mean", "MM")))
    text = page(
        blip2_table(),
        [agreement_tables(agreement) for agreement in agreements.values()],
        alternatives_table(flickr),
        curve_table(short_curve, "pascal-50s"),
        sensitivity_table(measure_word_sensitivity(flickr, METRICS).rows, "flickr8k-expert"),
        scale_table(map_to_rating_scale(flickr_agreement), "flickr8k-expert"),
        *quality_tables(ALL_METRICS, **models),
    )
    replace_block(RESULTS, "captions", text)


def page(
    blip2: Table,
    agreements: list[list[Table]],
    alternatives: Table,
    curve: Table,
    sensitivity: Table,
    scale: Table,
    quality: Table,
    agreement_with_quality: Table,
) -> str:
    lines = ["## Caption metrics", "### BLIP-2's captions of COCO's test split", markdown(blip2), ""]
    for first, *others in agreements:
        lines += [f"### Agreement with people: {first.title}", *(f"{markdown(table)}\n" for table in (first, *others))]
    lines += [
        "### Why some numbers differ from the published ones",
        "The correlations on Flickr8k-Expert, computed in four ways:\n",
        markdown(alternatives),
        "",
        *DIFFERENCES,
        "### By the number of references",
        "The accuracy on PASCAL-50S over all pairs (mean), and over pairs of two generated captions (MM).\n",
        "![Accuracy against the number of references](pictures/references.svg)\n",
        markdown(curve),
        "\n### Which changed words does a metric notice?",
        "One word of a caption of Flickr8k-Expert is replaced by a near word (almost the same meaning) and by a far word (another "
        "meaning). A good metric scores the near word higher.\n",
        excerpt(sensitivity, "word-sensitivity", columns=("object", "action", "property", "counting", "colour", "size", "state")),
        "\n### Metrics on the rating scale",
        markdown(scale),
        "\n### Captions of known quality in diorama",
        "Six captions for each of 500 scenes of the test split, confirmed by the truth (`diorama/quality_captions.py`). The levels "
        "`exact` and `paraphrase` are true of the scene, the others are false or broken. The references are the other four captions "
        "of the scene. TIGEr uses the small grounding model (`crossmatch train grounded`), which was given the boxes of the objects; "
        "CLIPScore uses the dual encoder of the demo. The mean score of each level, with its quality in parentheses:\n",
        markdown(quality),
        "",
        *describe_quality({row[0]: row for row in agreement_with_quality.rows}),
        "The correlation with the quality, and the percentage of scenes in which one level scores strictly higher than another:\n",
        markdown(agreement_with_quality),
    ]
    return "\n".join(lines)


DIFFERENCES = (
    "**Flickr8k-Expert.** The published τ is τ-c with each rating as an observation, and with CIDEr's documents counted once for "
    "each candidate. In this way BLEU-1, ROUGE-L, METEOR and CIDEr agree to the last printed digit, and so do their ρ and that of "
    "BLEU-4. Counting each image once, as we do by default, changes CIDEr by 0.001. BLEU-4's printed τ cannot come from the same "
    "scores as its ρ. The closest value is τ-b of a BLEU-4 that is 0 for every caption without a common 4-gram. coco-caption's "
    "BLEU-4 is not 0 there, so we do not reproduce this τ. SPICE uses another parser; half of its scores are 0, which makes τ-b and "
    "τ-c different. The literature excludes 158 candidates that are references of their image. They are not in this file, so the "
    "same rule finds none.\n",
    "**Composite.** The references of Flickr30k were not available, so 2,973 of 11,985 candidates are excluded, and the remaining "
    "captions are not the same as in the paper. The human caption of an image is one of its references. It is compared with the "
    "other references, because otherwise it would match itself.\n",
    "**PASCAL-50S.** HI, HM and MM of the n-gram metrics agree within the intervals of 1,000 pairs "
    "(`tests/parity/test_agreement.py`). HC, two correct human captions, is six to thirteen points higher here for every metric. The "
    "data set has two collections of judgements, by 11 and by 48 people per pair, and the paper does not say which of them it used. "
    "This may be the reason, but it is not proven. The five references also differ from the paper's. SPICE is low on MM because of "
    "ties, which count as wrong.\n",
)


def describe_quality(rows: dict[str, tuple[str, ...]]) -> list[str]:
    """What the captions of known quality show, in sentences."""
    spice, tiger, wds, rrs, clip_score = (rows[name] for name in ("spice", "tiger", "wds", "rrs", "clip-score"))
    ngrams = [rows[name] for name in NGRAM_METRICS]
    return [
        f"Over all six levels, TIGEr (τ-c {tiger[1]}) is above every n-gram metric (at most {max(row[1] for row in ngrams)}) and "
        f"below SPICE ({spice[1]}). A possible reason is that all captions of diorama share a small vocabulary. The position of the "
        f"shuffled captions among the levels is a convention. Without them, CIDEr ({rows['cider'][2]}) is above TIGEr ({tiger[2]}).\n",
        f"By TIGEr, a paraphrase scores higher than a wrong attribute in {tiger[6]} % of the scenes. The best n-gram metric has "
        f"{max(row[6] for row in ngrams)} %, SPICE {spice[6]} % and CLIPScore {clip_score[6]} %. "
        f"None of them is good at this. As in the paper, WDS contributes more than RRS, here almost everything: {wds[1]} against "
        f"{rrs[1]}. A scene has few regions, so almost every order of them has a high nDCG.\n",
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
