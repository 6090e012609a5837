"""How the tests of the command line call it."""

from __future__ import annotations

import sys

import pytest

from crossmatch.cli import main


@pytest.fixture
def crossmatch(monkeypatch, capsys, tmp_path, tmp_path_factory):
    """Call the command in this process, in an empty folder with an empty cache: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["crossmatch", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return call
