"""A model in a file of the user's own: found, made, known by its file or by its own word, and evaluated by its name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from crossmatch import evaluate
from crossmatch.cli import main
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models.abilities import abilities, known_by
from crossmatch.models.user_module import user_model

PAGE = Path(__file__).parents[3] / "docs/own_model.md"

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
    ("name", "can"), [("make_model", "embed"), ("Bright", "embed"), ("made", "embed"), ("score", "score"), ("make_scorer", "score")]
)
def test_what_a_name_means_is_told_by_what_it_is(file, name, can):
    model = user_model(f"{file()}:{name}")
    assert abilities(model) == (can,)
    if can == "score":
        assert np.shape(model([None] * 2, ["a", "b", "c"])) == (2, 3)
    else:
        assert model.embed_texts(["abc"]) == [[4.0, 1.0]]


def test_it_is_known_by_its_file_and_nothing_is_kept_under_that(file):
    first = user_model(f"{file()}:make_model")
    assert re.fullmatch(r"mine\.py:make_model\|file:[0-9a-f]{12}", first.signature)
    assert user_model(f"{file()}:make_model").signature == first.signature
    assert user_model(f"{file(DUAL + '# changed')}:make_model").signature != first.signature
    assert known_by(first) is None, "weights elsewhere may change without the file"


def test_its_own_signature_goes_before(file):
    own = DUAL.replace("class Bright:", "class Bright:\n    signature = 'bright|weights:9f0c'")
    model = user_model(f"{file(own)}:make_model")
    assert model.signature == "bright|weights:9f0c"
    assert known_by(model) == "bright|weights:9f0c"


def test_a_model_of_several_files_finds_them_even_late(file):
    file("SIZE = 3\n", "beside_mine.py")
    late = "def make_model():\n    from beside_mine import SIZE\n    return lambda images, texts: SIZE\n"
    assert user_model(f"{file(late)}:make_model")([], []) == 3


@pytest.mark.parametrize(
    ("text", "words", "kind", "says"),
    [
        (DUAL, ":mke_model", WrongWords, r"mine\.py has no function 'mke_model'. Did you mean 'make_model'\?"),
        ("", ":make_model", WrongWords, r"has no function 'make_model'. Write: def make_model\(\): return"),
        (DUAL, "", WrongWords, r"Say which function makes it: .*mine\.py:make_model"),
        (DUAL, ":not a name", WrongWords, "Say which function makes it"),
        ("import nothing_like_this", ":make_model", CrossmatchError, r"cannot be run \(ModuleNotFoundError"),
        ("def make_model(): return 1 / 0", ":make_model", CrossmatchError, r"cannot be made \(ZeroDivisionError"),
        ("def make_model(): pass", ":make_model", WrongWords, "gives nothing, which has none of the abilities"),
        ("make_model = 7", ":make_model", WrongWords, "gives something of type int, which has none of the abilities"),
        ("import sys; sys.exit(0)", ":make_model", CrossmatchError, r"mine\.py cannot be run \(SystemExit: 0\)"),
        ("def make_model():\n    import sys; sys.exit()", ":make_model", CrossmatchError, r"cannot be made \(SystemExit\)"),
        ("def make_model(images): return 3", ":make_model", WrongWords, "cannot be called with 2 arguments, which are images and"),
        ("def make_model(a, b, c): return 3", ":make_model", WrongWords, "cannot be called with 2 arguments"),
        (DUAL + "Bright.truncated = True", ":make_model", WrongWords, "truncated of .* is something of type bool; a function"),
        (DUAL + "Bright.embed_texts = lambda self: 3", ":make_model", WrongWords, "embed_texts of .* called with 1 argument,"),
        (
            "class make_model:\n    __slots__ = ()\n    def score(self, images, texts): pass",
            ":make_model",
            WrongWords,
            "Give it a signature",
        ),
    ],
)
def test_what_is_wrong_is_said_with_a_remedy(file, text, words, kind, says):
    with pytest.raises(kind, match=says):
        user_model(f"{file(text)}{words}")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(WrongWords, match=r"there is no file .*mine\.py"):
        user_model(f"{tmp_path / 'mine.py'}:make_model")


# Through the command line


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    def call(*words):
        given = ["crossmatch", "run", "-t", "diorama/retrieval", "--size", "tiny", "--samples", "10", "--json", *words]
        monkeypatch.setattr("sys.argv", [*given, "-o", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, capsys.readouterr()

    return call


def test_from_the_file_to_the_result(run, file, tmp_path):
    code, said = run("-m", f"{file()}:make_model")
    assert code == 0, said.err
    assert 0 <= json.loads(said.out)["diorama/retrieval"]["t2i/truth/map@r"] <= 100
    (saved,) = (tmp_path / "results").rglob("*.json")
    assert re.fullmatch(r"system\|mine\.py:make_model\|file:[0-9a-f]{12}", json.loads(saved.read_text())["system"])
    assert not (tmp_path / "cache").exists()
    code, said = run("-m", f"{file()}:nothing")
    assert (code, len(said.err.strip().splitlines())) == (2, 1)


BOOM = "raise ValueError('boom\\n  more')"


@pytest.mark.parametrize(
    ("method", "body", "says"),
    [
        ("embed_images(self, images)", BOOM, r"mine\.py, line \d+, in embed_images: ValueError: boom\. Mend it\."),
        ("embed_texts(self, texts)", "return [{}['x'] for _ in texts]", r"mine\.py, line \d+, in .*: KeyError: 'x'\. Mend it\."),
        ("embed_images(self, images)", "raise EOFError", r"mine\.py, line \d+, in embed_images: EOFError\. Mend it\."),
        ("embed_images(self, images)", "import sys; sys.exit(0)", r"in embed_images: SystemExit: 0\. Mend it\."),
        ("embed_images(self, images)", "raise StopIteration", r"in embed_images: StopIteration\. Mend it\."),
        ("truncated(self, texts)", "return 1 / 0", r"in truncated: ZeroDivisionError: division by zero\. Mend it\."),
        ("embed_images(self, images)", "return beside.broken(images)", r"beside_it\.py, line 2, in broken: OSError: no weights\."),
    ],
)
def test_what_a_method_raises_is_one_line_that_names_file_and_method(run, file, tmp_path, method, body, says):
    file("def broken(images):\n    raise OSError('no weights')\n", "beside_it.py")
    own = f"import beside_it as beside\n{DUAL}\nclass Broken(Bright):\n    def {method}:\n        {body}\n"
    code, said = run("-m", f"{file(own)}:Broken")
    assert code == 1
    lines = [line for line in said.err.splitlines() if not line.startswith("cache: ")]
    assert len(lines) == 1
    assert re.match(f"crossmatch: .*{says}", lines[0])
    assert not (tmp_path / "results").exists()


def test_ctrl_c_is_nobodys_fault(run, file):
    code, said = run("-m", f"{file(DUAL + 'def stop(images, texts): raise KeyboardInterrupt')}:stop")
    assert (code, said.err.splitlines()[-1]) == (130, "crossmatch: stopped.")


def test_in_python_the_cause_can_be_seen(file):
    with pytest.raises(CrossmatchError, match="in <lambda>: ZeroDivisionError") as error:
        evaluate(
            f"{file(DUAL + 'Bright.embed_images = lambda self, images: 1 / 0').as_posix()}:made", "diorama/retrieval", size="tiny"
        )
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_with_a_signature_its_embeddings_are_kept(run, file, tmp_path):
    own = DUAL.replace("class Bright:", "class Bright:\n    signature = 'bright|v1'")
    first = run("-m", f"{file(own)}:make_model")
    again = run("-m", f"{file(own)}:make_model")
    assert first[1].out == again[1].out
    assert "50 of 50 images were embedded before" in again[1].err


def test_the_example_of_the_documents_is_short_and_runs(run, file):
    text = PAGE.read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S)[1]
    assert len([line for line in code.splitlines() if line.strip()]) < 10
    end, said = run("-m", f"{file(code)}:make_model")
    assert end == 0, said.err
