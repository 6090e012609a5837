"""Caption scores that choose images: which references are compared, by which score, and what is left unanswered."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.benchmarks import load_data
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials
from crossmatch.models.references import CAPTION_SCORES, Cosine, References, compared, overlap, references_model, rouge_1
from crossmatch.models.text import TfIdf
from crossmatch.run import evaluate

FIVE = {
    "cat": ("A cat.", "A black cat on a mat.", "The cat sits.", "One cat", "A cat indoors"),
    "dog": ("A dog.", "A brown dog on a mat.", "The dog sits.", "One dog", "A dog indoors"),
    "six": ("1 a", "2 b", "3 c", "4 d", "5 e", "6 f"),
}


def trials(query="A black cat on a mat.", images=("cat", "dog"), references=FIVE, names=("t",)):
    many = len(names)
    return Trials(list(names), [list(images)] * many, [[query]] * many, [""] * many, references=references)


# Which references


def test_the_query_is_removed_and_as_many_are_drawn_for_the_negative():
    cat, dog = compared(trials("A  black cat on a mat. ")).references
    assert cat == [text for text in FIVE["cat"] if text != "A black cat on a mat."]
    assert len(dog) == len(set(dog)) == 4
    assert set(dog) < set(FIVE["dog"])


def test_a_query_that_stands_there_twice_is_removed_once():
    said = {"cat": ("a cat", "a cat", "cats"), "dog": ("x", "y", "z")}
    assert compared(trials("a cat", references=said)).references[0] == ["a cat", "cats"]


def test_every_image_is_compared_by_equally_many():
    many = {image: len(texts) for image, texts in FIVE.items()}
    assert many == {"cat": 5, "dog": 5, "six": 6}
    assert [len(texts) for texts in compared(trials("3 c", ("six", "dog"))).references] == [5, 5]
    assert [len(texts) for texts in compared(trials(images=("cat", "six"))).references] == [4, 4]
    assert [len(texts) for texts in compared(trials("not there", ("six", "cat", "dog"))).references] == [5, 5, 5]


def test_the_draw_depends_on_trial_image_and_seed_alone_and_each_reference_is_as_likely():
    names = [f"t{n}" for n in range(2000)]
    all_of_them = compared(trials(names=names)).references[1::2]
    assert compared(trials(names=names[7:8])).references[1] == all_of_them[7]
    assert compared(trials(names=names), seed=1).references[1::2] != all_of_them
    left = Counter(next(text for text in FIVE["dog"] if text not in drawn) for drawn in all_of_them)
    assert all(abs(left[text] - 400) < 4 * np.sqrt(2000 * 0.2 * 0.8) for text in FIVE["dog"])  # four standard deviations


def test_trials_without_references_of_every_image_stay_unanswered():
    some = Trials(["a", "b", "c"], [["cat", "dog"], ["cat", "cow"], ["cow", "dog"]], [["x"]] * 3, [""] * 3, references=FIVE)
    assert references_model("overlap").scores(some).ids.tolist() == ["a"]
    alone = Trials(["a"], [["cat", "dog"]], [["only"]], [""], references={"cat": ("only",), "dog": ("x",)})
    with pytest.raises(CrossmatchError, match="for none of the 1 trials references of all images are known"):
        references_model("overlap").scores(alone)


def test_evaluation_needs_partial_and_says_where_captions_come_from():
    known = load_data("diorama/bison", size="tiny")
    few = dict(list(known.references.items())[:30])
    part = Trials(known.ids, known.images, known.captions, known.categories, references=few)
    with pytest.raises(CrossmatchError, match=r"references:overlap \(it needs captions of the images; .* not answered.*--partial"):
        evaluate(references_model("overlap"), "diorama/bison", data=part, size="tiny")
    found = evaluate(references_model("overlap"), "diorama/bison", data=part, size="tiny", partial=True)
    assert 0 < found["accuracy"].n < len(known.ids)
    assert any(note.startswith("partial:") for note in found.notes)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (trials(references=None), "no reference captions of these images are known.*crossmatch data get coco"),
        (Trials(["t"], [["1", "2"]], [["a", "b"]], [""], references=FIVE), "these trials have 2 captions each"),
    ],
)
def test_what_cannot_be_answered(data, message):
    with pytest.raises(CrossmatchError, match=message):
        references_model("overlap").scores(data)


def test_retrieval_is_refused():
    with pytest.raises(CrossmatchError, match="Name a task such as bison"):
        references_model("overlap").scores(load_data("diorama/retrieval", size="tiny"))


# By which score

TEXTS = st.lists(st.sampled_from(["a", "red", "cat", "dog", "Cat", "mat."]), max_size=6).map(" ".join)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
def test_overlap_and_rouge_by_hand(candidate, references):
    def bag(text):
        return [word.strip(".").lower() for word in text.split()]

    def shared(one, other):
        both = sum(min(one.count(word), other.count(word)) for word in set(one))
        return 2 * both / (len(one) + len(other)) if one or other else 0.0

    types = [shared(sorted(set(bag(candidate))), sorted(set(bag(text)))) for text in references]
    assert overlap([candidate], [references])[0] == pytest.approx(np.mean(types))
    assert rouge_1([candidate], [references])[0] == pytest.approx(max(shared(bag(candidate), bag(text)) for text in references))


@pytest.mark.parametrize("name", [*CAPTION_SCORES, "tfidf"])
def test_the_order_of_references_changes_no_bit(name):
    texts = list(FIVE["cat"] + FIVE["dog"] + FIVE["six"])
    score = references_model(name).score
    one, other = score(["a black cat sits on a dog"] * 2, [texts, texts[::-1]])
    assert one == other


def test_cosines_of_sparse_and_dense_vectors_agree():
    class Dense:
        signature = "dense"

        def fitted(self, texts):
            self.held = TfIdf().fitted(texts)
            return self

        def embed_texts(self, texts):
            return self.held.embed_texts(texts)

    given = ["A black cat.", "Two dogs"], [list(FIVE["cat"]), list(FIVE["dog"])]
    assert Cosine(TfIdf())(*given) == pytest.approx(Cosine(Dense())(*given), abs=1e-6)


def test_any_score_of_the_table_becomes_a_chooser(monkeypatch):
    def shortest(candidates, references):
        return np.asarray([-float(min(map(len, texts))) for texts in references])

    monkeypatch.setitem(CAPTION_SCORES, "shortest", shortest)
    said = {"cat": ("a black cat", "a cat"), "dog": ("dog", "a large dog")}
    found = references_model("shortest").scores(trials("a cat", references=said))
    assert found.values.tolist() == [
        [[-11.0, -3.0 if compared(trials("a cat", references=said)).references[1] == ["dog"] else -11.0]]
    ]


def test_names_that_have_no_meaning_list_those_that_have():
    for name in ("", "bleu-9"):
        with pytest.raises(WrongWords, match=r"there are references:overlap, references:rouge-1, .*references:minilm"):
            references_model(name)
    with pytest.raises(WrongWords, match="bow:x has no meaning"):
        references_model("bow:x")


def test_the_signature_tells_score_and_seed():
    assert references_model("overlap", 3).signature == "references:overlap|query:removed|references:equal|seed:3"
    assert "idf:smooth" in references_model("tfidf").signature
    assert repr(References("x", overlap)) == "References(name='x', about='', seed=0)"


def test_it_tells_look_alikes_apart_in_the_embedded_world():
    found = evaluate(references_model("overlap"), "diorama/bison", size="tiny")
    assert found["accuracy"].low > 50
