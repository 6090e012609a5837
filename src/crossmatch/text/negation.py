"""Negation of a caption: "not" at its first verb, with the right position and verb form."""

from __future__ import annotations

from collections.abc import Sequence

from crossmatch.text.inflection import inflect, lemmatise
from crossmatch.text.part_of_speech import NOUN_TAGS, VERB_TAGS, is_attributive
from crossmatch.text.tokens_and_edits import Token, TokenEdit, apply_edits

NEGATIVE_WORDS = frozenset({"not", "n't", "n’t", "never", "no", "none", "nobody", "nothing", "cannot", "without"})
BE_FORMS = frozenset({"am", "is", "are", "was", "were", "'s", "’s", "'re", "’re", "'m", "’m"})
NAMING_PARTICIPLES = frozenset({"called", "named", "titled", "labeled", "labelled"})  # a boat called Mary
DO_FORMS = {"VBZ": "does", "VBP": "do", "VB": "do", "VBD": "did", "VBN": "did"}
# Verbs without a passive: "a man jumped over a fence" is past tense; "a car parked by a fence" may be passive.
INTRANSITIVE = frozenset(
    {
        "appear", "arrive", "climb", "come", "crawl", "dance", "depart", "emerge", "exist", "fall", "float", "glance", "go",
        "hike", "jog", "jump", "kneel", "laugh", "lean", "leap", "look", "occur", "peer", "play", "pose", "race", "relax",
        "rest", "run", "sail", "sit", "skate", "skateboard", "ski", "sleep", "slide", "smile", "stand", "stare", "surf", "swim",
        "talk", "travel", "try", "wait", "walk", "wander", "watch",
    }
)  # fmt: skip


def negate(text: str, tokens: Sequence[Token], tags: Sequence[str]) -> str:
    """Negate the first verb of a text; unchanged if there is no verb or if it is negated already.

    | first verb | change | example |
    |---|---|---|
    | be, a modal, auxiliary have or do | not after it | is not riding, can not be seen, has not left |
    | a participle alone | not before it and its adverbs | a man not riding, a car not parked |
    | after "to" | not before "to", or before its adjective | a place not to sit, not ready to eat |
    | present or past tense | do, does or did not, and base form | a dog does not sit, dogs do not sit, a dog did not sit |

    A participle that describes the noun after it ("a parked car") does not count as a verb.
    Source: hu2019bison, F.1, which negates the first verb by unpublished "heuristic regular expressions".
    """
    words = [token.text.lower() for token in tokens]
    at = find_first_verb(words, tags)
    if at is None or any(word in NEGATIVE_WORDS for word in words[max(0, at - 1) : at + 3]):
        return text
    start, end, new = _negation_edit(tokens, words, tags, at)
    is_upper = tokens[at].text.isupper() and len(tokens[at].text) > 1
    return apply_edits(text, [TokenEdit(start, end, new.upper() if is_upper else new)])


def find_first_verb(words: Sequence[str], tags: Sequence[str]) -> int | None:
    """Position of the first verb or modal that is not a participle before a noun.

    >>> find_first_verb(["a", "parked", "car", "is", "red"], ["DT", "VBN", "NN", "VBZ", "JJ"])
    3
    """
    return next(
        (at for at, tag in enumerate(tags) if tag == "MD" or (tag in VERB_TAGS and not is_attributive(words, tags, at))), None
    )


def _negation_edit(tokens: Sequence[Token], words: Sequence[str], tags: Sequence[str], at: int) -> TokenEdit:
    token, word, tag = tokens[at], words[at], tags[at]
    next_tag = next((candidate for candidate in tags[at + 1 :] if candidate not in ("RB", "DT", "PRP")), "")
    is_auxiliary = (
        word in BE_FORMS
        or tag == "MD"
        or (lemmatise(word, "v") == "have" and next_tag == "VBN")
        or (lemmatise(word, "v") == "do" and next_tag == "VB")
    )
    if is_auxiliary and tag not in ("VBG", "VBN"):
        return TokenEdit(token.end, token.end, " not")
    position = at
    while position > 0 and tags[position - 1] in ("RB", "RBR"):
        position -= 1
    if position > 0 and tags[position - 1] == "TO":
        position -= 1
        if position > 0 and (
            words[position - 1] == "about" or (tags[position - 1] == "JJ" and position > 1 and tags[position - 2] in NOUN_TAGS)
        ):
            position -= 1
        return TokenEdit(tokens[position].start, tokens[position].start, "not ")
    if tag == "VBG" or (tag in ("VBD", "VBN") and _is_participle(words, tags, at)):
        return TokenEdit(tokens[position].start, tokens[position].start, "not ")
    return TokenEdit(token.start, token.end, f"{DO_FORMS[tag]} not {lemmatise(word, 'v')}")


def _is_participle(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether a past form is a participle: "a car parked near a fence"; not "a man sat", "he parked", "a man grabbed a ball"."""
    base = lemmatise(words[at], "v")
    if words[at] in NAMING_PARTICIPLES:
        return True
    if base in INTRANSITIVE and inflect(base, "VBD") == words[at]:
        return False
    if tags[at] == "VBN":
        return True
    after = tags[at + 1] if at + 1 < len(tags) else "."
    equals_participle = inflect(base, "VBN") == words[at]
    return equals_participle and after in ("IN", "TO", "RB", "RP", ".", ",", "CC", "VBG") and tags[at - 1 : at] != ["PRP"]
