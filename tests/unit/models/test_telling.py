"""How captions are told: an option belongs to one decoding, and says which is meant; what has no meaning is refused."""

import pytest

from crossmatch.core.errors import WrongWords
from crossmatch.models.telling import OF, Telling, decoding_of

GIVEN = {"width": 3, "length_penalty": 0.5, "temperature": 2.0, "seed": 0}


@pytest.mark.parametrize("option", GIVEN)
def test_an_option_says_which_decoding_is_meant_and_goes_with_no_other(option):
    assert GIVEN.keys() == OF.keys()
    asked = dict.fromkeys(GIVEN) | {option: GIVEN[option]}
    assert decoding_of({"decoding": None, **asked}) == {"decoding": OF[option], option: GIVEN[option]}
    assert decoding_of({"decoding": OF[option], **asked}) == {"decoding": OF[option], option: GIVEN[option]}
    for other in {"greedy", "sampled", "beam"} - {OF[option]}:
        with pytest.raises(WrongWords, match=f"{other} decoding has no {option.replace('_', ' ')}; {OF[option]} has"):
            decoding_of({"decoding": other, **asked})


def test_nothing_asked_is_the_models_own_way():
    assert decoding_of({"decoding": None, **dict.fromkeys(GIVEN)}) == {}
    assert Telling.of({}) == Telling("beam", 5, 1.0, 1.0, 0, None)


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


@pytest.mark.parametrize(("given", "says"), WRONG, ids=[str(given) for given, _ in WRONG])
def test_what_has_no_meaning_is_refused(given, says):
    with pytest.raises(WrongWords, match=says):
        Telling.of(given)
