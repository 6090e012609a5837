"""Hard negatives by a language model: an endpoint with all kinds of failures, and a local model."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.negatives import by_language_model
from crossmatch.build.negatives.by_language_model import FAILED, write_llm_negatives
from crossmatch.build.negatives.caption_context import CaptionContext
from crossmatch.build.negatives.language_model_answers import fill_template, load_templates, parse_fields, parse_negative
from crossmatch.build.step_files import read_manifest, read_rows
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.adapters.language_model_endpoint import MAX_RESPONSE, Endpoint, NoAnswerError, parse_completion
from crossmatch.text.noun_phrases import tag_captions
from polling import LIMIT, PAUSE, wait_until

GOOD = {
    "replace/obj": "Old: dog\nNew: cat\nNegative: A brown cat sits on a red chair.",
    "replace/att": "Old: red\nNew: green\nNegative: A brown dog sits on a green chair.",
    "replace/rel": "Old: on\nNew: under\nNegative: A brown dog sits under a red chair.",
    "swap/obj": "First: dog\nSecond: chair\nNegative: A brown chair sits on a red dog.",
    "swap/att": "First: brown\nSecond: red\nNegative: A red dog sits on a brown chair.",
    "add/obj": "Added: next to a piano\nNegative: A brown dog sits on a red chair next to a piano.",
    "add/att": "Added: striped\nNegative: A brown dog sits on a striped red chair.",
}
RELATED = "means the same, or something broader or narrower"
ABSENT, NOT_SWAPPED = "what was replaced is not in the caption", "what was swapped is not in the caption"
MORE, LOST, MUCH = "more was changed than asked for", "words were added or lost in a swap", "too much was added, or nothing"
CAPTION = "A brown dog sits on a red chair."
ROOM = Collection.from_captions({"1": [CAPTION, "A dog in a room."]})
SINGLE = Collection.from_captions({"1": [CAPTION]})


# -- a small server


@dataclass
class ServerState:
    url: str
    requests: list[dict]
    headers: list[dict]


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler, int, dict], None]) -> Iterator[ServerState]:
    """A local server; `answer` gets the handler, the number of the request, and its body."""
    server_state = ServerState("", [], [])
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                server_state.requests.append(body)
                server_state.headers.append(dict(self.headers))
                number = len(server_state.requests)
            with suppress(BrokenPipeError, ConnectionResetError):
                answer(self, number, body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.is_over = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server_state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield server_state
    finally:
        server.is_over.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


def send(handler: BaseHTTPRequestHandler, body: bytes | str, status: int = 200, **headers: str) -> None:
    data = body if isinstance(body, bytes) else body.encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def send_answer(handler: BaseHTTPRequestHandler, text: object, **more: str) -> None:
    send(handler, json.dumps({"choices": [{"message": {"content": text}}]}), **more)


def category_of(body: dict) -> str:
    """Category of the template of a request."""
    prompt = body["messages"][0]["content"]
    return next(name for name, text in load_templates().items() if prompt.startswith(text[: text.index("{caption}")]))


def answer_well(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
    send_answer(handler, GOOD[category_of(body)])


def endpoint(served: ServerState, **more) -> tuple[Endpoint, list[float]]:
    """An endpoint that does not wait, and the list of its waiting times."""
    waits: list[float] = []
    return Endpoint(served.url, "small", **{"timeout": LIMIT, "attempts": 3, "sleep": waits.append, **more}), waits


# -- one request


def test_answer_is_the_text_of_the_first_choice() -> None:
    with serving(lambda handler, n, body: send_answer(handler, " A dog.\n")) as served:
        writer, waits = endpoint(served)
        assert writer.write("hello") == "A dog."
        assert served.requests[0]["messages"] == [{"role": "user", "content": "hello"}]
        assert served.requests[0]["model"] == "small"
        assert not waits


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_temporary_errors_are_retried_with_growing_waits(status: int) -> None:
    with serving(lambda handler, n, body: send_answer(handler, "fine") if n == 3 else send(handler, "no", status)) as served:
        writer, waits = endpoint(served, pause=1.0)
        assert writer.write("?") == "fine"
    assert 0.5 <= waits[0] <= 1.0 <= waits[1] <= 2.0


def hang(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
    handler.server.is_over.wait(LIMIT)  # type: ignore[attr-defined]


def drip(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
    """Send a byte now and then, so that a limit for each byte is never reached."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.is_over.wait(PAUSE):  # type: ignore[attr-defined]
        handler.wfile.write(b" ")
        handler.wfile.flush()


