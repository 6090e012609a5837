"""Run the commands in README.md and in the guides again, and write their output below them.

A block that starts with `$ ` is a command with its output. Long output and long lines are cut (…). The commands run in a
folder with the demo (`demo/`), BLIP-2's captions (`blip2.json`), the example files of the guides, and the data of
`$CROSSMATCH_DATA`.

python docs/make_readme.py [FOLDER]         # FOLDER keeps the demo; a temporary folder by default
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
MAX_LINES = {  # of the output of a command, on each page
    README: 6,
    HERE / "own_model.md": 7,
    HERE / "collections.md": 6,
    HERE / "trials.md": 6,
    HERE / "gate.md": 13,
    HERE / "analysis.md": 8,
    HERE / "captions.md": 8,
    HERE / "studies.md": 8,
}
DATA = Path(os.environ.get("CROSSMATCH_DATA") or HERE.parents[1] / "shared" / "data")
BLOCK = re.compile(r"```\n(\$ .*?)```\n", re.DOTALL)
MAX_LINES_OF_SEVERAL, WIDTH = 2, 118


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for output in ("results", "campaign", "judged"):
        shutil.rmtree(folder / output, ignore_errors=True)
    write_examples(folder)
    _run("crossmatch demo", folder)
    for page in MAX_LINES:
        update_page(page, folder)


def write_examples(folder: Path) -> None:
    """Write the files that the commands read: BLIP-2's captions, and the examples of the guides."""
    shutil.copy(DATA / "captions" / "blip2_results_xe.json", folder / "blip2.json")
    (folder / "mine.py").write_text(_code_block("own_model.md", "python"), encoding="utf-8")
    (folder / "pets.csv").write_text(_code_block("trials.md", "", "trial_id,caption,image_0"), encoding="utf-8")
    (folder / "scores.csv").write_text(_code_block("trials.md", "", "trial_id,s_c0_i0"), encoding="utf-8")
    collection = folder / "pets"
    for name in ("cat.jpg", "dogs/rex.png"):
        image = collection / "images" / name
        image.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "pictures" / ("scenes.jpg" if name.endswith("jpg") else "kinds.png"), image)
    (collection / "captions.csv").write_text(_code_block("collections.md", "", "image,caption\n"), encoding="utf-8")


def _code_block(page: str, language: str, start: str = "") -> str:
    """The first code block of a page in this language that begins with `start`."""
    text = (HERE / page).read_text(encoding="utf-8")
    match = re.search(rf"```{language}\n({re.escape(start)}.*?)```", text, re.DOTALL)
    assert match is not None, f"{page} has no block that begins with {start!r}"
    return match[1]


def update_page(page: Path, folder: Path) -> None:
    """Run the commands of a page and replace their output."""
    text = page.read_text(encoding="utf-8")
    page.write_text(BLOCK.sub(lambda block: _rerun(block[1], folder, MAX_LINES[page]), text), encoding="utf-8")


def _rerun(block: str, folder: Path, max_lines: int) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    most = max_lines if len(commands) == 1 else MAX_LINES_OF_SEVERAL
    lines = []
    for line in commands:
        output = _run(line.removeprefix("$ ").partition("  #")[0].strip(), folder).splitlines()
        lines += [line, *output[:most], *(["…"] if len(output) > most else [])]
    return "```\n" + "\n".join(_shorten(text.rstrip()) for text in lines) + "\n```\n"


def _shorten(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1].rstrip() + "…"


def _run(command: str, folder: Path) -> str:
    """Standard output of a command; a failure stops the script."""
    environment = {**os.environ, "COLUMNS": "110", "CROSSMATCH_DATA": str(DATA), "XDG_CACHE_HOME": str(folder / "cache")}
    python_command = command.replace("crossmatch ", f"{sys.executable} -m crossmatch ", 1)
    print(f"$ {command}", file=sys.stderr)
    return subprocess.run(
        python_command, cwd=folder, shell=True, check=True, text=True, stdout=subprocess.PIPE, env=environment
    ).stdout  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
