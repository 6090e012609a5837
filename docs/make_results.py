"""Write the parts of docs/results.md on the embedded world, the table in README.md, and docs/pictures/report.png.

python docs/make_results.py [FOLDER]        # FOLDER keeps the trained model and the results, `demo` by default
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import crossmatch as cm
from blocks import replace_block
from crossmatch.cli.demo import TASK, evaluate_demo
from crossmatch.diorama.draw import draw
from crossmatch.diorama.trials import made_bivlc
from crossmatch.metrics.proportion import paired
from crossmatch.metrics.table import metric
from crossmatch.report.gate import gate_tables, is_gate
from crossmatch.report.tables import Table, by_task, comparison_table, results_table
from crossmatch.report.variants import alteration_tables, is_variant

HERE = Path(__file__).parent


def main(folder: Path) -> None:
    default, coco = (evaluate_demo(folder, size) for size in ("default", "coco"))
    oracle = [
        cm.evaluate("oracle", "diorama/retrieval", name=ties, ties=ties) for ties in ("pessimistic", "expected", "optimistic")
    ]
    replace_block(HERE / "results.md", "diorama", page(default, coco, oracle))
    replace_block(HERE / "results.md", "choices", choices(default, in_one_style(folder)))
    replace_block(HERE.parent / "README.md", "bivlc", bivlc(default))
    picture(cm.write_report(default, folder / "report.html"))


def page(default: list[cm.Result], coco: list[cm.Result], oracle: list[cm.Result]) -> str:
    random, dual, perfect = (r for r in default if r.task == TASK)
    by_links, by_truth = perfect["i2t/links/hit@1"], perfect["i2t/truth/hit@1"]
    return "\n".join(
        [
            "## The embedded world, 1,000 images and 5,000 captions",
            markdown(results_table([random, dual, perfect])[0]),
            "\nThe oracle says 1 of every caption that is true of an image and 0 of every other one: it is never wrong. By the "
            f"truth it has an R@1 of {by_truth.value:.1f}; by the original links {by_links.value:.1f} for images as queries, "
            "because it cannot know which five of the true captions were written for this image. The dual encoder, which is "
            f"often wrong (R@1 {dual['i2t/truth/hit@1'].value:.1f}, mAP@R {dual['i2t/truth/map@r'].value:.1f} by the truth), "
            f"has {dual['i2t/links/hit@1'].value:.1f} by the links: it puts detailed captions before generic ones that are just as "
            f"true. By the links it has {dual['i2t/links/hit@1'].value / by_links.value:.1f} times the R@1 of a scorer that is "
            "never wrong; by the truth it is far below it.\n",
            "The recipe of the dual encoder was chosen while looking at numbers of the test split, which makes them a little rosy. "
            "It is a baseline that gives the metrics something to tell apart, not a claim.\n",
            "R@10 and recall@10 differ as well: by the truth the oracle has a hit among the first ten for "
            f"{perfect['i2t/truth/hit@10'].value:.1f} % of the images, but finds {perfect['i2t/truth/recall@10'].value:.1f} % of "
            "their true captions there, since ten places cannot hold more.\n",
            "## Is the dual encoder better than a random scorer?",
            markdown(comparison_table(cm.compare(random, dual), "random", "dual")),
            "\n## 5,000 images and 25,000 captions (`--size coco`)",
            markdown(results_table(coco)[0]),
            "\n## What ties do",
            "The oracle has two scores only, so nearly everything is tied. Three ways to break ties, the same scores:\n",
            markdown(results_table(oracle)[0]),
            "",
        ]
    )


def bivlc(results: list[cm.Result]) -> str:
    """The table of the README: the demo's model on diorama/bivlc, whole and by category."""
    (dual,) = (r for r in results if (r.task, r.model) == ("diorama/bivlc", "dual"))
    kept = tuple(row for row in dual.rows if row.part.count("/") == 0 and row.part != "macro")
    return markdown(results_table([replace(dual, rows=kept)])[0])


def same_image(result: cm.Result) -> float:
    """Percent of the trials in which both captions take the same image: one of them is right, and not both."""
    return result["tpos2i"].value + result["tneg2i"].value - 2 * result["t2i"].value


def in_one_style(folder: Path) -> cm.Result:
    """The demo's model on diorama/bivlc with the edited scenes drawn in the camera's style, too."""
    data = cm.load_data("diorama/bivlc")
    assert isinstance(data, cm.Trials)
    edited = {one.name: one.edited for one in made_bivlc("test", "default")}
    opener = data.open_image
    assert opener is not None
    alike = replace(data, open_image=lambda name: draw(edited[name], "camera") if name in edited else opener(name))
    return cm.evaluate(str(folder / "dual"), "diorama/bivlc", name="dual", data=alike)


