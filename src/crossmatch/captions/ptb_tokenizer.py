"""Split captions into lower-case Penn Treebank tokens without punctuation, as coco-caption does.

coco-caption calls Stanford's PTBTokenizer (CoreNLP 3.4.1, `-preserveLines -lowerCase`) and removes 17 punctuation marks from its
output. The regular expressions below reproduce that program's output on every string of two to four letters before a full stop, on
88,000 captions of COCO and related data sets, and on punctuation between words.

Some of its behaviour looks like a mistake. It is kept because published scores depend on it:

- Brackets are lower-cased before coco-caption looks for `-LRB-`, so `-lrb-` and `-rrb-` remain; so do `!!` and `?!`.
- A full stop between two letters does not end a word: `road.The` is one token.
- An abbreviation keeps its full stop, even at the end of a caption: `main st.`.

Two differences are intended. Stanford's program reads all captions as one text, so a final initial (`plan B.`) loses its full stop
if the *next* caption starts with "The"; here a caption does not depend on its neighbours. And it joins `22 3/4` into one token with
a no-break space, which BLEU and CIDEr of coco-caption split again but ROUGE-L does not; here it is two tokens for all metrics.
"""

from __future__ import annotations

import re
from string import ascii_lowercase

from crossmatch.data.errors import CrossmatchError

TOKENISER = "ptb-3.4.1"  # the name in signatures

# Combining marks: part of the letter before them.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u0652\u0900-\u0903\u093a-\u094f\u0e31-\u0e3a\u0e47-\u0e4e"
_LETTER = "[^\\W\\d_]"
_CHAR = f"(?:[^\\W_]|[{_MARKS}])"
_APOSTROPHE = "['’]"
_LETTERS = f"{_LETTER}{_CHAR}*"
_HYPHENS = f"(?:[-_‐‑]{_CHAR}+)"
_SHORTENED = f"(?i:s|d|m|ll|re|ve)(?!{_LETTER})"  # contractions after an apostrophe
_NOT = f"[nN]['’‘`][tT]{_LETTER}*"

# Abbreviations that keep their full stop: in any case; only if capitalised; unless in capitals.
_ABBREVIATIONS = """
adj adm adv al ala alex apr ariz assn assoc asst atty aug ave bhd bldg blvd brig bros calif capt cf cie cmdr co col colo
comdr conn corp cos cpl ct dak dec dept det dr drs elec ens esq est etc ext feb fla fri ft ga gen gov govs hon inc ind
insp intl invt jan jos jr jul jun kan kans ky lieut lt ltd maj mar md messrs mich minn mlle mme mo mon mont mr mrs ms
msgr mt natl neb nev nov oct okla penn pfc ph plc pres prof profs pvt rd rep reps rev rt sen sens sep sept seq sfc sgt
spc sq sr st ste supt sys tel tenn thu thurs tue tues univ va vs vt wed wis wisc wm wyo
"""
_CAPITALISED = "Ark Az Del Ill La Mass Miss Ore Pa Tex Wash"
_LOWERED = "mfg mtg ppte ppty pte ptes pty ptys"
_BEFORE_NUMBERS = "no nos art fig prop"
# After an initial, these words start a sentence, and the initial loses its full stop.
_STARTS = """
A About After An As At But He Her Here If In It Last Many More Now Once One Other Our She Since So Some Such That The
Their Then There These They This We What When While Yet You
"""


def _alternation(words: str) -> str:
    return "(?:" + "|".join(sorted(words.split(), key=len, reverse=True)) + ")"


