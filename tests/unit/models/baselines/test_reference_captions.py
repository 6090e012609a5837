"""Caption scores that choose images: selection of references, scores, and unanswered trials."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.benchmarks import load_benchmark_data
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trials import Trials
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.models.baselines.reference_captions import (
    CAPTION_SCORES,
    CosineScore,
    ReferenceChooser,
    make_reference_chooser,
    overlap,
    rouge_1,
    select_references,
)
from crossmatch.models.baselines.text_encoders import TfIdf

FIVE = {
    "cat": ("A cat.", "A black cat on a mat.", "The cat sits.", "One cat", "A cat indoors"),
    "dog": ("A dog.", "A brown dog on a mat.", "The dog sits.", "One dog", "A dog indoors"),
    "six": ("1 a", "2 b", "3 c", "4 d", "5 e", "6 f"),
}


def trials(query="A black cat on a mat.", images=("cat", "dog"), references=FIVE, names=("t",)):
    many = len(names)
    return Trials(list(names), [list(images)] * many, [[query]] * many, [""] * many, references=references)


# Which references


def test_query_is_removed_and_as_many_references_are_drawn():
    cat, dog = select_references(trials("A  black cat on a mat. ")).references
    assert cat == [text for text in FIVE["cat"] if text != "A black cat on a mat."]
    assert len(dog) == len(set(dog)) == 4
    assert set(dog) < set(FIVE["dog"])


def test_duplicate_query_is_removed_once():
    references = {"cat": ("a cat", "a cat", "cats"), "dog": ("x", "y", "z")}
    assert select_references(trials("a cat", references=references)).references[0] == ["a cat", "cats"]


def test_images_get_equally_many_references():
    counts = {image: len(texts) for image, texts in FIVE.items()}
    assert counts == {"cat": 5, "dog": 5, "six": 6}
    assert [len(texts) for texts in select_references(trials("3 c", ("six", "dog"))).references] == [5, 5]
    assert [len(texts) for texts in select_references(trials(images=("cat", "six"))).references] == [4, 4]
    assert [len(texts) for texts in select_references(trials("not there", ("six", "cat", "dog"))).references] == [5, 5, 5]


def test_draw_is_uniform_and_depends_on_trial_image_and_seed():
    names = [f"t{n}" for n in range(2000)]
    selections = select_references(trials(names=names)).references[1::2]
    assert select_references(trials(names=names[7:8])).references[1] == selections[7]
    assert select_references(trials(names=names), seed=1).references[1::2] != selections
    omitted = Counter(next(text for text in FIVE["dog"] if text not in drawn) for drawn in selections)
    assert all(abs(omitted[text] - 400) < 4 * np.sqrt(2000 * 0.2 * 0.8) for text in FIVE["dog"])  # four standard deviations


def test_trials_without_references_stay_unanswered():
    some = Trials(["a", "b", "c"], [["cat", "dog"], ["cat", "cow"], ["cow", "dog"]], [["x"]] * 3, [""] * 3, references=FIVE)
    assert make_reference_chooser("overlap").scores(some).ids.tolist() == ["a"]
    alone = Trials(["a"], [["cat", "dog"]], [["only"]], [""], references={"cat": ("only",), "dog": ("x",)})
    with pytest.raises(CrossmatchError, match="none of the 1 trials has references for all its images"):
        make_reference_chooser("overlap").scores(alone)


def test_evaluation_of_incomplete_references_needs_partial():
    complete = load_benchmark_data("diorama/bison", size="tiny")
    few = dict(list(complete.references.items())[:30])
    part = Trials(complete.ids, complete.images, complete.captions, complete.categories, references=few)
    with pytest.raises(CrossmatchError, match=r"references:overlap \(it needs captions of the images; .* not answered.*--partial"):
        evaluate(make_reference_chooser("overlap"), "diorama/bison", data=part, size="tiny")
    result = evaluate(make_reference_chooser("overlap"), "diorama/bison", data=part, size="tiny", partial=True)
    assert 0 < result["accuracy"].n < len(complete.ids)
    assert any(note.startswith("partial:") for note in result.notes)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (trials(references=None), "these images have no reference captions.*crossmatch data get coco"),
        (Trials(["t"], [["1", "2"]], [["a", "b"]], [""], references=FIVE), "these trials have 2 captions each"),
    ],
)
def test_unsuitable_trials_are_refused(data, message):
    with pytest.raises(CrossmatchError, match=message):
        make_reference_chooser("overlap").scores(data)


def test_retrieval_is_refused():
    with pytest.raises(CrossmatchError, match="Use a task such as bison"):
        make_reference_chooser("overlap").scores(load_benchmark_data("diorama/retrieval", size="tiny"))


# By which score

TEXTS = st.lists(st.sampled_from(["a", "red", "cat", "dog", "Cat", "mat."]), max_size=6).map(" ".join)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
def test_overlap_and_rouge_equal_a_slow_version(candidate, references):
    def bag(text):
        return [word.strip(".").lower() for word in text.split()]

    def shared(first, second):
        both = sum(min(first.count(word), second.count(word)) for word in set(first))
        return 2 * both / (len(first) + len(second)) if first or second else 0.0

    types = [shared(sorted(set(bag(candidate))), sorted(set(bag(text)))) for text in references]
    assert overlap([candidate], [references])[0] == pytest.approx(np.mean(types))
    assert rouge_1([candidate], [references])[0] == pytest.approx(max(shared(bag(candidate), bag(text)) for text in references))


@pytest.mark.parametrize("name", [*CAPTION_SCORES, "tfidf"])
def test_order_of_references_changes_no_bit(name):
    texts = list(FIVE["cat"] + FIVE["dog"] + FIVE["six"])
    score = make_reference_chooser(name).score
    first, second = score(["a black cat sits on a dog"] * 2, [texts, texts[::-1]])
    assert first == second


def test_cosines_of_sparse_and_dense_vectors_agree():
    class Dense:
        signature = "dense"

        def fitted(self, texts):
            self.held = TfIdf().fitted(texts)
            return self

        def embed_texts(self, texts):
            return self.held.embed_texts(texts)

    arguments = ["A black cat.", "Two dogs"], [list(FIVE["cat"]), list(FIVE["dog"])]
    assert CosineScore(TfIdf())(*arguments) == pytest.approx(CosineScore(Dense())(*arguments), abs=1e-6)


def test_scores_of_the_table_are_choosers(monkeypatch):
    def shortest(candidates, references):
        return np.asarray([-float(min(map(len, texts))) for texts in references])

    monkeypatch.setitem(CAPTION_SCORES, "shortest", shortest)
    references = {"cat": ("a black cat", "a cat"), "dog": ("dog", "a large dog")}
    scores = make_reference_chooser("shortest").scores(trials("a cat", references=references))
    assert scores.values.tolist() == [
        [[-11.0, -3.0 if select_references(trials("a cat", references=references)).references[1] == ["dog"] else -11.0]]
    ]


def test_wrong_names_list_the_right_ones():
    for name in ("", "bleu-9"):
        with pytest.raises(UsageError, match=r"Use one of references:overlap, references:rouge-1, .*references:minilm"):
            make_reference_chooser(name)
    with pytest.raises(UsageError, match="bow:x: use bow"):
        make_reference_chooser("bow:x")


def test_signature_contains_score_and_seed():
    assert make_reference_chooser("overlap", 3).signature == "references:overlap|query:removed|references:equal|seed:3"
    assert "idf:smooth" in make_reference_chooser("tfidf").signature
    assert repr(ReferenceChooser("x", overlap)) == "ReferenceChooser(name='x', about='', seed=0)"


def test_overlap_is_above_chance_on_diorama():
    result = evaluate(make_reference_chooser("overlap"), "diorama/bison", size="tiny")
    assert result["accuracy"].low > 50
