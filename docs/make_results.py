"""Write the part of docs/results.md on the embedded world, and docs/pictures/report.png.

python docs/make_results.py [FOLDER]        # FOLDER keeps the trained model and the results, `demo` by default
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import crossmatch as cm
from blocks import replace_block
from crossmatch.cli.demo import evaluate_demo
from crossmatch.report.tables import Table, comparison_table, results_table

HERE = Path(__file__).parent


def main(folder: Path) -> None:
    default, coco = (evaluate_demo(folder, size) for size in ("default", "coco"))
    oracle = [
        cm.evaluate("oracle", "diorama/retrieval", name=ties, ties=ties) for ties in ("pessimistic", "expected", "optimistic")
    ]
    replace_block(HERE / "results.md", "diorama", page(default, coco, oracle))
    picture(cm.write_report(default, folder / "report.html"))


def page(default: list[cm.Result], coco: list[cm.Result], oracle: list[cm.Result]) -> str:
    random, dual, perfect = default
    by_links, by_truth = perfect["i2t/links/hit@1"], perfect["i2t/truth/hit@1"]
    return "\n".join(
        [
            "## The embedded world, 1,000 images and 5,000 captions",
            markdown(results_table(default)[0]),
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


def markdown(table: Table) -> str:
    """Two head rows become one: the model's name with the set of judgements."""
    names, carried = [], ""
    for upper, lower in zip(table.head[0], table.head[-1], strict=True):
        carried = upper or carried
        names.append(" ".join(dict.fromkeys(w for w in (carried, lower if len(table.head) > 1 else "") if w)))
    rule = [":--" if n < table.stub else "--:" for n in range(len(names))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (names, rule, *table.rows)]
    return "\n".join([*lines, *(f"\n*{note}.*" for note in table.notes)])


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