def send_huge_answer(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(64):
        handler.wfile.write(b"x" * (MAX_RESPONSE // 8))


@pytest.mark.parametrize(
    ("answer", "options", "message", "requests"),
    [
        (lambda handler, n, body: send(handler, "no", 500), {"attempts": 4}, "status 500", 4),
        (lambda handler, n, body: send(handler, "too long", 400), {}, "status 400", 1),
        (hang, {"timeout": 0.2, "attempts": 2}, "timed out", 2),
        (drip, {"timeout": 0.4, "attempts": 1}, "timed out", 1),
        (lambda handler, n, body: handler.connection.close(), {}, "lost connection", 3),
        (send_huge_answer, {}, "too large", 1),
    ],
)
def test_endpoint_failures_are_reported(answer, options: dict, message: str, requests: int) -> None:
    with serving(answer) as served:
        writer, waits = endpoint(served, **{"pause": 1.0, "max_pause": 3.0} | options)
        with pytest.raises(NoAnswerError, match=message) as error:
            writer.write("?")
        assert error.value.is_temporary == (message not in ("status 400", "too large"))
        wait_until(lambda: len(served.requests) >= requests)  # the server may read a request after the client has given up
        assert len(served.requests) == requests
        assert len(waits) == requests - 1
        assert max(waits, default=0) <= 3.0


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [("7", 7.0, 7.0), ("9999", 60.0, 60.0), ("nonsense", 0.5, 1.0), ("-3", 0.5, 1.0), ("date", 1.0, 55.0)],
)
def test_retry_after_is_limited(retry_after: str, least: float, most: float) -> None:
    def answer(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
        value = formatdate(time.time() + 55, usegmt=True) if retry_after == "date" else retry_after
        send_answer(handler, "fine") if n == 2 else send(handler, "", 429, Retry_After=value)

    with serving(answer) as served:
        writer, waits = endpoint(served)
        writer.write("?")
    assert least <= waits[0] <= most


@pytest.mark.parametrize("status", [401, 403, 404])
def test_rejected_key_or_unknown_model_stops_at_once(status: int) -> None:
    with serving(lambda handler, n, body: send(handler, "no", status)) as served:
        with pytest.raises(CrossmatchError, match=f"returned status {status}"):
            endpoint(served)[0].write("?")
        assert len(served.requests) == 1


def test_truncated_answer_is_requested_again() -> None:
    def cut(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
        if n == 2:
            send_answer(handler, "fine")
        else:
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b'{"choices": [')

    with serving(cut) as served:
        assert endpoint(served)[0].write("?") == "fine"


def test_missing_server_is_a_lost_connection() -> None:
    with serving(lambda handler, n, body: None) as served:
        pass
    with pytest.raises(NoAnswerError, match="lost connection") as error:
        endpoint(served)[0].write("?")
    assert error.value.is_temporary


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html>", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"choices": []}'),
        b'{"choices": [{"message": {"content": 3}}]}',
        b'{"choices": [{"message": {"content": "A cat \\ud83d on a mat."}}]}',
    ],
)
def test_invalid_completions_are_rejected(body: bytes) -> None:
    with pytest.raises(NoAnswerError):
        parse_completion(body)


def test_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with (
        serving(lambda handler, n, body: send_answer(handler, "from elsewhere")) as target,
        serving(lambda handler, n, body: send(handler, "", 307, Location=f"{target.url}/chat/completions")) as served,
    ):
        with pytest.raises(NoAnswerError, match="status 307"):
            endpoint(served)[0].write("?")
        assert not target.requests


def test_key_is_sent_but_not_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    with serving(answer_well) as served:
        writer, _ = endpoint(served, key_variable="MY_KEY")
        write_llm_negatives(ROOM, writer, tmp_path / "a", captions=1)
        assert served.headers[0]["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in repr(writer) + "".join(path.read_text() for path in (tmp_path / "a").iterdir())


def test_key_needs_encryption_and_a_valid_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with pytest.raises(CrossmatchError, match="unencrypted") as error:
        Endpoint("http://example.org/v1", "m").write("?")
    assert "sk-secret" not in str(error.value)
    monkeypatch.setenv("OPENAI_API_KEY", "sk\nsecret")
    with pytest.raises(CrossmatchError, match="no key has") as error:
        Endpoint("https://localhost/v1", "m").write("?")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "file:///etc/passwd", "http://", "http://me:word@host/v1", "http://host/v1?key=3", ""]
)
def test_invalid_addresses_are_rejected(url: str) -> None:
    with pytest.raises(UsageError, match="expected an address such as"):
        Endpoint(url, "m")


