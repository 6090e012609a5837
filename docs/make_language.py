"""Write the measured part of docs/language.md: altered captions of COCO-BISON, frequent replacements, and vocabulary sizes.

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
from crossmatch.benchmarks import load_benchmark_data
from crossmatch.data.trials import Trials
from crossmatch.text.part_of_speech import tag_texts
from crossmatch.text.perturbations import ALTERATIONS, alter_all
from crossmatch.text.synonyms_and_hypernyms import find_word_senses, hypernym, synonym
from crossmatch.text.tokens_and_edits import is_word, tokenise

HERE = Path(__file__).parent
MAX_REPLACEMENTS = 12  # shown for each alteration
TREEBANK = NLTKWordTokenizer().tokenize
PUNCTUATION = str.maketrans("", "", string.punctuation)
PAPER_VOCABULARY = 10_800  # hu2019bison, sec. C

TOKENISERS: Mapping[str, Callable[[str], Iterable[str]]] = {
    "our tokens, in Penn Treebank style": lambda text: [token.text for token in tokenise(text)],
    "NLTK's word tokeniser after a split at each `.`, `?` and `!` with a space after it": lambda text: [
        word for sentence in re.split(r"(?<=[.?!])\s+", text) for word in TREEBANK(sentence)
    ],
    "the same without the split": TREEBANK,
    "split at spaces, after deleting all punctuation": lambda text: text.translate(PUNCTUATION).split(),
    "split at spaces, without punctuation at the ends of a word": lambda text: [
        word.strip(string.punctuation) for word in text.split()
    ],
    "runs of letters and digits": lambda text: re.findall(r"[^\W_]+", text),
    "split at spaces": str.split,
}


def bison_captions() -> list[str]:
    trials = load_benchmark_data("bison")
    assert isinstance(trials, Trials)
    return sorted(set(trials.captions.ravel().tolist()))


def coverage(captions: list[str]) -> list[str]:
    """A row for each alteration: how many captions it changes."""
    rows = []
    for alteration in ALTERATIONS:
        changed = sum(old != new for old, new in zip(captions, alter_all(captions, alteration), strict=True))
        rows.append(f"| {alteration} | {changed:,} | {100 * changed / len(captions):.2f} |")
    return rows


def replacements(captions: list[str]) -> list[str]:
    """A row for synonyms and one for hypernyms: the most frequent replacements."""
    counts = {"synonym": Counter[str](), "hypernym": Counter[str]()}
    for _, words, tags in tag_texts(captions):
        for unit in find_word_senses([word.text for word in words], tags):
            for alteration, new in (("synonym", synonym(unit)), ("hypernym", hypernym(unit))):
                if new:
                    counts[alteration][f"{unit.lemma} → {new}"] += 1
    return [
        f"| {alteration} | {', '.join(pair for pair, _ in pairs.most_common(MAX_REPLACEMENTS))} |"
        for alteration, pairs in counts.items()
    ]


def vocabularies(captions: list[str]) -> list[str]:
    """A row for each tokeniser: the number of unique words in lower case, and with capitals."""
    rows = []
    for label, split in TOKENISERS.items():
        words = {word for text in captions for word in split(text) if is_word(word)}
        rows.append(f"| {label} | {len({word.lower() for word in words}):,} | {len(words):,} |")
    return rows


def main() -> None:
    captions = bison_captions()
    lines = [
        f"How many of the {len(captions):,} unique captions of COCO-BISON each alteration changes. A negation needs a verb, and a "
        "synonym needs a word that has one.\n",
        "| alteration | captions changed | % |",
        "|---|--:|--:|",
        *coverage(captions),
        "\nThe most frequent replacements:\n",
        "| alteration | replacements |",
        "|---|---|",
        *replacements(captions),
        f"\n**How many words does COCO-BISON have?** Like us, the paper counts {len(captions):,} unique captions. It counts "
        f"{PAPER_VOCABULARY:,} unique words, but does not name a tokeniser. We measured several, without punctuation marks:\n",
        "| tokeniser | unique words, in lower case | with capitals |",
        "|---|--:|--:|",
        *vocabularies(captions),
    ]
    replace_block(HERE / "language.md", "coverage", "\n".join(lines))


if __name__ == "__main__":
    main()
