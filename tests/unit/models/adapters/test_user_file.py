"""Models in a user's Python file: loading, signature, errors, and evaluation on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from crossmatch import evaluate
from crossmatch.cli import main
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.abilities import cache_signature, list_abilities
from crossmatch.models.adapters.user_file import user_model

PAGE = Path(__file__).parents[4] / "docs/own_model.md"

DUAL = """
import numpy as np

class Bright:
    def embed_images(self, images):
        return [[np.asarray(image).mean() + 1.0, 1.0] for image in images]
    def embed_texts(self, texts):
        return [[len(text) + 1.0, 1.0] for text in texts]

def make_model():
    return Bright()

made = Bright()

def score(images, texts):
    return [[float(len(text)) for text in texts] for _ in images]

def make_scorer():
    return score
"""


@pytest.fixture
def file(tmp_path):
    def write(text=DUAL, name="mine.py"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("name", "ability"),
    [("make_model", "embed"), ("Bright", "embed"), ("made", "embed"), ("score", "score"), ("make_scorer", "score")],
)
def test_name_may_be_a_factory_a_class_a_model_or_a_function(file, name, ability):
    model = user_model(f"{file()}:{name}")
    assert list_abilities(model) == (ability,)
    if ability == "score":
        assert np.shape(model([None] * 2, ["a", "b", "c"])) == (2, 3)
    else:
        assert model.embed_texts(["abc"]) == [[4.0, 1.0]]


def test_model_without_signature_is_identified_by_its_file_and_not_cached(file):
    first = user_model(f"{file()}:make_model")
    assert re.fullmatch(r"mine\.py:make_model\|file:[0-9a-f]{12}", first.signature)
    assert user_model(f"{file()}:make_model").signature == first.signature
    assert user_model(f"{file(DUAL + '# changed')}:make_model").signature != first.signature
    assert cache_signature(first) is None, "weights elsewhere may change without the file"


def test_own_signature_has_priority(file):
    source = DUAL.replace("class Bright:", "class Bright:\n    signature = 'bright|weights:9f0c'")
    model = user_model(f"{file(source)}:make_model")
    assert model.signature == "bright|weights:9f0c"
    assert cache_signature(model) == "bright|weights:9f0c"


def test_model_may_import_neighbouring_files(file):
    file("SIZE = 3\n", "beside_mine.py")
    late = "def make_model():\n    from beside_mine import SIZE\n    return lambda images, texts: SIZE\n"
    assert user_model(f"{file(late)}:make_model")([], []) == 3


@pytest.mark.parametrize(
    ("text", "suffix", "error_type", "message"),
    [
        (DUAL, ":mke_model", UsageError, r"mine\.py has no function 'mke_model'. Did you mean 'make_model'\?"),
        ("", ":make_model", UsageError, r"has no function 'make_model'. Write: def make_model\(\): return"),
        (DUAL, "", UsageError, r"Name the function that makes it: .*mine\.py:make_model"),
        (DUAL, ":not a name", UsageError, "Name the function that makes it"),
        ("import nothing_like_this", ":make_model", CrossmatchError, r"cannot be run \(ModuleNotFoundError"),
        ("def make_model(): return 1 / 0", ":make_model", CrossmatchError, r"raised an error \(ZeroDivisionError"),
        ("def make_model(): pass", ":make_model", UsageError, "returns nothing, which has none of the abilities"),
        ("make_model = 7", ":make_model", UsageError, "returns an object of type int, which has none of the abilities"),
        ("import sys; sys.exit(0)", ":make_model", CrossmatchError, r"mine\.py cannot be run \(SystemExit: 0\)"),
        ("def make_model():\n    import sys; sys.exit()", ":make_model", CrossmatchError, r"raised an error \(SystemExit\)"),
        ("def make_model(images): return 3", ":make_model", UsageError, r"cannot be called with 2 arguments \(images and"),
        ("def make_model(a, b, c): return 3", ":make_model", UsageError, "cannot be called with 2 arguments"),
        (DUAL + "Bright.truncated = True", ":make_model", UsageError, "truncated of .* must be a method, but is of type bool"),
        (DUAL + "Bright.embed_texts = lambda self: 3", ":make_model", UsageError, r"embed_texts of .* called with 1 argument \("),
        (
            "class make_model:\n    __slots__ = ()\n    def score(self, images, texts): pass",
            ":make_model",
            UsageError,
            "Give it a signature",
        ),
    ],
)
def test_unusable_files_are_explained(file, text, suffix, error_type, message):
    with pytest.raises(error_type, match=message):
        user_model(f"{file(text)}{suffix}")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"there is no file .*mine\.py"):
        user_model(f"{tmp_path / 'mine.py'}:make_model")


# On the command line


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    def call(*options):
        command = ["crossmatch", "run", "-t", "diorama/retrieval", "--size", "tiny", "--samples", "10", "--json", *options]
        monkeypatch.setattr("sys.argv", [*command, "-o", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, capsys.readouterr()

    return call


def test_command_line_evaluates_a_user_file(run, file, tmp_path):
    code, output = run("-m", f"{file()}:make_model")
    assert code == 0, output.err
    assert 0 <= json.loads(output.out)["diorama/retrieval"]["t2i/truth/map@r"] <= 100
    (saved,) = (tmp_path / "results").rglob("*.json")
    assert re.fullmatch(r"system\|mine\.py:make_model\|file:[0-9a-f]{12}", json.loads(saved.read_text())["system"])
    assert not (tmp_path / "cache").exists()
    code, output = run("-m", f"{file()}:nothing")
    assert (code, len(output.err.strip().splitlines())) == (2, 1)


BOOM = "raise ValueError('boom\\n  more')"


@pytest.mark.parametrize(
    ("method", "body", "message"),
    [
        ("embed_images(self, images)", BOOM, r"mine\.py, line \d+, in embed_images: ValueError: boom\."),
        ("embed_texts(self, texts)", "return [{}['x'] for _ in texts]", r"mine\.py, line \d+, in .*: KeyError: 'x'\."),
        ("embed_images(self, images)", "raise EOFError", r"mine\.py, line \d+, in embed_images: EOFError\."),
        ("embed_images(self, images)", "import sys; sys.exit(0)", r"in embed_images: SystemExit: 0\."),
        ("embed_images(self, images)", "raise StopIteration", r"in embed_images: StopIteration\."),
        ("truncated(self, texts)", "return 1 / 0", r"in truncated: ZeroDivisionError: division by zero\."),
        ("embed_images(self, images)", "return beside.broken(images)", r"beside_it\.py, line 2, in broken: OSError: no weights\."),
    ],
)
def test_error_in_a_method_is_one_line_with_file_and_method(run, file, tmp_path, method, body, message):
    file("def broken(images):\n    raise OSError('no weights')\n", "beside_it.py")
    source = f"import beside_it as beside\n{DUAL}\nclass Broken(Bright):\n    def {method}:\n        {body}\n"
    code, output = run("-m", f"{file(source)}:Broken")
    assert code == 1
    lines = [line for line in output.err.splitlines() if not line.startswith("cache: ")]
    assert len(lines) == 1
    assert re.match(f"crossmatch: .*{message}", lines[0])
    assert not (tmp_path / "results").exists()


def test_keyboard_interrupt_is_no_error_of_the_user(run, file):
    code, output = run("-m", f"{file(DUAL + 'def stop(images, texts): raise KeyboardInterrupt')}:stop")
    assert (code, output.err.splitlines()[-1]) == (130, "crossmatch: stopped.")


def test_exception_has_the_cause(file):
    with pytest.raises(CrossmatchError, match="in <lambda>: ZeroDivisionError") as error:
        evaluate(
            f"{file(DUAL + 'Bright.embed_images = lambda self, images: 1 / 0').as_posix()}:made", "diorama/retrieval", size="tiny"
        )
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_model_with_signature_is_cached(run, file, tmp_path):
    source = DUAL.replace("class Bright:", "class Bright:\n    signature = 'bright|v1'")
    first = run("-m", f"{file(source)}:make_model")
    again = run("-m", f"{file(source)}:make_model")
    assert first[1].out == again[1].out
    assert "reusing the embeddings of 50 of 50 images" in again[1].err


def test_documented_example_is_short_and_runs(run, file):
    text = PAGE.read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S)[1]
    assert len([line for line in code.splitlines() if line.strip()]) < 10
    exit_code, output = run("-m", f"{file(code)}:make_model")
    assert exit_code == 0, output.err
