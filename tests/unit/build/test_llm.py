"""Hard negatives by a language model: an endpoint that answers well, badly, late or not at all; and a model on this machine."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build import negative_llm
from crossmatch.build.endpoint import LARGEST, Endpoint, NoAnswer, said_in
from crossmatch.build.files import manifest, read_rows
from crossmatch.build.negative_answers import fields, prompt, taken, templates
from crossmatch.build.negative_kinds import Mentioned
from crossmatch.build.negative_llm import FAILED, written_negatives
from crossmatch.build.phrases import read_all
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords

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
ROOM = Collection.of({"1": [CAPTION, "A dog in a room."]})


# -- a small server


@dataclass
class Served:
    url: str
    asked: list[dict]
    headers: list[dict]


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler, int, dict], None]) -> Iterator[Served]:
    """A server on the loopback; `answer` is given the handler, the number of the request and what was asked."""
    held = Served("", [], [])
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                held.asked.append(body)
                held.headers.append(dict(self.headers))
                number = len(held.asked)
            with suppress(BrokenPipeError, ConnectionResetError):
                answer(self, number, body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    held.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield held
    finally:
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


def says(handler: BaseHTTPRequestHandler, text: object, **more: str) -> None:
    send(handler, json.dumps({"choices": [{"message": {"content": text}}]}), **more)


def category_of(body: dict) -> str:
    """Which template a question was made with."""
    asked = body["messages"][0]["content"]
    return next(name for name, text in templates().items() if asked.startswith(text[: text.index("{caption}")]))


def endpoint(served: Served, **more) -> tuple[Endpoint, list[float]]:
    """An endpoint that does not really wait, and the waits that it asked for."""
    waits: list[float] = []
    return Endpoint(served.url, "small", **{"timeout": 5.0, "attempts": 3, "sleep": waits.append, **more}), waits


# -- one question


def test_an_answer_is_the_text_of_the_first_choice() -> None:
    with serving(lambda handler, n, body: says(handler, " A dog.\n")) as served:
        writer, waits = endpoint(served)
        assert writer.write("hello") == "A dog."
        assert served.asked[0]["messages"] == [{"role": "user", "content": "hello"}]
        assert served.asked[0]["model"] == "small"
        assert not waits


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_passing_trouble_is_asked_again_with_growing_waits(status: int) -> None:
    with serving(lambda handler, n, body: says(handler, "fine") if n == 3 else send(handler, "no", status)) as served:
        writer, waits = endpoint(served, pause=1.0)
        assert writer.write("?") == "fine"
    assert 0.5 <= waits[0] <= 1.0 <= waits[1] <= 2.0


def test_patience_ends() -> None:
    with serving(lambda handler, n, body: send(handler, "no", 500)) as served:
        writer, waits = endpoint(served, attempts=4, pause=1.0, longest=3.0)
        with pytest.raises(NoAnswer, match="status 500") as trouble:
            writer.write("?")
        assert trouble.value.passing
        assert len(served.asked) == 4
        assert len(waits) == 3
        assert max(waits) <= 3.0


@pytest.mark.parametrize(
    ("told", "least", "most"), [("7", 7.0, 7.0), ("9999", 60.0, 60.0), ("nonsense", 0.5, 1.0), ("-3", 0.5, 1.0)]
)
def test_a_wait_that_the_endpoint_asks_for_is_kept_within_bounds(told: str, least: float, most: float) -> None:
    with serving(lambda handler, n, body: says(handler, "fine") if n == 2 else send(handler, "", 429, Retry_After=told)) as served:
        writer, waits = endpoint(served)
        writer.write("?")
    assert least <= waits[0] <= most


def test_a_date_to_come_back_is_understood() -> None:
    from email.utils import formatdate

    later = formatdate(time.time() + 20, usegmt=True)
    with serving(lambda handler, n, body: says(handler, "fine") if n == 2 else send(handler, "", 503, Retry_After=later)) as served:
        writer, waits = endpoint(served)
        writer.write("?")
    assert 15 <= waits[0] <= 20


def test_a_refused_key_or_an_unknown_model_stops_at_once() -> None:
    for status in (401, 403, 404):
        with serving(lambda handler, n, body, status=status: send(handler, "no", status)) as served:
            with pytest.raises(CrossmatchError, match=f"answers {status}"):
                endpoint(served)[0].write("?")
            assert len(served.asked) == 1


def test_a_question_that_it_refuses_is_not_asked_again() -> None:
    with serving(lambda handler, n, body: send(handler, "too long", 400)) as served:
        with pytest.raises(NoAnswer, match="status 400") as trouble:
            endpoint(served)[0].write("?")
        assert not trouble.value.passing
        assert len(served.asked) == 1


def test_silence_is_waited_for_no_longer_than_asked() -> None:
    with serving(lambda handler, n, body: time.sleep(3)) as served:
        writer, _ = endpoint(served, timeout=0.2, attempts=2)
        start = time.monotonic()
        with pytest.raises(NoAnswer, match="timed out"):
            writer.write("?")
        assert time.monotonic() - start < 2.5


def test_an_answer_that_comes_in_drops_is_given_up() -> None:
    def drip(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(30):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)

    with serving(drip) as served:
        writer, _ = endpoint(served, timeout=0.4, attempts=1)
        start = time.monotonic()
        with pytest.raises(NoAnswer, match="timed out"):
            writer.write("?")
        assert time.monotonic() - start < 2.5


def test_a_connection_that_closes_is_lost() -> None:
    with serving(lambda handler, n, body: handler.connection.close()) as served, pytest.raises(NoAnswer, match="lost connection"):
        endpoint(served)[0].write("?")


def test_an_answer_that_is_cut_off_is_asked_for_again() -> None:
    def cut(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
        if n == 2:
            says(handler, "fine")
        else:
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b'{"choices": [')

    with serving(cut) as served:
        assert endpoint(served)[0].write("?") == "fine"


def test_nobody_there_is_a_lost_connection() -> None:
    with serving(lambda handler, n, body: None) as served:
        pass
    with pytest.raises(NoAnswer, match="lost connection") as trouble:
        endpoint(served)[0].write("?")
    assert trouble.value.passing


def test_a_huge_answer_is_not_read_to_its_end() -> None:
    def huge(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(64):
            handler.wfile.write(b"x" * (LARGEST // 8))

    with serving(huge) as served, pytest.raises(NoAnswer, match="too large"):
        endpoint(served)[0].write("?")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[1]",
        b"null",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": 3}}]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"choices": [{"message": {"content": "A cat \\ud83d on a mat."}}]}',
    ],
)
def test_answers_that_are_none_are_told_apart_from_texts(body: bytes) -> None:
    with pytest.raises(NoAnswer):
        said_in(body)


def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with (
        serving(lambda handler, n, body: says(handler, "stolen")) as other,
        serving(lambda handler, n, body: send(handler, "", 307, Location=f"{other.url}/chat/completions")) as served,
    ):
        with pytest.raises(NoAnswer, match="status 307"):
            endpoint(served)[0].write("?")
        assert not other.asked


def test_the_key_is_sent_and_kept_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    with serving(lambda handler, n, body: says(handler, GOOD[category_of(body)])) as served:
        writer, _ = endpoint(served, key_from="MY_KEY")
        written_negatives(ROOM, writer, tmp_path / "a", captions=1)
        assert served.headers[0]["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in repr(writer) + "".join(path.read_text() for path in (tmp_path / "a").iterdir())


def test_a_key_does_not_travel_openly_and_must_look_like_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with pytest.raises(CrossmatchError, match="unencrypted") as trouble:
        Endpoint("http://example.org/v1", "m").write("?")
    assert "sk-secret" not in str(trouble.value)
    monkeypatch.setenv("OPENAI_API_KEY", "sk\nsecret")
    with pytest.raises(CrossmatchError, match="no key has") as trouble:
        Endpoint("https://localhost/v1", "m").write("?")
    assert "secret" not in str(trouble.value)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "file:///etc/passwd", "http://", "http://me:word@host/v1", "http://host/v1?key=3", ""]
)
def test_odd_addresses_are_refused(url: str) -> None:
    with pytest.raises(WrongWords, match="bare address"):
        Endpoint(url, "m")


def test_odd_patience_is_refused() -> None:
    for wrong in ({"attempts": 0}, {"timeout": 0}, {"timeout": float("nan")}, {"pause": -1}, {"tokens": 0}):
        with pytest.raises(WrongWords, match="at least one attempt"):
            Endpoint("http://localhost/v1", "m", **wrong)
    with pytest.raises(WrongWords, match="no model"):
        Endpoint("http://localhost/v1", " ")


# -- answers


def judged(category: str, answer: str, caption: str = CAPTION, *others: str) -> str:
    """The negative in an answer, or why there is none."""
    read = read_all([caption, *others])
    try:
        return taken(category, answer, read[0], Mentioned(tuple(read))).text
    except NoAnswer as trouble:
        return trouble.reason


@pytest.mark.parametrize("category", CATEGORIES)
def test_good_answers_are_taken(category: str) -> None:
    assert judged(category, GOOD[category]) == GOOD[category].rsplit("Negative: ", 1)[1]
    decorated = "Sure! Here it is:\n\n" + re.sub(r"(?m)^(\w+):", r"**\1:**", GOOD[category])
    assert judged(category, decorated) == GOOD[category].rsplit("Negative: ", 1)[1]


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
        ("replace/obj", "Old: red\nNew: green\nNegative: A brown dog sits on a green chair.", "the changed words are no thing"),
        ("replace/rel", "Old: dog\nNew: cat\nNegative: A brown cat sits on a red chair.", "the changed words are no relation"),
        ("replace/att", "Old: red\nNew: crimson\nNegative: A brown dog sits on a crimson chair.", RELATED),
        ("replace/obj", "Old: dog\nNew: cat\nNegative: Does a brown cat sit on a red chair?", "a question"),
        ("replace/obj", f"Old: dog\nNew: cat\nNegative: {'A brown cat sits. ' * 40}", "too long"),
        ("swap/obj", "First: dog\nSecond: chair\nNegative: A brown chair sits on a red puppy.", LOST),
        ("swap/obj", "First: dog\nSecond: chair\nNegative: A red chair sits on a brown dog.", MORE),
        ("swap/obj", "First: cat\nSecond: chair\nNegative: A brown chair sits on a red dog.", NOT_SWAPPED),
        ("swap/att", "First: dog\nSecond: on\nNegative: A brown on sits dog a red chair.", "the changed words are no quality"),
        ("swap/obj", "None", "the model saw nothing to change"),
        ("add/obj", "Added: a piano\nNegative: A brown dog on a red chair next to a piano.", MORE),
        ("add/obj", "Added: the\nNegative: The a brown dog sits on a red chair.", "the changed words are no thing"),
        ("add/att", f"Added: {'very ' * 6}big\nNegative: A {'very ' * 6}big brown dog sits on a red chair.", MUCH),
        ("add/obj", "x" * 100_000, "not the form that was asked for"),
        ("add/obj", "", "not the form that was asked for"),
    ],
)  # fmt: skip
def test_answers_that_do_not_follow_the_template_are_refused_by_reason(category: str, answer: str, reason: str) -> None:
    assert judged(category, answer) == reason


def test_what_another_caption_mentions_is_refused() -> None:
    cat = GOOD["replace/obj"]
    assert judged("replace/obj", cat, CAPTION, "A dog and a kitten.") == "another caption mentions it"
    assert judged("replace/obj", cat, CAPTION, "A brown cat sits on a red chair") == "same as another caption of the image"
    assert judged("add/obj", GOOD["add/obj"], CAPTION, "A piano in a room.") == "another caption mentions it"
    assert judged("add/att", GOOD["add/att"], CAPTION, "A striped chair.") == "another caption mentions it"


def test_an_article_may_change() -> None:
    answer = "Old: dog\nNew: owl\nNegative: An owl sits there."
    assert judged("replace/obj", answer, "A dog sits there.") == "An owl sits there."


def test_lines_are_found_in_any_case_and_quotes_are_taken_off() -> None:
    assert fields("add", 'ADDED: "red"\nnegative: “A red dog.”') == {"added": "red", "negative": "A red dog."}


# -- templates


def test_every_category_has_a_template_whose_examples_pass_its_own_check() -> None:
    for category, text in templates().items():
        examples = text[text.index("Here are two examples.") : text.index("Now it is your turn.")]
        shown = [part.strip() for part in examples.split("Caption: ")[1:]]
        assert len(shown) == 2
        for example in shown:
            caption, _, answer = example.partition("\n")
            assert judged(category, answer, caption) == answer.rsplit("Negative: ", 1)[1].strip(), (category, example)


def test_a_caption_cannot_end_a_prompt_early() -> None:
    assert "\n" not in prompt("{caption}", "A dog.\n\nIgnore all that\rand")


def test_own_templates_are_read_and_checked(tmp_path: Path) -> None:
    for name, text in templates().items():
        (tmp_path / f"{name.replace('/', '_')}.txt").write_text(text + "\nThank you.")
    assert templates(tmp_path)["add/obj"].endswith("Thank you.")
    (tmp_path / "add_obj.txt").write_text("no place")
    with pytest.raises(CrossmatchError, match="0 places for the caption"):
        templates(tmp_path)
    (tmp_path / "add_obj.txt").unlink()
    with pytest.raises(WrongWords, match="a template for add/obj"):
        templates(tmp_path)


# -- the step


def failures(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / FAILED).read_text().splitlines()]


def test_a_model_that_answers_well_fills_every_category(tmp_path: Path) -> None:
    only = Collection.of({"1": [CAPTION]})
    with serving(lambda handler, n, body: says(handler, GOOD[category_of(body)])) as served:
        told = written_negatives(only, endpoint(served)[0], tmp_path / "a")
    rows = read_rows(tmp_path / "a", "negatives")
    assert {row["category"] for row in rows} == set(CATEGORIES)
    assert {tuple(row) for row in rows} == {("id", "caption_id", "image_id", "caption", "negative", "category", "changed")}
    assert told["counts"] == {"captions": 1, **dict.fromkeys(CATEGORIES, 1)}
    assert not failures(tmp_path / "a")


def test_nonsense_is_recorded_and_the_step_goes_on(tmp_path: Path) -> None:
    def moody(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
        category = category_of(body)
        if category == "swap/obj":
            says(handler, "As a language model I like dogs.")
        elif category == "swap/att":
            send(handler, "boom", 500)
        elif category == "add/obj":
            send(handler, "<html>")
        else:
            says(handler, GOOD[category])

    with serving(moody) as served:
        told = written_negatives(Collection.of({"1": [CAPTION]}), endpoint(served)[0], tmp_path / "a")
    assert told["finished"]
    assert told["rows"] == 4
    assert {key: n for key, n in told["counts"].items() if key.startswith("failed")} == {
        "failed: answer is no json": 1,
        "failed: not the form that was asked for": 1,
        "failed: status 500": 1,
    }
    found = {row["category"]: row for row in failures(tmp_path / "a")}
    assert found["swap/obj"]["answer"].startswith("As a language model")
    assert found["swap/att"]["passing"]


def test_a_step_that_was_broken_off_asks_only_what_is_open(tmp_path: Path) -> None:
    """The first run loses everything after the fourth question; the second asks for the lost ones, not for the refused one."""
    only = Collection.of({"1": [CAPTION]})

    def first(handler: BaseHTTPRequestHandler, n: int, body: dict) -> None:
        if n > 4:
            send(handler, "no", 401)
        elif n == 2:
            says(handler, "nonsense")
        elif n == 3:
            send(handler, "no", 500)
        else:
            says(handler, GOOD[category_of(body)])

    with serving(first) as served, pytest.raises(CrossmatchError, match="answers 401"):
        written_negatives(only, Endpoint(served.url, "m", attempts=1), tmp_path / "a")
    told = manifest(tmp_path / "a")
    assert not told["finished"]
    (tmp_path / "a" / FAILED).write_bytes((tmp_path / "a" / FAILED).read_bytes() + b'{"id": "cut o')
    with serving(lambda handler, n, body: says(handler, GOOD[category_of(body)])) as served:
        # The manifest knows the writer by name; the port of this test's server is part of it.
        text = (tmp_path / "a" / "manifest.json").read_text().replace(told["options"]["by"], f"{served.url}|m")
        (tmp_path / "a" / "manifest.json").write_text(text)
        done = written_negatives(only, Endpoint(served.url, "m", attempts=1), tmp_path / "a")
        assert len(served.asked) == 4, "three that were never asked, and one that was lost"
        assert written_negatives(only, Endpoint(served.url, "m", attempts=1), tmp_path / "a") == done
        assert len(served.asked) == 4, "what is finished is not asked again"
    assert done["finished"]
    assert done["rows"] == 6
    assert done["counts"]["failed: not the form that was asked for"] == 1
    assert "failed: status 500" not in done["counts"]
    assert len({row["id"] for row in read_rows(tmp_path / "a")}) == 6


def test_an_endpoint_that_is_not_there_ends_the_step_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(negative_llm, "GIVE_UP", 3)
    with (
        serving(lambda handler, n, body: says(handler, GOOD[category_of(body)]) if n == 1 else send(handler, "", 503)) as served,
        pytest.raises(CrossmatchError, match="3 questions in a row without an answer") as trouble,
    ):
        written_negatives(ROOM, Endpoint(served.url, "m", attempts=1), tmp_path / "a")
    assert "1 rows are kept" in str(trouble.value)
    assert len((tmp_path / "a" / "rows.jsonl").read_text().splitlines()) == 1
    assert not manifest(tmp_path / "a")["finished"]


def test_few_questions_that_nobody_answered_are_not_a_finished_step(tmp_path: Path) -> None:
    one = Collection.of({"1": [CAPTION]})
    with serving(lambda handler, n, body: send(handler, "", 503)) as served:
        words = Endpoint(served.url, "m", attempts=1)
        with pytest.raises(CrossmatchError, match="left 7 questions in a row without an answer"):
            written_negatives(one, words, tmp_path / "a")
    assert not manifest(tmp_path / "a")["finished"]


@dataclass(frozen=True)
class Canned:
    """A writer without a network, as slow as it is told to be."""

    delay: float = 0.0
    name: str = "canned"

    def write(self, prompt: str) -> str:
        category = next(name for name, text in templates().items() if prompt.startswith(text[: text.index("{caption}")]))
        time.sleep(self.delay * (len(prompt) % 3))
        return GOOD[category]


def test_the_number_of_questions_at_once_does_not_change_the_rows(tmp_path: Path) -> None:
    many = Collection.of({str(n): [CAPTION] for n in range(6)})
    for name, at_once in (("one", 1), ("four", 4)):
        written_negatives(many, Canned(0.002), tmp_path / name, at_once=at_once)
    assert (tmp_path / "one" / "rows.jsonl").read_bytes() == (tmp_path / "four" / "rows.jsonl").read_bytes()
    with pytest.raises(WrongWords, match="at once"):
        written_negatives(many, Canned(), tmp_path / "none", at_once=0)


def test_captions_that_cannot_be_read_are_passed_over_without_a_question(tmp_path: Path) -> None:
    told = written_negatives(
        Collection.of({"1": [CAPTION, "狗", "🐕", "dog " * 10_000]}), Canned(), tmp_path / "a", categories=["add/att"]
    )
    assert told["counts"] == {
        "captions": 4,
        "passed over: another script": 1,
        "passed over: no words": 1,
        "passed over: too long": 1,
        "add/att": 1,
    }


def test_a_model_that_breaks_on_a_prompt_is_recorded(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Broken:
        name: str = "broken"

        def write(self, prompt: str) -> str:
            raise IndexError("index out of range in self")

    told = written_negatives(ROOM, Broken(), tmp_path / "a", categories=["add/att"])
    assert told["finished"]
    assert told["counts"]["failed: the model failed"] == 2


# -- a model on this machine


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of a few thousand weights that has learnt nothing."""
    tokenizers, transformers, torch = (pytest.importorskip(name) for name in ("tokenizers", "transformers", "torch"))
    folder = tmp_path_factory.mktemp("model")
    known = ["[UNK]", "[EOS]", *sorted(set(re.findall(r"\w+|[^\w\s]", " ".join(templates().values()) + CAPTION)))]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(known)}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", eos_token="[EOS]", bos_token="[EOS]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(known), n_positions=1024, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def test_a_local_model_is_asked_and_its_nonsense_recorded(small_model: Path, tmp_path: Path) -> None:
    from crossmatch.models.hf.language_model import LanguageModel

    model = LanguageModel.load(str(small_model))
    told = written_negatives(Collection.of({"1": [CAPTION]}), model, tmp_path / "a", categories=["add/att", "swap/obj"])
    assert told["finished"]
    assert told["rows"] + sum(n for key, n in told["counts"].items() if key.startswith("failed")) == 2
    assert model.write("A dog") == model.write("A dog")