def test_invalid_endpoint_options_are_rejected() -> None:
    for options in ({"attempts": 0}, {"timeout": 0}, {"timeout": float("nan")}, {"pause": -1}, {"max_tokens": 0}):
        with pytest.raises(UsageError, match="at least one attempt"):
            Endpoint("http://localhost/v1", "m", **options)
    with pytest.raises(UsageError, match="needs the name of a model"):
        Endpoint("http://localhost/v1", " ")


# -- answers


def check_answer(category: str, answer: str, caption: str = CAPTION, *other_captions: str) -> str:
    """The negative in an answer, or the reason for rejecting it."""
    tagged = tag_captions([caption, *other_captions])
    try:
        return parse_negative(category, answer, tagged[0], CaptionContext(tuple(tagged))).text
    except NoAnswerError as error:
        return error.reason


@pytest.mark.parametrize("category", CATEGORIES)
def test_valid_answers_are_accepted(category: str) -> None:
    assert check_answer(category, GOOD[category]) == GOOD[category].rsplit("Negative: ", 1)[1]
    decorated = "Sure! Here it is:\n\n" + re.sub(r"(?m)^(\w+):", r"**\1:**", GOOD[category])
    assert check_answer(category, decorated) == GOOD[category].rsplit("Negative: ", 1)[1]


@pytest.mark.parametrize(
    ("category", "answer", "reason"),
    [
        ("replace/obj", "A brown cat sits on a red chair.", "not the form that was asked for"),
        ("replace/obj", "Old: dog\nNew: cat", "not the form that was asked for"),
        ("replace/obj", "Old: dog\nOld: cat\nNew: x\nNegative: y", "not the form that was asked for"),
        ("replace/obj", "Old: dog\nNew: dog\nNegative: A brown cat sits on a red chair.", "nothing was replaced"),
        ("replace/obj", "Old: dog\nNew: cat\nNegative: A brown dog sits on a red chair", "same as the caption"),
        ("replace/obj", "Old: horse\nNew: cat\nNegative: A brown cat sits on a red chair.", ABSENT),
        ("replace/obj", "Old: dog\nNew: cat\nNegative: A brown cat sleeps on a red chair.", MORE),
        ("replace/obj", "Old: dog\nNew: animal\nNegative: A brown animal sits on a red chair.", RELATED),
        ("replace/obj", "Old: dog\nNew: puppy\nNegative: A brown puppy sits on a red chair.", RELATED),
        ("replace/obj", "Old: red\nNew: green\nNegative: A brown dog sits on a green chair.", "the changed words do not name a thing"),
        ("replace/rel", "Old: dog\nNew: cat\nNegative: A brown cat sits on a red chair.", "the changed words do not name a relation"),
        ("replace/att", "Old: red\nNew: crimson\nNegative: A brown dog sits on a crimson chair.", RELATED),
        ("replace/obj", "Old: dog\nNew: cat\nNegative: Does a brown cat sit on a red chair?", "a question"),
        ("replace/obj", f"Old: dog\nNew: cat\nNegative: {'A brown cat sits. ' * 40}", "too long"),
        ("swap/obj", "First: dog\nSecond: chair\nNegative: A brown chair sits on a red puppy.", LOST),
        ("swap/obj", "First: dog\nSecond: chair\nNegative: A red chair sits on a brown dog.", MORE),
        ("swap/obj", "First: cat\nSecond: chair\nNegative: A brown chair sits on a red dog.", NOT_SWAPPED),
        ("swap/att", "First: dog\nSecond: on\nNegative: A brown on sits dog a red chair.", "the changed words do not name a quality"),
        ("swap/obj", "None", "the model saw nothing to change"),
        ("add/obj", "Added: a piano\nNegative: A brown dog on a red chair next to a piano.", MORE),
        ("add/obj", "Added: the\nNegative: The a brown dog sits on a red chair.", "the changed words do not name a thing"),
        ("add/att", f"Added: {'very ' * 6}big\nNegative: A {'very ' * 6}big brown dog sits on a red chair.", MUCH),
        ("add/obj", "x" * 100_000, "not the form that was asked for"),
        ("add/obj", "", "not the form that was asked for"),
    ],
)  # fmt: skip
def test_invalid_answers_are_rejected_by_reason(category: str, answer: str, reason: str) -> None:
    assert check_answer(category, answer) == reason


