"""Write the measured part of docs/language.md: captions of COCO-BISON that each alteration changes, replacements, words.

python docs/make_language.py        # needs bison in $CROSSMATCH_DATA
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from nltk.tokenize.destructive import NLTKWordTokenizer  # comes with textblob-aptagger

from blocks import replace_block
from crossmatch.benchmarks import load_data
from crossmatch.core.trials import Trials
from crossmatch.language.alter import ALTERATIONS, alter_all, tagged
from crossmatch.language.replace import ground, hypernym, synonym
from crossmatch.language.words import is_word, tokens

HERE = Path(__file__).parent
SHOWN = 12
TREEBANK = NLTKWordTokenizer().tokenize
PUNCTUATION = str.maketrans("", "", string.punctuation)
IN_PAPER = 10_800  # hu2019bison, sec. C

TOKENISERS: Mapping[str, Callable[[str], Iterable[str]]] = {
    "the tokens used here: Penn Treebank style": lambda text: [token.text for token in tokens(text)],
    "NLTK's word tokeniser after a split at each `.`, `?` and `!` with a space after it": lambda text: [
        word for sentence in re.split(r"(?<=[.?!])\s+", text) for word in TREEBANK(sentence)
    ],
    "the same without the split": TREEBANK,
    "what is left between spaces after deleting all punctuation": lambda text: text.translate(PUNCTUATION).split(),
    "what is between spaces, with punctuation at the ends stripped": lambda text: [
        word.strip(string.punctuation) for word in text.split()
    ],
    "runs of letters and digits": lambda text: re.findall(r"[^\W_]+", text),
    "what is between spaces": str.split,
}


def bison_captions() -> list[str]:
    trials = load_data("bison")
    assert isinstance(trials, Trials)
    return sorted(set(trials.captions.ravel().tolist()))


def coverage(captions: list[str]) -> list[str]:
    """A row for each alteration: the share of captions that it changes."""
    rows = []
    for how in ALTERATIONS:
        changed = sum(old != new for old, new in zip(captions, alter_all(captions, how), strict=True))
        rows.append(f"| {how} | {changed:,} | {100 * changed / len(captions):.2f} |")
    return rows


def replacements(captions: list[str]) -> list[str]:
    """A row for each kind: the words of most captions with what stands in for them."""
    found = {"synonym": Counter[str](), "hypernym": Counter[str]()}
    for _, words, tags in tagged(captions):
        for unit in ground([word.text for word in words], tags):
            for how, new in (("synonym", synonym(unit)), ("hypernym", hypernym(unit))):
                if new:
                    found[how][f"{unit.lemma} → {new}"] += 1
    return [f"| {how} | {', '.join(pair for pair, _ in counts.most_common(SHOWN))} |" for how, counts in found.items()]


def vocabularies(captions: list[str]) -> list[str]:
    """A row for each tokeniser: the unique words in lower case, and with capitals kept."""
    rows = []
    for about, split in TOKENISERS.items():
        kept = {word for text in captions for word in split(text) if is_word(word)}
        rows.append(f"| {about} | {len({word.lower() for word in kept}):,} | {len(kept):,} |")
    return rows


def main() -> None:
    captions = bison_captions()
    lines = [
        f"Of the {len(captions):,} unique captions of COCO-BISON, this many are changed; a negation needs a verb, and a synonym "
        "a word that has one.\n",
        "| alteration | captions changed | % |",
        "|---|--:|--:|",
        *coverage(captions),
        "\nThe words that can most often be replaced, with what stands in for them:\n",
        "| alteration | replacements |",
        "|---|---|",
        *replacements(captions),
        f"\n**How many words has COCO-BISON?** The paper counts {len(captions):,} unique captions, as do we, and {IN_PAPER:,} "
        "unique words, without naming a tokeniser. Measured, punctuation marks left out:\n",
        "| words are | unique words, in lower case | with capitals kept |",
        "|---|--:|--:|",
        *vocabularies(captions),
    ]
    replace_block(HERE / "language.md", "coverage", "\n".join(lines))


if __name__ == "__main__":
    main()