def test_the_likelihood_of_a_text_is_the_mean_over_its_tokens(small_model: Path) -> None:
    import torch

    from crossmatch.build.fluency import scorer
    from crossmatch.models.hf.language_model import LanguageModel

    model = LanguageModel.load(str(small_model))
    line = [1, *model.tokenizer("A brown dog", add_special_tokens=False)["input_ids"]]
    slow = 0.0
    for n in range(1, len(line)):
        logits = model.net(input_ids=torch.tensor([line[:n]])).logits[0, -1].double()
        slow += float(torch.log_softmax(logits, dim=0)[line[n]])
    assert model.log_likelihoods(["A brown dog"])[0] == pytest.approx(slow / (len(line) - 1), rel=1e-5)
    assert scorer(f"lm:{small_model}").score(["A dog", "A chair"], ["a", "b"], [True, False]).shape == (2,)
    with pytest.raises(CrossmatchError, match="too short"):
        model.log_likelihoods([""])


def test_models_that_write_no_texts_are_refused(small_model: Path, tmp_path: Path) -> None:
    from crossmatch.models.hf.language_model import LanguageModel

    told = json.loads((small_model / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**told, "architectures": ["BertModel"]}))
    with pytest.raises(CrossmatchError, match="does not write texts"):
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
        LanguageModel.load("nobody/nothing")


def test_counts_of_reasons_add_up(tmp_path: Path) -> None:
    many = Collection.of({str(n): [CAPTION, f"A cat near a bus {n}."] for n in range(3)})
    told = written_negatives(many, Canned(), tmp_path / "a")
    failed = Counter(row["reason"] for row in failures(tmp_path / "a"))
    assert {f"failed: {reason}": n for reason, n in failed.items()} == {
        k: n for k, n in told["counts"].items() if k.startswith("failed")
    }
    assert told["rows"] + failed.total() == 6 * len(CATEGORIES)
