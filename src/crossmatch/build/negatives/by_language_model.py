"""Hard negative captions by a language model: one prompt template per category, checked answers, recorded failures.

Rows are those of `by_rules`. Failures are in `failed.jsonl`, with the reason and the beginning of the answer; the manifest counts
the reasons. An interrupted step resumes: written rows and rejected answers are not requested again, lost requests are.
Source: miranda2024bivlc, sec. 5.1; hsieh2023sugarcrepe for the use of a language model; the templates are our own.
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
from crossmatch.build.negatives.by_rules import (
    BATCH_SIZE,
    STEP,
    SourceCaption,
    check_categories,
    negative_row,
    select_captions,
    tag_readable,
)
from crossmatch.build.negatives.caption_context import CaptionContext
from crossmatch.build.negatives.language_model_answers import fill_template, load_templates, parse_negative
from crossmatch.build.step_files import (
    FAILED,
    ROWS,
    Failures,
    StepOutput,
    StepSpec,
    open_step,
    read_complete_rows,
    read_manifest,
)
from crossmatch.build.step_inputs import collection_hash, pair_id, sort_by_id
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.progress import progress_bar
from crossmatch.models.adapters.language_model_endpoint import NoAnswerError
from crossmatch.text.noun_phrases import TaggedCaption

MAX_SHOWN = 300  # characters of an answer that are kept with a failure
MAX_LOST_IN_A_ROW = 30  # then the endpoint is considered down
MAX_CONCURRENT = 64


class TextGenerator(Protocol):
    """Answers a prompt with a text, or raises `NoAnswerError`; `name` identifies it in a manifest."""

    @property
    def name(self) -> str: ...

    def write(self, prompt: str) -> str: ...


class NegativeRequest(NamedTuple):
    """A request for one negative, with what is needed to check the answer."""

    id: str
    caption: SourceCaption
    category: str
    tagged: TaggedCaption
    context: CaptionContext


def write_llm_negatives(
    collection: Collection,
    writer: TextGenerator,
    output: Path,
    *,
    seed: int = 0,
    categories: Sequence[str] = CATEGORIES,
    captions: int = 0,
    at_once: int = 1,
    template_folder: Path | None = None,
) -> dict[str, Any]:
    r"""Let a language model write hard negatives of the captions of a collection.

    The order of rows does not depend on `at_once`. The step stops after 30 requests in a row without an answer, and can be resumed.

    Args:
        collection: Images with captions.
        writer: The language model: an object with a `name` and a method `write(prompt)` that returns the answer.
        output: Folder of the step.
        seed: Seed of the selection of captions.
        categories: Categories to write.
        captions: Number of random captions; 0 for all.
        at_once: Number of concurrent requests.
        template_folder: Folder with templates; by default those of the package.

    Returns:
        The manifest.

    >>> from crossmatch import Collection
    >>> class Writer:
    ...     name = "always the same answer"
    ...     def write(self, prompt):
    ...         return "Old: dog\nNew: cat\nNegative: A brown cat sits on a chair."
    >>> data = Collection.from_captions({"1": ["A brown dog sits on a chair."], "2": ["A red bus."]})
    >>> write_llm_negatives(data, Writer(), folder / "negatives", categories=["replace/obj"])["counts"]
    {'captions': 2, 'replace/obj': 1, 'failed: what was replaced is not in the caption': 1}
    """
    if not 1 <= at_once <= MAX_CONCURRENT:
        raise UsageError(f"--at-once must be from 1 to {MAX_CONCURRENT} (got {at_once}).")
    data, chosen, templates = sort_by_id(collection), check_categories(categories), load_templates(template_folder)
    options = {
        "by": writer.name,
        "templates": hashlib.sha256(json.dumps([templates[name] for name in chosen]).encode()).hexdigest()[:16],
        "categories": list(chosen),
        "captions": captions,
    }
    with open_step(output, StepSpec(STEP, {"collection": collection_hash(data)}, options, seed)) as step:
        if not step.is_finished:
            _write_all(step, data, writer, chosen, select_captions(data, seed, captions), at_once, templates)
    return read_manifest(output)


def load_writer(endpoint: str, model: str, **connection: Any) -> TextGenerator:
    """Load a model of an endpoint, or, without endpoint, a local folder or .gguf file."""
    if not model:
        raise UsageError("--by llm needs --model: a folder or .gguf file, or with --endpoint the name of a model there.")
    if endpoint:
        from crossmatch.models.adapters.language_model_endpoint import Endpoint

        return Endpoint(endpoint, model, **connection)
    from crossmatch.models.adapters.transformers.language_model import LanguageModel

    return LanguageModel.load(model)


def _write_all(
    step: StepOutput,
    data: Collection,
    writer: TextGenerator,
    categories: Sequence[str],
    captions: Sequence[SourceCaption],
    at_once: int,
    templates: dict[str, str],
) -> None:
    step.count("captions", len(captions))
    lost_in_a_row, last_error = 0, None
    with Failures.resume(step.folder / FAILED) as failures:
        with progress_bar(len(captions) * len(categories), "requesting negatives") as show:
            requests = _open_requests(step, data, captions, categories, failures)
            for number, (request, answer) in enumerate(_answer_requests(requests, writer, at_once, templates), start=1):
                error = _record_answer(step, failures, request, answer)
                lost_in_a_row = lost_in_a_row + 1 if error is not None and error.is_temporary else 0
                last_error = error or last_error
                if lost_in_a_row >= MAX_LOST_IN_A_ROW:
                    raise _no_answers_error(writer, step, lost_in_a_row, last_error)
                show(number, f"{len(step.written_ids):,} written, {len(failures.final) + len(failures.retryable):,} failed")
        if lost_in_a_row and not step.written_ids and not failures.final:  # few requests, none answered: do not finish the step
            raise _no_answers_error(writer, step, lost_in_a_row, last_error)
        for row in read_complete_rows(step.folder / ROWS):
            step.count(row["category"])
        failures.count_reasons(step)


def _no_answers_error(writer: TextGenerator, step: StepOutput, lost: int, error: NoAnswerError | None) -> CrossmatchError:
    return CrossmatchError(
        f"{writer.name} did not answer {lost} requests in a row ({error}). {len(step.written_ids):,} rows are kept in "
        f"{step.folder}. Check that the model is running, then run the same command again to resume."
    )


def _open_requests(
    step: StepOutput, data: Collection, captions: Sequence[SourceCaption], categories: Sequence[str], failures: Failures
) -> Iterator[NegativeRequest]:
    """Requests without result, in the order of the caption ids; unreadable captions are counted and skipped."""
    for start in range(0, len(captions), BATCH_SIZE):
        for caption, tagged, context in tag_readable(step, data, captions[start : start + BATCH_SIZE], ("",)):
            for category in categories:
                row_id = pair_id(caption.id, category)
                if row_id not in step.written_ids and row_id not in failures.final:
                    yield NegativeRequest(row_id, caption, category, tagged, context)


def _answer_requests(
    requests: Iterator[NegativeRequest], writer: TextGenerator, at_once: int, templates: dict[str, str]
) -> Iterator[tuple[NegativeRequest, str | NoAnswerError]]:
    """Each request with its answer, in the order of the requests; up to `at_once` run concurrently."""

    def ask(request: NegativeRequest) -> str | NoAnswerError:
        try:
            return writer.write(fill_template(templates[request.category], request.caption.text))
        except NoAnswerError as error:
            return error
        except (RuntimeError, IndexError) as error:  # a local model whose prompt is too long
            return NoAnswerError("the model failed", f"{type(error).__name__}: {error}"[:MAX_SHOWN])

    pending: deque[tuple[NegativeRequest, Future[str | NoAnswerError]]] = deque()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for request in requests:
                pending.append((request, pool.submit(ask, request)))
                if len(pending) >= at_once:
                    oldest, answer = pending.popleft()
                    yield oldest, answer.result()
            while pending:
                oldest, answer = pending.popleft()
                yield oldest, answer.result()
        finally:
            for _, answer in pending:
                answer.cancel()


def _record_answer(
    step: StepOutput, failures: Failures, request: NegativeRequest, answer: str | NoAnswerError
) -> NoAnswerError | None:
    """Write the row of a valid answer, or record and return its failure."""
    try:
        if isinstance(answer, NoAnswerError):
            raise answer
        negative = parse_negative(request.category, answer, request.tagged, request.context)
    except NoAnswerError as error:
        failure = {
            "id": request.id, "caption_id": request.caption.id, "category": request.category, "reason": error.reason,
            "told": error.detail[:MAX_SHOWN], "answer": answer[:MAX_SHOWN] if isinstance(answer, str) else "",
        }  # fmt: skip
        failures.add(failure, error.is_temporary)
        return error
    step.write(negative_row(request.caption, request.category, negative))
    return None