# The first rule that matches wins, so longer alternatives come first (Stanford's program takes the longest match). Look-ahead
# beyond the token is bounded ({0,63}) to avoid quadratic time.
_RULES = (
    r"[A-Za-z]+(?![^ ,])",  # most words; the other rules are tried only where something else follows
    r"</?[A-Za-z][^<>]*>|-[LR][RSC]B-|&#\d+;",
    r"https?://[^\s\"<>|(){}]*[^\s\"<>|.!?(){},-]",
    r"(?i:(?:[\w-]{1,63}\.){1,9}(?:com|net|org|edu))/[^\s\"<>|(){}]*[^\s\"<>|.!?(){},-]",
    r"[A-Za-z0-9][^\s\"<>|()@]{0,63}@[^\s\"<>|(){}.@]+(?:\.[^\s\"<>|(){}.@]+)*",
    r"@[A-Za-z_][A-Za-z0-9_]*|#[A-Za-z]+",
    r"\(\d{3}\) ?\d{3}[- ]\d{4}(?!\d)",
    rf"[<>]?[:;=](?:[-'][()DPdp]|[()DPpdO\\|\[\]{{@])(?!{_CHAR})|\^_\^|-_-",
    rf"{_APOSTROPHE}(?i:{_SHORTENED}|em|till?|cause|[2-9]0s|\d\d(?![\d'’]|s)|n{_APOSTROPHE}|n(?!{_CHAR}))|'(?i:t(?=is|was))",
    r"’(?i:s|d|m|ll|re|ve|n)",
    # words with an apostrophe
    rf"{_CHAR}+?(?<![nN])(?={_NOT})|{_NOT}",
    rf"(?i:c{_APOSTROPHE}mon|e{_APOSTROPHE}er|s{_APOSTROPHE}mores|ev{_APOSTROPHE}ry|li{_APOSTROPHE}l|nat{_APOSTROPHE}l"
    rf"|nor{_APOSTROPHE}easter|cap{_APOSTROPHE}n|o{_APOSTROPHE}o)",
    rf"(?:[A-HJ-XZdlno]{_APOSTROPHE}(?!{_SHORTENED}){_LETTER}{{2,}}"
    rf"|{_LETTER}+[aeiouyAEIOUY]{_APOSTROPHE}(?!{_SHORTENED})[aeiouA-Z]{_LETTER}*){_HYPHENS}*",
    rf"(?i:[dljy]{_APOSTROPHE}(?!{_SHORTENED})(?={_LETTER})|(?:ol|somethin|dunkin){_APOSTROPHE})",
    # words with a full stop
    rf"Ph\.D\.|{_LETTERS}\.(?:-{_CHAR}+)+|{_CHAR}+{_HYPHENS}*\.(?=[,;:](?!\d))",
    rf"{_LETTER}(?:\.{_LETTER})+(?!\.?{_LETTER})\.?(?:-{_CHAR}+)*",
    rf"{_CHAR}+{_HYPHENS}*-{_LETTER}(?:\.{_LETTER})+(?!\.?{_CHAR})\.(?:-{_CHAR}+)*",
    rf"{_LETTERS}(?:[.!?]{_LETTERS})+(?:-{_CHAR}+)*",
    rf"[A-Za-z]\.(?! +{_alternation(_STARTS)}(?!{_CHAR}))",
    rf"(?i:{_alternation(_ABBREVIATIONS)})\.|{_alternation(_CAPITALISED)}\.|{_alternation(_CAPITALISED.upper())}\."
    rf"|{_alternation(_LOWERED)}\.|{_alternation(_LOWERED.title())}\.|(?i:{_alternation(_BEFORE_NUMBERS)})\.(?= *\d)",
    # numbers, and words with a hyphen, a slash or an ampersand
    rf"\d+ \d+/\d+(?![^\W\d])|\d+-\d+/\d+(?!{_CHAR})|\d+/\d+(?:-{_LETTERS})+"
    rf"|\d{{1,2}}/\d{{1,2}}/\d{{1,4}}(?!{_CHAR})|\d+/\d+(?!{_CHAR})",
    rf"(?=[\d/]{{0,63}}{_LETTER}){_CHAR}+(?:-{_LETTER}+){{0,2}}(?:/{_CHAR}+(?:-{_LETTER}+){{0,2}})+",
    rf"\d+(?:[.,:]\d+)*{_HYPHENS}+|{_CHAR}+{_HYPHENS}+",
    r"[A-Z]+&[A-Z]+|(?i:c\+\+|[cf]#)|(?:US|HK|NZ|AU|[A-Z])\$",
    r"--+|\.\.+|[-+]?\d*(?:[.,:]\d+)+|[-+]\d+",
    rf"{_CHAR}+",
    r"[!?]{2,}|\*+|_+|<<|>>|[^\s]",
)
_LEXER = re.compile("|".join(_RULES))
_SIMPLE = re.compile(r"[A-Za-z ,]*\.?\s*")  # 97 % of COCO's captions: words, commas and a final full stop