def choices(results: list[cm.Result], control: cm.Result) -> str:
    """Forced choices on the embedded world, from the demo's results."""
    mine = [r for r in results if not is_gate(r) and not is_variant(r)]
    tables = {r.task: table for table, (r, *_) in zip(results_table(mine), by_task(mine), strict=True)}
    dual = {r.task: r for r in mine if r.model == "dual"}
    both, crepe = dual["diorama/bivlc"], dual["diorama/sugarcrepe"]
    gap = paired_gap(both)
    lines = [
        "## Forced choices on the embedded world",
        "### Which of two look-alike scenes? (`diorama/bison`)",
        markdown(tables["diorama/bison"]),
        "\n### Two scenes, two captions (`diorama/bivlc`)",
        markdown(tables["diorama/bivlc"]),
        f"\nThe dual encoder has an I2T of {both['i2t'].value:.1f} and a T2I of {both['t2i'].value:.1f}: {gap} "
        f"Its Group score of {both['group'].value:.1f} has an interval of [{both['group'].low:.1f}, {both['group'].high:.1f}] and "
        f"chance is {both['group'].chance:.1f}. What it sees are attributes (replace/att {both['replace/att/group'].value:.1f}); "
        f"of relations, and of which thing has which attribute, it knows next to nothing (replace/rel "
        f"{both['replace/rel/group'].value:.1f}, swap {both['swap/group'].value:.1f}). It takes the same image for both "
        f"captions in {same_image(both):.1f} % of the trials (50 by chance), which is how a score falls below chance. The negative "
        "image is drawn in another style than its training pictures. With both in the camera's style Tpos2I is "
        f"{control['tpos2i'].value:.1f} instead of {both['tpos2i'].value:.1f} and Tneg2I {control['tneg2i'].value:.1f} instead of "
        f"{both['tneg2i'].value:.1f}, but T2I ({control['t2i'].value:.1f}) and Group ({control['group'].value:.1f}) hardly "
        "move: style decides which caption it fails, not whether.\n",
        "### Two captions for a scene (`diorama/sugarcrepe`)",
        markdown(tables["diorama/sugarcrepe"]),
        f"\nIn ADD the wrong caption is the longer one by construction, so a scorer that prefers short captions needs no "
        f"image there. The dual encoder has {crepe['add/accuracy'].value:.1f}.\n",
        "### Altered queries",
        "The share of predictions on `diorama/bison` that change when the query is altered (hu2019bison, fig. 9).\n",
        *(markdown(table) for table, _ in alteration_tables(results)),
        "\n### The trust gate",
        "Scorers that know nothing, found (theory), in percent.\n",
        *(f"**{table.title.split(',')[1].split(':')[0].strip()}**\n\n{markdown(table)}\n" for table in gate_tables(results)),
    ]
    return "\n".join(lines)


def paired_gap(result: cm.Result) -> str:
    """Whether T2I is below I2T on the same trials (finding 1 of miranda2024bivlc), in words."""
    part = result.parts[""]
    i2t, t2i = (metric(name).values(part.evidence) for name in ("i2t", "t2i"))
    found = paired(i2t, t2i, np.unique(part.clusters, return_inverse=True)[1].ravel())
    verdict = "lower beyond doubt" if found.p < 0.05 and found.value < 0 else "not told apart" if found.p >= 0.05 else "higher"
    return f"{verdict} ({100 * found.value:+.1f} points, [{100 * found.low:+.1f}, {100 * found.high:+.1f}], p = {found.p:.2g})."


def markdown(table: Table) -> str:
    """Two head rows become one: the model's name with the set of judgements."""
    names, carried = [], ""
    for upper, lower in zip(table.head[0], table.head[-1], strict=True):
        carried = upper or carried
        names.append(" ".join(dict.fromkeys(w for w in (carried, lower if len(table.head) > 1 else "") if w)))
    rule = [":--" if n < table.stub else "--:" for n in range(len(names))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (names, rule, *table.rows)]
    return "\n".join([*lines, *(f"\n*{note.removesuffix('.')}.*" for note in table.notes)])


def picture(report: Path) -> None:
    """The top of the report, as a browser shows it."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("docs/pictures/report.png needs Chromium; install it, then run this again")
    with tempfile.TemporaryDirectory() as profile:
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
        ]
        where = [f"--user-data-dir={profile}", f"--screenshot={HERE / 'pictures/report.png'}", "--window-size=1160,1240"]
        subprocess.run([browser, *flags, *where, report.resolve().as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
