"""Importing crossmatch and printing help load no heavy library."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "PIL", "numba", "matplotlib", "jinja2", "scipy", "pandas", "qtpy", "qtawesome")


def loaded_after(code):
    """The heavy libraries that a fresh interpreter has loaded after `code`."""
    script = f"import sys\n{code}\nprint('\\n'.join(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import crossmatch", set()),
        ("import crossmatch.cli", set()),
        (
            "import click.testing as t, crossmatch.cli as c; assert t.CliRunner().invoke(c.cli, ['--help']).exit_code == 0",
            set(),
        ),
        ("import crossmatch.metrics.metric_table, crossmatch.data.rank_counts", {"scipy"}),
        ("import crossmatch.models, crossmatch.models.abilities", {"scipy"}),
        ("import crossmatch.report.analysis.uncertainty_by_positives", {"scipy"}),
        ("import crossmatch; crossmatch.Diorama.make('test', images=2).truth", {"scipy"}),
        ("import crossmatch; crossmatch.evaluate('oracle', 'diorama/retrieval', size='tiny', samples=10)", {"scipy"}),
    ],
)
def test_only_what_is_needed_is_loaded(code, allowed):
    assert loaded_after(code) <= allowed
