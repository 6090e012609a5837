"""Errors in a user's own code, reported in one line with file, line and function."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossmatch.data.errors import CrossmatchError

USER_MODULE_PREFIX = "crossmatch_own_"  # modules loaded from a user's file have names that begin so
USER_CODE_ERRORS = (Exception, SystemExit)  # a file that exits the program is reported as well


def describe_error(error: BaseException) -> str:
    """Describe an exception in one line: its type, the first line of its message, and its notes.

    >>> describe_error(KeyError("boom")), describe_error(EOFError())
    ("KeyError: 'boom'", 'EOFError')
    """
    message = (str(error).splitlines() or [""])[0]
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}{f': {message:.200}' if message else ''}{notes}"


@contextmanager
def report_user_errors() -> Iterator[None]:
    """Turn an exception or exit in a user's file into a `CrossmatchError` that names the file, line and function.

    Other exceptions pass: a `CrossmatchError` already says what is wrong, and an error elsewhere needs its traceback.
    """
    try:
        yield
    except CrossmatchError:
        raise
    except USER_CODE_ERRORS as error:
        frame = _find_user_frame(error)
        if frame is None:
            raise
        raise CrossmatchError(
            f"{frame.filename}, line {frame.lineno}, in {frame.name}: {describe_error(error)}. Fix this line."
        ) from error


def _find_user_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame in a user's file, in the traceback of an exception or of its causes."""
    files = (module.__file__ for name, module in list(sys.modules.items()) if name.startswith(USER_MODULE_PREFIX))
    user_folders = {Path(file).resolve().parent for file in files if file}
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    if not user_folders or any(isinstance(link, KeyboardInterrupt) for link in chain):
        return None
    frames = [frame for link in reversed(chain) for frame in traceback.extract_tb(link.__traceback__)]
    return next((frame for frame in reversed(frames) if Path(frame.filename).resolve().parent in user_folders), None)
