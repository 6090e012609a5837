"""Statistics of captions by hand, and of COCO-BISON against the paper."""

import json

import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.text.caption_statistics import PART_OF_TAG, caption_statistics, vocabulary, vocabulary_overlap


def test_statistics_of_an_example():
    statistics = caption_statistics(["A dog isn't here.", "A dog isn't here.", "Three red birds!"])
    assert (statistics.captions, statistics.unique, statistics.words, statistics.mean_length) == (3, 2, 13, 13 / 3)
    assert dict(statistics.lengths) == {3: 1, 5: 2}
    assert (
        statistics.vocabulary
        == vocabulary(["A dog isn't here.", "Three red birds!"])
        == {"a", "dog", "is", "n't", "here", "three", "red", "birds"}
    )
    shares = {"noun": 3, "verb": 2, "adjective": 1, "adverb": 4, "determiner": 2, "number": 1}
    assert statistics.parts == pytest.approx({part: shares.get(part, 0) / 13 for part in statistics.parts})


def test_ten_parts_of_speech():
    assert list(caption_statistics(["dog"]).parts) == [*dict.fromkeys(PART_OF_TAG.values()), "other"]
    assert len(caption_statistics(["dog"]).parts) == 10


def test_empty_captions_and_no_captions():
    assert caption_statistics(["", "..."]).lengths == {0: 2}
    with pytest.raises(CrossmatchError, match="at least one caption"):
        caption_statistics([])
    with pytest.raises(CrossmatchError, match="second vocabulary is empty"):
        vocabulary_overlap(frozenset({"a"}), frozenset())


def test_bison_has_the_published_counts(real_data_folder):
    """hu2019bison, Table 2: 45,218 unique captions; sec. C: 10,800 unique words, by a tokeniser that is not named."""
    file = real_data_folder / "bison" / "bison_annotations.cocoval2014.json"
    captions = [trial["caption"] for trial in json.loads(file.read_text())["data"]]
    assert len(set(captions)) == 45218
    assert len(vocabulary(captions)) == 10740
    assert len(vocabulary(captions)) == pytest.approx(10800, rel=0.01)  # lower case and no punctuation, whatever else is done
