"""Code of the user's own: what goes wrong inside of it is told in one line that says where."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossmatch.core.errors import CrossmatchError

MODULE = "crossmatch_own_"  # how the name of a module begins that was made of a user's file
ACCIDENTS = (Exception, SystemExit)  # a file that ends the program is as much at fault as one that raises


def told(error: BaseException) -> str:
    """An exception in a few words: its type, the first line of what it says, and the notes that it carries.

    >>> told(KeyError("boom")), told(EOFError())
    ("KeyError: 'boom'", 'EOFError')
    """
    said = (str(error).splitlines() or [""])[0]
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}{f': {said:.200}' if said else ''}{notes}"


@contextmanager
def own_code() -> Iterator[None]:
    """Whatever a user's file raises or exits by becomes one error that names the file, the line and the function.

    All else passes through: an error of ours already says what is wrong, and one from elsewhere needs its traceback.
    """
    try:
        yield
    except CrossmatchError:
        raise
    except ACCIDENTS as error:
        place = _place(error)
        if place is None:
            raise
        raise CrossmatchError(f"{place.filename}, line {place.lineno}, in {place.name}: {told(error)}. Mend it.") from error


def _place(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost place of a user's own in the traceback of an exception, or of what caused it."""
    loaded = (module.__file__ for name, module in list(sys.modules.items()) if name.startswith(MODULE))
    own = {Path(file).resolve().parent for file in loaded if file}
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    if not own or any(isinstance(each, KeyboardInterrupt) for each in chain):  # whoever stops the program is not at fault
        return None
    frames = [frame for each in reversed(chain) for frame in traceback.extract_tb(each.__traceback__)]
    return next((frame for frame in reversed(frames) if Path(frame.filename).resolve().parent in own), None)
