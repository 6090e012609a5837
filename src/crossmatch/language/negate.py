"""Negation of a caption: "not" at its first verb, in the place and the form that English wants."""

from __future__ import annotations

from collections.abc import Sequence

from crossmatch.language.forms import inflected, lemma
from crossmatch.language.tags import NOUNS, VERBS, describes
from crossmatch.language.words import Edit, Token, edited

NEGATIVE = frozenset({"not", "n't", "n’t", "never", "no", "none", "nobody", "nothing", "cannot", "without"})
BE = frozenset({"am", "is", "are", "was", "were", "'s", "’s", "'re", "’re", "'m", "’m"})
NAMED = frozenset({"called", "named", "titled", "labeled", "labelled"})  # a boat called Mary
DO = {"VBZ": "does", "VBP": "do", "VB": "do", "VBD": "did", "VBN": "did"}
# Verbs without a passive: "a man jumped over a fence" is past tense, "a car parked by a fence" need not be.
INTRANSITIVE = frozenset(
    {
        "appear", "arrive", "climb", "come", "crawl", "dance", "depart", "emerge", "exist", "fall", "float", "glance", "go",
        "hike", "jog", "jump", "kneel", "laugh", "lean", "leap", "look", "occur", "peer", "play", "pose", "race", "relax",
        "rest", "run", "sail", "sit", "skate", "skateboard", "ski", "sleep", "slide", "smile", "stand", "stare", "surf", "swim",
        "talk", "travel", "try", "wait", "walk", "wander", "watch",
    }
)  # fmt: skip


def negated(text: str, found: Sequence[Token], tags: Sequence[str]) -> str:
    """The text with its first verb negated; unchanged where there is no verb, or where "not" or its like is already beside it.

    | first verb | what is done | example |
    |---|---|---|
    | to be, a modal, a helping "have" or "do" | not after it | is not riding, can not be seen, has not left |
    | a participle on its own | not before it, and before its adverbs | a man not riding, a car not parked |
    | after "to" | not before "to", or before the adjective that it belongs to | a place not to sit, not ready to eat |
    | present or past tense | do, does or did not, and the plain form | a dog does not sit, dogs do not sit, a dog did not sit |

    A participle that describes the noun after it ("a parked car") is no verb here.
    Source: hu2019bison, F.1, which negates the first verb with "heuristic regular expressions" that it does not list.
    """
    words = [token.text.lower() for token in found]
    at = first_verb(words, tags)
    if at is None or any(word in NEGATIVE for word in words[max(0, at - 1) : at + 3]):
        return text
    start, end, new = _edit(found, words, tags, at)
    loud = found[at].text.isupper() and len(found[at].text) > 1
    return edited(text, [Edit(start, end, new.upper() if loud else new)])


def first_verb(words: Sequence[str], tags: Sequence[str]) -> int | None:
    """The place of the first verb or modal that is not a participle in front of a noun.

    >>> first_verb(["a", "parked", "car", "is", "red"], ["DT", "VBN", "NN", "VBZ", "JJ"])
    3
    """
    return next((at for at, tag in enumerate(tags) if tag == "MD" or (tag in VERBS and not describes(words, tags, at))), None)


def _edit(found: Sequence[Token], words: Sequence[str], tags: Sequence[str], at: int) -> Edit:
    token, word, tag = found[at], words[at], tags[at]
    later = next((other for other in tags[at + 1 :] if other not in ("RB", "DT", "PRP")), "")
    helps = (
        word in BE or tag == "MD" or (lemma(word, "v") == "have" and later == "VBN") or (lemma(word, "v") == "do" and later == "VB")
    )
    if helps and tag not in ("VBG", "VBN"):
        return Edit(token.end, token.end, " not")
    before = at
    while before > 0 and tags[before - 1] in ("RB", "RBR"):
        before -= 1
    if before > 0 and tags[before - 1] == "TO":
        before -= 1
        if before > 0 and (words[before - 1] == "about" or (tags[before - 1] == "JJ" and before > 1 and tags[before - 2] in NOUNS)):
            before -= 1
        return Edit(found[before].start, found[before].start, "not ")
    if tag == "VBG" or (tag in ("VBD", "VBN") and _reduced(words, tags, at)):
        return Edit(found[before].start, found[before].start, "not ")
    return Edit(token.start, token.end, f"{DO[tag]} not {lemma(word, 'v')}")


def _reduced(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether a past form is a participle: "a car parked near a fence"; but "a man sat", "he parked", "a man grabbed a ball"."""
    base = lemma(words[at], "v")
    if words[at] in NAMED:
        return True
    if base in INTRANSITIVE and inflected(base, "VBD") == words[at]:
        return False
    if tags[at] == "VBN":
        return True
    after = tags[at + 1] if at + 1 < len(tags) else "."
    same = inflected(base, "VBN") == words[at]
    return same and after in ("IN", "TO", "RB", "RP", ".", ",", "CC", "VBG") and tags[at - 1 : at] != ["PRP"]
