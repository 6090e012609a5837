"""Expect errors with a message of one line."""

from contextlib import contextmanager

import pytest

from crossmatch.data.errors import CrossmatchError


@contextmanager
def one_line_error(*words, kind=CrossmatchError):
    """Expect an error whose message is one line that contains all these words."""
    with pytest.raises(kind) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message


def error_message(call, *arguments, **options):
    """The message of the `CrossmatchError` that a call raises; it must be one line."""
    with pytest.raises(CrossmatchError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
