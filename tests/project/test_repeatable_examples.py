"""The examples of a property test are the same alone and beside other tests."""

import sys

from hypothesis import given, settings
from hypothesis import strategies as st


def draw_examples():
    examples = []

    @settings(max_examples=200, derandomize=True, database=None)
    @given(st.integers(), st.text())
    def record(number, text):
        examples.append((number, text))

    record()
    return examples


def test_examples_do_not_depend_on_loaded_modules(tmp_path, monkeypatch):
    before = draw_examples()
    constants = "\n".join(f"NUMBER_{n}, TEXT_{n} = {1_000_003 * n}, 'constant {n}'" for n in range(1, 200))
    (tmp_path / "module_with_constants.py").write_text(constants)
    monkeypatch.syspath_prepend(tmp_path)
    import module_with_constants  # noqa: F401

    try:
        assert draw_examples() == before
    finally:
        del sys.modules["module_with_constants"]
