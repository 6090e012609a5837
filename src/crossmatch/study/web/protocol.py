"""HTTP as uvicorn speaks it by httptools, a parser in C; by itself it would read headers without end."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 64 * 1024  # bytes of the address and the headers of a request, or of those that follow its body


class Bounded(HttpToolsProtocol):
    """Breaks off where the headers of a request have no end."""

    head: int | None = None  # bytes that came since a request, or the last part of its body, began; None: nothing is in work
    mixed = False  # whether there is something else in what came last, so that it says nothing of the headers

    def data_received(self, data: bytes) -> None:
        self.mixed = False
        super().data_received(data)
        if self.head is not None and not self.mixed and not self.transport.is_closing():
            self.head += len(data)
            if self.head > LARGEST_HEAD:
                self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        self.head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.head = None
        super().on_headers_complete()
        if self.parser.should_upgrade():  # to what we do not speak: nothing that follows would be read
            self.cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        self.head = 0  # if it is the last one, more headers may follow

    def on_body(self, body: bytes) -> None:
        self.head, self.mixed = None, True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.head, self.mixed = None, True
        super().on_message_complete()
