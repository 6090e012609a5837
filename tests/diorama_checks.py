"""Checks that several tests of diorama share."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from crossmatch.diorama.wording import choose_article


def assert_is_sentence(text: str) -> None:
    """Capital letter, full stop, no repeated word, and articles that agree with the next word."""
    assert re.fullmatch(r"[A-Z][A-Za-z ,;-]*[a-zVA-Z]\.", text), text
    assert "  " not in text
    assert " ," not in text
    assert not re.search(r"\b(\w+) \1\b", text), text
    for article, word in re.findall(r"\b([Aa]n?) (\w[\w-]*)", text):
        assert article.lower() == choose_article(word), text


def assert_same_output_for_every_hash_seed(program: str) -> None:
    outputs = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        outputs.add(subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout)
    assert len(outputs) == 1
