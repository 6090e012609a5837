"""Part-of-speech tags of captions, as in the Penn Treebank (marcus1993building)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crossmatch.text.inflection import impossible_tags, inflect, is_uncountable, lemmatise, possible_tags
from crossmatch.text.perceptron_tagger import load_perceptron
from crossmatch.text.tokens_and_edits import Token, is_word, tokenise
from crossmatch.text.wordnet import ACT, ATTRIBUTE, OBJECT_FILES, caption_sense, is_lemma, lemma_frequency

TEXTS_PER_BATCH = 1 << 14  # limits memory, changes no tag
VERB_TAGS = frozenset({"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"})
NOUN_TAGS = frozenset({"NN", "NNS", "NNP", "NNPS"})
ADVERBIAL_STARTS = frozenset({"IN", "TO", "RB", "RP"})  # "on the street", "to the left", "quickly"
OBJECT_STARTS = frozenset({"DT", "PRP$", "CD"})  # "a bus", "his bat", "two dogs"
TAG_OF_MARKS = {".!?": ".", ",": ",", ":;-–—…/": ":", "([{": "-LRB-", ")]}": "-RRB-", "\"'‘’“”`": "''", "$£€": "$", "#": "#"}
PUNCTUATION_TAGS = {mark: tag for marks, tag in TAG_OF_MARKS.items() for mark in marks}
CLAUSE_ENDS = frozenset({".", ",", "CC", ":"})


def tag(words: Sequence[str]) -> list[str]:
    """The Penn Treebank tag of each token of one caption.

    >>> tag(["A", "man", "riding", "a", "wave", "."])
    ['DT', 'NN', 'VBG', 'DT', 'NN', '.']
    """
    return tag_all([words])[0]


def tag_all(texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Tag many tokenised captions at once, much faster than one by one and with the same result.

    Dictionaries exclude impossible tags, and rules correct typical errors of a tagger that was trained on newspapers.

    >>> tag_all([["Two", "dogs", "sit"], ["Sheep", "grazing", "outside", "a", "barn"]])
    [['CD', 'NNS', 'VBP'], ['NN', 'VBG', 'IN', 'DT', 'NN']]
    """
    plain = [normalise_case(text) for text in texts]
    return [
        repair_tags(text, tag_punctuation(text, tags))
        for text, tags in zip(plain, load_perceptron().tag(plain, impossible_tags), strict=True)
    ]


def tag_texts(texts: Sequence[str]) -> Iterator[tuple[str, list[Token], list[str]]]:
    """Tokenise and tag texts in batches; yields each text with its tokens and their tags.

    >>> [tags for _, _, tags in tag_texts(["A dog sits."])]
    [['DT', 'NN', 'VBZ', '.']]
    """
    for start in range(0, len(texts), TEXTS_PER_BATCH):
        batch = texts[start : start + TEXTS_PER_BATCH]
        tokenised = [tokenise(text) for text in batch]
        yield from zip(batch, tokenised, tag_all([[token.text for token in tokens] for tokens in tokenised]), strict=True)


def normalise_case(words: Sequence[str]) -> list[str]:
    """Lower-case the first word, and all words if most are capitalised (a title, or a text in capitals).

    >>> normalise_case(["Stop", "sign", "in", "London"])
    ['stop', 'sign', 'in', 'London']
    >>> normalise_case(["A", "MAN", "RIDING", "a", "WAVE"])
    ['a', 'man', 'riding', 'a', 'wave']
    """
    lettered = [word for word in words if word[:1].isalpha()]
    if len(lettered) > 2 and 2 * sum(word[0].isupper() for word in lettered) > len(lettered):
        return [word.lower() for word in words]
    return [word.lower() if at == 0 and word != "I" else word for at, word in enumerate(words)]


