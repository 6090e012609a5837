"""Hard negative captions by a language model: asked with a template for each category, its answers checked, its failures recorded.

Rows are those of `negatives`. What failed is in `failed.jsonl`, with the reason and the beginning of the answer; the manifest
counts the reasons. A step that was broken off goes on where it stopped: what is written is not asked again, nor is a question whose
answer was refused; questions that were lost on the way are.
Source: miranda2024bivlc, sec. 5.1; hsieh2023sugarcrepe for asking a language model; the templates are our own.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.endpoint import NoAnswer
from crossmatch.build.files import FAILED, ROWS, Asked, Failures, Output, Row, manifest, output, whole_lines
from crossmatch.build.material import collection_hash, in_order, pair_id
from crossmatch.build.negative_answers import prompt, taken, templates
from crossmatch.build.negative_kinds import Mentioned
from crossmatch.build.negatives import STEP, TOGETHER, Given, given, named_categories, row_of, unreadable
from crossmatch.build.phrases import Reading, read_all
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.progress import steps

SHOWN = 300  # signs of an answer that are kept with a failure
GIVE_UP = 30  # questions lost in a row: whoever should answer is not there
MOST_AT_ONCE = 64


class Writer(Protocol):
    """Whoever answers a prompt with a text, or raises `NoAnswer`; `name` identifies it in a manifest."""

    @property
    def name(self) -> str: ...

    def write(self, prompt: str) -> str: ...


class Question(NamedTuple):
    """What is to be asked, and what is needed to check the answer."""

    id: str
    one: Given
    category: str
    reading: Reading
    known: Mentioned


def written_negatives(
    collection: Collection,
    writer: Writer,
    output_folder: Path,
    *,
    seed: int = 0,
    categories: Sequence[str] = CATEGORIES,
    captions: int = 0,
    at_once: int = 1,
    template_folder: Path | None = None,
) -> dict[str, Any]:
    """Have a language model write hard negatives of the captions of a collection; the manifest.

    `captions` asks for so many captions, drawn by the seed; 0 for all. `at_once` questions are under way together; the rows come in
    the same order for any number of them. 30 questions in a row without any answer end the step, which can be taken up again.
    """
    if not 1 <= at_once <= MOST_AT_ONCE:
        raise WrongWords(f"{at_once} questions at once were asked for; 1 to {MOST_AT_ONCE} was expected.")
    held, chosen, asked_with = in_order(collection), named_categories(categories), templates(template_folder)
    options = {
        "by": writer.name,
        "templates": hashlib.sha256(json.dumps([asked_with[name] for name in chosen]).encode()).hexdigest()[:16],
        "categories": list(chosen),
        "captions": captions,
    }
    asked = Asked(STEP, {"collection": collection_hash(held)}, options, seed)
    with output(output_folder, asked) as made:
        if not made.finished:
            _fill(made, held, writer, chosen, seed, captions, at_once, asked_with)
    return manifest(output_folder)


def named_writer(endpoint: str, model: str, **patience: Any) -> Writer:
    """Who writes negatives: a model of an endpoint, or, without one, a folder or a .gguf file on this machine."""
    if not model:
        raise WrongWords("--by llm needs --model: a folder or .gguf file, or with --endpoint the name of a model there.")
    if endpoint:
        from crossmatch.build.endpoint import Endpoint

        return Endpoint(endpoint, model, **patience)
    from crossmatch.models.hf.language_model import LanguageModel

    return LanguageModel.load(model)


def _fill(
    made: Output,
    collection: Collection,
    writer: Writer,
    categories: Sequence[str],
    seed: int,
    captions: int,
    at_once: int,
    asked_with: dict[str, str],
) -> None:
    everything = given(collection, seed, captions)
    made.count("captions", len(everything))
    lost_in_a_row, last = 0, None
    with Failures.taken_up(made.folder / FAILED) as failures:
        with steps(len(everything) * len(categories), "asking for negatives") as show:
            questions = _questions(made, collection, everything, categories, failures)
            for number, (question, answer) in enumerate(_answers(questions, writer, at_once, asked_with), start=1):
                trouble = _settled(made, failures, question, answer)
                lost_in_a_row = lost_in_a_row + 1 if trouble is not None and trouble.passing else 0
                last = trouble or last
                if lost_in_a_row >= GIVE_UP:
                    raise _absent(writer, made, lost_in_a_row, last)
                show(number, f"{len(made.done):,} written, {len(failures.settled) + len(failures.passing):,} failed")
        if lost_in_a_row and not made.done and not failures.settled:  # of few questions; the step is not finished by that
            raise _absent(writer, made, lost_in_a_row, last)
        for row in whole_lines(made.folder / ROWS):
            made.count(row["category"])
        failures.counted(made)


def _absent(writer: Writer, made: Output, lost: int, trouble: NoAnswer | None) -> CrossmatchError:
    return CrossmatchError(
        f"{writer.name} left {lost} questions in a row without an answer ({trouble}). See whether it runs; "
        f"{len(made.done):,} rows are kept in {made.folder}, and the step goes on from there."
    )


def _questions(
    made: Output, collection: Collection, everything: Sequence[Given], categories: Sequence[str], failures: Failures
) -> Iterator[Question]:
    """What is still to be asked, in the order of the captions' ids; captions that cannot be read are counted and passed over."""
    for start in range(0, len(everything), TOGETHER):
        batch = everything[start : start + TOGETHER]
        needed = sorted({n for one in batch for n in one.others if not unreadable(collection.captions[n])})
        readings = dict(zip(needed, read_all([collection.captions[n] for n in needed]), strict=True))
        for one in batch:
            problem = unreadable(one.text)
            if problem:
                made.count(f"passed over: {problem}")
                continue
            known = Mentioned(tuple(readings[n] for n in one.others if n in readings))
            own = next(readings[n] for n in one.others if str(collection.caption_ids[n]) == one.id)
            for category in categories:
                name = pair_id(one.id, category)
                if name not in made.done and name not in failures.settled:
                    yield Question(name, one, category, own, known)