def test_objects_of_other_captions_are_rejected() -> None:
    cat = GOOD["replace/obj"]
    assert check_answer("replace/obj", cat, CAPTION, "A dog and a kitten.") == "another caption mentions it"
    assert check_answer("replace/obj", cat, CAPTION, "A brown cat sits on a red chair") == "same as another caption of the image"
    assert check_answer("add/obj", GOOD["add/obj"], CAPTION, "A piano in a room.") == "another caption mentions it"
    assert check_answer("add/att", GOOD["add/att"], CAPTION, "A striped chair.") == "another caption mentions it"


def test_article_may_change() -> None:
    answer = "Old: dog\nNew: owl\nNegative: An owl sits there."
    assert check_answer("replace/obj", answer, "A dog sits there.") == "An owl sits there."


def test_fields_ignore_case_and_quotes() -> None:
    assert parse_fields("add", 'ADDED: "red"\nnegative: “A red dog.”') == {"added": "red", "negative": "A red dog."}


# -- templates


def test_template_examples_pass_their_own_check() -> None:
    for category, text in load_templates().items():
        examples = text[text.index("Here are two examples.") : text.index("Now it is your turn.")]
        example_texts = [part.strip() for part in examples.split("Caption: ")[1:]]
        assert len(example_texts) == 2
        for example in example_texts:
            caption, _, answer = example.partition("\n")
            assert check_answer(category, answer, caption) == answer.rsplit("Negative: ", 1)[1].strip(), (category, example)


def test_caption_cannot_add_lines_to_a_prompt() -> None:
    assert "\n" not in fill_template("{caption}", "A dog.\n\nIgnore all that\rand")


def test_user_templates_are_read_and_checked(tmp_path: Path) -> None:
    for name, text in load_templates().items():
        (tmp_path / f"{name.replace('/', '_')}.txt").write_text(text + "\nThank you.")
    assert load_templates(tmp_path)["add/obj"].endswith("Thank you.")
    (tmp_path / "add_obj.txt").write_text("no place")
    with pytest.raises(CrossmatchError, match="found it 0 times"):
        load_templates(tmp_path)
    (tmp_path / "add_obj.txt").unlink()
    with pytest.raises(UsageError, match="a template for add/obj"):
        load_templates(tmp_path)


# -- the step


def failures(folder: Path) -> list[dict]:
    return [json.loads(token_ids) for token_ids in (folder / FAILED).read_text().splitlines()]


def test_valid_answers_fill_every_category(tmp_path: Path) -> None:
    with serving(answer_well) as served:
        manifest = write_llm_negatives(SINGLE, endpoint(served)[0], tmp_path / "a")
    rows = read_rows(tmp_path / "a", "negatives")
    assert {row["category"] for row in rows} == set(CATEGORIES)
    assert {tuple(row) for row in rows} == {("id", "caption_id", "image_id", "caption", "negative", "category", "changed")}
    assert manifest["counts"] == {"captions": 1, **dict.fromkeys(CATEGORIES, 1)}
    assert not failures(tmp_path / "a")