def tag_punctuation(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """Correct the tags of punctuation marks, which are rare in the training text of the tagger.

    >>> tag_punctuation(["dogs", ")", "…"], ["NNS", "VBP", "NN"])
    ['NNS', '-RRB-', ':']
    """
    return [tag if is_word(word) else PUNCTUATION_TAGS.get(word[:1], "SYM") for word, tag in zip(words, tags, strict=True)]


def repair_tags(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """Correct tags by rules for captions: clauses without "is", and scenes in the present tense.

    After a noun, a word tagged as noun or adjective becomes a verb if a dictionary allows it and the next words fit a verb
    better: "an elephant standing in", "a hydrant protected by", "a man boards a bus", "a seabird hunts at", "motorbikes race
    quickly".
    """
    repaired = list(tags)
    for position in range(len(words)):
        if tags[position] == "NN" and _is_quality(words, repaired, position):
            repaired[position] = "JJ"
        elif tags[position] in ("NN", "NNS", "JJ") and position > 0:
            repaired[position] = _verb_tag(words, repaired, position) or tags[position]
        elif tags[position] in ("VB", "VBP", "VBZ") and _is_noun(words, repaired, position):
            repaired[position] = "NNS" if tags[position] == "VBZ" else "NN"
    return repaired


def _verb_tag(words: Sequence[str], tags: Sequence[str], at: int) -> str | None:
    """Verb tag of a word tagged as noun or adjective, if it is a verb."""
    word, tag = words[at].lower(), tags[at]
    before, after = tags[at - 1], tags[at + 1] if at + 1 < len(tags) else "."
    allowed = possible_tags(word)
    if before == "CC" and at > 1 and tags[at - 2] in allowed & {"VBG", "VBZ"}:  # grazing and playing
        return tags[at - 2]
    if before not in NOUN_TAGS:
        return None
    if "VBG" in allowed:  # a building, a parking lot, a gaming console; but: playing tennis, wearing suits
        fits_verb = after not in ("NN", "NNP") or (
            not is_lemma(f"{word} {words[at + 1]}", "n") and _noun_file(words[at + 1]) == ACT
        )
        return "VBG" if _noun_file(word) not in OBJECT_FILES and fits_verb else None
    if tag == "JJ" and "VBN" in allowed and after in ADVERBIAL_STARTS:
        return "VBN"
    if tag == "NNS" and "VBZ" in allowed and before == "NN" and after in OBJECT_STARTS | ADVERBIAL_STARTS | CLAUSE_ENDS:
        is_likely = _is_likely_verb(word) and after in ADVERBIAL_STARTS and _follows_singular_phrase(tags, at)
        is_verb = after in OBJECT_STARTS or is_likely or _follows_singular_determiner(words, tags, at)
        return "VBZ" if is_verb else None
    if tag == "NN" and "VBD" in allowed and after in OBJECT_STARTS:  # a couple cut a cake
        return "VBD"
    if tag == "NN" and "VBP" in allowed and after in OBJECT_STARTS | ADVERBIAL_STARTS:
        if before == "NNS":
            return "VBP" if after in OBJECT_STARTS or _is_likely_verb(word) else None
        return "VBP" if _follows_plural_subject(words, tags, at) and _is_mostly_verb(word) else None
    return None


def _is_noun(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether a word tagged as a base-form or present-tense verb is a noun.

    Captions have no imperatives ("stop sign"), "shirt and tie" joins nouns, and "various angle shots" and "with silver pillows
    on it" have no verb.
    """
    word, before = words[at].lower(), tags[at - 1] if at else ""
    after = tags[at + 1] if at + 1 < len(tags) else "."
    if ("NNS" if tags[at] == "VBZ" else "NN") not in possible_tags(word):
        return False
    begins = at == 0 and after in ("NN", "NNS", "IN") and tags[at] != "VBZ"
    joins = at > 1 and tags[at] == "VB" and before == "CC" and tags[at - 2] in NOUN_TAGS
    modifies = tags[at] == "VBP" and before in ("JJ", "CC") and after in NOUN_TAGS
    return (
        begins
        or joins
        or modifies
        or (after not in OBJECT_STARTS and not _follows_singular_determiner(words, tags, at) and _is_likely_object(word))
    )


def _is_quality(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether a noun for a quality is used as an adjective: "a blue and white bus", "pink frosting"."""
    after, later = [*tags[at + 1 : at + 3], "", ""][:2]
    return (
        (after in NOUN_TAGS or (after in ("CC", ",") and later == "JJ"))
        and "JJ" in possible_tags(words[at])
        and _noun_file(words[at]) == ATTRIBUTE
    )


def is_attributive(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether a participle belongs to the noun after it, like an adjective: "two parked cars", "a snow covered hill".

    >>> is_attributive(["a", "parked", "car"], ["DT", "VBN", "NN"], 1)
    True
    >>> is_attributive(["a", "car", "parked", "there"], ["DT", "NN", "VBN", "RB"], 2)
    False
    """
    before, (after, later) = tags[at - 1] if at else "", [*tags[at + 1 : at + 3], "", ""][:2]
    if tags[at] not in ("VBG", "VBN", "VBD") or words[at - 1 : at] in (["all"], ["both"], ["each"]):
        return False
    if (
        tags[at] == "VBG" and before not in NOUN_TAGS and after in NOUN_TAGS and is_lemma(f"{words[at]} {words[at + 1]}", "n")
    ):  # a living room
        return True
    if before in ("DT", "PRP$", "POS", "JJ", "JJR", "JJS", "CD"):
        fenced_off = after in ("RP", "IN", "RB") and later in (*NOUN_TAGS, "JJ")
        return fenced_off or after in (*NOUN_TAGS, "JJ", "VBN", "VBG", ",", "CC")
    if before == "RB":
        return at > 1 and tags[at - 2] in ("DT", "PRP$", "IN", "CD", "CC", "JJ") and after in (*NOUN_TAGS, "JJ", "VBN")
    if tags[at] == "VBG":  # with peeling paint; but: after eating pizza
        return words[at - 1 : at] == ["with"] and after in NOUN_TAGS
    noun_follows = after in NOUN_TAGS or (after == "JJ" and later in NOUN_TAGS)  # an oven fired traditional pizza
    return before in ("", "IN", "CC", ",", "NN", "NNS", "VBN", "VBG") and noun_follows


def _is_mostly_verb(word: str) -> bool:
    return lemma_frequency(lemmatise(word, "v"), "v") > 3 * lemma_frequency(lemmatise(word, "n"), "n")


def _is_likely_verb(word: str) -> bool:
    return _is_mostly_verb(word) and _noun_file(word) not in OBJECT_FILES


def _is_likely_object(word: str) -> bool:
    return (
        lemma_frequency(lemmatise(word, "n"), "n") >= 3 * lemma_frequency(lemmatise(word, "v"), "v")
        and _noun_file(word) in OBJECT_FILES
    )


def _follows_plural_subject(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether only a plural subject comes before: "a man and a woman", "two sheep"."""
    last = words[at - 1].lower()
    has_same_plural = inflect(last, "NNS") == last and not is_uncountable(last)
    is_noun_phrase = all(tag in ("DT", "JJ", "NN", "NNS", "PRP$", "CD", "CC", "VBN") for tag in tags[:at])
    return is_noun_phrase and (has_same_plural or ("CC" in tags[:at] and "DT" in tags[1:at]))


def _follows_singular_phrase(tags: Sequence[str], at: int) -> bool:
    """Whether only the parts of one singular noun phrase come before."""
    return all(tag in ("DT", "JJ", "NN", "PRP$") for tag in tags[:at])


def _noun_file(word: str) -> int | None:
    """Number of the lexicographers' file of the noun."""
    synset = caption_sense(word, "n") or caption_sense(lemmatise(word, "n"), "n")
    return synset.lexicographer_file if synset else None


def _follows_singular_determiner(words: Sequence[str], tags: Sequence[str], at: int) -> bool:
    """Whether the noun phrase before `at` is singular, so that a plural cannot end it: "a wooden clock" + "ticks"."""
    for n in range(at - 1, -1, -1):
        if words[n].lower() in ("a", "an", "one", "another", "each", "every"):
            return True
        is_adjective_pair = tags[n] in ("CC", ",") and tags[n - 1 : n] == ["JJ"] and tags[n + 1] == "JJ"  # black and white
        if tags[n] not in ("NN", "JJ", "JJR", "VBN", "RB", "NNP") and not is_adjective_pair:
            return False
    return False
