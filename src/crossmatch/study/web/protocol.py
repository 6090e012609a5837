"""HTTP as uvicorn speaks it by httptools, which takes half the time of its other parser but reads headers without end."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 64 * 1024  # bytes of the address and the headers of a request


class Bounded(HttpToolsProtocol):
    """Breaks off where the headers of a request have no end."""

    head: int | None = None  # bytes that came since a request began; None: its headers are complete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.head is not None and not self.transport.is_closing():
            self.head += len(data)
            if self.head > LARGEST_HEAD:
                self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        self.head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.head = None
        super().on_headers_complete()
