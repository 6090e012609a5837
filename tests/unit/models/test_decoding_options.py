"""Decoding options: each belongs to one decoding and implies it; wrong values are refused."""

import pytest

from crossmatch.data.errors import UsageError
from crossmatch.models.decoding_options import DECODING_OF_OPTION, DecodingOptions, resolve_decoding

OPTIONS = {"width": 3, "length_penalty": 0.5, "temperature": 2.0, "seed": 0}


@pytest.mark.parametrize("option", OPTIONS)
def test_option_implies_its_decoding_and_excludes_others(option):
    assert OPTIONS.keys() == DECODING_OF_OPTION.keys()
    owner = DECODING_OF_OPTION[option]
    options = dict.fromkeys(OPTIONS) | {option: OPTIONS[option]}
    assert resolve_decoding({"decoding": None, **options}) == {"decoding": owner, option: OPTIONS[option]}
    assert resolve_decoding({"decoding": owner, **options}) == {"decoding": owner, option: OPTIONS[option]}
    for decoding in {"greedy", "sampled", "beam"} - {owner}:
        with pytest.raises(UsageError, match=f"{option.replace('_', ' ')} is an option of {owner} decoding, but {decoding}"):
            resolve_decoding({"decoding": decoding, **options})


def test_no_options_mean_the_defaults():
    assert resolve_decoding({"decoding": None, **dict.fromkeys(OPTIONS)}) == {}
    assert DecodingOptions.from_mapping({}) == DecodingOptions("beam", 5, 1.0, 1.0, 0, None)


WRONG = [
    ({"decoding": "best"}, "one of greedy, sampled, beam"),
    ({"widht": 3}, "Did you mean 'width'"),
    ({"width": 0}, "at least 1"),
    ({"temperature": 0}, "above 0"),
    ({"length_penalty": -1.0}, "at least 0"),
    ({"longest": 0}, "at least 1"),
    ({"width": 2.5}, "a whole number"),
    ({"width": 10**19}, "at most 100[^0]"),
    ({"length_penalty": 25.0}, "at most 10"),
    ({"seed": 2**64}, "at most 18446744073709551615"),
    ({"longest": 10**13}, "at most 1000"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        DecodingOptions.from_mapping(options)
