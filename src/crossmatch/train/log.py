"""What a training tells of itself: one row per epoch in log.csv, and in TensorBoard if that is asked for."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.whole import whole_file

Row = Mapping[str, float]  # the same columns in every row; epoch and step first
WHOLE = ("epoch", "step")


def write_log(path: Path, rows: Sequence[Row]) -> None:
    """All rows so far, at once: none is lost or doubled, however often the training was interrupted."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    if rows:
        writer.writerow(rows[0])
    for row in rows:
        writer.writerow([f"{value:.0f}" if name in WHOLE else f"{value:.6g}" for name, value in row.items()])
    try:
        with whole_file(path) as file:
            file.write(text.getvalue().encode())
    except OSError as error:
        raise CrossmatchError(
            f"{path} cannot be written ({error.strerror or error}). Mend that, and start again with the same words: the training "
            "goes on from its last checkpoint."
        ) from None


@contextmanager
def board(folder: Path, wanted: bool, done: int = 0) -> Iterator[Callable[[Row], None]]:
    """Where rows go beside log.csv: TensorBoard's event files in `folder`, or nowhere. Events after epoch `done` are overruled."""
    if not wanted:
        yield lambda row: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingDependency("TensorBoard", "tensorboard") from None
    with SummaryWriter(str(folder), purge_step=done + 1) as writer:

        def add(row: Row) -> None:
            for name, value in row.items():
                if name not in WHOLE:
                    writer.add_scalar(name.replace(" ", "/"), value, int(row["epoch"]))
            writer.flush()

        yield add
