"""METEOR against the METEOR 1.5 program that pycocoevalcap carries: scores, words and stems are the same.

On all 5,000 captions of BLIP-2 with 25,000 references, and on the 5,664 of Flickr8k-Expert, no caption differs (`bench/meteor.py`
checks the former); here are a few hundred of each, since the program is slow.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.meteor.normalisation import normalise
from crossmatch.captions.meteor.porter_stemmer import stem
from crossmatch.captions.meteor.score import meteor
from crossmatch.captions.meteor.tables import load_lexicon
from crossmatch.captions.ptb_tokenizer import tokenise

pytest.importorskip("pycocoevalcap", reason="the peer is not installed; install crossmatch[dev]")
if not shutil.which("java") and not os.environ.get("CI"):
    pytest.skip("the peer needs Java", allow_module_level=True)
from pycocoevalcap.meteor import meteor as peer

JAR = Path(peer.__file__).parent / peer.METEOR_JAR


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    running = peer.Meteor()  # it reads its tables once, for seconds
    yield running
    running.meteor_p.stdin.close()
    running.meteor_p.stdout.close()
    running.meteor_p.stderr.close()


def check(program: Any, candidates: list[list[str]], references: list[list[list[str]]]) -> None:
    gts = {n: [" ".join(tokens) for tokens in texts] for n, texts in enumerate(references)}
    res = {n: [" ".join(tokens)] for n, tokens in enumerate(candidates)}
    corpus_value, caption_values = program.compute_score(gts, res)
    ours = meteor(CaptionCorpus.from_tokens(candidates, references))[0]
    np.testing.assert_allclose(ours.values, caption_values, rtol=0, atol=1e-12)
    assert ours.value == pytest.approx(corpus_value, abs=1e-12)


def coco(folder: Path) -> tuple[list[list[str]], list[list[list[str]]]]:
    references: dict[str, list[list[str]]] = {}
    with (folder / "coco/karpathy_test_captions.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            references.setdefault(row["image_id"], []).append(tokenise(row["caption"]))
    candidates = json.loads((folder / "captions/blip2_results_xe.json").read_text())
    return [tokenise(candidates[i]) for i in references], list(references.values())


def test_captions_of_a_model_equal_the_program(program: Any, real_data_folder: Path) -> None:
    candidates, references = coco(real_data_folder)
    check(program, candidates[::10], references[::10])


def test_captions_of_people_equal_the_program(program: Any, real_data_folder: Path) -> None:
    images = json.loads((real_data_folder / "judgements/flickr8k.json").read_text())
    pairs = {(j["caption"], i): image["ground_truth"] for i, image in images.items() for j in image["human_judgement"]}
    some = list(pairs.items())[::20]
    check(program, [tokenise(c) for (c, _), _ in some], [[tokenise(r) for r in texts] for _, texts in some])


def test_long_captions_equal_the_program(program: Any, real_data_folder: Path) -> None:
    _, references = coco(real_data_folder)
    long = [[word for texts in references[n : n + 8] for word in texts[n % 5]] for n in range(0, 160, 8)]
    check(program, long[::2], [[text] for text in long[1::2]])


def test_all_stages_and_orders_equal_the_program(program: Any) -> None:
    rng = np.random.default_rng(0)
    words = ["a", "the", "of", "to", "on", "man", "men", "guy", "dog", "dogs", "run", "running", "big", "large", "sofa", "couch",
             "couches", "his", "in", "front", "next", "is", "was"]  # fmt: skip

    def caption() -> list[str]:
        return [words[n] for n in rng.integers(0, len(words), rng.integers(0, 20))]

    check(program, [caption() for _ in range(200)], [[caption() for _ in range(rng.integers(1, 4))] for _ in range(200)])


def test_unusual_tokens_equal_the_program(program: Any) -> None:
    rng = np.random.default_rng(1)
    odd = ["😀", "日本語", "naïve", "l'été", "n't", "'s", "t-shirt", "x-y-z", "u.s.", "no.", "7", "3,000", "a/b", "#1", "🏳️‍🌈",
           "שלום", "مرحبا", "vs.", "-lrb-", "1/2", "İ", "straße", "o'clock", "&", "%", "a", "dog", "|", "..", "!!"]  # fmt: skip

    def caption() -> list[str]:
        return [odd[n] for n in rng.integers(0, len(odd), rng.integers(0, 10))]

    check(program, [caption() for _ in range(200)], [[caption() for _ in range(rng.integers(1, 4))] for _ in range(200)])


def test_empty_and_equal_captions_equal_the_program(program: Any) -> None:
    check(program, [[], ["a"], [], ["a", "dog"], ["the"]], [[["a", "dog"]], [[]], [[]], [[], ["a", "dog"]], [["the"]]])


def run_program(tool: str, *words: str, lines: list[str]) -> list[str]:
    command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", str(JAR), tool, *words]
    output = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, check=True, encoding="utf-8")
    return output.stdout.split("\n")[: len(lines)]


def test_stems_of_all_wordnet_words_equal_the_program() -> None:
    words = sorted(word for word in {*load_lexicon().synsets, *load_lexicon().bases} if word.isascii())[::3]
    assert len(words) > 40_000
    wrong = [(w, t) for w, t in zip(words, run_program("Stemmer", "en", lines=words), strict=True) if stem(w) != t.strip()]
    assert wrong == []


@pytest.mark.slow
def test_words_of_captions_equal_the_program(real_data_folder: Path) -> None:
    rng = np.random.default_rng(2)
    parts = ["a", "dog", "'s", "n't", "'", "-", "--", ".", "..", "...", "–", "—", "“", "”", "''", "`", "’", ",", "1", "22", "vs.",
             "no.", "u.s.", "e.g.", "é", "😀", "日", "/", "&", "3,000", "(", " ", " ", " ", "\u00a0", "x-y-z", "Mr.", "_", "İ", "ß",
             "\u200d"]  # fmt: skip
    lines = ["".join(parts[n] for n in rng.integers(0, len(parts), rng.integers(1, 9))) for _ in range(5_000)]
    candidates, references = coco(real_data_folder)
    lines += [" ".join(tokens) for tokens in (*candidates, *(text for texts in references for text in texts))]
    answers = run_program("edu.cmu.meteor.util.Normalizer", "english", "true", lines=lines)
    ours = [" ".join(normalise(line, load_lexicon().abbreviations)) for line in lines]
    assert [row for row in zip(lines, ours, answers, strict=True) if row[1] != row[2].lower()] == []