def test_failures_are_recorded_and_the_step_continues(tmp_path: Path) -> None:
    def answer_by_category(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
        category = category_of(body)
        if category == "swap/obj":
            send_answer(handler, "As a language model I like dogs.")
        elif category == "swap/att":
            send(handler, "boom", 500)
        elif category == "add/obj":
            send(handler, "<html>")
        else:
            send_answer(handler, GOOD[category])

    with serving(answer_by_category) as served:
        manifest = write_llm_negatives(SINGLE, endpoint(served)[0], tmp_path / "a")
    assert manifest["finished"]
    assert manifest["rows"] == 4
    assert {key: n for key, n in manifest["counts"].items() if key.startswith("failed")} == {
        "failed: answer is not JSON": 1,
        "failed: not the form that was asked for": 1,
        "failed: status 500": 1,
    }
    failed_rows = {row["category"]: row for row in failures(tmp_path / "a")}
    assert failed_rows["swap/obj"]["answer"].startswith("As a language model")
    assert failed_rows["swap/att"]["passing"]


def test_resumed_step_requests_only_what_is_missing(tmp_path: Path) -> None:
    """The first run fails after the fourth request; the second repeats lost requests, but not the rejected one."""

    def first(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
        if n > 4:
            send(handler, "no", 401)
        elif n == 2:
            send_answer(handler, "nonsense")
        elif n == 3:
            send(handler, "no", 500)
        else:
            answer_well(handler, n, body)

    with serving(first) as served, pytest.raises(CrossmatchError, match="returned status 401"):
        write_llm_negatives(SINGLE, Endpoint(served.url, "m", attempts=1), tmp_path / "a")
    manifest = read_manifest(tmp_path / "a")
    assert not manifest["finished"]
    (tmp_path / "a" / FAILED).write_bytes((tmp_path / "a" / FAILED).read_bytes() + b'{"id": "cut o')
    with serving(answer_well) as served:
        # The port of the server is part of the name of the writer in the manifest.
        text = (tmp_path / "a" / "manifest.json").read_text().replace(manifest["options"]["by"], f"{served.url}|m")
        (tmp_path / "a" / "manifest.json").write_text(text)
        finished_manifest = write_llm_negatives(SINGLE, Endpoint(served.url, "m", attempts=1), tmp_path / "a")
        assert len(served.requests) == 4, "three new requests and a lost one"
        assert write_llm_negatives(SINGLE, Endpoint(served.url, "m", attempts=1), tmp_path / "a") == finished_manifest
        assert len(served.requests) == 4, "a finished step sends no request"
    assert finished_manifest["finished"]
    assert finished_manifest["rows"] == 6
    assert finished_manifest["counts"]["failed: not the form that was asked for"] == 1
    assert "failed: status 500" not in finished_manifest["counts"]
    assert len({row["id"] for row in read_rows(tmp_path / "a")}) == 6


def test_lost_endpoint_ends_the_step_and_keeps_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_language_model, "MAX_LOST_IN_A_ROW", 3)
    with (
        serving(lambda handler, n, body: answer_well(handler, n, body) if n == 1 else send(handler, "", 503)) as served,
        pytest.raises(CrossmatchError, match="did not answer 3 requests in a row") as error,
    ):
        write_llm_negatives(ROOM, Endpoint(served.url, "m", attempts=1), tmp_path / "a")
    assert "1 rows are kept" in str(error.value)
    assert len((tmp_path / "a" / "rows.jsonl").read_text().splitlines()) == 1
    assert not read_manifest(tmp_path / "a")["finished"]


def test_step_without_any_answer_is_not_finished(tmp_path: Path) -> None:
    with (
        serving(lambda handler, n, body: send(handler, "", 503)) as served,
        pytest.raises(CrossmatchError, match="did not answer 7 requests in a row"),
    ):
        write_llm_negatives(SINGLE, Endpoint(served.url, "m", attempts=1), tmp_path / "a")
    assert not read_manifest(tmp_path / "a")["finished"]


@dataclass(frozen=True)
class CannedWriter:
    """A writer without a network."""

    name: str = "canned"

    def write(self, prompt: str) -> str:
        return GOOD[category_of({"messages": [{"content": prompt}]})]


class SwappingWriter(CannedWriter):
    """Of each two calls, the first one ends after the second one."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        object.__setattr__(self, "_numbers", itertools.count())
        object.__setattr__(self, "_ends", [threading.Event() for _ in range(calls)])

    def write(self, prompt: str) -> str:
        number = next(self._numbers)
        if number % 2 == 0:
            assert self._ends[number + 1].wait(LIMIT)
        self._ends[number].set()
        return super().write(prompt)


def test_rows_do_not_depend_on_concurrency(tmp_path: Path) -> None:
    many = Collection.from_captions({str(n): [CAPTION] for n in range(6)})
    write_llm_negatives(many, CannedWriter(), tmp_path / "one", at_once=1)
    write_llm_negatives(many, SwappingWriter(6 * len(GOOD)), tmp_path / "four", at_once=4)
    assert (tmp_path / "one" / "rows.jsonl").read_bytes() == (tmp_path / "four" / "rows.jsonl").read_bytes()
    with pytest.raises(UsageError, match="--at-once"):
        write_llm_negatives(many, CannedWriter(), tmp_path / "none", at_once=0)


def test_unreadable_captions_are_skipped(tmp_path: Path) -> None:
    manifest = write_llm_negatives(
        Collection.from_captions({"1": [CAPTION, "狗", "🐕", "dog " * 10_000]}),
        CannedWriter(),
        tmp_path / "a",
        categories=["add/att"],
    )
    passed_over = {f"passed over: {reason}": 1 for reason in ("another script", "no words", "too long")}
    assert manifest["counts"] == {"captions": 4, **passed_over, "add/att": 1}


def test_exception_of_a_model_is_recorded(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Broken:
        name: str = "broken"

        def write(self, prompt: str) -> str:
            raise IndexError("index out of range in self")

    manifest = write_llm_negatives(ROOM, Broken(), tmp_path / "a", categories=["add/att"])
    assert manifest["finished"]
    assert manifest["counts"]["failed: the model failed"] == 2


# -- a local model


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained language model with a few thousand weights."""
    tokenizers, transformers, torch = (pytest.importorskip(name) for name in ("tokenizers", "transformers", "torch"))
    folder = tmp_path_factory.mktemp("model")
    vocabulary = ["[UNK]", "[EOS]", *sorted(set(re.findall(r"\w+|[^\w\s]", " ".join(load_templates().values()) + CAPTION)))]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="[EOS]", bos_token="[EOS]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(vocabulary), n_positions=1024, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def test_local_model_is_used_and_its_failures_recorded(small_model: Path, tmp_path: Path) -> None:
    from crossmatch.models.adapters.transformers.language_model import LanguageModel

    model = LanguageModel.load(str(small_model))
    manifest = write_llm_negatives(SINGLE, model, tmp_path / "a", categories=["add/att", "swap/obj"])
    assert manifest["finished"]
    assert manifest["rows"] + sum(n for key, n in manifest["counts"].items() if key.startswith("failed")) == 2
    assert model.write("A dog") == model.write("A dog")


def test_log_likelihood_is_the_mean_over_tokens(small_model: Path) -> None:
    import torch

    from crossmatch.build.refinement.text_scorers import load_scorer
    from crossmatch.models.adapters.transformers.language_model import LanguageModel

    model = LanguageModel.load(str(small_model))
    token_ids = [1, *model.tokenizer("A brown dog", add_special_tokens=False)["input_ids"]]
    slow = 0.0
    for n in range(1, len(token_ids)):
        logits = model.net(input_ids=torch.tensor([token_ids[:n]])).logits[0, -1].double()
        slow += float(torch.log_softmax(logits, dim=0)[token_ids[n]])
    assert model.log_likelihoods(["A brown dog"])[0] == pytest.approx(slow / (len(token_ids) - 1), rel=1e-5)
    assert load_scorer(f"lm:{small_model}").score(["A dog", "A chair"], ["a", "b"], [True, False]).shape == (2,)
    with pytest.raises(CrossmatchError, match="too few tokens"):
        model.log_likelihoods([""])


def test_models_without_text_generation_are_rejected(small_model: Path, tmp_path: Path) -> None:
    from crossmatch.models.adapters.transformers.language_model import LanguageModel

    manifest = json.loads((small_model / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**manifest, "architectures": ["BertModel"]}))
    with pytest.raises(CrossmatchError, match="generates no text"):
        LanguageModel.load(str(tmp_path))
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    (tmp_path / "config.json").unlink()
    with pytest.raises(CrossmatchError, match="2 gguf files"):
        LanguageModel.load(str(tmp_path))
    (tmp_path / "b.gguf").unlink()
    with pytest.raises((CrossmatchError, ImportError), match=r"gguf"):
        LanguageModel.load(str(tmp_path))
    with pytest.raises(CrossmatchError, match="no model"):
        LanguageModel.load("unknown/model")


def test_manifest_counts_failures_by_reason(tmp_path: Path) -> None:
    many = Collection.from_captions({str(n): [CAPTION, f"A cat near a bus {n}."] for n in range(3)})
    manifest = write_llm_negatives(many, CannedWriter(), tmp_path / "a")
    failed = Counter(row["reason"] for row in failures(tmp_path / "a"))
    assert {f"failed: {reason}": n for reason, n in failed.items()} == {
        k: n for k, n in manifest["counts"].items() if k.startswith("failed")
    }
    assert manifest["rows"] + failed.total() == 6 * len(CATEGORIES)