def _answers(
    questions: Iterator[Question], writer: Writer, at_once: int, asked_with: dict[str, str]
) -> Iterator[tuple[Question, str | NoAnswer]]:
    """Each question with its answer, in the order of the questions; a few are under way at a time."""

    def ask(question: Question) -> str | NoAnswer:
        try:
            return writer.write(prompt(asked_with[question.category], question.one.text))
        except NoAnswer as trouble:
            return trouble
        except (RuntimeError, IndexError) as error:  # a model on this machine, of a prompt that is too long for it
            return NoAnswer("the model failed", f"{type(error).__name__}: {error}"[:SHOWN])

    pending: deque[tuple[Question, Future[str | NoAnswer]]] = deque()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for question in questions:
                pending.append((question, pool.submit(ask, question)))
                if len(pending) >= at_once:
                    first, answer = pending.popleft()
                    yield first, answer.result()
            while pending:
                first, answer = pending.popleft()
                yield first, answer.result()
        finally:
            for _, answer in pending:
                answer.cancel()


def _settled(made: Output, failures: Failures, question: Question, answer: str | NoAnswer) -> NoAnswer | None:
    """Write the row of a good answer, or record what was wrong with it."""
    try:
        if isinstance(answer, NoAnswer):
            raise answer
        found = taken(question.category, answer, question.reading, question.known)
    except NoAnswer as trouble:
        failures.add(_failed(question, trouble, answer if isinstance(answer, str) else ""), trouble.passing)
        return trouble
    row: Row = row_of(question.one, question.category, found.text, (found.before, found.after))
    made.write(row)
    return None


def _failed(question: Question, trouble: NoAnswer, answer: str) -> Row:
    """What is kept of a question that came to nothing."""
    return {
        "id": question.id,
        "caption_id": question.one.id,
        "category": question.category,
        "reason": trouble.reason,
        "told": trouble.told[:SHOWN],
        "answer": answer[:SHOWN],
    }