_PUNCTUATION = "'' ' `` ` . ? ! , : - ; \" “ ” « » ‹ › ‘ ’ ‛ … – — ― ‐ ‑ ‒"
_REPLACEMENTS: dict[str, tuple[str, ...]] = dict.fromkeys(_PUNCTUATION.split(), ()) | {
    "cannot": ("can", "not"), "gonna": ("gon", "na"), "gotta": ("got", "ta"), "wanna": ("wan", "na"), "gimme": ("gim", "me"),
    "lemme": ("lem", "me"), "[": ("-lsb-",), "]": ("-rsb-",), "{": ("-lcb-",), "}": ("-rcb-",),
    "€": ("$",), "¤": ("$",), "£": ("#",), "¢": ("cents",),
    "’s": ("'s",), "’d": ("'d",), "’m": ("'m",), "’ll": ("'ll",), "’re": ("'re",), "’ve": ("'ve",),
    "n’t": ("n't",), "n‘t": ("n`t",),
}  # fmt: skip
_MAY_KEEP_FULL_STOP = {*" ".join((_ABBREVIATIONS, _CAPITALISED, _LOWERED)).lower().split(), *ascii_lowercase}
_ENTITIES = {"&quot;": '"', "&apos;": "'", "&lt;": " < ", "&gt;": " > ", "&nbsp;": " ", "&mdash;": "--", "&amp;": " & "}
_FRACTIONS = {"½": " 1/2 ", "¼": " 1/4 ", "¾": " 3/4 ", "⅓": " 1/3 ", "⅔": " 2/3 ", "²": " ² ", "³": " ³ "}
_IGNORED = re.compile(
    "[\U00010000-\U0010ffff\ue000-\uf8ff\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\u2160-\u2188₹]"
)


def tokenise(caption: str) -> list[str]:
    """Split one caption into tokens; a caption of punctuation only gives an empty list.

    Source: marcus1993building; tests/parity compares the result with Stanford's program.

    >>> tokenise("A man can't see the dog's well-known T-shirt.")
    ['a', 'man', 'ca', "n't", 'see', 'the', 'dog', "'s", 'well-known', 't-shirt']
    >>> tokenise('"Stop" (twice), at 5:30pm on Main St.')
    ['stop', '-lrb-', 'twice', '-rrb-', 'at', '5:30', 'pm', 'on', 'main', 'st.']
    """
    if not isinstance(caption, str):
        raise CrossmatchError(
            f"Expected a caption as text, got {caption!r:.60} of type {type(caption).__name__}. Correct the file."
        )
    if _SIMPLE.fullmatch(caption):
        tokens = caption.lower().replace(",", " ").replace(".", " ").split()
        if _REPLACEMENTS.keys().isdisjoint(tokens) and tokens and tokens[-1] not in _MAY_KEEP_FULL_STOP:
            return tokens
    if "&" in caption:
        for entity, text in _ENTITIES.items():
            caption = caption.replace(entity, text)
    if not caption.isascii():
        caption = _IGNORED.sub(" ", caption.replace("\u00ad", "").replace("\u00a0", " "))
        for fraction, text in _FRACTIONS.items():
            caption = caption.replace(fraction, text)
    joined = " ".join(_LEXER.findall(caption)).lower().replace("--", " ").replace("..", " ")
    if "(" in joined or ")" in joined:
        joined = joined.replace("(", "-lrb-").replace(")", "-rrb-")  # inside :) and (555) too
    tokens = joined.split()
    if _REPLACEMENTS.keys().isdisjoint(tokens):
        return tokens
    return [part for token in tokens for part in _REPLACEMENTS.get(token, (token,))]
