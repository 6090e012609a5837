"""Write the parts of docs/results.md on diorama, and docs/pictures/report.png.

python docs/make_results.py [FOLDER]        # FOLDER keeps the trained model and the results, `demo` by default
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import crossmatch as cm
from blocks import PICTURES, RESULTS, column_names, excerpt, markdown, replace_block
from crossmatch.cli.demo import RETRIEVAL_TASK, evaluate_demo
from crossmatch.diorama.drawing import draw
from crossmatch.diorama.trials import bivlc_edits
from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.paired_tests import paired_difference
from crossmatch.report.query_variants import alteration_tables, is_query_variant
from crossmatch.report.tables import Table, comparison_table, group_by_task, result_tables, task_title
from crossmatch.report.trust_gate_table import gate_tables, is_gate_result

TIE_POLICIES = ("pessimistic", "expected", "optimistic")
MAIN_METRICS = ("R@1", "R@10", "recall@10", "mAP@R")  # of the retrieval tables; the csv files have all


def main(folder: Path) -> None:
    default, coco = (evaluate_demo(folder, size) for size in ("default", "coco"))
    oracle = [cm.evaluate("oracle", "diorama/retrieval", name=ties, ties=ties) for ties in TIE_POLICIES]
    replace_block(RESULTS, "diorama", retrieval_page(default, coco, oracle))
    replace_block(RESULTS, "choices", forced_choice_page(default, evaluate_in_camera_style(folder)))
    take_screenshot(cm.write_report(default, folder / "report.html"))


def retrieval_page(default: list[cm.Result], coco: list[cm.Result], oracle: list[cm.Result]) -> str:
    random, dual, perfect = (r for r in default if r.task == RETRIEVAL_TASK)
    by_links, by_truth = perfect["i2t/links/hit@1"], perfect["i2t/truth/hit@1"]
    return "\n".join(
        [
            "## diorama: retrieval, 1,000 images and 5,000 captions",
            "`links` are the five captions that were written for a scene; `truth` is the known answer for every pair.\n",
            retrieval_excerpt(result_tables([random, dual, perfect])[0], "diorama-retrieval"),
            "\nThe oracle gives the score 1 to every caption that is true of an image, and 0 to every other caption, so it is never "
            f"wrong. By the truth its R@1 is {by_truth.value:.1f}. By the original links its image-to-text R@1 is only "
            f"{by_links.value:.1f}, because it cannot know which five of the true captions were written for this image.\n",
            f"The dual encoder is often wrong (R@1 {dual['i2t/truth/hit@1'].value:.1f}, mAP@R "
            f"{dual['i2t/truth/map@r'].value:.1f} by the truth). But its R@1 by the links is "
            f"{dual['i2t/links/hit@1'].value:.1f}, because it ranks detailed captions above generic ones that are equally true. "
            f"By the links its R@1 is {dual['i2t/links/hit@1'].value / by_links.value:.1f} times that of a scorer that is never "
            "wrong. By the truth it is far below it.\n",
            "The recipe of the dual encoder was tuned with the test split in view, so its numbers are slightly too high. "
            "It is a baseline that shows differences between metrics, not a competitive model.\n",
            "R@10 is not recall@10 ([decision 2](decisions/0002-hit-is-not-recall.md)). By the truth, the oracle has a hit "
            f"among the first ten for {perfect['i2t/truth/hit@10'].value:.1f} % of the images. But these ten positions hold only "
            f"{perfect['i2t/truth/recall@10'].value:.1f} % of the true captions of an image.\n",
            "## diorama: is the dual encoder better than a random scorer?",
            "Paired differences on the same queries, with 95 % intervals.\n",
            excerpt(
                comparison_table(cm.compare(random, dual), "random", "dual"), "diorama-comparison",
                rows=lambda row: row[1] in ("R@1", "mAP@R"),
            ),
            "\n## diorama: retrieval, 5,000 images and 25,000 captions (`--size coco`)",
            retrieval_excerpt(result_tables(coco)[0], "diorama-retrieval-coco-size"),
            "\n## diorama: what ties do",
            "The oracle has only two scores, so almost all candidates are tied. The same scores under the three tie policies "
            "([decision 1](decisions/0001-ties.md)), by the links:\n",
            excerpt(
                tie_table(oracle), "diorama-ties",
                rows=lambda row: row[1] in MAIN_METRICS,
                columns=[*(f"{ties} links" for ties in TIE_POLICIES), "chance links"],
            ),
            "\nA script that breaks ties by file position can report any value between pessimistic and optimistic.\n",
        ]
    )  # fmt: skip


def retrieval_excerpt(table: Table, name: str) -> str:
    return excerpt(table, name, rows=lambda row: row[1] in MAIN_METRICS, without=["random"])


def tie_table(results: list[cm.Result]) -> Table:
    """One table of results with different tie policies, which are not comparable and have a table each."""
    tables = result_tables(results)
    names = column_names(tables[0])
    header = (*names[:2], *(name for table in tables for name in column_names(table)[2:4]), *names[4:])
    rows = tuple(
        (*same_row[0][:2], *(cell for row in same_row for cell in row[2:4]), *same_row[0][4:])
        for same_row in zip(*(table.rows for table in tables), strict=True)
    )
    return Table("", (header,), rows, 2, tables[0].notes[:1])


def same_image_share(result: cm.Result) -> float:
    """Percent of the trials in which both captions prefer the same image, so that exactly one of them is right."""
    return result["tpos2i"].value + result["tneg2i"].value - 2 * result["t2i"].value


def evaluate_in_camera_style(folder: Path) -> cm.Result:
    """The demo model on diorama/bivlc with the edited scenes also drawn in the camera style."""
    data = cm.load_benchmark_data("diorama/bivlc")
    assert isinstance(data, cm.Trials)
    edited_scenes = {edit.name: edit.edited for edit in bivlc_edits("test", "default")}
    opener = data.open_image
    assert opener is not None
    same_style = replace(
        data, open_image=lambda name: draw(edited_scenes[name], "camera") if name in edited_scenes else opener(name)
    )
    return cm.evaluate(str(folder / "dual"), "diorama/bivlc", name="dual", data=same_style)


def forced_choice_page(results: list[cm.Result], same_style: cm.Result) -> str:
    """Forced choices on diorama, from the results of the demo."""
    models = [r for r in results if not is_gate_result(r) and not is_query_variant(r)]
    tables = {group[0].task: table for table, group in zip(result_tables(models), group_by_task(models), strict=True)}
    dual = {r.task: r for r in models if r.model == "dual"}
    bivlc, sugarcrepe = dual["diorama/bivlc"], dual["diorama/sugarcrepe"]
    return "\n".join(
        [
            "## diorama: forced choices",
            "### Which of two look-alike scenes? (`diorama/bison`)",
            markdown(tables["diorama/bison"]),
            "\n### Two scenes, two captions (`diorama/bivlc`)",
            excerpt(
                tables["diorama/bivlc"], "diorama-bivlc",
                rows=lambda row: row[0] in ("chance", "all") or (row[1] == "dual" and row[0] != "macro"),
                columns=("trials", "I2T", "T2I", "Group"),
            ),
            f"\nThe dual encoder has an I2T of {bivlc['i2t'].value:.1f} and a T2I of {bivlc['t2i'].value:.1f}. "
            f"{describe_direction_gap(bivlc)} Its Group score is {bivlc['group'].value:.1f} "
            f"[{bivlc['group'].low:.1f}, {bivlc['group'].high:.1f}], and chance is {bivlc['group'].chance:.1f}. The model "
            f"recognises attributes (replace/att {bivlc['replace/att/group'].value:.1f}). It recognises almost no relations, and "
            "does not know which object has which attribute "
            f"(replace/rel {bivlc['replace/rel/group'].value:.1f}, swap {bivlc['swap/group'].value:.1f}).\n",
            f"In {same_image_share(bivlc):.1f} % of the trials the model prefers the same image for both captions (50 % by chance). "
            "This is how a score can fall below chance. The negative image is drawn in the generator style, which no training image "
            f"has. If both images are in the camera style, Tpos2I is {same_style['tpos2i'].value:.1f} instead of "
            f"{bivlc['tpos2i'].value:.1f}, and Tneg2I is {same_style['tneg2i'].value:.1f} instead of "
            f"{bivlc['tneg2i'].value:.1f}. But T2I ({same_style['t2i'].value:.1f}) and Group "
            f"({same_style['group'].value:.1f}) change little: the style decides which caption fails, not how often one fails.\n",
            "### Two captions for a scene (`diorama/sugarcrepe`)",
            excerpt(
                tables["diorama/sugarcrepe"], "diorama-sugarcrepe",
                rows=lambda row: "/" not in row[0] and row[0] != "macro",
            ),
            "\nIn ADD the wrong caption is always the longer one, so a scorer that prefers short captions needs no image there. "
            f"The dual encoder has {sugarcrepe['add/accuracy'].value:.1f}.\n",
            "### Altered queries",
            "The percentage of predictions on `diorama/bison` that change when the query is altered (hu2019bison, fig. 9).\n",
            *(markdown(table) for table, _ in alteration_tables(results)),
            *gate_section(results),
        ]
    )  # fmt: skip


def gate_section(results: Sequence[cm.Result]) -> list[str]:
    """The tables of the trust gate, one for each task."""
    lines = [
        "\n### The trust gate",
        "Scorers without knowledge: the measured value (theory; allowed range), in percent. [The gate](gate.md) explains them.\n",
    ]
    groups = group_by_task([result for result in results if is_gate_result(result)])
    for table, group in zip(gate_tables(results), groups, strict=True):
        task = task_title(group[0])
        if len(column_names(table)) > 8:
            text = excerpt(table, f"gate-{task.replace('/', '-')}", columns=("I2T", "T2I", "Group", "verdict"))
        else:
            text = markdown(table)
        lines.append(f"**{task}**\n\n{text}\n")
    return lines


def describe_direction_gap(result: cm.Result) -> str:
    """Whether T2I is below I2T on the same trials (finding 1 of miranda2024bivlc), in a sentence."""
    part = result.parts[""]
    i2t, t2i = (metric(name).values(part.evidence) for name in ("i2t", "t2i"))
    gap = paired_difference(i2t, t2i, np.unique(part.clusters, return_inverse=True)[1].ravel())
    verdict = "not significantly different" if gap.p >= 0.05 else f"significantly {'lower' if gap.value < 0 else 'higher'}"
    interval = f"[{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
    return f"T2I is {verdict} ({100 * gap.value:+.1f} points, {interval}, p = {gap.p:.2g})."


def take_screenshot(report: Path) -> None:
    """Save the top of the report, as a browser shows it, as docs/pictures/report.png."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("docs/pictures/report.png needs Chromium. Install it, then run the same command again.")
    with tempfile.TemporaryDirectory() as profile:
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            "--window-size=1160,1240",
            f"--user-data-dir={profile}",
            f"--screenshot={PICTURES / 'report.png'}",
        ]
        subprocess.run([browser, *flags, report.resolve().as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
